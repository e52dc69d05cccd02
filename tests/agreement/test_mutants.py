"""Mutants: every term and every constraint family, broken, is noticed by the suite.

``MUTANTS.md`` holds the table that ``nest-opt mutants`` prints.
"""

import importlib
import json
import re
from pathlib import Path

import pytest

from formulations import FORMULATIONS
from nest_opt.cells import list_cells
from nest_opt.certify import suite
from nest_opt.certify.mutant_list import MUTANTS, Mutant
from nest_opt.certify.mutants import catchers, edited, run_mutants
from nest_opt.certify.suite import load_suite
from nest_opt.errors import NestOptError

TABLE = Path(__file__).with_name("MUTANTS.md")

#: One from each corner, quick to catch.
SPREAD = (
    "dp: no forward",
    "dp: stage: f inputs",
    "dp: best replica",
    "dp: least load only",
    "geometry: replicas at floor(r N / d)",
    "order: number of stages reversed",
    "cells: m rounded down",
    "milp: layer repeats no collectives",
    "assignment: C8_memory off by one",
    "runs: C5_start dropped",
    "evaluator: one slot less",
    "cp-sat: memory off by one",
)


@pytest.mark.parametrize("name", SPREAD)
def test_a_mutant_is_caught(name):
    chosen = [mutant for mutant in MUTANTS if mutant.name == name]
    report = run_mutants(jobs=1, only=chosen)
    assert report.ok, report.table()
    assert report.fates[0].problem.startswith("small-")


@pytest.mark.heavy
def test_every_mutant_is_caught():
    report = run_mutants(jobs=2)
    assert report.ok, report.survivors
    json.dumps(report.to_dict())


def test_what_a_mutant_replaces_stands_there_once():
    for mutant in MUTANTS:
        source = Path(importlib.import_module(mutant.module).__file__).read_text(encoding="utf-8")
        assert edited(source, mutant.edits, mutant.module) != source, mutant.name


def test_names_are_different():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_every_family_is_dropped_weakened_and_off_by_one(formulation):
    module = FORMULATIONS[formulation]
    for family in module.FAMILIES:
        names = [m.name for m in MUTANTS if m.formulations == (formulation,) and m.family == family]
        for kind in ("dropped", "weakened", "off by one"):
            assert any(name.endswith(f"{family} {kind}") for name in names), (family, kind)
    known = {"", *module.FAMILIES, *module.STRENGTHENING}
    assert {m.family for m in MUTANTS if m.formulations == (formulation,)} <= known


def test_a_mutant_that_changes_nothing_survives():
    harmless = Mutant(
        "harmless", "nothing", "dp", "nest_opt.dp.frontier", (("sigma - 1", "sigma - 2 + 1"),)
    )
    report = run_mutants(jobs=1, only=[harmless])
    assert not report.ok
    assert report.survivors == ("harmless",)
    assert "**survived**" in report.table()


def test_a_mutant_that_cannot_be_made_survives():
    absent = Mutant("absent", "nothing", "dp", "nest_opt.dp.frontier", (("no such text", ""),))
    report = run_mutants(jobs=1, only=[absent])
    assert not report.ok


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ((("a", "b"),), "2 times"),
        ((("c", "b"),), "0 times"),
        ((("= 1 +", "= ("),), "no Python"),
    ],
)
def test_edits_are_checked(edits, message):
    with pytest.raises(NestOptError, match=message):
        edited("a = 1 + a\n", edits, "module")


def test_the_table_is_up_to_date():
    rows = re.findall(r"^\| (.+?) +\| .*? +\| (small-\d+) ", TABLE.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [mutant.name for mutant in MUTANTS]
    assert dict(rows) == catchers()


def test_what_caught_a_mutant_is_another_answer():
    """An exception or a solver that breaks has compared nothing."""
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > len(MUTANTS)
    assert [row for row in rows if re.search(r"raises|fault|crashed|timeout", row)] == []


def test_a_broken_harness_catches_nothing():
    broken = Mutant(
        "broken harness",
        "the comparison, not an engine",
        "milp",
        "nest_opt.certify.suite",
        (("own = next(cell for cell in self.cells", "own = next(cell for cell in ()"),),
        formulations=("runs",),
    )
    report = run_mutants(jobs=1, only=[broken])
    assert not report.ok
    assert "fault" in report.fates[0].how


def test_an_exception_counts_only_from_the_mutated_module_itself():
    guarded = Mutant(
        "guarded",
        "nothing",
        "dp",
        "nest_opt.dp.frontier",
        (("best, corners = at_most, ", "raise RuntimeError\n    best, corners = at_most, "),),
    )
    (fate,) = run_mutants(jobs=1, only=[guarded]).fates
    assert fate.caught and fate.how.startswith("raises")


def test_every_cell_is_asked_unless_fewer_are_wanted(monkeypatch):
    entry = load_suite("small").entries[0]
    asked = []

    def count(tasks, **_):
        asked.append(len(tasks))
        yield from ()

    monkeypatch.setattr(suite, "run_each", count)
    for most in (None, 1):
        list(suite.program_complaints(entry, ("runs",), most))
    cells = sum(1 for _ in list_cells(entry.compiled))
    assert cells > 1
    assert asked[0] > cells >= asked[1] == 3  # a minimum, a refutation, the plan fixed
