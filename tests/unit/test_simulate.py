"""The clock equals schedules worked out by hand, and the formulas where they should be exact."""

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from nest_opt.certify.suite import load_suite
from nest_opt.cli import main
from nest_opt.compile import compile_problem
from nest_opt.errors import PlanError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.plan import Plan
from nest_opt.simulate import Simulation, order_1f1b, simulate
from nest_opt.solve import solve


def problem(
    layers: list[tuple[int, int, int]], batch: int, devices: int, seconds_per_byte: float = 1.0
) -> Any:
    """Layers of (forward, backward, output bytes) on devices a byte a tick apart."""
    return load_problem(
        {
            "format": "nest-opt/problem/1",
            "name": "clock",
            "model": {
                "kind": "layers",
                "name": "clock",
                "layers": [
                    {
                        "name": f"layer.{i}",
                        "costs": [
                            {
                                "forward_seconds": float(forward),
                                "backward_seconds": float(backward),
                                "output_bytes": float(size),
                            }
                        ],
                    }
                    for i, (forward, backward, size) in enumerate(layers)
                ],
            },
            "cluster": {
                "name": "clock",
                "devices": devices,
                "device": {"name": "clock", "memory_bytes": 1000},
                "levels": [
                    {"size": devices, "bandwidth_bytes_per_second": 1 / seconds_per_byte}
                ],
            },
            "training": {"global_batch": batch, "reserve_fraction": 0.0},
            "search": {
                "microbatch": [1], "tensor": [1], "recomputation": ["none"], "zero": [0],
                "data_parallel": [1],
            },
            "units": {"tick_seconds": 1.0, "quantum_bytes": 1},
        }
    )  # fmt: skip


def one_layer_each(layers: list[tuple[int, int, int]], batch: int) -> tuple[Any, Plan]:
    made = problem(layers, batch, len(layers))
    plan = Plan.from_dict(
        {
            "microbatch": 1,
            "replicas": 1,
            "microbatches": batch,
            "template": {},
            "stages": [{"layers": [i, i + 1], "devices": [[i]]} for i in range(len(layers))],
        }
    )
    return made, plan


def passes(simulation: Simulation, stage: int) -> list[str]:
    return [
        f"{e.kind[0]}{e.microbatch} {e.start}-{e.end}"
        for e in simulation.events
        if e.stage == stage and e.kind in ("forward", "backward")
    ]


def test_one_stage():
    made, plan = one_layer_each([(2, 3, 0)], batch=3)
    simulation = simulate(made, plan)
    assert passes(simulation, 0) == [
        "f0 0-2",
        "b0 2-5",
        "f1 5-7",
        "b1 7-10",
        "f2 10-12",
        "b2 12-15",
    ]
    assert simulation.makespan_ticks == simulation.batch_ticks == simulation.sum_ticks == 15


def test_two_equal_stages():
    made, plan = one_layer_each([(1, 2, 0), (1, 2, 0)], batch=3)
    simulation = simulate(made, plan)
    assert passes(simulation, 0) == ["f0 0-1", "f1 1-2", "b0 4-6", "f2 6-7", "b1 7-9", "b2 10-12"]
    assert passes(simulation, 1) == ["f0 1-2", "b0 2-4", "f1 4-5", "b1 5-7", "f2 7-8", "b2 8-10"]
    # (m + s - 1) tau = 4 * 3
    assert simulation.makespan_ticks == simulation.batch_ticks == simulation.sum_ticks == 12


def test_a_slow_last_stage():
    made, plan = one_layer_each([(1, 1, 0), (2, 4, 0)], batch=2)
    simulation = simulate(made, plan)
    assert passes(simulation, 1) == ["f0 1-3", "b0 3-7", "f1 7-9", "b1 9-13"]
    assert passes(simulation, 0) == ["f0 0-1", "f1 1-2", "b0 7-8", "b1 13-14"]
    # T pays the bottleneck 3 times, the sum pays the fast stage once.
    assert (simulation.makespan_ticks, simulation.sum_ticks, simulation.batch_ticks) == (14, 14, 18)


def test_transfers_that_are_waited_for():
    made, plan = one_layer_each([(1, 1, 2), (1, 1, 0)], batch=1)
    simulation = simulate(made, plan)
    # The forward transfer of 2 ticks opens stage 1's pass, the backward one stage 0's.
    assert passes(simulation, 1) == ["f0 1-4", "b0 4-5"]
    assert passes(simulation, 0) == ["f0 0-1", "b0 5-8"]
    # Each load is 1 + 1 + 2, T = 2 * 4.
    assert (simulation.makespan_ticks, simulation.batch_ticks) == (8, 8)


def test_transfers_that_overlap_share_ports():
    made, plan = one_layer_each([(1, 1, 3), (1, 1, 0)], batch=2)
    waiting = simulate(made, plan)
    simulation = simulate(made, plan, transfers="overlapping")
    sends = [(e.kind, e.microbatch, e.start, e.end) for e in simulation.events if "send" in e.kind]
    # The second activation is ready at 2, when the first still occupies the port until 4.
    assert sends == [
        ("send_forward", 0, 1, 4),
        ("send_forward", 1, 4, 7),
        ("send_backward", 0, 6, 9),
        ("send_backward", 1, 9, 12),
    ]
    assert passes(simulation, 1) == ["f0 4-5", "b0 5-6", "f1 7-8", "b1 8-9"]
    assert simulation.makespan_ticks == 13 < waiting.makespan_ticks


def test_a_stage_that_runs_ahead():
    assert [f"{k[0]}{i}" for k, i in order_1f1b(0, 4, 2)] == ["f0", "f1", "b0", "b1"]
    assert [f"{k[0]}{i}" for k, i in order_1f1b(3, 4, 2)] == ["f0", "b0", "f1", "b1"]


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 2, 4, 9])
def test_the_formula_is_exact_for_equal_stages_without_transfers(stages, batch):
    made, plan = one_layer_each([(2, 5, 0)] * stages, batch)
    simulation = simulate(made, plan)
    assert simulation.makespan_ticks == simulation.batch_ticks == simulation.sum_ticks


def test_passes_and_transfers_add_up_to_the_load_and_formulas_are_never_below_the_clock():
    for entry in load_suite("small").sample(40):
        plan = solve(entry.compiled).plan
        if plan is None:
            continue
        evaluator = Evaluator(entry.compiled)
        evaluation = evaluator.evaluate(plan)
        for stage, times in zip(evaluation.stages, evaluator.stage_times(plan), strict=True):
            loads = [t.forward + t.backward + t.receive_forward + t.receive_backward for t in times]
            assert max(loads) == stage.load_ticks
            assert min(t.forward for t in times) >= 0 and min(t.backward for t in times) >= 0
        simulation = simulate(entry.compiled, plan)
        assert simulation.makespan_ticks <= simulation.sum_ticks <= simulation.batch_ticks, (
            entry.name
        )


def test_a_plan_that_is_none_is_refused():
    made, plan = one_layer_each([(1, 1, 0), (1, 1, 0)], batch=2)
    broken = plan.model_copy(update={"stages": plan.stages[:1]})
    with pytest.raises(PlanError):
        simulate(made, broken)


def test_the_trace_opens_in_a_viewer():
    made, plan = one_layer_each([(1, 2, 1), (1, 2, 0)], batch=2)
    trace = simulate(made, plan, transfers="overlapping").trace()
    assert json.loads(json.dumps(trace)) == trace
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"name", "ph", "pid", "tid", "ts", "dur"} <= set(complete[0])
    assert complete[0]["dur"] == 1_000_000
    # Nothing overlaps on one thread.
    for thread in {(e["pid"], e["tid"]) for e in complete}:
        own = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in complete if (e["pid"], e["tid"]) == thread
        )
        assert all(a[1] <= b[0] for a, b in pairwise(own))


def test_ticks_become_seconds():
    compiled = compile_problem(load_problem("worked-example-160"))
    plan = solve(compiled).plan
    assert plan is not None
    data = simulate(compiled, plan).to_dict()
    assert Fraction(str(data["makespan_seconds"])) * 1000 == data["makespan_ticks"]


def test_the_command(tmp_path, capsys):
    trace = tmp_path / "trace.json"
    assert main(["simulate", "worked-example-160", "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "the clock" in out and max(map(len, out.splitlines())) <= 80
    assert json.loads(trace.read_text())["traceEvents"]
    assert main(["simulate", "worked-example-160", "--json", "--transfers", "overlapping"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["makespan_ticks"] <= data["sum_ticks"] <= data["batch_ticks"] == 454
