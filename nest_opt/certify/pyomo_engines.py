"""SCIP, Gurobi, CBC, GLPK and CPLEX, through Pyomo.

Each is asked like HiGHS (:mod:`nest_opt.certify.highs`): one thread, gaps zero, default tolerances,
options read back where the interface lets them be read; a condition that is not in the tables of
:mod:`nest_opt.certify.answers` is no answer. SCIP and Gurobi have an interface in Pyomo's
``contrib.solver``; the others have one of the older kind, CBC and GLPK by way of files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyomo.common.tempfiles import (  # type: ignore[import-untyped,unused-ignore]
    TempfileManager,
)
from pyomo.core.expr.visitor import (  # type: ignore[import-untyped,unused-ignore]
    identify_variables,
)
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    ConcreteModel,
    Objective,
    SolverFactory,
    Var,
)

from nest_opt.certify.answers import (
    PYOMO_CONDITIONS,
    PYOMO_OLD_CONDITIONS,
    EngineAnswer,
    Option,
    Refusal,
    Status,
    status_of,
)
from nest_opt.certify.engines import ENGINES, executable
from nest_opt.certify.highs import pyomo_version
from nest_opt.certify.models import complete, contradictory_variable


@dataclass(frozen=True)
class _Interface:
    """How Pyomo reaches an engine.

    ``pyomo`` is its name there. ``always`` are options that never change, ``presolve_off`` those
    that switch presolve off, ``seed`` the option that takes the seed. ``read`` reads an option back
    from the solver's own model. ``out_of_time`` tells from that model that time was up, where the
    interface reports an error then. ``time_limit`` is the option for the time limit of an interface
    of the older kind, which takes whole seconds.
    """

    pyomo: str
    seed: str
    presolve_off: Mapping[str, Option]
    always: Mapping[str, Option] = field(default_factory=dict)
    read: Callable[[Any, str], Any] | None = None
    out_of_time: Callable[[Any], bool] = lambda _: False
    time_limit: str = ""


_CONTRIB: Mapping[str, _Interface] = {
    "scip": _Interface(
        "scip_direct",
        seed="randomization/randomseedshift",
        presolve_off={"presolving/maxrounds": 0},
        always={"lp/threads": 1, "limits/gap": 0.0, "limits/absgap": 0.0},
        read=lambda solver, name: solver._solver_model.getParam(name),
    ),
    "gurobi": _Interface(
        "gurobi_persistent",
        seed="Seed",
        presolve_off={"Presolve": 0},
        always={"Threads": 1, "MIPGap": 0.0, "MIPGapAbs": 0.0},
        read=lambda solver, name: solver._solver_model.getParamInfo(name)[2],
    ),
}

_OLD: Mapping[str, _Interface] = {
    "cbc": _Interface(
        "cbc",
        seed="randomCbcSeed",
        presolve_off={"presolve": "off", "preprocess": "off"},
        always={"threads": 1, "ratioGap": 0.0, "allowableGap": 0.0},
        time_limit="sec",
    ),
    "glpk": _Interface(
        "glpk",
        seed="seed",
        presolve_off={"nopresol": ""},
        always={"mipgap": 0.0},
        time_limit="tmlim",
    ),
    "cplex": _Interface(
        "cplex_direct",
        seed="randomseed",
        presolve_off={"preprocessing_presolve": 0},
        always={"threads": 1, "mip_tolerances_mipgap": 0.0, "mip_tolerances_absmipgap": 0.0},
        # CPXMIP_TIME_LIM_FEAS and CPXMIP_TIME_LIM_INFEAS
        out_of_time=lambda solver: solver._solver_model.solution.get_status() in (107, 108),
        time_limit="timelimit",
    ),
}


def solve(
    name: str,
    build: Callable[[], ConcreteModel],
    *,
    time_limit: float,
    presolve: bool,
    seed: int,
    folder: str | None = None,
) -> EngineAnswer:
    """Build a model and have an engine solve it; see :func:`nest_opt.certify.highs.solve`.

    ``folder`` is where engines that read files find them; None: the system's temporary folder.
    """
    started = time.monotonic()
    facts: dict[str, Any] = {}
    ask = _solve_contrib if name in _CONTRIB else _solve_old
    interface = {**_CONTRIB, **_OLD}[name]
    asked: dict[str, Option] = {
        **interface.always,
        interface.seed: seed,
        **({} if presolve else interface.presolve_off),
    }
    status: Status
    try:
        TempfileManager.tempdir = folder
        model = build()
        complete(model)
        variables = list(model.component_data_objects(Var, active=True, descend_into=True))
        contradiction = contradictory_variable(variables)
        if contradiction is not None:
            status, detail = "infeasible", f"contradiction: {contradiction}"
        else:
            status, detail = ask(name, interface, model, asked, time_limit, facts)
    except Refusal as refusal:
        status, detail = "fault", str(refusal)
    except Exception as error:  # whatever Pyomo, the engine or the builder raises is no answer
        status, detail = "fault", f"exception: {type(error).__name__}: {error}"
    if status not in ("optimal", "feasible"):
        facts.pop("values", None)
    return EngineAnswer(
        status=status,
        detail=detail,
        seconds=time.monotonic() - started,
        version=ENGINES[name].version or "",
        pyomo_version=pyomo_version(),
        **facts,
    )


def _solve_contrib(
    name: str,
    interface: _Interface,
    model: Any,
    asked: Mapping[str, Option],
    time_limit: float,
    facts: dict[str, Any],
) -> tuple[Status, str]:
    from pyomo.contrib.solver.common.factory import (  # type: ignore[import-untyped,unused-ignore]
        SolverFactory as ContribFactory,
    )

    solver = ContribFactory(interface.pyomo)
    results = solver.solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        time_limit=time_limit,
        solver_options=dict(asked),
    )
    condition = str(results.termination_condition.name)
    assert interface.read is not None
    facts["options"] = {option: interface.read(solver, option) for option in asked}
    wrong = [o for o, wanted in asked.items() if facts["options"][o] != wanted]
    if wrong:
        raise Refusal(f"{condition}: option {wrong[0]} is {facts['options'][wrong[0]]!r}")
    facts["bound"] = _finite(results.objective_bound)
    incumbent = results.solution_status.name in ("optimal", "feasible")
    status = status_of(PYOMO_CONDITIONS, condition, incumbent)
    if incumbent:
        results.solution_loader.load_vars()
        facts["values"] = _values(model)
        facts["objective"] = _finite(results.incumbent_objective)
    return status, condition


def _solve_old(
    name: str,
    interface: _Interface,
    model: Any,
    asked: Mapping[str, Option],
    time_limit: float,
    facts: dict[str, Any],
) -> tuple[Status, str]:
    if ENGINES[name].capabilities.own_process:
        solver = SolverFactory(interface.pyomo, executable=executable(name), solver_io="lp")
    else:
        solver = SolverFactory(interface.pyomo)
    solver.options.update(asked)
    solver.options[interface.time_limit] = max(1, math.ceil(time_limit))
    results = solver.solve(model, load_solutions=False)
    facts["options"] = dict(asked)
    condition = str(results.solver.termination_condition)
    if condition == "error" and interface.out_of_time(solver):
        condition = "maxTimeLimit"
    elif str(results.solver.status) == "error":
        raise Refusal(f"{condition}: {results.solver.message}")
    bound = _number(results.problem.lower_bound)
    found = len(results.solution) > 0 and len(results.solution[0].variable) > 0
    status = status_of(PYOMO_OLD_CONDITIONS, condition, found)
    facts["bound"] = bound
    if status == "infeasible" and not ENGINES[name].capabilities.tells_unbounded:
        _require_bounded(model, condition)
    if status in ("optimal", "feasible"):
        results.solver.status = "ok"  # else a solution at a limit is not handed over
        model.solutions.load_from(results, default_variable_value=0.0)
        facts["values"] = _values(model)
        facts["objective"] = _number(results.problem.upper_bound)
    return status, condition


def _require_bounded(model: Any, condition: str) -> None:
    """Refuse "infeasible" for a model whose objective could be unbounded instead."""
    for objective in model.component_data_objects(Objective, active=True, descend_into=True):
        for var in identify_variables(objective.expr, include_fixed=False):
            if None in var.bounds:
                raise Refusal(f"{condition}, or unbounded: {var.name} has no bound")


def _values(model: Any) -> dict[str, float]:
    """Values of the variables that have one, by name."""
    variables = model.component_data_objects(Var, active=True, descend_into=True)
    return {var.name: float(var.value) for var in variables if var.value is not None}


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def _number(said: Any) -> float | None:
    """A number of a result of the older kind, which may be anything."""
    try:
        return _finite(float(said))
    except (TypeError, ValueError):
        return None
