"""CP-SAT, with a model of its own in integers, finds the optimum of the DP in every cell."""

import pytest

from nest_opt.cells import list_cells
from nest_opt.certify import cp_sat
from nest_opt.certify.suite import cell_optima, load_suite
from nest_opt.evaluate import Evaluator

pytest.importorskip("ortools")

SAMPLE = 20


def disagreements(entry):
    evaluator, optima = Evaluator(entry.compiled), cell_optima(entry.compiled)
    for cell in list_cells(entry.compiled):
        answer = cp_sat.solve(
            entry.compiled, cell, "minimum", None, time_limit=60.0, presolve=True, seed=1
        )
        found = answer.status
        if answer.status == "optimal":
            plan = cp_sat.decode(entry.compiled, cell, answer.values)
            evaluation = evaluator.evaluate(plan)
            found = evaluation.batch_ticks if evaluation.feasible else evaluation.violations
        expected = "infeasible" if (ticks := optima[cell.label]) is None else ticks
        if found != expected:
            yield entry.name, cell.label, found, expected


def test_every_cell_of_a_spread():
    wrong = [said for e in load_suite("small").sample(SAMPLE) for said in disagreements(e)]
    assert not wrong


@pytest.mark.heavy
def test_every_cell_of_the_suite():
    wrong = [said for entry in load_suite("small").entries for said in disagreements(entry)]
    assert not wrong
