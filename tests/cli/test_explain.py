"""The command ``explain``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nest_opt.cli import main

Capture = pytest.CaptureFixture[str]


def printed(arguments: list[str], capsys: Capture, status: int = 0) -> str:
    assert main(arguments) == status
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines()), text
    return text


def plan_file(folder: Path, problem: str, capsys: Capture) -> str:
    path = folder / "plan.json"
    assert main(["solve", problem, "--out", str(path), "--quiet"]) == 0
    capsys.readouterr()
    return str(path)


def test_without_a_plan_the_optimal_one(capsys: Capture) -> None:
    text = printed(["explain", "worked-example-160"], capsys)
    for said in ("454 ticks", "10.00   6%", "72.00  45%", "0*", "stage 1 is the bottleneck", "95%"):
        assert said in text
    assert "--reserve-fraction" in text and "fragmentation" in text
    assert "what would help" not in text


def test_a_large_problem_fits_the_screen(capsys: Capture) -> None:
    text = printed(["explain", "gpt3-175b@h100-1024", "--zero", "3", "-q"], capsys)
    assert "gathered" in text and "4,096 MiB now" in text and "modelled" in text


def test_a_plan_that_does_not_fit(tmp_path: Path, capsys: Capture) -> None:
    plan = plan_file(tmp_path, "worked-example-160", capsys)
    text = printed(["explain", "worked-example-110", plan], capsys, status=1)
    assert "stage 0 lacks 42.0 MiB" in text and "the plan fits" in text
    assert "needs devices of 152 MiB" in " ".join(text.split())
    assert main(["explain", "worked-example-110", plan, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["batch_ticks_with_all_remedies"] == 584
    assert [remedy["recomputation"] for remedy in data["remedies"]] == ["layer", "layer"]


def test_a_shipped_plan(capsys: Capture) -> None:
    name = "nest/tpuv4-llama2-7b-64"
    text = printed(["explain", name, f"{name}/manual"], capsys)
    assert "the plan is feasible" in text


def test_a_problem_without_a_plan(capsys: Capture) -> None:
    tiny = ["--set", "cluster.device.memory_bytes=1048576"]
    assert main(["explain", "worked-example-160", *tiny]) == 1
    capsys.readouterr()
    assert main(["explain", "worked-example-160", *tiny, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "infeasible"


def test_a_plan_of_another_problem_has_violations_and_no_price(
    tmp_path: Path, capsys: Capture
) -> None:
    plan = plan_file(tmp_path, "worked-example-160", capsys)
    text = printed(["explain", "llama2-7b@h100-64", plan], capsys, status=1)
    assert "refused" in text and "violations" in text


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"stages": []}', "\x00"])
def test_files_that_are_no_plans(text: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(["explain", "worked-example-160", str(path)]) == 2
    error = capsys.readouterr().err
    assert "bad.json" in error and "Traceback" not in error


def test_a_shipped_plan_misspelt(capsys: Capture) -> None:
    assert main(["evaluate", "worked-example-160", "nest/tpuv4-llama2-7b-64/manul"]) == 2
    assert "did you mean nest/tpuv4-llama2-7b-64/manual" in " ".join(
        capsys.readouterr().err.split()
    )
