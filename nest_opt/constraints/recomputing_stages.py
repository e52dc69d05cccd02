"""How many stages may recompute."""

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
    from nest_opt.dp.stages import Stages


class RecomputingStages(Constraint):
    """At most so many stages recompute anything, fully or selectively."""

    constraint: Literal["recomputing_stages"] = "recomputing_stages"
    at_most: Annotated[int, Field(ge=0, le=1000)]

    meaning: ClassVar[str] = "at most so many stages recompute"

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> RecomputingStages:
        return cls(at_most=random.randint(0, max(1, compiled.layer_count - 1)))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "at_most", range(self.at_most + 1, compiled.layer_count + 1)

    def check(self, placed: Placed) -> Iterator[Breach]:
        found = [j for j, s in enumerate(placed.plan.stages) if s.recomputation != "none"]
        if len(found) > self.at_most:
            yield Breach(
                f"stages {', '.join(map(str, found))}",
                f"recompute, {len(found)} of them where {self.at_most} may; give up recomputation "
                "in some",
                len(found) - self.at_most,
            )

    def carried(self, cell: Cell) -> int:
        # What is carried is how many recompute; there are no more stages than that.
        return min(self.at_most, cell.stages) + 1

    def carry(self, value: int, stages: Stages) -> int:
        if stages.recomputation == "none":
            return value
        return value + 1 if value < self.at_most else -1

    def restrict(self, stages: StageModel) -> None:
        none = sum(stages.chooses(j, recomputation="none") for j in stages.numbers)
        stages.require(none >= len(stages.numbers) - self.at_most)
