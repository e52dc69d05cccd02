"""Constraints together: random pairs and triples of the built-in ones, in every encoding.

Problem n takes a small problem of :mod:`nest_opt.certify.draw`, and two or three constraints with
parameters that their ``sample`` draws. Which is kept is chosen by enumeration and ``check``
alone: one that all constraints together change, one in six that they leave without a plan. On it

- enumeration through ``check`` is compared with the DP, with bounds and without: T, reference plan;
- what ``check`` says of whole cells is tried on every plan of the cell;
- all formulations, and CP-SAT where it is installed, are asked for the optimum of the cells that
  are best by the DP, whether anything is better, and about the reference plan.

A disagreement is shrunk. Problem n of a seed depends on (seed, n) alone.

    python -m nest_opt.certify.combinations --problems 500 --out combinations.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Literal

from nest_opt.cells import list_cells
from nest_opt.certify.certificate import Formulation
from nest_opt.certify.draw import draw
from nest_opt.certify.extension import Compared
from nest_opt.certify.generate import outline
from nest_opt.certify.processes import run_each
from nest_opt.certify.shrink import shrink
from nest_opt.certify.suite import program_complaints
from nest_opt.compile import compile_problem
from nest_opt.constraints import built_in
from nest_opt.enumerate import best_plan
from nest_opt.errors import NestOptError
from nest_opt.files import write_text
from nest_opt.library import load_problem

FORMAT = "nest-opt/constraint-combinations/1"

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]
Verdict = Literal["agreed", "refuted", "open"]

#: Draws of problem and constraints for one number, until they do what they are drawn for.
_DRAWS = 12
#: Wall clock of one problem in a process of its own, seconds.
_LIMIT = 120.0
_SHRINK_SECONDS = 30.0


@dataclass
class Combinations:
    """What was compared.

    ``agreed``: every engine said the same of every problem. ``refuted``: one did not; ``finding``
    has the complaint and the smallest problem found. ``open``: not all problems were compared, for
    a reason in ``reasons``. ``cells`` were asked about, by each of ``engines``.
    """

    seed: int
    wanted: int
    engines: list[str]
    verdict: Verdict = "open"
    reasons: list[str] = field(default_factory=list)
    problems: int = 0
    pairs: int = 0
    triples: int = 0
    binding: int = 0
    slack: int = 0
    impossible: int = 0
    plans: int = 0
    cells: int = 0
    constraints: dict[str, int] = field(default_factory=dict)
    finding: dict[str, Any] | None = None
    wall_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"format": FORMAT, **vars(self), "wall_seconds": round(self.wall_seconds, 3)}


def combination(seed: int, number: int) -> tuple[dict[str, Any], str]:
    """Problem ``number`` of a seed, and what its constraints do: binding, slack or impossible.

    Raises :class:`NestOptError` where no draw gives a problem.
    """
    random = Random(f"{seed} {number}")
    classes = built_in()
    aim = "impossible" if number % 6 == 5 else "binding"
    found: tuple[dict[str, Any], str] | None = None
    for _ in range(_DRAWS):
        # Problems of odd number are mostly those with several cells, where a constraint can bite.
        data = draw(seed, 2 * random.randrange(10**6) + 1).data
        free = compile_problem(load_problem(data))
        names = random.sample(sorted(classes), 2 + number % 2)
        data["search"]["constraints"] = [
            classes[name].sample(free, random).model_dump(mode="json", exclude_none=True)
            for name in names
        ]
        data["name"] = f"combination-{seed}-{number:03d}"
        try:
            best = outline(best_plan(compile_problem(load_problem(data))).plan)
        except NestOptError:
            continue  # together they carry too much, or do not fit the problem
        without = outline(best_plan(free).plan)
        if without is None:
            continue
        kind = "impossible" if best is None else "binding" if best != without else "slack"
        if found is None or kind == aim or found[1] == "impossible" != aim:
            found = data, kind
        if kind == aim:
            break
    if found is None:
        raise NestOptError(f"combination {number} of seed {seed}: no problem could be drawn")
    return found


def engines() -> tuple[Formulation, ...]:
    """The models that are asked besides enumeration and the DP."""
    cp_sat: tuple[Formulation, ...] = ("boundaries",) if find_spec("ortools") else ()
    return ("runs", "assignment", "arcs", *cp_sat)


def complaints(data: dict[str, Any], cells: int) -> Iterator[str]:
    """What the engines say differently of a problem; each starts with its kind, up to a colon."""
    compared = Compared(data)
    yield from compared.complaints(programs=False)
    for text in program_complaints(compared.entry, engines(), cells):
        yield f"programs: {text}"


def compare_combinations(
    problems: int = 500,
    *,
    seed: int = 1,
    cells: int = 2,
    seconds: float | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Combinations:
    """Compare every engine on so many problems, about so many ``cells`` of each.

    ``seconds`` limits the wall clock; what it leaves out makes the verdict ``open``.
    """
    started = time.monotonic()
    report = Combinations(seed, problems, ["enumeration", "dp", *engines()])
    counts: Counter[str] = Counter()
    tasks = [lambda n=n: _one(seed, n, cells) for n in range(problems)]
    running = run_each(tasks, jobs=jobs, seconds=_LIMIT, overall_seconds=seconds)
    with closing(running):
        for number, outcome in running:
            found = outcome.value
            if found is None:
                report.reasons.append(f"problem {number}: {outcome.status} {outcome.message}")
                continue
            if found["complaint"]:
                report.reasons = [found["complaint"]]
                report.finding = _shrunk(found, cells)
                break
            report.problems += 1
            report.plans += found["plans"]
            report.cells += found["cells"]
            for name in (found["kind"], "pairs" if len(found["names"]) == 2 else "triples"):
                setattr(report, name, getattr(report, name) + 1)
            counts.update(found["names"])
            if progress:
                progress(report.problems, problems, "combinations")
    report.constraints = dict(sorted(counts.items()))
    if report.finding is not None:
        report.verdict = "refuted"
    elif report.problems == problems:
        report.verdict = "agreed"
    report.wall_seconds = time.monotonic() - started
    return report


def _one(seed: int, number: int, cells: int) -> dict[str, Any]:
    """All comparisons of one problem; JSON-ready. Runs in a process of its own."""
    data, kind = combination(seed, number)
    compiled = compile_problem(load_problem(data))
    compared = Compared(data)
    return {
        "data": data,
        "kind": kind,
        "names": [c.constraint for c in compiled.search.constraints],
        "plans": compared.entry.plans,
        "cells": min(cells, sum(1 for _ in list_cells(compiled))),
        "complaint": next(complaints(data, cells), None),
    }


def _shrunk(found: dict[str, Any], cells: int) -> dict[str, Any]:
    kind = found["complaint"].partition(":")[0]

    def still(data: dict[str, Any]) -> str | None:
        try:
            said = complaints(data, cells)
            return next((text for text in said if text.partition(":")[0] == kind), None)
        except NestOptError:
            return None

    small, said = shrink(found["data"], still, _SHRINK_SECONDS)
    return {"complaint": said or found["complaint"], "problem": small}


def summary(report: Combinations) -> str:
    """The report for people, a few lines."""
    least = min(report.constraints.items(), key=lambda item: item[1], default=("none", 0))
    lines = [
        f"constraints together: {report.verdict}",
        f"{report.problems} of {report.wanted} problems ({report.pairs} pairs, {report.triples} "
        f"triples) of {len(report.constraints)} constraints, each in {least[1]} or more: changed "
        f"{report.binding}, left {report.slack} as they are, {report.impossible} without a plan",
        f"{report.plans:,} plans, {report.cells:,} cells, asked of {', '.join(report.engines)}; "
        f"{report.wall_seconds:.0f} s",
    ]
    return "\n".join(chain(lines, report.reasons[:6]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and print what came of it; returns the exit status: 0 only if all agreed."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.combinations", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--problems", type=int, default=500, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--cells", type=int, default=2, help="cells of each asked about (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, help="give up after so many (verdict: open)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write the report as JSON")
    options = parser.parse_args(arguments)
    report = compare_combinations(
        options.problems,
        seed=options.seed,
        cells=options.cells,
        seconds=options.seconds,
        jobs=options.jobs,
        progress=_show,
    )
    sys.stderr.write("\n")
    if options.out:
        write_text(options.out, json.dumps(report.to_dict(), indent=1) + "\n")
    sys.stdout.write(summary(report) + "\n")
    return 0 if report.verdict == "agreed" else 1


def _show(done: int, total: int, what: str) -> None:
    sys.stderr.write(f"\r{what} {done}/{total}")


if __name__ == "__main__":
    sys.exit(main())
