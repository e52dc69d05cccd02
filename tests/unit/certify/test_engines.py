"""One suite over all engines: each answers the same questions, or is not installed.

An engine that is registered and not listed in ``TESTED`` fails the first test.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from pyomo.contrib.solver.common.results import (  # type: ignore[import-untyped,unused-ignore]
    TerminationCondition,
)
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    Binary,
    ConcreteModel,
    Constraint,
    Integers,
    NonNegativeReals,
    Objective,
    RangeSet,
    Var,
    maximize,
)
from pyomo.opt import (  # type: ignore[import-untyped,unused-ignore]
    TerminationCondition as OldTerminationCondition,
)

from nest_opt.cells import list_cells
from nest_opt.certify import answers, engines, processes, pyomo_engines, questions
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.certificate import FIRST
from nest_opt.certify.engines import ENGINES, FIRST_ENGINE, besides, engine_of, installed, load
from nest_opt.certify.questions import Question, Reply, ask, asked_besides
from nest_opt.compile import compile_problem
from nest_opt.errors import EngineError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.solve import solve

TESTED = ("highs", "cp-sat", "scip", "cbc", "glpk", "gurobi", "cplex")
#: HiGHS has a suite of its own for models, in test_highs.py.
MODELS = [name for name in TESTED if name not in ("highs", "cp-sat")]


def test_every_registered_engine_is_tested() -> None:
    assert tuple(ENGINES) == TESTED
    assert [name for name in TESTED if ENGINES[name].capabilities.pyomo_models] == [
        FIRST_ENGINE,
        *MODELS,
    ]


@pytest.fixture(params=TESTED)
def engine(request: pytest.FixtureRequest) -> str:
    return usable(request.param)


@pytest.fixture(params=MODELS)
def solver(request: pytest.FixtureRequest) -> str:
    return usable(request.param)


def usable(name: str) -> str:
    if ENGINES[name].version is None:
        pytest.skip(f"{name} is not installed")
    return name


# --- questions about a cell -----------------------------------------------------------------------


class Cell160:
    """The worked example at 160 MiB, and the cell of its plan."""

    compiled = compile_problem(load_problem("worked-example-160"))
    cell = next(c for c in list_cells(compiled) if c.label == "b1 d2 t1 s2 pipeline-inner")
    plan = solve(compiled).plan
    best = 454


def replies(engine: str, *kinds: tuple[Any, int | None]) -> list[Reply]:
    def question(kind: Any, limit: int | None) -> Question:
        plan = Cell160.plan if kind == "fixed_plan" else None
        if engine == FIRST_ENGINE:
            return Question(Cell160.cell, "runs", kind, limit, FIRST, plan)
        return asked_besides(engine, Cell160.cell, kind, limit, plan)

    asked = [question(*kind) for kind in kinds]
    found = dict(ask(Evaluator(Cell160.compiled), asked, jobs=2, seconds=60.0))
    return [found[number] for number in range(len(asked))]


def test_questions_about_a_cell(engine: str) -> None:
    best = Cell160.best
    least, refuted, admitted, kept, refused = replies(
        engine,
        ("minimum", None),
        ("decision", best - 1),
        ("decision", best),
        ("fixed_plan", best),
        ("fixed_plan", best - 1),
    )
    assert (least.answer.status, least.answer.priced_ticks) == ("optimal", best)
    assert refuted.answer.status == "infeasible"
    assert (admitted.answer.status, admitted.answer.priced_ticks) == ("optimal", best)
    assert kept.answer.claims_plan
    assert questions.bare(kept.plan) == questions.bare(Cell160.plan)  # type: ignore[arg-type]
    assert refused.answer.status == "infeasible"
    for reply in (least, refuted, admitted, kept, refused):
        assert reply.answer.engine == engine
        assert reply.answer.version == ENGINES[engine].version
        assert reply.answer.seconds > 0
    if ENGINES[engine].capabilities.reports_bound:
        assert least.answer.bound == pytest.approx(least.answer.objective)


def test_options_are_those_that_were_asked(engine: str) -> None:
    (reply,) = replies(engine, ("minimum", None))
    options = reply.answer.options
    assert reply.answer.seed in options.values()
    assert {0.0, 1} & set(options.values())


# --- questions about models -----------------------------------------------------------------------


def answer(
    name: str, build: Callable[[], Any], limit: float = 20.0, presolve: bool = True
) -> EngineAnswer:
    load([name])

    def task() -> dict[str, Any]:
        return pyomo_engines.solve(
            name, build, time_limit=limit, presolve=presolve, seed=7
        ).to_json()

    (outcome,) = processes.run_all([task], jobs=1, seconds=60)
    assert outcome.status == "done", outcome
    return answers.answer_of(outcome)


def small(*, odd: bool = False, objective: bool = True) -> Any:
    """Two integers in 0..4 with 2x + 2y >= 5 (or == 5: impossible), minimise x + 3y."""
    m = ConcreteModel()
    m.x = Var(domain=Integers, bounds=(0, 4))
    m.y = Var(domain=Integers, bounds=(0, 4))
    m.row = Constraint(expr=2 * m.x + 2 * m.y == 5 if odd else 2 * m.x + 2 * m.y >= 5)
    if objective:
        m.cost = Objective(expr=m.x + 3 * m.y)
    return m


def market_split() -> Any:
    """Five equations of 60 binaries: far too hard for a second, and no incumbent on the way."""
    draw = random.Random(1)
    m = ConcreteModel()
    m.i = RangeSet(60)
    m.x = Var(m.i, domain=Binary)
    table = [[draw.randint(0, 99) for _ in m.i] for _ in range(5)]

    def row(m: Any, k: int) -> Any:
        return sum(a * m.x[i] for a, i in zip(table[k], m.i, strict=True)) == sum(table[k]) // 2

    m.row = Constraint(range(5), rule=row)
    return m


def knapsacks() -> Any:
    """Twenty knapsacks over 300 binaries: an incumbent at once, a proof never."""
    draw = random.Random(2)
    m = ConcreteModel()
    m.i = RangeSet(300)
    m.x = Var(m.i, domain=Binary)

    def row(m: Any, k: int) -> Any:
        weights = [draw.randint(1, 999) for _ in m.i]
        return sum(a * m.x[i] for a, i in zip(weights, m.i, strict=True)) <= sum(weights) // 2

    m.row = Constraint(range(20), rule=row)
    m.gain = Objective(expr=sum(draw.randint(1, 999) * m.x[i] for i in m.i), sense=maximize)
    return m


@pytest.mark.parametrize("presolve", [True, False])
def test_an_optimum(solver: str, presolve: bool) -> None:
    found = answer(solver, small, presolve=presolve)
    assert found.status == "optimal", found
    assert found.values == pytest.approx({"x": 3, "y": 0})
    assert found.objective == pytest.approx(3)
    assert found.bound == pytest.approx(3)


@pytest.mark.parametrize("presolve", [True, False])
def test_an_infeasible_model(solver: str, presolve: bool) -> None:
    for objective in (True, False):
        found = answer(solver, lambda o=objective: small(odd=True, objective=o), presolve=presolve)
        assert (found.status, found.values) == ("infeasible", None), found


def test_a_limit_without_incumbent_is_not_infeasible(solver: str) -> None:
    found = answer(solver, market_split, limit=1.0)
    assert (found.status, found.values) == ("limit", None), found


def test_a_limit_with_an_incumbent_is_no_optimum(solver: str) -> None:
    found = answer(solver, knapsacks, limit=1.0)
    # A restricted licence may answer nothing at all.
    assert found.status in ("feasible", "limit"), found
    if found.status == "feasible":
        assert found.values is not None
        assert len(found.values) == 300


def test_an_unbounded_model_is_a_fault(solver: str) -> None:
    def build() -> Any:
        m = ConcreteModel()
        m.x = Var(domain=NonNegativeReals)
        m.y = Var(domain=Integers, bounds=(0, 3))
        m.row = Constraint(expr=m.x + m.y >= 1)
        m.cost = Objective(expr=-m.x)
        return m

    assert answer(solver, build).status == "fault"


def test_a_variable_without_values_is_a_contradiction(solver: str) -> None:
    def build() -> Any:
        m = small()
        m.z = Var(bounds=(2, 1))
        return m

    found = answer(solver, build)
    assert (found.status, found.detail.split(":")[0]) == ("infeasible", "contradiction")


def test_a_builder_that_breaks_is_a_fault(solver: str) -> None:
    def build() -> Any:
        raise RuntimeError("no model today")

    found = answer(solver, build)
    assert (found.status, "no model today" in found.detail) == ("fault", True)


def test_programs_are_killed_with_the_process_that_started_them() -> None:
    """A wall clock is no use where the solver lives on in a process of its own."""

    def task() -> dict[str, Any]:
        return {"code": subprocess.call(["sleep", "4711.5"])}

    (outcome,) = processes.run_all([task], jobs=1, seconds=0.3, grace=0.0)
    assert outcome.status == "timeout"
    deadline = time.monotonic() + 5
    while "4711.5" in commands() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "4711.5" not in commands()


def commands() -> str:
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", encoding="utf-8", errors="replace") as file:
                found.append(file.read())
        except OSError:
            continue
    return "\n".join(found)


# --- names, versions, statuses --------------------------------------------------------------------


def test_unknown_engines_are_refused_with_a_hint() -> None:
    with pytest.raises(EngineError, match="did you mean 'scip'"):
        engine_of("scipp")
    with pytest.raises(EngineError, match="known: highs, cp-sat"):
        besides(["x"])


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="no glpsol on the path; put glpsol"):
        engine_of("glpk")
    assert "glpk" not in installed()


def test_a_program_that_does_not_run_is_not_installed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "glpsol"
    program.write_text("#!/bin/sh\necho libglpk.so is missing >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EngineError, match=r"does not run: libglpk\.so is missing"):
        engine_of("glpk")


def test_highs_is_asked_anyway_and_every_engine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "engine_of", lambda name: ENGINES[name])
    assert besides(["highs", "scip", " cp-sat", "scip"]) == ("scip", "cp-sat")
    assert besides([]) == ()


@pytest.mark.parametrize(
    ("conditions", "enum"),
    [
        (answers.PYOMO_CONDITIONS, TerminationCondition),
        (answers.PYOMO_OLD_CONDITIONS, OldTerminationCondition),
    ],
)
def test_the_tables_of_conditions_are_complete(conditions: Any, enum: type[Enum]) -> None:
    """A condition that a later release adds is no answer, and fails here."""
    assert set(conditions) == {member.name for member in enum}


def test_the_table_of_cp_sat_is_complete() -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    statuses = {name for name in vars(cp_model.CpSolverStatus) if name.isupper()}
    assert set(answers.CP_SAT_CONDITIONS) == statuses
