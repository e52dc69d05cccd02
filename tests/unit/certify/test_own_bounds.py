"""The second listing of cells and the second set of bounds, against the first and against truth."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nest_opt.bounds import UNLIMITED, Bounds
from nest_opt.cells import list_cells
from nest_opt.certify.own_bounds import OwnBounds, own_cells, own_interval
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import all_plans, count_plans
from nest_opt.evaluate import Evaluator
from nest_opt.geometry import Geometry
from nest_opt.library import load_problem
from nest_opt.plan import Plan, Template
from nest_opt.problem import Problem
from nest_opt.solve import solve

WORKED = ("worked-example-1000", "worked-example-160", "worked-example-110")
SEEDS = range(40)
MOST_PLANS = 6000


def label(plan: Plan) -> str:
    return (
        f"b{plan.microbatch} d{plan.replicas} {plan.template.label} "
        f"s{len(plan.stages)} {plan.layout}"
    )


def optima(compiled: Compiled) -> dict[str, int]:
    """The least batch time of each cell that has a feasible plan, by pricing all plans."""
    evaluator, best = Evaluator(compiled), dict[str, int]()
    for plan in all_plans(compiled):
        evaluation = evaluator.evaluate(plan)
        if evaluation.feasible:
            price = evaluation.require_price()
            best[label(plan)] = min(price, best.get(label(plan), price))
    return best


def check(compiled: Compiled) -> tuple[int, int]:
    """Bounds never exceed the truth, and close whatever the other bounds close.

    Returns how many cells are closed by the optimum, and how many there are.
    """
    cells = {cell.label: cell for cell in list_cells(compiled)}
    own = {cell.label: cell for cell in own_cells(compiled)}
    assert set(own) == set(cells)
    best = optima(compiled)
    assert set(best) <= set(cells)
    optimum = min(best.values(), default=None)
    bounds, mine = Bounds(compiled, Geometry.of(compiled)), OwnBounds(compiled)
    closed = 0
    for name, cell in own.items():
        truth, other = best.get(name), cells[name]
        work = mine.work(cell)
        assert work >= bounds.work(other)
        if truth is not None:
            assert work <= truth, name
            assert bounds.work(other) <= truth, name
            assert mine.may_reach(cell, truth), name
            assert bounds.may_reach(other, truth), name
            assert mine.may_reach(cell, None), name
        if optimum is None:
            assert mine.may_reach(cell, None) == bounds.may_reach(other, UNLIMITED), name
            closed += not mine.may_reach(cell, None)
        else:
            for limit in (optimum - 1, optimum, work, 2 * work):
                if not bounds.may_reach(other, limit):
                    assert not mine.may_reach(cell, limit), (name, limit)
            closed += work >= optimum or not mine.may_reach(cell, optimum - 1)
    return closed, len(own)


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name: str) -> None:
    closed, total = check(compile_problem(load_problem(name)))
    assert total == 16 and closed >= 12


def test_random_problems(random_problem: Callable[[int], Problem]) -> None:
    closed = total = problems = 0
    for seed in SEEDS:
        compiled = compile_problem(random_problem(seed))
        if count_plans(compiled) > MOST_PLANS:
            continue
        found = check(compiled)
        closed, total, problems = closed + found[0], total + found[1], problems + 1
    assert problems >= 25
    assert closed > total / 2  # the bounds are not only valid, they are worth something


@pytest.mark.parametrize("overrides", [{}, {"search.data_parallel": "any", "search.zero": [1, 3]}])
def test_a_real_problem(overrides: dict[str, object]) -> None:
    compiled = compile_problem(load_problem("llama2-7b@h100-64", overrides))
    best = solve(compiled).batch_ticks
    assert best is not None
    cells = {cell.label: cell for cell in list_cells(compiled)}
    listed = own_cells(compiled)
    assert len(listed) == len(cells) and {cell.label for cell in listed} == set(cells)
    bounds, own = Bounds(compiled, Geometry.of(compiled)), OwnBounds(compiled)
    for cell in listed:
        other = cells[cell.label]
        assert own.work(cell) >= bounds.work(other), cell.label
        closed = own.work(cell) >= best or not own.may_reach(cell, best - 1)
        assert closed or bounds.may_reach(other, best - 1), cell.label


def test_layouts() -> None:
    # Ten devices, three replicas of two stages of one device: floor(10 / 3) = 3 per replica.
    one = Template()
    starts = [own_interval(10, one, 3, "pipeline-inner", r, 1).start for r in range(3)]
    assert starts == [1, 4, 7]
    wide = Template(tensor=2)
    assert own_interval(16, wide, 3, "data-inner", 2, 1) == range(10, 12)


@pytest.mark.parametrize(
    "search",
    [
        {"data_parallel": "even"},
        {"data_parallel": [1, 3, 4, 64]},
        {"stages": [2, 4, 99]},
        {"microbatch": [1, 3], "layouts": ["data-inner"]},
        {"tensor": [1, 2], "sequence_parallel": [True, False]},
    ],
)
def test_listing_follows_the_search_lists(search: dict[str, object]) -> None:
    overrides = {f"search.{name}": value for name, value in search.items()}
    compiled = compile_problem(load_problem("worked-example-160", overrides))
    listed = [cell.label for cell in own_cells(compiled)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {cell.label for cell in list_cells(compiled)}
