"""Random problems until two engines disagree, and the smallest problem on which they do.

Problems come from :mod:`nest_opt.certify.draw`. Compared are, on every problem,

- enumeration through the evaluator with the DP: T, reference plan and what the plan claims, and the
  least of the DP's optima of all cells; every few problems also the DP without bounds;
- two listings of the cells, and every closed-form bound with the optimum of its cell;

and on a share of them

- the witness of the optimum with its checker;
- both integer programs: the reference plan fixed, the minimum of its cell, nothing better, and the
  minimum of another cell. All models of a problem are solved in one process, forked for them; if
  that dies, each in its own.

What was found is shrunk (:mod:`nest_opt.certify.shrink`). An engine that raises is a finding, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from nest_opt.cells import Cell, list_cells
from nest_opt.certify.certificate import FIRST, Formulation, QuestionKind
from nest_opt.certify.check_witness import check_witness
from nest_opt.certify.draw import CORNER_NAMES, Drawn, draw
from nest_opt.certify.generate import outline
from nest_opt.certify.own_bounds import own_cells
from nest_opt.certify.processes import Outcome, run_each
from nest_opt.certify.questions import Question
from nest_opt.certify.shrink import shrink
from nest_opt.certify.suite import (
    Entry,
    answer,
    bound_complaints,
    cell_optima,
    disagreement,
    holds,
    solution_complaints,
)
from nest_opt.certify.witness import write_witness
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import best_plan
from nest_opt.errors import NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.files import canonical_json, write_text
from nest_opt.library import load_problem
from nest_opt.plan import Plan
from nest_opt.solve import solve

#: Called now and then with (done, total, what is being done); the total is in seconds.
Progress = Callable[[int, int, str], None]

#: One problem in so many is put to the integer programs; of those drawn for them, one in so many
#: others, and all of the first ones of a seed.
_PROGRAMS_EVERY, _DRAWN_FOR_PROGRAMS_EVERY, _FIRST = 10, 3, 300
#: One problem in so many is put to the witness, and to the DP without bounds.
_WITNESS_EVERY, _NO_BOUNDS_EVERY = 8, 3
#: Wall clock of shrinking one problem, and of all models of one problem, seconds.
SHRINK_SECONDS = 40.0
_MODELS_SECONDS = 60.0
_FORMULATIONS: tuple[Formulation, ...] = ("runs", "assignment")
#: What a complaint about an engine that raised starts with.
RAISES = "raises"


@dataclass(frozen=True)
class Finding:
    """A disagreement: what was said, on which problem, and on the smallest one found."""

    number: int
    complaint: str
    problem: dict[str, Any]
    shrunk: dict[str, Any]
    shrunk_complaint: str


@dataclass
class FuzzReport:
    """What was compared, and what disagreed; ``corners`` counts the problems that visit each."""

    seed: int
    problems: int = 0
    infeasible: int = 0
    plans: int = 0
    with_programs: int = 0
    with_witness: int = 0
    models: int = 0
    not_drawn: int = 0
    corners: Counter[str] = field(default_factory=Counter)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing disagreed or broke."""
        return self.problems > 0 and not self.findings and not self.faults

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "problems": self.problems,
            "infeasible": self.infeasible,
            "plans_enumerated": self.plans,
            "with_integer_programs": self.with_programs,
            "models_solved": self.models,
            "with_witness": self.with_witness,
            "not_drawn": self.not_drawn,
            "corners": {name: self.corners[name] for name in CORNER_NAMES},
            "wall_seconds": round(self.wall_seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "findings": [vars(finding) for finding in self.findings],
            "faults": self.faults,
        }


# --- comparing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A problem with what enumeration finds, which is what is expected of every engine."""

    entry: Entry
    plan: Plan | None

    @classmethod
    def of(cls, data: dict[str, Any], compiled: Compiled | None = None) -> _Case:
        """Enumerates; ``compiled`` is the problem in integers, if that is at hand."""
        compiled = compiled or compile_problem(load_problem(data))
        best = best_plan(compiled)
        ticks = best.evaluation.batch_ticks if best.evaluation else None
        entry = Entry(data, ticks, best.plans, compiled.digest, outline(best.plan))
        vars(entry)["compiled"] = compiled
        return cls(entry, best.plan)

    @cached_property
    def optimum(self) -> dict[str, int | None]:
        """By cell, the DP's optimum."""
        return cell_optima(self.entry.compiled)

    @property
    def least(self) -> int | None:
        """The least of them."""
        return min((ticks for ticks in self.optimum.values() if ticks is not None), default=None)


def exact_complaints(data: dict[str, Any]) -> list[str]:
    """What disagrees on a problem without asking a solver; empty if nothing does.

    Each complaint starts with the kind of disagreement, up to the first colon.
    """
    return list(_exact(_Case.of(data), witness=True, no_bounds=True))


def programs_complaints(data: dict[str, Any]) -> list[str]:
    """What the integer programs say that the DP and enumeration do not, likewise."""
    case = _Case.of(data)
    return list(_programs(case, _questions(case, other=0)))


def _exact(case: _Case, *, witness: bool, no_bounds: bool) -> Iterator[str]:
    """Everything but the integer programs, as it is compared."""
    entry = case.entry
    compiled = entry.compiled
    if {c.label for c in list_cells(compiled)} != {c.label for c in own_cells(compiled)}:
        yield "cells: two listings differ"
    evaluator = Evaluator(compiled)
    ways = [("with bounds", True), ("without bounds", False)]
    for how, use_bounds in ways if no_bounds else ways[:1]:
        solution = solve(compiled, use_bounds=use_bounds)
        for text in solution_complaints(entry, solution, evaluator):
            yield f"the DP {how}: {text}"
    if case.least != entry.batch_ticks:
        yield f"the DP by cells: T = {case.least}, not {entry.batch_ticks}"
    for text in bound_complaints(entry, case.optimum):
        yield f"bounds: {text}"
    if witness:
        written = write_witness(load_problem(entry.data)).data
        result = check_witness(json.loads(canonical_json(written)))
        for text in result.refusals:
            yield f"witness: {text}"


@dataclass(frozen=True)
class _Asked:
    """A question to an integer program, and the price that should come back (None: no plan)."""

    question: Question
    expected: int | None

    @property
    def label(self) -> str:
        """What is asked, in words; the kind of a complaint."""
        question = self.question
        if question.plan is not None:
            return f"{question.formulation} with the reference plan fixed"
        if question.kind == "decision":
            return f"{question.formulation} below the optimum"
        return f"{question.formulation} minimum"


def _questions(case: _Case, other: int) -> list[_Asked]:
    """The models of the best cell, and the minimum of another one, number ``other`` of the rest."""
    cells = list(list_cells(case.entry.compiled))
    plan, best, optimum = case.plan, case.entry.batch_ticks, case.optimum
    asked: list[_Asked] = []

    def ask(
        cell: Cell,
        kind: QuestionKind,
        limit: int | None,
        expected: int | None,
        fixed: Plan | None = None,
    ) -> None:
        for formulation in _FORMULATIONS:
            question = Question(cell, formulation, kind, limit, FIRST, fixed)
            asked.append(_Asked(question, expected))

    if plan is not None and best is not None:
        own = next((cell for cell in cells if holds(cell, plan)), None)
        if own is None:
            return []
        ask(own, "decision", best, best, plan)
        ask(own, "minimum", None, optimum.get(own.label))
        if best > 0:
            ask(own, "decision", best - 1, None)
        cells.remove(own)
    if cells:
        cell = cells[other % len(cells)]
        ask(cell, "minimum", None, optimum.get(cell.label))
        if best is None:
            ask(cell, "decision", None, None)
    return asked


def _programs(case: _Case, asked: Sequence[_Asked]) -> Iterator[str]:
    """Complaints about the answers; the models of a problem share a process."""
    for one, outcome in zip(asked, _answers(case.entry.compiled, asked), strict=True):
        complaint = disagreement(outcome, one.expected)
        if complaint:
            yield f"programs, {one.label}: {one.question.cell.label}: {complaint}"


def _answers(compiled: Compiled, asked: Sequence[_Asked]) -> list[Outcome]:
    if not asked:
        return []

    def together() -> dict[str, Any]:
        return {"answers": [answer(compiled, one.question, again=True) for one in asked]}

    def run(tasks: Sequence[Callable[[], dict[str, Any]]]) -> list[Outcome]:
        outcomes = dict(run_each(tasks, jobs=1, seconds=_MODELS_SECONDS))
        return [outcomes[n] for n in range(len(tasks))]

    (outcome,) = run([together])
    if outcome.value is not None:
        return [Outcome("done", value, "", 0.0) for value in outcome.value["answers"]]
    return run([partial(answer, compiled, one.question) for one in asked])


@dataclass
class Compared:
    """What was compared on one problem, and the first disagreement."""

    complaint: str | None = None
    plans: int = 0
    infeasible: bool = False
    models: int = 0
    witness: bool = False


def compare(drawn: Drawn, ignore: Callable[[str], object] | None = None) -> Compared:
    """Ask the engines about a drawn problem, until two disagree or one raises.

    Complaints for which ``ignore`` holds are passed over.
    """
    done = Compared()
    try:
        said = _complaints(drawn, done)
        done.complaint = next((text for text in said if not (ignore and ignore(text))), None)
    except Exception as error:  # an engine that breaks on a valid problem is a finding
        done.complaint = f"{RAISES} {type(error).__name__}: {error}"
    return done


def _complaints(drawn: Drawn, done: Compared) -> Iterator[str]:
    case = _Case.of(drawn.data, drawn.compiled)
    done.plans, done.infeasible = case.entry.plans, case.plan is None
    done.witness = _takes_turn(drawn.number, _WITNESS_EVERY)
    no_bounds = _takes_turn(drawn.number, _NO_BOUNDS_EVERY)
    yield from _exact(case, witness=done.witness, no_bounds=no_bounds)
    if _asks_programs(drawn):
        asked = _questions(case, drawn.number)
        done.models = len(asked)
        yield from _programs(case, asked)


def _takes_turn(number: int, every: int) -> bool:
    # Mixed, so that turns and aims, which also take turns, do not fall into step.
    return number * 2_654_435_761 % 2**32 // 2**8 % every == 0


def _asks_programs(drawn: Drawn) -> bool:
    """Whether a problem is put to the integer programs."""
    if drawn.programs:
        return drawn.number < _FIRST or _takes_turn(drawn.number, _DRAWN_FOR_PROGRAMS_EVERY)
    return _takes_turn(drawn.number, _PROGRAMS_EVERY)


def kind_of(complaint: str) -> str:
    """What a complaint is about, in words that stay the same while a problem is shrunk."""
    return complaint.partition(":")[0]


# --- running --------------------------------------------------------------------------------------


def fuzz(
    *, seconds: float, seed: int = 1, jobs: int = 1, progress: Progress | None = None
) -> FuzzReport:
    """Draw and compare problems for so many seconds, in ``jobs`` processes.

    Shrinking what was found may take longer. Engines that break are faults of the report.
    """
    started = time.monotonic()
    report = FuzzReport(seed)
    wrong: list[tuple[int, str]] = []

    # Workers are forked before anything here has asked a solver.
    until = started + seconds
    tasks = [lambda worker=worker: _worker(seed, worker, jobs, until) for worker in range(jobs)]
    running = run_each(tasks, jobs=jobs, seconds=seconds + 600)
    with contextlib.closing(running):
        for _, outcome in running:
            if outcome.value is None:
                report.faults.append(f"{outcome.status}: {outcome.message}"[:500])
                continue
            for name, count in outcome.value["counts"].items():
                setattr(report, name, getattr(report, name) + count)
            report.cpu_seconds += outcome.value["cpu"]
            report.corners.update(outcome.value["corners"])
            wrong += [tuple(pair) for pair in outcome.value["wrong"]]
            if progress:
                progress(min(int(time.monotonic() - started), int(seconds)), int(seconds), "fuzz")
    for number, complaint in wrong[:5]:
        data = draw(seed, number).data
        report.findings.append(shrunk(data, number, complaint, SHRINK_SECONDS))
    report.wall_seconds = time.monotonic() - started
    return report


def _worker(seed: int, worker: int, jobs: int, until: float) -> dict[str, Any]:
    """Every ``jobs``-th problem until the time is over; JSON-ready counts."""
    counts: Counter[str] = Counter()
    corners: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    number = worker
    while time.monotonic() < until and len(wrong) < 3:
        try:
            drawn = draw(seed, number)
        except NestOptError:
            counts["not_drawn"] += 1
            number += jobs
            continue
        done = compare(drawn)
        corners.update(drawn.corners)
        counts.update(
            problems=1,
            infeasible=done.infeasible,
            plans=done.plans,
            models=done.models,
            with_programs=done.models > 0,
            with_witness=done.witness,
        )
        if done.complaint:
            wrong.append((number, done.complaint))
        number += jobs
    return {"counts": counts, "corners": corners, "wrong": wrong, "cpu": cpu_seconds()}


def cpu_seconds() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def shrunk(
    data: dict[str, Any],
    number: int,
    complaint: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Finding:
    """What was found on a problem, with the smallest problem of the same kind of complaint."""
    small, said = shrink(data, lambda other: _same_kind(other, complaint), seconds, clock)
    return Finding(number, complaint, data, small, said or complaint)


def _same_kind(data: dict[str, Any], complaint: str) -> str | None:
    """A complaint of the same kind on another problem; as little is asked as will do."""
    kind = kind_of(complaint)
    try:
        case = _Case.of(data)
        if kind.startswith("programs"):
            if case.least != case.entry.batch_ticks:
                return None
            asked = _questions(case, 0)
            for other in range(1, len(case.optimum)):
                asked += _questions(case, other)[-2 * len(_FORMULATIONS) :]
            asked = [one for one in asked if f"programs, {one.label}" == kind]
            found = _programs(case, asked)
        else:
            found = _exact(case, witness=kind == "witness", no_bounds="without" in kind)
        return next((text for text in found if kind_of(text) == kind), None)
    except NestOptError:
        return None
    except Exception as error:
        text = f"{RAISES} {type(error).__name__}: {error}"
        return text if kind_of(text) == kind else None


# --- what is written ------------------------------------------------------------------------------


def write_finding(finding: Finding, folder: Path) -> tuple[Path, Path]:
    """The shrunk problem as a file, and a test that fails while the engines disagree on it."""
    name = finding.problem["name"]
    problem = folder / f"{name}.json"
    shrunk = {**finding.shrunk, "name": name, "description": finding.shrunk_complaint[:500]}
    write_text(problem, json.dumps(shrunk, indent=1) + "\n")
    test = folder / f"test_{name.replace('-', '_')}.py"
    kind = "programs" if "programs" in kind_of(finding.shrunk_complaint) else "exact"
    write_text(test, _TEST.format(name=name, kind=kind, complaint=finding.shrunk_complaint[:200]))
    return problem, test


_TEST = '''"""Found by fuzzing: {complaint!r}."""

import json
from pathlib import Path

from nest_opt.certify.fuzz import {kind}_complaints

DATA = json.loads(Path(__file__).with_name("{name}.json").read_text())


def test_the_engines_agree() -> None:
    assert {kind}_complaints(DATA) == []
'''


def table(report: FuzzReport, written: Sequence[Path] = ()) -> str:
    """For people: what was compared, and every disagreement."""
    rate = report.problems / report.wall_seconds if report.wall_seconds else 0.0
    per_cpu = report.problems / report.cpu_seconds if report.cpu_seconds else 0.0
    lines = [
        f"fuzz, seed {report.seed}: {report.problems:,} problems in {report.wall_seconds:.0f} s "
        f"({rate:.1f} a second, {per_cpu:.1f} a second of processor time), "
        f"{report.infeasible:,} of them infeasible",
        f"enumeration = DP on all ({report.plans:,} plans), both integer programs on "
        f"{report.with_programs:,} ({report.models:,} models), witness on {report.with_witness:,}",
        "corners: " + ", ".join(f"{name} {report.corners[name]:,}" for name in CORNER_NAMES),
    ]
    for finding in report.findings:
        lines.append(f"problem {finding.number}: {finding.complaint}")
        lines.append(f"  shrunk: {finding.shrunk_complaint}")
    lines += [f"fault: {fault}" for fault in report.faults]
    lines += [f"wrote {path}" for path in written]
    verdict = "all engines agree" if report.ok else "NOT all engines agree"
    return "\n".join([*lines, verdict])
