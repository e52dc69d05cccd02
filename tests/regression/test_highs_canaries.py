"""The canaries: the installed release answers them rightly, and the answers are right.

What each is, and which releases got it wrong, is told in ``nest_opt/certify/canaries.py``.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from nest_opt.certify.canaries import (
    CANARIES,
    INFINITY,
    OPTION_SETS,
    Canary,
    Diagnosis,
    diagnose,
)
from nest_opt.certify.certificate import CHECKED_HIGHS
from nest_opt.cli import main

each_canary = pytest.mark.parametrize("canary", CANARIES, ids=lambda c: c.name)


def test_the_installed_release_may_certify() -> None:
    diagnosis = diagnose(jobs=2)
    assert diagnosis.ok, diagnosis.reasons
    assert len(diagnosis.songs) == len(CANARIES) * len(OPTION_SETS)
    assert diagnosis.versions["highs"] == CHECKED_HIGHS


def test_a_wrong_answer_keeps_the_engine_from_certifying() -> None:
    # A canary whose stated optimum is out of reach stands for a release that misses it.
    broken = replace(CANARIES[0], optimum=8.0)
    diagnosis = diagnose([broken])
    assert not diagnosis.ok
    assert all(reason.endswith(", not 8") for reason in diagnosis.reasons)
    impossible = replace(CANARIES[0], rows=(((1, 1), 4.5, INFINITY), ((1, 1), -INFINITY, 3)))
    assert all("infeasible" in reason for reason in diagnose([impossible]).reasons)


def test_another_release_may_not_certify() -> None:
    diagnosis = Diagnosis({"highs": "1.14.0"}, ())
    assert not diagnosis.ok
    assert f"pip install highspy=={CHECKED_HIGHS}" in diagnosis.reasons[0]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "may certify" in text and "stuffing" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


@each_canary
def test_the_stated_optimum_is_attained(canary: Canary) -> None:
    assert canary.violation(canary.witness) <= 1e-9
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
