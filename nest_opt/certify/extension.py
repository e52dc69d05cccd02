"""Certifies a constraint: its three faces mean the same, and the comparison would notice if not.

Problems of the suite ``small`` are given the constraint, with parameters that its ``sample`` draws.
On each

- enumeration through ``check`` is compared with the DP, with bounds and without: T, reference plan;
- the integer programs, and CP-SAT where it is installed, are asked for the optimum of cells and
  whether anything is better, on a share of the problems;
- what ``check`` says of whole cells is tried on every plan of the cell, and it must not break on
  plans that lie anywhere.

Then each mutant of the faces (:mod:`nest_opt.certify.faces`) must make some of these problems
disagree. A disagreement is shrunk to a small problem with a ready test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, Literal

from nest_opt.cells import Cell, list_cells
from nest_opt.certify.faces import FaceMutant, face_mutants
from nest_opt.certify.generate import outline
from nest_opt.certify.own_bounds import excluded_by, own_cells
from nest_opt.certify.processes import run_all
from nest_opt.certify.shrink import shrink
from nest_opt.certify.suite import (
    Entry,
    bound_complaints,
    cell_optima,
    load_suite,
    program_complaints,
    solution_complaints,
)
from nest_opt.compile import Compiled, compile_problem
from nest_opt.constraints import Constraint, source_digests
from nest_opt.enumerate import Best, all_plans, best_plan
from nest_opt.errors import EngineError, NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.files import canonical_json, write_text
from nest_opt.library import load_problem
from nest_opt.plan import Plan
from nest_opt.problem import Problem, Search
from nest_opt.solve import solve

FORMAT = "nest-opt/constraint-certificate/1"

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]
Verdict = Literal["certified", "refuted", "open", "fault"]
Kind = Literal["binding", "slack", "impossible"]

#: Problems with more plans than this are left to the suite.
MAX_PLANS = 4000
#: So many problems must be changed by the constraint.
BINDING = 8
#: Of the problems, one in so many is put to the integer programs.
_PROGRAMS_EVERY = 4
#: So many of its best cells are asked about.
_CELLS = 4
#: Shares of the time after which no more problems are chosen, and compared.
_CHOOSING, _COMPARING = 0.3, 0.65
#: Draws of parameters for one problem, until they do what they are drawn for.
_DRAWS = 8
#: Wall clock of one comparison in a process of its own, seconds.
_LIMIT = 120.0
#: Seconds for shrinking.
_SHRINK_SECONDS = 30.0


@dataclass(frozen=True)
class Case:
    """A problem with the constraint, and what the check makes of it by enumeration."""

    data: dict[str, Any]
    kind: Kind

    @cached_property
    def problem(self) -> Problem:
        """The problem, with the class that is registered now."""
        return load_problem(self.data)


@dataclass
class ConstraintCertificate:
    """What was compared, and whether anything stands against the constraint.

    ``certified``: the faces agreed on every problem, ``BINDING`` of which the constraint changed,
    and no mutant survived. ``refuted``: they did not; ``finding`` has the smallest problem found.
    ``open``: time ran out, too few problems were changed, or a mutant survived. ``fault``: a face
    raised an exception.
    """

    constraint: str
    meaning: str
    verdict: Verdict = "open"
    reasons: list[str] = field(default_factory=list)
    seed: int = 1
    problems: int = 0
    binding: int = 0
    slack: int = 0
    impossible: int = 0
    plans: int = 0
    cells: int = 0
    with_programs: int = 0
    whole_cells: int = 0
    mutants: dict[str, str] = field(default_factory=dict)
    finding: dict[str, Any] | None = None
    source: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    wall_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"format": FORMAT, **vars(self), "wall_seconds": round(self.wall_seconds, 3)}


def certify_constraint(
    cls: type[Constraint],
    *,
    problems: int = 60,
    seconds: float = 110.0,
    seed: int = 1,
    jobs: int = 1,
    progress: Progress | None = None,
) -> ConstraintCertificate:
    """Compare the faces of a registered constraint on up to ``problems`` problems.

    ``seconds`` is for everything but shrinking.
    """
    return _Certification(cls, problems, seconds, seed, jobs, progress).run()


class _Certification:
    def __init__(
        self,
        cls: type[Constraint],
        problems: int,
        seconds: float,
        seed: int,
        jobs: int,
        progress: Progress | None,
    ) -> None:
        self.cls, self.wanted, self.seed, self.jobs = cls, problems, seed, jobs
        self.started = time.monotonic()
        self.until = self.started + seconds
        self.progress = progress
        self.report = ConstraintCertificate(cls.name(), cls.meaning, seed=seed)
        self.cases: list[Case] = []

    def run(self) -> ConstraintCertificate:
        report = self.report
        if self._compare():
            self._mutate()
            self._judge()
        report.versions = _versions()
        report.wall_seconds = time.monotonic() - self.started
        return report

    def _tick(self, done: int, total: int, what: str) -> None:
        if self.progress:
            self.progress(done, total, what)

    # --- the faces as they are --------------------------------------------------------------------

    def _compare(self) -> bool:
        """Compare on every problem; false if something disagreed or broke."""
        chosen = self._choose()
        report = self.report
        if report.verdict == "fault":
            return False
        # Time is kept for the mutants, without which agreement proves little.
        until = self.started + _COMPARING * (self.until - self.started)
        for start in range(0, len(chosen), 2 * self.jobs):
            if time.monotonic() > until:
                report.reasons.append(f"time ran out after {report.problems} problems")
                break
            tasks = [
                lambda n=n: _compare_one(*chosen[n], programs=n % _PROGRAMS_EVERY == 0)
                for n in range(start, min(start + 2 * self.jobs, len(chosen)))
            ]
            for outcome in run_all(tasks, jobs=self.jobs, seconds=_LIMIT):
                found = outcome.value
                if found is None:
                    report.verdict = "open" if outcome.status == "timeout" else "fault"
                    report.reasons = [outcome.message]
                    return False
                if found["complaint"]:
                    self._refute(found)
                    return False
                report.problems += 1
                setattr(report, found["kind"], getattr(report, found["kind"]) + 1)
                for name in ("plans", "cells", "with_programs", "whole_cells"):
                    setattr(report, name, getattr(report, name) + found[name])
                report.source.update(found["source"])
                self.cases.append(Case(found["data"], found["kind"]))
            self._tick(report.problems, len(chosen), "comparing")
        return True

    def _choose(self) -> list[tuple[dict[str, Any], Entry]]:
        """Problems with the constraint, half of them changed by it if there are as many.

        Of every kind those with the fewest plans.
        """
        bases = [
            entry
            for entry in load_suite("small").entries
            if entry.plans <= MAX_PLANS
            and entry.batch_ticks is not None
            # What is estimated from a configuration cannot be made smaller layer by layer.
            and entry.data["model"]["kind"] == "layers"
        ]
        Random(f"{self.seed} {self.cls.name()}").shuffle(bases)
        parts = [list(range(part, len(bases), self.jobs)) for part in range(self.jobs)]
        until = self.started + _CHOOSING * (self.until - self.started)
        tasks = [
            lambda part=part: _screen(self.cls, bases, part, self.seed, until) for part in parts
        ]
        self._tick(0, len(bases), "choosing problems")
        found: dict[int, tuple[dict[str, Any], str]] = {}
        for outcome in run_all(tasks, jobs=self.jobs, seconds=None):
            if outcome.value is None:
                self.report.verdict = "fault"
                self.report.reasons = [f"drawing parameters and solving: {outcome.message}"]
                return []
            found |= {n: (data, kind) for n, data, kind in outcome.value["drawn"]}
        chosen: list[int] = []
        most = {"binding": self.wanted * 3 // 5, "impossible": self.wanted // 5}
        for kind in ("binding", "impossible", "slack"):
            of_kind = sorted(
                (n for n in found if found[n][1] == kind), key=lambda n: bases[n].plans
            )
            chosen += of_kind[: most.get(kind, self.wanted - len(chosen))]
        if len(chosen) < self.wanted and time.monotonic() > until:
            self.report.reasons.append("time ran out while problems were chosen")
        # Those that bind first: they are the most likely to show an error, and mutants need them.
        return [(found[n][0], bases[n]) for n in chosen]

    def _refute(self, found: dict[str, Any]) -> None:
        report = self.report
        report.verdict = "refuted"
        kind = found["complaint"].partition(":")[0]

        def still(data: dict[str, Any]) -> str | None:
            try:
                return next((c for c in complaints(data) if c.partition(":")[0] == kind), None)
            except NestOptError:
                return None

        small, said = shrink(found["data"], still, _SHRINK_SECONDS)
        report.reasons = [found["complaint"]]
        report.finding = {"complaint": said or found["complaint"], "problem": small}

    # --- the faces made wrong ---------------------------------------------------------------------

    def _mutate(self) -> None:
        """Each mutant on the problems that the constraint changes first, then on the others."""
        mutants = face_mutants(self.cls)
        order = {"binding": 0, "impossible": 1, "slack": 2}
        cases = sorted(self.cases, key=lambda case: order[case.kind])
        tasks = [lambda m=m: _hunt(self.cls, m, cases, self.until) for m in mutants]
        done = 0

        def show(index: int, outcome: Any) -> None:
            nonlocal done
            done += 1
            self._tick(done, len(mutants), "mutants")

        left = max(self.until - time.monotonic(), 1.0)
        outcomes = run_all(tasks, jobs=self.jobs, seconds=left + 30.0, on_done=show)
        for mutant, outcome in zip(mutants, outcomes, strict=True):
            found = outcome.value["found"] if outcome.value else f"fault: {outcome.message}"
            self.report.mutants[f"{mutant.engine}: {mutant.name}"] = found

    def _judge(self) -> None:
        report = self.report
        if report.binding < BINDING:
            report.reasons.append(
                f"the constraint changed the answer of {report.binding} problems only, not "
                f"{BINDING}; let sample() draw tighter parameters"
            )
        for name, found in report.mutants.items():
            if found == "survived":
                report.reasons.append(f"mutant {name} survived: no problem shows that it is wrong")
            elif found.startswith(("fault", "time")):
                report.reasons.append(f"mutant {name}: {found}")
        if not _has_dp_face(self.cls):
            report.reasons.append("it has no face for the dynamic program")
        report.verdict = "open" if report.reasons else "certified"


def _has_dp_face(cls: type[Constraint]) -> bool:
    return any(
        getattr(cls, face) is not getattr(Constraint, face)
        for face in ("allows_cell", "allows_stage", "carry")
    )


# --- one problem ----------------------------------------------------------------------------------


def _screen(
    cls: type[Constraint], bases: Sequence[Entry], numbers: Sequence[int], seed: int, until: float
) -> dict[str, Any]:
    """For each of some problems, parameters that do what they are drawn for, if any do.

    Runs in a process of its own, until time is up; JSON-ready.
    """
    drawn: list[tuple[int, dict[str, Any], Kind]] = []
    for n in numbers:
        base, random = bases[n], Random(f"{seed} {n}")
        free = solve(base.compiled).plan
        assert free is not None  # bases have plans
        # Most problems should be changed by the constraint, some left without a plan.
        aim: Kind = "impossible" if n % 6 == 5 else "binding"
        for _ in range(_DRAWS):
            if time.monotonic() > until:
                return {"drawn": drawn}
            constraint = cls.sample(base.compiled, random)
            data: dict[str, Any] = json.loads(canonical_json(base.data))
            listed = json.loads(constraint.model_dump_json(exclude_none=True))
            data["search"]["constraints"] = [listed]
            data["name"] = f"{cls.name()}-{n:03d}"
            kind = _likely_kind(data, free)
            if kind == aim or len(listed) == 1:
                break  # without parameters, another draw is the same
        drawn.append((n, data, kind))
    return {"drawn": drawn}


def _compare_one(data: dict[str, Any], base: Entry, *, programs: bool) -> dict[str, Any]:
    """All comparisons of one problem; JSON-ready. Runs in a process of its own."""
    case = Compared(data)
    complaint = next(case.complaints(programs=programs), None)
    return {
        "data": data,
        "kind": _kind(case.best, base),
        "complaint": complaint,
        "plans": case.entry.plans,
        "cells": case.asked_cells,
        "with_programs": int(programs),
        "whole_cells": case.whole_cells,
        "source": source_digests(load_problem(data).search.constraints),
    }


def _kind(best: dict[str, Any] | None, base: Entry) -> Kind:
    if best is None:
        return "impossible"
    return "binding" if best != base.reference else "slack"


def _likely_kind(data: dict[str, Any], free: Plan) -> Kind:
    """What the check makes of the problem's optimum without the constraint, and the DP of the rest.

    The DP's face may be wrong, so it must not decide what is compared: whatever breaks the check is
    a problem worth comparing, and what the DP says of it only tells hard problems from hopeless.
    """
    compiled = compile_problem(load_problem(data))
    if not Evaluator(compiled).breaches(free):
        return "slack"
    faces = all(c.has_dp_face for c in compiled.search.constraints)
    return "impossible" if faces and solve(compiled).plan is None else "binding"


def complaints(data: dict[str, Any]) -> Iterator[str]:
    """What the engines, asked one after the other, say differently of a problem with constraints.

    Each complaint starts with the kind of disagreement, up to the first colon. Raises
    :class:`NestOptError` for a problem that cannot be compiled.
    """
    yield from Compared(data).complaints(programs=True)


class Compared:
    """One problem with what enumeration says of it."""

    def __init__(self, data: dict[str, Any]) -> None:
        compiled = compile_problem(load_problem(data))
        best = best_plan(compiled)
        self.entry = Entry(
            data,
            best.evaluation.batch_ticks if best.evaluation else None,
            best.plans,
            compiled.digest,
            outline(best.plan),
        )
        self.best = outline(best.plan)
        self.asked_cells = 0
        self.whole_cells = 0

    def complaints(self, *, programs: bool) -> Iterator[str]:
        """What the engines say differently; the integer programs are asked if ``programs``."""
        compiled = self.entry.compiled
        evaluator = Evaluator(compiled)
        yield from self._meaning(evaluator)
        if all(c.has_dp_face for c in compiled.search.constraints):
            for how, use_bounds in (("with bounds", True), ("without bounds", False)):
                solution = solve(compiled, use_bounds=use_bounds)
                for text in solution_complaints(self.entry, solution, evaluator):
                    yield f"the DP {how}: {text}"
            yield from (f"bounds: {text}" for text in bound_complaints(self.entry))
            if programs:
                from formulations import FORMULATIONS

                names: Any = tuple(FORMULATIONS)
                self.asked_cells += _CELLS
                for text in program_complaints(self.entry, names, _CELLS):
                    yield f"programs: {text}"
                yield from self._cp_sat(evaluator)

    def _meaning(self, evaluator: Evaluator) -> Iterator[str]:
        """The check holds for whole cells where it says so, and for plans that lie anywhere."""
        compiled = self.entry.compiled
        by_cell: dict[str, list[Plan]] = {}
        for plan in all_plans(compiled):
            by_cell.setdefault(_label(plan), []).append(plan)
        for own in own_cells(compiled):
            if excluded_by(evaluator, own):
                self.whole_cells += 1
                for plan in by_cell.get(own.label, ()):
                    if not evaluator.breaches(plan):
                        yield f"whole cell: {own.label} holds a plan that breaks nothing"
        elsewhere = next((_scattered(compiled, plans[0]) for plans in by_cell.values()), None)
        if elsewhere is not None:
            evaluator.evaluate(elsewhere)

    def _cp_sat(self, evaluator: Evaluator) -> Iterator[str]:
        if find_spec("ortools") is None:
            return
        from nest_opt.certify import cp_sat

        compiled = self.entry.compiled
        optima = cell_optima(compiled)
        cells = sorted(list_cells(compiled), key=lambda c: (optima[c.label] is None, c.label))
        for cell in cells[:_CELLS]:
            answer = cp_sat.solve(
                compiled, cell, "minimum", None, time_limit=60, presolve=True, seed=1
            )
            found = _priced(compiled, cell, answer, evaluator)
            if found != optima[cell.label]:
                yield (
                    f"CP-SAT: {cell.label}: {answer.status} {found} {answer.detail}, not "
                    f"{optima[cell.label]}"
                )


def _priced(compiled: Compiled, cell: Cell, answer: Any, evaluator: Evaluator) -> int | str | None:
    from nest_opt.certify import cp_sat

    if answer.status == "infeasible":
        return None
    if answer.status != "optimal":
        return f"no answer ({answer.status})"
    evaluation = evaluator.evaluate(cp_sat.decode(compiled, cell, answer.values or {}))
    return evaluation.batch_ticks if evaluation.feasible else f"{evaluation.violations[0]}"


def _label(plan: Plan) -> str:
    return (
        f"b{plan.microbatch} d{plan.replicas} {plan.template.label} "
        f"s{len(plan.stages)} {plan.layout}"
    )


def _scattered(compiled: Compiled, plan: Plan) -> Plan:
    """The plan with all its devices numbered from the other end."""
    last = compiled.devices - 1
    stages = tuple(
        stage.model_copy(
            update={"devices": tuple(tuple(last - x for x in group) for group in stage.devices)}
        )
        for stage in plan.stages
    )
    return plan.model_copy(update={"layout": "explicit", "stages": stages})


# --- mutants --------------------------------------------------------------------------------------


def _hunt(
    cls: type[Constraint], mutant: FaceMutant, cases: Sequence[Case], until: float
) -> dict[str, Any]:
    """Which problem notices a mutant; runs in a process of its own.

    ``survived`` if none does, ``time ran out`` if not all were asked. What the check says is known
    from before, by the class itself.
    """
    for case in cases:
        if time.monotonic() > until:
            return {"found": "time ran out"}
        compiled = compile_problem(case.problem)
        expected = best_plan(compiled)
        for make in mutant.makes:
            wrong = make(cls)
            mutated = tuple(
                wrong.model_construct(**dict(c)) if type(c) is cls else c
                for c in compiled.search.constraints
            )
            search = compiled.search.model_copy(update={"constraints": mutated})
            if _notices(mutant, compiled, search, expected, case):
                return {"found": str(case.data["name"])}
    return {"found": "survived"}


def _notices(
    mutant: FaceMutant, compiled: Compiled, search: Search, expected: Best, case: Case
) -> bool:
    """Whether the engine with the wrong face says otherwise than the check."""
    other = replace(compiled, search=search)
    wanted = expected.evaluation.batch_ticks if expected.evaluation else None
    if mutant.engine == "dp":
        try:
            solution = solve(other, use_bounds=False)
        except EngineError:
            return True  # the numbers that it carries are out of the range that it says
        return (solution.batch_ticks, outline(solution.plan)) != (wanted, outline(expected.plan))
    entry = Entry(case.data, wanted, expected.plans, compiled.digest, outline(expected.plan))
    entry.__dict__["compiled"] = other
    return next(iter(program_complaints(entry, ("runs",), 8)), None) is not None


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("nest-opt", "highspy", "pyomo", "ortools", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write_finding(
    report: ConstraintCertificate, spec: str, folder: Path
) -> tuple[Path, Path] | None:
    """The shrunk problem and a test of it, as files; None where nothing was found."""
    if report.finding is None:
        return None
    problem = folder / f"{report.constraint}.json"
    test = folder / f"test_{report.constraint}.py"
    write_text(problem, json.dumps(report.finding["problem"], indent=1) + "\n")
    write_text(
        test,
        f'"""{report.constraint}: {report.finding["complaint"][:200]}"""\n\n'
        "import json\nfrom pathlib import Path\n\n"
        "from nest_opt.certify.extension import complaints\n"
        "from nest_opt.constraints import from_spec\n\n\n"
        "def test_the_faces_agree() -> None:\n"
        f"    from_spec({spec!r})\n"
        f'    data = json.loads(Path(__file__).with_name("{problem.name}").read_text())\n'
        "    assert not list(complaints(data))\n",
    )
    return problem, test
