"""Witnesses: right ones pass, whatever the problem; those that were tampered with do not."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from nest_opt import compile_problem, load_problem, solve
from nest_opt.certify.check_witness import check_witness
from nest_opt.certify.witness import write_witness
from nest_opt.cli import main
from nest_opt.enumerate import all_plans
from nest_opt.errors import CertificateError
from nest_opt.evaluate import Evaluator

sys.path.insert(0, str(Path(__file__).parents[2] / "property"))
from strategies import problems


def witness_of(name: str, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    data = write_witness(load_problem(name, overrides or {})).data
    result: dict[str, Any] = json.loads(json.dumps(data))
    return result


RIGHT = witness_of("worked-example-160", {"search.zero": [0, 1]})
PAPER = witness_of("nest/tpuv4-bert-large-64")


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("worked-example-1000", {}),
        ("worked-example-110", {}),
        ("worked-example-160", {"training.cost_model.synchronisation": "first_stage"}),
        # No plan exists at all.
        ("worked-example-160", {"cluster.device.memory_bytes": 2**20}),
        ("bert-large@h100-64", {}),
        ("llama2-7b@tpuv4-torus-64", {"search.microbatch": [1]}),
        ("nest/tpuv4-mixtral-8x7b-64", {}),
        # A tied weight, whose ring depends on the number of stages.
        ("gpt3-175b@a100-64", {"search.tensor": [8], "search.microbatch": [1]}),
    ],
)
def test_a_witness_passes(name: str, overrides: dict[str, Any]) -> None:
    data = witness_of(name, overrides)
    result = check_witness(data)
    assert result.ok, result.refusals
    solution = solve(load_problem(name, overrides))
    assert data["batch_ticks"] == solution.batch_ticks
    assert result.checked["cells"] == solution.cells["total"]
    assert result.checked["in_tables"] + result.checked["bounded"] == result.checked["cells"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems() | problems(hierarchical=False))
def test_a_witness_of_any_problem_passes_and_one_of_a_worse_plan_does_not(data: Any) -> None:
    problem = load_problem(data)
    witness = json.loads(json.dumps(write_witness(problem).data))
    result = check_witness(witness)
    assert result.ok, result.refusals
    if witness["batch_ticks"] is None:
        return
    compiled = compile_problem(problem)
    evaluator = Evaluator(compiled)
    for n, plan in enumerate(all_plans(compiled)):
        evaluation = evaluator.evaluate(plan)
        if evaluation.feasible and evaluation.batch_ticks != witness["batch_ticks"]:
            worse = deepcopy(witness)
            stages = tuple(
                stage.model_copy(
                    update={"load_ticks": priced.load_ticks, "memory_bytes": priced.memory_bytes}
                )
                for stage, priced in zip(plan.stages, evaluation.stages, strict=True)
            )
            honest = plan.model_copy(update={"stages": stages, "digest": compiled.digest})
            worse["plan"], worse["batch_ticks"] = honest.to_dict(), evaluation.batch_ticks
            assert not check_witness(worse).ok
            return
        if n > 300:
            return


def group(data: dict[str, Any], stages: int) -> dict[str, Any]:
    """The group that closes the cells of the optimal plan's family with so many stages."""
    return next(g for g in data["groups"] if stages in g["stages"])


def change(*path: Any, to: Any) -> Any:
    """A tampering: the entry at a path, replaced (by a function of it, or a value)."""

    def tamper(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        old = place[path[-1]]
        place[path[-1]] = to(old) if callable(to) else to

    return tamper


def raised(field: str, table: int | None, row: int, nth: int, to: Any) -> Any:
    """The nth possible entry of a row, raised; in the group with most stages."""

    def tamper(data: dict[str, Any]) -> None:
        chosen = max(data["groups"], key=lambda g: max(g["stages"]))
        rows = chosen[field] if table is None else chosen["tables"][table][field]
        possible = [i for i, value in enumerate(rows[row]) if value >= 0]
        layer = possible[min(nth, len(possible) - 1)]
        rows[row][layer] = to(rows[row][layer]) if callable(to) else to

    return tamper


def every_value_raised(data: dict[str, Any]) -> None:
    for g in data["groups"]:
        for table in g["tables"]:
            table["least_load"] = [[10**6] * len(row) for row in table["least_load"]]


def no_way_at_all(data: dict[str, Any]) -> None:
    for g in data["groups"]:
        for table in g["tables"]:
            table["least_load"] = [[-1] * len(row) for row in table["least_load"]]
        g["least_sync"] = [[-1] * len(row) for row in g["least_sync"]]


def limits_out_of_order(data: dict[str, Any]) -> None:
    for g in data["groups"]:
        g["tables"].append(deepcopy(g["tables"][-1]))


def first_limit_missing(data: dict[str, Any]) -> None:
    for g in data["groups"]:
        g["tables"][0]["sync_at_most"] = 5


TAMPERED = [
    ("a group dropped", change("groups", to=lambda groups: groups[1:])),
    ("all groups dropped", change("groups", to=[])),
    ("a cell dropped", change("groups", 0, "stages", to=lambda stages: stages[1:] or [3])),
    ("a cell made up", change("groups", 0, "stages", to=lambda stages: [*stages, 4])),
    ("a value raised by one", raised("least_load", 0, 0, 2, lambda v: v + 1)),
    ("a value raised", raised("least_load", 0, 0, 1, lambda v: v + 1000)),
    ("a state said to be impossible", raised("least_load", 0, 0, 2, -1)),
    ("the last row raised", raised("least_load", 0, -1, 0, 10**6)),
    ("a synchronisation raised", raised("least_sync", None, 0, 2, lambda v: v + 1)),
    ("a synchronisation impossible", raised("least_sync", None, 0, 2, -1)),
    ("every value raised", every_value_raised),
    ("no way at all", no_way_at_all),
    ("a row dropped", change("groups", 0, "tables", 0, "least_load", to=lambda rows: rows[:-1])),
    ("a column dropped", change("groups", 0, "least_sync", 0, to=lambda row: row[:-1])),
    ("limits out of order", limits_out_of_order),
    ("no table without limit", first_limit_missing),
    ("another layout", change("groups", 0, "layout", to="data-inner")),
    ("more replicas", change("groups", 0, "replicas", to=lambda d: d * 2)),
    ("a smaller T", change("batch_ticks", to=lambda ticks: ticks - 1)),
    ("a larger T", change("batch_ticks", to=lambda ticks: ticks + 1)),
    ("no T", change("batch_ticks", to=None)),
    ("no plan", change("plan", to=None)),
    ("neither", lambda data: data.update(plan=None, batch_ticks=None)),
    ("another plan", change("plan", "stages", 0, "layers", to=[0, 1])),
    ("another digest", change("digest", to="sha256:0")),
    ("another memory", change("problem", "cluster", "device", "memory_bytes", to=2**40)),
    ("another batch", change("problem", "training", "global_batch", to=16)),
    ("a wider search", change("problem", "search", "zero", to=[0, 1, 2, 3])),
    ("a narrower search", change("problem", "search", "data_parallel", to=[2])),
    ("another cost model", change("problem", "training", "all_reduce", to="ring")),
]


@pytest.mark.parametrize("base", [RIGHT, PAPER], ids=["worked example", "paper size"])
@pytest.mark.parametrize(("name", "tamper"), TAMPERED, ids=[name for name, _ in TAMPERED])
def test_a_tampered_witness_is_refused(name: str, tamper: Any, base: dict[str, Any]) -> None:
    data = deepcopy(base)
    tamper(data)
    if data == base:
        pytest.skip("changes nothing here")
    try:
        result = check_witness(data)
    except CertificateError:
        return
    assert not result.ok, name


@pytest.mark.parametrize(
    "data",
    [{}, {"format": "nest-opt/witness/1"}, {**RIGHT, "colour": 1}, {**RIGHT, "batch_ticks": 4.5}],
)
def test_what_is_no_witness(data: Any) -> None:
    with pytest.raises(CertificateError, match="is not a witness"):
        check_witness(data)


def test_any_single_value_changed_is_refused() -> None:
    # Exhaustively, on the worked example: one more, one less, impossible.
    for n, g in enumerate(RIGHT["groups"]):
        tables = [("tables", k, "least_load") for k in range(len(g["tables"]))]
        for path in [*tables, ("least_sync",)]:
            place: Any = g
            for step in path:
                place = place[step]
            for q, row in enumerate(place):
                for i, value in enumerate(row):
                    for other in {value + 1, max(value - 1, -1), -1} - {value}:
                        data = deepcopy(RIGHT)
                        change("groups", n, *path, q, i, to=other)(data)
                        assert not check_witness(data).ok, (n, path, q, i, other)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "witness.json"
    assert main(["witness", "worked-example-160", "--out", str(path)]) == 0
    assert "T = 454 ticks" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert "no solver was asked" in " ".join(capsys.readouterr().out.split())
    data = json.loads(path.read_text())
    data["groups"] = data["groups"][1:]
    path.write_text(json.dumps(data))
    assert main(["verify", str(path)]) == 1
    assert "refused" in capsys.readouterr().out
    path.write_text('{"format": "nest-opt/witness/1"}')
    assert main(["verify", str(path)]) == 2
    assert "witness.json: is not a witness" in capsys.readouterr().err
    assert main(["witness", "worked-example-160", "--json"]) == 0
    assert check_witness(json.loads(capsys.readouterr().out)).ok
