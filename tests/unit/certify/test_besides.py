"""Engines besides HiGHS: nothing rests on them, and none of them may contradict unheard."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nest_opt.certify import certify, cp_sat, harness, highs, verify
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.certificate import BESIDES
from nest_opt.errors import EngineError
from nest_opt.library import load_problem
from nest_opt.problem import Problem
from nest_opt.solve import solve

pytest.importorskip("ortools")

Data = dict[str, Any]
BEST = 454
#: Enough for everything here: the cell of the plan, and the one of the other layout.
TWO_CELLS: Data = {"search.stages": [2], "search.data_parallel": [2]}


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("worked-example-160", TWO_CELLS)


@pytest.fixture(scope="module")
def original(problem: Problem) -> Data:
    certificate = certify(problem, jobs=2, cross_checks=1, engines=["cp-sat"])
    assert certificate.verdict == "certified", certificate.reasons
    return certificate.to_dict()


@pytest.fixture
def data(original: Data) -> Data:
    return copy.deepcopy(original)


# --- what they say --------------------------------------------------------------------------------


def test_they_are_asked_what_highs_is_asked(original: Data) -> None:
    assert original["options"]["engines"] == ["cp-sat"]
    assert original["engines"]["cp-sat"] == cp_sat.version()
    refuted = [c for c in original["closures"] if c["method"] == "refuted"]
    assert refuted
    for closure in refuted:
        asked = [(a["engine"], a["question"], a["status"]) for a in closure["besides"]]
        assert ("cp-sat", "decision", "infeasible") in asked
    kept = [a for c in refuted for a in c["besides"] if a["question"] == "fixed_plan"]
    assert [(a["priced_ticks"], a["limit"]) for a in kept] == [(BEST, BEST)]
    result = verify(original)
    assert result.ok, result.refusals
    assert result.checked["besides"] == {"cp-sat": len(refuted) + 1}


def lie(when: Callable[[str, int | None], bool], **facts: Any) -> Any:
    """CP-SAT, but for some questions."""
    honest = cp_sat.solve

    def solve_or_lie(compiled: Any, cell: Any, kind: str, limit: Any, **more: Any) -> Any:
        if when(kind, limit):
            return replace(
                EngineAnswer("fault", "lie", 0.0, version=cp_sat.version() or ""), **facts
            )
        return honest(compiled, cell, kind, limit, **more)  # type: ignore[arg-type]

    return solve_or_lie


def certified_with(problem: Problem, monkeypatch: pytest.MonkeyPatch, lying: Any) -> Any:
    monkeypatch.setattr(cp_sat, "solve", lying)
    return certify(problem, jobs=2, cross_checks=1, engines=["cp-sat"])


def test_refusing_the_plan_is_a_dispute(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    lying = lie(lambda kind, _: kind == "fixed_plan", status="infeasible")
    certificate = certified_with(problem, monkeypatch, lying)
    assert certificate.verdict == "disputed"
    assert "OR-Tools CP-SAT" in certificate.reasons[0]
    assert "the plan of 454 ticks is infeasible" in certificate.reasons[0]
    assert not verify(certificate).ok


def test_claiming_a_plan_that_is_none_is_a_dispute(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = lie(lambda kind, _: kind == "decision", status="optimal", values={"start[0]": 3.0})
    certificate = certified_with(problem, monkeypatch, lying)
    assert certificate.verdict == "disputed"
    assert "claims a plan with T <= 453: no plan can be read" in certificate.reasons[0]


@pytest.mark.parametrize("status", ["limit", "fault"])
def test_silence_is_recorded_and_proves_nothing(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    certificate = certified_with(problem, monkeypatch, lie(lambda *_: True, status=status))
    assert certificate.verdict == "certified"
    assert {a.status for c in certificate.closures for a in c.besides} == {status}
    result = verify(certificate)
    assert result.ok, result.refusals
    assert result.checked["besides"] == {"cp-sat": 0}


def test_a_crash_is_a_fault_and_proves_nothing(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise MemoryError

    certificate = certified_with(problem, monkeypatch, crash)
    assert certificate.verdict == "certified"
    assert {a.status for c in certificate.closures for a in c.besides} == {"fault"}
    assert verify(certificate).ok


def test_a_better_plan_that_highs_overlooks_refutes(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver reports 490 ticks, HiGHS refutes everything; CP-SAT finds the optimum."""
    worse = solve(
        load_problem("worked-example-160", {**TWO_CELLS, "search.layouts": ["data-inner"]})
    )
    assert worse.batch_ticks is not None and worse.batch_ticks > BEST
    assert worse.plan is not None
    digest = solve(problem).plan.digest  # type: ignore[union-attr]
    plan = worse.plan.model_copy(update={"digest": digest})
    monkeypatch.setattr(harness, "solve_problem", lambda *_, **__: replace(worse, plan=plan))
    honest = highs.solve

    def blind(build: Any, **asked: Any) -> EngineAnswer:
        answer = honest(build, **asked)
        if hasattr(build(), "fixed_plan"):
            return answer
        return replace(answer, status="infeasible", detail="provenInfeasible", values=None)

    monkeypatch.setattr(highs, "solve", blind)
    certificate = certify(problem, jobs=2, enumeration_limit=0, engines=["cp-sat"])
    assert certificate.verdict == "refuted", certificate.reasons
    assert certificate.better_plan is not None
    assert "OR-Tools CP-SAT" in certificate.better_plan.found_by


def test_an_engine_that_is_not_there_is_refused(problem: Problem) -> None:
    with pytest.raises(EngineError, match="no engine 'gurubi'"):
        certify(problem, engines=["gurubi"])


# --- what a certificate may not hide --------------------------------------------------------------


def first_besides(data: Data) -> Data:
    found: Data = next(c for c in data["closures"] if c.get("besides"))
    return found


def own_cell(data: Data) -> Data:
    asked = "fixed_plan"
    found: Data = next(
        c for c in data["closures"] if asked in [a["question"] for a in c.get("besides", ())]
    )
    return found


def remove_answers(data: Data) -> None:
    first_besides(data)["besides"] = []


def remove_all(data: Data) -> None:
    for closure in data["closures"]:
        closure["besides"] = []


def forget_the_engine(data: Data) -> None:
    data["options"]["engines"] = []


def forget_its_version(data: Data) -> None:
    del data["engines"]["cp-sat"]


def another_version(data: Data) -> None:
    data["engines"]["cp-sat"] = "9.0"


def another_engine(data: Data) -> None:
    data["options"]["engines"] = ["cp-sat", "crystal-ball"]


def name_highs(data: Data) -> None:
    data["options"]["engines"] = ["cp-sat", "highs"]


def claim_a_plan(data: Data) -> None:
    first_besides(data)["besides"][0].update(status="optimal", note="a plan")


def refuse_the_plan(data: Data) -> None:
    answer = next(a for a in own_cell(data)["besides"] if a["question"] == "fixed_plan")
    answer.update(status="infeasible", priced_ticks=None)


def reprice_the_plan(data: Data) -> None:
    answer = next(a for a in own_cell(data)["besides"] if a["question"] == "fixed_plan")
    answer["priced_ticks"] = BEST - 1


def another_limit(data: Data) -> None:
    first_besides(data)["besides"][0]["limit"] = 1


def another_model(data: Data) -> None:
    first_besides(data)["besides"][0]["formulation"] = "runs"


def another_seed(data: Data) -> None:
    first_besides(data)["besides"][0]["seed"] = BESIDES.seed + 1


def twice(data: Data) -> None:
    closure = first_besides(data)
    closure["besides"].append(closure["besides"][0])


def the_plan_elsewhere(data: Data) -> None:
    kept = next(a for a in own_cell(data)["besides"] if a["question"] == "fixed_plan")
    other = next(
        c for c in data["closures"] if c.get("besides") and c["cell"] != own_cell(data)["cell"]
    )
    other["besides"].append(kept)


def in_place_of_highs(data: Data) -> None:
    closure = next(c for c in data["closures"] if c["method"] == "refuted")
    for answer in closure["answers"]:
        answer["engine"] = "cp-sat"


def as_evidence(data: Data) -> None:
    closure = next(c for c in data["closures"] if c["method"] == "refuted")
    closure["answers"].append(closure["besides"][0])


def an_older_version(data: Data) -> None:
    data["format"] = "nest-opt/certificate/1"


EDITS = [
    remove_answers,
    remove_all,
    forget_the_engine,
    forget_its_version,
    another_version,
    another_engine,
    name_highs,
    claim_a_plan,
    refuse_the_plan,
    reprice_the_plan,
    another_limit,
    another_model,
    another_seed,
    twice,
    the_plan_elsewhere,
    in_place_of_highs,
    as_evidence,
    an_older_version,
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_hostile_edits_are_refused(data: Data, edit: Callable[[Data], None]) -> None:
    edit(data)
    assert not verify(data).ok


def test_a_dispute_cannot_be_turned_into_a_certificate(
    problem: Problem, original: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    lying = lie(lambda kind, _: kind == "fixed_plan", status="infeasible")
    disputed = certified_with(problem, monkeypatch, lying).to_dict()
    disputed["verdict"], disputed["reasons"] = "certified", []
    disputed["cells"] = original["cells"]
    best = {c["cell"]: c for c in original["closures"]}
    for closure in disputed["closures"]:
        if closure["method"] == "open":
            closure.update({k: best[closure["cell"]][k] for k in ("method", "value")}, reason="")
    disputed["proven_bound_ticks"], disputed["gap"] = BEST, 0.0
    result = verify(disputed)
    assert not result.ok
    assert all("besides, cp-sat: the plan of 454" in refusal for refusal in result.refusals)


def test_certificates_of_version_1_are_read(problem: Problem) -> None:
    data = certify(problem, jobs=2, cross_checks=0).to_dict()
    data["format"] = "nest-opt/certificate/1"
    del data["options"]["engines"]
    assert verify(data).ok


# --- asking again ---------------------------------------------------------------------------------


def test_resolve_puts_the_questions_to_other_engines(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = certify(problem, jobs=2, cross_checks=0).to_dict()
    result = verify(data, resolve=True, jobs=2, engines=["cp-sat"])
    assert result.ok, result.refusals
    refuted = sum(c["method"] == "refuted" for c in data["closures"])
    count = refuted + 1
    assert result.checked["asked_besides"] == {"cp-sat": f"{count} of {count} answered"}
    lying = lie(lambda kind, _: kind == "fixed_plan", status="infeasible")
    monkeypatch.setattr(cp_sat, "solve", lying)
    refused = verify(data, resolve=True, jobs=2, engines=["cp-sat"])
    assert not refused.ok
    assert "cp-sat: the plan of 454 ticks is infeasible" in refused.refusals[0]
