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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import highspy  # imported before the fork; Pyomo would put it off until after
import numpy
from pyomo.contrib.solver.solvers.highs import (  # type: ignore[import-untyped,unused-ignore]
    Highs,
    highspy_available,
)
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    ConcreteModel,
    Constraint,
    Var,
    value,
)

from nest_opt.certify import answers
from nest_opt.certify.answers import (
    PYOMO_CONDITIONS,
    EngineAnswer,
    Option,
    Refusal,
    Status,
    status_of,
)
from nest_opt.certify.models import complete, contradictory_constant, contradictory_variable
from nest_opt.certify.processes import Outcome

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

#: Whether HiGHS has run in this process; inherited by fork, hence true in children as well.
_has_run = False


def engine_versions() -> dict[str, str]:
    """Versions of what stands between a model and an answer: HiGHS, highspy and Pyomo."""
    return {
        "highs": _highs_version(),
        "highspy": importlib.metadata.version("highspy"),
        "pyomo": pyomo_version(),
    }


def solve(
    build: Callable[[], ConcreteModel],
    *,
    time_limit: float,
    presolve: bool,
    seed: int,
    options: Mapping[str, Option] | None = None,
    again: bool = False,
) -> EngineAnswer:
    """Build a model and have HiGHS solve it: one thread, gaps zero, default tolerances.

    ``build`` returns a fresh model, linear, with at most one active objective; a model without
    one is a pure feasibility question and gets the objective 0. Whatever goes wrong in ``build``
    or after it is a ``fault``. ``time_limit`` (seconds) binds HiGHS only, not ``build``. ``seed``
    is HiGHS's ``random_seed``. ``options`` are further HiGHS options, for experiments. ``again``
    lets a process solve that has solved before, for comparisons of many small models; a proof has
    a process of its own.

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
        if _has_run and not again:
            raise Refusal("HiGHS has already run in this process or its parent; fork a new one")
        status, detail = _solve(build, asked, facts)
    except Refusal as refusal:
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
        pyomo_version=pyomo_version(),
        **facts,
    )


def answer_of(outcome: Outcome) -> EngineAnswer:
    """The answer of a solve that ran in a child; see :func:`nest_opt.certify.answers.answer_of`."""
    return answers.answer_of(outcome, version=_highs_version(), pyomo_version=pyomo_version())


def _solve(
    build: Callable[[], ConcreteModel], asked: Mapping[str, Option], facts: dict[str, Any]
) -> tuple[Status, str]:
    """Build, solve, read back, decide. What is learned on the way is left in ``facts``."""
    global _has_run
    if not highspy_available:
        raise Refusal("highspy cannot be imported; install it")
    model = build()
    complete(model)
    held = {id(v): v for v in model.component_data_objects(Var, active=True, descend_into=True)}
    contradiction = contradictory_variable(held.values())
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
            raise Refusal(f"{condition}: HiGHS logged {line!r}")
    occurring = [entry[0] for entry in solver._vars.values()]
    contradiction = contradictory_variable(var for var in occurring if id(var) not in held)
    if contradiction is None and not occurring:
        contradiction = contradictory_constant(model)
        if contradiction is None:
            raise Refusal(f"{condition}: the model has no variables and no contradiction")
    if contradiction is not None:
        return "infeasible", f"contradiction: {contradiction}"
    _check_transfer(highs, model, occurring, condition)

    nodes = int(highs.getInfo().mip_node_count)
    facts["bound"] = _finite(results.objective_bound)
    facts["nodes"] = nodes if nodes >= 0 else None
    incumbent = results.solution_status.name in ("optimal", "feasible")
    status = status_of(PYOMO_CONDITIONS, condition, incumbent)
    if status in ("optimal", "feasible"):
        results.solution_loader.load_vars()
        facts["values"] = {var.name: float(value(var)) for var in occurring}
        facts["objective"] = _finite(results.incumbent_objective)
    return status, condition


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
        raise Refusal(f"{condition}: option {'; option '.join(wrong)}")
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
            raise Refusal(f"{condition}: HiGHS holds {held} {what}, the model has {wanted}")
    numbers = (lp.a_matrix_.value_, lp.col_cost_, [lp.offset_])
    bounds = (lp.row_lower_, lp.row_upper_, lp.col_lower_, lp.col_upper_)
    if not all(numpy.isfinite(x).all() for x in numbers) or any(
        numpy.isnan(x).any() for x in bounds
    ):
        raise Refusal(f"{condition}: HiGHS holds coefficients or bounds that are no numbers")


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def _highs_version() -> str:
    parts = (
        highspy.HIGHS_VERSION_MAJOR,
        highspy.HIGHS_VERSION_MINOR,
        highspy.HIGHS_VERSION_PATCH,
    )
    return ".".join(str(part) for part in parts)


def pyomo_version() -> str:
    """The release of Pyomo."""
    return importlib.metadata.version("pyomo")
