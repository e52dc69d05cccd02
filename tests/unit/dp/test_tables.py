"""Stage tables of the worked example, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nest_opt import compile_problem, load_problem
from nest_opt.dp.tables import INFINITE, Choice, Pricer, choices_of
from nest_opt.geometry import Geometry
from nest_opt.plan import Template


def pricer(name: str, replicas: int, microbatches: int, **overrides) -> tuple[Pricer, Geometry]:
    compiled = compile_problem(load_problem(name, overrides))
    table = compiled.tables[Template(), 1]
    return Pricer(compiled, table, replicas, microbatches, stages=2), Geometry.of(compiled)


def test_choices_come_weaker_recomputation_first_then_lower_zero():
    compiled = compile_problem(
        load_problem(
            "worked-example-160",
            {"search.recomputation": ["stage", "none"], "search.zero": [3, 0]},
        )
    )
    assert choices_of(compiled) == (
        Choice("none", 0),
        Choice("none", 3),
        Choice("stage", 0),
        Choice("stage", 3),
    )


def test_loads_of_the_last_stage_inside_a_node():
    price, geometry = pricer("worked-example-1000", replicas=2, microbatches=4)
    position = geometry.positions(Template(), 2, "pipeline-inner")[0]
    load = price.stage_table(position, 0).load[0]
    # Layers 2 and 3: 36 + 42, and 4 ticks for the 4 MiB that come in at 1000 MiB/s.
    assert load[2, 4] == 82
    # All layers in one stage: no transfer at all.
    assert load[0, 4] == 144
    # A stage [i, i) does not exist.
    assert load[2, 2] == INFINITE


def test_loads_across_nodes_pay_latency_and_the_slow_link():
    price, geometry = pricer("worked-example-1000", replicas=2, microbatches=4)
    position = geometry.positions(Template(), 2, "data-inner")[0]
    # 4 MiB at 250 MiB/s are 16 ms, and 2 ms of latency.
    assert price.stage_table(position, 0).load[0][2, 4] == 78 + 18


@pytest.mark.parametrize(
    ("recomputation", "in_flight", "expected"),
    [
        # Layers 0 and 1: weights 10, gradients 10, optimizer 60.
        ("none", 2, 80 + 2 * 36),
        ("layer", 2, 80 + 2 * 5 + 20),
        # The first stage's input is layer 0's checkpoint; the microbatch at work is not kept.
        ("stage", 2, 80 + 3 + 36),
        ("stage", 1, 80 + 36),
    ],
)
def test_memory_of_the_first_stage(recomputation, in_flight, expected):
    price, _ = pricer("worked-example-1000", replicas=1, microbatches=8)
    assert price.memory(Choice(recomputation, 0), in_flight)[0, 2] == expected


def test_stage_recomputation_keeps_the_cut_before_a_later_stage():
    price, _ = pricer("worked-example-1000", replicas=1, microbatches=8)
    # Layers 1 and 2: 12 + 12 + 72 of state; two copies of the 4 MiB cut; activations 32.
    assert price.memory(Choice("stage", 0), 3)[1, 3] == 96 + 2 * 4 + 32


def test_zero_divides_before_it_rounds():
    price, _ = pricer(
        "worked-example-1000",
        replicas=3,
        microbatches=2,
        **{"search.zero": [1, 3], "search.recomputation": ["none"]},
    )
    # ZeRO 1: weights 4 + 6, gradients 4 + 6, optimizer 24/3 + 36/3.
    assert price.memory(Choice("none", 1), 1)[0, 2] == 20 + 20 + 36
    # ZeRO 3: ceil(4/3) + ceil(6/3) twice, 20, and the largest layer whole.
    assert price.memory(Choice("none", 3), 1)[0, 2] == (2 + 2) * 2 + 20 + 6 + 36


def test_synchronisation_is_the_all_reduce_of_the_layers():
    price, geometry = pricer("worked-example-1000", replicas=2, microbatches=4)
    position = geometry.positions(Template(), 2, "pipeline-inner")[0]
    sync = price.stage_table(position, 0).sync[0]
    # Two devices in different nodes: per layer 2 * 1/2 * S / 250 MiB/s, rounded up by itself:
    # 6 MiB 24 ticks, 4 MiB 16 ticks, and 2 * 2 ms of latency once.
    assert sync[2, 4] == 24 + 16 + 4


def test_first_stage_rule_makes_later_rows_free():
    price, geometry = pricer(
        "worked-example-1000",
        replicas=2,
        microbatches=4,
        **{"training.cost_model": {"synchronisation": "first_stage"}},
    )
    sync = price.stage_table(geometry.positions(Template(), 2, "pipeline-inner")[0], 0).sync[0]
    assert sync[0, 4] > 0
    assert not np.any(sync[1:])
