"""How many layers a stage may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Stages

_Count = Annotated[int, Field(ge=1, le=4096)]


class LayersPerStage(Constraint):
    """Every stage holds at least, at most, or (both alike) exactly so many layers."""

    constraint: Literal["layers_per_stage"] = "layers_per_stage"
    at_least: _Count = 1
    at_most: _Count = 4096

    meaning: ClassVar[str] = "every stage holds at least and at most so many layers"

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.at_least > self.at_most:
            raise ValueError(f"at_least is {self.at_least}, above at_most {self.at_most}")
        return self

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> LayersPerStage:
        count = compiled.layer_count
        least = random.randint(1, max(1, count // 2))
        return cls(at_least=least, at_most=random.randint(least, count))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "at_most", range(self.at_most + 1, compiled.layer_count + 1)
        yield "at_least", range(self.at_least - 1, 0, -1)

    def check(self, placed: Placed) -> Iterator[Breach]:
        for j, stage in enumerate(placed.plan.stages):
            held = stage.layers[1] - stage.layers[0]
            if held < self.at_least:
                yield Breach(
                    f"stage {j}",
                    f"holds {held} layers, fewer than {self.at_least}; move layers into it, or use "
                    "fewer stages",
                    self.at_least - held,
                )
            elif held > self.at_most:
                yield Breach(
                    f"stage {j}",
                    f"holds {held} layers, more than {self.at_most}; move layers out of it, or use "
                    "more stages",
                    held - self.at_most,
                )

    def allows_stage(self, stages: Stages) -> Any:
        return (stages.layers >= self.at_least) & (stages.layers <= self.at_most)

    def restrict(self, stages: StageModel) -> None:
        for j in stages.numbers:
            stages.require(stages.layers(j) >= self.at_least)
            stages.require(stages.layers(j) <= self.at_most)
