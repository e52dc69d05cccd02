"""Fuzzing: what it draws, that it finds what is broken, and that it shrinks it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from nest_opt import InputError, compile_problem, load_problem
from nest_opt.certify import fuzz as fuzzing
from nest_opt.certify.fuzz import draw, exact_complaints, fuzz, shrink, simpler, write_finding
from nest_opt.cli import main
from nest_opt.dp import frontier


def test_a_problem_depends_on_seed_and_number_alone() -> None:
    assert draw(3, 8) == draw(3, 8)
    assert draw(3, 8) != draw(4, 8)


def test_corners_are_drawn() -> None:
    drawn = [draw(5, n) for n in range(120)]
    compiled = [compile_problem(load_problem(data)) for data in drawn]
    assert any(c.global_batch == 1 for c in compiled)
    assert any(c.layer_count == 1 for c in compiled)
    assert any(data["model"]["kind"] == "config" for data in drawn)
    assert any("network" in data["cluster"] for data in drawn)
    assert any(data["training"]["all_reduce"] == "tree" for data in drawn)
    assert any(exact_complaints(data) == [] for data in drawn[:3])


def test_engines_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    report = fuzz(seconds=4, seed=11, jobs=2)
    assert report.ok, report.to_dict()
    assert report.problems > 5 and report.with_programs > 0 and report.with_witness > 0
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
