"""Stages that recompute come first."""

from collections.abc import Iterator
from typing import Any, Literal

from nest_opt.constraints import Breach, Constraint, Placed


class RecomputeEarly(Constraint):
    """A stage that recomputes has only stages before it that recompute as well."""

    constraint: Literal["recompute_early"] = "recompute_early"
    meaning = "stages that recompute come before those that do not"

    def check(self, placed: Placed) -> Iterator[Breach]:
        recomputes = [stage.recomputation != "none" for stage in placed.plan.stages]
        for j in range(1, len(recomputes)):
            if recomputes[j] and not recomputes[j - 1]:
                yield Breach(f"stage {j}", f"recomputes, but stage {j - 1} before it does not")

    # Stages are laid from the last one; what is carried is whether the stage laid last recomputes.
    def carried(self, cell: Any) -> int:
        return 2

    def carry(self, value: int, stages: Any) -> int:
        recomputes = stages.recomputation != "none"
        return -1 if value == 1 and not recomputes else int(recomputes)

    def restrict(self, stages: Any) -> None:
        for j in stages.numbers[1:]:
            none_before = stages.chooses(j - 1, recomputation="none")
            stages.require(none_before <= stages.chooses(j, recomputation="none"))
