"""Layers that must lie in one stage."""

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

_Layers = Annotated[tuple[int | str, ...], Field(min_length=2, max_length=4096)]


class SameStage(Constraint):
    """Some layers, given by number or name, lie in one stage, with all between them."""

    constraint: Literal["same_stage"] = "same_stage"
    layers: _Layers

    meaning: ClassVar[str] = "these layers lie in the same stage"

    def complaint(self, compiled: Compiled) -> str | None:
        return layer_complaint(self.layers, compiled.layer_names)

    def marked_layers(self, compiled: Compiled) -> tuple[int, int]:
        """The first and the last of them: what lies between comes along."""
        numbers = layer_numbers(self.layers, compiled.layer_names)
        return min(numbers), max(numbers)

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> SameStage:
        first = random.randrange(compiled.layer_count)
        return cls(layers=(first, random.randrange(first, compiled.layer_count)))

    def check(self, placed: Placed) -> Iterator[Breach]:
        held: dict[int, int] = {}
        for layer in layer_numbers(self.layers, placed.compiled.layer_names):
            held[layer] = placed.stage_of(layer)
        if len(set(held.values())) > 1:
            places = ", ".join(f"layer {i} in stage {j}" for i, j in sorted(held.items()))
            yield Breach("stages", f"hold {places}; move the boundaries so that one holds them all")

    def allows_stage(self, stages: Stages) -> Any:
        first, last = self.marked_layers(stages.compiled)
        return stages.holds(first) == stages.holds(last)

    def restrict(self, stages: StageModel) -> None:
        first, last = self.marked_layers(stages.compiled)
        if first != last:
            for j in stages.numbers:
                stages.require(stages.holds(first, j) == stages.holds(last, j))
