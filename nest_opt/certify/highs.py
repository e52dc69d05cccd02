"""The one place that talks to HiGHS, through Pyomo's ``contrib.solver`` interface.

An answer of HiGHS is evidence, not truth: it is floating point, and several of its releases have
returned wrong optima and wrong infeasibilities (:mod:`nest_opt.certify.canaries`). This
module does not judge answers, but it refuses to pass on one to a question that was not asked. It
returns ``fault`` where

- an option read back after the solve differs from what was asked (Pyomo hands over misspelt or
  out-of-range options, HiGHS refuses them, and nobody is told);
- HiGHS logged an error, or dropped a coefficient, while it took in the model (it refuses a whole
  batch of constraints for one coefficient of 1e15 or more, drops coefficients of 1e-9 or less,
  and Pyomo ignores what it says about that), or the rows, columns, integer columns or numbers it
  ended up with are not those of the model;
- the model has active components that the interface would skip without a word;
- HiGHS already ran in this process or in the one it was forked from;
- status and incumbent contradict each other, or HiGHS says anything but infeasible, optimal or
  stopped at a limit.

Meant to run inside a child of :mod:`nest_opt.certify.processes`: one solve per process, one thread.
"""

from __future__ import annotations

import importlib.metadata
import io
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import highspy  # imported before the fork; Pyomo would put it off until after
import numpy
from pyomo.common.modeling import unique_component_name  # type: ignore[import-untyped,unused-ignore]
from pyomo.contrib.solver.solvers.highs import (  # type: ignore[import-untyped,unused-ignore]
    Highs,
    highspy_available,
)
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    Block,
    BuildAction,
    BuildCheck,
    ConcreteModel,
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

from nest_opt.certify import answers
from nest_opt.certify.answers import EngineAnswer, Option, Status
from nest_opt.certify.processes import Outcome

#: How far a fixed value or a constant constraint must miss to count as a contradiction.
TOLERANCE = 1e-6

#: Left alone, and checked to be what they were when the project's measurements were made.
DEFAULTS: Mapping[str, Option] = {
    "mip_feasibility_tolerance": 1e-6,
    "primal_feasibility_tolerance": 1e-7,
    "dual_feasibility_tolerance": 1e-7,
    "small_matrix_value": 1e-9,
    "large_matrix_value": 1e15,
    "infinite_bound": 1e20,
    "mip_max_nodes": 2**31 - 1,
    "mip_max_improving_sols": 2**31 - 1,
}

#: Pyomo's interface reads these or may skip them unharmed. Anything else active is refused.
_UNDERSTOOD = (
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

_LIMITS = ("maxTimeLimit", "iterationLimit")

#: Whether HiGHS has run in this process; inherited by fork, hence true in children as well.
_has_run = False


class _Refusal(Exception):
    """There is no answer that could be passed on."""


def engine_versions() -> dict[str, str]:
    """Versions of what stands between a model and an answer: HiGHS, highspy and Pyomo."""
    return {
        "highs": _highs_version(),
        "highspy": importlib.metadata.version("highspy"),
        "pyomo": _pyomo_version(),
    }


def solve(
    build: Callable[[], ConcreteModel],
    *,
    time_limit: float,
    presolve: bool,
    seed: int,
    options: Mapping[str, Option] | None = None,
) -> EngineAnswer:
    """Build a model and have HiGHS solve it: one thread, gaps zero, default tolerances.

    ``build`` returns a fresh model, linear, with at most one active objective; a model without
    one is a pure feasibility question and gets the objective 0. Whatever goes wrong in ``build``
    or after it is a ``fault``. ``time_limit`` (seconds) binds HiGHS only, not ``build``. ``seed``
    is HiGHS's ``random_seed``. ``options`` are further HiGHS options, for experiments.

    A variable fixed outside its bounds or domain, or whose bounds cross, makes the model
    ``infeasible``, also where Pyomo would not look; so does a violated constant constraint in a
    model without variables. A model without variables or contradictions is a ``fault``. A false
    Python Boolean given as a constraint raises in ``build``, hence is a ``fault``; return
    ``Constraint.Infeasible`` where it is meant.

    Raises ValueError if ``time_limit`` is not positive and finite.
    """
    if not 0 < time_limit < math.inf:
        raise ValueError(f"time_limit must be positive and finite, not {time_limit}")
    started = time.monotonic()
    asked: dict[str, Option] = {
        "threads": 1,
        "time_limit": float(time_limit),
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "presolve": "on" if presolve else "off",
        "random_seed": seed,
        **(options or {}),
    }
    facts: dict[str, Any] = {}
    try:
        status, detail = _solve(build, asked, facts)
    except _Refusal as refusal:
        status, detail = "fault", str(refusal)
    except Exception as error:  # whatever Pyomo, highspy or the builder raises is no answer
        status, detail = "fault", f"exception: {type(error).__name__}: {error}"
    if status == "fault":
        facts.pop("values", None)
    return EngineAnswer(
        status=status,
        detail=detail,
        seconds=time.monotonic() - started,
        version=_highs_version(),
        pyomo_version=_pyomo_version(),
        **facts,
    )


def answer_of(outcome: Outcome) -> EngineAnswer:
    """The answer of a solve that ran in a child; see :func:`nest_opt.certify.answers.answer_of`."""
    return answers.answer_of(outcome, version=_highs_version(), pyomo_version=_pyomo_version())


def _solve(
    build: Callable[[], ConcreteModel], asked: Mapping[str, Option], facts: dict[str, Any]
) -> tuple[Status, str]:
    """Build, solve, read back, decide. What is learned on the way is left in ``facts``."""
    global _has_run
    if _has_run:
        raise _Refusal("HiGHS has already run in this process or its parent; fork a new one")
    if not highspy_available:
        raise _Refusal("highspy cannot be imported; install it")
    model = build()
    _complete(model)
    held = {id(v): v for v in model.component_data_objects(Var, active=True, descend_into=True)}
    contradiction = _contradictory_variable(held.values())
    if contradiction is not None:
        return "infeasible", f"contradiction: {contradiction}"

    log = io.StringIO()
    solver = Highs()
    special = {"threads", "time_limit", "mip_rel_gap", "mip_abs_gap"}
    _has_run = True
    results = solver.solve(
        model,
        tee=log,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        threads=asked["threads"],
        time_limit=asked["time_limit"],
        rel_gap=asked["mip_rel_gap"],
        abs_gap=asked["mip_abs_gap"],
        solver_options={key: asked[key] for key in asked if key not in special},
    )
    highs = solver._solver_model
    condition = str(results.termination_condition.name)

    complaints = tuple(
        line.strip()
        for line in log.getvalue().splitlines()
        if line.lstrip().startswith(("ERROR:", "WARNING:"))
    )
    facts["warnings"] = complaints
    facts["options"] = _check_options(highs, asked, condition)
    for line in complaints:
        if line.startswith("ERROR:") or line.endswith("ignored"):
            raise _Refusal(f"{condition}: HiGHS logged {line!r}")
    occurring = [entry[0] for entry in solver._vars.values()]
    contradiction = _contradictory_variable(var for var in occurring if id(var) not in held)
    if contradiction is None and not occurring:
        contradiction = _contradictory_constant(model)
        if contradiction is None:
            raise _Refusal(f"{condition}: the model has no variables and no contradiction")
    if contradiction is not None:
        return "infeasible", f"contradiction: {contradiction}"
    _check_transfer(highs, model, occurring, condition)

    nodes = int(highs.getInfo().mip_node_count)
    facts["bound"] = _finite(results.objective_bound)
    facts["nodes"] = nodes if nodes >= 0 else None
    incumbent = results.solution_status.name in ("optimal", "feasible")
    status = _status(condition, incumbent)
    if status in ("optimal", "feasible"):
        results.solution_loader.load_vars()
        facts["values"] = {var.name: float(value(var)) for var in occurring}
        facts["objective"] = _finite(results.incumbent_objective)
    return status, condition


def _status(condition: str, incumbent: bool) -> Status:
    """Termination condition and presence of an incumbent -> status; refuses the rest."""
    if condition == "provenInfeasible" and not incumbent:
        return "infeasible"
    if condition == "convergenceCriteriaSatisfied" and incumbent:
        return "optimal"
    if condition in _LIMITS:
        return "feasible" if incumbent else "limit"
    held = "with an incumbent" if incumbent else "without an incumbent"
    raise _Refusal(f"{condition}: no answer ({held})")


def _complete(model: Any) -> None:
    """Refuse what Pyomo's interface would skip; add an objective if there is none."""
    strange = model.collect_ctypes(active=True, descend_into=True) - set(_UNDERSTOOD)
    if strange:
        names = ", ".join(sorted(ctype.__name__ for ctype in strange))
        raise _Refusal(f"the model has active components that would be skipped: {names}")
    if next(model.component_data_objects(Objective, active=True, descend_into=True), None) is None:
        name = unique_component_name(model, "feasibility_only")
        model.add_component(name, Objective(expr=0))


def _contradictory_variable(variables: Iterable[Any]) -> str | None:
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
            raise _Refusal(f"{var.name} is fixed without a value")
        if _outside(var.value, low, high):
            return f"{var.name} is fixed at {var.value}, outside [{low}, {high}]"
        if var.is_integer() and abs(var.value - round(var.value)) > TOLERANCE:
            return f"{var.name} is fixed at {var.value}, not an integer"
    return None


def _contradictory_constant(model: Any) -> str | None:
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


def _check_options(highs: Any, asked: Mapping[str, Option], condition: str) -> dict[str, Option]:
    """Read every option back from HiGHS; refuse the solve if one is not what it should be."""
    found: dict[str, Option] = {}
    wrong = []
    _, mip_tolerance = highs.getOptionValue("mip_feasibility_tolerance")
    for name, wanted in {**DEFAULTS, **asked}.items():
        status, setting = highs.getOptionValue(name)
        if status != highspy.HighsStatus.kOk:
            wrong.append(f"{name} is unknown to HiGHS")
            continue
        found[name] = setting
        if name == "primal_feasibility_tolerance" and setting == mip_tolerance:
            continue  # after a MIP, HiGHS leaves its MIP tolerance in this option
        if setting != wanted:
            wrong.append(f"{name} is {setting!r}, not {wanted!r}")
    if wrong:
        raise _Refusal(f"{condition}: option {'; option '.join(wrong)}")
    return found


def _check_transfer(highs: Any, model: Any, occurring: Sequence[Any], condition: str) -> None:
    """Refuse the solve if what HiGHS holds is visibly not the model."""
    rows = sum(1 for _ in model.component_data_objects(Constraint, active=True, descend_into=True))
    lp = highs.getLp()
    integer = sum(kind == highspy.HighsVarType.kInteger for kind in lp.integrality_)
    for what, held, wanted in (
        ("rows", lp.num_row_, rows),
        ("columns", lp.num_col_, len(occurring)),
        ("integer columns", integer, sum(var.is_integer() for var in occurring)),
    ):
        if held != wanted:
            raise _Refusal(f"{condition}: HiGHS holds {held} {what}, the model has {wanted}")
    numbers = (lp.a_matrix_.value_, lp.col_cost_, [lp.offset_])
    bounds = (lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_)
    if not all(numpy.isfinite(x).all() for x in numbers) or any(
        numpy.isnan(x).any() for x in bounds
    ):
        raise _Refusal(f"{condition}: HiGHS holds coefficients or bounds that are no numbers")


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def _highs_version() -> str:
    parts = (
        highspy.HIGHS_VERSION_MAJOR,
        highspy.HIGHS_VERSION_MINOR,
        highspy.HIGHS_VERSION_PATCH,
    )
    return ".".join(str(part) for part in parts)


def _pyomo_version() -> str:
    return importlib.metadata.version("pyomo")
