"""What the code that decides optimality was checked by: suites, engines, date, and its digests.

At sizes where no integer program can follow, an optimum rests on the dynamic program, the
compiler, the list of cells and the bounds alone. ``manifest.json`` records which text of them
passed which suites, all engines compared. ``solve`` says whether the code at hand is that text.

Run as a program, ``python -m nest_opt.certify.manifest``, it runs the suites and, if all engines
agree, writes the manifest anew.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nest_opt.errors import NestOptError
from nest_opt.files import read_json, write_text

FORMAT = "nest-opt/manifest/1"
PATH = Path(__file__).with_name("manifest.json")
_PACKAGE = Path(__file__).parents[1]
#: The code that decides optimality, relative to the package.
DECIDING = (
    "bounds.py",
    "cells.py",
    "collectives.py",
    "compile.py",
    *sorted(f"constraints/{path.name}" for path in (_PACKAGE / "constraints").glob("*.py")),
    "dp/constrained.py",
    "dp/frontier.py",
    "dp/recurrence.py",
    "dp/stages.py",
    "dp/tables.py",
    "estimate/table.py",
    "geometry.py",
    "network.py",
    "plan.py",
    "problem.py",
    "record.py",
    "solve.py",
)
SUITES = ("small",)


@dataclass(frozen=True)
class Standing:
    """Whether the deciding code is the text that passed the suites.

    ``changed`` names the files that are not; ``suites`` says how many problems of each were passed,
    and ``date`` when.
    """

    changed: tuple[str, ...]
    suites: Mapping[str, int]
    engines: Mapping[str, str]
    date: str

    @property
    def certified(self) -> bool:
        """Whether every deciding file is as it was when the suites passed."""
        return not self.changed

    def __str__(self) -> str:
        passed = ", ".join(
            f"{count} problems of suite {name}" for name, count in self.suites.items()
        )
        if self.certified:
            return f"certified encoding: all engines agreed on {passed} ({self.date})"
        if not self.suites:
            return "uncertified: there is no manifest of suites that were passed"
        files = ", ".join(self.changed)
        return f"uncertified: {files} changed since the engines agreed on {passed} ({self.date})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "certified": self.certified,
            "changed": list(self.changed),
            "suites": dict(self.suites),
            "engines": dict(self.engines),
            "date": self.date,
        }


def digests() -> dict[str, str]:
    """SHA-256 of each deciding file, line ends made alike; "" for one that is missing."""
    found = {}
    for name in DECIDING:
        try:
            text = (_PACKAGE / name).read_bytes().replace(b"\r\n", b"\n")
        except OSError:
            found[name] = ""
        else:
            found[name] = f"sha256:{hashlib.sha256(text).hexdigest()}"
    return found


def standing(path: Path = PATH) -> Standing:
    """How the code at hand stands to the manifest; all of it changed where there is none."""
    try:
        manifest = read_json(path)
        recorded = dict(manifest["digests"])
        suites = {str(name): int(count) for name, count in manifest["suites"].items()}
        engines = {str(name): str(version) for name, version in manifest["engines"].items()}
        date = str(manifest["date"])
    except (NestOptError, KeyError, TypeError, ValueError, AttributeError):
        recorded, suites, engines, date = {}, {}, {}, "never"
    changed = tuple(name for name, digest in digests().items() if recorded.get(name) != digest)
    return Standing(changed, suites, engines, date)


def write_manifest(*, jobs: int, path: Path = PATH) -> Standing:
    """Run the suites; if all engines agree on all of them, write the manifest.

    Raises :class:`NestOptError` with the disagreements otherwise.
    """
    from nest_opt.certify.highs import engine_versions
    from nest_opt.certify.suite import run_suite

    before = digests()
    suites = {}
    for name in SUITES:
        report = run_suite(name, jobs=jobs)
        if not report.ok:
            raise NestOptError(f"suite {name}: the engines disagree\n{report.table()}")
        suites[name] = len(report.problems)
    if digests() != before:
        raise NestOptError("the code changed while the suites ran; run them again")
    manifest = {
        "format": FORMAT,
        "date": datetime.date.today().isoformat(),
        "suites": suites,
        "engines": engine_versions(),
        "digests": before,
    }
    write_text(path, json.dumps(manifest, indent=1) + "\n")
    return standing(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the manifest; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.manifest", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(f"{write_manifest(jobs=options.jobs)}\n")
    except NestOptError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
