"""What the NEST artifact's program found under its own conventions, and what it missed.

The numbers are those of ``instances/measured/nest_artifact.json`` (restated from
github.com/scai-tech/Nest, MIT licence, commit 3e163ad, program compiled and run); the small inputs
in ``data/nest_counterexamples.json`` were made for this project.
"""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nest_opt import Compiled, compile_problem, evaluate, load_problem, solve
from nest_opt.importers.nest import problem_of_input
from nest_opt.importers.nest_tables import SETUPS, artifact, file_text, shipped_files
from nest_opt.library import instances_folder, load_plan, names
from nest_opt.problem import exact

HERE = Path(__file__).parent
SIZES = (64, 128, 256)
RECORDED = json.loads((HERE / "data" / "nest_recorded.json").read_text())


def facts() -> list[tuple[str, int, dict[str, Any]]]:
    return [
        (f"nest/{short}-{model}", devices, models)
        for short, setup in SETUPS.items()
        for model, models in artifact()["setups"][setup].items()
        for devices in SIZES
    ]


SOLVED = [
    (f"{name}-{devices}", model["artifact_solver"][str(devices)])
    for name, devices, model in facts()
    if str(devices) in model["artifact_solver"]
]
PRICED = [
    (name, rival, seconds)
    for name, found in SOLVED
    for rival, seconds in found.get("rivals_batch_time_balanced", {}).items()
]


@cache
def compiled(name: str, *overrides: tuple[str, Any]) -> Compiled:
    return compile_problem(load_problem(name, dict(overrides)))


def rounding_ticks(problem: Compiled, plan: Any) -> int:
    """What rounding can add to T: one tick for each primitive that the plan pays."""
    most = max(stage.layers[1] - stage.layers[0] for stage in plan.stages)
    # Forward, backward, and (run again) backward of each layer; two transfers.
    per_load = 3 * most + 2
    first = plan.stages[0].layers
    per_sync = (first[1] - first[0] + 1) * problem.sync_multiple
    return (plan.microbatches + len(plan.stages) - 1) * per_load + per_sync


@pytest.mark.parametrize(("name", "found"), SOLVED, ids=[name for name, _ in SOLVED])
def test_the_optimum_is_what_the_program_found_to_the_tick(name: str, found: Any) -> None:
    problem = compiled(name)
    solution = solve(problem)
    plan = solution.plan
    assert plan is not None and solution.batch_ticks is not None
    theirs = exact(found["batch_time"])
    ours = solution.batch_ticks * problem.tick_seconds
    # Never above it, except for rounding up; and, here, never below it either.
    assert theirs - Fraction(1, 10**6) * theirs <= ours
    assert ours <= theirs + rounding_ticks(problem, plan) * problem.tick_seconds
    degrees = (len(plan.stages), plan.replicas, plan.template.tensor)
    assert degrees == (found["pipeline"], found["data"], found["tensor"])


@pytest.mark.parametrize(("name", "found"), SOLVED, ids=[name for name, _ in SOLVED])
def test_what_remains_is_rounding(name: str, found: Any) -> None:
    # With ticks of a nanosecond and quanta of 4 KiB, nothing remains but their output's digits.
    fine = compiled(
        name,
        ("units.tick_seconds", 1e-9),
        ("units.synchronisation_multiple_ticks", 1),
        ("units.quantum_bytes", 4096),
    )
    solution = solve(fine)
    assert solution.batch_seconds == pytest.approx(found["batch_time"], rel=1e-7)


@pytest.mark.parametrize(("name", "rival", "seconds"), PRICED)
def test_balanced_plans_of_the_rivals(name: str, rival: str, seconds: float) -> None:
    evaluation = evaluate(compiled(name), load_plan(f"{name}/{rival.lower()}"))
    assert evaluation.feasible
    assert evaluation.batch_seconds == pytest.approx(seconds, rel=0.005)


def test_every_published_rival_that_fits_has_a_plan_and_no_other() -> None:
    missing = [(n, r) for n, r, _ in PRICED if f"{n}/{r.lower()}" not in names("plans")]
    assert missing == []
    assert len(PRICED) == 48


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if int(name.rpartition("-")[2]) in SIZES else pytest.mark.heavy)
        for name in RECORDED
    ],
)
def test_recorded_optima(name: str) -> None:
    # Where the file gives no number, ours is recorded, so that a change is noticed.
    solution = solve(compiled(name))
    assert solution.batch_ticks == RECORDED[name]


def test_problems_of_every_size_are_shipped() -> None:
    wanted = {
        f"nest/{short}-{model}-{devices}"
        for short, setup in SETUPS.items()
        for model in artifact()["setups"][setup]
        for devices in (64, 128, 256, 512, 1024)
    }
    assert wanted == {name for name in names("problems") if name.startswith("nest/")}
    assert wanted == RECORDED.keys()
    assert len(wanted) == 50


def test_shipped_files_are_those_that_the_tables_make() -> None:
    made = {path: file_text(data) for path, data in shipped_files()}
    shipped = {
        str(path.relative_to(instances_folder())): path.read_text()
        for path in instances_folder().glob("*/nest/**/*.json")
    }
    assert made == shipped


def placement_input(model: dict[str, Any], devices: int) -> dict[str, Any]:
    """The tables of a model as the artifact's script writes them for its placement program."""
    nodes: dict[str, Any] = {}
    edges: dict[str, Any] = {}
    for degree, table in model["by_tensor_degree"].items():
        runs = [run for run in table["runs"] for _ in range(run["count"])]
        nodes[degree] = [
            {
                "id": i - 1,
                "parameterSize": run["weight_bytes"],
                "activationSize": run["activation_bytes"],
                "isTensorParallelized": int(degree) > 1,
                "optimalLatencyFw": run["forward"],
                "optimalLatencyBw": run["backward"],
                "energy": 0,
            }
            for i, run in enumerate(runs)
        ]
        edges[degree] = [
            {
                "sourceId": entry["from"][0] + (n if entry["from"][1] > entry["from"][0] else 0),
                "destId": entry["to"][0] + n,
                "communicationCost": entry["bytes"],
            }
            for entry in table["edges"]
            for n in range(entry["count"])
        ]
    return {
        "ep_degree": model["expert"],
        "sp_enabled": False,
        "cp_degree": 1,
        "maxMemoryPerDevice": model["memory_bytes"],
        "maxDevices": devices,
        "bandwidth": 1e9,
        "bws": model["bandwidth_bytes_per_second"],
        "latency_per_level": model["latency_seconds"],
        "devices_per_level": model["devices_per_level"][str(devices)],
        "frequency": 1e6,
        "mbsInBatch": float(model["microbatches"]),
        "nodes": nodes,
        "edges": edges,
        "activationRecomputation": model["recomputation"],
        "optimizerAlgorithm": "SGD",
        "baselines": {},
    }


@pytest.mark.parametrize(
    ("name", "model"),
    [pytest.param(name, model, id=name) for name, devices, model in facts() if devices == 64],
)
def test_importing_what_its_script_writes_gives_the_shipped_problem(name: str, model: Any) -> None:
    # Two readers of one table: the importer, and the maker of the shipped files.
    found = compile_problem(
        load_problem(problem_of_input(placement_input(model, 64), name, name=name))
    )
    shipped = compiled(f"{name}-64")
    assert {
        key: (table.kind, table.cut_bytes, table.transfer_ticks)
        for key, table in found.tables.items()
    } == {
        key: (table.kind, table.cut_bytes, table.transfer_ticks)
        for key, table in shipped.tables.items()
    }
    assert solve(found).batch_ticks == RECORDED[f"{name}-64"]


CASES = json.loads((HERE / "data" / "nest_counterexamples.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_inputs_that_the_program_answers_wrongly(case: Any) -> None:
    data = problem_of_input(
        case["input"], "input", name=case["name"], synchronisation=case["synchronisation"]
    )
    solution = solve(load_problem(data))
    assert solution.batch_seconds == pytest.approx(case["truth_batch_time"], rel=1e-3)
