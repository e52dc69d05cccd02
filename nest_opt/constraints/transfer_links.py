"""How far a microbatch may travel between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places


class TransferLinks(Constraint):
    """Neighbouring stages of a replica lie within a link class (0: inside a node)."""

    constraint: Literal["transfer_links"] = "transfer_links"
    at_most: Annotated[int, Field(ge=0, le=63)]

    meaning: ClassVar[str] = "no transfer between stages goes over a link beyond that class"

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> TransferLinks:
        return cls(at_most=random.randint(0, max(0, len(compiled.network.classes) - 2)))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "at_most", range(self.at_most + 1, len(compiled.network.classes))

    def check(self, placed: Placed) -> Iterator[Breach]:
        stages = placed.plan.stages
        for j in range(1, len(stages)):
            for r in range(len(stages[j].devices)):
                both = (*stages[j - 1].devices[r], *stages[j].devices[r])
                reach = placed.compiled.network.class_of(both)
                if reach > self.at_most:
                    yield Breach(
                        f"stages {j - 1} and {j}, replica {r}",
                        f"are joined by link class {reach}, beyond {self.at_most}; use fewer "
                        "stages, narrower ones, or the other layout",
                        reach - self.at_most,
                        whole_cell=True,
                    )

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        return not bool((places.transfer_classes > self.at_most).any())

    def restrict(self, stages: StageModel) -> None:
        network = stages.compiled.network
        for r in range(stages.cell.replicas):
            for j in stages.numbers[:-1]:
                reach = network.class_of([*stages.devices(j, r), *stages.devices(j + 1, r)])
                if reach > self.at_most:
                    stages.forbid()
