"""What is true of the optimum of every problem."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nest_opt import compile_problem, evaluate, load_problem, solve
from nest_opt.enumerate import best_plan, count_plans

sys.path.insert(0, str(Path(__file__).parent))
from strategies import problems

COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}
MOST_PLANS = 3000


def placement(plan):
    return plan.model_dump(
        exclude={"stages": {"__all__": {"load_ticks", "memory_bytes"}}},
    )


@settings(max_examples=150, **COMMON)
@given(problems() | problems(hierarchical=False))
def test_dp_finds_what_enumeration_finds(data):
    compiled = compile_problem(load_problem(data))
    assume(count_plans(compiled) <= MOST_PLANS)
    best = best_plan(compiled)
    for use_bounds in (True, False):
        solution = solve(compiled, use_bounds=use_bounds)
        if best.plan is None:
            assert solution.status == "infeasible"
            continue
        assert solution.batch_ticks == best.evaluation.batch_ticks
        assert placement(solution.plan) == placement(best.plan)
        assert evaluate(compiled, solution.plan).claims == ()


@settings(max_examples=60, **COMMON)
@given(problems(), st.integers(1, 300))
def test_more_memory_never_costs_time(data, more):
    before = solve(load_problem(data)).batch_ticks
    larger = copy.deepcopy(data)
    larger["cluster"]["device"]["memory_bytes"] += more
    after = solve(load_problem(larger)).batch_ticks
    if before is not None:
        assert after is not None
        assert after <= before


@settings(max_examples=60, **COMMON)
@given(problems(), st.sampled_from(["recomputation", "zero", "layouts", "microbatch"]))
def test_a_shorter_list_never_saves_time(data, field):
    assume(len(data["search"][field]) > 1)
    whole = solve(load_problem(data)).batch_ticks
    shorter = copy.deepcopy(data)
    shorter["search"][field].pop()
    less = solve(load_problem(shorter)).batch_ticks
    if less is not None:
        assert whole is not None
        assert whole <= less


@settings(max_examples=40, **COMMON)
@given(problems(), st.sampled_from([10.0, 0.5]))
def test_faster_links_never_cost_time(data, factor):
    before = solve(load_problem(data)).batch_ticks
    other = copy.deepcopy(data)
    for level in other["cluster"]["levels"]:
        level["bandwidth_bytes_per_second"] *= factor
    after = solve(load_problem(other)).batch_ticks
    assert (before is None) == (after is None)
    if before is not None:
        assert (after <= before) if factor > 1 else (after >= before)


@settings(max_examples=40, **COMMON)
@given(problems())
def test_the_order_of_lists_does_not_matter(data):
    turned = copy.deepcopy(data)
    for field in ("recomputation", "zero", "layouts", "microbatch", "tensor", "context", "expert"):
        turned["search"][field].reverse()
    one, other = solve(load_problem(data)), solve(load_problem(turned))
    assert one.batch_ticks == other.batch_ticks
    if one.plan is not None:
        assert placement(one.plan) | {"digest": ""} == placement(other.plan) | {"digest": ""}
