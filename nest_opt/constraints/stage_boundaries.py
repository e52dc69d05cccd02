"""Where stages may begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed, layer_complaint, layer_numbers

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Stages


class StageBoundaries(Constraint):
    """Stages other than the first begin only with these layers, given by number or name."""

    constraint: Literal["stage_boundaries"] = "stage_boundaries"
    before: Annotated[tuple[int | str, ...], Field(max_length=4096)]

    meaning: ClassVar[str] = "stages other than the first begin only with these layers"

    def complaint(self, compiled: Compiled) -> str | None:
        return layer_complaint(self.before, compiled.layer_names)

    def marked_layers(self, compiled: Compiled) -> tuple[int, ...]:
        """All of them; where else a stage begins does not matter, for it may not."""
        return layer_numbers(self.before, compiled.layer_names)

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> StageBoundaries:
        count = compiled.layer_count
        return cls(before=tuple(i for i in range(count) if random.random() < 0.6))

    def check(self, placed: Placed) -> Iterator[Breach]:
        allowed = set(layer_numbers(self.before, placed.compiled.layer_names))
        for j, stage in enumerate(placed.plan.stages):
            if j > 0 and stage.layers[0] not in allowed:
                yield Breach(
                    f"stage {j}",
                    f"begins with layer {stage.layers[0]}; it may begin with "
                    f"{', '.join(map(str, sorted(allowed))) or 'none'}",
                )

    def allows_stage(self, stages: Stages) -> Any:
        allowed: Any = stages.first == 0
        for layer in layer_numbers(self.before, stages.compiled.layer_names):
            allowed = allowed | (stages.first == layer)
        return allowed

    def restrict(self, stages: StageModel) -> None:
        layers = sorted(set(self.marked_layers(stages.compiled)))
        for j in stages.numbers[1:]:
            if layers:
                stages.require(sum(stages.starts(layer, j) for layer in layers) == 1)
            else:
                stages.forbid()
