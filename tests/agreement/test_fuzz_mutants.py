"""Fuzzing finds mutants and shrinks what it finds.

``FUZZ.md`` is what ``python -m nest_opt.certify.fuzz_mutants --table FUZZ.md`` writes.
"""

import json
import re
from pathlib import Path

import pytest

from nest_opt.certify.fuzz_mutants import hunt_mutants, is_hunted
from nest_opt.certify.mutant_list import MUTANTS, Mutant
from nest_opt.cli import main

HUNTED = [mutant for mutant in MUTANTS if is_hunted(mutant)]

TABLE = Path(__file__).with_name("FUZZ.md")

#: From each engine, some that are quick to find.
QUICK = ("dp: selective costs a full pass", "runs: C1_count off by one")
#: Every so many-th mutant is hunted anew by the heavy test.
EVERY = 8


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_found_and_shrunk(name):
    report = hunt_mutants(jobs=1, only=[mutant for mutant in MUTANTS if mutant.name == name])
    assert report.ok, report.table()
    (hunted,) = report.hunted
    assert hunted.bytes_after < hunted.bytes_before
    assert hunted.complaint and hunted.aim


@pytest.mark.heavy
def test_mutants_are_found_and_shrunk_in_time():
    report = hunt_mutants(jobs=2, only=HUNTED[::EVERY])
    assert report.ok, report.table()
    json.dumps(report.to_dict())


def test_the_table_holds_listed_mutants_and_none_that_escaped():
    text = TABLE.read_text(encoding="utf-8")
    pattern = r"^\| (.+?) +\| +([\d.]+) \| +([\d.]+) \| +(\d+) to (\d+) \| "
    rows = re.findall(pattern, text, re.MULTILINE)
    names = [name for name, *_ in rows]
    assert text.startswith(f"{len(rows)} of {len(HUNTED)} mutants hunted")
    assert "none escaped" in text and "**" not in text
    assert len(set(names)) == len(names)
    assert set(names) <= {mutant.name for mutant in HUNTED}
    assert set(names) >= {mutant.name for mutant in HUNTED[::EVERY]}
    for _, find, shrink, before, after in rows:
        assert float(find) + float(shrink) < 60 and int(after) < int(before)


def test_a_mutant_that_changes_nothing_escapes():
    harmless = Mutant(
        "harmless", "nothing", "dp", "nest_opt.dp.frontier", (("sigma - 1", "sigma - 2 + 1"),)
    )
    report = hunt_mutants(jobs=1, seconds=2.0, only=[harmless])
    assert report.escaped == ("harmless",)
    assert report.hunted[0].problems > 5
    assert "**escaped**" in report.table()


def test_an_exception_is_not_found():
    raising = Mutant(
        "raising",
        "nothing",
        "dp",
        "nest_opt.dp.frontier",
        (("best, corners = at_most, ", "raise RuntimeError\n    best, corners = at_most, "),),
    )
    report = hunt_mutants(jobs=1, seconds=1.0, only=[raising])
    assert report.escaped == ("raising",)
    assert report.hunted[0].complaint.startswith("raises RuntimeError")


def test_the_command(capsys):
    assert main(["mutants", "--name", "no such mutant"]) == 2
    assert "no mutant's name contains" in capsys.readouterr().err
    assert main(["mutants", "--seconds", "5"]) == 2
    assert "--fuzz" in capsys.readouterr().err
    arguments = ["mutants", "--fuzz", "--name", "dp: no forward transfer", "--jobs", "1", "-q"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mutants"] == 1
