"""Constraints together: every engine says the same, and a face that is wrong would be noticed."""

import pytest

from nest_opt.certify import combinations
from nest_opt.certify.combinations import combination, compare_combinations, main
from nest_opt.constraints import built_in
from nest_opt.constraints.layers_per_stage import LayersPerStage


def test_a_few_agree():
    report = compare_combinations(4, cells=1, jobs=2)
    assert report.verdict == "agreed", report.reasons
    assert report.problems == 4 and report.pairs == report.triples == 2


def test_they_are_drawn_alike_each_time():
    assert combination(1, 3) == combination(1, 3) != combination(2, 3)


def test_a_wrong_face_is_refuted(monkeypatch):
    # Without its filter, the DP leaves out one of several constraints.
    monkeypatch.setattr(LayersPerStage, "allows_stage", lambda self, stages: True)
    some = ("data_parallel", "layers_per_stage", "recomputing_stages")
    monkeypatch.setattr(combinations, "built_in", lambda: {n: built_in()[n] for n in some})
    monkeypatch.setattr(combinations, "_SHRINK_SECONDS", 1.0)
    report = compare_combinations(30, cells=1, jobs=2)
    assert report.verdict == "refuted"
    assert report.finding is not None


def test_what_time_leaves_out_is_open(capsys):
    assert main(["--problems", "4", "--seconds", "0.001", "--jobs", "1"]) == 1
    assert "open" in capsys.readouterr().out


@pytest.mark.heavy
def test_five_hundred_agree():
    report = compare_combinations(500, jobs=2)
    assert report.verdict == "agreed", report.reasons
    assert min(report.constraints.values()) >= 30
