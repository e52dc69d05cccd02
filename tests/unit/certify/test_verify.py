"""Verification accepts what certify wrote, and refuses everything that was changed since."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from nest_opt.certify import certify, highs, questions, verify
from nest_opt.errors import CertificateError
from nest_opt.library import load_problem

Data = dict[str, Any]


@pytest.fixture(scope="module")
def original() -> Data:
    return certify(load_problem("worked-example-160"), jobs=2, cross_checks=0).to_dict()


@pytest.fixture
def data(original: Data) -> Data:
    return copy.deepcopy(original)


@pytest.fixture(scope="module")
def unbounded() -> Data:
    return certify(load_problem("worked-example-110"), use_bounds=False, jobs=2).to_dict()


@pytest.fixture(scope="module")
def hopeless() -> Data:
    problem = load_problem("worked-example-110", {"cluster.device.memory_bytes": 50 * 2**20})
    return certify(problem, jobs=2, cross_checks=0).to_dict()


def closures(data: Data, method: str) -> list[Data]:
    return [closure for closure in data["closures"] if closure["method"] == method]


def refusals(data: Data) -> str:
    result = verify(data)
    assert not result.ok
    return "\n".join(result.refusals)


# --- what is right --------------------------------------------------------------------------------


def test_untouched(original: Data) -> None:
    result = verify(json.loads(json.dumps(original)))
    assert result.ok and result.refusals == ()
    assert result.checked["not_re_solved"] == 2
    assert result.checked["cells"]["total"] == 16
    assert result.to_dict() == {"ok": True, "refusals": [], "checked": result.checked}


def test_untouched_without_bounds(unbounded: Data) -> None:
    assert verify(unbounded).ok


def test_untouched_and_infeasible(hopeless: Data) -> None:
    assert hopeless["status"] == "infeasible"
    assert verify(hopeless).ok


def test_it_changes_nothing(original: Data) -> None:
    before = copy.deepcopy(original)
    verify(original)
    assert original == before


@pytest.mark.parametrize("which", ["original", "hopeless"])
def test_solving_again(which: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(which)
    seen: list[str] = []
    result = verify(data, resolve=True, jobs=2, progress=lambda *report: seen.append(report[2]))
    assert result.ok and result.checked["not_re_solved"] == 0
    assert result.checked["re_solved"] == (7 if which == "original" else 0)
    assert "checking cells" in seen


def test_it_shares_nothing_with_what_it_checks() -> None:
    code = "import sys, nest_opt.certify.verify; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    for module in ("cells", "bounds", "geometry", "solve", "dp", "certify.harness"):
        assert f"nest_opt.{module}" not in loaded
    assert "formulations" not in loaded and "pyomo" not in loaded and "highspy" not in loaded


# --- what was changed -----------------------------------------------------------------------------


def lower(data: Data) -> None:
    data["batch_ticks"] -= 1


def lower_everywhere(data: Data) -> None:
    data["batch_ticks"] = data["proven_bound_ticks"] = 453
    data["batch_seconds"] = 0.453
    data["sigma_ticks"] -= 1
    for closure in closures(data, "refuted"):
        closure["value"] -= 1
        for answer in closure["answers"]:
            answer["limit"] -= 1
    for closure in closures(data, "bounded"):
        if closure["bound"] == "counting":
            closure["value"] -= 1
    for answer in data["completeness"]:
        answer["limit"] = answer["priced_ticks"] = 453


def raise_(data: Data) -> None:
    data["batch_ticks"] += 1


def remove_cell(data: Data) -> None:
    closures(data, "bounded")
    del data["closures"][3]


def remove_cell_and_count(data: Data) -> None:
    gone = data["closures"].pop(3)
    data["cells"]["total"] -= 1
    data["cells"][gone["method"]] -= 1


def duplicate_cell(data: Data) -> None:
    data["closures"].append(copy.deepcopy(data["closures"][0]))
    data["cells"]["total"] += 1
    data["cells"][data["closures"][0]["method"]] += 1


def rename_cell(data: Data) -> None:
    data["closures"][0]["cell"] = "b1 d3 t1 s2 pipeline-inner"


def digest(data: Data) -> None:
    data["digest"] = data["digest"][:-1] + ("0" if data["digest"][-1] != "0" else "1")


def both_digests(data: Data) -> None:
    digest(data)
    data["plan"]["digest"] = data["digest"]


def plan_digest(data: Data) -> None:
    data["plan"]["digest"] = ""


def memory(data: Data) -> None:
    data["problem"]["cluster"]["device"]["memory_bytes"] *= 2


def batch(data: Data) -> None:
    data["problem"]["training"]["global_batch"] = 16


def search(data: Data) -> None:
    data["problem"]["search"]["layouts"] = ["pipeline-inner"]


def units(data: Data) -> None:
    data["units"]["memory_quanta"] += 1


def name(data: Data) -> None:
    data["name"] = "worked-example-110"


def tau(data: Data) -> None:
    data["tau_ticks"] -= 1


def seconds(data: Data) -> None:
    data["batch_seconds"] = 0.4


def move_layer(data: Data) -> None:
    data["plan"]["stages"][0]["layers"] = [0, 1]
    data["plan"]["stages"][1]["layers"] = [1, 4]


def share_device(data: Data) -> None:
    data["plan"]["stages"][0]["devices"][0] = data["plan"]["stages"][1]["devices"][0]


def swap_replicas(data: Data) -> None:
    for stage in data["plan"]["stages"]:
        stage["devices"].reverse()


def drop_stage(data: Data) -> None:
    del data["plan"]["stages"][0]


def claim_load(data: Data) -> None:
    data["plan"]["stages"][0]["load_ticks"] -= 1


def claim_no_load(data: Data) -> None:
    data["plan"]["stages"][0]["load_ticks"] = None


def claim_memory(data: Data) -> None:
    data["plan"]["stages"][0]["memory_bytes"] -= 1


def claim_bound(data: Data) -> None:
    """A refuted cell, said to be closed by a bound."""
    closure = closures(data, "refuted")[0]
    closure.clear()
    closure.update(cell="b1 d2 t1 s2 pipeline-inner", method="bounded", bound="work", value=454)
    data["cells"]["bounded"] += 1
    data["cells"]["refuted"] -= 1


def claim_counting(data: Data) -> None:
    claim_bound(data)
    for closure in closures(data, "bounded"):
        if closure["cell"] == "b1 d2 t1 s2 pipeline-inner":
            closure.update(bound="counting", value=453)


def change_bound(data: Data) -> None:
    next(c for c in closures(data, "bounded") if c["bound"] == "work")["value"] += 1


def lower_bound(data: Data) -> None:
    next(c for c in closures(data, "bounded") if c["bound"] == "work")["value"] -= 1


def lower_limit(data: Data) -> None:
    next(c for c in closures(data, "bounded") if c["bound"] == "counting")["value"] -= 1


def other_bound(data: Data) -> None:
    closure = next(c for c in closures(data, "bounded") if c["bound"] == "counting")
    closure.update(bound="work", value=454)


def no_bound(data: Data) -> None:
    del closures(data, "bounded")[0]["bound"]


def counts(data: Data) -> None:
    data["cells"]["bounded"] += 1
    data["cells"]["refuted"] -= 1


def answer_status(data: Data) -> None:
    closures(data, "refuted")[0]["answers"][0]["status"] = "limit"


def answer_is_plan(data: Data) -> None:
    extra = copy.deepcopy(closures(data, "refuted")[0]["answers"][0])
    extra.update(status="optimal", formulation="assignment")
    closures(data, "refuted")[0]["answers"].append(extra)


def answer_missing(data: Data) -> None:
    closures(data, "refuted")[0]["answers"].pop()


def answer_repeated(data: Data) -> None:
    answers = closures(data, "refuted")[0]["answers"]
    answers[1] = answers[0]


def answer_limit(data: Data) -> None:
    for answer in closures(data, "refuted")[0]["answers"]:
        answer["limit"] -= 1


def answer_options(data: Data) -> None:
    closures(data, "refuted")[0]["answers"][0]["options"]["mip_rel_gap"] = 1e-4


def answer_version(data: Data) -> None:
    closures(data, "refuted")[0]["answers"][1]["version"] = "1.14.0"


def refutation_limit(data: Data) -> None:
    closures(data, "refuted")[0]["value"] = 400


def solved_instead(data: Data) -> None:
    closures(data, "refuted")[0].update(method="solved", value=454)
    data["cells"]["refuted"] -= 1
    data["cells"]["solved"] += 1


def verdict(data: Data) -> None:
    data["verdict"] = "open"


def reasons(data: Data) -> None:
    data["reasons"] = ["something"]


def no_completeness(data: Data) -> None:
    data["completeness"] = []


def completeness_status(data: Data) -> None:
    data["completeness"][0]["status"] = "infeasible"


def enumeration(data: Data) -> None:
    data["enumeration"] = {"plans": 456, "agreed": None, "reason": "too many plans: 456"}


def enumeration_disagrees(data: Data) -> None:
    data["enumeration"]["agreed"] = False


def gap(data: Data) -> None:
    data["gap"] = 0.1


def proven(data: Data) -> None:
    data["proven_bound_ticks"] = 400


def open_cell(data: Data) -> None:
    closures(data, "refuted")[0].update(method="open", value=410, reason="limit", answers=[])
    data["cells"]["refuted"] -= 1
    data["cells"]["open"] += 1


def infeasible_instead(data: Data) -> None:
    data["status"] = "infeasible"
    for field in ("batch_ticks", "batch_seconds", "tau_ticks", "sigma_ticks", "plan", "gap"):
        data[field] = None
    data["proven_bound_ticks"], data["completeness"] = None, []


def promise(data: Data) -> None:
    data["relative_to"] = "optimal among everything"


TAMPERED: list[tuple[Callable[[Data], None], str]] = [
    (lower, "T is 454 ticks by the evaluator, not 453"),
    (lower_everywhere, "T is 454 ticks by the evaluator, not 453"),
    (raise_, "T is 454 ticks by the evaluator, not 455"),
    (remove_cell, "has no closure"),
    (remove_cell_and_count, "has no closure"),
    (duplicate_cell, "is closed several times"),
    (rename_cell, "is closed but no cell"),
    (digest, "digest is"),
    (both_digests, "digest is"),
    (plan_digest, "its digest differs"),
    (memory, "digest is"),
    (batch, "digest is"),
    (search, "digest is"),
    (units, "memory_quanta is"),
    (name, "name is"),
    (tau, "tau is 82"),
    (seconds, "batch_seconds"),
    (move_layer, "the plan: "),
    (share_device, "used 2 times"),
    (swap_replicas, "not on the devices"),
    (drop_stage, "in no stage"),
    (claim_load, "claims load_ticks"),
    (claim_no_load, "claims no load"),
    (claim_memory, "claims memory_bytes"),
    (claim_bound, "the work bound is"),
    (claim_counting, "counting leaves room"),
    (change_bound, "the work bound is"),
    (lower_bound, "the work bound is"),
    (lower_limit, "it speaks of T <= 452"),
    (other_bound, "the work bound is"),
    (no_bound, "no bound is named"),
    (counts, "the counts are"),
    (answer_status, "no decision is infeasible under two"),
    (answer_is_plan, "one of its answers is a plan"),
    (answer_missing, "no decision is infeasible under two"),
    (answer_repeated, "answered twice"),
    (answer_limit, "no decision is infeasible under two"),
    (answer_options, "option mip_rel_gap"),
    (answer_version, "HiGHS 1.14.0 answered"),
    (refutation_limit, "it speaks of T <= 400"),
    (solved_instead, "no minimum is optimal"),
    (verdict, "the certificate's verdict is open"),
    (reasons, "there are reasons against it"),
    (no_completeness, "was not asked"),
    (completeness_status, "did not admit the plan"),
    (enumeration, "does not say that all 456 plans"),
    (enumeration_disagrees, "does not say that all 456 plans"),
    (gap, "there is a gap"),
    (proven, "the proven bound is"),
    (open_cell, "cells are open"),
    (infeasible_instead, "a problem without a plan"),
    (promise, "relative to something else"),
]


@pytest.mark.parametrize(
    ("tamper", "reason"), TAMPERED, ids=[tamper.__name__ for tamper, _ in TAMPERED]
)
def test_tampered(data: Data, tamper: Callable[[Data], None], reason: str) -> None:
    tamper(data)
    assert reason in refusals(data)


def test_another_plan_of_the_same_price() -> None:
    """Enumeration knows the reference plan; the price alone does not give it away."""
    data = certify(load_problem("worked-example-1000")).to_dict()
    assert verify(data).ok
    data["plan"]["layout"] = "data-inner"
    assert "enumeration: the reference plan is another one" in refusals(data)


def test_an_infeasible_one_made_optimal(hopeless: Data, original: Data) -> None:
    data = copy.deepcopy(hopeless)
    for field in ("status", "batch_ticks", "batch_seconds", "tau_ticks", "sigma_ticks", "plan"):
        data[field] = original[field]
    assert "needs" in refusals(data)  # it does not fit


@pytest.mark.parametrize(
    "change", [{"format": "nest-opt/certificate/0"}, {"signature": "x"}, {"verdict": "sure"}]
)
def test_no_certificate(data: Data, change: Data) -> None:
    data.update(change)
    with pytest.raises(CertificateError):
        verify(data)


def test_an_open_one_is_a_faithful_record_that_certifies_nothing() -> None:
    data = certify(load_problem("worked-example-160"), time_limit=1e-6).to_dict()
    result = verify(data)
    assert not result.ok and len(result.refusals) == 1
    assert "nothing is certified" in result.refusals[0]
    cell = "b1 d2 t1 s2 pipeline-inner"
    next(c for c in data["closures"] if c["cell"] == cell)["value"] = 455
    assert "is not shown" in refusals(data)


def test_a_refuted_one_shows_the_better_plan(data: Data) -> None:
    data["better_plan"] = {"batch_ticks": 453, "found_by": "me", "plan": data["plan"]}
    data["verdict"] = "refuted"
    assert "the better plan is none" in refusals(data)


def test_an_engine_that_says_otherwise_now(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = highs.EngineAnswer(status="limit", detail="", seconds=0.0, version="1.16.0")
    monkeypatch.setattr(questions.highs, "solve", lambda *_, **__: limited)
    result = verify(data, resolve=True, jobs=2)
    assert not result.ok and len(result.refusals) == 7
    assert any("not infeasible again" in refusal for refusal in result.refusals)
    assert any("not admitted again" in refusal for refusal in result.refusals)


# --- what is made up from nothing -----------------------------------------------------------------


def test_a_made_up_infeasibility_is_contradicted(unbounded: Data, data: Data) -> None:
    """Every cell "refuted", by answers copied from elsewhere: the solver finds a plan."""
    answers = copy.deepcopy(closures(unbounded, "refuted")[0]["answers"])
    for answer in answers:
        answer["limit"] = None
    data["status"] = "infeasible"
    for field in ("batch_ticks", "batch_seconds", "tau_ticks", "sigma_ticks", "plan"):
        data[field] = None
    data["gap"] = data["proven_bound_ticks"] = None
    data["completeness"] = []
    data["closures"] = [
        {"cell": c["cell"], "method": "refuted", "value": None, "answers": answers}
        for c in data["closures"]
    ]
    total = len(data["closures"])
    data["cells"] = {"total": total, "bounded": 0, "refuted": total, "solved": 0, "open": 0}
    data["enumeration"] = {"plans": 456, "agreed": True, "reason": None}
    assert not verify(data).ok


def test_the_solver_contradicts_recorded_refutations(monkeypatch: Any, data: Data) -> None:
    from nest_opt.solve import solve

    found = solve(load_problem("worked-example-160"))
    lower = dataclasses.replace(found, batch_ticks=453)
    monkeypatch.setattr(sys.modules["nest_opt.solve"], "solve", lambda *a, **k: lower)
    assert "the solver finds 453 ticks" in refusals(data)


def test_a_false_minimum_is_found_out(data: Data) -> None:
    """A refuted cell, said to be solved at a price that is not its minimum."""
    closure = closures(data, "refuted")[0]
    for answer in closure["answers"]:
        answer.update(
            question="minimum", limit=None, status="optimal", priced_ticks=500, detail="optimal"
        )
    closure.update(method="solved", value=500)
    data["cells"]["refuted"] -= 1
    data["cells"]["solved"] += 1
    result = verify(data, resolve=True, jobs=2)
    assert not result.ok
    assert "not solved again" in "\n".join(result.refusals)
