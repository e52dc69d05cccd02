"""A dispute is written down such that others can look into it with what is in the folder alone."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import highspy
import pytest

from nest_opt.certify import certify, cp_sat, verify
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.disputes import write_disputes
from nest_opt.certify.processes import run_all
from nest_opt.cli import main
from nest_opt.compile import compile_problem
from nest_opt.library import load_problem

pytest.importorskip("ortools")


def lie(compiled: Any, cell: Any, kind: str, limit: Any, **more: Any) -> EngineAnswer:
    """CP-SAT that calls the plan infeasible, in its own cell."""
    if kind == "fixed_plan":
        return EngineAnswer("infeasible", "INFEASIBLE", 0.0, version=cp_sat.version() or "")
    return honest(compiled, cell, kind, limit, **more)  # type: ignore[arg-type]


honest = cp_sat.solve


@pytest.fixture
def disputed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cp_sat, "solve", lie)
    two_cells = {"search.stages": [2], "search.data_parallel": [2]}
    problem = load_problem("worked-example-160", two_cells)
    certificate = certify(problem, jobs=2, cross_checks=0, engines=["cp-sat"])
    assert certificate.verdict == "disputed"
    return certificate


def test_everything_is_there(disputed: Any, tmp_path: Path) -> None:
    written = write_disputes(disputed, tmp_path / "deep" / "disputes")
    assert written is not None
    assert written.name.startswith("worked-example-160-")
    found = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert {"README.md", "problem.json", "certificate.json"} <= found
    for name in ("answers.json", "model.mps", "model.lp", "model.pbtxt"):
        assert any(path.endswith(f"fixed-plan/{name}") for path in found), name
    assert not [path for path in written.parent.iterdir() if path.name.startswith(".")]

    readme = (written / "README.md").read_text()
    assert "nest-opt certify problem.json --engine cp-sat" in readme
    assert "the plan of 454 ticks is infeasible" in readme
    assert f"OR-Tools CP-SAT {cp_sat.version()} | off | 1 | infeasible" in readme

    problem = load_problem(json.loads((written / "problem.json").read_text()))
    assert compile_problem(problem).digest == disputed.digest
    assert not verify(json.loads((written / "certificate.json").read_text())).ok
    answers = json.loads(next(written.glob("*-boundaries-fixed-plan/answers.json")).read_text())
    assert [a["engine"] for a in answers["answers"]] == ["cp-sat"]
    assert answers["limit"] == 454


def test_the_models_answer_the_questions(disputed: Any, tmp_path: Path) -> None:
    """HiGHS reads the file that was written and finds the plan; so does CP-SAT its own."""
    written = write_disputes(disputed, tmp_path)
    assert written is not None

    def task(path: Path) -> dict[str, str]:
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.readModel(str(path))
        highs.run()
        return {"status": highs.modelStatusToString(highs.getModelStatus())}

    # In processes of their own: HiGHS must never have run where others are forked.
    for name in ("model.mps", "model.lp"):
        path = next(written.glob(f"*-runs-fixed-plan/{name}"))
        (outcome,) = run_all([partial(task, path)], jobs=1, seconds=60)
        assert outcome.value == {"status": "Optimal"}, name
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    text = next(written.glob("*-boundaries-fixed-plan/model.pbtxt")).read_text()
    assert model.proto.parse_text_format(text)
    assert cp_model.CpSolver().solve(model) == cp_model.OPTIMAL


def test_a_folder_is_never_written_over(disputed: Any, tmp_path: Path) -> None:
    first, second = write_disputes(disputed, tmp_path), write_disputes(disputed, tmp_path)
    assert first is not None and second is not None
    assert second.name == f"{first.name}-2"


def test_nothing_is_left_of_a_folder_that_cannot_be_finished(
    disputed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nest_opt.certify import disputes

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disputes, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_disputes(disputed, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/x", "a/b c", "...", ""])
def test_names_stay_in_the_folder(disputed: Any, tmp_path: Path, name: str) -> None:
    written = write_disputes(disputed.model_copy(update={"name": name}), tmp_path)
    assert written is not None
    assert written.parent == tmp_path


def test_what_is_certified_has_no_dispute(tmp_path: Path) -> None:
    certificate = certify(load_problem("worked-example-1000"), jobs=2, cross_checks=0)
    assert write_disputes(certificate, tmp_path / "disputes") is None
    assert not (tmp_path / "disputes").exists()


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cp_sat, "solve", lie)
    out = tmp_path / "cert.json"
    argv = ["certify", "worked-example-160", "--engine", "cp-sat", "--quiet"]
    argv += ["--stages", "2", "--data-parallel", "2"]
    assert main([*argv, "--out", str(out)]) == 1
    (folder,) = (tmp_path / "disputes").iterdir()
    assert str(folder) in capsys.readouterr().err.replace("\n", "")
    assert main([*argv, "--disputes", str(tmp_path / "here")]) == 1
    assert len(list((tmp_path / "here").iterdir())) == 1
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main([*argv, "--disputes", str(blocked / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err
