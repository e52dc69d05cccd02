"""The reference plan: the worked example, ties, infeasibility, and independence of the bounds."""

from __future__ import annotations

import pytest

from nest_opt import compile_problem, load_problem, solve

#: From the worked example in formulations/README.md: T, tau, sigma, d, layout, stages.
WORKED = {
    1000: (352, 144, 64, 4, "pipeline-inner", [((0, 4), "none")]),
    160: (454, 82, 44, 2, "pipeline-inner", [((0, 2), "none"), ((2, 4), "none")]),
    110: (584, 108, 44, 2, "pipeline-inner", [((0, 2), "layer"), ((2, 4), "layer")]),
}


@pytest.mark.parametrize("memory", WORKED)
@pytest.mark.parametrize("use_bounds", [True, False])
def test_worked_example(memory, use_bounds):
    solution = solve(load_problem(f"worked-example-{memory}"), use_bounds=use_bounds)
    plan = solution.plan
    assert plan is not None
    assert (
        solution.batch_ticks,
        solution.tau_ticks,
        solution.sigma_ticks,
        plan.replicas,
        plan.layout,
        [(stage.layers, stage.recomputation) for stage in plan.stages],
    ) == WORKED[memory]
    assert solution.status == "optimal"
    counts = solution.cells
    assert counts["total"] == counts["bounded"] + counts["solved"] == 16
    assert (counts["bounded"] == 0) is (not use_bounds)


def test_devices_grow_from_the_last_stage():
    plan = solve(load_problem("worked-example-160")).plan
    assert plan is not None
    assert [stage.devices for stage in plan.stages] == [((1,), (3,)), ((0,), (2,))]


def test_infeasible_has_no_plan_and_says_so():
    solution = solve(load_problem("worked-example-110", {"cluster.device.memory_bytes": 2**20}))
    assert solution.status == "infeasible"
    assert solution.plan is solution.batch_ticks is solution.batch_seconds is None
    assert solution.sequences_per_second is None
    assert solution.to_dict()["plan"] is None


def test_an_empty_search_space_is_infeasible():
    solution = solve(load_problem("worked-example-160", {"search.stages": [5]}))
    assert solution.status == "infeasible"
    assert solution.cells == {"total": 0, "excluded": 0, "bounded": 0, "solved": 0}


def test_ties_prefer_the_earlier_layout_and_weaker_choices():
    # One replica: both layouts are the same placement, and ZeRO changes nothing at all.
    overrides = {
        "search.data_parallel": [1],
        "search.stages": [2],
        "search.zero": [3, 2, 1, 0],
        "search.layouts": ["data-inner", "pipeline-inner"],
    }
    plan = solve(load_problem("worked-example-1000", overrides)).plan
    assert plan is not None
    assert plan.layout == "pipeline-inner"
    assert {stage.zero for stage in plan.stages} == {0}
    assert {stage.recomputation for stage in plan.stages} == {"none"}


def test_output_has_the_stable_fields():
    data = solve(load_problem("worked-example-160")).to_dict()
    assert list(data) == [
        "problem",
        "digest",
        "status",
        "batch_ticks",
        "tick_seconds",
        "batch_seconds",
        "sequences_per_second",
        "tau_ticks",
        "sigma_ticks",
        "plan",
        "cells",
        "wall_seconds",
    ]
    assert data["batch_seconds"] == pytest.approx(0.454)
    assert data["sequences_per_second"] == pytest.approx(8 / 0.454)
    assert list(data["plan"]) == [
        "digest",
        "microbatch",
        "replicas",
        "microbatches",
        "layout",
        "template",
        "stages",
    ]
    assert list(data["plan"]["stages"][0]) == [
        "layers",
        "recomputation",
        "zero",
        "load_ticks",
        "memory_bytes",
        "devices",
    ]


def test_solving_the_compiled_problem_is_the_same():
    compiled = compile_problem(load_problem("worked-example-160"))
    assert solve(compiled).plan == solve(load_problem("worked-example-160")).plan
