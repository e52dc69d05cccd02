"""Shows that the suite can fail: breaks one engine at a time and runs the suite until it notices.

Each mutant of :mod:`nest_opt.certify.mutant_list` lives in a fresh interpreter of its own, where an
import hook patches the source of one module as it is imported. No file is touched. It is *caught*
when the suite's comparison disagrees on some problem:

- a mutant of the DP: batch time or reference plan differ from what the suite expects (which the
  unmutated enumeration confirms), the evaluator prices the plan otherwise, or a closed-form bound
  exceeds the optimum of its cell;
- a mutant of the integer programs, or of CP-SAT's model: a minimum, a refutation or the fixed
  reference plan of a cell differs from what the DP says of that cell;
- a mutant of the evaluator: the DP's plan is priced otherwise, or enumeration ends elsewhere.

A mutant that no problem catches is a *survivor*: the suite lacks a problem, or the mutant computes
the same as the original. What raises an exception, or breaks a solver, has not been compared: it
counts as caught only where a guard of the mutated module itself raises, and then another problem
is sought on which the answers differ; everything else is a fault of the harness.

Problems that caught this mutant last time (``catchers.json``), or another that breaks the same
term, are asked first. A problem whose coefficients a mutant of the cost rules leaves as they are
cannot notice it, and is passed over.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from nest_opt.certify.mutant_list import MUTANTS, Mutant
from nest_opt.certify.processes import run_each
from nest_opt.errors import NestOptError

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

#: Wall clock of one mutant, seconds; a mutant that takes longer counts as a survivor.
MUTANT_LIMIT = 300.0

_SUITE = "small"
#: Engines whose mutants are asked about cells, and compared with the DP.
_PROGRAMS = ("milp", "cp-sat")
#: So many exceptions from elsewhere than the mutated module end the hunt.
_MOST_FAULTS = 5
#: Complaints of the comparison that an engine gave no answer, which is not another answer.
BROKEN = re.compile(r": (fault|limit|timeout|crashed|error)\b").search
_CATCHERS = Path(__file__).with_name("catchers.json")


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: ``problem`` caught it, ``how``; both "" for a survivor."""

    mutant: Mutant
    problem: str
    how: str
    problems_run: int
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether some problem noticed."""
        return bool(self.problem)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "mutant": self.mutant.name,
            "engine": self.mutant.engine,
            "module": self.mutant.module,
            "breaks": self.mutant.term,
            "caught": self.caught,
            "problem": self.problem,
            "how": self.how,
            "problems_run": self.problems_run,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class MutantReport:
    """What became of all mutants."""

    fates: tuple[Fate, ...]
    wall_seconds: float

    @property
    def survivors(self) -> tuple[str, ...]:
        """Names of the mutants that nothing caught."""
        return tuple(fate.mutant.name for fate in self.fates if not fate.caught)

    @property
    def ok(self) -> bool:
        """Whether there were mutants and every one was caught."""
        return bool(self.fates) and not self.survivors

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "mutants": len(self.fates),
            "survivors": list(self.survivors),
            "wall_seconds": round(self.wall_seconds, 3),
            "fates": [fate.to_dict() for fate in self.fates],
        }

    def table(self) -> str:
        """Markdown: every mutant, what it breaks, which problem caught it and how."""
        from tabulate import tabulate

        rows = [
            (
                fate.mutant.name,
                fate.mutant.term,
                fate.problem or "**survived**",
                fate.how.replace("|", "/").replace("\n", " ")[:110],
            )
            for fate in self.fates
        ]
        table = tabulate(rows, headers=("mutant", "breaks", "caught by", "how"), tablefmt="github")
        count = len(self.survivors)
        survivors = f"{count or 'no'} survivor{'' if count == 1 else 's'}"
        return f"{len(self.fates)} mutants, {survivors}\n\n{table}"


def run_mutants(
    *,
    jobs: int,
    progress: Progress | None = None,
    only: Sequence[Mutant] = MUTANTS,
    use_catchers: bool = True,
) -> MutantReport:
    """Run mutants against the suite ``small``, ``jobs`` at once.

    ``only`` are the mutants to run. ``use_catchers=False`` searches for the first problem that
    catches each of them, without a hint where to look.
    """
    started = time.monotonic()
    known = catchers() if use_catchers else {}
    tasks = [lambda m=mutant: _run_mutant(m, hints(m, known)) for mutant in only]
    fates: dict[int, Fate] = {}
    running = run_each(tasks, jobs=jobs, seconds=MUTANT_LIMIT)
    with contextlib.closing(running):
        for done, (index, outcome) in enumerate(running, 1):
            found = outcome.value or {"problem": "", "how": outcome.message, "problems_run": 0}
            fates[index] = Fate(only[index], **found, seconds=outcome.seconds)
            if progress:
                progress(done, len(tasks), "mutants")
    return MutantReport(
        tuple(fates[index] for index in range(len(tasks))), time.monotonic() - started
    )


def catchers() -> dict[str, str]:
    """By name of a mutant, the problem that caught it last time."""
    try:
        known: dict[str, str] = json.loads(_CATCHERS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return known


def hints(mutant: Mutant, known: dict[str, str]) -> list[str]:
    """Problems to ask first: its own catcher, those of its family and term, those of all others."""
    related = sorted(
        (other for other in MUTANTS if other.name in known),
        key=lambda other: (
            other.name != mutant.name,
            other.family != mutant.family or other.module != mutant.module,
            other.term != mutant.term,
        ),
    )
    return list(dict.fromkeys(known[other.name] for other in related))


def _run_mutant(mutant: Mutant, hints: list[str]) -> dict[str, Any]:
    """Run one mutant in an interpreter of its own."""
    child = subprocess.run(
        [sys.executable, "-c", "from nest_opt.certify.mutants import child; child()"],
        input=json.dumps({"mutant": asdict(mutant), "hints": hints}),
        capture_output=True,
        text=True,
        timeout=MUTANT_LIMIT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if child.returncode:
        raise NestOptError(f"the mutant's interpreter broke: {child.stderr.strip()[-300:]}")
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


# --- in the interpreter of a mutant ---------------------------------------------------------------


class _Patched(importlib.machinery.SourceFileLoader):
    """Loads a module from its source with the edits of a mutant."""

    edits: tuple[tuple[str, str], ...] = ()

    def get_code(self, fullname: str) -> Any:
        """The code of the edited source; nothing is cached."""
        source = edited(self.get_source(fullname) or "", self.edits, fullname)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and gives it the patched loader."""

    def __init__(self, module: str, edits: tuple[tuple[str, str], ...]) -> None:
        self.module, self.edits = module, edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification of the module, patched; None for all others."""
        if fullname != self.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise NestOptError(f"{fullname} has no source to patch")
        loader = _Patched(fullname, spec.origin)
        loader.edits = self.edits
        spec.loader = loader
        return spec


def edited(source: str, edits: Sequence[tuple[str, str]], module: str) -> str:
    """The source with all edits made.

    Raises :class:`NestOptError` where the text to be replaced does not stand there exactly once, or
    where the result is no Python.
    """
    for original, replacement in edits:
        times = source.count(original)
        if times != 1:
            raise NestOptError(f"{module} holds {original!r} {times} times, not once")
        source = source.replace(original, replacement)
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise NestOptError(f"{module}: the mutant is no Python: {error}") from None
    return source


def patched(data: dict[str, Any]) -> Mutant:
    """Put a mutant, given as data, in place for the imports to come, and return it.

    Raises :class:`NestOptError` if its module has been imported already.
    """
    mutant = Mutant(
        **{
            **data,
            "edits": tuple((a, b) for a, b in data["edits"]),
            "formulations": tuple(data["formulations"]),
        }
    )
    if mutant.module in sys.modules:
        raise NestOptError(f"{mutant.module} was imported before it could be patched")
    sys.meta_path.insert(0, _Finder(mutant.module, mutant.edits))
    return mutant


def child() -> None:
    """Read a mutant from standard input, run the suite until it notices, write what came of it."""
    order = json.load(sys.stdin)
    mutant = patched(order["mutant"])
    json.dump(_hunt(mutant, order["hints"]), sys.stdout)


def _hunt(mutant: Mutant, hints: list[str]) -> dict[str, Any]:
    from nest_opt.certify.suite import load_suite

    place = {name: n for n, name in enumerate(hints)}
    # Then small problems first; the order is the same every time.
    entries = sorted(
        load_suite(_SUITE).entries,
        key=lambda e: (place.get(e.name, len(place)), not e.is_enumerable, e.name),
    )
    original = _original(mutant.module) if mutant.module == "formulations.costs" else None
    tried = 0
    guard: tuple[str, str] | None = None
    faults: list[str] = []
    for entry in entries:
        if mutant.engine not in _PROGRAMS and not entry.is_enumerable:
            continue
        if original is not None and not _changes_costs(entry, original):
            continue
        tried += 1
        try:
            how = next((text for text in _complaints(mutant, entry) if not BROKEN(text)), None)
        except Exception as error:  # nothing was compared; go on until something is
            if _raised_in(error, mutant.module):
                guard = guard or (entry.name, f"raises {type(error).__name__}: {error}")
            else:
                faults.append(f"fault on {entry.name}: {type(error).__name__}: {error}")
            if len(faults) == _MOST_FAULTS:
                break
            continue
        if how:
            return {"problem": entry.name, "how": how, "problems_run": tried}
    problem, how = guard or ("", "".join(faults[:1]))
    return {"problem": problem, "how": how, "problems_run": tried}


def _raised_in(error: BaseException, module: str) -> bool:
    """Whether an exception was raised by the code of a module, rather than below or above it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_globals.get("__name__") == module


def _original(module: str) -> Any:
    """The module as it is on disk, beside the patched one."""
    path = importlib.import_module(module).__file__
    assert path is not None
    name = f"{module}_as_written"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _changes_costs(entry: Any, original: Any) -> bool:
    """Whether the patched cost rules give some cell of a problem other coefficients."""
    from formulations import costs as patched
    from nest_opt.cells import list_cells

    limit = 2**62 if entry.batch_ticks is None else entry.batch_ticks - 1

    def coefficients(module: Any, cell: Any) -> object:
        costs = module.cell_costs(entry.compiled, cell)
        pairs = costs.corner_pairs(limit)
        bounds = (costs.load_ceiling, max(costs.attainable_syncs))
        most = [
            costs.most(run, j, choice, *bounds)
            for j in range(costs.stages)
            for run in costs.runs
            for choice in costs.choices
        ]
        return repr((costs, pairs, bounds, most, costs.objective_weights))

    try:
        return any(
            coefficients(patched, cell) != coefficients(original, cell)
            for cell in list_cells(entry.compiled)
        )
    except Exception:  # the comparison itself will say what broke
        return True


def _complaints(mutant: Mutant, entry: Any) -> Iterator[str]:
    """What the engines disagree about on one problem, one after the other, as they run."""
    from nest_opt.certify import suite

    if mutant.engine in _PROGRAMS:
        yield from suite.program_complaints(entry, mutant.formulations)
        return
    yield from suite.solver_complaints(entry)
    if mutant.engine == "evaluator":
        yield from suite.enumeration_complaints(entry)
    elif mutant.module == "nest_opt.bounds":
        yield from suite.bound_complaints(entry)


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all mutants and write down which problem catches each; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", type=Path, help="file to write the table to, as Markdown")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument(
        "--catchers", action="store_true", help=f"also update {_CATCHERS.name}, used as hints"
    )
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]

    def show(done: int, total: int, what: str) -> None:
        sys.stderr.write(f"\r{what} {done}/{total}" + ("\n" if done == total else ""))

    report = run_mutants(jobs=options.jobs, progress=show, only=chosen)
    from nest_opt.files import write_json, write_text

    if options.catchers:
        names = {mutant.name for mutant in MUTANTS}
        known = {name: problem for name, problem in catchers().items() if name in names}
        known |= {fate.mutant.name: fate.problem for fate in report.fates if fate.caught}
        write_json(_CATCHERS, dict(sorted(known.items())))
    if options.table:
        write_text(options.table, report.table() + "\n")
    sys.stdout.write(report.table() + f"\n\n{report.wall_seconds:.0f} s\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
