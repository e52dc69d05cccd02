"""Wrong constraints, each with a face that differs from its check in one corner."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from nest_opt.constraints import Breach, Constraint, Placed


class LayersAtMost(Constraint):
    """Right: every stage holds at most so many layers."""

    constraint: Literal["planted_right"] = "planted_right"
    at_most: int = 1
    meaning = "every stage holds at most so many layers"

    @classmethod
    def sample(cls, compiled: Any, random: Random) -> LayersAtMost:
        return cls(at_most=random.randint(1, compiled.layer_count))

    def check(self, placed: Placed) -> Iterator[Breach]:
        for j, stage in enumerate(placed.plan.stages):
            if stage.layers[1] - stage.layers[0] > self.at_most:
                yield Breach(f"stage {j}", "holds too many layers")

    def allows_stage(self, stages: Any) -> Any:
        return stages.layers <= self.at_most

    def restrict(self, stages: Any) -> None:
        for j in stages.numbers:
            stages.require(stages.layers(j) <= self.at_most)


class NotTheLastStage(LayersAtMost):
    constraint: Literal["planted_last"] = "planted_last"  # type: ignore[assignment]

    def allows_stage(self, stages: Any) -> Any:
        return stages.number == stages.cell.stages - 1 or super().allows_stage(stages)


class NotASingleStage(LayersAtMost):
    constraint: Literal["planted_single"] = "planted_single"  # type: ignore[assignment]

    def allows_stage(self, stages: Any) -> Any:
        return stages.cell.stages == 1 or super().allows_stage(stages)


class OneOffAtThree(LayersAtMost):
    constraint: Literal["planted_three"] = "planted_three"  # type: ignore[assignment]

    def allows_stage(self, stages: Any) -> Any:
        return stages.layers <= self.at_most + (self.at_most == 3)


class NotWithFewMicrobatches(LayersAtMost):
    constraint: Literal["planted_few"] = "planted_few"  # type: ignore[assignment]

    def allows_stage(self, stages: Any) -> Any:
        few = stages.cell.microbatches < stages.cell.stages
        return few or super().allows_stage(stages)


class NotInOneLayout(LayersAtMost):
    constraint: Literal["planted_layout"] = "planted_layout"  # type: ignore[assignment]

    def restrict(self, stages: Any) -> None:
        if stages.cell.layout == "pipeline-inner":
            super().restrict(stages)


class WholeCellsThatAreNone(LayersAtMost):
    constraint: Literal["planted_whole"] = "planted_whole"  # type: ignore[assignment]

    def check(self, placed: Placed) -> Iterator[Breach]:
        for breach in super().check(placed):
            yield Breach(breach.where, breach.message, whole_cell=True)
