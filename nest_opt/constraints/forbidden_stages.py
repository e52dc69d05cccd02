"""Layers that must not lie in some stages."""

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

_Layers = Annotated[tuple[int | str, ...], Field(min_length=1, max_length=4096)]


class ForbiddenStages(Constraint):
    """Some layers, given by number or name, lie in none of these stages.

    Stages are numbered from 0; negative numbers count from the last (-1). A number that a pipeline
    does not have forbids nothing there.
    """

    constraint: Literal["forbidden_stages"] = "forbidden_stages"
    layers: _Layers
    stages: Annotated[
        tuple[Annotated[int, Field(ge=-4096, le=4095)], ...], Field(min_length=1, max_length=4096)
    ]

    meaning: ClassVar[str] = "these layers lie in none of these stages"

    def complaint(self, compiled: Compiled) -> str | None:
        return layer_complaint(self.layers, compiled.layer_names)

    def marked_layers(self, compiled: Compiled) -> tuple[int, ...]:
        """All of them."""
        return layer_numbers(self.layers, compiled.layer_names)

    def _forbidden(self, stages: int) -> set[int]:
        """Stages of a pipeline of so many that are meant."""
        return {j % stages for j in self.stages if -stages <= j < stages}

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> ForbiddenStages:
        layers = tuple(random.randrange(compiled.layer_count) for _ in range(random.randint(1, 2)))
        return cls(layers=layers, stages=(random.choice((0, 0, 1, -1, -1, -2)),))

    def check(self, placed: Placed) -> Iterator[Breach]:
        forbidden = self._forbidden(len(placed.plan.stages))
        for layer in sorted(set(layer_numbers(self.layers, placed.compiled.layer_names))):
            if (j := placed.stage_of(layer)) in forbidden:
                yield Breach(f"stage {j}", f"holds layer {layer}, which may not lie there")

    def allows_stage(self, stages: Stages) -> Any:
        if stages.number not in self._forbidden(stages.cell.stages):
            return True
        held: Any = False
        for layer in self.marked_layers(stages.compiled):
            held = held | stages.holds(layer)
        return ~held

    def restrict(self, stages: StageModel) -> None:
        for j in self._forbidden(len(stages.numbers)):
            for layer in self.marked_layers(stages.compiled):
                stages.require(stages.holds(layer, j) <= 0)
