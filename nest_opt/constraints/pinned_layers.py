"""Layers that lie in the first or in the last stage."""

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

_Layers = Annotated[tuple[int | str, ...], Field(max_length=4096)]


class PinnedLayers(Constraint):
    """Some layers, given by number or name, lie in the first stage, and some in the last."""

    constraint: Literal["pinned_layers"] = "pinned_layers"
    first: _Layers = ()
    last: _Layers = ()

    meaning: ClassVar[str] = "these layers lie in the first stage, those in the last"

    def complaint(self, compiled: Compiled) -> str | None:
        return layer_complaint((*self.first, *self.last), compiled.layer_names)

    def marked_layers(self, compiled: Compiled) -> tuple[int, ...]:
        """All of them."""
        return layer_numbers((*self.first, *self.last), compiled.layer_names)

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> PinnedLayers:
        count = compiled.layer_count
        if random.random() < 0.5:
            return cls(first=(random.randrange(min(count, 3)),))
        return cls(last=(random.randrange(max(0, count - 3), count),))

    def check(self, placed: Placed) -> Iterator[Breach]:
        end = len(placed.plan.stages) - 1
        for pinned, wanted, name in ((self.first, 0, "first"), (self.last, end, "last")):
            for layer in layer_numbers(pinned, placed.compiled.layer_names):
                if (j := placed.stage_of(layer)) != wanted:
                    yield Breach(
                        f"stage {j}", f"holds layer {layer}, which belongs into the {name} stage"
                    )

    def allows_stage(self, stages: Stages) -> Any:
        allowed: Any = True
        names = stages.compiled.layer_names
        if stages.number == 0:
            for layer in layer_numbers(self.first, names):
                allowed = allowed & stages.holds(layer)
        if stages.number == stages.cell.stages - 1:
            for layer in layer_numbers(self.last, names):
                allowed = allowed & stages.holds(layer)
        return allowed

    def restrict(self, stages: StageModel) -> None:
        names = stages.compiled.layer_names
        for layer in layer_numbers(self.first, names):
            stages.require(stages.holds(layer, 0) == 1)
        for layer in layer_numbers(self.last, names):
            stages.require(stages.holds(layer, stages.numbers[-1]) == 1)
