"""Malformed input: one screen that names file and field, exit status 2, never a traceback."""

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from nest_opt.cli import main
from nest_opt.library import load_problem

EXAMPLE = load_problem("worked-example-160").to_dict()

Case = tuple[str, Callable[[dict[str, Any]], object], str]


def put(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


COSTS = ("model", "layers", 0, "costs", 0)

#: (name, what is done to a good file, what the message must contain)
PROBLEMS: list[Case] = [
    ("wrong type", put("model", to=[1]), "model: "),
    ("string for number", put(*COSTS, "forward_seconds", to="1"), "costs[0].forward_seconds: "),
    ("string for int", put("training", "global_batch", to="8"), "training.global_batch: "),
    ("bool for int", put("training", "global_batch", to=True), "training.global_batch: "),
    ("float for int", put("training", "global_batch", to=8.0), "training.global_batch: "),
    ("number for bool", put("search", "sequence_parallel", to=[1]), "sequence_parallel[0]: "),
    ("null", put("cluster", "levels", to=None), "cluster.levels: "),
    ("negative time", put(*COSTS, "backward_seconds", to=-1), "costs[0].backward_seconds: "),
    ("negative bytes", put("cluster", "device", "memory_bytes", to=-5), "device.memory_bytes: "),
    ("no bandwidth", put("cluster", "levels", 0, "bandwidth_bytes_per_second", to=0), "levels[0]"),
    ("huge integer", put("training", "global_batch", to=10**38), "training.global_batch: "),
    ("huge memory", put("cluster", "device", "memory_bytes", to=2**61), "device.memory_bytes: "),
    ("huge time", put(*COSTS, "forward_seconds", to=1e25), "costs[0].forward_seconds: "),
    ("overflow", put(*COSTS, "forward_seconds", to=1e24), "units.tick_seconds"),
    ("missing part", drop("training"), "training: is missing"),
    ("missing field", drop(*COSTS, "forward_seconds"), "costs[0].forward_seconds: is missing"),
    ("unknown field", put("search", "zeros", to=[1]), "search.zeros: unknown field"),
    ("unknown part", put("serach", to={}), "serach: unknown field"),
    ("unknown format", put("format", to="nest-opt/problem/9"), "format: "),
    ("cyclic layers", put("model", "layers", 0, "inputs", to=["layer.3"]), "form a cycle"),
    ("unknown input", put("model", "layers", 1, "inputs", to=["x"]), "unknown input 'x'"),
    ("level sizes", put("cluster", "levels", 0, "size", to=3), "but devices is 4"),
    ("duplicate names", put("model", "layers", 1, "name", to="layer.0"), "names must be different"),
    ("empty list", put("search", "microbatch", to=[]), "search.microbatch: must not be empty"),
    ("no layers", put("model", "layers", to=[]), "model.layers: must not be empty"),
    ("no levels", put("cluster", "levels", to=[]), "cluster: levels: must not be empty"),
    ("repeated entry", put("search", "tensor", to=[1, 1]), "search.tensor: "),
    ("empty name", put("name", to=""), "name: "),
    ("missing reference", put("model", to="nowhere.json"), "model: nowhere.json: no such file"),
    ("unknown model", put("model", to="lama2-7b"), "did you mean llama2-7b"),
    ("unknown device", put("cluster", "device", to="h9"), "cluster.device: h9: "),
    ("null character", put("model", to="a\0b.json"), "model: "),
    ("escape character", put("model", to="\x1b[2J"), "model: "),
    ("lone surrogate", put("model", "name", to="\ud800"), "JSON"),
    (
        "tied weight",
        put("model", "tied_weights", to=[{"weight_bytes": 5e6}]),
        "more than layer 'layer.0' holds",
    ),
    ("unknown kind", put("model", "kind", to="graph"), "model.kind: "),
    ("no such template", put("search", "tensor", to=[2]), "search.tensor"),
    ("absent microbatch", put(*COSTS, "forward_seconds", to={"2": 1}), "microbatch 1"),
    ("very long name", put("name", to="x" * 10**6), "name: "),
    ("very long field", put("x" * 10**6, to=1), "unknown field"),
    ("many mistakes", put("model", "layers", to=[{}] * 2000), "more"),
    ("many names", put("search", "recomputation", to=["x"] * 5000), "more"),
]

#: (name, the bytes of the file, what the message must contain)
RAW = [
    ("empty file", b"", "is not JSON"),
    ("only space", b" \n", "is not JSON"),
    ("truncated", json.dumps(EXAMPLE).encode()[:900], "is not JSON"),
    ("not UTF-8", json.dumps(EXAMPLE).encode()[:-1] + b"\xff}", "is not UTF-8"),
    ("UTF-16", json.dumps(EXAMPLE).encode("utf-16"), "is not UTF-8"),
    ("null bytes", b"\0" * 100, "is not JSON"),
    ("an array", b"[]", "JSON object"),
    ("a string", b'"worked-example-160"', "JSON object"),
    ("a number", b"3", "JSON object"),
    ("deep arrays", b"[" * 100_000, "nested too deeply"),
    ("deep objects", b'{"a":' * 100_000, "nested too deeply"),
    ("rather deep", b'{"name":' + b"[" * 500 + b"]" * 500 + b"}", ""),
    ("not a number", b'{"name": NaN}', "NaN"),
    ("infinite", b'{"name": -Infinity}', "-Infinity"),
    ("1e400", b'{"name": 1e400}', "too large"),
    ("5000 digits", b'{"name": ' + b"9" * 5000 + b"}", "5000 digits"),
    ("duplicate key", b'{"name": "a", "name": "b"}', "'name' stands twice"),
    ("trailing comma", b'{"name": "a",}', "is not JSON"),
    ("a comment", b'{} // "name"', "is not JSON"),
]


def assert_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str], *contents: str, status: int = 2
) -> None:
    assert main(argv) == status
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert 1 <= len(lines) <= 24
    assert max(map(len, lines)) <= 200
    assert "Traceback" not in err
    assert err.isascii() or all(c.isprintable() or c == "\n" for c in err)
    joined = " ".join(err.split())
    for content in contents:
        assert content in joined, err


@pytest.mark.parametrize("case", PROBLEMS, ids=lambda case: case[0])
def test_malformed_problem(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, change, content = case
    monkeypatch.chdir(tmp_path)
    data = deepcopy(EXAMPLE)
    data["units"] = {"tick_seconds": 1e-9} if case[0] == "overflow" else data["units"]
    change(data)
    Path("p.json").write_text(json.dumps(data))
    # What is refused after loading is named by the problem, what is refused before by the file.
    late = case[0] in ("overflow", "no such template", "absent microbatch")
    named = ("worked-example" if late else "p.json", content)
    assert_refused(["solve", "p.json"], capsys, *named)
    assert_refused(["compile", "p.json", "--json"], capsys, *named)


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: raw[0])
@pytest.mark.parametrize("command", ["solve", "evaluate", "verify"])
def test_malformed_file(
    command: str,
    raw: tuple[str, bytes, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.json").write_bytes(raw[1])
    content = "" if raw[2] == "JSON object" and command == "evaluate" else raw[2]
    argv = [command, *(["worked-example-160"] if command == "evaluate" else []), "x.json"]
    assert_refused(argv, capsys, "x.json", content)


@pytest.mark.parametrize("command", ["solve", "certify", "compile"])
@pytest.mark.parametrize(
    ("reference", "content"),
    [
        ("none.json", "none.json: no such file"),
        (".", "is a folder"),
        ("lama2-7b@h100-64", "did you mean llama2-7b"),
        ("llama2-7b@h100-46", "did you mean h100-64"),
        ("llama2-7b@", "shipped cluster"),
        ("@h100-64", "shipped model"),
        ("@", "shipped cluster"),
        ("", "no such problem"),
        ("x" * 5000, "no such problem"),
        ("worked-example-16", "did you mean worked-example-160"),
    ],
)
def test_no_such_problem(
    command: str, reference: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused([command, reference], capsys, content)


def test_a_file_of_100_megabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as handle:
        handle.truncate(100 * 2**20)
    assert_refused(["solve", str(path)], capsys, "big.json", "is 100 MiB")
    assert_refused(["evaluate", "worked-example-160", str(path)], capsys, "big.json", "100 MiB")
    assert_refused(["verify", str(path)], capsys, "big.json", "is 100 MiB")


def test_an_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loop.json"
    path.symlink_to(path)
    assert_refused(["solve", str(path)], capsys, "loop.json", "cannot be read")


PLAN: dict[str, Any] = {
    "microbatch": 1,
    "replicas": 1,
    "microbatches": 8,
    "template": {},
    "stages": [{"layers": [0, 4], "devices": [[0]]}],
}

PLANS: list[Case] = [
    ("missing stages", drop("stages"), "stages: is missing"),
    ("no stages", put("stages", to=[]), "stages: "),
    ("negative layer", put("stages", 0, "layers", to=[-1, 4]), "stages[0].layers[0]: "),
    ("one number", put("stages", 0, "layers", to=[4]), "stages[0].layers"),
    ("string device", put("stages", 0, "devices", to=[["0"]]), "stages[0].devices[0][0]: "),
    ("flat devices", put("stages", 0, "devices", to=[0]), "stages[0].devices[0]: "),
    ("float layers", put("stages", 0, "layers", to=[0.0, 4.0]), "stages[0].layers[0]: "),
    ("unknown ZeRO", put("stages", 0, "zero", to=7), "stages[0].zero: "),
    ("unknown recomputation", put("stages", 0, "recomputation", to="all"), "recomputation: "),
    ("unknown field", put("stages", 0, "colour", to=1), "stages[0].colour: unknown field"),
    ("unknown layout", put("layout", to="outer"), "layout: "),
    ("zero replicas", put("replicas", to=0), "replicas: "),
    ("huge device", put("stages", 0, "devices", to=[[2**70]]), "stages[0].devices[0][0]: "),
    ("template", put("template", to={"tensor": "2"}), "template.tensor: "),
    ("template of text", put("template", to="t2"), "template: "),
]


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case[0])
def test_malformed_plan(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = deepcopy(PLAN)
    case[1](data)
    Path("plan.json").write_text(json.dumps(data))
    assert_refused(["evaluate", "worked-example-160", "plan.json"], capsys, "plan.json", case[2])


@pytest.mark.parametrize(
    ("options", "content"),
    [
        (["--microbatch", "1,x"], "--microbatch"),
        (["--microbatch", ""], "--microbatch"),
        (["--microbatch", "0"], "search.microbatch[0]"),
        (["--tensor", "1,1"], "search.tensor"),
        (["--context", "-1"], "search.context[0]"),
        (["--expert", "1.5"], "--expert"),
        (["--data-parallel", "evn"], "--data-parallel"),
        (["--stages", "even"], "--stages"),
        (["--recomputation", "none,some"], "search.recomputation[1]"),
        (["--zero", "4"], "search.zero[0]"),
        (["--layout", "outer"], "search.layouts[0]"),
        (["--sequence-parallel", "yes"], "--sequence-parallel"),
        (["--global-batch", "0"], "training.global_batch"),
        (["--global-batch", "1e3"], "--global-batch"),
        (["--optimizer", "adam"], "training.optimizer"),
        (["--optimizer", "2,4"], "--optimizer"),
        (["--optimizer", "0,4,1"], "training.optimizer.weights"),
        (["--all-reduce", "star"], "training.all_reduce"),
        (["--reserve-fraction", "1"], "training.reserve_fraction"),
        (["--reserve-fraction", "NaN"], "--reserve-fraction"),
        (["--sequence-length", "-3"], "model.sequence_length"),
        (["--synchronisation", "last_stage"], "training.cost_model.synchronisation"),
        (["--set", "search"], "FIELD=JSON"),
        (["--set", "=1"], "FIELD=JSON"),
        (["--set", "search.zero=[1"], "search.zero"),
        (["--set", "search.zero=NaN"], "NaN"),
        (["--set", "search.zeros=[1]"], "search.zeros: unknown field"),
        (["--set", "units.tick_seconds=-1"], "units.tick_seconds"),
        (["--out", "/nowhere/x.json"], "no such folder"),
        (["--out", "/"], "is a folder"),
        (["--microbach", "1"], "did you mean --microbatch"),
    ],
)
def test_bad_options(options: list[str], content: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(["solve", "worked-example-160", *options], capsys, content)


@pytest.mark.parametrize(
    ("argv", "content"),
    [
        ([], "COMMAND"),
        (["slove"], "did you mean solve"),
        (["list", "model"], "did you mean models"),
        (["solve"], "PROBLEM"),
        (["certify"], "PROBLEM"),
        (["certify", "worked-example-160", "--suite", "small"], "--suite"),
        (["certify", "worked-example-160", "--sample", "3"], "--sample"),
        (["certify", "worked-example-160", "--jobs", "0"], "--jobs"),
        (["certify", "worked-example-160", "--time-limit", "-1"], "--time-limit"),
        (["certify", "worked-example-160", "--time-limit", "inf"], "--time-limit"),
        (["certify", "worked-example-160", "--time-limit", "NaN"], "--time-limit"),
        (["evaluate", "worked-example-160"], "PLAN"),
        (["evaluate", "worked-example-160", "none.json"], "none.json: no such file"),
        (["verify", "none.json"], "none.json: no such file"),
    ],
)
def test_bad_command_lines(
    argv: list[str], content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(argv, capsys, content)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 100_000, b'{"name": 1e400}'])
def test_in_a_process_of_its_own(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(raw)
    done = subprocess.run(
        [sys.executable, "-m", "nest_opt", "solve", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("nest-opt: ")
    assert "x.json" in done.stderr
    assert len(done.stderr.splitlines()) <= 24
