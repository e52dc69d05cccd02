"""Makes the suite ``constraints``: small problems, each with a constraint that matters.

For every built-in constraint, problems of the suite ``small`` are taken in an order of its own, and
parameters drawn for them, until it changes the optimal batch time of so many and leaves no plan in
one more. What is expected is found as in :mod:`nest_opt.certify.generate`.

    python -m nest_opt.certify.generate_constraints --out instances/suites/constraints.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from nest_opt.certify.generate import SUITE_FORMAT, expected_of, suite_text, summary
from nest_opt.certify.processes import Outcome, run_all
from nest_opt.certify.suite import Entry, load_suite
from nest_opt.compile import compile_problem
from nest_opt.constraints import built_in
from nest_opt.errors import NestOptError
from nest_opt.files import canonical_json, write_text
from nest_opt.library import load_problem

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

SEED = 1
#: For each constraint, so many problems whose optimal batch time it changes, and so many that it
#: leaves without a plan.
CHANGED, IMPOSSIBLE = 10, 1
#: Problems with more plans than this are not taken.
_MAX_PLANS = 4000
#: Draws of parameters for one problem.
_DRAWS = 4


def generate_entries(name: str, bases: Sequence[Entry], seed: int = SEED) -> list[dict[str, Any]]:
    """The problems of one constraint.

    Raises :class:`NestOptError` where too few problems are changed by it.
    """
    random = Random(f"{seed} {name}")
    wanted = {True: CHANGED, False: IMPOSSIBLE}
    found: list[dict[str, Any]] = []
    for base in random.sample(list(bases), len(bases)):
        if base.plans > _MAX_PLANS or base.batch_ticks is None:
            continue
        for data in _constrained(name, base, random):
            compiled = compile_problem(load_problem(data))
            expected = expected_of(compiled)
            feasible = expected["batch_ticks"] is not None
            if expected["batch_ticks"] == base.batch_ticks or not wanted[feasible]:
                continue
            wanted[feasible] -= 1
            data["name"] = f"{name}-{len(found):02d}"
            data["description"] = f"{base.data['name']} with {compiled.search.constraints[0]}"
            found.append(
                {"problem": data, "expected": expected, "decisive": [f"constraint {name}"]}
            )
            break
        if not any(wanted.values()):
            break
    # Some constraints leave hardly any problem without a plan; all must change some.
    if wanted[True]:
        raise NestOptError(
            f"{name} changes the optimum of {CHANGED - wanted[True]} problems only, not {CHANGED}; "
            "its sample() draws parameters that hardly ever bind"
        )
    return found


def _constrained(name: str, base: Entry, random: Random) -> Iterator[dict[str, Any]]:
    """The problem with the constraint, under one draw of parameters after the other."""
    cls = built_in()[name]
    for _ in range(_DRAWS):
        constraint = cls.sample(base.compiled, random)
        data: dict[str, Any] = json.loads(canonical_json(base.data))
        data["search"]["constraints"] = [constraint.model_dump(mode="json", exclude_none=True)]
        yield json.loads(canonical_json(data))


def generate_constraints(
    seed: int = SEED, *, jobs: int = 1, progress: Progress | None = None
) -> dict[str, Any]:
    """The whole suite. Raises :class:`NestOptError` if a problem cannot be made."""
    bases = load_suite("small").entries
    names = list(built_in())
    tasks = [lambda name=name: {"entries": generate_entries(name, bases, seed)} for name in names]
    done = 0

    def show(_: int, __: Outcome) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, len(names), "constraints")

    outcomes = run_all(tasks, jobs=jobs, seconds=None, on_done=show)
    failed = [outcome.message for outcome in outcomes if outcome.value is None]
    if failed:
        raise NestOptError("; ".join(failed))
    return {
        "format": SUITE_FORMAT,
        "name": "constraints",
        "description": "Small problems, each with a built-in constraint that changes the optimum.",
        "source": f"python -m nest_opt.certify.generate_constraints --seed {seed}",
        "problems": [entry for o in outcomes if o.value for entry in o.value["entries"]],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the suite; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.generate_constraints",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write the suite to")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    try:
        suite = generate_constraints(options.seed, jobs=options.jobs, progress=_show)
        write_text(options.out, suite_text(suite))
    except NestOptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(summary(suite) + "\n")
    return 0


def _show(done: int, total: int, what: str) -> None:
    sys.stderr.write(f"\r{what} {done}/{total}" + ("\n" if done == total else ""))


if __name__ == "__main__":
    sys.exit(main())
