"""What is checked of a Pyomo model before an engine gets it, whichever engine it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyomo.common.modeling import unique_component_name  # type: ignore[import-untyped,unused-ignore]
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    Block,
    BuildAction,
    BuildCheck,
    Constraint,
    Expression,
    Objective,
    Param,
    RangeSet,
    Set,
    Suffix,
    Var,
    value,
)

from nest_opt.certify.answers import Refusal

#: How far a fixed value or a constant constraint must miss to count as a contradiction.
TOLERANCE = 1e-6

#: Pyomo's interface reads these or may skip them unharmed. Anything else active is refused.
UNDERSTOOD = (
    Block,
    BuildAction,
    BuildCheck,
    Constraint,
    Expression,
    Objective,
    Param,
    RangeSet,
    Set,
    Suffix,
    Var,
)


def complete(model: Any) -> None:
    """Refuse what Pyomo's interface would skip; add an objective if there is none."""
    strange = model.collect_ctypes(active=True, descend_into=True) - set(UNDERSTOOD)
    if strange:
        names = ", ".join(sorted(ctype.__name__ for ctype in strange))
        raise Refusal(f"the model has active components that would be skipped: {names}")
    if next(model.component_data_objects(Objective, active=True, descend_into=True), None) is None:
        name = unique_component_name(model, "feasibility_only")
        model.add_component(name, Objective(expr=0))


def contradictory_variable(variables: Iterable[Any]) -> str | None:
    """What is wrong with the first variable that can take no value, if there is one.

    Pyomo ignores the bounds and the domain of a fixed variable, and a variable that occurs
    nowhere altogether.
    """
    for var in variables:
        low, high = var.bounds
        if low is not None and high is not None and low - high > TOLERANCE:
            return f"{var.name} has bounds [{low}, {high}]"
        if not var.fixed:
            continue
        if var.value is None:
            raise Refusal(f"{var.name} is fixed without a value")
        if _outside(var.value, low, high):
            return f"{var.name} is fixed at {var.value}, outside [{low}, {high}]"
        if var.is_integer() and abs(var.value - round(var.value)) > TOLERANCE:
            return f"{var.name} is fixed at {var.value}, not an integer"
    return None


def contradictory_constant(model: Any) -> str | None:
    """The first violated constraint of a model without variables, if there is one."""
    for row in model.component_data_objects(Constraint, active=True, descend_into=True):
        body = value(row.body)
        if _outside(body, row.lb, row.ub):
            return f"{row.name} has constant body {body}, outside [{row.lb}, {row.ub}]"
    return None


def _outside(number: float, low: float | None, high: float | None) -> bool:
    return (low is not None and low - number > TOLERANCE) or (
        high is not None and number - high > TOLERANCE
    )
