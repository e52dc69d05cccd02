"""Small published models on which releases of HiGHS returned wrong answers, with presolve on.

The pinned release must get all of them right, with presolve on and off. A release that sings
here proves nothing about other models; one that does not must not be used. Each model is restated
from the report that is cited with it, and its answer is enumerated here rather than believed.

What other releases answered (highspy from PyPI on Linux, one thread, gaps zero, presolve on;
with presolve off all of them were right):

===================== ====== ========= ================= ==========
model                 right  1.11.0    1.14.0            1.15.1
===================== ====== ========= ================= ==========
stuffing (#3043)      9      9         15                9
big-M binary (#2975)  20     20        99999             20
three rows (#3002)    64     64        76                64
mixed rows (#2585)    -175.9 infeas.   -175.9            -175.9
lost integer (#3271)  x <= 4 4.5       4.5               4.5
===================== ====== ========= ================= ==========

All of the wrong answers came with status "Optimal" (#2585: "Infeasible").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    ConcreteModel,
    Constraint,
    Integers,
    Objective,
    Reals,
    Var,
)

from nest_opt.certify import processes
from nest_opt.certify.highs import EngineAnswer, answer_of, solve

INFINITY = math.inf
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Canary:
    """Minimise cost @ x with low <= x <= high, x[i] integer for i in integers, and the rows.

    A row is (coefficients, low, high). ``optimum`` is the right objective and ``witness``
    a point that attains it.
    """

    name: str
    url: str
    cost: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    integers: frozenset[int]
    rows: tuple[tuple[tuple[float, ...], float, float], ...]
    optimum: float
    witness: tuple[float, ...]

    def build(self) -> Any:
        columns = range(len(self.cost))
        m = ConcreteModel()
        m.x = Var(
            columns,
            domain=lambda m, i: Integers if i in self.integers else Reals,
            bounds=lambda m, i: (finite(self.low[i]), finite(self.high[i])),
        )

        def row(m: Any, k: int) -> Any:
            coefficients, low, high = self.rows[k]
            body = sum(a * m.x[i] for i, a in enumerate(coefficients) if a)
            return body == low if low == high else (finite(low), body, finite(high))

        m.row = Constraint(range(len(self.rows)), rule=row)
        m.cost = Objective(expr=sum(c * m.x[i] for i, c in enumerate(self.cost) if c))
        return m

    def violation(self, x: tuple[float, ...]) -> float:
        """The largest amount by which a point misses a bound, a row or an integer."""
        missed = [0.0]
        missed += [max(self.low[i] - v, v - self.high[i]) for i, v in enumerate(x)]
        missed += [abs(x[i] - round(x[i])) for i in self.integers]
        for coefficients, low, high in self.rows:
            body = sum(a * v for a, v in zip(coefficients, x, strict=True))
            missed += [low - body, body - high]
        return max(missed)

    def price(self, x: tuple[float, ...]) -> float:
        return sum(c * v for c, v in zip(self.cost, x, strict=True))


def finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


HIGHS = "https://github.com/ERGO-Code/HiGHS/issues/"

CANARIES = (
    Canary(
        name="stuffing",
        url=HIGHS + "3043",
        cost=(2, 3),
        low=(0, 0),
        high=(10, 10),
        integers=frozenset({1}),
        rows=(((1, 1), 4.5, INFINITY),),
        optimum=9,
        witness=(4.5, 0),
    ),
    Canary(
        name="big-M binary",
        url=HIGHS + "2975",
        cost=(0, 2, 99999),
        low=(0, 0, 0),
        high=(INFINITY, INFINITY, 1),
        integers=frozenset({2}),
        rows=(((1, 1, 0), 10, 10), ((1, 0, -100), -INFINITY, 0)),
        optimum=20,
        witness=(0, 10, 0),
    ),
    Canary(
        name="three rows",
        url=HIGHS + "3002",
        cost=(1, 4, 9),
        low=(0, -1, 0),
        high=(4, 1, INFINITY),
        integers=frozenset({2}),
        rows=(
            ((1, 1, 0), -INFINITY, 5),
            ((1, 0, 1), 10, INFINITY),
            ((0, -1, 1), 7.5, 7.5),
        ),
        optimum=64,
        witness=(3, -0.5, 7),
    ),
    Canary(
        name="mixed rows",
        url=HIGHS + "2585",
        cost=(-24, 5, 7.4, 9),
        low=(-100, -100, -100, -100),
        high=(100, 100, 100, 100),
        integers=frozenset({2, 3}),
        rows=(
            ((96.55, 0, -32.45, 88.78), -INFINITY, 1216.06),
            ((-3.14, -78.02, 0, 0), -INFINITY, -50.5404),
            ((0, 11.8, -21.94, 0), -INFINITY, 3.422),
            ((0, 0, 91.59, -10.58), -INFINITY, -35.25),
            ((79.17, 1.73, 0, -73.23), -INFINITY, 411.403),
            ((-10.61, -94.66, 0, 76.88), -INFINITY, 195.69),
        ),
        optimum=-175.91,
        witness=(8.89, 0.29, 0, 4),
    ),
    Canary(
        name="lost integer",
        url=HIGHS + "3271",
        cost=(0, 3),
        low=(-INFINITY, 0),
        high=(4.5, 0),
        integers=frozenset({0, 1}),
        rows=(((1, 0), -15.5, INFINITY),),
        optimum=0,
        witness=(4, 0),
    ),
)

each_canary = pytest.mark.parametrize("canary", CANARIES, ids=lambda c: c.name)


def ask(build: Callable[[], Any], presolve: bool) -> EngineAnswer:
    def task() -> dict[str, Any]:
        return solve(build, time_limit=20, presolve=presolve, seed=0).to_json()

    (outcome,) = processes.run_all([task], jobs=1, seconds=60)
    return answer_of(outcome)


@each_canary
@pytest.mark.parametrize("presolve", [True, False], ids=["presolve", "no presolve"])
def test_the_pinned_release_answers_rightly(canary: Canary, presolve: bool) -> None:
    answer = ask(canary.build, presolve)
    assert answer.status == "optimal", f"{canary.url}: {answer.detail}"
    assert answer.values is not None
    point = tuple(answer.values[f"x[{i}]"] for i in range(len(canary.cost)))
    assert canary.violation(point) <= TOLERANCE, canary.url
    assert canary.price(point) == pytest.approx(canary.optimum, abs=1e-4), canary.url
    assert answer.objective == pytest.approx(canary.optimum, abs=1e-4), canary.url
    assert answer.bound == pytest.approx(canary.optimum, abs=1e-4), canary.url


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
