from __future__ import annotations

from itertools import combinations, product
from math import gcd

import pytest

from formulations.costs import (
    MAX_DATA,
    Choice,
    Run,
    cell_costs,
    interval,
    linear,
    plan_of,
    stages_of,
    whole,
)
from nest_opt.cells import Cell, list_cells
from nest_opt.errors import CompileError, OverflowGuardError, PlanError
from nest_opt.plan import Template


def cell_of(compiled, **wanted):
    """The one cell with these fields."""
    cells = [c for c in list_cells(compiled) if all(getattr(c, k) == v for k, v in wanted.items())]
    assert len(cells) == 1
    return cells[0]


NONE, LAYER, STAGE = Choice("none", 0), Choice("layer", 0), Choice("stage", 0)


def test_intervals_of_both_layouts(worked):
    compiled = worked(160)
    inner = cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner")
    # The last stage lies first; a replica has a node of two devices.
    assert [list(interval(compiled, inner, r, 0)) for r in (0, 1)] == [[1], [3]]
    assert [list(interval(compiled, inner, r, 1)) for r in (0, 1)] == [[0], [2]]
    outer = cell_of(compiled, replicas=2, stages=2, layout="data-inner")
    assert [list(interval(compiled, outer, r, 0)) for r in (0, 1)] == [[2], [3]]
    assert [list(interval(compiled, outer, r, 1)) for r in (0, 1)] == [[0], [1]]


def test_loads_of_the_worked_example(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner"))
    (first,), (last,) = costs.positions[0].loads, costs.positions[1].loads
    assert first.work[NONE] == (30, 36, 36, 42)
    assert first.work[LAYER] == first.work[STAGE] == (40, 48, 48, 56)
    assert first.receive == (0, 0, 0, 0) and last.send == (0, 0, 0, 0)
    # A replica sits inside one node: 4 MiB take 4 ticks, 2 MiB take 2.
    assert first.send == last.receive == (0, 4, 4, 2)


def test_transfers_between_nodes(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=2, stages=2, layout="data-inner"))
    # 2 ms of latency and 4 ms per MiB.
    assert costs.positions[0].loads[0].send == (0, 18, 18, 10)


def test_replicas_that_lie_differently_have_rows_of_their_own(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=1, stages=4, layout="pipeline-inner"))
    # Devices 3, 2 | 1, 0: only the transfer between stages 1 and 2 leaves the node.
    assert [position.loads[0].receive[1] for position in costs.positions] == [0, 4, 18, 4]
    assert [position.loads[0].send[1] for position in costs.positions] == [4, 18, 4, 0]


def test_synchronisation_of_the_worked_example(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner"))
    (row,) = costs.positions[0].syncs
    # All-reduce of 4 MiB by two devices in different nodes: 2 * 1/2 * 16 ms, latency 2 * 2 ms.
    assert row.share[0] == (16, 24, 24, 16)
    assert row.dense_latency[0] == row.expert_latency[0] == 4
    assert costs.attainable_syncs == (20, 44, 68)
    # (454 - 20) / 5, (454 - 44) / 5, (454 - 68) / 5
    assert costs.corner_pairs(454) == ((86, 20), (82, 44), (77, 68))
    assert costs.corner_pairs(300) == ()


def test_memory_of_the_worked_example(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner"))
    first, last = (position.memory for position in costs.positions)
    # State 32, 48, 48, 32; two microbatches in flight at stage 0, one at stage 1.
    assert first[NONE].each == (72, 80, 80, 80) and last[NONE].each == (52, 64, 64, 56)
    assert first[LAYER].each == (38, 52, 52, 36) and first[LAYER].working == (20, 16, 16, 24)
    assert first[STAGE].each == last[STAGE].each == (52, 64, 64, 56)
    assert first[STAGE].entry[0] == 3 and last[STAGE].entry == (0, 0, 0, 0)
    # Stages of 1 + 3 and 3 + 1 layers take 184 and 232 MiB, says the model.
    assert sum(last[NONE].each[1:]) == 184 and sum(first[NONE].each[:3]) == 232


def test_runs_and_what_a_stage_has_room_for(worked):
    compiled = worked(160)
    costs = cell_costs(compiled, cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner"))
    assert costs.runs == (Run(0, 1), Run(1, 2), Run(3, 1))
    run = costs.runs[1]
    assert [run.among(n) for n in range(5)] == [0, 0, 1, 2, 2]
    assert costs.most(run, 0, NONE, 1000, 1000) == 2  # 2 * 80 = 160 MiB
    assert costs.most(run, 0, NONE, 73, 1000) == 1  # 2 * 36 + at least 2 of transfer
    assert costs.most(run, 0, NONE, 74, 1000) == 2
    assert costs.most(run, 0, NONE, 1000, 51) == 1  # 2 * 24 + 4
    assert costs.most(run, 0, NONE, 1000, 52) == 2


def test_a_layer_with_another_cut_before_it_starts_a_run(random_compiled):
    for seed in range(20):
        compiled = random_compiled(seed)
        cell = next(list_cells(compiled))
        table = compiled.tables[cell.template, cell.microbatch]
        costs = cell_costs(compiled, cell)
        assert sum(run.size for run in costs.runs) == compiled.layer_count
        assert costs.runs[0].size == 1
        for run in costs.runs:
            inside = range(run.first, run.end)
            assert len({table.kind[i] for i in inside}) == 1
            assert len({table.cut_bytes[i] for i in inside}) == 1


@pytest.mark.parametrize("seed", range(12))
def test_terms_add_up_to_the_slow_price(random_compiled, slow_price, seed):
    compiled = random_compiled(seed)
    layers = compiled.layer_count
    for cell in list_cells(compiled):
        costs, slow = cell_costs(compiled, cell), slow_price(compiled, cell)
        for j, (i, k), c in product(
            range(cell.stages), combinations(range(layers + 1), 2), costs.choices
        ):
            window = costs.window(j)
            last = j == cell.stages - 1
            if (
                i not in window
                or k - 1 not in window
                or (j == 0) != (i == 0)
                or last != (k == layers)
            ):
                continue
            load, sync, memory = slow.stage(j, i, k, *c)
            position = costs.positions[j]
            assert load == max(
                sum(row.work[c][i:k]) + row.receive[i] + (0 if last else row.send[k])
                for row in position.loads
            )
            assert sync == max(
                sum(row.share[c.zero][i:k])
                + row.dense_latency[c.zero] * any(costs.has_dense[i:k])
                + row.expert_latency[c.zero] * any(costs.has_expert[i:k])
                + row.tied
                for row in position.syncs
            )
            terms = position.memory[c]
            assert memory == (
                sum(terms.each[i:k])
                + max(terms.working[i:k])
                + max(terms.gathered[i:k])
                + terms.entry[i]
            )
            assert load <= costs.load_ceiling and load % costs.load_unit == 0
            if j in costs.synchronised:
                assert sync % costs.sync_unit == 0


# In 182, different layers of a stage are worst in different replicas.
@pytest.mark.parametrize("seed", [*range(12), 182])
def test_every_sigma_is_attainable_and_every_tau_above_the_floor(random_compiled, slow_price, seed):
    compiled = random_compiled(seed)
    for cell in list_cells(compiled):
        costs, slow = cell_costs(compiled, cell), slow_price(compiled, cell)
        if len(costs.choices) ** cell.stages > 300:
            continue
        for stages in slow.plans():
            prices = [slow.stage(j, *stage) for j, stage in enumerate(stages)]
            assert max(prices[j][1] for j in costs.synchronised) in costs.attainable_syncs
            assert max(load for load, _, _ in prices) >= costs.load_floor


def test_corner_pairs_say_what_the_limit_says(random_compiled):
    for seed in range(6):
        compiled = random_compiled(seed)
        for cell in list_cells(compiled):
            costs = cell_costs(compiled, cell)
            limit = cell.slots * (costs.load_floor + 7) + max(costs.attainable_syncs) // 2
            pairs = costs.corner_pairs(limit)
            for tau in range(costs.load_floor, min(costs.load_ceiling, costs.load_floor + 20) + 1):
                for sigma in costs.attainable_syncs:
                    kept = any(tau <= load and sigma <= sync for load, sync in pairs)
                    assert kept == (cell.slots * tau + sigma <= limit)


def test_units_divide_all_terms(worked):
    compiled = worked(160)
    for cell in list_cells(compiled):
        costs = cell_costs(compiled, cell)
        per_tau, per_sigma = costs.objective_weights
        assert per_tau * costs.sync_unit == per_sigma * cell.slots * costs.load_unit
        assert gcd(per_tau, per_sigma) == 1


def test_plans_of_a_cell_and_of_others(worked):
    compiled = worked(160)
    cell = cell_of(compiled, replicas=2, stages=2, layout="pipeline-inner")
    plan = plan_of(compiled, cell, [0, 2], [NONE, LAYER])
    assert plan.digest == compiled.digest and plan.microbatches == 4
    assert [stage.devices for stage in plan.stages] == [((1,), (3,)), ((0,), (2,))]
    assert stages_of(compiled, cell, plan) == ([0, 2], [NONE, LAYER])
    other = cell_of(compiled, replicas=2, stages=2, layout="data-inner")
    with pytest.raises(PlanError, match="none of this cell's"):
        stages_of(compiled, other, plan)
    moved = plan.stages[0].model_copy(update={"devices": ((3,), (1,))})
    with pytest.raises(PlanError, match="none of this cell's"):
        stages_of(compiled, cell, plan.model_copy(update={"stages": (moved, plan.stages[1])}))
    with pytest.raises(PlanError, match="not in the search space"):
        stages_of(compiled, cell, plan_of(compiled, cell, [0, 2], [NONE, Choice("none", 1)]))
    with pytest.raises(PlanError, match="do not cover"):
        stages_of(compiled, cell, plan_of(compiled, cell, [0, 0], [NONE, NONE]))


def test_cells_of_other_problems_are_refused(worked):
    compiled = worked(160)
    for cell in (
        Cell(1, 1, Template(), 5, "data-inner", 8),
        Cell(1, 1, Template(2), 1, "data-inner", 8),
        Cell(1, 3, Template(), 2, "data-inner", 3),
    ):
        with pytest.raises(CompileError):
            cell_costs(compiled, cell)


def test_numbers_too_large_for_a_solver_are_refused():
    with pytest.raises(OverflowGuardError, match="trusted up to"):
        linear(None, [(MAX_DATA + 1, object())])


def test_values_must_be_integral():
    assert whole({"x": 0.99991}, "x") == 1 and whole({}, "x") == 0
    for value in (0.5, 0.9998, float("nan"), float("inf")):
        with pytest.raises(PlanError, match="not an integer"):
            whole({"x": value}, "x")
