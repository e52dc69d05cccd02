"""What each constraint of a problem costs: the optimum without it, found by solving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nest_opt.compile import Compiled
from nest_opt.constraints import Constraint
from nest_opt.solve import solve


@dataclass(frozen=True)
class ConstraintCost:
    """A constraint, the optimal T with all of them, and T without this one, in ticks.

    What several constraints forbid alike costs nothing by each of them alone.
    """

    constraint: Constraint
    batch_ticks: int
    without_ticks: int

    @property
    def cost_ticks(self) -> int:
        """By how much the constraint lengthens the batch, all others being kept."""
        return self.batch_ticks - self.without_ticks

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            **self.constraint.model_dump(mode="json", exclude_none=True),
            "meaning": self.constraint.meaning,
            "batch_ticks_without": self.without_ticks,
            "cost_ticks": self.cost_ticks,
        }


def constraint_costs(compiled: Compiled, batch_ticks: int) -> list[ConstraintCost]:
    """What each constraint costs; ``batch_ticks`` is the optimum with all of them."""
    kept = compiled.search.constraints
    found = []
    for n, constraint in enumerate(kept):
        search = compiled.search.model_copy(update={"constraints": (*kept[:n], *kept[n + 1 :])})
        without = solve(replace(compiled, search=search)).batch_ticks
        assert without is not None, "fewer constraints leave every plan that there was"
        found.append(ConstraintCost(constraint, batch_ticks, without))
    return found
