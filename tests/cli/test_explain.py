"""The command ``explain``: what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
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


def test_the_bottleneck_and_what_it_is_made_of(capsys: Capture) -> None:
    # Stage 1 computes 78 of its 82 ms; stage 0 synchronises 44 ms, and 5 * 82 + 44 = 454.
    text = printed(["explain", "worked-example-160"], capsys)
    assert "\n1*  2..3    78.000" in text and "\n 0  0..1    66.000" in text
    said = " ".join(text.split())
    assert "its load: compute 95%, transfer forward 5%" in said
    assert "stage 0 is the slowest, 44.000 ms per batch, 9.7% of it: dense 100%" in said
    assert "synchronisation, ms per batch\n" not in text


def test_synchronisation_by_component_where_there_are_several(capsys: Capture) -> None:
    few = ["--tensor", "2", "--expert", "2", "--microbatch", "1", "--layout", "data-inner"]
    text = printed(["explain", "mixtral-8x7b@h100-64", *few, "-q"], capsys)
    header, _, first, *_ = text.partition("synchronisation, ms per batch\n")[2].splitlines()
    columns = ["#", "dense weights", "expert weights", "tied weight", "total"]
    assert re.split("  +", header) == columns
    _, dense, expert, tied, total = map(float, first.split())
    assert dense > 0 and expert > 0 and tied == 0
    assert total == pytest.approx(dense + expert + tied, abs=2e-3)


def test_where_the_first_stage_alone_counts(capsys: Capture) -> None:
    first = ["--synchronisation", "first_stage"]
    text = printed(["explain", "worked-example-160", *first], capsys)
    assert "stage 0 alone counts, 44.000 ms" in text


def test_the_reserve_in_bytes_and_per_cent(capsys: Capture) -> None:
    text = printed(["explain", "worked-example-160", "--reserve-fraction", "0.05"], capsys)
    assert "reserve: 8.00 MiB of each device (5%)" in text
    assert "cover them: 8 MiB now" in " ".join(text.split())


def test_as_json_where_layer_times_come_from(capsys: Capture) -> None:
    few = ["--tensor", "1", "--microbatch", "1"]
    assert main(["explain", "bert-large@h100-64", *few, "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["times"]
    assert [time["layers"] for time in times] == ["embedding", "block", "head"]
    assert {time["source"] for time in times} == {"modelled"}
    assert main(["explain", "worked-example-160", "--json"]) == 0
    assert "times" not in json.loads(capsys.readouterr().out)


def test_a_large_problem_fits_the_screen(capsys: Capture) -> None:
    text = printed(["explain", "gpt3-175b@h100-1024", "--zero", "3", "-q"], capsys)
    assert "gathered" in text and "4,096 MiB now" in text and "modelled" in text


def test_many_stages_are_told_in_few_words(capsys: Capture) -> None:
    # With one replica, only the embedding is synchronised, between the first and the last stage.
    few = ["--tensor", "8", "--microbatch", "1", "--data-parallel", "1", "--stages", "24", "-q"]
    text = printed(["explain", "gpt3-175b@h100-256", *few], capsys)
    _, _, table = text.partition("synchronisation, ms per batch\n")
    stages = [line.split()[0] for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert stages == ["0", "23"]
    said = " ".join(text.split())
    assert "activations of 24 (first stage) down to 1 (last) microbatches" in said


def test_a_plan_that_does_not_fit(tmp_path: Path, capsys: Capture) -> None:
    plan = plan_file(tmp_path, "worked-example-160", capsys)
    text = printed(["explain", "worked-example-110", plan], capsys, status=1)
    assert "stage 0 lacks 42.0 MiB" in text and "the plan fits" in text
    assert "needs devices of 152 MiB" in " ".join(text.split())
    assert "The plan is stale" in text
    assert main(["explain", "worked-example-110", plan, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["batch_ticks_with_all_remedies"] == 584
    assert [remedy["recomputation"] for remedy in data["remedies"]] == ["layer", "layer"]


def test_many_stages_that_do_not_fit(capsys: Capture) -> None:
    # What helps altogether is said however many stages there are.
    name, small = "nest/tpuv4-bert-large-64", ["--set", "cluster.device.memory_bytes=400000000"]
    text = printed(["explain", name, f"{name}/manual", *small], capsys, status=1)
    assert "  - ... and 2 more (--json lists them all)" in text
    assert "as it is, the plan needs devices of 4," in text


def test_devices_far_too_small_fit_the_screen(capsys: Capture) -> None:
    name, tiny = "nest/tpuv4-gpt3-175b-128", ["--set", "cluster.device.memory_bytes=1048576"]
    text = printed(["explain", name, f"{name}/manual", *tiny], capsys, status=1)
    assert ">10x" in text and "<-10x" in text


def test_less_than_a_mebibyte_is_said_in_bytes(tmp_path: Path, capsys: Capture) -> None:
    plan = plan_file(tmp_path, "worked-example-160", capsys)
    small = ["--set", f"cluster.device.memory_bytes={152 * 2**20 - 1000}"]
    fine = ["--set", "units.quantum_bytes=1"]
    text = printed(["explain", "worked-example-160", plan, *small, *fine], capsys, status=1)
    assert "stage 0 lacks 1,000 bytes" in text


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
