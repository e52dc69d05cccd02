"""Check a certificate, from nothing but the certificate.

The problem in it is compiled again, the plan priced again; the cells are listed, the layouts
stated and the closed-form bounds computed in code that neither the solver nor the MILPs use
(:mod:`nest_opt.certify.own_bounds`). What rests on the engine is taken as recorded, if it is the
kind of record that the harness accepts, and said to be so; ``resolve=True`` asks the engine again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nest_opt.certify.certificate import (
    BESIDES,
    CHECKED_HIGHS,
    FIRST,
    RELATIVE_TO,
    Answer,
    CellCounts,
    Certificate,
    Closure,
    QuestionKind,
    confirmed,
    contradiction,
)
from nest_opt.certify.engines import ENGINES, FIRST_ENGINE
from nest_opt.certify.own_bounds import (
    OwnBounds,
    OwnCell,
    excluded_by,
    own_cells,
    own_interval,
)
from nest_opt.compile import Compiled, compile_problem
from nest_opt.constraints import source_digests
from nest_opt.enumerate import best_plan, count_plans
from nest_opt.errors import NestOptError
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.plan import Plan

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

#: Wall clock of one solve when refutations are repeated, seconds.
SOLVE_LIMIT = 600.0
#: At most this many refusals are listed; the rest is counted.
_SHOWN = 50


@dataclass(frozen=True)
class Verification:
    """Whether a certificate holds.

    ``ok``: it certifies what it says, and nothing in it was found wrong. ``refusals``: what was
    found, or why nothing is certified. ``checked``: what was done, and what was taken as recorded.
    """

    ok: bool
    refusals: tuple[str, ...]
    checked: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"ok": self.ok, "refusals": list(self.refusals), "checked": self.checked}


def verify(
    data: Any,
    *,
    resolve: bool = False,
    jobs: int = 1,
    engines: Sequence[str] = (),
    progress: Progress | None = None,
) -> Verification:
    """Check a certificate, given as its JSON object (or as a ``Certificate``).

    ``resolve`` repeats every solve that it rests on, ``jobs`` at a time, and puts the same
    questions to ``engines`` besides HiGHS. Raises ``EngineError`` for an engine that is not
    installed or answers a canary wrongly, ``CertificateError`` for what is no certificate at all
    (unknown fields, wrong format); a certificate that does not hold is refused in the result.

    >>> import nest_opt
    >>> certificate = nest_opt.certify(nest_opt.load_problem("worked-example-160")).to_dict()
    >>> nest_opt.verify(certificate).ok
    True
    >>> certificate["batch_ticks"] -= 1
    >>> nest_opt.verify(certificate).ok
    False
    """
    certificate = Certificate.from_dict(data.to_dict() if isinstance(data, Certificate) else data)
    from nest_opt.certify.engines import besides

    return _Check(certificate, jobs, progress).run(resolve, besides(engines))


def plan_complaints(
    compiled: Compiled,
    labels: Collection[str],
    plan: Plan,
    evaluation: Evaluation,
    reported: tuple[int | None, int | None, int | None],
) -> list[str]:
    """What is wrong with a plan that is said to be optimal in this search space.

    ``labels`` are those of all cells, ``reported`` is (T, tau, sigma) in ticks. The plan must lie
    in the search space, on the devices that its layout gives it, fit into memory, claim the load
    and memory of each stage, and cost what is reported.
    """
    complaints = [str(violation) for violation in evaluation.violations]
    priced = (evaluation.batch_ticks, evaluation.tau_ticks, evaluation.sigma_ticks)
    for name, said, found in zip(("T", "tau", "sigma"), reported, priced, strict=True):
        if said != found:
            complaints.append(f"{name} is {found} ticks by the evaluator, not {said}")
    if plan.digest != compiled.digest:
        complaints.append("it was made for another problem: its digest differs")
    for claim in evaluation.claims:
        complaints.append(
            f"{claim.where} claims {claim.field} {claim.claimed}, computed {claim.computed}"
        )
    search = compiled.search
    label = _label(plan)
    if label not in labels:
        complaints.append(f"{label} is no cell of the search space")
    for j, stage in enumerate(plan.stages):
        if stage.load_ticks is None or stage.memory_bytes is None:
            complaints.append(f"stage {j} claims no load or no memory")
        if stage.recomputation not in search.recomputation or stage.zero not in search.zero:
            complaints.append(f"stage {j} makes a choice that is not in the search space")
        right = tuple(
            tuple(
                own_interval(
                    compiled.devices,
                    plan.template,
                    plan.replicas,
                    plan.layout,
                    r,
                    len(plan.stages) - 1 - j,
                )
            )
            for r in range(plan.replicas)
        )
        if stage.devices != right:
            complaints.append(f"stage {j} is not on the devices that {plan.layout} gives it")
    return complaints


class _Check:
    """One verification."""

    def __init__(self, certificate: Certificate, jobs: int, progress: Progress | None) -> None:
        self.certificate, self.jobs, self.progress = certificate, jobs, progress
        self.refusals: list[str] = []
        self.checked: dict[str, Any] = {}

    def run(self, resolve: bool, engines: Sequence[str]) -> Verification:
        certificate = self.certificate
        try:
            self.compiled = compile_problem(certificate.problem)
        except NestOptError as error:
            return self._result([f"the problem cannot be compiled: {error}"])
        self.evaluator = Evaluator(self.compiled)
        self.own_cells = {cell.label: cell for cell in own_cells(self.compiled)}
        if not self._check_problem():
            # Nothing else can be compared with numbers of another problem.
            return self._result([])
        self._check_status()
        self._check_plan()
        self._check_listing()
        self._check_closures()
        self._check_besides()
        self._check_completeness()
        self._check_enumeration()
        self._check_verdict()
        self._check_with_solver()
        if resolve:
            self._resolve(engines)
        return self._result([])

    def _result(self, more: Iterable[str]) -> Verification:
        self.refusals += more
        shown = self.refusals[:_SHOWN]
        if len(self.refusals) > _SHOWN:
            shown.append(f"... and {len(self.refusals) - _SHOWN} more")
        return Verification(not self.refusals, tuple(shown), self.checked)

    def _refuse(self, reason: str) -> None:
        self.refusals.append(reason)

    def _tick(self, done: int, total: int, what: str) -> None:
        if self.progress:
            self.progress(done, total, what)

    def _check_with_solver(self) -> None:
        """The dynamic program may contradict a certificate, though it cannot confirm one.

        Recorded refutations are taken on trust unless they are solved again; this finds out those
        that were made up, because a better plan, or any, is there to be found.
        """
        certificate = self.certificate
        if certificate.verdict != "certified" or self.refusals:
            return  # it does not hold anyway
        from nest_opt.solve import solve

        found = solve(self.compiled, progress=self.progress).batch_ticks
        if found != certificate.batch_ticks:
            self._refuse(f"the solver finds {found} ticks, not {certificate.batch_ticks}")
        self.checked["solver"] = "agrees" if found == certificate.batch_ticks else "contradicts"

    # --- the problem and the plan -----------------------------------------------------------------

    def _check_problem(self) -> bool:
        """The embedded problem compiles to the digest and units that are claimed."""
        certificate, compiled = self.certificate, self.compiled
        units = certificate.units
        facts = (
            ("name", certificate.name, compiled.name),
            ("digest", certificate.digest, compiled.digest),
            ("tick_seconds", units.tick_seconds, str(compiled.tick_seconds)),
            (
                "synchronisation_multiple_ticks",
                units.synchronisation_multiple_ticks,
                compiled.sync_multiple,
            ),
            ("quantum_bytes", units.quantum_bytes, compiled.quantum_bytes),
            ("memory_quanta", units.memory_quanta, compiled.memory_quanta),
        )
        wrong = [(name, said, found) for name, said, found in facts if said != found]
        recorded = certificate.constraint_sources
        for name, text in source_digests(certificate.problem.search.constraints).items():
            if recorded.get(name) != text:
                wrong.append(
                    (f"source of constraint {name}", recorded.get(name, "not recorded"), text)
                )
        for name, said, found in wrong:
            self._refuse(f"{name} is {found} for the problem in the certificate, not {said}")
        self.checked["digest"] = not wrong
        return not wrong

    def _check_status(self) -> None:
        """The answer is all there, or not there at all."""
        certificate = self.certificate
        answer = (
            certificate.batch_ticks,
            certificate.batch_seconds,
            certificate.tau_ticks,
            certificate.sigma_ticks,
            certificate.plan,
        )
        there = [part is not None for part in answer]
        if (certificate.status == "optimal" and not all(there)) or (
            certificate.status != "optimal" and any(there)
        ):
            self._refuse(f"status {certificate.status!r} does not fit the price and plan given")
        best = certificate.batch_ticks
        if best is not None and certificate.batch_seconds != float(
            best * self.compiled.tick_seconds
        ):
            self._refuse("batch_seconds is not batch_ticks times the tick")

    def _check_plan(self) -> None:
        """The plan costs what is claimed; so does a better one."""
        certificate = self.certificate
        if certificate.plan is not None:
            evaluation = self.evaluator.evaluate(certificate.plan)
            complaints = plan_complaints(
                self.compiled,
                set(self.own_cells),
                certificate.plan,
                evaluation,
                (certificate.batch_ticks, certificate.tau_ticks, certificate.sigma_ticks),
            )
            for complaint in complaints:
                self._refuse(f"the plan: {complaint}")
            self.checked["plan"] = not complaints
        if certificate.better_plan is not None:
            better = certificate.better_plan
            evaluation = self.evaluator.evaluate(better.plan)
            best = certificate.batch_ticks
            holds = evaluation.feasible and evaluation.batch_ticks == better.batch_ticks
            if not holds or (best is not None and better.batch_ticks >= best):
                self._refuse("the better plan is none: it does not fit, or costs something else")
            self.checked["better_plan"] = holds

    # --- the cells --------------------------------------------------------------------------------

    def _check_listing(self) -> None:
        """Exactly one closure for each cell, and counts that add up."""
        closures = self.certificate.closures
        times = Counter(closure.cell for closure in closures)
        for what, labels in (
            ("has no closure", [label for label in self.own_cells if label not in times]),
            ("is closed but no cell", [label for label in times if label not in self.own_cells]),
            ("is closed several times", [label for label, n in times.items() if n > 1]),
        ):
            for label in labels:
                self._refuse(f"cell {label} {what}")
        counts = CellCounts.of(closures)
        if counts != self.certificate.cells:
            self._refuse(
                f"the counts are {self.certificate.cells.model_dump()}, but the closures add up to "
                f"{counts.model_dump()}"
            )
        self.checked["cells"] = counts.model_dump()

    def _check_closures(self) -> None:
        """Every closure shows what it claims."""
        bounds = OwnBounds(self.compiled)
        closures = {closure.cell: closure for closure in self.certificate.closures}
        # In the order of the own listing, in which bounds are cheapest.
        for number, (label, own) in enumerate(self.own_cells.items()):
            if number % 64 == 0:
                self._tick(number, len(self.own_cells), "checking cells")
            closure = closures.get(label)
            if closure is None:
                continue
            check = {
                "bounded": self._bounded,
                "refuted": self._refuted,
                "solved": self._solved,
                "open": self._open,
            }[closure.method]
            complaint = check(closure, own, bounds)
            if complaint:
                self._refuse(f"cell {label}, {closure.method}: {complaint}")
        self.checked["not_re_solved"] = sum(
            closure.method in ("refuted", "solved") for closure in self.certificate.closures
        )

    def _bounded(self, closure: Closure, own: OwnCell, bounds: OwnBounds) -> str | None:
        best = self.certificate.batch_ticks
        if closure.bound == "constraint":
            excluded = excluded_by(self.evaluator, own)
            if excluded is None or excluded != closure.reason:
                return f"not every plan of it breaks the constraint {closure.reason!r}"
            return "a constraint needs no answers" if closure.answers else None
        if closure.answers or closure.reason:
            return "a closed-form bound needs no answers and gives no reasons"
        if closure.bound == "work":
            value = bounds.work(own)
            if closure.value != value:
                return f"the work bound is {value}, not {closure.value}"
            if best is None:
                return "a problem without a plan has no batch time that work could reach"
            if value < best:
                return f"the work bound of {value} does not reach {best}"
            return None
        if closure.bound == "counting":
            limit = None if best is None else best - 1
            if closure.value != limit:
                return f"it speaks of T <= {closure.value}, not of T <= {limit}"
            if bounds.may_reach(own, limit):
                return "counting leaves room for a plan"
            return None
        return "no bound is named"

    def _refuted(self, closure: Closure, own: OwnCell, bounds: OwnBounds) -> str | None:
        best = self.certificate.batch_ticks
        limit = None if best is None else best - 1
        if closure.value != limit:
            return f"it speaks of T <= {closure.value}, not of T <= {limit}"
        if closure.bound or closure.reason:
            return "a refutation names no bound and no reason"
        for answer in closure.answers:
            if answer.claims_plan and answer.question != "minimum":
                return "one of its answers is a plan"
        return _evidence(closure.answers, "decision", limit, "infeasible")

    def _solved(self, closure: Closure, own: OwnCell, bounds: OwnBounds) -> str | None:
        best = self.certificate.batch_ticks
        if best is None or closure.value is None or closure.value < best:
            return f"its optimum {closure.value} is below {best}"
        if closure.bound or closure.reason:
            return "an optimum names no bound and no reason"
        optima = [a for a in closure.answers if a.question == "minimum"]
        if any(a.priced_ticks != closure.value for a in optima if a.status == "optimal"):
            return "its answers have another optimum"
        if any(a.claims_plan for a in closure.answers if a.question != "minimum"):
            return "one of its answers is a plan"
        return _evidence(closure.answers, "minimum", None, "optimal")

    def _open(self, closure: Closure, own: OwnCell, bounds: OwnBounds) -> str | None:
        value = closure.value
        if not closure.reason:
            return "no reason is given"
        if value is None:
            return "no proven bound is given"
        if value > bounds.work(own) and bounds.may_reach(own, value - 1):
            return f"its bound of {value} is not shown"
        return None

    # --- the engines besides HiGHS ----------------------------------------------------------------

    def _check_besides(self) -> None:
        """Every engine that was to be asked has answered, and none contradicts.

        Nothing rests on these answers, but a certificate must not conceal them.
        """
        certificate = self.certificate
        if certificate.verdict != "certified":
            return
        engines = certificate.options.engines
        for complaint in _engine_complaints(certificate):
            self._refuse(f"engines: {complaint}")
        best, plan = certificate.batch_ticks, certificate.plan
        own = None if plan is None else _label(plan)
        counts: Counter[str] = Counter()
        for closure in certificate.closures:
            optimum = closure.value if closure.method == "solved" else None
            for answer in closure.besides:
                counts[answer.engine] += answer.status not in ("limit", "fault")
                said = _beside_complaint(answer, certificate, closure.cell == own)
                said = said or contradiction(answer, best, closure.cell == own, optimum)
                if said:
                    self._refuse(f"cell {closure.cell}, besides, {answer.engine}: {said}")
            asked = [(a.engine, a.question, a.formulation) for a in closure.besides]
            if len(set(asked)) < len(asked):
                self._refuse(f"cell {closure.cell}, besides: one question is answered twice")
            answered = {(engine, question) for engine, question, _ in asked}
            wanted: list[QuestionKind] = []
            if closure.method == "refuted":
                wanted.append("decision")
            elif closure.method == "solved":
                wanted.append("minimum")
            if closure.cell == own:
                wanted.append("fixed_plan")
            for engine in engines:
                for question in wanted:
                    if (engine, question) not in answered:
                        self._refuse(
                            f"cell {closure.cell}, besides: {engine} was to be asked and its "
                            f"answer to {question} is missing"
                        )
        if engines:
            self.checked["besides"] = {engine: counts[engine] for engine in engines}

    # --- the rest ---------------------------------------------------------------------------------

    def _check_completeness(self) -> None:
        """The plan was admitted by the model of its cell."""
        certificate = self.certificate
        if certificate.verdict != "certified":
            return
        answers = certificate.completeness
        if certificate.plan is None:
            if answers:
                self._refuse("completeness: there is no plan that a model could admit")
            return
        if "runs" not in [answer.formulation for answer in answers]:
            self._refuse("completeness: the model of the plan's cell was not asked")
        for answer in answers:
            complaint = answer.complaint()
            if answer.question != "fixed_plan" or answer.limit != certificate.batch_ticks:
                complaint = "it answers another question"
            elif not answer.claims_plan or answer.priced_ticks != certificate.batch_ticks:
                complaint = "the model did not admit the plan at its price"
            elif answer.option_set != FIRST:
                complaint = "it was asked under other options"
            if complaint:
                self._refuse(f"completeness, {answer.formulation}: {complaint}")
        self.checked["completeness"] = "as recorded"

    def _check_enumeration(self) -> None:
        """Where there are few plans, all of them are priced again."""
        certificate, found = self.certificate, self.certificate.enumeration
        if certificate.verdict != "certified":
            return
        limit = certificate.options.enumeration_limit
        plans = count_plans(self.compiled)
        if plans > limit:
            if found.agreed is not None or (found.plans is not None and found.plans != plans):
                self._refuse(f"enumeration: it is about {found.plans} plans, but there are {plans}")
            self.checked["enumeration"] = "too many plans"
            return
        if found.plans != plans or found.agreed is not True or found.reason is not None:
            self._refuse(f"enumeration: it does not say that all {plans} plans were priced")
        self._tick(0, 1, f"enumerating {plans} plans")
        best = best_plan(self.compiled, limit, self.evaluator)
        ticks = best.evaluation.batch_ticks if best.evaluation else None
        if ticks != certificate.batch_ticks or not _same(best.plan, certificate.plan):
            self._refuse(f"enumeration: the reference plan is another one, of {ticks} ticks")
        self.checked["enumeration"] = f"{plans} plans priced again"

    def _check_verdict(self) -> None:
        """The verdict follows from the rest; only ``certified`` certifies anything."""
        certificate = self.certificate
        self.checked["verdict"] = certificate.verdict
        floors = [
            closure.value
            for closure in certificate.closures
            if closure.method == "open" and closure.value is not None
        ]
        if certificate.batch_ticks is not None:
            floors.append(certificate.batch_ticks)
        proven, best = min(floors, default=None), certificate.batch_ticks
        if certificate.proven_bound_ticks not in (None, proven):
            self._refuse(f"the proven bound is {proven}, not {certificate.proven_bound_ticks}")
        if certificate.verdict != "certified":
            self._refuse(
                f"the certificate's verdict is {certificate.verdict}: nothing is certified"
                + (f" ({certificate.reasons[0]})" if certificate.reasons else "")
            )
            return
        gap = None if best is None else 0.0
        for holds, complaint in (
            (not certificate.cells.open, "cells are open"),
            (certificate.status != "unknown", "there is no answer"),
            (not certificate.reasons, "there are reasons against it"),
            (certificate.better_plan is None, "there is a better plan"),
            (certificate.proven_bound_ticks == best, "the proven bound is another one"),
            (certificate.gap == gap, "there is a gap"),
            (certificate.relative_to == RELATIVE_TO, "relative to something else"),
            (certificate.engines.get("highs") == CHECKED_HIGHS, "another engine was used"),
        ):
            if not holds:
                self._refuse(f"the verdict is 'certified', but {complaint}")

    def _resolve(self, engines: Sequence[str]) -> None:
        """Ask the engine again about every cell that rests on it, and about the plan."""
        # Loaded here, because only this needs a solver.
        from nest_opt.certify.canaries import require
        from nest_opt.certify.questions import Question, ask, asked_besides, cells_by_label

        certificate = self.certificate
        if self.refusals and certificate.verdict == "certified":
            return  # it does not hold anyway
        require(engines, self.jobs)
        cells = cells_by_label(self.compiled)
        best = certificate.batch_ticks
        limit = None if best is None else best - 1
        questions = []
        for closure in certificate.closures:
            agreeing = None
            if closure.method == "refuted":
                agreeing = confirmed(closure.answers, "decision", limit, "infeasible")
            elif closure.method == "solved":
                agreeing = confirmed(closure.answers, "minimum", None, "optimal")
            questions += [
                Question(cells[closure.cell], a.formulation, a.question, a.limit, a.option_set)
                for a in agreeing or ()
                if closure.cell in cells
            ]
            kind = agreeing[0].question if agreeing else None
            if kind is not None and agreeing is not None and closure.cell in cells:
                first = agreeing[0]
                questions += [
                    asked_besides(
                        name,
                        cells[closure.cell],
                        kind,
                        first.limit,
                        formulation=first.formulation,
                    )
                    for name in engines
                ]
        plan = certificate.plan
        own = None if plan is None else _label(plan)
        if plan is not None and own is not None and certificate.completeness:
            questions += [
                Question(cells[own], answer.formulation, "fixed_plan", best, FIRST, plan)
                for answer in certificate.completeness
            ]
            questions += [
                asked_besides(name, cells[own], "fixed_plan", best, plan) for name in engines
            ]
        answered: Counter[str] = Counter()
        recorded = {c.cell: c.value for c in certificate.closures if c.method == "solved"}
        asked = ask(self.evaluator, questions, jobs=self.jobs, seconds=SOLVE_LIMIT)
        for done, (index, reply) in enumerate(asked, 1):
            self._tick(done, len(questions), "solving again")
            question, answer = questions[index], reply.answer
            if answer.engine != FIRST_ENGINE:
                label = question.cell.label
                said = contradiction(answer, best, label == own, recorded.get(label))
                if said:
                    self._refuse(f"cell {label}, {answer.engine}: {said}")
                answered[answer.engine] += answer.status not in ("limit", "fault")
                continue
            complaint = answer.complaint()
            if question.kind == "decision" and answer.status != "infeasible":
                complaint = f"not infeasible again, but {answer.status} {answer.note}"
            elif question.kind == "minimum" and (
                answer.status != "optimal"
                or answer.priced_ticks is None
                or answer.priced_ticks != recorded.get(question.cell.label)
            ):
                complaint = f"not solved again, but {answer.status} {answer.priced_ticks}"
            elif question.kind == "fixed_plan" and (
                not answer.claims_plan or not _same(reply.plan, plan)
            ):
                complaint = f"the plan is not admitted again, but {answer.status}"
            if complaint:
                self._refuse(
                    f"cell {question.cell.label}, {question.formulation} {question.kind}, presolve "
                    f"{answer.presolve}, seed {answer.seed}: {complaint}"
                )
            if len(self.refusals) > _SHOWN:
                asked.close()
                break  # more of the same would say nothing new
        asked_first = [question for question in questions if question.engine == FIRST_ENGINE]
        self.checked["re_solved"] = len(asked_first)
        if engines:
            self.checked["asked_besides"] = {
                name: f"{answered[name]} of {sum(q.engine == name for q in questions)} answered"
                for name in engines
            }
        self.checked["not_re_solved"] = 0


def _engine_complaints(certificate: Certificate) -> Iterable[str]:
    """What is wrong with the list of engines that were asked besides HiGHS."""
    engines = certificate.options.engines
    if engines and certificate.format.endswith("/1"):
        yield "certificates of version 1 know none besides HiGHS"
    if len(set(engines)) < len(engines):
        yield "one is named twice"
    for name in engines:
        if name not in ENGINES or name == FIRST_ENGINE:
            yield f"{name!r} is none that is asked besides HiGHS"
        elif not certificate.engines.get(name):
            yield f"the version of {name} is not given"


def _beside_complaint(answer: Answer, certificate: Certificate, holds_plan: bool) -> str | None:
    """What is wrong with the record of an answer besides."""
    best = certificate.batch_ticks
    limits = {
        "decision": None if best is None else best - 1,
        "minimum": None,
        "fixed_plan": best,
    }
    own_model = ENGINES[answer.engine].name == "cp-sat" if answer.engine in ENGINES else False
    for holds, complaint in (
        (answer.engine in certificate.options.engines, "it was not to be asked"),
        (answer.version == certificate.engines.get(answer.engine), "another release answered"),
        (answer.limit == limits[answer.question], "it answers another question"),
        (answer.question != "fixed_plan" or holds_plan, "the plan lies in another cell"),
        ((answer.formulation == "boundaries") == own_model, "it was asked about another model"),
        (answer.option_set == BESIDES, "it was asked under other options"),
    ):
        if not holds:
            return complaint
    return None


def _label(plan: Plan) -> str:
    """The name of the cell that a plan lies in."""
    return (
        f"b{plan.microbatch} d{plan.replicas} {plan.template.label} "
        f"s{len(plan.stages)} {plan.layout}"
    )


def _evidence(
    answers: Sequence[Answer], question: QuestionKind, limit: int | None, status: str
) -> str | None:
    """What is missing from answers of which two must agree."""
    if any(answer.engine != FIRST_ENGINE for answer in answers):
        return "an engine other than HiGHS answers"
    asked = [(a.formulation, a.question, a.limit, a.option_set) for a in answers]
    if len(set(asked)) < len(asked):
        return "one question is answered twice"
    agreeing = confirmed(answers, question, limit, status)
    if agreeing is None:
        return f"no {question} is {status} under two sets of options"
    return next((c for a in agreeing if (c := a.complaint())), None)


def _same(one: Plan | None, other: Plan | None) -> bool:
    """Whether two plans place everything alike, whatever they claim."""
    if one is None or other is None:
        return one is other

    def facts(plan: Plan) -> dict[str, Any]:
        return plan.model_dump(
            exclude={"digest": True, "stages": {"__all__": {"load_ticks", "memory_bytes"}}}
        )

    return facts(one) == facts(other)
