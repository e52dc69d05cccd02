"""CP-SAT, with a model of its own in integers, finds the optimum of the DP in every cell."""

from random import Random

import pytest

from nest_opt.cells import list_cells
from nest_opt.certify import cp_sat
from nest_opt.certify.draw import draw
from nest_opt.certify.suite import cell_optima, load_suite
from nest_opt.compile import compile_problem
from nest_opt.constraints import built_in
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem

pytest.importorskip("ortools")

SAMPLE = 10


def disagreements(compiled):
    evaluator, optima = Evaluator(compiled), cell_optima(compiled)
    for cell in list_cells(compiled):
        answer = cp_sat.solve(
            compiled, cell, "minimum", None, time_limit=60.0, presolve=True, seed=1
        )
        found = answer.status
        if answer.status == "optimal":
            plan = cp_sat.decode(compiled, cell, answer.values)
            evaluation = evaluator.evaluate(plan)
            found = evaluation.batch_ticks if evaluation.feasible else evaluation.violations
        expected = "infeasible" if (ticks := optima[cell.label]) is None else ticks
        if found != expected:
            yield compiled.name, cell.label, found, expected


def test_every_cell_of_a_spread():
    wrong = [said for e in load_suite("small").sample(SAMPLE) for said in disagreements(e.compiled)]
    assert not wrong


@pytest.mark.heavy
def test_every_cell_of_the_suite():
    wrong = [said for e in load_suite("small").entries for said in disagreements(e.compiled)]
    assert not wrong


@pytest.mark.parametrize("name", built_in())
def test_constraints(name):
    """Their face for the integer programs is one for this model as well."""
    for number in range(3):
        data = draw(5, number).data
        free = compile_problem(load_problem(data))
        constraint = built_in()[name].sample(free, Random(number))
        data["search"]["constraints"] = [constraint.model_dump(mode="json")]
        assert not list(disagreements(compile_problem(load_problem(data))))
