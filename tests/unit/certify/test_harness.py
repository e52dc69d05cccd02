"""The harness certifies what is right, and every lie it is told ends in another verdict."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nest_opt.bounds import Bounds
from nest_opt.certify import Certificate, certify, harness, highs, verify
from nest_opt.certify.certificate import FIRST, SECOND, Answer, OptionSet
from nest_opt.certify.harness import judge
from nest_opt.certify.own_bounds import OwnBounds
from nest_opt.certify.questions import Question
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import all_plans
from nest_opt.errors import EngineError, OverflowGuardError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.plan import Plan
from nest_opt.problem import Problem
from nest_opt.solve import Solution, solve

PRICES = {"worked-example-1000": 352, "worked-example-160": 454, "worked-example-110": 584}

Build = Callable[[Question, Compiled], Any]
build_honestly: Build = Question.build


@pytest.fixture
def problem() -> Problem:
    return load_problem("worked-example-160")


@pytest.fixture
def hopeless() -> Problem:
    """Nothing fits."""
    return load_problem("worked-example-110", {"cluster.device.memory_bytes": 50 * 2**20})


def closed(certificate: Certificate) -> int:
    cells = certificate.cells
    return cells.bounded + cells.refuted + cells.solved


def priced(plan: Plan, compiled: Compiled, **changes: Any) -> Solution:
    """What a DP would say that believes in this plan."""
    evaluation = Evaluator(compiled).evaluate(plan)
    stages = tuple(
        stage.model_copy(
            update={"load_ticks": found.load_ticks, "memory_bytes": found.memory_bytes}
        )
        for stage, found in zip(plan.stages, evaluation.stages, strict=True)
    )
    solution = replace(
        solve(compiled),
        status="optimal",
        batch_ticks=evaluation.batch_ticks,
        tau_ticks=evaluation.tau_ticks,
        sigma_ticks=evaluation.sigma_ticks,
        plan=plan.model_copy(update={"stages": stages}),
    )
    return replace(solution, **changes)


def answers_with(solution: Solution) -> Callable[..., Solution]:
    return lambda *_, **__: solution


# --- the truth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRICES)
@pytest.mark.parametrize("use_bounds", [True, False])
def test_worked_examples(name: str, use_bounds: bool) -> None:
    certificate = certify(load_problem(name), use_bounds=use_bounds, jobs=2)
    assert certificate.verdict == "certified", certificate.reasons
    assert certificate.batch_ticks == certificate.proven_bound_ticks == PRICES[name]
    assert certificate.gap == 0 and not certificate.reasons
    assert closed(certificate) == certificate.cells.total == 16
    assert (certificate.cells.bounded > 0) == use_bounds
    assert certificate.enumeration.agreed and certificate.enumeration.plans == 456
    assert {a.formulation for a in certificate.completeness} == {"runs", "assignment", "arcs"}


@pytest.mark.parametrize("use_bounds", [True, False])
def test_a_problem_without_plans(hopeless: Problem, use_bounds: bool) -> None:
    certificate = certify(hopeless, use_bounds=use_bounds, jobs=2)
    assert certificate.verdict == "certified", certificate.reasons
    assert certificate.status == "infeasible" and certificate.batch_ticks is None
    assert closed(certificate) == 16 and certificate.enumeration.agreed


def test_random_problems(random_problem: Callable[[int], Problem]) -> None:
    verdicts = []
    for seed in (102, 113, 119, 130, 133, 149):  # few cells, many kinds of choices
        certificate = certify(random_problem(seed), jobs=2, use_bounds=seed % 2 == 0)
        assert verify(certificate.to_dict()).ok
        verdicts.append(certificate.verdict)
    assert verdicts == ["certified"] * len(verdicts)


def test_many_plans_are_not_enumerated(problem: Problem) -> None:
    certificate = certify(problem, enumeration_limit=455, jobs=2)
    assert certificate.verdict == "certified"
    assert certificate.enumeration.agreed is None
    assert certificate.enumeration.reason == "too many plans: 456"


def test_progress_is_reported(problem: Problem) -> None:
    seen: list[tuple[int, int, str]] = []
    certify(problem, progress=lambda *report: seen.append(report))
    assert {"solving", "bounding", "refuting with runs"} <= {what for _, _, what in seen}
    assert all(0 <= done <= total for done, total, _ in seen)


@pytest.mark.parametrize("limits", [{"jobs": 0}, {"time_limit": 0.0}, {"solve_limit": -1.0}])
def test_senseless_limits(problem: Problem, limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        certify(problem, **limits)


# --- a DP that is wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("enumeration_limit", [0, 1000])
@pytest.mark.parametrize("use_bounds", [True, False])
def test_a_suboptimal_plan_is_refuted(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, enumeration_limit: int, use_bounds: bool
) -> None:
    compiled = compile_problem(problem)
    evaluator = Evaluator(compiled)
    plans = [(plan, evaluator.evaluate(plan)) for plan in all_plans(compiled)]
    worse = [(e.require_price(), n) for n, (_, e) in enumerate(plans) if e.feasible]
    plan = plans[next(n for price, n in sorted(worse) if price > 454)][0]
    monkeypatch.setattr(harness, "solve_problem", answers_with(priced(plan, compiled)))
    certificate = certify(
        problem, enumeration_limit=enumeration_limit, use_bounds=use_bounds, jobs=2
    )
    assert certificate.verdict == "refuted"
    assert certificate.batch_ticks is not None and certificate.better_plan is not None
    assert certificate.better_plan.batch_ticks < certificate.batch_ticks
    better = evaluator.evaluate(certificate.better_plan.plan)
    assert better.feasible and better.batch_ticks == certificate.better_plan.batch_ticks
    assert not better.claims
    assert not verify(certificate.to_dict()).ok


@pytest.mark.parametrize("enumeration_limit", [0, 1000])
def test_a_plan_that_was_overlooked_is_found(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, enumeration_limit: int
) -> None:
    nothing = dict.fromkeys(("batch_ticks", "tau_ticks", "sigma_ticks", "plan"))
    solution = replace(solve(problem), status="infeasible", **nothing)
    monkeypatch.setattr(harness, "solve_problem", answers_with(solution))
    certificate = certify(problem, enumeration_limit=enumeration_limit, jobs=2)
    assert certificate.verdict == "refuted" and certificate.better_plan is not None


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"batch_ticks": 453}, "disputed"),
        ({"batch_ticks": 455}, "refuted"),  # its own plan is better than it says
        ({"tau_ticks": 81}, "disputed"),
        ({"sigma_ticks": 45}, "disputed"),
        ({"plan": None}, "fault"),
        ({"status": "infeasible"}, "fault"),
    ],
)
def test_a_mispriced_plan(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], verdict: str
) -> None:
    solution = replace(solve(problem), **changes)
    monkeypatch.setattr(harness, "solve_problem", answers_with(solution))
    certificate = certify(problem)
    assert certificate.verdict == verdict
    assert certificate.reasons and not verify(certificate.to_dict()).ok


def test_a_plan_outside_of_the_search_space(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_problem(problem)
    plan = solve(compiled).plan
    assert plan is not None
    last, first = plan.stages[1].devices, plan.stages[0].devices
    swapped = plan.model_copy(
        update={
            "stages": (
                plan.stages[0].model_copy(update={"devices": last}),
                plan.stages[1].model_copy(update={"devices": first}),
            )
        }
    )
    monkeypatch.setattr(harness, "solve_problem", answers_with(priced(swapped, compiled)))
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("not on the devices" in reason for reason in certificate.reasons)


def test_another_plan_of_the_same_price(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    loose = load_problem("worked-example-1000")
    compiled = compile_problem(loose)
    evaluator = Evaluator(compiled)
    reference = solve(compiled).plan
    assert reference is not None
    other = next(
        plan
        for plan in all_plans(compiled)
        if evaluator.evaluate(plan).batch_ticks == 352 and plan.layout != reference.layout
    )
    monkeypatch.setattr(harness, "solve_problem", answers_with(priced(other, compiled)))
    certificate = certify(loose)
    assert certificate.verdict == "disputed"
    assert any("comes first in the order" in reason for reason in certificate.reasons)


def test_a_broken_dp_is_a_fault(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Solution:
        raise RuntimeError("index out of range")

    monkeypatch.setattr(harness, "solve_problem", broken)
    certificate = certify(problem)
    assert certificate.verdict == "fault" and certificate.status == "unknown"
    assert certificate.cells.open == 16


def test_an_evaluator_that_disagrees(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Evaluator.evaluate

    def dear(self: Evaluator, plan: Plan) -> Any:
        evaluation = honest(self, plan)
        return replace(evaluation, batch_ticks=(evaluation.batch_ticks or 0) + 1)

    monkeypatch.setattr(Evaluator, "evaluate", dear)
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("455 ticks by the evaluator, not 454" in reason for reason in certificate.reasons)


# --- lists and bounds that are wrong --------------------------------------------------------------


def test_a_missing_cell_is_noticed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = harness.list_cells
    monkeypatch.setattr(harness, "list_cells", lambda compiled: list(honest(compiled))[1:])
    certificate = certify(problem)
    assert certificate.verdict == "disputed" and certificate.cells.open == 16


def test_a_miscounted_cell_is_noticed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = harness.list_cells

    def padded(compiled: Compiled) -> list[Any]:
        first, *rest = honest(compiled)
        return [replace(first, microbatches=first.microbatches + 1), *rest]

    monkeypatch.setattr(harness, "list_cells", padded)
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("microbatches" in reason for reason in certificate.reasons)


def test_a_bound_that_no_other_shows_closes_nothing(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Bounds.work

    def eager(self: Bounds, cell: Any) -> int:
        return honest(self, cell) if cell.replicas == 2 and cell.stages == 2 else 10**6

    monkeypatch.setattr(Bounds, "work", eager)
    monkeypatch.setattr(OwnBounds, "work", lambda *_: 0)
    monkeypatch.setattr(OwnBounds, "may_reach", lambda *_: True)
    monkeypatch.setattr(harness, "solve_problem", answers_with(solve(problem, use_bounds=False)))
    certificate = certify(problem, jobs=2)
    assert certificate.verdict == "certified"
    assert certificate.cells.bounded == 0 and certificate.cells.refuted == 16


@pytest.mark.parametrize("which", [Bounds, OwnBounds])
def test_a_bound_above_the_optimum_is_disputed(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, which: type
) -> None:
    solution = solve(problem)
    monkeypatch.setattr(harness, "solve_problem", answers_with(solution))
    monkeypatch.setattr(which, "work", lambda *_: 455)
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("closed-form bounds exclude" in reason for reason in certificate.reasons)
    assert certificate.proven_bound_ticks == 0


# --- engines that are wrong -----------------------------------------------------------------------


def lie(
    status: str, when: Callable[[Any, bool], bool], **facts: Any
) -> Callable[..., highs.EngineAnswer]:
    """An engine that answers ``status`` to some models, and honestly otherwise."""
    honest = highs.solve

    def solve_or_lie(build: Callable[[], Any], **asked: Any) -> highs.EngineAnswer:
        if when(build(), asked["presolve"]):
            return highs.EngineAnswer(status=status, detail="lie", seconds=0.0, **facts)  # type: ignore[arg-type]
        return honest(build, **asked)

    return solve_or_lie


def is_decision(model: Any) -> bool:
    return "decision" in model.name and not hasattr(model, "fixed_plan")


@pytest.mark.parametrize("formulation", ["runs", "assignment"])
def test_a_model_that_refuses_the_plan(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, formulation: str
) -> None:
    refuses = lie(
        "infeasible", lambda m, _: hasattr(m, "fixed_plan") and m.name.startswith(formulation)
    )
    monkeypatch.setattr(highs, "solve", refuses)
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("refuses the plan of its own cell" in reason for reason in certificate.reasons)
    assert certificate.cells.open == 0  # all the rest holds, and yet nothing is certified


@pytest.mark.parametrize("presolves", [(True,), (False,), (True, False)])
def test_a_plan_that_is_none(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, presolves: tuple[bool, ...]
) -> None:
    def generous(question: Question, compiled: Compiled) -> Any:
        # Off by one: "T <= T*" is asked where "T <= T* - 1" is meant.
        if question.kind == "decision" and question.options.presolve in presolves:
            question = replace(question, limit=(question.limit or 0) + 1)
        return build_honestly(question, compiled)

    monkeypatch.setattr(Question, "build", generous)
    certificate = certify(problem, jobs=2)
    assert certificate.verdict == "disputed"
    assert certificate.cells.open == 1 and certificate.batch_ticks == 454
    (cell,) = [c for c in certificate.closures if c.method == "open"]
    assert "claims a plan with T <= 453" in cell.reason and "seed" in cell.reason
    assert {a.formulation for a in cell.answers} >= {"runs", "assignment"}


def test_a_solution_that_is_no_plan(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = lie("optimal", lambda m, _: is_decision(m), values={"x": 0.5})
    monkeypatch.setattr(highs, "solve", nonsense)
    certificate = certify(problem)
    assert certificate.verdict == "disputed"
    assert any("no plan can be read" in reason for reason in certificate.reasons)


def test_a_refutation_has_to_be_repeated(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(model: Any, presolve: bool) -> bool:
        return "minimum" in model.name or (is_decision(model) and not presolve)

    monkeypatch.setattr(highs, "solve", lie("limit", slow))
    certificate = certify(problem)
    assert certificate.verdict == "open" and certificate.cells.open == 2
    assert certificate.proven_bound_ticks is not None and certificate.gap is not None
    assert certificate.proven_bound_ticks < 454 and 0 < certificate.gap < 1


def test_min_max_models_stand_in(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "solve", lie("limit", lambda m, _: is_decision(m)))
    certificate = certify(problem)
    assert certificate.verdict == "certified" and certificate.cells.solved == 2
    assert verify(certificate.to_dict()).ok
    assert {c.value for c in certificate.closures if c.method == "solved"} >= {454}


def test_the_other_formulation_stands_in(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(question: Question, compiled: Compiled) -> Any:
        if question.kind == "decision" and question.formulation == "runs":
            os.kill(os.getpid(), signal.SIGKILL)
        return build_honestly(question, compiled)

    monkeypatch.setattr(Question, "build", crashes)
    certificate = certify(problem, jobs=2)
    assert certificate.verdict == "certified" and certificate.cells.refuted == 2
    assert verify(certificate.to_dict()).ok


def test_a_crash_is_a_fault(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(question: Question, compiled: Compiled) -> Any:
        if question.kind != "fixed_plan":
            os.kill(os.getpid(), signal.SIGKILL)
        return build_honestly(question, compiled)

    monkeypatch.setattr(Question, "build", crashes)
    certificate = certify(problem, jobs=2)
    assert certificate.verdict == "fault" and certificate.cells.open == 2
    assert any("SIGKILL" in reason for reason in certificate.reasons)


def test_numbers_too_large_stay_open(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(question: Question, compiled: Compiled) -> Any:
        raise OverflowGuardError("a coefficient is 10^12")

    monkeypatch.setattr(Question, "build", refuses)
    certificate = certify(problem)
    assert certificate.verdict == "open"
    assert any("numbers too large" in reason for reason in certificate.reasons)


def test_answers_of_another_release_are_worthless(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = highs.solve
    monkeypatch.setattr(
        highs, "solve", lambda build, **asked: replace(honest(build, **asked), version="1.14.0")
    )
    certificate = certify(problem)
    assert certificate.verdict == "fault"
    assert any("1.14.0" in reason for reason in certificate.reasons)
    monkeypatch.setattr(highs, "engine_versions", lambda: {"highs": "1.14.0"})
    with pytest.raises(EngineError, match=r"1\.16\.0"):
        certify(problem)


# --- limits ---------------------------------------------------------------------------------------


def test_a_hanging_solver_is_killed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(question: Question, compiled: Compiled) -> Any:
        if question.kind != "fixed_plan":
            time.sleep(60)
        return build_honestly(question, compiled)

    monkeypatch.setattr(Question, "build", hangs)
    started = time.monotonic()
    certificate = certify(problem, time_limit=3, jobs=2)
    assert time.monotonic() - started < 6
    assert certificate.verdict == "open" and certificate.cells.open == 2
    assert certificate.batch_ticks == 454
    assert certificate.proven_bound_ticks is not None
    assert 410 <= certificate.proven_bound_ticks <= 454


def test_no_time_at_all(problem: Problem) -> None:
    certificate = certify(problem, time_limit=1e-6)
    assert certificate.verdict == "open" and certificate.status == "unknown"
    assert certificate.cells.open == 16 and certificate.proven_bound_ticks is not None
    assert any("time limit" in reason for reason in certificate.reasons)
    assert not verify(certificate.to_dict()).ok


# --- what answers amount to -----------------------------------------------------------------------


def answer(status: str, asked: OptionSet = FIRST, **facts: Any) -> Answer:
    read_back = {
        "threads": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": 1e-6,
        "presolve": "on" if asked.presolve else "off",
        "random_seed": asked.seed,
    }
    fields: dict[str, Any] = {
        "formulation": "runs",
        "question": "decision",
        "limit": 99,
        "status": status,
        "detail": status,
        "presolve": asked.presolve,
        "seed": asked.seed,
        "options": read_back,
        "version": "1.16.0",
    }
    return Answer(**{**fields, **facts})


OTHER: dict[str, Any] = {"formulation": "assignment"}
MINIMUM: dict[str, Any] = {"formulation": "assignment", "question": "minimum", "limit": None}


@pytest.mark.parametrize(
    ("answers", "method", "reason"),
    [
        ([answer("infeasible"), answer("infeasible", SECOND)], "refuted", ""),
        ([answer("infeasible"), answer("infeasible")], "open", ""),
        ([answer("infeasible"), answer("limit", SECOND)], "open", "limit"),
        ([answer("infeasible"), answer("fault", SECOND)], "open", "fault"),
        ([answer("infeasible"), answer("optimal", SECOND, priced_ticks=100)], "open", "disputed"),
        ([answer("infeasible"), answer("infeasible", SECOND, **OTHER)], "open", ""),
        ([answer("infeasible", limit=98), answer("infeasible", SECOND, limit=98)], "open", ""),
        ([answer("infeasible", options={}), answer("infeasible", SECOND)], "open", "fault"),
        (
            [
                answer("fault"),
                answer("limit", SECOND),
                answer("infeasible", **OTHER),
                answer("infeasible", SECOND, **OTHER),
            ],
            "refuted",
            "",
        ),
        (
            [
                answer("optimal", priced_ticks=120),
                answer("infeasible", **OTHER),
                answer("infeasible", SECOND, **OTHER),
            ],
            "open",
            "disputed",
        ),
        (
            [
                answer("limit"),
                answer("optimal", **MINIMUM, priced_ticks=100),
                answer("optimal", SECOND, **MINIMUM, priced_ticks=100),
            ],
            "solved",
            "",
        ),
        (
            [
                answer("optimal", **MINIMUM, priced_ticks=100),
                answer("optimal", SECOND, **MINIMUM, priced_ticks=101),
            ],
            "open",
            "disputed",
        ),
        (
            [
                answer("optimal", **MINIMUM, priced_ticks=100),
                answer("infeasible", SECOND, **MINIMUM),
            ],
            "open",
            "disputed",
        ),
        ([answer("optimal", **MINIMUM, priced_ticks=100)], "open", ""),
        ([answer("optimal", **MINIMUM, note="does not fit")], "open", "disputed"),
        (
            [
                answer("feasible", **MINIMUM, priced_ticks=100),
                answer("optimal", SECOND, **MINIMUM, priced_ticks=100),
            ],
            "open",
            "limit",
        ),
    ],
)
def test_judge(answers: list[Answer], method: str, reason: str) -> None:
    closure = judge("cell", answers, 100, holds_plan=False)
    assert closure.method == method
    assert closure.reason.startswith(reason)
    assert (method == "open") == bool(closure.reason)


def test_the_optimum_of_the_plans_own_cell() -> None:
    minima = [
        answer("optimal", options, **MINIMUM, priced_ticks=101) for options in (FIRST, SECOND)
    ]
    assert judge("cell", minima, 100, holds_plan=False).method == "solved"
    assert judge("cell", minima, 100, holds_plan=True).reason.startswith("disputed")
    empty = [answer("infeasible", options, **MINIMUM) for options in (FIRST, SECOND)]
    assert judge("cell", empty, 100, holds_plan=True).reason.startswith("disputed")


# --- cross-checks of the bounds -------------------------------------------------------------------


def test_the_tightest_bounded_cells_are_put_to_the_engine() -> None:
    problem = load_problem("worked-example-1000")
    alone = certify(problem, cross_checks=0, jobs=2)
    assert alone.cells.refuted == 0
    checked = certify(problem, cross_checks=3, jobs=2)
    assert checked.verdict == "certified"
    assert checked.cells.refuted == 3
    assert checked.plan is not None
    own = f"b1 d{checked.plan.replicas} t1 s{len(checked.plan.stages)} {checked.plan.layout}"
    assert own in [closure.cell for closure in checked.closures if closure.method == "refuted"]


def test_an_engine_that_breaks_in_a_cross_check_leaves_the_bound(monkeypatch: Any) -> None:
    def broken(*arguments: Any, **options: Any) -> highs.EngineAnswer:
        raise RuntimeError("no licence")

    problem = load_problem("worked-example-160", {"cluster.device.memory_bytes": 50 * 2**20})
    monkeypatch.setattr(highs, "solve", broken)
    certificate = certify(problem, jobs=2)
    assert certificate.verdict == "certified"
    assert certificate.cells.bounded == certificate.cells.total


def test_presolve_that_breaks_down_is_replaced(monkeypatch: Any) -> None:
    solve = highs.solve

    def broken(build: Any, *, presolve: bool, **options: Any) -> highs.EngineAnswer:
        if presolve:
            raise RuntimeError("Solve error")
        return solve(build, presolve=presolve, **options)

    monkeypatch.setattr(highs, "solve", broken)
    certificate = certify(load_problem("worked-example-160"), use_bounds=False, jobs=2)
    assert certificate.verdict == "certified"
    assert certificate.cells.refuted == certificate.cells.total
    asked = {answer.option_set for c in certificate.closures for answer in c.answers}
    assert len(asked) == 3
