from __future__ import annotations

import pytest
from pyomo.environ import Constraint

from formulations import assignment, runs
from formulations.costs import cell_costs
from nest_opt.cells import list_cells
from nest_opt.errors import PlanError

OPTIMAL, INFEASIBLE = "convergenceCriteriaSatisfied", "provenInfeasible"


def small_cells(compiled, plans=1500):
    """Cells that the slow price gets through."""
    choices = len(compiled.search.recomputation) * len(compiled.search.zero)
    for cell in list_cells(compiled):
        if cell.stages <= 3 and choices**cell.stages <= plans:
            yield cell


def check_cell(solve, stages_in, slow, compiled, cell):
    """Both models of a cell against the price of every one of its plans; returns the minimum."""
    best = slow.best()
    condition, values = solve(runs.build_minimum(compiled, cell))
    if best is None:
        assert condition == INFEASIBLE
        assert solve(runs.build_decision(compiled, cell, 10**6))[0] == INFEASIBLE
        return None
    assert condition == OPTIMAL
    plan = runs.decode(compiled, cell, values)
    assert slow.plan(stages_in(plan)) == best
    assert plan.digest == compiled.digest
    assert all(stage.load_ticks is stage.memory_bytes is None for stage in plan.stages)
    for limit, expected in ((best, OPTIMAL), (best - 1, INFEASIBLE)):
        condition, values = solve(runs.build_decision(compiled, cell, limit))
        assert condition == expected
        if values:
            found = runs.decode(compiled, cell, values)
            assert slow.plan(stages_in(found)) == best
        model = runs.build_decision(compiled, cell, limit)
        runs.fix_plan(model, compiled, cell, plan)
        condition, values = solve(model)
        assert condition == expected
        if values:
            assert runs.decode(compiled, cell, values) == plan
    model = runs.build_minimum(compiled, cell)
    runs.fix_plan(model, compiled, cell, plan)
    condition, values = solve(model)
    assert condition == OPTIMAL and runs.decode(compiled, cell, values) == plan
    costs = cell_costs(compiled, cell)
    tau, sigma = round(values["tau"]), round(values["sigma"])
    assert cell.slots * tau * costs.load_unit + sigma * costs.sync_unit == best
    return best


@pytest.mark.parametrize(
    ("mebibytes", "best", "ends", "recomputation", "replicas"),
    [
        (1000, 352, [4], "none", 4),
        (160, 454, [2, 4], "none", 2),
        (110, 584, [2, 4], "layer", 2),
    ],
)
def test_worked_example(
    solve, stages_in, slow_price, worked, mebibytes, best, ends, recomputation, replicas
):
    compiled = worked(mebibytes)
    minima = {}
    for cell in list_cells(compiled):
        slow = slow_price(compiled, cell)
        minima[cell] = check_cell(solve, stages_in, slow, compiled, cell)
    assert min(value for value in minima.values() if value is not None) == best
    starts = [0, *ends[:-1]]
    reference = tuple(
        (start, end, recomputation, 0) for start, end in zip(starts, ends, strict=True)
    )
    (cell,) = (
        c
        for c in minima
        if c.replicas == replicas and c.stages == len(ends) and c.layout == "pipeline-inner"
    )
    assert minima[cell] == best
    assert slow_price(compiled, cell).plan(reference) == best


@pytest.mark.parametrize("seed", range(15))
def test_random_problems(solve, stages_in, slow_price, random_compiled, seed):
    compiled = random_compiled(seed)
    cells = list(small_cells(compiled))
    assert cells
    for cell in cells:
        check_cell(solve, stages_in, slow_price(compiled, cell), compiled, cell)


def test_without_a_corner_pair_the_solver_refutes(solve, worked):
    compiled = worked(160)
    for limit in (-1, 0, 10):
        cell = next(list_cells(compiled))
        model = runs.build_decision(compiled, cell, limit)
        assert not len(model.PAIRS)
        assert solve(model)[0] == INFEASIBLE


def test_every_component_belongs_to_a_family(worked):
    compiled = worked(110)
    tags = {*runs.FAMILIES, *runs.STRENGTHENING}
    for cell in list_cells(compiled):
        for model in (
            runs.build_decision(compiled, cell, 1000),
            runs.build_minimum(compiled, cell),
        ):
            named = {c.local_name for c in model.component_objects(Constraint)}
            assert named <= tags
            assert tags - named <= {"C9_pair"}
        assert runs.__doc__ is not None
        assert all(tag in runs.__doc__ for tag in tags)


def test_each_family_is_needed(solve, stages_in, slow_price, random_compiled, worked):
    """Without a family, some decision model finds a "plan" that the others rule out."""
    left = set(runs.FAMILIES)
    for compiled in (worked(110), *(random_compiled(seed) for seed in range(40))):
        for cell in small_cells(compiled, 300):
            best = slow_price(compiled, cell).best()
            limit = 10**6 if best is None else best - 1
            for tag in sorted(left):
                model = runs.build_decision(compiled, cell, limit)
                for name in (tag, *runs.STRENGTHENING):
                    model.component(name).deactivate()
                if solve(model)[0] == OPTIMAL:
                    left.discard(tag)
            if not left:
                return
    assert not left


def test_decode_refuses_what_is_no_plan(solve, worked):
    compiled = worked(160)
    cell = next(c for c in list_cells(compiled) if c.replicas == 2 and c.stages == 2)
    values = solve(runs.build_minimum(compiled, cell))[1]
    with pytest.raises(PlanError, match="starts 0 times"):
        runs.decode(compiled, cell, {})
    name = next(n for n, v in values.items() if n.startswith("starts") and v > 0.5)
    with pytest.raises(PlanError, match="not an integer"):
        runs.decode(compiled, cell, {**values, name: 0.6})
    runs.decode(compiled, cell, {**values, name: 1 - 5e-5})
    name = next(n for n, v in values.items() if n.startswith("count") and v > 0.5)
    with pytest.raises(PlanError, match="no run"):
        runs.decode(compiled, cell, {**values, name: 0.0})


def test_a_plan_that_does_not_fit_is_infeasible_when_fixed(solve, stages_in, worked):
    roomy, tight = worked(1000), worked(110)
    cell = next(c for c in list_cells(roomy) if c.replicas == 2 and c.stages == 2)
    plan = runs.decode(roomy, cell, solve(runs.build_minimum(roomy, cell))[1])
    model = runs.build_decision(tight, cell, 10**6)
    runs.fix_plan(model, tight, cell, plan)
    assert solve(model)[0] == INFEASIBLE


@pytest.mark.parametrize("seed", range(15, 45))
def test_runs_and_assignment_agree(solve, stages_in, slow_price, random_compiled, seed):
    compiled = random_compiled(seed)
    for cell in small_cells(compiled, 10**4):
        slow, prices = slow_price(compiled, cell), []
        for formulation in (assignment, runs):
            condition, values = solve(formulation.build_minimum(compiled, cell))
            if condition == INFEASIBLE:
                prices.append(None)
                continue
            assert condition == OPTIMAL
            prices.append(slow.plan(stages_in(formulation.decode(compiled, cell, values))))
            assert prices[-1] is not None
        assert prices[0] == prices[1]
        if prices[0] is not None:
            for formulation in (assignment, runs):
                model = formulation.build_decision(compiled, cell, prices[0] - 1)
                assert solve(model)[0] == INFEASIBLE
