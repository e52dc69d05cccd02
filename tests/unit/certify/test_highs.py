"""The solver boundary: every status from a model that earns it, and every refusal."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import highspy
import pytest
from pyomo.contrib.solver.solvers.highs import (  # type: ignore[import-untyped,unused-ignore]
    Highs,
)
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    Binary,
    Block,
    BooleanVar,
    ConcreteModel,
    Constraint,
    Integers,
    LogicalConstraint,
    NonNegativeReals,
    Objective,
    Param,
    RangeSet,
    Set,
    Var,
    maximize,
)

from nest_opt.certify import highs, processes
from nest_opt.certify.answers import PYOMO_CONDITIONS, EngineAnswer, Refusal, status_of
from nest_opt.certify.highs import answer_of, engine_versions, solve
from nest_opt.errors import EngineError

Build = Callable[[], Any]


def ask(build: Build, *, presolve: bool = True, limit: float = 20.0, **more: Any) -> EngineAnswer:
    def task() -> dict[str, Any]:
        answer = solve(build, time_limit=limit, presolve=presolve, seed=7, **more)
        return answer.to_json()

    (outcome,) = processes.run_all([task], jobs=1, seconds=60)
    assert outcome.status == "done", outcome
    return answer_of(outcome)


def small(*, odd: bool = False, objective: bool = True) -> Any:
    """Two integers in 0..4 with 2x + 2y >= 5 (or == 5: impossible), minimise x + 3y."""
    m = ConcreteModel()
    m.x = Var(domain=Integers, bounds=(0, 4))
    m.y = Var(domain=Integers, bounds=(0, 4))
    m.row = Constraint(expr=2 * m.x + 2 * m.y == 5 if odd else 2 * m.x + 2 * m.y >= 5)
    if objective:
        m.cost = Objective(expr=m.x + 3 * m.y)
    return m


def market_split(*, objective: bool) -> Any:
    """Five equations of 60 binaries: far too hard for a second, and no incumbent on the way."""
    draw = random.Random(1)
    m = ConcreteModel()
    m.i = RangeSet(60)
    m.x = Var(m.i, domain=Binary)
    table = [[draw.randint(0, 99) for _ in m.i] for _ in range(5)]

    def row(m: Any, k: int) -> Any:
        return sum(a * m.x[i] for a, i in zip(table[k], m.i, strict=True)) == sum(table[k]) // 2

    m.row = Constraint(range(5), rule=row)
    if objective:
        m.cost = Objective(expr=sum(i * m.x[i] for i in m.i))
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
def test_optimal(presolve: bool) -> None:
    answer = ask(small, presolve=presolve)
    assert (answer.status, answer.detail) == ("optimal", "convergenceCriteriaSatisfied")
    assert answer.values == pytest.approx({"x": 3, "y": 0})
    assert answer.objective == pytest.approx(3)
    assert answer.bound == pytest.approx(3)
    assert answer.nodes is not None
    assert answer.nodes >= 0
    assert 0 < answer.seconds < 20
    assert answer.version == engine_versions()["highs"]
    assert answer.pyomo_version == engine_versions()["pyomo"]


@pytest.mark.parametrize("presolve", [True, False])
@pytest.mark.parametrize("objective", [True, False])
def test_infeasible(presolve: bool, objective: bool) -> None:
    answer = ask(lambda: small(odd=True, objective=objective), presolve=presolve)
    assert (answer.status, answer.detail) == ("infeasible", "provenInfeasible")
    assert answer.values is None
    assert answer.objective is None


def test_a_model_without_objective_is_a_feasibility_question() -> None:
    answer = ask(lambda: small(objective=False))
    assert answer.status == "optimal"
    assert answer.objective == 0
    assert answer.values is not None
    assert 2 * answer.values["x"] + 2 * answer.values["y"] >= 5 - 1e-6
    assert answer.nodes is not None


@pytest.mark.parametrize("presolve", [True, False])
@pytest.mark.parametrize("objective", [True, False])
def test_a_limit_without_incumbent_is_not_infeasible(presolve: bool, objective: bool) -> None:
    answer = ask(lambda: market_split(objective=objective), presolve=presolve, limit=0.3)
    assert (answer.status, answer.detail) == ("limit", "maxTimeLimit")
    assert answer.values is None
    assert answer.objective is None


@pytest.mark.parametrize("presolve", [True, False])
def test_a_limit_with_incumbent_is_feasible_with_a_bound(presolve: bool) -> None:
    answer = ask(knapsacks, presolve=presolve, limit=1.0)
    assert (answer.status, answer.detail) == ("feasible", "maxTimeLimit")
    assert answer.values is not None
    assert len(answer.values) == 300
    assert answer.objective is not None
    assert answer.bound is not None
    assert answer.bound > answer.objective


@pytest.mark.parametrize("presolve", [True, False])
def test_unbounded_is_a_fault(presolve: bool) -> None:
    def build() -> Any:
        m = small()
        m.z = Var(domain=Integers)
        m.link = Constraint(expr=m.z <= m.x)
        m.cost.deactivate()
        m.down = Objective(expr=m.z)
        return m

    answer = ask(build, presolve=presolve)
    assert answer.status == "fault"
    assert "nbounded" in answer.detail
    assert answer.values is None


def test_a_linear_program_has_no_nodes() -> None:
    def build() -> Any:
        m = ConcreteModel()
        m.x = Var(domain=NonNegativeReals)
        m.row = Constraint(expr=2 * m.x >= 1)
        m.cost = Objective(expr=m.x)
        return m

    answer = ask(build)
    assert (answer.status, answer.nodes) == ("optimal", None)
    assert answer.values == pytest.approx({"x": 0.5})


def test_options_are_read_back() -> None:
    options = ask(small, presolve=False).options
    asked = {
        "threads": 1,
        "time_limit": 20.0,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "presolve": "off",
        "random_seed": 7,
    }
    # HiGHS leaves the tolerance of the MIP in the option for linear programs.
    left = {"primal_feasibility_tolerance": 1e-6}
    assert options == {**highs.DEFAULTS, **asked, **left}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mip_abs_gapp": 0.0}, "mip_abs_gapp is unknown to HiGHS"),
        ({"random_seed": -1}, "random_seed is 0, not -1"),
        ({"presolve": "perhaps"}, "presolve is 'choose', not 'perhaps'"),
        ({"mip_heuristic_effort": 7.0}, "mip_heuristic_effort is 0.05, not 7.0"),
    ],
)
def test_an_option_that_did_not_take_is_a_fault(options: dict[str, Any], reason: str) -> None:
    answer = ask(small, options=options)
    assert answer.status == "fault"
    assert answer.detail == f"convergenceCriteriaSatisfied: option {reason}"
    assert answer.values is None


def test_a_default_that_changed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "DEFAULTS", {"mip_feasibility_tolerance": 1e-5})
    answer = ask(small)
    assert answer.status == "fault"
    assert "mip_feasibility_tolerance is 1e-06, not 1e-05" in answer.detail


def test_further_options_are_passed_and_may_replace_defaults() -> None:
    answer = ask(small, options={"mip_feasibility_tolerance": 1e-8})
    assert answer.status == "optimal"
    assert answer.options["mip_feasibility_tolerance"] == 1e-8


def test_an_exception_in_build_is_a_fault() -> None:
    def build() -> Any:
        raise ZeroDivisionError("in build")

    answer = ask(build)
    assert (answer.status, answer.detail) == ("fault", "exception: ZeroDivisionError: in build")
    assert answer.options == {}


def with_row(make: Callable[[Any], Any]) -> Build:
    def build() -> Any:
        m = small()
        m.p = Param(initialize=3, mutable=True)
        m.extra = Constraint(rule=make)
        return m

    return build


@pytest.mark.parametrize(
    "make",
    [
        lambda m: Constraint.Infeasible,
        lambda m: m.p <= 2,
        lambda m: 0 * m.x >= 1,
        lambda m: m.x - m.x >= 1,
    ],
)
@pytest.mark.parametrize("presolve", [True, False])
def test_a_violated_constant_row_is_infeasible(make: Callable[[Any], Any], presolve: bool) -> None:
    assert ask(with_row(make), presolve=presolve).status == "infeasible"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda m: sum([]) >= 1, "trivial Boolean (False)"),
        (lambda m: m.x * m.y >= 1, "IncompatibleModelError"),
        (lambda m: 1e20 * m.x >= 1, "HiGHS logged 'ERROR:"),
        (lambda m: 1e-10 * m.x + m.y >= 1, "HiGHS logged 'WARNING:"),
        (lambda m: float("nan") * m.x >= 1, "no numbers"),
    ],
)
def test_a_row_that_does_not_arrive_is_a_fault(make: Callable[[Any], Any], reason: str) -> None:
    answer = ask(with_row(make))
    assert answer.status == "fault"
    assert reason in answer.detail


def changed(change: Callable[[Any], object]) -> Build:
    def build() -> Any:
        m = small()
        m.unused = Var(bounds=(0, 1))
        m.idle = Block()
        m.idle.z = Var(bounds=(3, 2))
        m.idle.deactivate()
        change(m)
        return m

    return build


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.x.fix(9), "x is fixed at 9, outside [0, 4]"),
        (lambda m: m.x.fix(2.5), "x is fixed at 2.5, not an integer"),
        (lambda m: m.unused.fix(2), "unused is fixed at 2, outside [0, 1]"),
        (lambda m: m.unused.setlb(2), "unused has bounds [2, 1]"),
        (lambda m: m.x.setlb(5), "x has bounds [5, 4]"),
    ],
)
def test_what_pyomo_overlooks_is_a_contradiction(
    change: Callable[[Any], object], reason: str
) -> None:
    answer = ask(changed(change))
    assert (answer.status, answer.detail) == ("infeasible", f"contradiction: {reason}")


def test_bounds_without_an_integer_between_are_infeasible() -> None:
    def change(m: Any) -> None:
        m.x.setlb(0.2)
        m.x.setub(0.8)

    assert ask(changed(change)).status == "infeasible"


@pytest.mark.parametrize(("x", "status"), [(2, "optimal"), (1, "infeasible")])
def test_a_model_with_every_variable_fixed_is_a_check(x: int, status: str) -> None:
    def change(m: Any) -> None:
        m.x.fix(x)
        m.y.fix(1)

    answer = ask(changed(change))
    assert answer.status == status
    assert answer.values == ({"x": 2.0, "y": 1.0} if status == "optimal" else None)


def test_a_variable_fixed_without_a_value_is_a_fault() -> None:
    answer = ask(changed(lambda m: m.x.fix(None)))
    assert (answer.status, answer.detail) == ("fault", "x is fixed without a value")


def test_nothing_to_decide() -> None:
    def build(limit: int) -> Any:
        m = ConcreteModel()
        m.p = Param(initialize=3, mutable=True)
        m.row = Constraint(expr=m.p <= limit)
        return m

    violated = ask(lambda: build(2))
    assert violated.status == "infeasible"
    assert violated.detail.startswith("contradiction: row has constant body 3")
    assert ask(lambda: build(3)).status == "fault"
    assert ask(ConcreteModel).status == "fault"


def test_components_that_pyomo_would_skip_are_a_fault() -> None:
    def build() -> Any:
        m = small()
        m.set = Set(initialize=[1, 2])
        m.sure = BooleanVar()
        m.logic = LogicalConstraint(expr=m.sure)
        return m

    answer = ask(build)
    assert answer.status == "fault"
    assert "LogicalConstraint" in answer.detail


def test_two_objectives_are_a_fault() -> None:
    def build() -> Any:
        m = small()
        m.other = Objective(expr=m.y)
        return m

    assert ask(build).detail.startswith("exception: ValueError: Multiple active objectives")


def test_a_quadratic_objective_is_a_fault() -> None:
    def build() -> Any:
        m = small()
        m.cost.set_value(m.x**2)
        return m

    assert ask(build).status == "fault"


def test_rows_that_went_missing_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Any, cons: Any) -> None: ...

    monkeypatch.setattr(Highs, "_add_constraints", nothing)
    answer = ask(lambda: small(odd=True))
    assert answer.status == "fault"
    assert "HiGHS holds 0 rows, the model has 1" in answer.detail


def test_lost_integrality_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Highs._process_domain_and_bounds

    def continuous(self: Any, var_id: int) -> Any:
        low, high, _ = original(self, var_id)
        return low, high, highspy.HighsVarType.kContinuous

    monkeypatch.setattr(Highs, "_process_domain_and_bounds", continuous)
    assert "HiGHS holds 0 integer columns, the model has 2" in ask(small).detail


def test_a_second_solve_in_one_process_is_a_fault() -> None:
    def task() -> dict[str, Any]:
        answers = [solve(small, time_limit=5, presolve=True, seed=0) for _ in range(2)]
        return {"answers": [answer.to_json() for answer in answers]}

    (outcome,) = processes.run_all([task], jobs=1, seconds=60)
    assert outcome.value is not None
    first, second = map(EngineAnswer.from_json, outcome.value["answers"])
    assert first.status == "optimal"
    assert second.status == "fault"
    assert "already run" in second.detail


def test_a_parent_that_has_solved_spoils_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "_has_run", True)
    assert ask(small).status == "fault"


def test_contradictory_reports_are_refused() -> None:
    for condition, incumbent in [
        ("provenInfeasible", True),
        ("convergenceCriteriaSatisfied", False),
        ("unknown", True),
        ("infeasibleOrUnbounded", False),
        ("error", False),
    ]:
        with pytest.raises(Refusal, match=condition):
            status_of(PYOMO_CONDITIONS, condition, incumbent)


def test_an_answer_survives_json() -> None:
    answer = ask(small)
    assert EngineAnswer.from_json(json.loads(json.dumps(answer.to_json()))) == answer


@pytest.mark.parametrize("change", [{"status": "splendid"}, {"extra": 1}, {"warnings": None}])
def test_what_is_no_answer_is_refused(change: dict[str, Any]) -> None:
    data = EngineAnswer("limit", "maxTimeLimit", 1.0).to_json()
    assert EngineAnswer.from_json(data).status == "limit"
    with pytest.raises(EngineError):
        EngineAnswer.from_json({**data, **change})


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (processes.Outcome("timeout", None, "killed", 2.0), "limit"),
        (processes.Outcome("crashed", None, "killed by SIGSEGV", 2.0), "fault"),
        (processes.Outcome("error", None, "MemoryError", 2.0), "fault"),
    ],
)
def test_a_child_without_result(outcome: processes.Outcome, status: str) -> None:
    answer = answer_of(outcome)
    assert (answer.status, answer.seconds) == (status, 2.0)
    assert outcome.message in answer.detail


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
def test_a_senseless_time_limit_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="time_limit"):
        solve(small, time_limit=limit, presolve=True, seed=0)


def test_versions() -> None:
    versions = engine_versions()
    assert set(versions) == {"highs", "highspy", "pyomo"}
    assert versions["highs"] == versions["highspy"]
