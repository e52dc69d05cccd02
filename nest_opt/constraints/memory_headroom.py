"""Memory that every stage leaves free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Stages


class MemoryHeadroom(Constraint):
    """Every stage leaves so much of the usable memory of its devices free.

    ``bytes``, and ``fraction`` of the usable memory, are both left free, whichever is more.
    """

    constraint: Literal["memory_headroom"] = "memory_headroom"
    bytes: Annotated[int, Field(ge=0, le=2**60)] = 0
    fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0

    meaning: ClassVar[str] = "every stage leaves so much of the usable memory free"

    def limit_quanta(self, compiled: Compiled) -> int:
        """Quanta that a stage may need; negative where nothing fits."""
        quantum = compiled.quantum_bytes
        usable = compiled.memory_quanta * quantum
        free = max(Fraction(self.bytes), Fraction(repr(self.fraction)) * usable)
        return floor((usable - free) / quantum)

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> MemoryHeadroom:
        if random.random() < 0.5:
            return cls(fraction=random.choice((0.05, 0.1, 0.25, 0.5, 0.9)))
        usable = compiled.memory_quanta * compiled.quantum_bytes
        return cls(bytes=random.randint(0, max(usable, 1)))

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        if not self.fraction:
            # Usable memory is whole quanta, so only whole quanta of headroom make a difference.
            quantum = compiled.quantum_bytes
            yield "bytes", range((self.bytes - 1) // quantum * quantum, -1, -quantum)

    def check(self, placed: Placed) -> Iterator[Breach]:
        quantum = placed.compiled.quantum_bytes
        limit = self.limit_quanta(placed.compiled) * quantum
        for j, stage in enumerate(placed.stages):
            if stage.memory_bytes > limit:
                yield Breach(
                    f"stage {j}",
                    f"needs {stage.memory_bytes} bytes per device, and with the headroom may need "
                    f"{max(limit, 0)}; recompute more, raise the ZeRO stage, or move layers",
                    stage.memory_bytes - limit,
                )

    def allows_stage(self, stages: Stages) -> Any:
        return stages.memory <= self.limit_quanta(stages.compiled)

    def restrict(self, stages: StageModel) -> None:
        for j in stages.numbers:
            stages.memory_at_most(j, self.limit_quanta(stages.compiled))
