"""Questions to the engine: build a model in a child process, solve it, price what it returns.

Used by the harness, which asks them first, and by ``verify``, which asks them again.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from formulations import FORMULATIONS
from nest_opt.cells import Cell, list_cells
from nest_opt.certify import highs, processes
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.certificate import Answer, Formulation, OptionSet, QuestionKind
from nest_opt.compile import Compiled
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.plan import Plan

#: No plan costs as much: the compiler refuses problems whose plans could.
NO_LIMIT = 2**62

#: The assignment model has variables for each layer, stage and choice; up to so many it is asked.
SMALL = 4000


@dataclass(frozen=True)
class Question:
    """One solve: a cell's model in one formulation, under one set of options.

    ``decision``: is there a plan with T <= ``limit`` (None: any plan)? ``minimum``: the best plan.
    ``fixed_plan``: does ``plan`` satisfy the decision model?
    """

    cell: Cell
    formulation: Formulation
    kind: QuestionKind
    limit: int | None
    options: OptionSet
    plan: Plan | None = None

    def build(self, compiled: Compiled) -> Any:
        """The Pyomo model."""
        formulation = FORMULATIONS[self.formulation]
        if self.kind == "minimum":
            return formulation.build_minimum(compiled, self.cell)
        limit = NO_LIMIT if self.limit is None else self.limit
        model = formulation.build_decision(compiled, self.cell, limit)
        if self.plan is not None:
            formulation.fix_plan(model, compiled, self.cell, self.plan)
        return model


@dataclass(frozen=True)
class Reply:
    """An answer, with the plan that it returned and the evaluator's word on it."""

    answer: Answer
    plan: Plan | None = None
    evaluation: Evaluation | None = None


def is_small(compiled: Compiled, cell: Cell) -> bool:
    """Whether the assignment model of a cell is cheap enough to be asked."""
    choices = len(compiled.search.recomputation) * len(compiled.search.zero)
    return compiled.layer_count * cell.stages * choices <= SMALL


def bare(plan: Plan) -> Plan:
    """A plan without what its author claims about it."""
    return plan.model_copy(
        update={
            "digest": "",
            "stages": tuple(
                stage.model_copy(update={"load_ticks": None, "memory_bytes": None})
                for stage in plan.stages
            ),
        }
    )


def claimed(plan: Plan, evaluation: Evaluation) -> Plan:
    """A plan with the loads and memory that the evaluator computed."""
    return plan.model_copy(
        update={
            "stages": tuple(
                stage.model_copy(
                    update={
                        "load_ticks": computed.load_ticks,
                        "memory_bytes": computed.memory_bytes,
                    }
                )
                for stage, computed in zip(plan.stages, evaluation.stages, strict=True)
            )
        }
    )


def ask(
    evaluator: Evaluator,
    questions: Sequence[Question],
    *,
    jobs: int,
    seconds: float,
    deadline: float | None = None,
) -> Generator[tuple[int, Reply], None, None]:
    """Ask every question in a process of its own; yield ``(index, reply)`` as answers come in.

    ``seconds`` is the limit of each solve, ``deadline`` (of :func:`time.monotonic`) that of all of
    them; whatever it cuts off is answered by ``limit``. Close the iterator to stop early.
    """
    compiled = evaluator.compiled
    left = math.inf if deadline is None else deadline - time.monotonic()
    if left <= 0:
        for index, question in enumerate(questions):
            yield index, _reply(evaluator, question, _not_asked())
        return
    limit = min(seconds, left)
    running = processes.run_each(
        [_task(compiled, question, limit) for question in questions],
        jobs=jobs,
        seconds=limit,
        overall_seconds=None if deadline is None else left,
    )
    with contextlib.closing(running):
        for index, outcome in running:
            yield index, _reply(evaluator, questions[index], highs.answer_of(outcome))


def _task(compiled: Compiled, question: Question, seconds: float) -> Callable[[], dict[str, Any]]:
    def task() -> dict[str, Any]:
        answer = highs.solve(
            lambda: question.build(compiled),
            time_limit=seconds,
            presolve=question.options.presolve,
            seed=question.options.seed,
        )
        return answer.to_json()

    return task


def _not_asked() -> EngineAnswer:
    return EngineAnswer(status="limit", detail="not asked: out of time", seconds=0.0)


def _reply(evaluator: Evaluator, question: Question, engine: EngineAnswer) -> Reply:
    """What an engine's answer is worth: the plan in it is decoded and priced."""
    plan, evaluation, priced, note = None, None, None, ""
    if engine.status in ("optimal", "feasible"):
        try:
            formulation = FORMULATIONS[question.formulation]
            plan = formulation.decode(evaluator.compiled, question.cell, engine.values or {})
            evaluation = evaluator.evaluate(plan)
        except Exception as error:  # a solution that nobody understands is no plan
            note = f"no plan can be read from the solution: {error}"
        else:
            if evaluation.feasible:
                priced = evaluation.batch_ticks
            else:
                note = f"the plan is not feasible: {evaluation.violations[0]}"
    answer = Answer(
        formulation=question.formulation,
        question=question.kind,
        limit=question.limit,
        status=engine.status,
        detail=engine.detail[:1000],
        presolve=question.options.presolve,
        seed=question.options.seed,
        options=engine.options,
        bound=engine.bound,
        objective=engine.objective,
        nodes=engine.nodes,
        seconds=round(engine.seconds, 6),
        warnings=engine.warnings,
        version=engine.version,
        pyomo_version=engine.pyomo_version,
        priced_ticks=priced,
        note=note[:1000],
    )
    return Reply(answer, plan, evaluation)


def cells_by_label(compiled: Compiled) -> dict[str, Cell]:
    """The cells of the search space by their names."""
    return {cell.label: cell for cell in list_cells(compiled)}
