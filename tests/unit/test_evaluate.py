"""The evaluator against arithmetic done by hand, term by term, and against broken plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_opt.compile import Compiled, compile_problem
from nest_opt.errors import PlanError
from nest_opt.evaluate import (
    Evaluation,
    Evaluator,
    LoadParts,
    MemoryParts,
    SyncParts,
    axis_groups,
    dense_groups,
    evaluate,
    expert_groups,
)
from nest_opt.library import load_problem
from nest_opt.plan import Plan, Template

MIB = 2**20

# --- problems and plans to price by hand ----------------------------------------------------------

#: Eight devices in nodes of two, racks of two nodes, two racks. Class 0: 1 s and 1 s per byte;
#: class 1: 10 s and 2 s per byte; class 2: 100 s and 4 s per byte.
LEVELS: list[dict[str, Any]] = [
    {"size": 2, "latency_seconds": 1, "bandwidth_bytes_per_second": 1},
    {"size": 2, "latency_seconds": 10, "bandwidth_bytes_per_second": 0.5},
    {"size": 2, "latency_seconds": 100, "bandwidth_bytes_per_second": 0.25},
]


def layer(forward: int = 0, backward: int = 0, **costs: Any) -> dict[str, Any]:
    return {"forward_seconds": forward, "backward_seconds": backward, **costs}


#: Three layers in which no two numbers that could be confused are equal.
THREE = [
    layer(
        10,
        20,
        recompute_seconds=11,
        selective_recompute_seconds=3,
        weight_bytes=8,
        activation_bytes=20,
        selective_activation_bytes=12,
        attention_core_bytes=5,
        checkpoint_bytes=4,
        output_bytes=6,
    ),
    layer(
        12,
        24,
        recompute_seconds=13,
        selective_recompute_seconds=4,
        weight_bytes=10,
        activation_bytes=30,
        selective_activation_bytes=18,
        attention_core_bytes=7,
        checkpoint_bytes=5,
        output_bytes=7,
    ),
    layer(
        14,
        28,
        recompute_seconds=15,
        selective_recompute_seconds=5,
        weight_bytes=12,
        activation_bytes=40,
        selective_activation_bytes=25,
        attention_core_bytes=6,
        checkpoint_bytes=9,
        output_bytes=0,
    ),
]


def compiled(
    layers: Sequence[dict[str, Any]] = THREE,
    template: dict[str, Any] | None = None,
    *,
    levels: Sequence[dict[str, Any]] = LEVELS,
    memory: int = 10**6,
    batch: int = 4,
    tied: int = 0,
    units: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    search: dict[str, Any] | None = None,
) -> Compiled:
    """One template; ticks of a second, quanta of a byte; gradients 2 and optimizer 4 per weight."""
    template = template or {}
    devices = 1
    for level in levels:
        devices *= level["size"]
    model: dict[str, Any] = {
        "kind": "layers",
        "name": "by hand",
        "layers": [
            {"name": f"layer.{i}", "costs": [{"template": template, **costs}]}
            for i, costs in enumerate(layers)
        ],
    }
    if tied:
        model["tied_weights"] = [{"template": template, "weight_bytes": tied}]
    problem = load_problem(
        {
            "format": "nest-opt/problem/1",
            "name": "by hand",
            "model": model,
            "cluster": {
                "name": "two racks of two nodes of two",
                "device": {"name": "device", "memory_bytes": memory},
                "devices": devices,
                "levels": list(levels),
            },
            "training": {
                "global_batch": batch,
                "optimizer": {"weights": 1, "gradients": 2, "optimizer": 4},
                "reserve_fraction": 0,
                **(training or {}),
            },
            "search": {
                "microbatch": [1],
                "tensor": [template.get("tensor", 1)],
                "context": [template.get("context", 1)],
                "expert": [template.get("expert", 1)],
                "sequence_parallel": [template.get("sequence_parallel", False)],
                "data_parallel": "any",
                "zero": [0, 1, 2, 3],
                **(search or {}),
            },
            "units": {
                "tick_seconds": 1,
                "quantum_bytes": 1,
                "synchronisation_multiple_ticks": 1,
                **(units or {}),
            },
        }
    )
    return compile_problem(problem)


def plan_of(
    problem: Compiled,
    *stages: tuple[tuple[int, int], Sequence[Sequence[int]]],
    recomputation: Sequence[str] | str = "none",
    zero: Sequence[int] | int = 0,
    **fields: Any,
) -> Plan:
    """A plan of stages ((first, end), devices by replica) with the problem's first template."""
    template = problem.templates[0]
    replicas = len(stages[0][1])
    kinds = [recomputation] * len(stages) if isinstance(recomputation, str) else recomputation
    zeros = [zero] * len(stages) if isinstance(zero, int) else zero
    return Plan.from_dict(
        {
            "microbatch": 1,
            "replicas": replicas,
            "microbatches": problem.microbatches(1, replicas, template.expert),
            "template": {
                "tensor": template.tensor,
                "context": template.context,
                "expert": template.expert,
                "sequence_parallel": template.sequence_parallel,
            },
            "stages": [
                {"layers": run, "devices": devices, "recomputation": kind, "zero": stage_zero}
                for (run, devices), kind, stage_zero in zip(stages, kinds, zeros, strict=True)
            ],
            **fields,
        }
    )


def price(
    problem: Compiled,
    *stages: tuple[tuple[int, int], Sequence[Sequence[int]]],
    recomputation: Sequence[str] | str = "none",
    zero: Sequence[int] | int = 0,
) -> Evaluation:
    return evaluate(problem, plan_of(problem, *stages, recomputation=recomputation, zero=zero))


def one_stage(problem: Compiled, devices: Sequence[Sequence[int]], **choices: Any) -> Evaluation:
    return price(problem, ((0, problem.layer_count), devices), **choices)


# --- the worked example ---------------------------------------------------------------------------


def worked(memory: int) -> Compiled:
    return compile_problem(load_problem(f"worked-example-{memory}"))


@pytest.mark.parametrize(
    ("memory", "layout", "stages", "recomputation", "tau", "sigma", "batch"),
    [
        (1000, "pipeline-inner", [((0, 4), [[0], [1], [2], [3]])], "none", 144, 64, 352),
        (160, "pipeline-inner", [((0, 2), [[1], [3]]), ((2, 4), [[0], [2]])], "none", 82, 44, 454),
        (
            110,
            "pipeline-inner",
            [((0, 2), [[1], [3]]), ((2, 4), [[0], [2]])],
            "layer",
            108,
            44,
            584,
        ),
        (160, "data-inner", [((0, 2), [[2], [3]]), ((2, 4), [[0], [1]])], "none", 96, 10, 490),
    ],
)
def test_worked_example(
    memory: int,
    layout: str,
    stages: Any,
    recomputation: str,
    tau: int,
    sigma: int,
    batch: int,
) -> None:
    problem = worked(memory)
    plan = plan_of(problem, *stages, recomputation=recomputation, layout=layout)
    found = evaluate(problem, plan)
    assert (found.tau_ticks, found.sigma_ticks, found.batch_ticks) == (tau, sigma, batch)
    assert found.feasible and not found.violations and not found.notes and not found.claims
    assert found.tick_seconds == 0.001
    assert found.batch_seconds == batch / 1000
    assert found.sequences_per_second == pytest.approx(8 / (batch / 1000))
    assert found.devices_used == 4


@pytest.mark.parametrize(("split", "stage", "mib"), [(1, 1, 184), (3, 0, 232)])
def test_worked_example_splits_that_do_not_fit(split: int, stage: int, mib: int) -> None:
    # 1 + 3: weights and gradients 16 each, optimizer 96, activations 1 * (16 + 16 + 24): 184 MiB.
    # 3 + 1: 16 + 16 + 96 and 2 * (20 + 16 + 16): 232 MiB.
    problem = worked(160)
    found = price(problem, ((0, split), [[1], [3]]), ((split, 4), [[0], [2]]))
    assert found.stages[stage].memory_bytes == mib * MIB
    assert not found.feasible and found.batch_ticks is not None
    (violation,) = found.violations
    assert violation.constraint == "memory" and violation.where == f"stage {stage}"
    assert violation.excess == (mib - 160) * MIB
    assert f"{mib}.0 MiB" in violation.message and "160.0 MiB" in violation.message


def test_the_function_takes_a_problem_as_well() -> None:
    problem = load_problem("worked-example-160")
    plan = plan_of(worked(160), ((0, 2), [[1], [3]]), ((2, 4), [[0], [2]]))
    assert evaluate(problem, plan) == evaluate(compile_problem(problem), plan)


# --- loads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recomputation", "extra"), [("none", 0), ("selective", 3 + 4), ("layer", 24), ("stage", 24)]
)
def test_recomputation_time(recomputation: str, extra: int) -> None:
    # Stage 0: 10 + 20 + 12 + 24 = 66, and the cut before layer 2 (7 bytes) comes back at class 0:
    # 1 + 7 = 8. Stage 1: 14 + 28 = 42, and 8 for the transfer in.
    found = price(
        compiled(), ((0, 2), [[1]]), ((2, 3), [[0]]), recomputation=[recomputation, "none"]
    )
    first, last = found.stages
    assert first.load_parts_ticks == LoadParts(66, extra, 0, 0, 8, 0)
    assert last.load_parts_ticks == LoadParts(42, 0, 0, 8, 0, 0)
    assert (first.load_ticks, last.load_ticks) == (74 + extra, 50)
    assert found.total_load_ticks == 74 + extra + 50
    assert found.bottleneck == 0
    # m = 4, s = 2, nothing to synchronise between replicas.
    assert found.batch_ticks == (4 + 2 - 1) * (74 + extra)


def test_transfers_are_priced_by_the_class_of_both_stages_together() -> None:
    # Cuts of 6 and 7 bytes. Devices 0 | 3 | 4: class 1, then class 2.
    # Forward into stage 1: 10 + 6 * 2 = 22, backward into stage 0 the same.
    # Forward into stage 2: 100 + 7 * 4 = 128, backward into stage 1 the same.
    found = price(compiled(), ((0, 1), [[0]]), ((1, 2), [[3]]), ((2, 3), [[4]]))
    assert [s.load_parts_ticks for s in found.stages] == [
        LoadParts(30, 0, 0, 0, 22, 0),
        LoadParts(36, 0, 0, 22, 128, 0),
        LoadParts(42, 0, 0, 128, 0, 0),
    ]


def test_wide_stages_transfer_at_the_class_of_their_union() -> None:
    # t = 2: {0, 1} and {2, 3} are class 0 inside, class 1 together: 10 + 6 * 2 = 22.
    problem = compiled([layer(1, 1, output_bytes=6), layer(1, 1)], {"tensor": 2})
    found = price(problem, ((0, 1), [[0, 1]]), ((1, 2), [[2, 3]]))
    assert [s.load_ticks for s in found.stages] == [24, 24]
    # Interleaved over the racks, each stage is class 2 by itself already: 100 + 6 * 4 = 124.
    found = price(problem, ((0, 1), [[0, 4]]), ((1, 2), [[1, 5]]))
    assert [s.load_ticks for s in found.stages] == [126, 126]


def test_transfers_up_and_down_the_tree_pay_twice_above_the_node() -> None:
    # As above at class 1 and 2: 2 * 22 and 2 * 128; inside the node 1 + 6 = 7 remains.
    problem = compiled(training={"cost_model": {"transfer": "up_and_down"}})
    found = price(problem, ((0, 1), [[0]]), ((1, 2), [[3]]), ((2, 3), [[4]]))
    assert [s.load_ticks for s in found.stages] == [30 + 44, 36 + 44 + 256, 42 + 256]
    found = price(problem, ((0, 1), [[0]]), ((1, 3), [[1]]))
    assert [s.load_ticks for s in found.stages] == [30 + 7, 36 + 42 + 7]


def test_transfers_between_the_first_devices_of_replica_0() -> None:
    # In replica 0 the first devices 1 and 0 share a node: 1 + 6 = 7, though the stages span the
    # racks, and though those of replica 1 (2 and 7) do not even share a rack.
    layers = [layer(1, 1, output_bytes=6), layer(1, 1)]
    stages = ((0, 1), [[1, 4], [2, 6]]), ((1, 2), [[0, 5], [7, 3]])
    worst = price(compiled(layers, {"tensor": 2}), *stages)
    assert [s.load_ticks for s in worst.stages] == [2 + 124, 2 + 124]
    training = {"cost_model": {"transfer_link": "first_devices"}}
    first = price(compiled(layers, {"tensor": 2}, training=training), *stages)
    assert [s.load_ticks for s in first.stages] == [2 + 7, 2 + 7]


@pytest.mark.parametrize(
    ("devices", "parts"),
    [
        # At class 0 the gradients (1 + 7 = 8) arrive within the 20 + 24 of the pass run again.
        (([[1]], [[0]]), LoadParts(66, 44, 0, 0, 0, 0)),
        # At class 2 they take 100 + 7 * 4 = 128, 84 more than the pass.
        (([[4]], [[0]]), LoadParts(66, 44, 0, 0, 84, 0)),
    ],
)
def test_recomputation_at_the_price_of_a_backward_pass(devices: Any, parts: LoadParts) -> None:
    problem = compiled(
        training={"cost_model": {"recomputation": "backward_again"}},
        search={"recomputation": ["none", "stage"]},
    )
    stages = ((0, 2), devices[0]), ((2, 3), devices[1])
    found = price(problem, *stages, recomputation="stage")
    transfer = found.stages[1].load_parts_ticks.transfer_forward
    assert found.stages[0].load_parts_ticks == parts
    # The last stage recomputes nothing.
    assert found.stages[1].load_parts_ticks == LoadParts(42, 0, 0, transfer, 0, 0)
    plain = price(problem, *stages, recomputation="none")
    assert plain.stages[0].load_parts_ticks == LoadParts(66, 0, 0, 0, transfer, 0)


def test_a_transfer_without_bytes_costs_its_latency() -> None:
    problem = compiled([layer(1, 1), layer(1, 1)])
    found = price(problem, ((0, 1), [[0]]), ((1, 2), [[2]]))
    assert [s.load_ticks for s in found.stages] == [2 + 10, 2 + 10]


def test_a_cut_counts_every_tensor_that_is_still_needed() -> None:
    # Layer 0 (6 bytes) feeds layers 1 and 2, layer 1 (7 bytes) feeds layer 2: the cut before layer
    # 2 holds 13 bytes: 1 + 13 = 14.
    problem = load_problem(
        "worked-example-160",
        {
            "units": {"tick_seconds": 1, "quantum_bytes": 1},
            "cluster.levels": LEVELS[:2],
            "model.layers": [
                {"name": "a", "costs": [layer(1, 1, output_bytes=6)]},
                {"name": "b", "costs": [layer(1, 1, output_bytes=7)]},
                {"name": "c", "inputs": ["a", "b"], "costs": [layer(1, 1)]},
            ],
        },
    )
    found = price(compile_problem(problem), ((0, 2), [[0]]), ((2, 3), [[1]]))
    assert found.stages[1].load_parts_ticks.transfer_forward == 14


def test_the_worst_replica_counts() -> None:
    # Replica 0 crosses a node (10 + 7 * 2 = 24), replica 1 a rack (128), replica 2 nothing (8).
    found = price(compiled(batch=6), ((0, 2), [[0], [3], [6]]), ((2, 3), [[2], [5], [7]]), zero=3)
    first = found.stages[0]
    assert first.worst_replica == 1
    assert first.load_parts_ticks.transfer_backward == 128
    assert first.load_ticks == first.load_parts_ticks.total


def call(kind: str, axis: str, direction: str, size: float, count: int = 1) -> dict[str, Any]:
    return {"kind": kind, "axis": axis, "pass": direction, "bytes": size, "count": count}


@pytest.mark.parametrize(
    ("algorithm", "kind", "ticks"),
    [
        # Group {0, 1, 2, 3}, S = 12. Hierarchical: 1 + 10 latency, 1/2 * 12 * 1 + 1/2 * 6 * 2.
        ("hierarchical", "all_gather", 11 + 12),
        ("hierarchical", "reduce_scatter", 11 + 12),
        ("hierarchical", "all_reduce", 2 * (11 + 12)),
        # Ring: 3 * 10, and 3/4 * 12 * 2.
        ("ring", "all_gather", 30 + 18),
        ("ring", "reduce_scatter", 30 + 18),
        ("ring", "all_reduce", 2 * (30 + 18)),
        # The same under both: 3 * 10 + 3/4 * 12 * 2, and 3 * (10 + 12 * 2).
        ("hierarchical", "all_to_all", 48),
        ("ring", "all_to_all", 48),
        ("hierarchical", "ring_pass", 102),
        ("ring", "ring_pass", 102),
    ],
)
@pytest.mark.parametrize("axis", ["tensor", "context", "expert"])
def test_collectives_on_every_axis(axis: str, algorithm: str, kind: str, ticks: int) -> None:
    problem = compiled(
        [layer(1, 1, collectives=[call(kind, axis, "forward", 12, 3)])],
        {axis: 4},
        training={"all_reduce": algorithm},
    )
    found = one_stage(problem, [[0, 1, 2, 3]])
    assert found.stages[0].load_parts_ticks == LoadParts(2, 0, 3 * ticks, 0, 0, 0)


@pytest.mark.parametrize(
    ("recomputation", "extra"), [("none", 0), ("selective", 0), ("layer", 21), ("stage", 21)]
)
def test_full_recomputation_runs_the_forward_collectives_again(
    recomputation: str, extra: int
) -> None:
    # On {0, 1}: forward all-reduce of 6: 2 * (1 + 3) = 8, twice 16, and an all-gather of 8:
    # 1 + 4 = 5; backward all-reduce of 10: 2 * (1 + 5) = 12.
    calls = [
        call("all_reduce", "tensor", "forward", 6, 2),
        call("all_gather", "tensor", "forward", 8),
        call("all_reduce", "tensor", "backward", 10),
    ]
    problem = compiled([layer(1, 1, recompute_seconds=0, collectives=calls)], {"tensor": 2})
    found = one_stage(problem, [[0, 1]], recomputation=recomputation)
    assert found.stages[0].load_parts_ticks == LoadParts(2, extra, 33, 0, 0, 0)


def test_every_axis_has_its_own_groups() -> None:
    # t = c = e = 2 on {0..7}: tensor pairs have class 0, context pairs 1, expert pairs 2.
    # All-gather of 4: 1 + 2 = 3; 10 + 1/2 * 4 * 2 = 14; 100 + 1/2 * 4 * 4 = 108.
    calls = [call("all_gather", axis, "forward", 4) for axis in ("tensor", "context", "expert")]
    for chosen, ticks in zip(calls, (3, 14, 108), strict=True):
        problem = compiled(
            [layer(1, 1, collectives=[chosen])], {"tensor": 2, "context": 2, "expert": 2}
        )
        found = one_stage(problem, [list(range(8))])
        assert found.stages[0].load_parts_ticks.collectives == ticks


def test_groups_of_a_stage() -> None:
    template = Template(tensor=2, context=3, expert=2)
    devices = tuple(range(100, 112))
    assert axis_groups(template, devices, "tensor") == [
        (100, 101), (102, 103), (104, 105), (106, 107), (108, 109), (110, 111)
    ]  # fmt: skip
    assert axis_groups(template, devices, "context") == [
        (100, 102, 104), (101, 103, 105), (106, 108, 110), (107, 109, 111)
    ]  # fmt: skip
    assert axis_groups(template, devices, "expert") == [
        (100, 106), (101, 107), (102, 108), (103, 109), (104, 110), (105, 111)
    ]  # fmt: skip
    replicas = (devices, tuple(range(200, 212)))
    dense = dense_groups(template, replicas)
    assert dense == [
        (*range(100, 112, 2), *range(200, 212, 2)),
        (*range(101, 112, 2), *range(201, 212, 2)),
    ]
    assert expert_groups(template, replicas) == [
        (100, 102, 104, 200, 202, 204),
        (101, 103, 105, 201, 203, 205),
        (106, 108, 110, 206, 208, 210),
        (107, 109, 111, 207, 209, 211),
    ]


def test_the_worst_group_of_scattered_devices_counts() -> None:
    # t = c = 2 on [0, 1, 2, 4]: tensor groups {0, 1} (class 0) and {2, 4} (class 2): an all-gather
    # of 4 costs 100 + 1/2 * 4 * 4 = 108. Context groups {0, 2} (class 1) and {1, 4} (class 2): 108.
    for axis in ("tensor", "context"):
        problem = compiled(
            [layer(1, 1, collectives=[call("all_gather", axis, "forward", 4)])],
            {"tensor": 2, "context": 2},
        )
        found = one_stage(problem, [[0, 1, 2, 4]])
        assert found.stages[0].load_parts_ticks.collectives == 108


def test_the_order_of_devices_makes_the_groups() -> None:
    # The same four devices; listed as [0, 2, 1, 3] a tensor pair crosses nodes: 10 + 4 = 14, not 3.
    problem = compiled(
        [layer(1, 1, collectives=[call("all_gather", "tensor", "forward", 4)])],
        {"tensor": 2, "context": 2},
    )
    assert one_stage(problem, [[0, 1, 2, 3]]).stages[0].load_parts_ticks.collectives == 3
    assert one_stage(problem, [[0, 2, 1, 3]]).stages[0].load_parts_ticks.collectives == 14


def test_each_call_has_its_own_worst_group() -> None:
    # Nodes of two, six of them; 0 s and 1 s per byte inside, 10 s and 1 s per byte between.
    # Tensor groups P = {0, 2, 4}: 2 * 10 latency, 2/3 S; and Q = {6, 7, 8}: 10 latency,
    # 1/2 S + 1/4 S. All-gather of 12: P 28, Q 19. Of 240: P 180, Q 190. Together 28 + 190 = 218,
    # more than either group has by itself (208 and 209).
    levels = [
        {"size": 2, "latency_seconds": 0, "bandwidth_bytes_per_second": 1},
        {"size": 6, "latency_seconds": 10, "bandwidth_bytes_per_second": 1},
    ]
    calls = [call("all_gather", "tensor", "forward", size) for size in (12, 240)]
    problem = compiled([layer(1, 1, collectives=calls)], {"tensor": 3, "context": 2}, levels=levels)
    found = one_stage(problem, [[0, 2, 4, 6, 7, 8]])
    assert found.stages[0].load_parts_ticks.collectives == 218


def test_prices_are_rounded_up_call_by_call() -> None:
    # All-gather of 1 byte on {0, 1}: 1 + 1/2 -> 2 ticks; three calls 6, not ceil(4.5) = 5.
    problem = compiled(
        [layer(1, 1, collectives=[call("all_gather", "tensor", "forward", 1, 3)])], {"tensor": 2}
    )
    assert one_stage(problem, [[0, 1]]).stages[0].load_parts_ticks.collectives == 6


def test_exposed_shares() -> None:
    # Collectives by 1/2: all-reduce of 6 on {0, 1}: 8 -> 4, all-gather of 8: 5 -> 2.5 -> 3; two
    # calls of each: 8 + 6. Transfers by 1/4: cut of 6 at class 1, 22 -> 5.5 -> 6.
    # Synchronisation by 3/4, d = 2, tensor index 0 on {0, 4} (class 2), gradients 2 * 3 = 6:
    # all-reduce latency 200 -> 150, share 2 * 1/2 * 6 * 4 = 24 -> 18.
    calls = [
        call("all_reduce", "tensor", "forward", 6, 2),
        call("all_gather", "tensor", "forward", 8, 2),
    ]
    problem = compiled(
        [layer(1, 1, output_bytes=6, weight_bytes=3, collectives=calls), layer(1, 1)],
        {"tensor": 2},
        training={
            "cost_model": {
                "exposed": {"collectives": 0.5, "transfers": 0.25, "synchronisation": 0.75}
            }
        },
    )
    found = price(problem, ((0, 1), [[0, 1], [4, 5]]), ((1, 2), [[2, 3], [6, 7]]))
    assert found.stages[0].load_parts_ticks == LoadParts(2, 0, 14, 0, 6, 0)
    assert found.stages[0].sync_parts_ticks == SyncParts(168, 0, 0)


# --- microbatches ---------------------------------------------------------------------------------


def test_the_last_microbatches_are_padded() -> None:
    # G = 7, d = 2: m = ceil(7 / 2) = 4, one sequence of padding.
    problem = compiled(batch=7)
    found = one_stage(problem, [[0], [1]], zero=3)
    assert found.microbatches == 4
    assert any("padding" in note and "1 sequences" in note for note in found.notes)
    # Load 30 + 36 + 42 = 108, and ZeRO 3 on {0, 1}: all-gathers of 8, 10, 12: 5, 6, 7, twice;
    # reduce-scatters of 16, 20, 24: 9, 11, 13: 36 + 33 = 69.
    assert found.batch_ticks == (4 + 1 - 1) * (108 + 69)


def test_expert_ranks_work_on_different_microbatches() -> None:
    # G = 8, d = 2, e = 2: m = 2.
    problem = compiled([layer(3, 4)], {"expert": 2}, batch=8)
    found = one_stage(problem, [[0, 1], [2, 3]])
    assert found.microbatches == 2 and found.batch_ticks == 2 * 7


def test_microbatch_size_scales_times_and_activations() -> None:
    # b = 2: m = 2; the layer takes 2 * (3 + 4) and leaves 2 * 5 behind; the weight stays.
    problem = compiled(
        [layer(3, 4, activation_bytes=5, weight_bytes=2)], search={"microbatch": [2]}
    )
    plan = plan_of(problem, ((0, 1), [[0]]), microbatch=2, microbatches=2)
    found = evaluate(problem, plan)
    assert found.batch_ticks == 2 * 14
    assert found.stages[0].memory_parts_quanta == MemoryParts(2, 4, 8, 10, 0, 0)


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recomputation", "activations", "working"),
    [
        # Two microbatches in flight at stage 0 of two; its layers are 0 and 1.
        ("none", 2 * (20 + 30), 0),
        ("selective", 2 * (12 + 18), 7),
        ("layer", 2 * (4 + 5), 30),
        # The one being worked on is not counted: 1 * the first layer's checkpoint.
        ("stage", 1 * 4, 20 + 30),
    ],
)
def test_activations_of_the_first_stage(recomputation: str, activations: int, working: int) -> None:
    found = price(compiled(), ((0, 2), [[1]]), ((2, 3), [[0]]), recomputation=recomputation)
    stage = found.stages[0]
    assert stage.in_flight == 2
    assert stage.memory_parts_quanta == MemoryParts(18, 36, 72, activations, working, 0)
    assert stage.memory_quanta == stage.memory_bytes == 126 + activations + working


@pytest.mark.parametrize(
    ("recomputation", "activations", "working"),
    [
        ("none", 2 * 30, 0),
        ("selective", 2 * 18, 7),
        ("layer", 2 * 5, 30),
        # The input of the stage is its cut (6 bytes), not its first layer's checkpoint (5).
        ("stage", 1 * 6, 30),
    ],
)
def test_activations_of_a_middle_stage(recomputation: str, activations: int, working: int) -> None:
    found = price(
        compiled(),
        ((0, 1), [[2]]),
        ((1, 2), [[1]]),
        ((2, 3), [[0]]),
        recomputation=recomputation,
    )
    assert [stage.in_flight for stage in found.stages] == [3, 2, 1]
    assert found.stages[1].memory_parts_quanta == MemoryParts(10, 20, 40, activations, working, 0)


def test_in_flight_by_the_stages_behind() -> None:
    # One microbatch, three stages: usually each keeps that one; here 3, 2 and 1.
    stages = ((0, 1), [[2]]), ((1, 2), [[1]]), ((2, 3), [[0]])
    assert [s.in_flight for s in price(compiled(batch=1), *stages).stages] == [1, 1, 1]
    problem = compiled(batch=1, training={"cost_model": {"in_flight": "stages_behind"}})
    found = price(problem, *stages)
    assert [s.in_flight for s in found.stages] == [3, 2, 1]
    activations = [s.memory_parts_quanta.activations for s in found.stages]
    assert activations == [3 * 20, 2 * 30, 40]


def test_no_more_microbatches_in_flight_than_there_are() -> None:
    # s = 3, m = 2: min(3, 2), min(2, 2), min(1, 2).
    found = price(compiled(batch=2), ((0, 1), [[2]]), ((1, 2), [[1]]), ((2, 3), [[0]]))
    assert [stage.in_flight for stage in found.stages] == [2, 2, 1]
    assert found.stages[0].memory_parts_quanta.activations == 2 * 20
    assert found.batch_ticks == (2 + 3 - 1) * max(s.load_ticks for s in found.stages)
    # m = 1: nothing but the microbatch being worked on.
    found = price(compiled(batch=1), ((0, 2), [[1]]), ((2, 3), [[0]]), recomputation="stage")
    assert [stage.in_flight for stage in found.stages] == [1, 1]
    assert found.stages[0].memory_parts_quanta.activations == 0
    assert found.stages[0].memory_parts_quanta.working == 50


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer", "gather"),
    [
        # Three replicas share layers of 8 and 10 bytes; divided first and rounded then:
        # weights 8/3 -> 3, 10/3 -> 4; gradients 16/3 -> 6, 20/3 -> 7; optimizer 32/3 -> 11,
        # 40/3 -> 14. ZeRO 3 adds the largest layer's weights, 10.
        (0, 18, 36, 72, 0),
        (1, 18, 36, 25, 0),
        (2, 18, 13, 25, 0),
        (3, 7, 13, 25, 10),
    ],
)
def test_zero_divides_the_state(
    zero: int, weights: int, gradients: int, optimizer: int, gather: int
) -> None:
    found = price(
        compiled(batch=6), ((0, 2), [[0], [2], [4]]), ((2, 3), [[1], [3], [5]]), zero=zero
    )
    assert found.stages[0].memory_parts_quanta == MemoryParts(
        weights, gradients, optimizer, 2 * 50, 0, gather
    )


@pytest.mark.parametrize(
    ("zero", "parts"),
    [
        # d = 2, c = 2, e = 2, t = 1: dense weights are shared by 2 * 2 * 2 = 8, experts' by 4.
        # Dense 16 and 4 bytes, expert 20 and 40.
        (0, MemoryParts(80, 160, 320, 0, 0, 0)),
        # Optimizer: 64/8 + 16/8 + 80/4 + 160/4 = 8 + 2 + 20 + 40.
        (1, MemoryParts(80, 160, 70, 0, 0, 0)),
        # Gradients: 32/8 + 8/8 + 40/4 + 80/4 = 4 + 1 + 10 + 20.
        (2, MemoryParts(80, 35, 70, 0, 0, 0)),
        # Weights: 16/8 + ceil(4/8) + 20/4 + 40/4 = 2 + 1 + 5 + 10; largest layer 4 + 40 = 44.
        (3, MemoryParts(18, 35, 70, 0, 0, 44)),
    ],
)
def test_experts_are_shared_by_fewer_ranks(zero: int, parts: MemoryParts) -> None:
    problem = compiled(
        [
            layer(1, 1, weight_bytes=16, expert_weight_bytes=20),
            layer(1, 1, weight_bytes=4, expert_weight_bytes=40),
        ],
        {"context": 2, "expert": 2},
    )
    found = one_stage(problem, [[0, 1, 2, 3], [4, 5, 6, 7]], zero=zero)
    assert found.stages[0].memory_parts_quanta == parts


def test_tensor_ranks_do_not_share_a_weight() -> None:
    problem = compiled([layer(1, 1, weight_bytes=8)], {"tensor": 2})
    found = one_stage(problem, [[0, 1], [2, 3]], zero=3)
    assert found.stages[0].memory_parts_quanta == MemoryParts(4, 8, 16, 0, 0, 8)


def test_quanta_are_rounded_up_part_by_part() -> None:
    # Quantum 4: weights 3 -> 1 each, gradients 6 -> 2, optimizer 12 -> 3, activations 5 -> 2.
    problem = compiled(
        [layer(1, 1, weight_bytes=3, activation_bytes=5)] * 2, units={"quantum_bytes": 4}
    )
    stage = one_stage(problem, [[0]]).stages[0]
    assert stage.memory_parts_quanta == MemoryParts(2, 4, 6, 4, 0, 0)
    assert (stage.memory_quanta, stage.memory_bytes) == (16, 64)


def test_memory_exactly_full_is_feasible_and_one_more_quantum_is_not() -> None:
    # One stage, d = 1: weights 30, gradients 60, optimizer 120, activations 90: 300.
    assert one_stage(compiled(memory=300), [[0]]).feasible
    found = one_stage(compiled(memory=299), [[0]])
    assert not found.feasible and found.violations[0].excess == 1
    assert found.batch_ticks == 4 * 108


# --- synchronisation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zero", "sync", "load"),
    [
        # Dense group {0, 2, 4}: at most 2 nodes in a rack and 2 racks: reduce-scatter or all-gather
        # of S costs 10 + 1/2 S * 2 + 100 + 1/2 (S/2) * 4 = 110 + 2 S. Gradients 16 and 20, weights
        # 8 and 10. All-reduce: 220 + 4 * 36.
        (0, 364, 0),
        # Reduce-scatter of gradients, all-gather of weights: 220 + 2 * 36 + 2 * 18.
        (1, 328, 0),
        # All-gather of weights alone; a reduce-scatter per layer and microbatch: 142 + 150.
        (2, 146, 292),
        # Nothing; two all-gathers of weights besides: 2 * (110 + 16) + 2 * (110 + 20) = 512.
        (3, 0, 292 + 512),
    ],
)
def test_zero_stages(zero: int, sync: int, load: int) -> None:
    found = price(
        compiled(batch=6),
        ((0, 2), [[0], [2], [4]]),
        ((2, 3), [[1], [3], [5]]),
        zero=[zero, 3],
    )
    first = found.stages[0]
    assert first.sync_parts_ticks == SyncParts(sync, 0, 0)
    assert first.load_parts_ticks.zero == load
    assert found.sigma_ticks == sync


def test_zero_collectives_are_not_repeated_by_recomputation() -> None:
    found = one_stage(compiled(batch=6), [[0], [2], [4]], zero=3, recomputation="layer")
    # 804 as above, and layer 2: 110 + 48 + 2 * (110 + 24); recomputation 11 + 13 + 15.
    assert found.stages[0].load_parts_ticks == LoadParts(108, 39, 0, 0, 0, 804 + 158 + 268)


def test_synchronisation_in_one_ring() -> None:
    # {0, 2, 4}: all-reduce latency 2 * 2 * 100 = 400; share 2 * 2/3 * S * 4: 16 -> 85.3 -> 86,
    # 20 -> 106.7 -> 107, 24 -> 128.
    problem = compiled(batch=6, training={"all_reduce": "ring"})
    assert one_stage(problem, [[0], [2], [4]]).sigma_ticks == 400 + 86 + 107 + 128


def test_one_replica_has_nothing_to_synchronise() -> None:
    for zero in (0, 1, 2, 3):
        found = one_stage(compiled(), [[0]], zero=zero)
        assert found.sigma_ticks == 0 and found.stages[0].load_parts_ticks.zero == 0


def test_context_ranks_synchronise_too() -> None:
    # d = 1, c = 2 on {0, 1}: all-reduce of 2 * 8 = 16: 2 * (1 + 8) = 18.
    problem = compiled([layer(1, 1, weight_bytes=8)], {"context": 2})
    assert one_stage(problem, [[0, 1]]).sigma_ticks == 18


def test_tensor_ranks_synchronise_only_with_their_like() -> None:
    # d = 2, t = 2: groups {0, 2} and {1, 3}, class 1: 2 * (10 + 1/2 * 16 * 2) = 52.
    problem = compiled([layer(1, 1, weight_bytes=8)], {"tensor": 2})
    assert one_stage(problem, [[0, 1], [2, 3]]).sigma_ticks == 52
    # Listed the other way round in the second replica: {0, 3} and {1, 2}, still class 1.
    assert one_stage(problem, [[0, 1], [3, 2]]).sigma_ticks == 52
    # {0, 1} in class 0 and {2, 4} in class 2: the worst group, 2 * (100 + 1/2 * 16 * 4) = 264.
    assert one_stage(problem, [[0, 2], [1, 4]]).sigma_ticks == 264


def test_dense_and_expert_weights_synchronise_one_after_the_other() -> None:
    # d = 2, e = 2 on [0, 1], [2, 3]. Dense group {0, 1, 2, 3}, gradients 16: 2 * (11 + 16) = 54.
    # Expert groups {0, 2} and {1, 3}, class 1, gradients 8: 2 * (10 + 8) = 36.
    experts = [layer(1, 1, weight_bytes=8, expert_weight_bytes=4)]
    problem = compiled(experts, {"expert": 2})
    found = one_stage(problem, [[0, 1], [2, 3]])
    assert found.stages[0].sync_parts_ticks == SyncParts(54, 36, 0)
    assert found.sigma_ticks == 90
    # Scattered, on [0, 1], [2, 4]. Dense {0, 1, 2, 4} branches (2, 2, 2): 2 * 111 + 2 * 24.
    # Experts {0, 2} and {1, 4}, the worst of class 2: 2 * (100 + 1/2 * 8 * 4) = 232.
    found = one_stage(problem, [[0, 1], [2, 4]])
    assert found.stages[0].sync_parts_ticks == SyncParts(222 + 48, 232, 0)


def test_zero_collectives_of_expert_weights() -> None:
    # ZeRO 2 on [0, 1], [2, 3]: reduce-scatter of 16 over four: 11 + 16 = 27, of 8 over {0, 2}: 18.
    # ZeRO 3 adds two all-gathers: of 8 over four: 11 + 8 = 19, of 4 over {0, 2}: 14.
    problem = compiled([layer(1, 1, weight_bytes=8, expert_weight_bytes=4)], {"expert": 2})
    for zero, ticks in ((2, 45), (3, 45 + 2 * 33)):
        found = one_stage(problem, [[0, 1], [2, 3]], zero=zero)
        assert found.stages[0].load_parts_ticks.zero == ticks


def test_latency_is_paid_once_per_stage_and_only_for_weights_it_holds() -> None:
    # d = 2, e = 2. Stage 0 holds dense weights alone, stage 1 expert weights alone, in two layers.
    problem = compiled(
        [
            layer(1, 1, weight_bytes=8),
            layer(1, 1, expert_weight_bytes=4),
            layer(1, 1, expert_weight_bytes=5),
        ],
        {"expert": 2},
    )
    found = price(problem, ((0, 1), [[0, 1], [2, 3]]), ((1, 3), [[4, 5], [6, 7]]))
    # Experts: 2 * 10 once, and 8 + 10 at 2 * 1/2 * 2 per byte.
    assert [s.sync_parts_ticks for s in found.stages] == [SyncParts(54, 0, 0), SyncParts(0, 56, 0)]


def test_a_stage_without_weights_pays_no_latency() -> None:
    problem = compiled([layer(1, 1, weight_bytes=8), layer(1, 1)])
    found = price(problem, ((0, 1), [[0], [4]]), ((1, 2), [[1], [5]]))
    assert [stage.sync_ticks for stage in found.stages] == [200 + 64, 0]


def test_slowest_or_first_stage() -> None:
    # {0, 1}: 2 * (1 + 8) = 18; {2, 3}: latency 2, then 20 + 24.
    stages = ((0, 1), [[0], [1]]), ((1, 3), [[2], [3]])
    slowest = price(compiled(), *stages)
    assert [stage.sync_ticks for stage in slowest.stages] == [18, 46]
    assert slowest.sigma_ticks == 46
    first = price(compiled(training={"cost_model": {"synchronisation": "first_stage"}}), *stages)
    assert first.sigma_ticks == 18
    assert slowest.batch_ticks is not None and first.batch_ticks == slowest.batch_ticks - 28


@pytest.mark.parametrize(
    ("replicas", "ticks"),
    [
        # Gradients of 16 + 20 + 24 = 60 bytes. {0, 1}: one halving, 1 + 60.
        ([[0], [1]], 61),
        # {0, 2}: one halving, then up and down the rack: 1 + 2 * 10, and 60 * (1 + 2 * 2).
        ([[0], [2]], 21 + 60 * 5),
        # {0, 2, 4, 6}: two halvings 2 and 60 * (1 + 1/2); the rack 2 * 10 and 60 * 2 * 2 more;
        # the rows 2 * 100 and 60 * 2 * 4 more, and once more all that was paid below.
        ([[0], [2], [4], [6]], 2 * (2 + 20) + 200 + 60 * 19),
    ],
)
def test_synchronisation_in_a_tree(replicas: Any, ticks: int) -> None:
    assert one_stage(compiled(training={"all_reduce": "tree"}), replicas).sigma_ticks == ticks


def test_a_tree_has_the_bandwidth_of_each_level_as_given() -> None:
    # The rows are as fast as the nodes; transfers and rings climb through the slow racks all the
    # same, the tree does not see them: 1.5 + 2 * 2 = 5.5, then 5.5 + 2 * 1 + 5.5 = 13 a byte.
    levels = [*LEVELS[:2], {**LEVELS[2], "bandwidth_bytes_per_second": 1}]
    problem = compiled(levels=levels, training={"all_reduce": "tree"})
    assert one_stage(problem, [[0], [2], [4], [6]]).sigma_ticks == 244 + 60 * 13


def test_synchronisation_is_rounded_to_multiples() -> None:
    # Multiples of 10: latency 2 -> 10, shares 16, 20, 24 -> 20, 20, 30.
    problem = compiled(units={"synchronisation_multiple_ticks": 10})
    assert one_stage(problem, [[0], [1]]).sigma_ticks == 80


# --- tied weights ---------------------------------------------------------------------------------


def test_a_tied_weight_counts_once_in_one_stage() -> None:
    # 3 of the last layer's 12 bytes are the first layer's: 8 + 10 + 9 = 27.
    problem = compiled(tied=3)
    found = one_stage(problem, [[0], [1]])
    assert found.stages[0].memory_parts_quanta == MemoryParts(27, 54, 108, 90, 0, 0)
    # All-reduce on {0, 1}: latency 2, gradients 16 + 20 + 18; no ring.
    assert found.stages[0].sync_parts_ticks == SyncParts(2 + 54, 0, 0)
    # ZeRO 3: layers of 8, 10 and 9: gathers 5, 6, ceil(1 + 4.5) = 6, twice; scatters 9, 11, 10.
    found = one_stage(problem, [[0], [1]], zero=3)
    assert found.stages[0].load_parts_ticks.zero == 2 * 17 + 30
    assert found.stages[0].memory_parts_quanta == MemoryParts(14, 27, 54, 90, 0, 10)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("last", "ring"),
    # A ring of two over the 6 bytes of gradients: 2 * (a + 1/2 * 6 * B).
    [(1, 2 * (1 + 3)), (2, 2 * (10 + 6)), (5, 2 * (100 + 12))],
)
def test_a_tied_weight_on_two_stages_is_exchanged(zero: int, last: int, ring: int) -> None:
    found = price(compiled(tied=3), ((0, 2), [[0]]), ((2, 3), [[last]]), zero=zero)
    assert [s.sync_parts_ticks for s in found.stages] == [SyncParts(0, 0, ring)] * 2
    assert found.sigma_ticks == ring
    # Both ends hold their whole weight.
    assert found.stages[1].memory_parts_quanta.optimizer == 48


def test_the_tied_ring_is_that_of_the_worst_replica_and_skips_the_middle() -> None:
    # Ends {0, 1}, class 0, and {2, 5}, class 2: 2 * (100 + 1/2 * 6 * 4) = 224 for both ends.
    found = price(
        compiled(tied=3), ((0, 1), [[0], [2]]), ((1, 2), [[6], [7]]), ((2, 3), [[1], [5]])
    )
    assert [stage.sync_parts_ticks.tied for stage in found.stages] == [224, 0, 224]
    # Added to what the stage synchronises anyway: {0, 2}: 2 * (10 + 16); {1, 5}: 2 * (100 + 48).
    assert [stage.sync_ticks for stage in found.stages] == [52 + 224, 2 + 20, 296 + 224]


def test_the_tied_ring_is_one_price_and_its_class_that_of_the_union() -> None:
    # Exposed by 1/3 and rounded once: (2 * (10 + 6)) / 3 = 10.7 -> 11. With t = 2 the union of
    # {0, 1} and {2, 3} is class 1. A ring, whatever the all-reduce algorithm.
    for algorithm in ("hierarchical", "ring"):
        problem = compiled(
            [layer(1, 1, weight_bytes=4)] * 2,
            {"tensor": 2},
            tied=3,
            training={
                "all_reduce": algorithm,
                "cost_model": {"exposed": {"synchronisation": 0.3333333333}},
            },
        )
        found = price(problem, ((0, 1), [[0, 1]]), ((1, 2), [[2, 3]]))
        assert found.sigma_ticks == 11


# --- plans that are no placement ------------------------------------------------------------------


def edited(problem: Compiled, change: Any, **fields: Any) -> Evaluation:
    """A good plan of four layers on two stages and two replicas, then edited by hand."""
    data = plan_of(
        problem, ((0, 2), [[1], [3]]), ((2, 4), [[0], [2]]), layout="pipeline-inner"
    ).to_dict()
    data.update(fields)
    change(data["stages"])
    return evaluate(problem, Plan.from_dict(data))


def nothing(stages: Any) -> None:
    """Leave the stages as they are."""


def constraints(found: Evaluation) -> list[tuple[str, str]]:
    return [(violation.constraint, violation.where) for violation in found.violations]


def assert_no_price(found: Evaluation) -> None:
    assert not found.feasible and found.violations
    assert found.batch_ticks is found.tau_ticks is found.sigma_ticks is None
    assert found.batch_seconds is found.sequences_per_second is found.bottleneck is None
    assert found.stages == ()
    with pytest.raises(PlanError, match="no placement"):
        found.require_price()


def test_a_layer_moved_to_the_other_stage_is_another_plan() -> None:
    def move(stages: Any) -> None:
        stages[0]["layers"], stages[1]["layers"] = [0, 3], [3, 4]

    found = edited(worked(1000), move)
    # Stage 0: 30 + 36 + 36 and the cut before layer 3: 2 MiB at class 0.
    assert found.feasible and found.tau_ticks == 104


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([[0, 2], [3, 4]], [("layers", "layer 2")]),
        ([[0, 3], [2, 4]], [("layers", "layer 2")]),
        ([[0, 1], [3, 4]], [("layers", "layers 1..2")]),
        ([[0, 2], [2, 3]], [("layers", "layer 3")]),
        ([[1, 2], [2, 4]], [("layers", "layer 0")]),
        ([[2, 4], [0, 2]], [("layers", "stages")]),
        ([[0, 4], [4, 4]], [("layers", "stage 1")]),
        ([[0, 4], [3, 2]], [("layers", "stage 1")]),
        ([[0, 2], [2, 5]], [("layers", "stage 1")]),
        ([[0, 2], [10, 2**60]], [("layers", "stage 1"), ("layers", "layers 2..3")]),
        ([[0, 4], [0, 4]], [("layers", "layers 0..3")]),
    ],
)
def test_layers_that_are_not_covered_once_and_in_order(runs: Any, expected: Any) -> None:
    def rewrite(stages: Any) -> None:
        for stage, run in zip(stages, runs, strict=True):
            stage["layers"] = run

    found = edited(worked(160), rewrite)
    assert_no_price(found)
    assert constraints(found) == expected


def test_a_dropped_stage() -> None:
    found = edited(worked(160), lambda stages: stages.pop())
    assert_no_price(found)
    assert constraints(found) == [("layers", "layers 2..3")]


def test_a_shared_device() -> None:
    def share(stages: Any) -> None:
        stages[1]["devices"] = [[1], [2]]

    found = edited(worked(160), share)
    assert_no_price(found)
    assert constraints(found) == [("devices", "stage 0, replica 0; stage 1, replica 0")]
    assert "device 1 is used 2 times" in found.violations[0].message


def test_a_device_that_does_not_exist() -> None:
    def leave(stages: Any) -> None:
        stages[1]["devices"] = [[0], [4]]

    found = edited(worked(160), leave)
    assert_no_price(found)
    assert constraints(found) == [("devices", "stage 1, replica 1")]
    assert "0..3" in found.violations[0].message


def test_missing_replicas_and_wrong_widths() -> None:
    def cut(stages: Any) -> None:
        stages[0]["devices"] = [[1]]
        stages[1]["devices"] = [[0, 3], []]

    found = edited(worked(160), cut)
    assert_no_price(found)
    assert constraints(found) == [
        ("devices", "stage 0"),
        ("devices", "stage 1, replica 0"),
        ("devices", "stage 1, replica 1"),
    ]


def test_a_wrong_number_of_microbatches() -> None:
    found = edited(worked(160), nothing, microbatches=5)
    assert_no_price(found)
    assert constraints(found) == [("microbatches", "plan")]
    assert "write 4" in found.violations[0].message
    assert [(c.field, c.claimed, c.computed) for c in found.claims] == [("microbatches", 5, 4)]


def test_a_microbatch_that_was_not_compiled() -> None:
    found = edited(worked(160), nothing, microbatch=2, microbatches=2)
    assert_no_price(found)
    assert constraints(found) == [("microbatch", "plan")]
    assert "search.microbatch (1,)" in found.violations[0].message


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"tensor": 2}, "tensor 2 to search.tensor"),
        ({"context": 2, "expert": 4}, "context 2 to search.context"),
        ({"sequence_parallel": True}, "tensor degree exceeds 1"),
        ({"tensor": 4, "sequence_parallel": False}, "false to search.sequence_parallel"),
    ],
)
def test_a_template_that_was_not_compiled(template: Any, message: str) -> None:
    found = edited(worked(160), nothing, template=template)
    assert_no_price(found)
    (violation,) = [v for v in found.violations if v.constraint == "template"]
    assert message in violation.message and "not compiled" in violation.message


def test_a_template_that_the_model_cannot_use() -> None:
    problem = compile_problem(load_problem("worked-example-160", {"search.tensor": [1, 2]}))
    found = edited(problem, nothing, template={"tensor": 2, "sequence_parallel": True})
    assert_no_price(found)
    (violation,) = [v for v in found.violations if v.constraint == "template"]
    assert "not valid for the model" in violation.message


def test_everything_wrong_is_said_at_once() -> None:
    def spoil(stages: Any) -> None:
        stages[0]["layers"] = [0, 1]
        stages[1]["devices"] = [[1], [9]]

    found = edited(
        worked(160), spoil, microbatch=3, microbatches=9, template={"expert": 2}, replicas=2**31
    )
    assert_no_price(found)
    assert {v.constraint for v in found.violations} == {
        "layers",
        "devices",
        "microbatch",
        "template",
        "microbatches",
    }
    assert all(v.message and v.where and v.excess is None for v in found.violations)
    json.dumps(found.to_dict())


def test_memory_of_every_stage_that_exceeds_it() -> None:
    found = edited(compile_problem(load_problem("worked-example-110")), nothing)
    # Stage 0: 10 + 10 + 60 + 2 * 36 = 152; stage 1: 10 + 10 + 60 + 40 = 120.
    assert constraints(found) == [("memory", "stage 0"), ("memory", "stage 1")]
    assert [v.excess for v in found.violations] == [42 * MIB, 10 * MIB]
    assert found.batch_ticks == 454 and found.memory_limit_bytes == 110 * MIB


# --- notes, claims, staleness ---------------------------------------------------------------------


def test_claims_are_computed_anew() -> None:
    def claim(stages: Any) -> None:
        stages[0].update(load_ticks=70, memory_bytes=152 * MIB)
        stages[1].update(load_ticks=81, memory_bytes=1)

    found = edited(worked(160), claim)
    assert found.feasible
    assert [(c.where, c.field, c.claimed, c.computed) for c in found.claims] == [
        ("stage 1", "load_ticks", 81, 82),
        ("stage 1", "memory_bytes", 1, 120 * MIB),
    ]


def test_a_plan_for_another_problem_is_stale() -> None:
    problem = worked(160)
    assert not edited(problem, nothing).stale
    assert not edited(problem, nothing, digest=problem.digest).stale
    found = edited(problem, nothing, digest=worked(110).digest)
    assert found.stale and found.feasible and found.batch_ticks == 454


def test_devices_that_do_not_follow_the_named_layout() -> None:
    problem = worked(160)
    assert edited(problem, nothing).notes == ()
    (note,) = edited(problem, nothing, layout="data-inner").notes
    assert "do not follow the layout 'data-inner'" in note and "stage 0, replica 0" in note
    (note,) = edited(problem, nothing, layout="explicit").notes
    assert "'explicit' is not in search.layouts" in note


def test_the_order_of_a_layout_counts() -> None:
    problem = compiled([layer(1, 1)], {"tensor": 2})
    plan = plan_of(problem, ((0, 1), [[1, 0]]), layout="data-inner")
    assert any("do not follow" in note for note in evaluate(problem, plan).notes)


def test_choices_outside_the_search_space_are_noted() -> None:
    problem = compile_problem(
        load_problem(
            "worked-example-1000",
            {
                "search.data_parallel": [1],
                "search.stages": [1],
                "search.layouts": ["data-inner"],
                "search.recomputation": ["layer"],
            },
        )
    )

    def choose(stages: Any) -> None:
        stages[0].update(zero=2, recomputation="layer")

    found = edited(problem, choose)
    assert found.feasible
    for text in (
        "2 replicas: not in search.data_parallel (1,)",
        "2 stages: not in search.stages (1,)",
        "stage 1: recomputation 'none'",
        "stage 0: ZeRO 2",
        "layout 'pipeline-inner' is not in search.layouts",
    ):
        assert any(text in note for note in found.notes), text
    assert len(found.notes) == 5


def test_more_replicas_than_microbatches_is_noted() -> None:
    # G = 2: with four replicas two of them only pad; 'any' ends at min(8, 2).
    found = one_stage(compiled(batch=2), [[0], [1], [2], [3]])
    assert any("ends at 2" in note for note in found.notes)


def test_uneven_replicas_are_noted_where_the_problem_wants_even_ones() -> None:
    problem = compiled(search={"data_parallel": "even"})
    found = one_stage(problem, [[0], [1], [2]])
    assert any("'even' excludes it" in note for note in found.notes)
    assert any("5 of 8 devices idle" in note for note in found.notes)


def test_to_dict_is_json_with_units_in_its_names() -> None:
    found = edited(worked(160), nothing)
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["batch_ticks"] == 454 and data["batch_seconds"] == 0.454
    assert data["stages"][0]["memory_parts_quanta"]["optimizer"] == 60
    assert data["stages"][0]["load_parts_ticks"]["transfer_backward"] == 4
    assert data["quantum_bytes"] == MIB


# --- what must hold for any plan ------------------------------------------------------------------


def rich(memory: int = 10**6) -> Compiled:
    """Four layers with everything that has a price: experts, collectives, a tied weight."""
    calls = [
        call("all_reduce", "tensor", "forward", 5, 2),
        call("all_gather", "tensor", "backward", 3),
    ]
    layers = [
        layer(
            3 + i,
            5 + i,
            recompute_seconds=3,
            selective_recompute_seconds=1,
            weight_bytes=7 + i,
            expert_weight_bytes=3 * i,
            activation_bytes=9 + i,
            attention_core_bytes=2 + i,
            checkpoint_bytes=2,
            output_bytes=4 + i,
            collectives=calls,
        )
        for i in range(4)
    ]
    return compiled(layers, {"tensor": 2}, memory=memory, tied=3, batch=5)


RICH = rich()
WARM = Evaluator(RICH)


@st.composite
def rich_plans(draw: st.DrawFn) -> Plan:
    """Any devices for any stage and replica."""
    stages, replicas = draw(
        st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)])
    )
    inner = draw(st.lists(st.integers(1, 3), min_size=stages - 1, max_size=stages - 1, unique=True))
    ends = [0, *sorted(inner), 4]
    order = iter(draw(st.permutations(range(8))))
    devices = [[[next(order), next(order)] for _ in range(replicas)] for _ in range(stages)]
    return plan_of(
        RICH,
        *(((ends[j], ends[j + 1]), devices[j]) for j in range(stages)),
        recomputation=[
            draw(st.sampled_from(["none", "selective", "layer", "stage"])) for _ in range(stages)
        ],
        zero=[draw(st.integers(0, 3)) for _ in range(stages)],
    )


def moved(plan: Plan, places: Sequence[int]) -> Plan:
    """The plan with device x replaced by places[x]."""
    data = plan.to_dict()
    for stage in data["stages"]:
        stage["devices"] = [[places[x] for x in group] for group in stage["devices"]]
    return Plan.from_dict(data)


@given(rich_plans(), st.lists(st.booleans(), min_size=7, max_size=7))
def test_renaming_devices_within_the_hierarchy_changes_nothing(
    plan: Plan, swaps: list[bool]
) -> None:
    # Swap the racks, the nodes of each rack, and the devices of each node, or not.
    places = []
    for x in range(8):
        rack, node, device = x // 4, x // 2 % 2, x % 2
        places.append(
            4 * (rack ^ swaps[0])
            + 2 * (node ^ swaps[1 + rack])
            + (device ^ swaps[3 + 2 * rack + node])
        )
    assert sorted(places) == list(range(8))
    assert WARM.evaluate(plan).stages == WARM.evaluate(moved(plan, places)).stages


@given(rich_plans(), st.randoms())
def test_the_order_of_replicas_changes_no_price(plan: Plan, random: Any) -> None:
    order = list(range(plan.replicas))
    random.shuffle(order)
    data = plan.to_dict()
    for stage in data["stages"]:
        stage["devices"] = [stage["devices"][r] for r in order]
    one, other = WARM.evaluate(plan), WARM.evaluate(Plan.from_dict(data))
    assert one.batch_ticks == other.batch_ticks
    assert [s.load_ticks for s in one.stages] == [s.load_ticks for s in other.stages]
    assert [s.sync_ticks for s in one.stages] == [s.sync_ticks for s in other.stages]


@given(rich_plans())
def test_what_an_evaluator_remembers_changes_no_answer(plan: Plan) -> None:
    assert WARM.evaluate(plan) == Evaluator(RICH).evaluate(plan)


@given(rich_plans(), st.integers(1, 600), st.integers(0, 600))
def test_more_memory_never_makes_a_plan_infeasible(plan: Plan, less: int, more: int) -> None:
    small, large = evaluate(rich(less), plan), evaluate(rich(less + more), plan)
    assert small.batch_ticks == large.batch_ticks
    assert large.feasible or not small.feasible
    assert small.feasible == all(stage.memory_bytes <= less for stage in small.stages)


@given(rich_plans())
def test_the_parts_add_up(plan: Plan) -> None:
    found = WARM.evaluate(plan)
    assert found.feasible and found.bottleneck is not None
    for stage in found.stages:
        assert stage.load_ticks == stage.load_parts_ticks.total
        assert stage.sync_ticks == stage.sync_parts_ticks.total
        assert stage.memory_quanta == stage.memory_parts_quanta.total
    assert found.tau_ticks == max(stage.load_ticks for stage in found.stages)
    assert found.tau_ticks == found.stages[found.bottleneck].load_ticks
    assert found.sigma_ticks == max(stage.sync_ticks for stage in found.stages)
    slots = found.microbatches + len(plan.stages) - 1
    assert found.batch_ticks == slots * found.tau_ticks + found.sigma_ticks


@given(rich_plans(), st.data())
def test_higher_zero_stages_never_hold_more_state(plan: Plan, data: st.DataObject) -> None:
    # Without the gathered layer of ZeRO 3, which is a cost and not a state.
    def state(zero: int) -> list[int]:
        changed = plan.to_dict()
        for stage in changed["stages"]:
            stage["zero"] = zero
        found = WARM.evaluate(Plan.from_dict(changed))
        parts = [stage.memory_parts_quanta for stage in found.stages]
        return [p.weights + p.gradients + p.optimizer for p in parts]

    zero = data.draw(st.integers(0, 2))
    assert all(a >= b for a, b in zip(state(zero), state(zero + 1), strict=True))
