"""The list of plans and the order among them, against counts and comparisons done by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import all_plans, best_plan, count_plans, preference
from nest_opt.errors import InputError, NestOptError, PlanError
from nest_opt.evaluate import Evaluator, evaluate
from nest_opt.library import load_problem
from nest_opt.plan import Plan, Template


def worked(memory: int = 160, **search: Any) -> Compiled:
    overrides = {f"search.{name}": value for name, value in search.items()}
    return compile_problem(load_problem(f"worked-example-{memory}", overrides))


def small(
    layers: int = 3,
    templates: tuple[Template, ...] = (Template(),),
    devices: int = 4,
    batch: int = 4,
    memory: int = 10**6,
    seconds: int = 1,
    **search: Any,
) -> Compiled:
    """Equal layers without bytes, on nodes of two devices without cost: everything ties."""
    costs = [
        {
            "template": {
                "tensor": t.tensor,
                "context": t.context,
                "expert": t.expert,
                "sequence_parallel": t.sequence_parallel,
            },
            "forward_seconds": seconds,
            "backward_seconds": 0,
            "weight_bytes": 1,
        }
        for t in templates
    ]
    return compile_problem(
        load_problem(
            {
                "format": "nest-opt/problem/1",
                "name": "small",
                "model": {
                    "kind": "layers",
                    "name": "equal",
                    "layers": [{"name": "layer", "count": layers, "costs": costs}],
                },
                "cluster": {
                    "name": "nodes of two",
                    "device": {"name": "device", "memory_bytes": memory},
                    "devices": devices,
                    "levels": [
                        {"size": 2, "bandwidth_bytes_per_second": 1e20},
                        {"size": devices // 2, "bandwidth_bytes_per_second": 1e20},
                    ],
                },
                "training": {"global_batch": batch, "reserve_fraction": 0},
                "search": {
                    "microbatch": [1],
                    "tensor": [1],
                    "data_parallel": "any",
                    "recomputation": ["none"],
                    "zero": [0],
                    **search,
                },
                "units": {
                    "tick_seconds": 1,
                    "quantum_bytes": 1,
                    "synchronisation_multiple_ticks": 1,
                },
            }
        )
    )


def frames(problem: Compiled) -> set[tuple[int, int, str, int, str]]:
    """(b, d, template, s, layout) that occur among the plans."""
    return {
        (p.microbatch, p.replicas, p.template.label, len(p.stages), p.layout)
        for p in all_plans(problem)
    }


# --- which plans there are ------------------------------------------------------------------------


def test_worked_example_is_counted_by_hand() -> None:
    # Splits of 4 layers into s stages times 3 kinds of recomputation per stage:
    # s = 1: 3, s = 2: 3 * 9 = 27, s = 3: 3 * 27 = 81, s = 4: 81.
    # On four devices d = 1 allows s = 1..4, d = 2 s = 1, 2, d = 3 and d = 4 s = 1; two layouts.
    assert count_plans(worked()) == 2 * (192 + 30 + 3 + 3)


def test_a_pipeline_must_fit_into_its_share_of_the_devices() -> None:
    # d = 3 on 8 devices: floor(8 / 3) = 2 stages of one device, and 3 * 2 <= 8 < 3 * 3.
    problem = small(devices=8, data_parallel=[3])
    assert {(s, layout) for _, _, _, s, layout in frames(problem)} == {
        (1, "pipeline-inner"),
        (2, "pipeline-inner"),
        (1, "data-inner"),
        (2, "data-inner"),
    }


def test_devices_of_both_layouts_by_hand() -> None:
    # N = 10, d = 3, s = 2, w = 1: o = (1, 0), floor(10 / 3) = 3.
    problem = small(layers=2, devices=10, data_parallel=[3], stages=[2])
    found = {p.layout: [stage.devices for stage in p.stages] for p in all_plans(problem)}
    assert found == {
        "pipeline-inner": [((1,), (4,), (7,)), ((0,), (3,), (6,))],
        "data-inner": [((3,), (4,), (5,)), ((0,), (1,), (2,))],
    }


def test_wide_stages_by_hand() -> None:
    # N = 8, d = 2, s = 2, w = 2: o = (2, 0), floor(8 / 2) = 4.
    problem = small(2, (Template(2),), devices=8, tensor=[2], sequence_parallel=[False],
                    data_parallel=[2], stages=[2])  # fmt: skip
    found = {p.layout: [stage.devices for stage in p.stages] for p in all_plans(problem)}
    assert found == {
        "pipeline-inner": [((2, 3), (6, 7)), ((0, 1), (4, 5))],
        "data-inner": [((4, 5), (6, 7)), ((0, 1), (2, 3))],
    }


@pytest.mark.parametrize(
    ("data_parallel", "batch", "expected"),
    [
        ("any", 6, [1, 2, 3, 4, 5, 6]),
        ("any", 100, [1, 2, 3, 4, 5, 6, 7, 8]),
        ("even", 6, [1, 2, 3, 6]),
        ("even", 100, [1, 2, 4, 5]),
        ([2, 4, 7], 6, [2, 4, 7]),
        ([9], 100, []),
    ],
)
def test_data_parallel_degrees(data_parallel: Any, batch: int, expected: list[int]) -> None:
    problem = small(devices=8, batch=batch, data_parallel=data_parallel, stages=[1])
    assert sorted({d for _, d, _, _, _ in frames(problem)}) == expected


def test_degrees_count_microbatch_and_expert_ranks() -> None:
    # G = 12. b = 1, e = 1: ceil(12) beyond N = 8; b = 4, e = 1: 3; b = 1, e = 2: w = 2, d <= 4;
    # b = 4, e = 2: ceil(12 / 8) = 2.
    templates = (Template(), Template(expert=2))
    problem = small(1, templates, devices=8, batch=12, microbatch=[1, 4], expert=[1, 2])
    degrees: dict[tuple[int, str], int] = {}
    for b, d, label, _, _ in frames(problem):
        degrees[b, label] = max(d, degrees.get((b, label), 0))
    assert degrees == {(1, "t1"): 8, (4, "t1"): 3, (1, "t1.e2"): 4, (4, "t1.e2"): 2}
    # Evenly: d * b * e divides 12.
    problem = small(
        1, templates, devices=8, batch=12, microbatch=[1, 4], expert=[1, 2], data_parallel="even"
    )
    assert {(b, label, d) for b, d, label, _, _ in frames(problem)} == {
        (1, "t1", 1), (1, "t1", 2), (1, "t1", 3), (1, "t1", 4), (1, "t1", 6),
        (4, "t1", 1), (4, "t1", 3),
        (1, "t1.e2", 1), (1, "t1.e2", 2), (1, "t1.e2", 3),
    }  # fmt: skip


def test_sequence_parallelism_needs_tensor_parallelism_and_invalid_templates_are_skipped() -> None:
    # Offered: t1, t2, t2 with sequence parallelism, t4; asked for: t in 1, 2, 8, both ways.
    offered = (Template(), Template(2), Template(2, sequence_parallel=True), Template(4))
    problem = small(
        1, offered, devices=8, tensor=[1, 2, 8], sequence_parallel=[False, True], stages=[1]
    )
    assert {label for _, _, label, _, _ in frames(problem)} == {"t1", "t2", "t2s"}


def test_stage_counts_and_layouts_that_are_listed() -> None:
    problem = worked(stages=[2, 3, 9], layouts=["data-inner"], data_parallel=[1])
    assert {(s, layout) for _, _, _, s, layout in frames(problem)} == {
        (2, "data-inner"), (3, "data-inner")
    }  # fmt: skip
    assert count_plans(problem) == 27 + 81


PROBLEMS = [
    worked(),
    worked(zero=[0, 3], stages=[1, 2]),
    worked(data_parallel="even", microbatch=[1, 2], stages=[1, 3]),
    small(4, (Template(), Template(2)), 8, tensor=[1, 2], sequence_parallel=[False]),
    small(1),
    small(3, data_parallel=[9]),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_plan_is_listed_once(problem: Compiled) -> None:
    plans = list(all_plans(problem))
    assert len(plans) == count_plans(problem)
    assert len({str(plan.to_dict()) for plan in plans}) == len(plans)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_plan_is_a_placement_within_the_search_space(problem: Compiled) -> None:
    evaluator = Evaluator(problem)
    for plan in all_plans(problem):
        found = evaluator.evaluate(plan)
        assert found.batch_ticks is not None and not found.stale and not found.claims
        assert {violation.constraint for violation in found.violations} <= {"memory"}
        # The evaluator's own statement of the search space finds nothing outside of it.
        assert all("idle" in note or "padding" in note for note in found.notes), found.notes


def test_every_split_and_every_choice_occurs() -> None:
    problem = worked(layouts=["data-inner"], data_parallel=[1], stages=[2], zero=[0, 1])
    found = {
        tuple((s.layers, s.recomputation, s.zero) for s in plan.stages)
        for plan in all_plans(problem)
    }
    choices = list(itertools.product(["none", "layer", "stage"], [0, 1]))
    assert found == {
        (((0, cut), *one), ((cut, 4), *other))
        for cut in (1, 2, 3)
        for one in choices
        for other in choices
    }


def test_plans_survive_a_round_trip() -> None:
    for plan in itertools.islice(all_plans(worked()), 200):
        assert Plan.from_dict(plan.to_dict()) == plan


# --- which plan is best ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "batch", "d", "ends", "recomputation"),
    [
        (1000, 352, 4, [4], ["none"]),
        (160, 454, 2, [2, 4], ["none", "none"]),
        (110, 584, 2, [2, 4], ["layer", "layer"]),
    ],
)
def test_reference_plans_of_the_worked_example(
    memory: int, batch: int, d: int, ends: list[int], recomputation: list[str]
) -> None:
    problem = worked(memory)
    best = best_plan(problem)
    assert best.plan is not None and best.evaluation is not None
    assert best.evaluation.batch_ticks == batch and best.evaluation.feasible
    assert (best.plan.replicas, best.plan.layout) == (d, "pipeline-inner")
    assert [stage.layers[1] for stage in best.plan.stages] == ends
    assert [stage.recomputation for stage in best.plan.stages] == recomputation
    assert best.plans == 456 and best.feasible > 0
    assert best.plan.digest == problem.digest
    assert evaluate(problem, best.plan) == best.evaluation


@pytest.mark.parametrize("problem", [*PROBLEMS[:5], worked(110), worked(1000)])
def test_the_best_plan_is_the_first_in_a_total_order(problem: Compiled) -> None:
    evaluator = Evaluator(problem)
    ranked = {}
    for plan in all_plans(problem):
        found = evaluator.evaluate(plan)
        ranked[preference(found, plan)] = (plan, found.feasible)
    # No two plans compare equal, so there is one reference plan.
    assert len(ranked) == count_plans(problem)
    feasible = [key for key, (_, fits) in ranked.items() if fits]
    best = best_plan(problem)
    assert best.feasible == len(feasible)
    assert best.plan == ranked[min(feasible)][0]


def test_nothing_is_feasible() -> None:
    best = best_plan(small(memory=1))
    assert (best.plan, best.evaluation, best.feasible) == (None, None, 0)
    assert best.plans == count_plans(small(memory=1)) > 0


def test_there_are_no_plans_at_all() -> None:
    best = best_plan(small(data_parallel=[9]))
    assert (best.plan, best.plans) == (None, 0)


def test_the_limit_is_checked_before_anything_is_priced() -> None:
    with pytest.raises(InputError, match="456 plans, more than the limit of 455") as caught:
        best_plan(worked(), limit=455)
    assert isinstance(caught.value, NestOptError)
    assert best_plan(worked(), limit=456).plans == 456


def test_a_plan_without_a_price_has_no_preference() -> None:
    problem = worked()
    plan = next(all_plans(problem)).model_copy(update={"microbatches": 9})
    with pytest.raises(PlanError):
        preference(evaluate(problem, plan), plan)


# --- the tie-break, one rule at a time ------------------------------------------------------------


def best_of(problem: Compiled) -> Plan:
    plan = best_plan(problem).plan
    assert plan is not None
    return plan


def test_less_load_first() -> None:
    # Two stages, the first always slower (2 layers to 1 of 3 at equal times): recomputation in the
    # second stage would cost no batch time, but load.
    problem = small(3, stages=[2], data_parallel=[1], recomputation=["layer", "none"])
    assert [s.recomputation for s in best_of(problem).stages] == ["none", "none"]


def test_fewer_devices_where_times_tie() -> None:
    # Layers that take no time: every plan that synchronises nothing ties, and one device is fewest.
    plan = best_of(small(3, seconds=0))
    assert (plan.devices_used, len(plan.stages), plan.replicas) == (1, 1, 1)


def keys(*plans: tuple[Compiled, Plan]) -> list[tuple[Any, ...]]:
    return [preference(evaluate(problem, plan), plan) for problem, plan in plans]


def test_the_order_of_the_rules() -> None:
    # What the key holds, by position.
    problem = small(
        3, (Template(), Template(2, sequence_parallel=True)), tensor=[1, 2], data_parallel=[1],
        recomputation=["none", "selective", "layer", "stage"], zero=[0, 1, 2, 3], stages=[2],
    )  # fmt: skip
    plan = next(
        p
        for p in all_plans(problem)
        if p.layout == "data-inner"
        and p.template.tensor == 2
        and p.stages[0].layers == (0, 2)
        and [(s.recomputation, s.zero) for s in p.stages] == [("stage", 2), ("selective", 3)]
    )
    # Load of stage 0: 1 + 1, again recomputed, and the transfer back, rounded up to a tick;
    # stage 1: 1 and the transfer in, which carries no bytes and has no latency.
    ((batch, *rest),) = keys((problem, plan))
    assert batch == (4 + 2 - 1) * 4
    assert rest == [4 + 1, 4, 2, 1, 1, 2, 1, 1, True, 1, (2, 3), (3, 1), (2, 3)]


def test_layouts_rank_pipeline_inner_before_data_inner_before_explicit() -> None:
    problem = worked(data_parallel=[1], stages=[2])
    plan = best_of(problem)
    assert plan.layout == "pipeline-inner"
    others = [plan.model_copy(update={"layout": layout}) for layout in ("data-inner", "explicit")]
    ranked = keys((problem, plan), *((problem, other) for other in others))
    assert ranked == sorted(ranked) and len(set(ranked)) == 3


def test_stage_ends_before_recomputation_before_zero_whole_lists_at_a_time() -> None:
    # All times zero: every split and choice ties; 2^3 * 2^3 choices for each of the 3 splits.
    problem = small(
        4, data_parallel=[1], stages=[3], seconds=0, layouts=["pipeline-inner"],
        recomputation=["layer", "none"], zero=[1, 0],
    )  # fmt: skip
    ranked = sorted(all_plans(problem), key=lambda plan: preference(evaluate(problem, plan), plan))
    assert [[s.layers[1] for s in p.stages] for p in ranked[::64]] == [
        [1, 2, 4], [1, 3, 4], [2, 3, 4]
    ]  # fmt: skip
    # Within one split the whole list of recomputations decides before any ZeRO stage.
    kinds = [tuple(s.recomputation for s in p.stages) for p in ranked[:64:8]]
    assert kinds[0] == ("none", "none", "none")
    assert kinds[1] == ("none", "none", "layer")
    assert kinds[-1] == ("layer", "layer", "layer")
    zeros = [tuple(s.zero for s in p.stages) for p in ranked[:8]]
    assert zeros == list(itertools.product([0, 1], repeat=3))


def test_without_before_with_sequence_parallelism() -> None:
    offered = (Template(2), Template(2, sequence_parallel=True))
    problem = small(1, offered, tensor=[2], sequence_parallel=[True, False])
    assert best_of(problem).template == Template(2)
    problem = small(1, offered, tensor=[2], sequence_parallel=[True])
    assert best_of(problem).template == Template(2, sequence_parallel=True)


def test_smaller_microbatch_where_times_tie() -> None:
    # No time at all: b = 1, 2 and 4 tie in everything before b.
    assert best_of(small(2, microbatch=[4, 2, 1], seconds=0)).microbatch == 1
