from __future__ import annotations

import pytest
from pyomo.environ import Constraint

from formulations import arcs
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
    condition, values = solve(arcs.build_minimum(compiled, cell))
    if best is None:
        assert condition == INFEASIBLE
        assert solve(arcs.build_decision(compiled, cell, 10**6))[0] == INFEASIBLE
        return None
    assert condition == OPTIMAL
    plan = arcs.decode(compiled, cell, values)
    assert slow.plan(stages_in(plan)) == best
    assert plan.digest == compiled.digest
    assert all(stage.load_ticks is stage.memory_bytes is None for stage in plan.stages)
    for limit, expected in ((best, OPTIMAL), (best - 1, INFEASIBLE)):
        condition, values = solve(arcs.build_decision(compiled, cell, limit))
        assert condition == expected
        if values:
            found = arcs.decode(compiled, cell, values)
            assert slow.plan(stages_in(found)) == best
        model = arcs.build_decision(compiled, cell, limit)
        arcs.fix_plan(model, compiled, cell, plan)
        condition, values = solve(model)
        assert condition == expected
        if values:
            assert arcs.decode(compiled, cell, values) == plan
    model = arcs.build_minimum(compiled, cell)
    arcs.fix_plan(model, compiled, cell, plan)
    condition, values = solve(model)
    assert condition == OPTIMAL and arcs.decode(compiled, cell, values) == plan
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
        model = arcs.build_decision(compiled, cell, limit)
        assert not len(model.PAIRS)
        assert solve(model)[0] == INFEASIBLE


def test_every_component_belongs_to_a_family(worked):
    compiled = worked(110)
    tags = set(arcs.FAMILIES)
    for cell in list_cells(compiled):
        for model in (
            arcs.build_decision(compiled, cell, 1000),
            arcs.build_minimum(compiled, cell),
        ):
            named = {c.local_name for c in model.component_objects(Constraint)}
            assert named <= tags
            assert tags - named <= {"C3_pair"}
        assert arcs.__doc__ is not None
        assert all(tag in arcs.__doc__ for tag in tags)


def test_each_family_is_needed(solve, stages_in, slow_price, random_compiled, worked):
    """Without a family, some decision model finds a "plan" that the others rule out."""
    left = set(arcs.FAMILIES)
    for compiled in (worked(110), *(random_compiled(seed) for seed in range(40))):
        for cell in small_cells(compiled, 300):
            best = slow_price(compiled, cell).best()
            limit = 10**6 if best is None else best - 1
            for tag in sorted(left):
                model = arcs.build_decision(compiled, cell, limit)
                model.component(tag).deactivate()
                if solve(model)[0] == OPTIMAL:
                    left.discard(tag)
            if not left:
                return
    assert not left


def test_decode_refuses_what_is_no_plan(solve, worked):
    compiled = worked(160)
    cell = next(c for c in list_cells(compiled) if c.replicas == 2 and c.stages == 2)
    values = solve(arcs.build_minimum(compiled, cell))[1]
    with pytest.raises(PlanError, match="is 0 arcs"):
        arcs.decode(compiled, cell, {})
    name = next(n for n, v in values.items() if n.startswith("use[1,") and v > 0.5)
    with pytest.raises(PlanError, match="not an integer"):
        arcs.decode(compiled, cell, {**values, name: 0.6})
    arcs.decode(compiled, cell, {**values, name: 1 - 5e-5})
    other = next(n for n in values if n.startswith("use[1,") and n[6] != name[6])
    with pytest.raises(PlanError, match="starts at"):
        arcs.decode(compiled, cell, {**values, name: 0.0, other: 1.0})


def test_there_are_as_many_arcs_as_it_says(worked):
    compiled = worked(1000)
    for cell in list_cells(compiled):
        costs = cell_costs(compiled, cell)
        every = list(arcs.arcs_of(costs))
        most = arcs.count_arcs(costs.layers, costs.stages, len(costs.choices))
        assert len(every) <= most
        assert len({index for index, _ in every}) == len(every)


def test_a_plan_that_does_not_fit_is_infeasible_when_fixed(solve, stages_in, worked):
    roomy, tight = worked(1000), worked(110)
    cell = next(c for c in list_cells(roomy) if c.replicas == 2 and c.stages == 2)
    plan = arcs.decode(roomy, cell, solve(arcs.build_minimum(roomy, cell))[1])
    model = arcs.build_decision(tight, cell, 10**6)
    arcs.fix_plan(model, tight, cell, plan)
    assert solve(model)[0] == INFEASIBLE
