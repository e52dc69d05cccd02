"""A cap on the synchronisation at the end of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor, inf, nextafter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Stages


class SynchronisationAtMost(Constraint):
    """The synchronisation of a batch (sigma) takes at most so long."""

    constraint: Literal["synchronisation_at_most"] = "synchronisation_at_most"
    seconds: Annotated[float, Field(ge=0, le=1e9)]

    meaning: ClassVar[str] = "the synchronisation at the end of a batch takes at most so long"

    def limit_ticks(self, compiled: Compiled) -> int:
        """The whole ticks in it."""
        return floor(Fraction(repr(self.seconds)) / compiled.tick_seconds)

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> SynchronisationAtMost:
        ticks = random.choice((0, 1, 10, 50, 100, 200, 400, 1000)) * compiled.sync_multiple
        return cls(seconds=float(ticks * compiled.tick_seconds))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "seconds", _Ticks(self.limit_ticks(compiled) + 1, compiled.tick_seconds)

    def check(self, placed: Placed) -> Iterator[Breach]:
        limit = self.limit_ticks(placed.compiled)
        paid = placed.stages
        if placed.compiled.cost_model.synchronisation == "first_stage":
            paid = paid[:1]
        for j, stage in enumerate(paid):
            if stage.sync_ticks > limit:
                yield Breach(
                    f"stage {j}",
                    f"synchronises for {stage.sync_ticks} ticks, longer than {limit}; use fewer "
                    "replicas, more stages, or another layout or ZeRO stage",
                    stage.sync_ticks - limit,
                )

    def allows_stage(self, stages: Stages) -> Any:
        return stages.sync <= self.limit_ticks(stages.compiled)

    def restrict(self, stages: StageModel) -> None:
        for j in stages.numbers:
            stages.sync_at_most(j, self.limit_ticks(stages.compiled))


class _Ticks(Sequence[float]):
    """So many ticks and ever more, in seconds."""

    def __init__(self, first: int, tick_seconds: Fraction) -> None:
        self._first, self._tick = first, tick_seconds

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, index: Any) -> Any:
        # Rounded up in the last digit, so that the whole ticks in it are these.
        return nextafter(float((self._first + index) * self._tick), inf)
