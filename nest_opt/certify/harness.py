"""Certification: proof that the plan which the dynamic program found is the best one.

For a reported optimum T* (or "there is no plan"):

1. upper side: the evaluator prices the plan at exactly T*;
2. the evaluator prices every plan there is, if there are few;
3. completeness: the plan, fixed in the MILP of its cell, is feasible there;
4. lower side: every cell of the search space is closed, by a closed-form bound that two
   implementations agree on (the tightest of these cells are put to the MILP all the same), or by
   the MILP "a plan with T <= T* - 1 exists" being infeasible under two sets of options, or by a
   min-max model that runs to optimality under both and finds nothing better.

Engines other than HiGHS, where they are asked for, answer the same questions besides; nothing rests
on them, but what contradicts is a dispute.

No engine is believed: a plan counts once the evaluator has priced it, a refutation once it was
repeated. Whatever does not fit together ends in a verdict other than ``certified``:

=============  ====================================================================================
verdict        when
=============  ====================================================================================
``refuted``    some engine found a plan that the evaluator prices below T*
``disputed``   two engines contradict each other, and no such plan settles it
``fault``      a solver or an encoding broke, and its cell was not closed by other means
``open``       a limit was hit, or numbers are too large for a solver; the proven bound is given
``certified``  none of the above, all four parts done, every cell closed
=============  ====================================================================================
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence

from nest_opt.bounds import UNLIMITED, Bounds
from nest_opt.cells import Cell, list_cells
from nest_opt.certify import canaries, highs
from nest_opt.certify.certificate import (
    CHECKED_HIGHS,
    FIRST,
    SECOND,
    STAND_IN,
    Answer,
    BetterPlan,
    CellCounts,
    Certificate,
    CertificateUnits,
    Closure,
    Enumeration,
    Formulation,
    Method,
    Options,
    QuestionKind,
    Verdict,
    confirmed,
    contradiction,
)
from nest_opt.certify.engines import ENGINES, FIRST_ENGINE, besides, engine_of
from nest_opt.certify.own_bounds import OwnBounds, OwnCell, excluded_by, own_cells
from nest_opt.certify.questions import (
    Question,
    Reply,
    ask,
    asked_besides,
    asked_first,
    bare,
    claimed,
    has_few_arcs,
    is_small,
)
from nest_opt.certify.verify import plan_complaints
from nest_opt.compile import compile_problem
from nest_opt.constraints import source_digests
from nest_opt.dp.constrained import allowed_cells
from nest_opt.enumerate import best_plan, count_plans
from nest_opt.errors import EngineError, NestOptError
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.geometry import Geometry
from nest_opt.plan import Plan
from nest_opt.problem import Problem
from nest_opt.solve import Solution
from nest_opt.solve import solve as solve_problem

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

#: Problems with at most this many plans are enumerated.
ENUMERATION_LIMIT = 20_000
#: Wall clock of one solve, seconds.
SOLVE_LIMIT = 600.0
#: This many bounded cells, those whose bounds are nearest to T*, are put to the engine as well.
CROSS_CHECKS = 8
#: Wall clock of one such solve, seconds; a cell that needs longer stays bounded.
_CROSS_CHECK_LIMIT = 20.0
#: Wall clock for sharpening the bounds of cells that stay open, seconds.
_SHARPEN_SECONDS = 1.0

#: As many plans or more are not counted, but described by their power of ten.
_UNCOUNTED = 10**15
#: How many open cells are named one by one for each reason.
_NAMED = 5

_WORST_FIRST: tuple[Verdict, ...] = ("disputed", "fault", "open")
_SECOND_THOUGHTS: tuple[QuestionKind, ...] = ("decision", "minimum")
_FIRST_ASKED: tuple[Formulation, ...] = ("runs", "arcs")
_TOO_LARGE = "exception: OverflowGuardError"


def certify(
    problem: Problem,
    *,
    time_limit: float | None = None,
    jobs: int = 1,
    use_bounds: bool = True,
    progress: Progress | None = None,
    enumeration_limit: int = ENUMERATION_LIMIT,
    solve_limit: float = SOLVE_LIMIT,
    cross_checks: int = CROSS_CHECKS,
    engines: Sequence[str] = (),
) -> Certificate:
    """Solve a problem and prove the answer; the certificate's ``verdict`` says how that went.

    ``time_limit`` (seconds, None: none) is for the whole call; what is not done by then is
    ``open``. ``jobs`` solvers run at once, each in a process of its own and for at most
    ``solve_limit`` seconds. ``use_bounds=False`` closes no cell by a closed-form bound.
    ``enumeration_limit`` is the largest number of plans that are all priced. ``cross_checks`` cells
    that bounds have closed, those nearest to the optimum, are put to the engine as well.

    ``engines`` names others (:data:`nest_opt.certify.engines.ENGINES`) that are asked whatever
    HiGHS is asked. Nothing is certified by them, but one that contradicts makes the verdict
    ``disputed``.

    Raises what :func:`nest_opt.compile_problem` raises, ``EngineError`` where HiGHS is not the
    release that was checked, or another engine is unknown, not installed, or answers a canary
    wrongly, and ValueError for limits that are not positive.

    >>> import nest_opt
    >>> certificate = nest_opt.certify(nest_opt.load_problem("worked-example-160"))
    >>> certificate.verdict, certificate.batch_ticks
    ('certified', 454)
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    for name, limit in (("time_limit", time_limit), ("solve_limit", solve_limit)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be positive, not {limit}")
    options = Options(
        use_bounds=use_bounds,
        time_limit=None if time_limit is None else float(time_limit),
        jobs=jobs,
        solve_limit=float(solve_limit),
        enumeration_limit=enumeration_limit,
        cross_checks=cross_checks,
        engines=besides(engines),
    )
    return _Certification(problem, options, progress).run()


class _Finished(Exception):
    """Nothing that could still be done changes the verdict, or there is no time left for it."""


class _Certification:
    """One certification, step by step; ``reasons`` collects what stands against ``certified``."""

    def __init__(self, problem: Problem, options: Options, progress: Progress | None) -> None:
        self.started = time.monotonic()
        self.deadline = None if options.time_limit is None else self.started + options.time_limit
        self.engines = highs.engine_versions()
        if self.engines["highs"] != CHECKED_HIGHS:
            raise EngineError(
                f"HiGHS {self.engines['highs']} is installed; only {CHECKED_HIGHS} was checked "
                f"against models with known answers: pip install highspy=={CHECKED_HIGHS}"
            )
        canaries.require(options.engines, options.jobs)
        self.engines |= {name: engine_of(name).find() for name in options.engines}
        self.problem, self.options, self.progress = problem, options, progress
        self.compiled = compile_problem(problem)
        self.evaluator = Evaluator(self.compiled)
        self.cells = list(list_cells(self.compiled))
        self.cell_of = {cell.label: cell for cell in self.cells}
        geometry = Geometry.of(self.compiled)
        self.allowed = {c.label for c in allowed_cells(self.compiled, geometry, self.cells)}
        self.own_cells = {cell.label: cell for cell in own_cells(self.compiled)}
        self.bounds = Bounds(self.compiled, geometry)
        self.own_bounds = OwnBounds(self.compiled)
        self.trusts_bounds = options.use_bounds

        self.solution: Solution | None = None
        self.closures: dict[str, Closure] = {}
        self.answers: defaultdict[str, list[Answer]] = defaultdict(list)
        #: By cell: what engines other than HiGHS said of it.
        self.besides: defaultdict[str, list[Answer]] = defaultdict(list)
        self.completeness: list[Answer] = []
        self.enumeration = Enumeration(plans=None, agreed=None, reason="not attempted")
        self.better: BetterPlan | None = None
        self.reasons: defaultdict[Verdict, list[str]] = defaultdict(list)
        #: Steps that were finished without an objection; ``certified`` needs all of them.
        self.done: set[str] = set()
        self.cut_off = "not attempted"

    def run(self) -> Certificate:
        """All steps, until one of them settles the matter."""
        with contextlib.suppress(_Finished):
            self._list()
            self._solve()
            self._upper_side()
            self._enumerate()
            self._bound()
            self._complete()
            self._refute()
        return self._certificate()

    # --- small things -----------------------------------------------------------------------------

    def _against(self, verdict: Verdict, reason: str) -> None:
        if reason not in self.reasons[verdict]:
            self.reasons[verdict].append(reason)

    def _finish(self, verdict: Verdict, reason: str, cut_off: str) -> _Finished:
        self._against(verdict, reason)
        self.cut_off = cut_off
        return _Finished()

    def _tick(self, done: int, total: int, what: str) -> None:
        """Report progress; stop if the time is up."""
        if self.progress:
            self.progress(done, total, what)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise self._finish(
                "open", f"the time limit of {self.options.time_limit:g} s was reached", "time limit"
            )

    @property
    def _best(self) -> int | None:
        return self.solution.batch_ticks if self.solution else None

    def _beats(self, ticks: int | None) -> bool:
        """Whether a feasible plan of that price refutes what was reported."""
        return ticks is not None and (self._best is None or ticks < self._best)

    def _better(self, plan: Plan, evaluation: Evaluation, found_by: str) -> _Finished:
        ticks = evaluation.require_price()
        self.better = BetterPlan(
            batch_ticks=ticks, found_by=found_by, plan=claimed(plan, evaluation)
        )
        reported = "no plan at all" if self._best is None else f"{self._best} ticks"
        return self._finish(
            "refuted",
            f"the solver reported {reported}, but {found_by} found a plan that the evaluator "
            f"prices at {ticks} ticks",
            "not attempted: a better plan was found",
        )

    # --- the steps --------------------------------------------------------------------------------

    def _list(self) -> None:
        """Two listings of the search space hold the same cells, each once."""
        listed = [cell.label for cell in self.cells]
        if len(set(listed)) != len(listed) or set(listed) != set(self.own_cells):
            difference = sorted(set(listed) ^ set(self.own_cells))
            self.trusts_bounds = False
            raise self._finish(
                "disputed",
                f"two listings of the cells differ: {len(listed)} and {len(self.own_cells)}, first "
                f"{', '.join(difference[:3]) or '(one is listed twice)'}",
                "not attempted: the cells are disputed",
            )
        for label, own in self.own_cells.items():
            cell, microbatches = self.cell_of[label], own.microbatches(self.compiled.global_batch)
            slots = microbatches + own.stages - 1
            if (cell.microbatches, cell.slots) != (microbatches, slots):
                self.trusts_bounds = False
                raise self._finish(
                    "disputed",
                    f"cell {label} has {microbatches} microbatches and {slots} slots by one count, "
                    f"{cell.microbatches} and {cell.slots} by the other",
                    "not attempted: the cells are disputed",
                )
        self.done.add("cells")

    def _solve(self) -> None:
        try:
            self.solution = solve_problem(
                self.compiled, use_bounds=self.options.use_bounds, progress=self._tick
            )
        except (NestOptError, _Finished):
            raise
        except Exception as error:
            raise self._finish(
                "fault",
                f"the solver of the problem broke: {type(error).__name__}: {error}",
                "not attempted: there is nothing to certify",
            ) from error

    def _upper_side(self) -> None:
        """The evaluator prices the plan as reported, and it is a plan of the search space."""
        self._tick(0, 1, "pricing the plan")
        solution = self.solution
        assert solution is not None
        reported = (solution.batch_ticks, solution.tau_ticks, solution.sigma_ticks, solution.plan)
        if solution.status == "infeasible" and reported == (None,) * 4:
            self.done.add("upper side")
            return
        if None in reported or solution.plan is None or solution.status != "optimal":
            raise self._finish(
                "fault",
                "the solver's answer is incomplete: no price, or no plan",
                "not attempted: there is nothing to certify",
            )
        evaluation = self.evaluator.evaluate(solution.plan)
        if evaluation.feasible and self._beats(evaluation.batch_ticks):
            raise self._better(solution.plan, evaluation, "the solver itself, misquoting it,")
        complaints = plan_complaints(
            self.compiled,
            set(self.own_cells),
            solution.plan,
            evaluation,
            (solution.batch_ticks, solution.tau_ticks, solution.sigma_ticks),
        )
        if complaints:
            for complaint in complaints:
                self._against("disputed", f"the plan: {complaint}")
            self.cut_off = "not attempted: the plan itself is disputed"
            raise _Finished
        self.done.add("upper side")

    def _enumerate(self) -> None:
        """All plans through the evaluator: the same optimum and the same reference plan."""
        plans = count_plans(self.compiled)
        limit = self.options.enumeration_limit
        if plans > limit:
            counted = plans < _UNCOUNTED
            many = str(plans) if counted else f"about 10^{len(str(plans)) - 1}"
            self.enumeration = Enumeration(
                plans=plans if counted else None, agreed=None, reason=f"too many plans: {many}"
            )
            self.done.add("enumeration")
            return
        self._tick(0, 1, f"enumerating {plans} plans")
        best = best_plan(self.compiled, limit, self.evaluator)
        problem = None
        if best.plan is not None and best.evaluation is not None:
            ticks = best.evaluation.require_price()
            if self._beats(ticks):
                self.enumeration = Enumeration(
                    plans=plans, agreed=False, reason=f"a plan costs {ticks} ticks"
                )
                raise self._better(best.plan, best.evaluation, "enumeration")
            reported = self.solution.plan if self.solution else None
            if ticks != self._best:
                problem = f"the cheapest of {plans} plans costs {ticks} ticks, not {self._best}"
            elif reported is None or bare(reported) != bare(best.plan):
                problem = "another plan of the same batch time comes first in the order of plans"
        elif self._best is not None:
            problem = f"none of {plans} plans is feasible"
        self.enumeration = Enumeration(plans=plans, agreed=problem is None, reason=problem)
        if problem:
            self._against("disputed", f"enumeration: {problem}")
        else:
            self.done.add("enumeration")

    def _bound(self) -> None:
        """Close what closed-form bounds close. Two implementations have to agree."""
        if not self.options.use_bounds:
            return
        self._check_bounds_at_optimum()
        best = self._best
        for number, (label, own) in enumerate(self.own_cells.items()):
            if number % 64 == 0:
                self._tick(number, len(self.own_cells), "bounding")
            cell = self.cell_of[label]
            if label not in self.allowed and (reason := excluded_by(self.evaluator, own)):
                self.closures[label] = Closure(
                    cell=label, method="bounded", bound="constraint", reason=reason
                )
                continue
            limit = None if best is None else best - 1
            if best is not None and self.bounds.work(cell) >= best:
                closes = True
            else:
                closes = not self.bounds.may_reach(cell, UNLIMITED if limit is None else limit)
            if not closes:
                continue
            if best is not None and (value := self.own_bounds.work(own)) >= best:
                self.closures[label] = Closure(
                    cell=label, method="bounded", bound="work", value=value
                )
            elif not self.own_bounds.may_reach(own, limit):
                self.closures[label] = Closure(
                    cell=label, method="bounded", bound="counting", value=limit
                )

    def _check_bounds_at_optimum(self) -> None:
        """A bound above T* in the cell of a plan that costs T* is wrong."""
        solution = self.solution
        if solution is None or solution.plan is None or solution.batch_ticks is None:
            return
        best, label = solution.batch_ticks, _label(solution.plan)
        cell, own = self.cell_of[label], self.own_cells[label]
        wrong = [
            name
            for name, holds in (
                ("work", self.bounds.work(cell) <= best),
                ("counting", self.bounds.may_reach(cell, best)),
                ("own work", self.own_bounds.work(own) <= best),
                ("own counting", self.own_bounds.may_reach(own, best)),
            )
            if not holds
        ]
        if wrong:
            self.trusts_bounds = False
            raise self._finish(
                "disputed",
                f"closed-form bounds exclude the plan of {best} ticks in its own cell {label}: "
                f"{', '.join(wrong)}",
                "not attempted: the bounds are disputed",
            )

    def _complete(self) -> None:
        """The MILPs of the plan's cell admit the plan, or their refutations mean nothing."""
        solution = self.solution
        if solution is None or solution.plan is None:
            self.done.add("completeness")
            return
        plan, label = solution.plan, _label(solution.plan)
        cell = self.cell_of[label]
        names: list[Formulation] = ["runs"]
        if is_small(self.compiled, cell):
            names += ["assignment", "arcs"]
        elif asked_first(self.compiled, cell) == "arcs":
            names.append("arcs")
        questions = [Question(cell, name, "fixed_plan", self._best, FIRST, plan) for name in names]
        admitted = 0
        for question, reply in self._ask(questions, "checking that the models admit the plan"):
            self.completeness.append(reply.answer)
            who = f"{question.formulation}, {label}, T <= {self._best}, {_said(reply.answer)}"
            if reply.answer.status in ("limit", "fault"):
                self._against(*_setback(reply.answer, f"the plan fixed in its model ({who})"))
            elif not reply.answer.claims_plan:
                self._against("disputed", f"the model refuses the plan of its own cell ({who})")
            elif reply.plan is None or bare(reply.plan) != bare(plan):
                self._against(
                    "disputed", f"the model with the plan fixed returns another plan ({who})"
                )
            elif reply.answer.priced_ticks != self._best:
                self._against("disputed", f"the plan comes back at another price ({who})")
            else:
                admitted += 1
        if admitted == len(questions):
            self.done.add("completeness")
        self._ask_besides([cell], "fixed_plan", self._best, plan=plan)

    def _refute(self) -> None:
        """Ask the engine about every cell that is left; cheap cells first."""
        left = sorted(
            (cell for cell in self.cells if cell.label not in self.closures),
            key=lambda cell: (cell.stages, cell.replicas),
        )
        self._ask_first(left)
        self._cross_check()
        # What is not settled is asked in other formulations, where that is cheap enough.
        for kind in _SECOND_THOUGHTS:
            unsettled = [c for c in self.cells if self._is_unsettled(c)]
            self._round([c for c in unsettled if has_few_arcs(self.compiled, c)], "arcs", kind)
            unsettled = [c for c in unsettled if self._is_unsettled(c)]
            small = [c for c in unsettled if is_small(self.compiled, c)]
            self._round(small, "assignment", kind)

    def _ask_first(self, cells: Sequence[Cell], seconds: float | None = None) -> None:
        """Put each cell to the formulation that is likely to be the fastest."""
        for formulation in _FIRST_ASKED:
            chosen = [c for c in cells if asked_first(self.compiled, c) == formulation]
            self._round(chosen, formulation, "decision", seconds)

    def _cross_check(self) -> None:
        """Let the engine contradict the bounds where they are most likely to be wrong.

        The plan's own cell and those with the least work bound. A refutation replaces the bound as
        the cell's closure; a limit or a broken solver leaves it; a contradiction is a dispute.
        """
        bounded = [c for c in self.cells if self._method(c) == "bounded"]
        bounded.sort(key=lambda c: (not self._holds_plan(c.label), self.bounds.work(c)))
        # As many of those that a constraint excludes: checks and filters may be wrong as well.
        excluded = [c for c in bounded if self.closures[c.label].bound == "constraint"]
        others = [c for c in bounded if self.closures[c.label].bound != "constraint"]
        most = self.options.cross_checks
        chosen = others[:most] + excluded[:most]
        before = {cell.label: self.closures[cell.label] for cell in chosen}
        self._ask_first(chosen, min(_CROSS_CHECK_LIMIT, self.options.solve_limit))
        for label, closure in before.items():
            after = self.closures[label]
            if after.method == "open" and classify(after)[0] != "disputed":
                self.closures[label] = closure

    def _method(self, cell: Cell) -> Method | None:
        closure = self.closures.get(cell.label)
        return closure.method if closure else None

    def _is_unsettled(self, cell: Cell) -> bool:
        return self._method(cell) in (None, "open")

    # --- asking -----------------------------------------------------------------------------------

    def _ask(
        self, questions: Sequence[Question], what: str, seconds: float | None = None
    ) -> Generator[tuple[Question, Reply], None, None]:
        """Questions and replies, in the order in which they come in."""
        if not questions:
            return
        self._tick(0, len(questions), what)
        asked = ask(
            self.evaluator,
            questions,
            jobs=self.options.jobs,
            seconds=self.options.solve_limit if seconds is None else seconds,
            deadline=self.deadline,
        )
        with contextlib.closing(asked):
            for done, (index, reply) in enumerate(asked, 1):
                if self.progress:
                    self.progress(done, len(questions), what)
                yield questions[index], reply

    def _round(
        self,
        cells: Sequence[Cell],
        formulation: Formulation,
        kind: QuestionKind,
        seconds: float | None = None,
    ) -> None:
        """Ask one question about each cell, under both sets of options, and judge the cells.

        Ends the certification at the first plan that is really better.
        """
        cells = [
            cell
            for cell in cells
            if not any(
                (a.formulation, a.question) == (formulation, kind) for a in self.answers[cell.label]
            )
        ]
        limit = None if self._best is None or kind == "minimum" else self._best - 1
        what = f"{'refuting' if kind == 'decision' else 'solving'} with {formulation}"
        presolve_broke = set()
        for options in ((FIRST, SECOND), (STAND_IN,)):
            questions = [
                Question(cell, formulation, kind, limit, option_set)
                for cell in cells
                if options != (STAND_IN,) or cell.label in presolve_broke
                for option_set in options
            ]
            for question, reply in self._ask(questions, what, seconds):
                answer, label = reply.answer, question.cell.label
                self.answers[label].append(answer)
                if question.options == SECOND and answer.status in ("limit", "fault"):
                    presolve_broke.add(label)
                if self._beats(answer.priced_ticks) and reply.plan and reply.evaluation:
                    raise self._better(
                        reply.plan, reply.evaluation, f"the model of {label} ({_said(answer)})"
                    )
        if formulation == "runs" or kind == "minimum":  # else they have been asked before
            self._ask_besides(cells, kind, limit, seconds, formulation=formulation)
        for cell in cells:
            self.closures[cell.label] = judge(
                cell.label,
                _in_order(self.answers[cell.label]),
                self._best,
                self._holds_plan(cell.label),
            )

    def _ask_besides(
        self,
        cells: Sequence[Cell],
        kind: QuestionKind,
        limit: int | None,
        seconds: float | None = None,
        *,
        plan: Plan | None = None,
        formulation: Formulation = "runs",
    ) -> None:
        """Ask the engines other than HiGHS as well; their answers are judged at the end.

        Ends the certification at the first plan that is really better.
        """
        for name in self.options.engines:
            questions = [asked_besides(name, c, kind, limit, plan, formulation) for c in cells]
            for question, reply in self._ask(questions, f"asking {ENGINES[name].title}", seconds):
                answer, label = reply.answer, question.cell.label
                self.besides[label].append(answer)
                if self._beats(answer.priced_ticks) and reply.plan and reply.evaluation:
                    raise self._better(
                        reply.plan, reply.evaluation, f"the model of {label} ({_said(answer)})"
                    )

    def _undisputed(self, closure: Closure) -> Closure:
        """A closure with the answers besides; open where one of them contradicts."""
        answers = self.besides[closure.cell]
        if not answers:
            return closure
        answers.sort(key=lambda a: (self.options.engines.index(a.engine), a.question))
        changes: dict[str, object] = {"besides": tuple(answers)}
        optimum = closure.value if closure.method == "solved" else None
        for answer in answers:
            said = contradiction(answer, self._best, self._holds_plan(closure.cell), optimum)
            if said and classify(closure)[0] != "disputed":
                others = "; ".join(map(_said, closure.answers)) or closure.method
                changes |= {
                    "method": "open",
                    "bound": None,
                    "reason": f"disputed: {_said(answer)}: {said}; HiGHS: {others}",
                }
                break
        return closure.model_copy(update=changes)

    def _holds_plan(self, label: str) -> bool:
        plan = self.solution.plan if self.solution else None
        return plan is not None and _label(plan) == label

    # --- the end ----------------------------------------------------------------------------------

    def _certificate(self) -> Certificate:
        closures = self._all_closures()
        verdict = self._verdict(closures)
        solution, best = self.solution, self._best
        proven = self._proven_bound(closures)
        compiled = self.compiled
        gap = None
        if best is not None and proven is not None:
            gap = (best - proven) / best if best else 0.0
        return Certificate(
            nest_opt=_version(),
            verdict=verdict,
            reasons=tuple(reason for reasons in self.reasons.values() for reason in reasons),
            name=compiled.name,
            digest=compiled.digest,
            status=solution.status if solution else "unknown",
            batch_ticks=best,
            batch_seconds=None if best is None else float(best * compiled.tick_seconds),
            tau_ticks=solution.tau_ticks if solution else None,
            sigma_ticks=solution.sigma_ticks if solution else None,
            proven_bound_ticks=proven,
            gap=gap,
            units=CertificateUnits(
                tick_seconds=str(compiled.tick_seconds),
                synchronisation_multiple_ticks=compiled.sync_multiple,
                quantum_bytes=compiled.quantum_bytes,
                memory_quanta=compiled.memory_quanta,
            ),
            cells=CellCounts.of(closures),
            plan=solution.plan if solution else None,
            better_plan=self.better,
            completeness=_in_order(self.completeness),
            enumeration=self.enumeration,
            engines=self.engines,
            constraint_sources=source_digests(self.problem.search.constraints),
            options=self.options,
            wall_seconds=round(time.monotonic() - self.started, 3),
            problem=self.problem,
            closures=tuple(closures),
        )

    def _verdict(self, closures: Sequence[Closure]) -> Verdict:
        """The worst that was found; ``certified`` only if every step was finished."""
        alike: defaultdict[tuple[Verdict, str], list[str]] = defaultdict(list)
        for closure in closures:
            if closure.method == "open":
                alike[classify(closure)].append(closure.cell)
        for (verdict, reason), cells in alike.items():
            # That the rest was not attempted is no news where something else ended the work.
            if reason != self.cut_off or not any(self.reasons.values()):
                named = ", ".join(cells[:_NAMED]) + (", ..." if len(cells) > _NAMED else "")
                self._against(verdict, f"{len(cells)} of {len(closures)} cells ({named}): {reason}")
        missing = {"cells", "upper side", "enumeration", "completeness"} - self.done
        if missing and not any(self.reasons.values()):
            self._against("open", f"not finished: {', '.join(sorted(missing))}")
        if self.better is not None:
            return "refuted"
        for verdict in _WORST_FIRST:
            if self.reasons[verdict]:
                return verdict
        return "certified"

    def _all_closures(self) -> list[Closure]:
        """One closure for each cell; open ones with the best bound that is cheap to have."""
        sharpen_until = time.monotonic() + _SHARPEN_SECONDS
        closures = []
        for label, own in self.own_cells.items():
            closure = self.closures.get(label)
            if closure is None:
                closure = Closure(
                    cell=label,
                    method="open",
                    reason=self.cut_off,
                    answers=_in_order(self.answers[label]),
                )
            closure = self._undisputed(closure)
            if closure.method == "open":
                floor = self._floor(own, sharpen_until)
                closure = closure.model_copy(update={"value": floor})
            closures.append(closure)
        return closures

    def _floor(self, own: OwnCell, sharpen_until: float) -> int:
        """A proven lower bound on T in a cell, at most T*."""
        if not self.trusts_bounds:
            return 0
        floor = self.bounds.work(self.cell_of[own.label])
        best = self._best
        if best is None:
            return floor
        high = best
        while floor < high and time.monotonic() < sharpen_until:
            middle = (floor + high) // 2
            if self.own_bounds.may_reach(own, middle):
                high = middle
            else:
                floor = middle + 1
        return min(floor, best)

    def _proven_bound(self, closures: Sequence[Closure]) -> int | None:
        """A lower bound on T that holds in every cell; None where there is no plan."""
        if self.solution is None or "cells" not in self.done:
            floors = [c.value for c in closures if c.value is not None]
            return min(floors, default=None) if "cells" in self.done else None
        floors = [c.value for c in closures if c.method == "open" and c.value is not None]
        if self._best is not None:
            floors.append(self._best)
        return min(floors, default=None)


def judge(label: str, answers: Sequence[Answer], best: int | None, holds_plan: bool) -> Closure:
    """What the answers about one cell amount to, none of which holds a better plan.

    ``best`` is T* (None: there is said to be no plan), ``holds_plan`` whether the plan of T* lies
    in this cell.
    """
    answers = tuple(answers)

    def closure(method: Method, value: int | None = None, reason: str = "") -> Closure:
        return Closure(cell=label, method=method, value=value, reason=reason, answers=answers)

    for answer in answers:
        false_claim = answer.claims_plan and answer.priced_ticks is None
        if answer.question == "decision":
            false_claim = answer.claims_plan  # a plan that keeps the limit would have been better
        if false_claim:
            found = answer.note or f"the evaluator prices it at {answer.priced_ticks} ticks"
            others = "; ".join(_said(other) for other in answers if other is not answer)
            reason = f"disputed: {_said(answer)} claims a plan with T <= {answer.limit}: {found}"
            return closure("open", reason=reason + (f"; others: {others}" if others else ""))

    limit = None if best is None else best - 1
    refutation = confirmed(answers, "decision", limit, "infeasible")
    if refutation:
        broken = [c for a in refutation if (c := a.complaint())]
        if not broken:
            return closure("refuted", limit)
        return closure("open", reason=f"fault: {broken[0]}")

    minima = [a for a in answers if a.question == "minimum"]
    # A limit of time may leave a plan behind; only optima say something about all plans.
    optima = [a for a in minima if a.status == "optimal"]
    emptied = [a for a in minima if a.status == "infeasible"]
    prices = {a.priced_ticks for a in optima}
    if (emptied and (optima or holds_plan)) or len(prices) > 1:
        return closure("open", reason=f"disputed: {'; '.join(_said(a) for a in minima)}")
    if holds_plan and prices and prices != {best}:
        return closure(
            "open", reason=f"disputed: the optimum of the plan's own cell is {prices}, not {best}"
        )
    if best is not None and confirmed(answers, "minimum", None, "optimal"):
        broken = [c for a in optima if (c := a.complaint())]
        price = prices.pop()
        if not broken and price is not None and price >= best:
            return closure("solved", price)

    faults = [a for a in answers if a.status == "fault"]
    large = [a for a in faults if a.detail.startswith(_TOO_LARGE)]
    if large:
        return closure("open", reason=f"limit: numbers too large for a solver: {large[0].detail}")
    if faults:
        return closure("open", reason=f"fault: {_said(faults[0])}: {faults[0].detail}")
    slow = [a for a in answers if a.status not in ("infeasible",)]
    return closure(
        "open", reason=f"limit: {_said(slow[0])}: {slow[0].detail}" if slow else "not attempted"
    )


def classify(closure: Closure) -> tuple[Verdict, str]:
    """The verdict that an open cell leads to, and why."""
    for verdict in _WORST_FIRST:
        if closure.reason.startswith(f"{verdict}:"):
            return verdict, closure.reason
    return "open", closure.reason


def _in_order(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Answers in the order in which they were asked for, not that in which they came in."""
    return tuple(
        sorted(answers, key=lambda a: (a.formulation != "runs", a.question != "decision", a.seed))
    )


def _setback(answer: Answer, what: str) -> tuple[Verdict, str]:
    """What an answer that is none leads to."""
    limited = answer.status == "limit" or answer.detail.startswith(_TOO_LARGE)
    return ("open" if limited else "fault"), f"{what}: {answer.detail}"


def _said(answer: Answer) -> str:
    """An answer in a few words, enough to ask again."""
    engine = "" if answer.engine == FIRST_ENGINE else f"{ENGINES[answer.engine].title}, "
    return (
        f"{engine}{answer.formulation} {answer.question}, "
        f"presolve {'on' if answer.presolve else 'off'}, seed {answer.seed}: {answer.status}"
    )


def _label(plan: Plan) -> str:
    """The name of the cell that a plan lies in."""
    return (
        f"b{plan.microbatch} d{plan.replicas} {plan.template.label} "
        f"s{len(plan.stages)} {plan.layout}"
    )


def _version() -> str:
    import nest_opt

    return nest_opt.__version__
