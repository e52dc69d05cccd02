"""The bounds never exceed what a plan of the cell really costs, and they close what they should."""

from __future__ import annotations

import pytest

from nest_opt import compile_problem, load_problem
from nest_opt.bounds import UNLIMITED, Bounds
from nest_opt.cells import list_cells
from nest_opt.dp.frontier import best_corners
from nest_opt.dp.recurrence import Family, Pipelines
from nest_opt.dp.tables import INFINITE
from nest_opt.geometry import Geometry

PROBLEMS = [
    ("worked-example-1000", {}),
    ("worked-example-160", {"search.zero": [0, 1, 2, 3]}),
    ("worked-example-110", {"training.all_reduce": "ring"}),
    ("worked-example-110", {"training.cost_model": {"synchronisation": "first_stage"}}),
]


@pytest.mark.parametrize(("name", "overrides"), PROBLEMS)
def test_bounds_are_below_the_optimum_of_every_cell(name, overrides):
    compiled = compile_problem(load_problem(name, overrides))
    geometry = Geometry.of(compiled)
    bounds = Bounds(compiled, geometry)
    checked = 0
    for cell in list_cells(compiled):
        pipelines = Pipelines(compiled, geometry, Family.of(cell), cell.stages)
        corners = best_corners(pipelines, cell.stages, cell.slots, int(INFINITE))
        if not corners:
            continue
        least = corners[0].batch_ticks
        assert bounds.work(cell) <= least
        assert bounds.may_reach(cell, least)
        assert bounds.may_reach(cell, UNLIMITED)
        checked += 1
    assert checked > 3


def test_counting_sees_that_memory_is_too_small():
    compiled = compile_problem(
        load_problem("worked-example-110", {"cluster.device.memory_bytes": 20 * 2**20})
    )
    bounds = Bounds(compiled, Geometry.of(compiled))
    assert not any(bounds.may_reach(cell, UNLIMITED) for cell in list_cells(compiled))


def test_work_bound_by_hand():
    # One device alone: 144 ticks a microbatch, eight microbatches, nothing to synchronise.
    compiled = compile_problem(load_problem("worked-example-1000"))
    bounds = Bounds(compiled, Geometry.of(compiled))
    cell = next(c for c in list_cells(compiled) if c.replicas == 1 and c.stages == 1)
    assert bounds.work(cell) == 8 * 144
    # Two stages in one replica: (144 + two transfers of 2 MiB) / 2, nine slots.
    cell = next(c for c in list_cells(compiled) if c.replicas == 1 and c.stages == 2)
    assert bounds.work(cell) == 9 * 74


def test_counting_is_exact_for_an_embedding_equal_blocks_and_a_head():
    compiled = compile_problem(
        load_problem("llama2-7b@h100-64", {"search.microbatch": [1], "search.tensor": [8]})
    )
    geometry = Geometry.of(compiled)
    bounds = Bounds(compiled, geometry)
    tight = total = 0
    for cell in list_cells(compiled):
        if cell.stages < 2:
            continue
        pipelines = Pipelines(compiled, geometry, Family.of(cell), cell.stages)
        corners = best_corners(pipelines, cell.stages, cell.slots, int(INFINITE))
        if not corners:
            continue
        total += 1
        assert bounds.may_reach(cell, corners[0].batch_ticks)
        tight += not bounds.may_reach(cell, corners[0].batch_ticks - 1)
    assert tight >= 0.9 * total
