"""The canaries: the installed release answers them rightly, and the answers are right.

What each is, and which releases got it wrong, is told in ``nest_opt/certify/canaries.py``.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import highspy
import numpy
import pytest

import nest_opt
from nest_opt.certify import canaries
from nest_opt.certify.canaries import (
    CANARIES,
    INFINITY,
    OPTION_SETS,
    Canary,
    Diagnosis,
    diagnose,
    every_canary,
)
from nest_opt.certify.certificate import CHECKED_HIGHS
from nest_opt.certify.engines import ENGINES
from nest_opt.certify.processes import run_all
from nest_opt.cli import main
from nest_opt.errors import EngineError

each_canary = pytest.mark.parametrize("canary", CANARIES, ids=lambda c: c.name)


def test_highs_may_certify() -> None:
    (diagnosis,) = diagnose(engines=["highs"], jobs=2)
    assert diagnosis.ok, diagnosis.reasons
    assert len(diagnosis.songs) == len(every_canary()) * len(OPTION_SETS)
    assert diagnosis.version == CHECKED_HIGHS


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "highs"])
def test_other_engines_may_answer_besides(name: str) -> None:
    if ENGINES[name].version is None:
        pytest.skip(f"{name} is not installed")
    (diagnosis,) = diagnose(engines=[name], jobs=2)
    assert diagnosis.ok, diagnosis.reasons
    assert len(diagnosis.songs) >= 3


def test_engines_are_asked_what_they_take() -> None:
    by_name = {canary.name: canary for canary in every_canary()}
    integers = ENGINES["cp-sat"].capabilities
    assert [name for name, canary in by_name.items() if canary.suits(integers)] == [
        "cheap second",
        "implied equality",
        "distance",
    ]
    assert not by_name["lost integer"].suits(ENGINES["glpk"].capabilities)
    assert all(canary.suits(ENGINES["scip"].capabilities) for canary in by_name.values())


def test_a_wrong_answer_keeps_the_engine_from_certifying() -> None:
    # A canary whose stated optimum is out of reach stands for a release that misses it.
    broken = replace(CANARIES[0], optimum=8.0)
    (diagnosis,) = diagnose([broken], engines=["highs"])
    assert not diagnosis.ok
    assert all(reason.endswith(", not 8") for reason in diagnosis.reasons)
    impossible = replace(CANARIES[0], rows=(((1, 1), 4.5, INFINITY), ((1, 1), -INFINITY, 3)))
    (diagnosis,) = diagnose([impossible], engines=["highs"])
    assert all("infeasible" in reason for reason in diagnosis.reasons)


def test_a_refused_engine_cannot_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools")
    wrong = replace(next(c for c in CANARIES if c.name == "distance"), optimum=4.0)
    monkeypatch.setattr(canaries, "every_canary", lambda: (wrong,))
    canaries._diagnosis.cache_clear()
    try:
        with pytest.raises(EngineError, match=r"OR-Tools CP-SAT .*\(distance, .*, not 4\)"):
            nest_opt.certify(nest_opt.load_problem("worked-example-160"), engines=["cp-sat"])
    finally:
        canaries._diagnosis.cache_clear()


def test_another_release_may_not_certify() -> None:
    diagnosis = Diagnosis("highs", "1.14.0", ())
    assert not diagnosis.ok
    assert f"pip install highspy=={CHECKED_HIGHS}" in diagnosis.reasons[0]
    assert Diagnosis("scip", "1.14.0", ()).ok


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "every_canary", lambda: CANARIES[:2])
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "HiGHS 1.16.0 may certify" in text and "stuffing" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"]
    assert set(data["engines"]) | set(data["not_installed"]) == set(ENGINES)


def test_our_own_false_refutation_has_a_plan() -> None:
    """The point that HiGHS finds without presolve keeps every row."""
    canary = every_canary()[-1]

    def task() -> dict[str, list[float]]:
        highs = highspy.Highs()
        for name, value in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
            highs.setOptionValue(name, value)
        highs.readModel(str(canaries.FALSE_REFUTATION))
        highs.run()
        return {"point": list(highs.getSolution().col_value)}

    # In a process of its own: HiGHS must never have run where others are forked.
    (outcome,) = run_all([task], jobs=1, seconds=60)
    assert outcome.value is not None, outcome
    point = tuple(outcome.value["point"])
    assert len(point) == len(canary.cost)
    assert canary.violation(point) <= 1e-6
    assert canary.price(point) == canary.optimum


@each_canary
def test_the_stated_optimum_is_attained(canary: Canary) -> None:
    assert canary.violation(canary.witness) <= 1e-9
    assert canary.url.startswith("https://github.com/") and canary.told
    assert canary.price(canary.witness) == pytest.approx(canary.optimum, abs=1e-9)


def test_the_small_optima_are_right_by_enumeration() -> None:
    """Fix the integers; what is left is one continuous variable at a bound or a row."""
    stuffing, big_m, three = CANARIES[:3]
    assert min(2 * max(0.0, 4.5 - z) + 3 * z for z in range(11)) == stuffing.optimum
    # a <= 100 y and a + b = 10: b as small as y allows.
    assert min(2 * max(0, 10 - 100 * y) + 99999 * y for y in (0, 1)) == big_m.optimum
    # y = z - 7.5, x >= 10 - z, x <= 5 - y and 0 <= x <= 4, -1 <= y <= 1.
    totals = []
    for z in range(30):
        y, x = z - 7.5, max(0.0, 10 - z)
        if -1 <= y <= 1 and x <= min(4, 5 - y):
            totals.append(x + 4 * y + 9 * z)
    assert min(totals) == three.optimum


def test_the_mixed_rows_have_no_better_point() -> None:
    """For each (c, d) the best (a, b) is a vertex of the polygon that the rows leave."""
    canary = CANARIES[3]
    best = INFINITY
    for c, d in itertools.product(range(-100, 101), repeat=2):
        # Rows 1 and 5 bound a above, row 2 bounds b below given that, row 3 bounds b above.
        a = (1216.06 + 32.45 * c - 88.78 * d) / 96.55
        a = min(100.0, a, (411.403 + 73.23 * d + 1.73 * 100) / 79.17)
        b = (50.5404 - 3.14 * a) / 78.02
        relaxed = -24 * a + 5 * b + 7.4 * c + 9 * d
        if relaxed > best or 11.8 * b > 3.422 + 21.94 * c or 91.59 * c - 10.58 * d > -35.25:
            continue
        lines = [(1.0, 0.0, 100.0), (-1.0, 0.0, 100.0), (0.0, 1.0, 100.0), (0.0, -1.0, 100.0)]
        for row, _, high in canary.rows:
            lines.append((row[0], row[1], high - row[2] * c - row[3] * d))
        for (p, q, r), (s, t, u) in itertools.combinations(lines, 2):
            determinant = p * t - q * s
            if abs(determinant) > 1e-12:
                point = ((r * t - q * u) / determinant, (p * u - r * s) / determinant, c, d)
                price = canary.price(point)
                if price < best and canary.violation(point) <= 1e-9:
                    best = price
    assert best == pytest.approx(canary.optimum, abs=1e-6)


def best_by_listing(canary: Canary) -> float:
    """The best price of the points whose integers lie in the bounds, the others at vertices.

    For models whose other variables are at most two, each row and bound holding with equality in
    turn.
    """
    whole = sorted(canary.integers)
    rest = [i for i in range(len(canary.cost)) if i not in canary.integers]
    ranges = [range(int(canary.low[i]), int(min(canary.high[i], 20)) + 1) for i in whole]
    best = INFINITY
    for values in itertools.product(*ranges):
        fixed = dict(zip(whole, values, strict=True))
        lines = [
            ([float(k == i) for k in rest], end)
            for i in rest
            for end in (canary.low[i], canary.high[i])
        ]
        for row, low, high in canary.rows:
            known = sum(row[i] * value for i, value in fixed.items())
            lines += [([row[k] for k in rest], end - known) for end in (low, high)]
        lines = [(a, b) for a, b in lines if abs(b) < INFINITY and any(a)]
        for chosen in itertools.combinations(lines, len(rest)):
            left = numpy.array([a for a, _ in chosen]).reshape(len(rest), len(rest))
            if rest and abs(numpy.linalg.det(left)) < 1e-12:
                continue
            solved = numpy.linalg.solve(left, [b for _, b in chosen]) if rest else []
            point = dict(fixed) | dict(zip(rest, solved, strict=True))
            ordered = tuple(float(point[i]) for i in range(len(canary.cost)))
            if canary.violation(ordered) <= 1e-9:
                best = min(best, canary.price(ordered))
    return best


@pytest.mark.parametrize(
    "name", ["cheap second", "one row", "at the bound", "implied equality", "distance"]
)
def test_further_optima_are_right_by_enumeration(name: str) -> None:
    canary = next(c for c in CANARIES if c.name == name)
    if name == "distance":  # its fourth variable follows from the others
        rows = (canary.rows[0], *canary.rows[1:])
        canary = replace(canary, integers=frozenset({0, 1, 2}), rows=rows)
    assert best_by_listing(canary) == pytest.approx(canary.optimum, abs=1e-9)


@pytest.mark.parametrize("name", ["steep rows", "five rows"])
def test_no_integers_near_the_witness_allow_better(name: str) -> None:
    """Around the stated optimum; beyond, the engines of the suite agree."""
    canary = next(c for c in CANARIES if c.name == name)
    low, high = list(canary.low), list(canary.high)
    for i in canary.integers:
        low[i] = max(canary.low[i], canary.witness[i] - 12)
        high[i] = min(canary.high[i], canary.witness[i] + 12)
    near = replace(canary, low=tuple(low), high=tuple(high))
    assert best_by_listing(near) == pytest.approx(canary.optimum, abs=1e-6)
