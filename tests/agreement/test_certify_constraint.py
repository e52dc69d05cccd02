"""``certify-constraint``: what is right is certified, planted errors are found and shrunk."""

import json
from pathlib import Path

import pytest

import nest_opt.constraints as register
from nest_opt.certify import extension
from nest_opt.certify.extension import certify_constraint, complaints, write_finding
from nest_opt.cli import main
from nest_opt.constraints import built_in, load_class
from nest_opt.files import read_json

PLANTED = Path(__file__).with_name("planted.py")

#: Class, and what kind of disagreement gives it away.
WRONG = {
    "NotTheLastStage": "the DP",
    "NotASingleStage": "the DP",
    "OneOffAtThree": "the DP",
    "NotWithFewMicrobatches": "the DP",
    "NotInOneLayout": "programs",
    "WholeCellsThatAreNone": "whole cell",
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "_registered", {})


@pytest.mark.parametrize(
    "name",
    [
        name if name == "NotASingleStage"
        else pytest.param(name, marks=pytest.mark.heavy)
        for name in WRONG
    ],
)  # fmt: skip
def test_a_planted_error_is_found_and_shrunk(name, tmp_path, monkeypatch):
    monkeypatch.setattr(extension, "_SHRINK_SECONDS", 5.0)
    spec = f"{PLANTED}:{name}"
    report = certify_constraint(load_class(spec), problems=60, seconds=300, jobs=2)
    assert report.verdict == "refuted"
    assert report.reasons[0].startswith(WRONG[name])
    assert report.finding is not None
    small = report.finding["problem"]
    assert len(small["model"]["layers"]) <= 4

    written = write_finding(report, spec, tmp_path)
    assert written is not None
    problem, test = written
    assert list(complaints(read_json(problem))), "the shrunk problem still shows it"
    compile(test.read_text(), str(test), "exec")


def test_nothing_is_certified_when_time_runs_out():
    report = certify_constraint(built_in()["layers_per_stage"], seconds=0.001)
    assert report.verdict == "open" and any("time ran out" in r for r in report.reasons)


def test_a_face_that_raises_is_a_fault(tmp_path):
    path = tmp_path / "raises.py"
    path.write_text(
        PLANTED.read_text().replace("return stages.layers <= self.at_most\n", "return 1 // 0\n")
    )
    report = certify_constraint(load_class(f"{path}:LayersAtMost"), problems=4)
    assert report.verdict == "fault" and "ZeroDivisionError" in report.reasons[0]


@pytest.mark.heavy
@pytest.mark.parametrize("name", built_in())
def test_every_built_in_constraint_is_certified(name):
    report = certify_constraint(built_in()[name], problems=60, seconds=600, jobs=2)
    assert report.verdict == "certified", report.reasons


@pytest.mark.heavy
def test_the_command(tmp_path, capsys):
    out = tmp_path / "certificate.json"
    spec = f"{PLANTED}:LayersAtMost"
    status = main(
        ["certify-constraint", spec, "--seconds", "300", "--jobs", "2", "--out", str(out)]
    )
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "planted_right: certified" in printed
    data = json.loads(out.read_text())
    assert data["binding"] >= extension.BINDING and "survived" not in data["mutants"].values()
    assert data["source"]["planted_right"].startswith("sha256:")


@pytest.mark.parametrize("spec", ["layers_per_stag", "missing.py:Class", "x"])
def test_what_is_no_constraint_is_refused(spec, capsys):
    assert main(["certify-constraint", spec]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.heavy
def test_the_example_of_the_guide_is_certified():
    path = Path(__file__).with_name("recompute_early.py")
    assert len(path.read_text().splitlines()) < 80
    report = certify_constraint(load_class(f"{path}:RecomputeEarly"), seconds=300, jobs=2)
    assert report.verdict == "certified", report.reasons
