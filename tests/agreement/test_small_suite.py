"""The suite ``small``: DP, both formulations, enumeration and evaluator agree in integers.

``make test`` runs a spread of 60 problems, dealt out so that the workers of pytest-xdist are busy;
``make test-all`` runs all of them, with closed-form bounds and without.
"""

import json

import pytest

from nest_opt.certify.generate import (
    ENUMERABLE,
    OPTIONS,
    PROBLEMS,
    SEED,
    decisive_options,
    generate_entry,
    recipe_of,
)
from nest_opt.certify.suite import load_suite, run_entries, run_suite, spread
from nest_opt.errors import InputError
from nest_opt.files import read_json
from nest_opt.library import instances_folder

SAMPLE = 60
PARTS = 12

#: Cheap to draw again.
DRAWN_AGAIN = (0, 1, 2, 9, 12, 24)


@pytest.fixture(scope="module")
def suite():
    return load_suite("small")


@pytest.mark.parametrize("part", range(PARTS))
def test_engines_agree_on_a_spread(suite, part):
    entries = spread(suite.sample(SAMPLE), PARTS)[part]
    report = run_entries(entries, jobs=1)
    assert report.ok, report.table()
    assert report.totals["minimum_models"] > 0


@pytest.mark.heavy
@pytest.mark.parametrize("use_bounds", [True, False])
def test_engines_agree_on_the_whole_suite(use_bounds):
    report = run_suite("small", jobs=2, use_bounds=use_bounds)
    assert report.ok, report.table()
    assert report.totals["problems"] == PROBLEMS


def test_size_of_the_suite(suite):
    plans = [entry.plans for entry in suite.entries if entry.plans <= ENUMERABLE]
    assert len(suite.entries) == PROBLEMS >= 300
    assert len(plans) >= 150
    assert 3_500 <= sum(plans) / len(plans) <= 7_000
    assert sum(entry.batch_ticks is None for entry in suite.entries) >= 10
    assert len({entry.digest for entry in suite.entries}) == PROBLEMS
    assert len({entry.name for entry in suite.entries}) == PROBLEMS


def test_every_option_is_decisive_often_enough(suite):
    for option in OPTIONS:
        assert sum(option in entry.decisive for entry in suite.entries) >= 10, option


def test_decisive_options_of_a_spread(suite):
    for entry in suite.sample(SAMPLE)[::6]:
        assert decisive_options(entry.compiled, entry.batch_ticks) == list(entry.decisive)


def test_a_spread_has_every_feature(suite):
    sample = suite.sample(SAMPLE)
    assert len(sample) == SAMPLE
    assert suite.sample(SAMPLE) == sample
    every = frozenset().union(*(entry.features for entry in suite.entries))
    assert frozenset().union(*(entry.features for entry in sample)) == every


@pytest.mark.parametrize("index", DRAWN_AGAIN)
def test_problems_are_drawn_as_shipped(index):
    shipped = read_json(instances_folder() / "suites" / "small.json")["problems"][index]
    assert json.loads(json.dumps(generate_entry(index, SEED))) == shipped


def test_recipes_cover_every_option():
    aims = [recipe_of(index).aim for index in range(PROBLEMS)]
    assert {aims.count(option) >= 10 for option in OPTIONS} == {True}


def test_a_wrong_expectation_is_a_disagreement(suite):
    entry = next(e for e in suite.entries if e.is_enumerable and e.batch_ticks and e.plans < 500)
    wrong = type(entry)(
        entry.data, entry.batch_ticks - 1, entry.plans, entry.digest, entry.reference
    )
    report = run_entries([wrong], jobs=1)
    assert not report.ok
    said = " ".join(report.problems[0].disagreements)
    assert "the DP with bounds" in said
    assert "enumeration" in said
    assert "DISAGREE" in report.table()
    json.dumps(report.to_dict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "nest-opt/problem/1"}', "not a suite"),
        ('{"format": "nest-opt/suite/1", "name": "x"}', "not a suite"),
        ("[]", "not a suite"),
        ("{", "not JSON"),
    ],
)
def test_bad_suites_are_refused(tmp_path, text, message):
    path = tmp_path / "suite.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_suite(str(path))


def test_unknown_suites_are_refused():
    with pytest.raises(InputError, match="small"):
        load_suite("huge")
