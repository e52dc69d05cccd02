"""Small published models on which releases of HiGHS answered wrongly; for ``nest-opt doctor``.

A release that answers all of them rightly proves nothing about other models; one that does not must
not be used. Each model is restated from the report that is cited with it; the tests show by
enumeration that the answers given here are right.

What other releases answered (highspy from PyPI on Linux, one thread, gaps zero, presolve on; with
presolve off all of them were right):

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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    ConcreteModel,
    Constraint,
    Integers,
    Objective,
    Reals,
    Var,
)

from nest_opt.certify import highs
from nest_opt.certify.certificate import (
    CHECKED_HIGHS,
    FIRST,
    SECOND,
    STAND_IN,
    OptionSet,
)
from nest_opt.certify.processes import Outcome, run_all

INFINITY = math.inf
#: How far a point may miss a bound or a row, and an objective the right one.
TOLERANCE, OBJECTIVE_TOLERANCE = 1e-5, 1e-4
#: Wall clock of one canary, seconds.
_LIMIT = 20.0


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
        """The model in Pyomo."""
        columns = range(len(self.cost))
        m = ConcreteModel()
        m.x = Var(
            columns,
            domain=lambda m, i: Integers if i in self.integers else Reals,
            bounds=lambda m, i: (_finite(self.low[i]), _finite(self.high[i])),
        )

        def row(m: Any, k: int) -> Any:
            coefficients, low, high = self.rows[k]
            body = sum(a * m.x[i] for i, a in enumerate(coefficients) if a)
            return body == low if low == high else (_finite(low), body, _finite(high))

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
        """The objective at a point."""
        return sum(c * v for c, v in zip(self.cost, x, strict=True))


def _finite(bound: float) -> float | None:
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


# --- asking them ----------------------------------------------------------------------------------

#: The option sets whose answers a certificate may rest on.
OPTION_SETS: dict[str, OptionSet] = {
    "presolve off, seed 1": FIRST,
    "presolve on, seed 2": SECOND,
    "presolve off, seed 3": STAND_IN,
}


@dataclass(frozen=True)
class Song:
    """One canary's answer under one option set; ``wrong`` says what is wrong, if anything."""

    canary: str
    options: str
    wrong: str

    def to_dict(self) -> dict[str, str]:
        """JSON-ready form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Diagnosis:
    """Whether the installed engine may certify, and why not."""

    versions: dict[str, str]
    songs: tuple[Song, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """What stands in the way; nothing if the engine may certify."""
        found = [f"{s.canary}, {s.options}: {s.wrong}" for s in self.songs if s.wrong]
        if self.versions.get("highs") != CHECKED_HIGHS:
            found.insert(
                0,
                f"HiGHS {self.versions.get('highs')} is installed; {CHECKED_HIGHS} is the release "
                f"that was checked: pip install highspy=={CHECKED_HIGHS}",
            )
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Whether the engine may certify."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "versions": self.versions,
            "reasons": list(self.reasons),
            "canaries": [song.to_dict() for song in self.songs],
        }


def diagnose(canaries: Sequence[Canary] = CANARIES, *, jobs: int = 1) -> Diagnosis:
    """Ask the installed HiGHS every canary under every option set, each in a process of its own."""
    asked = [(canary, name) for canary in canaries for name in OPTION_SETS]
    outcomes = run_all(
        [partial(_answer, canary, OPTION_SETS[name]) for canary, name in asked],
        jobs=jobs,
        seconds=3 * _LIMIT,
    )
    songs = [
        Song(canary.name, name, judged(canary, outcome))
        for (canary, name), outcome in zip(asked, outcomes, strict=True)
    ]
    return Diagnosis(highs.engine_versions(), tuple(songs))


def _answer(canary: Canary, options: OptionSet) -> dict[str, Any]:
    answer = highs.solve(
        canary.build, time_limit=_LIMIT, presolve=options.presolve, seed=options.seed
    )
    return answer.to_json()


def judged(canary: Canary, outcome: Outcome) -> str:
    """What is wrong with an answer; "" if nothing is."""
    answer = highs.answer_of(outcome)
    if answer.status != "optimal" or answer.values is None:
        return f"{answer.status}: {answer.detail}"
    point = tuple(answer.values[f"x[{i}]"] for i in range(len(canary.cost)))
    if canary.violation(point) > TOLERANCE:
        return f"its point misses a row or a bound by {canary.violation(point):g}"
    for what, value in (
        ("the price of its point", canary.price(point)),
        ("its objective", answer.objective),
        ("its bound", answer.bound),
    ):
        if value is None or abs(value - canary.optimum) > OBJECTIVE_TOLERANCE:
            return f"{what} is {value}, not {canary.optimum:g}"
    return ""
