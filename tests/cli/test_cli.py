"""Every command: what it prints for people and for machines, and its exit status."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nest_opt import cli
from nest_opt.cli import main
from nest_opt.library import load_problem

Capture = pytest.CaptureFixture[str]


def table(argv: list[str], capsys: Capture, status: int = 0) -> str:
    """What a command prints for people; at most 80 columns of it."""
    assert main(argv) == status, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.endswith("\n")
    assert max(map(len, out.splitlines())) <= 80, out
    return out


def machine(argv: list[str], capsys: Capture, status: int = 0) -> Any:
    assert main([*argv, "--json"]) == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def plan_file(tmp_path: Path, capsys: Capture) -> Path:
    path = tmp_path / "plan.json"
    assert main(["solve", "worked-example-160", "--out", str(path), "--quiet"]) == 0
    capsys.readouterr()
    return path


# --- list, schema, compile ------------------------------------------------------------------------


def test_list(capsys: Capture) -> None:
    text = table(["list"], capsys)
    for word in ("models", "llama2-7b", "h100-64", "worked-example-160", "suites"):
        assert word in text
    assert "llama2-7b" not in table(["list", "clusters"], capsys)
    found = machine(["list"], capsys)
    assert set(found) == {
        "models", "devices", "clusters", "problems", "plans", "suites", "constraints",
    }  # fmt: skip
    assert "gpt3-175b" in found["models"]
    assert set(machine(["list", "problems"], capsys)) == {"problems"}


def test_schema_accepts_what_is_shipped(capsys: Capture) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = machine(["schema"], capsys)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in ("worked-example-160", "llama2-7b@h100-64"):
        validator.validate(load_problem(name).to_dict())
    names = {"name": "x", "model": "llama2-7b", "cluster": "h100-64"}
    validator.validate(names | {"training": {"global_batch": 8}})
    data = load_problem("worked-example-160").to_dict()
    data["cluster"]["device"] = "h100-80gb"
    validator.validate(data)
    data["cluster"]["device"] = 3
    assert not validator.is_valid(data)
    assert not validator.is_valid(names)


def test_schema_of_plans(capsys: Capture, plan_file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = machine(["schema", "--plan"], capsys)
    jsonschema.validate(json.loads(plan_file.read_text()), schema)


def test_compile(capsys: Capture, tmp_path: Path) -> None:
    text = table(["compile", "worked-example-160"], capsys)
    for words in ("tick", "0.001 s", "1,048,576 bytes", "rounding adds at most", "sha256:"):
        assert words in text
    data = machine(["compile", "worked-example-160"], capsys)
    assert data["format"] == "nest-opt/compiled/1"
    assert data["memory_quanta"] == 160
    path = tmp_path / "c.json"
    assert main(["compile", "worked-example-160", "--out", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "wrote" in err
    assert json.loads(path.read_text()) == data


# --- solve ----------------------------------------------------------------------------------------

SOLVE_FIELDS = {
    "problem", "digest", "status", "batch_ticks", "tick_seconds", "batch_seconds",
    "sequences_per_second", "tau_ticks", "sigma_ticks", "plan", "cells", "wall_seconds", "encoding",
}  # fmt: skip
PLAN_FIELDS = {
    "digest", "microbatch", "replicas", "microbatches", "layout", "template", "stages"
}  # fmt: skip
STAGE_FIELDS = {"layers", "recomputation", "zero", "load_ticks", "memory_bytes", "devices"}


@pytest.mark.parametrize(
    ("memory", "batch", "tau", "sigma"),
    [(1000, 352, 144, 64), (160, 454, 82, 44), (110, 584, 108, 44)],
)
def test_solve_json(memory: int, batch: int, tau: int, sigma: int, capsys: Capture) -> None:
    data = machine(["solve", f"worked-example-{memory}"], capsys)
    assert set(data) == SOLVE_FIELDS
    assert (data["status"], data["batch_ticks"]) == ("optimal", batch)
    assert (data["tau_ticks"], data["sigma_ticks"]) == (tau, sigma)
    assert data["tick_seconds"] == 0.001
    assert data["batch_seconds"] == pytest.approx(batch / 1000)
    assert data["sequences_per_second"] == pytest.approx(8000 / batch)
    assert set(data["cells"]) == {"total", "excluded", "bounded", "solved"}
    assert set(data["plan"]) == PLAN_FIELDS
    assert all(set(stage) == STAGE_FIELDS for stage in data["plan"]["stages"])


def test_solve_for_people(capsys: Capture) -> None:
    text = table(["solve", "worked-example-160"], capsys)
    for words in (
        "worked-example-160: optimal",
        "454 ticks = 454.000 ms",
        "17.62 sequences/s",
        "82 ticks",
        "44 ticks",
        "pipeline-inner",
        "layer.0..layer.1",
        "4 used of 4",
        "( 95%)",
        "Optimal among contiguous stages on consecutive devices",
    ):
        assert words in text


def test_solve_a_real_model(capsys: Capture) -> None:
    text = table(["solve", "llama2-7b@h100-64"], capsys)
    assert "tokens/s" in text
    assert "embedding" in text
    assert "64 used of 64" in text


def test_solve_infeasible_says_why(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    small = ["--set", "cluster.device.memory_bytes=2000000"]
    text = table(["solve", "worked-example-160", *small, "--out", str(path)], capsys, 1)
    assert "infeasible" in text
    assert "1 demand excludes every plan" in text and "lacks" in text
    assert not path.exists()
    data = machine(["solve", "worked-example-160", *small], capsys, 1)
    assert set(data) == SOLVE_FIELDS
    assert (data["status"], data["batch_ticks"], data["plan"]) == ("infeasible", None, None)
    text = table(["solve", "worked-example-160", "--data-parallel", "5"], capsys, 1)
    assert "search.data_parallel: only 5" in text


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        (["--microbatch", "1,2,4"], "search.microbatch", [1, 2, 4]),
        (["--tensor", "1,2"], "search.tensor", [1, 2]),
        (["--context", "2"], "search.context", [2]),
        (["--expert", "4"], "search.expert", [4]),
        (["--data-parallel", "any"], "search.data_parallel", "any"),
        (["--data-parallel", "even"], "search.data_parallel", "even"),
        (["--data-parallel", "1,2"], "search.data_parallel", [1, 2]),
        (["--stages", "any"], "search.stages", "any"),
        (["--stages", "2"], "search.stages", [2]),
        (["--recomputation", "none,stage"], "search.recomputation", ["none", "stage"]),
        (["--zero", "0,3"], "search.zero", [0, 3]),
        (["--layout", "data-inner"], "search.layouts", ["data-inner"]),
        (["--sequence-parallel", "on"], "search.sequence_parallel", [True]),
        (["--sequence-parallel", "off"], "search.sequence_parallel", [False]),
        (["--sequence-parallel", "both"], "search.sequence_parallel", [False, True]),
        (["--global-batch", "16"], "training.global_batch", 16),
        (["--optimizer", "sgd4"], "training.optimizer", "sgd4"),
        (
            ["--optimizer", "2,4,8.5"],
            "training.optimizer",
            {"weights": 2.0, "gradients": 4.0, "optimizer": 8.5},
        ),
        (["--all-reduce", "ring"], "training.all_reduce", "ring"),
        (["--reserve-fraction", "0.1"], "training.reserve_fraction", 0.1),
        (["--sequence-length", "1024"], "model.sequence_length", 1024),
        (
            ["--synchronisation", "first_stage"],
            "training.cost_model.synchronisation",
            "first_stage",
        ),
        (["--set", "search.zero=[2]"], "search.zero", [2]),
        (["--set", "training.optimizer=sgd4"], "training.optimizer", "sgd4"),
        (["--set", 'name="a b"'], "name", "a b"),
        (["--zero", "1", "--set", "search.zero=[2]"], "search.zero", [2]),
    ],
)
def test_overrides(options: list[str], path: str, value: Any) -> None:
    arguments = cli._parser().parse_args(["solve", "llama2-7b@h100-64", *options])
    found: Any = cli._problem(arguments).to_dict()
    for step in path.split("."):
        found = found[step]
    assert found == value


def test_no_bounds(capsys: Capture) -> None:
    data = machine(["solve", "worked-example-160", "--no-bounds"], capsys)
    assert data["batch_ticks"] == 454
    assert data["cells"]["bounded"] == 0


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate(capsys: Capture, plan_file: Path) -> None:
    text = table(["evaluate", "worked-example-160", str(plan_file)], capsys)
    assert "the plan is feasible" in text
    assert "454 ticks" in text
    assert "stale" not in text
    data = machine(["evaluate", "worked-example-160", str(plan_file)], capsys)
    assert data["problem"] == "worked-example-160"
    assert (data["feasible"], data["stale"], data["batch_ticks"]) == (True, False, 454)
    assert [stage["load_ticks"] for stage in data["stages"]] == [70, 82]


def test_evaluate_the_output_of_solve(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    path.write_text(json.dumps(machine(["solve", "worked-example-110"], capsys)))
    assert machine(["evaluate", "worked-example-110", str(path)], capsys)["batch_ticks"] == 584


def test_evaluate_too_little_memory(capsys: Capture, plan_file: Path) -> None:
    text = table(["evaluate", "worked-example-110", str(plan_file)], capsys, 1)
    assert "the plan is infeasible" in text
    assert "memory: stage 0" in text
    assert "stale" in text
    data = machine(["evaluate", "worked-example-110", str(plan_file)], capsys, 1)
    assert (data["feasible"], data["stale"], data["batch_ticks"]) == (False, True, 454)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda p: p["stages"].pop(), "layers"),
        (lambda p: p["stages"][0].update(layers=[0, 1]), "layers"),
        (lambda p: p["stages"][0].update(devices=[[0], [3]]), "devices"),
        (lambda p: p["stages"][0].update(devices=[[1], [9]]), "devices"),
        (lambda p: p.update(microbatches=5), "microbatches"),
    ],
)
def test_evaluate_refuses(edit: Any, reason: str, capsys: Capture, plan_file: Path) -> None:
    data = json.loads(plan_file.read_text())
    edit(data)
    plan_file.write_text(json.dumps(data))
    text = table(["evaluate", "worked-example-160", str(plan_file)], capsys, 1)
    assert "the plan is refused" in text
    assert reason in text
    found = machine(["evaluate", "worked-example-160", str(plan_file)], capsys, 1)
    assert found["batch_ticks"] is None
    assert reason in {v["constraint"] for v in found["violations"]}


def test_evaluate_notes_a_false_claim(capsys: Capture, plan_file: Path) -> None:
    data = json.loads(plan_file.read_text())
    data["stages"][0]["load_ticks"] = 7
    plan_file.write_text(json.dumps(data))
    text = table(["evaluate", "worked-example-160", str(plan_file)], capsys)
    assert "load_ticks is 70, not 7" in text


# --- certify, verify ------------------------------------------------------------------------------


def test_certify_and_verify(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "cert.json"
    text = table(["certify", "worked-example-160", "--out", str(path), "--jobs", "1"], capsys)
    assert "worked-example-160: certified" in text
    assert "454 ticks" in text
    assert "Certified optimal among contiguous stages" in text
    assert "verified" in table(["verify", str(path)], capsys)
    data = json.loads(path.read_text())
    assert (data["verdict"], data["batch_ticks"]) == ("certified", 454)
    assert {"total", "bounded", "refuted", "solved", "open"} <= set(data["cells"])
    assert data["cells"]["open"] == 0

    data["batch_ticks"] -= 1
    path.write_text(json.dumps(data))
    assert "refused" in table(["verify", str(path)], capsys, 1)
    found = machine(["verify", str(path)], capsys, 1)
    assert found["ok"] is False
    assert found["refusals"]


def test_certify_json(capsys: Capture) -> None:
    data = machine(["certify", "worked-example-1000"], capsys)
    assert (data["verdict"], data["batch_ticks"]) == ("certified", 352)


def test_certify_with_another_engine(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("ortools")
    path = tmp_path / "certificate.json"
    text = table(
        ["certify", "worked-example-1000", "--engine", "highs,cp-sat", "--out", str(path)], capsys
    )
    assert "cp-sat: asked" in text
    assert json.loads(path.read_text())["options"]["engines"] == ["cp-sat"]
    text = table(["verify", str(path), "--resolve", "--engine", "cp-sat"], capsys)
    assert "answered, none contradicts" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["certify", "worked-example-1000", "--engine", "cpsat"], "did you mean 'cp-sat'"),
        (["certify", "--suite", "small", "--engine", "z3"], "no engine 'z3'; known: highs"),
        (["verify", "{}", "--engine", "cp-sat"], "--engine goes with --resolve"),
    ],
)
def test_engines_that_cannot_be_asked(
    argv: list[str], message: str, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "certificate.json"
    path.write_text("{}")
    assert main([str(path) if word == "{}" else word for word in argv]) == 2
    assert message in capsys.readouterr().err


def test_certify_infeasible(capsys: Capture) -> None:
    small = ["--set", "cluster.device.memory_bytes=2000000"]
    data = machine(["certify", "worked-example-160", *small], capsys)
    assert (data["verdict"], data["batch_ticks"]) == ("certified", None)
    assert "Infeasible" in table(["certify", "worked-example-160", *small], capsys)


# --- behaviour ------------------------------------------------------------------------------------


def test_help(capsys: Capture) -> None:
    for argv in (["--help"], ["solve", "--help"], ["certify", "--help"], ["schema", "--help"]):
        assert "usage: nest-opt" in table(argv, capsys)


def test_version(capsys: Capture) -> None:
    assert table(["--version"], capsys).startswith("nest-opt ")


def test_interrupted(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_list", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "nest-opt: interrupted\n"


def test_a_bug_is_told_from_a_negative_answer(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_list", fail)
    assert main(["list"]) == 3
    assert "this is a bug" in capsys.readouterr().err


def test_a_reader_that_leaves() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nest_opt", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 141


@pytest.mark.skipif(not hasattr(signal, "SIGINT"), reason="no such signal")
def test_interrupted_in_a_process_of_its_own() -> None:
    code = (
        "import signal, time, sys\nfrom nest_opt import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may ignore it
        "def wait(arguments):\n    print('ready', flush=True); time.sleep(60)\n"
        "cli._list = wait\nsys.exit(cli.main(['list']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "nest-opt: interrupted\n"


class Stream(io.StringIO):
    """Standard error that may or may not be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def progress_text(terminal: bool, quiet: bool, seconds: float, monkeypatch: Any) -> str:
    """What is said by a task that reports every tenth of a second for so long."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = Stream(terminal)
    with contextlib.redirect_stderr(stream), cli._Progress(quiet) as progress:
        for step in range(int(seconds * 10)):
            clock[0] = step / 10
            progress(step, 1000, "solving")
    return stream.getvalue()


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress_text(True, False, 1.9, monkeypatch) == ""
    assert progress_text(False, False, 1.9, monkeypatch) == ""
    assert progress_text(True, True, 60, monkeypatch) == ""
    lines = progress_text(False, False, 31, monkeypatch).splitlines()
    assert lines[0] == "solving: 20 of 1,000, 2 s"
    assert len(lines) == 3
    text = progress_text(True, False, 5, monkeypatch)
    assert "\n" not in text
    assert text.count("\r") > 10
    assert text.endswith("\r\x1b[K")


def test_devices_as_ranges() -> None:
    assert cli._ranges([0, 1, 2, 3], 20) == "0-3"
    assert cli._ranges([7], 20) == "7"
    assert cli._ranges([0, 4, 8, 9, 3], 20) == "0,4,8-9,3"
    assert cli._ranges([], 20) == ""
    assert cli._ranges(list(range(0, 100, 2)), 10) == "0,2,4,6..."


def test_durations_have_units() -> None:
    assert cli._duration(12.5) == "12.500 s"
    assert cli._duration(0.25) == "250.000 ms"
    assert cli._duration(2e-5) == "20.000 us"
    assert cli._duration(0) == "0 s"


def test_out_through_a_device(capsys: Capture) -> None:
    if not os.path.exists("/dev/null"):
        pytest.skip("no /dev/null")
    assert main(["solve", "worked-example-160", "--out", "/dev/null", "--quiet"]) == 0
    assert os.path.exists("/dev/null")
