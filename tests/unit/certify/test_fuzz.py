"""Fuzzing: what it draws, that it finds what is broken, and that it shrinks it."""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nest_opt import InputError, compile_problem, load_problem, solve
from nest_opt.cells import list_cells
from nest_opt.certify import fuzz as fuzzing
from nest_opt.certify.draw import AIMS, CORNER_NAMES, draw
from nest_opt.certify.fuzz import fuzz, write_finding
from nest_opt.certify.shrink import shrink, simpler
from nest_opt.cli import main
from nest_opt.dp import frontier


def test_a_problem_depends_on_seed_and_number_alone() -> None:
    assert draw(3, 8).data == draw(3, 8).data
    assert draw(3, 8).data != draw(4, 8).data


def test_neither_the_dp_nor_a_solver_has_a_part_in_drawing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [draw(3, number).data for number in range(6)]

    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(sys.modules["nest_opt.solve"], "best_corners", broken)
    monkeypatch.setattr(sys.modules["nest_opt.certify.highs"], "solve", broken)
    assert [draw(3, number).data for number in range(6)] == drawn


def test_corners_are_drawn_and_counted() -> None:
    drawn = [draw(5, number) for number in range(len(AIMS))]
    visited = Counter(name for one in drawn for name in one.corners)
    assert set(visited) <= set(CORNER_NAMES)
    rare = {"single layers", "classes of equal cost", "huge against tiny numbers"}
    assert set(visited) >= set(CORNER_NAMES) - rare
    for one in drawn:
        data, compiled = one.data, one.compiled
        assert ("batch of one" in one.corners) == (data["training"]["global_batch"] == 1)
        assert ("single layers" in one.corners) == (compiled.layer_count == 1)
        assert ("other networks" in one.corners) == ("network" in data["cluster"])
        if "exact fits" in one.corners:
            best = solve(compiled).plan
            assert best is not None
            most = max(stage.memory_bytes or 0 for stage in best.stages)
            assert most == compiled.memory_quanta * compiled.quantum_bytes
        if "no feasible plan" in one.corners:
            assert solve(compiled).plan is None and list(list_cells(compiled))
        if "empty search spaces" in one.corners:
            assert not list(list_cells(compiled))
        if "a quantum over" in one.corners:
            more = replace(compiled, memory_quanta=compiled.memory_quanta + 1)
            least, now = solve(more).batch_ticks, solve(compiled).batch_ticks
            assert least is not None and (now is None or least < now)


def test_engines_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    report = fuzz(seconds=4, seed=11, jobs=2)
    assert report.ok, report.to_dict()
    assert report.problems > 5 and report.with_programs > 0 and report.with_witness > 0
    assert report.models >= 2 * report.with_programs and report.plans > 0
    assert report.corners["ties"] > 0
    json.dumps(report.to_dict())
    # A worker process must not have solved anything in this one.
    assert main(["fuzz", "--seconds", "1", "--jobs", "1", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


def test_a_broken_program_is_found_shrunk_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    true_corners = frontier.best_corners

    def forgetful(pipelines: Any, stages: int, slots: int, at_most: int) -> Any:
        # Pays one slot too few wherever there are several stages.
        return true_corners(pipelines, stages, slots - (stages > 1), at_most)

    monkeypatch.setattr(sys.modules["nest_opt.solve"], "best_corners", forgetful)
    monkeypatch.setattr(fuzzing, "SHRINK_SECONDS", 8.0)
    report = fuzz(seconds=6, seed=2, jobs=1)
    assert not report.ok
    finding = report.findings[0]
    assert "the DP" in finding.complaint
    before, after = (len(json.dumps(p)) for p in (finding.problem, finding.shrunk))
    assert after < before
    problem, test = write_finding(finding, tmp_path)
    assert compile_problem(load_problem(str(problem)))
    check = runpy.run_path(str(test))["test_the_engines_agree"]
    with pytest.raises(AssertionError):
        check()
    monkeypatch.undo()
    check()  # mended, the test passes


def test_an_engine_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzzing, "solve", broken)
    assert fuzzing.compare(draw(1, 1)).complaint == "raises ZeroDivisionError: "


def test_where_a_process_of_many_models_dies_each_gets_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_answer = fuzzing.answer

    def dies_together(*arguments: Any, again: bool = False) -> Any:
        if again:
            os.kill(os.getpid(), signal.SIGKILL)
        return true_answer(*arguments)

    monkeypatch.setattr(fuzzing, "answer", dies_together)
    assert fuzzing.programs_complaints(draw(1, 0).data) == []


def test_a_wrong_answer_of_a_program_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    true_answer = fuzzing.answer
    monkeypatch.setattr(
        fuzzing,
        "answer",
        lambda *arguments, again=False: (
            true_answer(*arguments, again=again) | {"status": "infeasible"}
        ),
    )
    drawn = next(one for one in map(lambda n: draw(1, n), range(9)) if solve(one.compiled).plan)
    complaints = fuzzing.programs_complaints(drawn.data)
    kinds = {fuzzing.kind_of(text) for text in complaints}
    assert "programs, runs minimum" in kinds
    assert "programs, assignment with the reference plan fixed" in kinds


def test_some_problems_are_put_to_the_integer_programs_and_others_are_not() -> None:
    asked = [fuzzing._asks_programs(draw(1, number)) for number in range(20)]
    assert any(asked) and not all(asked)


def test_shrinking_ends_at_the_smallest_that_still_fails() -> None:
    data = load_problem("worked-example-160").to_dict()
    data = json.loads(json.dumps(data))

    def still(candidate: dict[str, Any]) -> str | None:
        try:
            compiled = compile_problem(load_problem(candidate))
        except InputError:
            return None
        return "two layers" if compiled.layer_count >= 2 else None

    shrunk, said = shrink(data, still, 20.0)
    assert said == "two layers"
    assert len(shrunk["model"]["layers"]) == 2
    assert shrunk["training"]["global_batch"] == 1
    assert all(still(candidate) is None for candidate in simpler(shrunk))


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--seconds", "0"]) == 2
    assert main(["fuzz", "--folder", "/no/such/folder"]) == 2
    assert "is no folder" in capsys.readouterr().err
