"""Shows that fuzzing finds what is wrong: one mutant at a time is switched on and hunted.

Each mutant lives in a process of its own, forked from a fresh interpreter that has imported nothing
that a mutant changes, and is hunted by
what ``nest-opt fuzz`` does in one process, from the first problem of a seed on: it is found when
two engines give different answers, and the problem is then shrunk in the time that is left. An
exception or a solver that breaks is passed over, because nothing was compared.

Seconds are processor time of that process and its children, so that a busy machine does not
matter; starting the interpreter is not counted.

Run as a program, ``python -m nest_opt.certify.fuzz_mutants``, it writes the table of all mutants,
and goes on from where it was interrupted. Hunted are the mutants of what fuzzing compares.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nest_opt.certify.mutant_list import MUTANTS, Mutant
from nest_opt.certify.mutants import BROKEN, Progress, patched
from nest_opt.certify.processes import run_each
from nest_opt.errors import NestOptError

#: Engines whose mutants fuzzing must find: those that it compares.
ENGINES = ("dp", "milp", "evaluator")
#: Seconds of processor time to find and shrink one mutant.
SECONDS = 60.0
#: What others wrote and no mutant changes, imported once for all of them.
_PREPARED = ("numpy", "pydantic", "highspy", "pyomo.environ", "pyomo.contrib.solver.solvers.highs")
#: Wall clock of one mutant, as a multiple of its processor time.
_PATIENCE = 6.0


def is_hunted(mutant: Mutant) -> bool:
    """Whether fuzzing compares the engine that a mutant breaks; arcs are left to the suite."""
    return mutant.engine in ENGINES and "arcs" not in mutant.formulations


@dataclass(frozen=True)
class Hunted:
    """What became of a mutant: on which problem it was found, and what shrinking left of that."""

    mutant: Mutant
    found: bool
    number: int
    aim: str
    complaint: str
    find_seconds: float
    shrink_seconds: float
    shrunk: bool
    bytes_before: int
    bytes_after: int
    problems: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {**asdict(self), "mutant": self.mutant.name}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Hunted:
        """The inverse; raises KeyError for a mutant that is no longer listed."""
        known = {mutant.name: mutant for mutant in MUTANTS}
        return cls(**{**data, "mutant": known[data["mutant"]]})


@dataclass(frozen=True)
class HuntReport:
    """What became of all mutants that were hunted."""

    hunted: tuple[Hunted, ...]
    seconds: float
    seed: int
    wall_seconds: float

    @property
    def escaped(self) -> tuple[str, ...]:
        """Names of those that were not found and shrunk in time."""
        return tuple(h.mutant.name for h in self.hunted if not (h.found and h.shrunk))

    @property
    def ok(self) -> bool:
        """Whether there were mutants, and each was found and shrunk in time."""
        return bool(self.hunted) and not self.escaped

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "mutants": len(self.hunted),
            "escaped": list(self.escaped),
            "seconds": self.seconds,
            "seed": self.seed,
            "wall_seconds": round(self.wall_seconds, 3),
            "hunted": [h.to_dict() for h in self.hunted],
        }

    def table(self) -> str:
        """Markdown: every mutant, how long it took to find and shrink, and by what."""
        from tabulate import tabulate

        rows = [
            (
                h.mutant.name,
                f"{h.find_seconds:.1f}" if h.found else "**escaped**",
                f"{h.shrink_seconds:.1f}" if h.shrunk else ("**cut off**" if h.found else ""),
                f"{h.bytes_before} to {h.bytes_after}" if h.found else "",
                h.aim,
                h.complaint.replace("|", "/").replace("\n", " ")[:90],
            )
            for h in self.hunted
        ]
        headers = ("mutant", "found, s", "shrunk, s", "bytes", "problem drawn for", "complaint")
        count, listed = len(self.escaped), sum(map(is_hunted, MUTANTS))
        table = tabulate(
            rows,
            headers=headers,
            tablefmt="github",
            disable_numparse=True,
            colalign=("left", "right", "right", "right", "left", "left"),
        )
        return (
            f"{len(self.hunted)} of {listed} mutants hunted, seed {self.seed}, "
            f"{self.seconds:.0f} s of processor time each: {count or 'none'} escaped\n\n{table}"
        )


def hunt_mutants(
    *,
    jobs: int,
    seconds: float = SECONDS,
    seed: int = 1,
    only: Sequence[Mutant] = MUTANTS,
    progress: Progress | None = None,
    keep: Callable[[Hunted], None] | None = None,
) -> HuntReport:
    """Hunt those mutants of ``only`` whose engines are compared by fuzzing, ``jobs`` at once.

    ``keep`` is called with each of them as it ends.
    """
    started = time.monotonic()
    chosen = [mutant for mutant in only if is_hunted(mutant)]
    hunted: dict[int, Hunted] = {}
    for done, (index, found) in enumerate(_hunted_apart(chosen, jobs, seconds, seed), 1):
        hunted[index] = Hunted(chosen[index], **found)
        if keep:
            keep(hunted[index])
        if progress:
            progress(done, len(chosen), "hunting mutants")
    return HuntReport(
        tuple(hunted[n] for n in range(len(chosen))), seconds, seed, time.monotonic() - started
    )


def _nothing(why: str = "", problems: int = 0) -> dict[str, Any]:
    return {
        "found": False, "number": -1, "aim": "", "complaint": why, "find_seconds": 0.0,
        "shrink_seconds": 0.0, "shrunk": False, "bytes_before": 0, "bytes_after": 0,
        "problems": problems,
    }  # fmt: skip


def _hunted_apart(
    mutants: Sequence[Mutant], jobs: int, seconds: float, seed: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Hunt mutants below an interpreter of their own; (index, what came of it) as they end.

    Raises :class:`NestOptError` if that interpreter breaks.
    """
    order = {
        "mutants": [asdict(mutant) for mutant in mutants],
        "jobs": jobs,
        "seconds": seconds,
        "seed": seed,
    }
    with subprocess.Popen(
        [sys.executable, "-c", "from nest_opt.certify.fuzz_mutants import hunter; hunter()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(order))
            process.stdin.close()
            for line in process.stdout:
                index, found = json.loads(line)
                yield index, found
        finally:
            if sys.exc_info()[0] is not None:
                process.terminate()
    if process.returncode:
        raise NestOptError(f"the interpreter of the mutants ended with {process.returncode}")


def hunter() -> None:
    """Read mutants from standard input, hunt each in a fork, write a line for each as it ends."""
    order = json.load(sys.stdin)
    for name in _PREPARED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    def hunt(data: dict[str, Any]) -> dict[str, Any]:
        patched(data)
        return _hunt(order["seconds"], order["seed"])

    tasks = [partial(hunt, data) for data in order["mutants"]]
    wall = _PATIENCE * order["seconds"] + 30
    running = run_each(tasks, jobs=order["jobs"], seconds=wall)
    with contextlib.closing(running):
        for index, outcome in running:
            found = outcome.value or _nothing(f"fault: {outcome.status}: {outcome.message}")
            sys.stdout.write(json.dumps([index, found]) + "\n")
            sys.stdout.flush()


def _hunt(seconds: float, seed: int) -> dict[str, Any]:
    # Imported here, where the mutant is in place already.
    from nest_opt.certify import fuzz
    from nest_opt.certify.draw import draw
    from nest_opt.files import canonical_json

    clock = fuzz.cpu_seconds
    started = clock()
    number = -1
    raised = ""
    while clock() - started < seconds:
        number += 1
        try:
            drawn = draw(seed, number)
        except Exception:  # the evaluator chooses the memory, and may be the mutant
            continue
        complaint = fuzz.compare(drawn, BROKEN).complaint
        if not complaint:
            continue
        if complaint.startswith(fuzz.RAISES):
            raised = raised or complaint
            continue
        found = clock() - started
        left = max(seconds - found, 1.0)
        finding = fuzz.shrunk(drawn.data, number, complaint, left, clock)
        took = clock() - started - found
        before, after = (len(canonical_json(x)) for x in (finding.problem, finding.shrunk))
        return {
            "found": True,
            "number": number,
            "aim": drawn.aim,
            "complaint": finding.shrunk_complaint,
            "find_seconds": round(found, 2),
            "shrink_seconds": round(took, 2),
            "shrunk": found + took < seconds and after < before,
            "bytes_before": before,
            "bytes_after": after,
            "problems": number + 1,
        }
    return _nothing(raised, number + 1)


# --- the command ----------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt all mutants and write the table; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.fuzz_mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", type=Path, help="file to write the table to, as Markdown")
    parser.add_argument(
        "--results", type=Path, help="file of results; what it holds is not hunted again"
    )
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th of them")
    options = parser.parse_args(arguments)
    from nest_opt.files import read_json, write_json, write_text

    listed = [m for m in MUTANTS if is_hunted(m)]
    known = {mutant.name for mutant in listed}
    results: dict[str, Any] = {}
    if options.results and options.results.exists():
        results = {k: v for k, v in read_json(options.results).items() if k in known}

    def keep(hunted: Hunted) -> None:
        results[hunted.mutant.name] = hunted.to_dict()
        if options.results:
            write_json(options.results, results)

    chosen = [m for m in listed if options.only in m.name][:: options.every]
    chosen = [m for m in chosen if m.name not in results]
    report = hunt_mutants(jobs=options.jobs, only=chosen, keep=keep)
    hunted = tuple(Hunted.from_dict(results[m.name]) for m in listed if m.name in results)
    whole = HuntReport(hunted, SECONDS, report.seed, report.wall_seconds)
    if options.table:
        write_text(options.table, whole.table() + "\n")
    sys.stdout.write(whole.table() + "\n")
    return 0 if whole.ok else 1


if __name__ == "__main__":
    sys.exit(main())
