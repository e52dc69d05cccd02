"""The model that CP-SAT is given admits the plans that there are, at their price, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nest_opt.cells import Cell, list_cells
from nest_opt.certify import cp_sat
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.suite import cell_optima
from nest_opt.compile import Compiled, compile_problem
from nest_opt.errors import PlanError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.solve import solve

pytest.importorskip("ortools")


def ask(compiled: Compiled, cell: Cell, kind: Any, limit: int | None = None, **more: Any) -> Any:
    settings: dict[str, Any] = {"time_limit": 30.0, "presolve": True, "seed": 1, **more}
    return cp_sat.solve(compiled, cell, kind, limit, **settings)


def priced(compiled: Compiled, cell: Cell, answer: EngineAnswer) -> int | None:
    evaluation = Evaluator(compiled).evaluate(cp_sat.decode(compiled, cell, answer.values or {}))
    return evaluation.batch_ticks if evaluation.feasible else None


def optimal_cell(compiled: Compiled) -> tuple[Cell, Any]:
    solution = solve(compiled)
    plan = solution.plan
    assert plan is not None
    (cell,) = [
        c
        for c in list_cells(compiled)
        if (c.replicas, c.stages, c.layout) == (plan.replicas, len(plan.stages), plan.layout)
    ]
    return cell, solution


@pytest.fixture(scope="module", params=[(1000, 352), (160, 454), (110, 584)], ids=str)
def worked(request: pytest.FixtureRequest) -> tuple[Compiled, Cell, Any, int]:
    """The worked example at three sizes of memory, with the price told in the model's page."""
    memory, price = request.param
    compiled = compile_problem(load_problem(f"worked-example-{memory}"))
    return compiled, *optimal_cell(compiled), price


@pytest.mark.parametrize("presolve", [True, False])
def test_worked_examples(worked: Any, presolve: bool) -> None:
    compiled, cell, _, price = worked
    least = ask(compiled, cell, "minimum", presolve=presolve)
    assert (least.status, least.objective, least.bound) == ("optimal", price, price)
    assert priced(compiled, cell, least) == price
    assert ask(compiled, cell, "decision", price - 1, presolve=presolve).status == "infeasible"
    enough = ask(compiled, cell, "decision", price, presolve=presolve)
    assert enough.status == "optimal"
    assert priced(compiled, cell, enough) == price
    assert ask(compiled, cell, "decision").status == "optimal"
    assert ask(compiled, cell, "decision", -1).status == "infeasible"


def test_a_fixed_plan_is_admitted_at_its_price_alone(worked: Any) -> None:
    compiled, cell, solution, price = worked
    plan = solution.plan
    answer = ask(compiled, cell, "fixed_plan", price, plan=plan)
    assert answer.status == "optimal"
    found = cp_sat.decode(compiled, cell, answer.values)
    assert [s.layers for s in found.stages] == [s.layers for s in plan.stages]
    assert [s.devices for s in found.stages] == [s.devices for s in plan.stages]
    assert ask(compiled, cell, "fixed_plan", price - 1, plan=plan).status == "infeasible"
    assert "no plan is given" in ask(compiled, cell, "fixed_plan", price).detail


def test_a_plan_of_another_cell_cannot_be_fixed() -> None:
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, solution = optimal_cell(compiled)
    other = next(c for c in list_cells(compiled) if c.stages != cell.stages)
    answer = ask(compiled, other, "fixed_plan", 10**6, plan=solution.plan)
    assert (answer.status, "another cell" in answer.detail) == ("fault", True)


def test_options_are_read_back() -> None:
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, _ = optimal_cell(compiled)
    answer = ask(compiled, cell, "minimum", presolve=False, seed=7)
    assert answer.options == {
        "num_workers": 1,
        "random_seed": 7,
        "cp_model_presolve": False,
        "max_time_in_seconds": 30.0,
        "relative_gap_limit": 0.0,
        "absolute_gap_limit": 0.0,
    }
    assert answer.version == cp_sat.version()
    assert EngineAnswer.from_json(answer.to_json()) == answer


def test_no_time_is_a_limit_and_no_refutation() -> None:
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, _ = optimal_cell(compiled)
    answer = ask(compiled, cell, "minimum", time_limit=1e-9, presolve=False)
    assert answer.status in ("limit", "feasible")


def test_a_cell_of_another_problem_is_a_fault() -> None:
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, _ = optimal_cell(compiled)
    for wrong in (replace(cell, stages=5), replace(cell, replicas=3), replace(cell, microbatch=9)):
        answer = ask(compiled, wrong, "minimum")
        assert answer.status == "fault"
        assert "is no cell of" in answer.detail


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"start[0]": 0, "kind[0]": 9, "zero[0]": 0, "start[1]": 2, "kind[1]": 0, "zero[1]": 0},
        {"start[0]": float("inf")},
        {"start[0]": float("nan")},
    ],
)
def test_nonsense_is_no_plan(values: dict[str, float]) -> None:
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, _ = optimal_cell(compiled)
    with pytest.raises(PlanError, match="no plan"):
        cp_sat.decode(compiled, cell, values)


@pytest.mark.parametrize("seed", range(8))
def test_random_cells_have_the_optimum_of_the_dynamic_program(
    random_problem: Any, seed: int
) -> None:
    compiled = compile_problem(random_problem(seed))
    optima = cell_optima(compiled)
    for cell in list(list_cells(compiled))[seed % 3 :: 3]:
        answer = ask(compiled, cell, "minimum")
        expected = optima[cell.label]
        if expected is None:
            assert answer.status == "infeasible", cell.label
        else:
            assert answer.status == "optimal", (cell.label, answer.detail)
            assert priced(compiled, cell, answer) == expected, cell.label


def test_numbers_beyond_64_bits_are_refused() -> None:
    """CP-SAT checks its own sums; a model that it refuses is no refutation."""
    compiled = compile_problem(load_problem("worked-example-160"))
    cell, _ = optimal_cell(compiled)
    model = cp_sat.Model(compiled, cell, minimise=True)
    model.solver_model.add(2**62 * model.tau + 2**62 * model.sigma <= 2**62)
    status, detail = cp_sat.run(model.solver_model, model.solution, 5.0, True, 1, {})
    assert status == "fault"
    assert "refuses the model" in detail
