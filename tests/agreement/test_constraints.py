"""Every engine understands constraints alike: DP, enumeration through the evaluator, both MILPs."""

from random import Random
from typing import Any

import pytest

from nest_opt.cells import list_cells
from nest_opt.certify.draw import draw
from nest_opt.certify.generate import outline
from nest_opt.certify.suite import (
    Entry,
    bound_complaints,
    cell_optima,
    program_complaints,
    solution_complaints,
)
from nest_opt.compile import compile_problem
from nest_opt.constraints import built_in
from nest_opt.enumerate import best_plan
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.solve import solve


def constrained(number: int, names: tuple[str, ...]) -> tuple[Entry, bool]:
    """A random problem with these constraints, and whether they change its answer."""
    random = Random(number)
    # Problems of odd number are mostly those with several cells, where a constraint can bite.
    data: dict[str, Any] = draw(5, 2 * number + 1).data
    free = compile_problem(load_problem(data))
    data["search"]["constraints"] = [
        built_in()[name].sample(free, random).model_dump(mode="json") for name in names
    ]
    compiled = compile_problem(load_problem(data))
    best = best_plan(compiled)
    entry = Entry(
        data,
        best.evaluation.batch_ticks if best.evaluation else None,
        best.plans,
        compiled.digest,
        outline(best.plan),
    )
    return entry, outline(best.plan) != outline(best_plan(free).plan)


def exact_complaints(entry: Entry) -> list[str]:
    evaluator = Evaluator(entry.compiled)
    wrong = []
    for use_bounds in (True, False):
        solution = solve(entry.compiled, use_bounds=use_bounds)
        wrong += solution_complaints(entry, solution, evaluator)
    return wrong + list(bound_complaints(entry))


def compare(name: str, enough: int) -> None:
    """DP and enumeration, until the constraint has changed the answer so many times."""
    binding = 0
    for number in range(120):
        entry, binds = constrained(number, (name,))
        binding += binds
        assert not exact_complaints(entry), f"problem {number}: {entry.data['search']}"
        if binding == enough:
            return
    raise AssertionError(f"{name} changed the answer {binding} times only")


@pytest.mark.parametrize("name", built_in())
def test_the_dynamic_program_agrees_with_enumeration(name):
    compare(name, 2)


@pytest.mark.heavy
@pytest.mark.parametrize("name", built_in())
def test_the_dynamic_program_agrees_with_enumeration_often(name):
    compare(name, 12)


@pytest.mark.parametrize("name", built_in())
def test_the_integer_programs_agree(name):
    entry, _ = constrained(100, (name,))
    assert not list(program_complaints(entry, ("runs", "assignment"), 4))


@pytest.mark.heavy
@pytest.mark.parametrize("name", built_in())
def test_the_integer_programs_agree_often(name):
    for number in range(101, 111):
        entry, _ = constrained(number, (name,))
        assert not list(program_complaints(entry, ("runs", "assignment"), 100))


def test_constraints_together():
    names = list(built_in())
    for number in range(20):
        together = tuple(Random(number).sample(names, 2 + number % 2))
        entry, _ = constrained(200 + number, together)
        assert not exact_complaints(entry), f"problem {number}: {entry.data['search']}"


@pytest.mark.parametrize("name", built_in())
def test_cp_sat_agrees(name):
    pytest.importorskip("ortools")
    from nest_opt.certify import cp_sat

    for number in range(2):
        entry, _ = constrained(300 + number, (name,))
        compiled, optima = entry.compiled, cell_optima(entry.compiled)
        evaluator = Evaluator(compiled)
        for cell in list_cells(compiled):
            answer = cp_sat.solve(
                compiled, cell, "minimum", None, time_limit=60, presolve=True, seed=1
            )
            found = None
            if answer.status == "optimal":
                plan = cp_sat.decode(compiled, cell, answer.values or {})
                evaluation = evaluator.evaluate(plan)
                assert evaluation.feasible, evaluation.violations
                found = evaluation.batch_ticks
            else:
                assert answer.status == "infeasible", answer.detail
            assert found == optima[cell.label], f"{cell.label}: {entry.data['search']}"
