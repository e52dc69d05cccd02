"""Questions to an engine: build a model in a child process, solve it, price what it returns.

Used by the harness, which asks them first, and by ``verify``, which asks them again.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from formulations import FORMULATIONS
from formulations.arcs import count_arcs
from nest_opt.cells import Cell, list_cells
from nest_opt.certify import cp_sat, highs, processes, pyomo_engines
from nest_opt.certify.answers import EngineAnswer, answer_of
from nest_opt.certify.certificate import BESIDES, Answer, Formulation, OptionSet, QuestionKind
from nest_opt.certify.engines import ENGINES, FIRST_ENGINE, load
from nest_opt.compile import Compiled
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.plan import Plan

#: No plan costs as much: the compiler refuses problems whose plans could.
NO_LIMIT = 2**62

#: The assignment model has variables for each layer, stage and choice; up to so many it is asked.
SMALL = 4000
#: The arcs model has a variable for each stage that there can be; up to so many it is asked.
FEW_ARCS = 200_000
#: Beyond so many runs of equal layers, counting them is slow.
MANY_RUNS = 8


@dataclass(frozen=True)
class Question:
    """One solve: a cell's model in one formulation, by one engine, under one set of options.

    CP-SAT has a model of its own, the formulation ``boundaries``.

    ``decision``: is there a plan with T <= ``limit`` (None: any plan)? ``minimum``: the best plan.
    ``fixed_plan``: does ``plan`` satisfy the decision model?
    """

    cell: Cell
    formulation: Formulation
    kind: QuestionKind
    limit: int | None
    options: OptionSet
    plan: Plan | None = None
    engine: str = FIRST_ENGINE

    def build(self, compiled: Compiled) -> Any:
        """The Pyomo model; not for ``boundaries``."""
        formulation = FORMULATIONS[self.formulation]
        if self.kind == "minimum":
            return formulation.build_minimum(compiled, self.cell)
        limit = NO_LIMIT if self.limit is None else self.limit
        model = formulation.build_decision(compiled, self.cell, limit)
        if self.plan is not None:
            formulation.fix_plan(model, compiled, self.cell, self.plan)
        return model

    def answer(
        self, compiled: Compiled, seconds: float, folder: str | None, *, again: bool = False
    ) -> EngineAnswer:
        """Ask it in this process; ``folder`` is for engines that read files.

        ``again`` lets HiGHS solve in a process in which it has solved before.
        """
        presolve, seed = self.options
        if self.formulation == "boundaries":
            return cp_sat.solve(
                compiled,
                self.cell,
                self.kind,
                self.limit,
                time_limit=seconds,
                presolve=presolve,
                seed=seed,
                plan=self.plan,
            )
        if self.engine == FIRST_ENGINE:
            return highs.solve(
                lambda: self.build(compiled),
                time_limit=seconds,
                presolve=presolve,
                seed=seed,
                again=again,
            )
        return pyomo_engines.solve(
            self.engine,
            lambda: self.build(compiled),
            time_limit=seconds,
            presolve=presolve,
            seed=seed,
            folder=folder,
        )

    def decode(self, compiled: Compiled, values: Mapping[str, float]) -> Plan:
        """The plan of a solution; raises :class:`nest_opt.errors.PlanError`."""
        if self.formulation == "boundaries":
            return cp_sat.decode(compiled, self.cell, values)
        plan: Plan = FORMULATIONS[self.formulation].decode(compiled, self.cell, values)
        return plan


def asked_besides(
    engine: str,
    cell: Cell,
    kind: QuestionKind,
    limit: int | None,
    plan: Plan | None = None,
    formulation: Formulation = "runs",
) -> Question:
    """The question as it is put to an engine other than HiGHS."""
    if engine == "cp-sat":
        formulation = "boundaries"
    return Question(cell, formulation, kind, limit, BESIDES, plan, engine)


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


def has_few_arcs(compiled: Compiled, cell: Cell) -> bool:
    """Whether the arcs model of a cell is small enough to be asked."""
    choices = len(compiled.search.recomputation) * len(compiled.search.zero)
    return count_arcs(compiled.layer_count, cell.stages, choices) <= FEW_ARCS


def asked_first(compiled: Compiled, cell: Cell) -> Formulation:
    """The formulation that is asked about a cell before any other.

    Counting runs of equal layers is fast where there are few; of layers that alternate, arcs, whose
    size does not depend on that, were refuted 50 times as fast (66 layers, 2 to 8 stages).
    """
    table = compiled.tables[cell.template, cell.microbatch]
    alike = groupby(zip(table.kind, table.cut_bytes, strict=True))
    many = sum(1 for _ in alike) > MANY_RUNS
    return "arcs" if many and has_few_arcs(compiled, cell) else "runs"


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
    load({question.engine for question in questions})
    with tempfile.TemporaryDirectory(prefix="nest-opt-") as folder:
        running = processes.run_each(
            [_task(compiled, question, limit, folder) for question in questions],
            jobs=jobs,
            seconds=limit,
            overall_seconds=None if deadline is None else left,
        )
        with contextlib.closing(running):
            for index, outcome in running:
                question = questions[index]
                yield index, _reply(evaluator, question, _answer_of(question.engine, outcome))


def _task(
    compiled: Compiled, question: Question, seconds: float, folder: str
) -> Callable[[], dict[str, Any]]:
    return lambda: question.answer(compiled, seconds, folder).to_json()


def _answer_of(engine: str, outcome: processes.Outcome) -> EngineAnswer:
    if engine == FIRST_ENGINE:
        return highs.answer_of(outcome)
    return answer_of(outcome, version=ENGINES[engine].version or "")


def _not_asked() -> EngineAnswer:
    return EngineAnswer(status="limit", detail="not asked: out of time", seconds=0.0)


def _reply(evaluator: Evaluator, question: Question, engine: EngineAnswer) -> Reply:
    """What an engine's answer is worth: the plan in it is decoded and priced."""
    plan, evaluation, priced, note = None, None, None, ""
    if engine.status in ("optimal", "feasible"):
        try:
            plan = question.decode(evaluator.compiled, engine.values or {})
            evaluation = evaluator.evaluate(plan)
        except Exception as error:  # a solution that nobody understands is no plan
            note = f"no plan can be read from the solution: {error}"
        else:
            if evaluation.feasible:
                priced = evaluation.batch_ticks
            else:
                note = f"the plan is not feasible: {evaluation.violations[0]}"
    answer = Answer(
        engine=question.engine,
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
