"""How many devices a plan uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places

_Count = Annotated[int, Field(ge=1, le=2**20)]


class DevicesUsed(Constraint):
    """All devices are used, or at least or at most so many."""

    constraint: Literal["devices_used"] = "devices_used"
    every: bool = False
    at_least: _Count = 1
    at_most: _Count = 2**20

    meaning: ClassVar[str] = "all devices are used, or at least and at most so many"

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least is {self.at_least}, above at_most {self.at_most}")
        return self

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> DevicesUsed:
        if random.random() < 0.3:
            return cls(every=True)
        least = random.randint(1, compiled.devices)
        return cls(at_least=least, at_most=random.randint(least, compiled.devices))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "at_most", range(self.at_most + 1, compiled.devices + 1)
        if not self.every:
            yield "at_least", range(self.at_least - 1, 0, -1)

    def check(self, placed: Placed) -> Iterator[Breach]:
        used, count = placed.plan.devices_used, placed.compiled.devices
        least = max(self.at_least, count) if self.every else self.at_least
        if used < least:
            yield Breach(
                "plan",
                f"uses {used} devices, fewer than {least}; use more replicas, stages or ranks",
                least - used,
                whole_cell=True,
            )
        if used > self.at_most:
            yield Breach(
                "plan",
                f"uses {used} devices, more than {self.at_most}; use fewer replicas, stages or "
                "ranks",
                used - self.at_most,
                whole_cell=True,
            )

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        used = cell.replicas * cell.stages * cell.template.width
        if self.every and used != places.compiled.devices:
            return False
        return self.at_least <= used <= self.at_most

    def restrict(self, stages: StageModel) -> None:
        used = sum(
            len(stages.devices(j, r)) for j in stages.numbers for r in range(stages.cell.replicas)
        )
        least = stages.compiled.devices if self.every else self.at_least
        if not max(least, self.at_least) <= used <= self.at_most:
            stages.forbid()
