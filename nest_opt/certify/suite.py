"""Runs a suite of problems through every engine there is and compares the answers as integers.

For each problem, with T* the batch time and the reference plan that the suite expects:

- the DP finds T* and the reference plan, with closed-form bounds and without, and the evaluator
  prices that plan at T* and finds it feasible;
- enumeration finds the same plan, where there are at most ``ENUMERABLE`` plans;
- in every cell of the search space, all formulations: the minimum model is infeasible exactly
  where the DP finds no plan of that cell, and else returns a plan that the evaluator prices at
  exactly the DP's optimum of the cell;
- in every cell, all formulations: "a plan with T <= T* - 1 exists" is refuted (for an infeasible
  problem: "a plan exists");
- in the cell of the reference plan, all formulations: with that plan fixed, "a plan with T <= T*
  exists" is feasible and gives it back at T*;
- no closed-form bound exceeds the DP's optimum of its cell.

With bounds, cells that a closed-form bound closes (T >= T* there) get neither model. Without, every
cell gets its minimum models, and those with an optimum of T* or with a bound that closes them get
the decision models as well: where the minimum is above T*, they would ask the same once more.

Every solve is a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tabulate import tabulate

from nest_opt.bounds import UNLIMITED, Bounds
from nest_opt.cells import Cell, list_cells
from nest_opt.certify.canaries import require
from nest_opt.certify.certificate import BESIDES, FIRST, Formulation
from nest_opt.certify.engines import ENGINES, FIRST_ENGINE, besides, load
from nest_opt.certify.generate import ENUMERABLE, OPTIONS, SUITE_FORMAT, outline
from nest_opt.certify.own_bounds import own_cells
from nest_opt.certify.processes import Outcome, run_each
from nest_opt.certify.questions import Question, bare
from nest_opt.compile import Compiled, compile_problem
from nest_opt.dp.constrained import allowed_cells, pipelines_of
from nest_opt.dp.frontier import best_corners
from nest_opt.dp.tables import INFINITE
from nest_opt.enumerate import best_plan, count_plans
from nest_opt.errors import InputError
from nest_opt.evaluate import Evaluator
from nest_opt.files import read_json
from nest_opt.geometry import Geometry
from nest_opt.library import instances_folder, load_problem, names
from nest_opt.plan import Plan
from nest_opt.solve import Progress, Solution, solve

#: Wall clock of one solve, seconds. None of the shipped problems comes near it.
SOLVE_LIMIT = 300.0

_FORMULATIONS: tuple[Formulation, ...] = ("runs", "assignment", "arcs")


# --- suites ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A problem of a suite and what is expected of it.

    ``batch_ticks`` is None where the problem is infeasible. ``reference`` outlines the reference
    plan. ``decisive`` lists the options that decide the optimum.
    """

    data: dict[str, Any]
    batch_ticks: int | None
    plans: int
    digest: str
    reference: dict[str, Any] | None
    decisive: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the problem."""
        return str(self.data["name"])

    @property
    def is_enumerable(self) -> bool:
        """Whether there are few enough plans to price them all."""
        return self.plans <= ENUMERABLE

    @cached_property
    def compiled(self) -> Compiled:
        """The problem in integers."""
        return compile_problem(load_problem(self.data))

    @cached_property
    def features(self) -> frozenset[str]:
        """What the problem has, in words: to spread a sample over it."""
        data = self.data
        model, training, search = data["model"], data["training"], data["search"]
        cost_model = training.get("cost_model", {})
        layers = model.get("layers", ())
        network = data["cluster"].get("network", {}).get("kind", "")
        calls = {
            f"{call['kind']} over {call['axis']}"
            for layer in layers
            for costs in layer["costs"]
            for call in costs.get("collectives", ())
        }
        flags = {
            "infeasible": self.batch_ticks is None,
            "large": not self.is_enumerable,
            "tied weight": bool(model.get("tied_weights")),
            "estimated layers": model["kind"] == "config",
            "skip connections": any(len(x.get("inputs", ())) > 1 for x in layers),
            "repeated layers": any(x.get("count", 1) > 1 for x in layers),
            "expert weights": any(
                costs.get("expert_weight_bytes") for x in layers for costs in x["costs"]
            ),
            "exposed shares": "exposed" in cost_model,
            "units left out": "quantum_bytes" not in data["units"],
            "several microbatch sizes": len(search["microbatch"]) > 1,
            f"{training['all_reduce']} all-reduce": True,
            network or f"{len(data['cluster'].get('levels', ()))} levels": True,
        }
        flags |= {str(value): True for value in cost_model.values() if isinstance(value, str)}
        return frozenset({name for name, holds in flags.items() if holds} | calls).union(
            f"{option} is decisive" for option in self.decisive
        )


@dataclass(frozen=True)
class Suite:
    """Problems with expected answers."""

    name: str
    description: str
    source: str
    entries: tuple[Entry, ...]

    def sample(self, count: int) -> tuple[Entry, ...]:
        """``count`` entries, in order, that have every feature of the suite, most of them twice.

        Always the same ones: picked one by one for the features that are still missing most, then
        evenly from the rest.
        """
        left = list(range(len(self.entries)))
        seen: Counter[str] = Counter()
        picked: list[int] = []

        def gain(index: int) -> tuple[int, int]:
            return -sum(seen[name] < 2 for name in self.entries[index].features), index

        while left and len(picked) < count:
            best = min(left, key=gain)
            if gain(best)[0] == 0:
                break
            picked.append(best)
            left.remove(best)
            seen.update(self.entries[best].features)
        more = max(count - len(picked), 0)
        picked += [left[n * len(left) // more] for n in range(min(more, len(left)))]
        return tuple(self.entries[index] for index in sorted(picked))


def load_suite(reference: str) -> Suite:
    """A suite by shipped name or file. Raises :class:`InputError`."""
    if reference in names("suites"):
        path = instances_folder() / "suites" / f"{reference}.json"
    elif reference.endswith(".json"):
        path = Path(reference)
    else:
        known = ", ".join(names("suites")) or "(none)"
        message = f"no shipped suite has this name; give a file or one of: {known}"
        raise InputError(reference, message)
    data = read_json(path)
    try:
        if data["format"] != SUITE_FORMAT:
            raise InputError(reference, f"is not a suite: its format is not {SUITE_FORMAT!r}")
        return Suite(
            data["name"],
            data["description"],
            data["source"],
            tuple(
                Entry(
                    item["problem"],
                    item["expected"]["batch_ticks"],
                    item["expected"]["plans"],
                    item["expected"]["digest"],
                    item["expected"]["reference"],
                    tuple(item["decisive"]),
                )
                for item in data["problems"]
            ),
        )
    except (KeyError, TypeError) as error:
        raise InputError(reference, f"is not a suite: {type(error).__name__} {error}") from None


# --- reports --------------------------------------------------------------------------------------


@dataclass
class ProblemReport:
    """What the engines said of one problem; ``disagreements`` is empty where they agree."""

    name: str
    batch_ticks: int | None
    plans: int
    enumerated: bool
    cells: int
    bounded: int = 0
    minima: int = 0
    decisions: int = 0
    seconds: float = 0.0
    disagreements: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {**vars(self), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class SuiteReport:
    """What came of a suite."""

    name: str
    problems: tuple[ProblemReport, ...]
    of: int
    use_bounds: bool
    decisive: dict[str, int]
    wall_seconds: float

    @property
    def ok(self) -> bool:
        """Whether there was a problem and all engines agree on all of them."""
        return bool(self.problems) and not any(p.disagreements for p in self.problems)

    @property
    def totals(self) -> dict[str, int]:
        """Counts over all problems."""
        enumerated = [p.plans for p in self.problems if p.enumerated]
        return {
            "problems": len(self.problems),
            "infeasible": sum(p.batch_ticks is None for p in self.problems),
            "enumerated": len(enumerated),
            "plans_enumerated": sum(enumerated),
            "cells": sum(p.cells for p in self.problems),
            "bounded": sum(p.bounded for p in self.problems),
            "minimum_models": sum(p.minima for p in self.problems),
            "decision_models": sum(p.decisions for p in self.problems),
            "disagreements": sum(len(p.disagreements) for p in self.problems),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "suite": self.name,
            "ok": self.ok,
            "of": self.of,
            "use_bounds": self.use_bounds,
            "totals": self.totals,
            "decisive": dict(self.decisive),
            "wall_seconds": round(self.wall_seconds, 3),
            "problems": [p.to_dict() for p in self.problems],
        }

    def table(self) -> str:
        """For people: totals, how often each option is decisive, every disagreement."""
        verdict = "all engines agree" if self.ok else "the engines DISAGREE"
        bounds = "with bounds" if self.use_bounds else "without bounds"
        parts = [
            f"suite {self.name}, {len(self.problems)} of {self.of} problems, {bounds}: {verdict} "
            f"({self.wall_seconds:.0f} s)",
            tabulate(
                [(key.replace("_", " "), f"{count:,}") for key, count in self.totals.items()],
                colalign=("left", "right"),
                disable_numparse=True,
                tablefmt="plain",
            ),
            tabulate(
                list(self.decisive.items()),
                headers=("option", "decisive in"),
                tablefmt="simple",
            ),
        ]
        wrong = [f"{p.name}: {text}" for p in self.problems for text in p.disagreements]
        if wrong:
            parts.append("\n".join(wrong))
        return "\n\n".join(parts)


# --- running --------------------------------------------------------------------------------------


def run_suite(
    name: str,
    *,
    jobs: int,
    use_bounds: bool = True,
    sample: int | None = None,
    engines: Sequence[str] = (),
    progress: Progress | None = None,
) -> SuiteReport:
    """Run a suite (by shipped name or file) through all engines; see the module's description.

    ``jobs`` processes run at once. ``sample`` is the number of problems to run, spread over what
    the suite holds; None runs all. ``engines`` are asked besides HiGHS. Raises :class:`InputError`
    for a suite that cannot be read, ``EngineError`` for an engine that is not installed; engines
    that break are disagreements.
    """
    suite = load_suite(name)
    entries = suite.entries if sample is None else suite.sample(sample)
    report = run_entries(
        entries, jobs=jobs, use_bounds=use_bounds, engines=engines, progress=progress
    )
    return SuiteReport(
        suite.name,
        report.problems,
        len(suite.entries),
        use_bounds,
        report.decisive,
        report.wall_seconds,
    )


def run_entries(
    entries: Sequence[Entry],
    *,
    jobs: int,
    use_bounds: bool = True,
    engines: Sequence[str] = (),
    progress: Progress | None = None,
) -> SuiteReport:
    """Run some problems of a suite through all engines, those named besides included."""
    others = besides(engines)
    require(others, jobs)
    load(others)
    started = time.monotonic()
    checks = [_Check(entry, use_bounds) for entry in entries]

    def rounds(what: str, each: Callable[[_Check], Iterable[_Task]]) -> None:
        tasks = [task for check in checks for task in each(check)]
        running = run_each([task.run for task in tasks], jobs=jobs, seconds=SOLVE_LIMIT)
        with contextlib.closing(running):
            for done, (index, outcome) in enumerate(running, 1):
                tasks[index].check.report.seconds += outcome.seconds
                tasks[index].judge(outcome)
                if progress:
                    progress(done, len(tasks), what)

    rounds("DP and enumeration", lambda check: [check.exact_task()])
    rounds("integer programs", lambda check: check.questions())
    for name in others:
        rounds(ENGINES[name].title, partial(_questions_to, name))
    decisive = {option: sum(option in entry.decisive for entry in entries) for option in OPTIONS}
    return SuiteReport(
        "selection",
        tuple(check.report for check in checks),
        len(entries),
        use_bounds,
        decisive,
        time.monotonic() - started,
    )


def _questions_to(engine: str, check: _Check) -> list[_Task]:
    """The questions about a problem as they are put to an engine other than HiGHS."""
    return check.questions(("boundaries",) if engine == "cp-sat" else ("runs",), engine)


@dataclass(frozen=True)
class _Task:
    """Something to run in a child, and what to do with how it ended."""

    check: _Check
    run: Callable[[], dict[str, Any]]
    judge: Callable[[Outcome], None]
    fixed: bool = False


class _Check:
    """One problem on its way through the engines."""

    def __init__(self, entry: Entry, use_bounds: bool) -> None:
        self.entry = entry
        self.use_bounds = use_bounds
        self.cells = list(list_cells(entry.compiled))
        self.report = ProblemReport(
            entry.name, entry.batch_ticks, entry.plans, entry.is_enumerable, len(self.cells)
        )
        #: By cell: the DP's optimum, and whether a closed-form bound closes it.
        self.optimum: dict[str, int | None] = {}
        self.bounded: set[str] = set()
        self.plan: Plan | None = None

    def _object(self, text: str) -> None:
        self.report.disagreements.append(text)

    # --- DP, bounds, evaluator, enumeration -------------------------------------------------------

    def exact_task(self) -> _Task:
        """Everything that needs no solver."""

        def judge(outcome: Outcome) -> None:
            found = outcome.value
            if found is None:
                self._object(f"the exact engines broke: {outcome.status}: {outcome.message}")
                return
            self.report.disagreements += found["disagreements"]
            self.optimum, self.bounded = found["optimum"], set(found["bounded"])
            self.report.bounded = len(self.bounded)
            self.plan = Plan.from_dict(found["plan"]) if found["plan"] else None

        return _Task(self, lambda: exact_answers(self.entry), judge)

    # --- integer programs -------------------------------------------------------------------------

    def questions(
        self,
        formulations: Sequence[Formulation] = _FORMULATIONS,
        engine: str = FIRST_ENGINE,
    ) -> list[_Task]:
        """The questions about every cell, to one engine."""
        best = self.entry.batch_ticks
        limit = None if best is None else best - 1
        tasks = []
        for cell in self.cells:
            if cell.label not in self.optimum:
                continue  # The exact engines broke, and have been reported.
            optimum, closed = self.optimum[cell.label], cell.label in self.bounded
            if closed and self.use_bounds:
                continue
            asks_decision = self.use_bounds or closed or optimum == best
            for formulation in formulations:
                tasks.append(self._question(cell, formulation, "minimum", None, optimum, engine))
                if asks_decision and (limit is None or limit >= 0):
                    tasks.append(self._question(cell, formulation, "decision", limit, None, engine))
        if self.plan is not None:
            own = next(cell for cell in self.cells if holds(cell, self.plan))
            for formulation in formulations:
                tasks.append(
                    self._question(own, formulation, "decision", best, best, engine, self.plan)
                )
        return tasks

    def _question(
        self,
        cell: Cell,
        formulation: Formulation,
        kind: Any,
        limit: int | None,
        expected: int | None,
        engine: str,
        plan: Plan | None = None,
    ) -> _Task:
        if formulation == "boundaries":
            engine = "cp-sat"
        options = FIRST if engine == FIRST_ENGINE else BESIDES
        question = Question(cell, formulation, kind, limit, options, plan, engine)
        if kind == "minimum":
            self.report.minima += 1
        else:
            self.report.decisions += 1

        def judge(outcome: Outcome) -> None:
            complaint = disagreement(outcome, expected)
            if complaint:
                asked = kind if limit is None else f"{kind} T <= {limit}"
                fixed = " with the reference plan fixed" if plan else ""
                who = formulation if question.engine == FIRST_ENGINE else question.engine
                self._object(f"{cell.label}: {who} {asked}{fixed}: {complaint}")

        return _Task(
            self, lambda: answer(self.entry.compiled, question), judge, fixed=plan is not None
        )


def holds(cell: Cell, plan: Plan) -> bool:
    """Whether a plan of one of the two layouts lies in a cell."""
    return (
        cell.microbatch == plan.microbatch
        and cell.replicas == plan.replicas
        and cell.template == plan.template
        and cell.stages == len(plan.stages)
        and cell.layout == plan.layout
    )


# --- what the engines say -------------------------------------------------------------------------


def exact_answers(entry: Entry) -> dict[str, Any]:
    """DP, bounds, evaluator and enumeration of one problem, compared; JSON-ready.

    ``disagreements``, the DP's ``plan``, and by cell its ``optimum`` and which are ``bounded``.
    """
    compiled = entry.compiled
    wrong: list[str] = []
    if compiled.digest != entry.digest:
        wrong.append(f"the digest is {compiled.digest}, not {entry.digest}")
    plans = count_plans(compiled)
    if plans != entry.plans:
        wrong.append(f"there are {plans} plans, not {entry.plans}")
    cells = list(list_cells(compiled))
    if {cell.label for cell in cells} != {cell.label for cell in own_cells(compiled)}:
        wrong.append("two listings of the cells differ")
    wrong += solver_complaints(entry)
    if entry.is_enumerable:
        wrong += enumeration_complaints(entry)
    wrong += bound_complaints(entry)
    optimum = cell_optima(compiled)
    least = min((ticks for ticks in optimum.values() if ticks is not None), default=None)
    if least != entry.batch_ticks:
        wrong.append(f"the least optimum of the cells is {least}, not {entry.batch_ticks}")
    bounds = Bounds(compiled, Geometry.of(compiled))
    plan = solve(compiled, use_bounds=False).plan
    return {
        "disagreements": wrong,
        "plan": plan.to_dict() if plan else None,
        "optimum": optimum,
        "bounded": [c.label for c in cells if _is_bounded(bounds, c, entry.batch_ticks)],
    }


def solver_complaints(entry: Entry) -> Iterator[str]:
    """What is wrong with the DP's answers, with bounds and without."""
    evaluator = Evaluator(entry.compiled)
    for how, use_bounds in (("with bounds", True), ("without bounds", False)):
        solution = solve(entry.compiled, use_bounds=use_bounds)
        for text in solution_complaints(entry, solution, evaluator):
            yield f"the DP {how}: {text}"


def enumeration_complaints(entry: Entry) -> Iterator[str]:
    """What enumeration finds that is not expected."""
    best = best_plan(entry.compiled)
    priced = best.evaluation.require_price() if best.evaluation else None
    if priced != entry.batch_ticks:
        yield f"enumeration: T = {priced}, not {entry.batch_ticks}"
    elif outline(best.plan) != entry.reference:
        yield f"enumeration: the plan {_short(best.plan)}, not {json.dumps(entry.reference)}"
    if best.plans != entry.plans:
        yield f"enumeration: priced {best.plans} plans of {entry.plans}"


def bound_complaints(entry: Entry, optimum: dict[str, int | None] | None = None) -> Iterator[str]:
    """Closed-form bounds that exceed the DP's optimum of their cell (or what is given as that)."""
    compiled = entry.compiled
    bounds = Bounds(compiled, Geometry.of(compiled))
    optimum = optimum or cell_optima(compiled)
    for cell in list_cells(compiled):
        ticks = optimum[cell.label]
        if ticks is None:
            continue
        if bounds.work(cell) > ticks:
            yield f"{cell.label}: the work bound is {bounds.work(cell)}, above T = {ticks}"
        if not bounds.may_reach(cell, ticks):
            yield f"{cell.label}: counting refutes T <= {ticks}, which a plan has"


def program_complaints(
    entry: Entry, formulations: Sequence[Formulation], most_cells: int | None = None
) -> Iterator[str]:
    """What integer programs say that the DP does not, found one after the other.

    The fixed reference plan first, then cells by their optimum, best first; no more than
    ``most_cells`` of them, if that is given.
    """
    compiled = entry.compiled
    check = _Check(entry, use_bounds=False)
    check.optimum = cell_optima(compiled)
    check.plan = solve(compiled, use_bounds=False).plan
    last = float("inf")
    plan = check.plan
    check.cells.sort(
        key=lambda cell: (
            last if (t := check.optimum[cell.label]) is None else t,
            plan is not None and not holds(cell, plan),
        )
    )
    if most_cells is not None:
        del check.cells[most_cells:]
    load(("cp-sat",) if "boundaries" in formulations else ())
    tasks = check.questions(formulations)
    tasks.sort(key=lambda task: not task.fixed)
    running = run_each([task.run for task in tasks], jobs=1, seconds=SOLVE_LIMIT)
    with contextlib.closing(running):
        for index, outcome in running:
            tasks[index].judge(outcome)
            yield from check.report.disagreements
            check.report.disagreements.clear()


def cell_optima(compiled: Compiled) -> dict[str, int | None]:
    """By cell, the DP's least batch time in that cell; None where it has no plan."""
    geometry = Geometry.of(compiled)
    optimum: dict[str, int | None] = {}
    allowed = set(allowed_cells(compiled, geometry, list_cells(compiled)))
    for cell in list_cells(compiled):
        if cell not in allowed:
            optimum[cell.label] = None
            continue
        pipelines = pipelines_of(compiled, geometry, cell)
        corners = best_corners(pipelines, cell.stages, cell.slots, int(INFINITE))
        optimum[cell.label] = corners[0].batch_ticks if corners else None
    return optimum


def _is_bounded(bounds: Bounds, cell: Cell, best: int | None) -> bool:
    if best is None:
        return not bounds.may_reach(cell, UNLIMITED)
    return bounds.work(cell) >= best or not bounds.may_reach(cell, best - 1)


def solution_complaints(entry: Entry, solution: Solution, evaluator: Evaluator) -> list[str]:
    """What is wrong with a DP's answer, by what is expected and by the evaluator."""
    if solution.batch_ticks != entry.batch_ticks:
        return [f"T = {solution.batch_ticks}, not {entry.batch_ticks}"]
    if solution.plan is None:
        return [] if entry.batch_ticks is None else ["no plan"]
    wrong = []
    if outline(solution.plan) != entry.reference:
        wrong.append(f"the plan {_short(solution.plan)}, not {json.dumps(entry.reference)}")
    evaluation = evaluator.evaluate(solution.plan)
    priced = (evaluation.batch_ticks, evaluation.tau_ticks, evaluation.sigma_ticks)
    if priced != (solution.batch_ticks, solution.tau_ticks, solution.sigma_ticks):
        wrong.append(f"the evaluator prices (T, tau, sigma) at {priced}")
    wrong += [f"the evaluator objects: {violation}" for violation in evaluation.violations]
    wrong += [f"the evaluator computes otherwise: {claim}" for claim in evaluation.claims]
    if evaluation.stale:
        wrong.append("the plan carries another digest")
    return wrong


def _short(plan: Plan | None) -> str:
    return json.dumps(outline(plan))


def answer(compiled: Compiled, question: Question, *, again: bool = False) -> dict[str, Any]:
    """Ask one question in this process; JSON-ready.

    It must not have solved anything before, unless ``again`` is set.

    ``status`` and ``detail`` are the engine's; ``priced`` is the evaluator's price of the plan that
    the engine returned, None where it is infeasible or no plan (``note`` then says why).
    """
    engine = question.answer(compiled, SOLVE_LIMIT, None, again=again)
    priced, note = None, ""
    if engine.status in ("optimal", "feasible"):
        try:
            plan = question.decode(compiled, engine.values or {})
            evaluation = Evaluator(compiled).evaluate(plan)
        except Exception as error:  # whatever it is, the solution is no plan
            note = f"{type(error).__name__}: {error}"
        else:
            priced = evaluation.batch_ticks if evaluation.feasible else None
            note = "; ".join(map(str, evaluation.violations))
            if question.plan is not None and bare(plan) != bare(question.plan):
                note, priced = "another plan comes back", None
    return {"status": engine.status, "detail": engine.detail, "priced": priced, "note": note}


def disagreement(outcome: Outcome, expected: int | None) -> str | None:
    """What is wrong with an answer, if something is.

    ``expected`` is the price of the plan that should come back; None: the model is infeasible.
    """
    found = outcome.value
    if found is None:
        return f"{outcome.status}: {outcome.message}"
    status = found["status"]
    if expected is None:
        if status == "infeasible":
            return None
        return f"{status}, not infeasible: priced at {found['priced']} {found['note']}".strip()
    if status != "optimal":
        return f"{status} ({found['detail']}), but a plan costs {expected}"
    if found["priced"] == expected:
        return None
    return f"a plan priced at {found['priced']}, not {expected} {found['note']}".strip()


def spread(entries: Sequence[Entry], parts: int) -> list[list[Entry]]:
    """Entries dealt out to ``parts`` of about equal work."""
    dealt: defaultdict[int, list[Entry]] = defaultdict(list)
    work = [0.0] * parts
    for entry in sorted(entries, key=_work, reverse=True):
        least = min(range(parts), key=work.__getitem__)
        dealt[least].append(entry)
        work[least] += _work(entry)
    return [dealt[part] for part in range(parts)]


def _work(entry: Entry) -> float:
    """Roughly the seconds that a problem takes."""
    cells = sum(1 for _ in list_cells(entry.compiled))
    return 0.1 * cells + (entry.plans / 10_000 if entry.is_enumerable else 0.0)
