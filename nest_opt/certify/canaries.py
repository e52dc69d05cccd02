"""Small published models on which releases of solvers answered wrongly; for ``nest-opt doctor``.

An engine that answers all of them rightly proves nothing about other models; one that does not must
not be used. Each model is restated from the report that is cited with it; the tests show that the
answers given here are right. The last one is our own: HiGHS 1.16.0 refuted it, with presolve on.

What releases of HiGHS answered (highspy from PyPI on Linux, one thread, gaps zero, presolve on;
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

All of the wrong answers came with status "Optimal" (#2585: "Infeasible"). What is reported of other
releases stands with the models below.

Reported, open, and not restated here, since their models are large or attached: CP-SAT 9.15.6755
proves a wrong optimum of a linear model with presolve on (OR-Tools #5293), and refutes a feasible
model (#5274). So engines besides HiGHS are asked without presolve
(:data:`nest_opt.certify.certificate.BESIDES`).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pyomo.environ import (  # type: ignore[import-untyped,unused-ignore]
    ConcreteModel,
    Constraint,
    Integers,
    Objective,
    Reals,
    Var,
)

from nest_opt.certify import cp_sat, highs, pyomo_engines
from nest_opt.certify.answers import answer_of
from nest_opt.certify.certificate import (
    BESIDES,
    CHECKED_HIGHS,
    FIRST,
    SECOND,
    STAND_IN,
    OptionSet,
)
from nest_opt.certify.engines import (
    ENGINES,
    FIRST_ENGINE,
    Capabilities,
    engine_of,
    installed,
    load,
)
from nest_opt.certify.processes import Outcome, run_all
from nest_opt.errors import EngineError

INFINITY = math.inf
#: How far a point may miss a bound or a row, and an objective the right one.
TOLERANCE, OBJECTIVE_TOLERANCE = 1e-5, 1e-4
#: Wall clock of one canary, seconds.
_LIMIT = 20.0


@dataclass(frozen=True)
class Canary:
    """Minimise cost @ x with low <= x <= high, x[i] integer for i in integers, and the rows.

    A row is (coefficients, low, high). ``optimum`` is the right objective and ``witness`` a point
    that attains it. ``told`` is what went wrong, by the report at ``url``.
    """

    name: str
    url: str
    told: str
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
        """The largest amount by which a point misses a bound, a row or an integer.

        A row is divided by its largest coefficient: a variable that misses an integer by a solver's
        tolerance moves the row by as many times that tolerance.
        """
        missed = [0.0]
        missed += [max(self.low[i] - v, v - self.high[i]) for i, v in enumerate(x)]
        missed += [abs(x[i] - round(x[i])) for i in self.integers]
        for coefficients, low, high in self.rows:
            body = sum(a * v for a, v in zip(coefficients, x, strict=True))
            scale = max(1.0, *map(abs, coefficients))
            missed += [(low - body) / scale, (body - high) / scale]
        return max(missed)

    @property
    def bounds_are_whole(self) -> bool:
        """Whether the bounds of integer variables are integers."""
        bounds = [bound for i in self.integers for bound in (self.low[i], self.high[i])]
        return all(math.isinf(bound) or bound == round(bound) for bound in bounds)

    @property
    def is_whole(self) -> bool:
        """Whether all variables are integers with bounds."""
        bounded = all(map(math.isfinite, (*self.low, *self.high)))
        return bounded and len(self.integers) == len(self.cost)

    def suits(self, capabilities: Capabilities) -> bool:
        """Whether an engine takes such a model at all."""
        if capabilities.computes_in_integers:
            return self.is_whole
        return self.bounds_are_whole or capabilities.fractional_bounds

    def build_cp_sat(self) -> tuple[Any, list[Any]]:
        """The model for CP-SAT, and its variables; rows are multiplied until they are whole."""
        from ortools.sat.python.cp_model import CpModel, LinearExpr

        model: Any = CpModel()
        x = [
            model.new_int_var(math.ceil(low), math.floor(high), f"x[{i}]")
            for i, (low, high) in enumerate(zip(self.low, self.high, strict=True))
        ]

        def whole(numbers: Sequence[float]) -> tuple[int, list[int]]:
            exact = [Fraction(str(number)) for number in numbers]
            scale = math.lcm(*(number.denominator for number in exact))
            return scale, [int(scale * number) for number in exact]

        for coefficients, low, high in self.rows:
            ends = [end for end in (low, high) if math.isfinite(end)]
            _, scaled = whole([*coefficients, *ends])
            body = LinearExpr.weighted_sum(x, scaled[: len(x)])
            limits = dict(zip(ends, scaled[len(x) :], strict=True))
            if low in limits:
                model.add(body >= limits[low])
            if high in limits:
                model.add(body <= limits[high])
        model.minimize(LinearExpr.weighted_sum(x, whole(self.cost)[1]))
        return model, x

    def price(self, x: tuple[float, ...]) -> float:
        """The objective at a point."""
        return sum(c * v for c, v in zip(self.cost, x, strict=True))


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


HIGHS = "https://github.com/ERGO-Code/HiGHS/issues/"
SCIP = "https://github.com/scipopt/scip/issues/"
CBC = "https://github.com/coin-or/Cbc/issues/"
OR_TOOLS = "https://github.com/google/or-tools/issues/"
#: Written by HiGHS from the model that it had refuted.
FALSE_REFUTATION = Path(__file__).with_name("false_refutation.mps")

CANARIES = (
    Canary(
        name="stuffing",
        url=HIGHS + "3043",
        told="HiGHS 1.14.0 returned 15",
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
        told="HiGHS 1.14.0 returned 99999",
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
        told="HiGHS 1.14.0 returned 76",
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
        told="HiGHS 1.11.0 called it infeasible",
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
        told="HiGHS 1.15.1 returned an integer variable of 4.5",
        cost=(0, 3),
        low=(-INFINITY, 0),
        high=(4.5, 0),
        integers=frozenset({0, 1}),
        rows=(((1, 0), -15.5, INFINITY),),
        optimum=0,
        witness=(4, 0),
    ),
    Canary(
        name="steep rows",
        url=HIGHS + "2432",
        told="HiGHS 1.11.0 called it infeasible",
        cost=(-93, 25, 17),
        low=(-100, -100, -100),
        high=(120, 10, 0),
        integers=frozenset({0, 2}),
        rows=(
            ((-89, -40.7, -12), 3994.5, INFINITY),
            ((-0.1, 77.2, -23.7), -4878.3, INFINITY),
            ((-8.6, -6.5, 72.78), -4930, INFINITY),
        ),
        optimum=-93 * 4 + 25 * (-6631.7 / 77.2) + 17 * -74,
        witness=(4, -6631.7 / 77.2, -74),
    ),
    Canary(
        name="cheap second",
        url=CBC + "293",
        told="CBC returned 19712",
        cost=(9856, 444),
        low=(0, 0),
        high=(5, 5),
        integers=frozenset({0, 1}),
        rows=(
            ((1, 1), -INFINITY, 5),
            ((0.63, 1.27), -INFINITY, 1.28),
            ((0.63, 1.27), 0.65, INFINITY),
        ),
        optimum=444,
        witness=(0, 1),
    ),
    Canary(
        name="one row",
        url=CBC + "737",
        told="CBC (development, July 2025) called it infeasible",
        cost=(1, -1),
        low=(-200, -200),
        high=(200, 200),
        integers=frozenset({1}),
        rows=(((-0.02, 88.5), -INFINITY, -1139),),
        optimum=-187,
        witness=(-200, -13),
    ),
    Canary(
        name="at the bound",
        url=CBC + "740",
        told="CBC (development, August 2025) called it infeasible",
        cost=(1, 0),
        low=(-200, -200),
        high=(200, 200),
        integers=frozenset({1}),
        rows=(
            ((41, 49), -INFINITY, -508),
            ((22, -64), -INFINITY, -943),
            ((0, 83), 506, INFINITY),
        ),
        optimum=-200,
        witness=(-200, 7),
    ),
    Canary(
        name="five rows",
        url=CBC + "752",
        told="CBC (development, October 2025) called it infeasible",
        cost=(-36, 18, -11, 11),
        low=(-100, 0, -100, -100),
        high=(100, INFINITY, 100, 100),
        integers=frozenset({0, 1}),
        rows=(
            ((0, 72, 0, 0), 500.21, INFINITY),
            ((-87.93, 6.97, 60.13, -36.45), -INFINITY, -911.3896),
            ((93.87, 6.88, 0, -99.02), -INFINITY, 70.1338),
            ((0, 12.18, 56.24, -80.98), -469.79, INFINITY),
            ((32.24, -44.88, 1.79, -51.37), -446.893, INFINITY),
        ),
        optimum=-131.12,
        witness=(9, 7, 2.23, 8.31),
    ),
    Canary(
        name="implied equality",
        url=OR_TOOLS + "1361",
        told="CP-SAT 7.1 returned -1",
        cost=(100, 1, -2),
        low=(0, 1, 1),
        high=(1, 10, 10),
        integers=frozenset({0, 1, 2}),
        rows=(((-9, 1, -1), -9, INFINITY), ((-9, -1, 1), -9, INFINITY)),
        optimum=-19,
        witness=(0, 1, 10),
    ),
    Canary(
        name="distance",
        url=OR_TOOLS + "2924",
        told="CP-SAT 9.1 called it infeasible",
        cost=(0, 0, 0, 1),
        low=(0, 0, 0, -1000),
        high=(2, 2, 2, 1000),
        integers=frozenset({0, 1, 2, 3}),
        rows=(
            ((-80, -100, -120, 1), -95, -95),
            ((1, 1, 1, 0), -INFINITY, 1),
            ((0, 0, 0, 1), 0, INFINITY),
        ),
        optimum=5,
        witness=(0, 1, 0, 5),
    ),
    Canary(
        name="nine columns",
        url=SCIP + "74",
        told="SCIP 8.0.4 returned a worse point as optimal",
        cost=(
            *(-2.42260797536, 1.40244497025, 1.79442858595, -1.27993632648, -0.671036131762),
            *(-1.22512613484, 1.64795529655, -0.463422687207, -1.66547673372),
        ),
        low=(0,) * 9,
        high=(INFINITY,) * 9,
        integers=frozenset(range(3, 9)),
        rows=(
            (
                (
                    *(0.218339734154, -1.32950779675, 2.4634990055, 1.64158303089),
                    *(-0.0695051166321, 0.252238239808, -1.8645732963, -2.42063040453),
                    0.0188111646313,
                ),
                -INFINITY,
                1.43538532349,
            ),
            (
                (
                    *(0.446026221538, 0.907938821356, -1.25996529828, -2.06249182097),
                    *(0.677886502448, 0.564902020915, -2.26167843033, -0.288537429087),
                    1.07812833444,
                ),
                -INFINITY,
                -1.39357470318,
            ),
            (
                (
                    *(1.8845137297, -0.206595984073, 2.31007071429, -0.755138364915),
                    *(2.39842131875, -1.94826799266, -2.099880238, 1.52000281463),
                    -2.47487895327,
                ),
                -INFINITY,
                0.829740380345,
            ),
            (
                (
                    *(-1.40737822051, -1.09799340533, -1.56676860756, -0.879176966596),
                    *(0.244240373982, 1.62547316847, 1.92538222303, 0.357942052077),
                    0.92697370115,
                ),
                -INFINITY,
                1.45112645728,
            ),
            (
                (
                    *(-0.0714868952715, 1.5642310642, 1.83665258579, -0.101395436161),
                    *(2.0645407008, 2.20921426929, 0.952432349585, 1.51238865271),
                    0.944864868744,
                ),
                -INFINITY,
                2.06177620264,
            ),
        ),
        optimum=-9.394594455117213,
        witness=(3.921816205884509, 0.4637095667138837, 0, 3, 0, 0, 2, 0, 0),
    ),
)


@lru_cache
def every_canary() -> tuple[Canary, ...]:
    """The published models, and our own false refutation, which is read from a file."""
    return (*CANARIES, _false_refutation())


def _false_refutation() -> Canary:
    """The decision model of a small cell that HiGHS 1.16.0 calls infeasible under one seed.

    The file is MPS of the plain kind: an objective without terms, rows E, L and G, integers between
    markers, and for each column one bound, BV, UI or UP from 0 on, or FX.
    """
    section, whole = "", False
    kinds: dict[str, str] = {}
    columns: dict[str, dict[str, float]] = {}
    integers: set[str] = set()
    ends: dict[str, float] = {}
    bounds: dict[str, tuple[float, float]] = {}
    for line in FALSE_REFUTATION.read_text(encoding="ascii").splitlines():
        words = line.split()
        if not line.startswith(" "):
            section = words[0]
        elif section == "ROWS" and words[0] != "N":
            kinds[words[1]] = words[0]
        elif section == "COLUMNS" and words[1] == "'MARKER'":
            whole = words[2] == "'INTORG'"
        elif section == "COLUMNS":
            columns.setdefault(words[0], {})[words[1]] = float(words[2])
            if whole:
                integers.add(words[0])
        elif section == "RHS":
            ends[words[1]] = float(words[2])
        elif section == "BOUNDS":
            high = 1.0 if words[0] == "BV" else float(words[3])
            bounds[words[2]] = (high if words[0] == "FX" else 0.0, high)
    names = list(columns)
    rows = []
    for row, kind in kinds.items():
        end = ends.get(row, 0.0)
        low, high = (-INFINITY if kind == "L" else end), (INFINITY if kind == "G" else end)
        rows.append((tuple(columns[name].get(row, 0.0) for name in names), low, high))
    return Canary(
        name="false refutation",
        url="tests/regression/test_presolve_refutes.py",
        told="HiGHS 1.16.0 calls it infeasible with presolve on, under one seed",
        cost=(0.0,) * len(names),
        low=tuple(bounds[name][0] for name in names),
        high=tuple(bounds[name][1] for name in names),
        integers=frozenset(i for i, name in enumerate(names) if name in integers),
        rows=tuple(rows),
        optimum=0.0,
        witness=(),
    )


# --- asking them ----------------------------------------------------------------------------------

#: The option sets whose answers a certificate may rest on.
OPTION_SETS: dict[str, OptionSet] = {
    "presolve off, seed 1": FIRST,
    "presolve on, seed 2": SECOND,
    "presolve off, seed 3": STAND_IN,
}
#: Those under which engines besides HiGHS are asked.
OPTION_SETS_BESIDES: dict[str, OptionSet] = {"presolve off, seed 1": BESIDES}


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
    """Whether an installed engine may certify (HiGHS) or answer besides (others), and why not."""

    engine: str
    version: str
    songs: tuple[Song, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """What stands in the way; nothing if the engine may be used."""
        found = [f"{s.canary}, {s.options}: {s.wrong}" for s in self.songs if s.wrong]
        if self.engine == FIRST_ENGINE and self.version != CHECKED_HIGHS:
            found.insert(
                0,
                f"HiGHS {self.version} is installed; {CHECKED_HIGHS} is the release that was "
                f"checked: pip install highspy=={CHECKED_HIGHS}",
            )
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Whether the engine may be used."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "engine": self.engine,
            "version": self.version,
            "reasons": list(self.reasons),
            "canaries": [song.to_dict() for song in self.songs],
        }


def option_sets(engine: str) -> dict[str, OptionSet]:
    """The option sets under which an engine is used."""
    return OPTION_SETS if engine == FIRST_ENGINE else OPTION_SETS_BESIDES


def diagnose(
    canaries: Sequence[Canary] | None = None,
    *,
    engines: Sequence[str] | None = None,
    jobs: int = 1,
) -> tuple[Diagnosis, ...]:
    """Ask engines every canary that they take, each in a process of its own.

    ``engines`` are asked under the option sets under which they are used; None: all that are
    installed. Raises ``EngineError`` for one that is not.
    """
    names = list(installed()) if engines is None else list(engines)
    versions = {name: engine_of(name).find() for name in names}
    load(names)
    asked = [
        (name, canary, options)
        for name in names
        for canary in (every_canary() if canaries is None else canaries)
        if canary.suits(ENGINES[name].capabilities)
        for options in option_sets(name)
    ]
    with tempfile.TemporaryDirectory(prefix="nest-opt-") as folder:
        outcomes = run_all(
            [
                partial(_answer, name, canary, option_sets(name)[options], folder)
                for name, canary, options in asked
            ],
            jobs=jobs,
            seconds=3 * _LIMIT,
        )
    songs: dict[str, list[Song]] = {name: [] for name in names}
    for (name, canary, options), outcome in zip(asked, outcomes, strict=True):
        songs[name].append(Song(canary.name, options, judged(canary, outcome)))
    return tuple(Diagnosis(name, versions[name], tuple(songs[name])) for name in names)


@lru_cache
def _diagnosis(engine: str, version: str, jobs: int) -> Diagnosis:
    """The diagnosis of one release of one engine, made once."""
    (diagnosis,) = diagnose(engines=[engine], jobs=jobs)
    return diagnosis


def require(engines: Sequence[str], jobs: int) -> None:
    """Raise ``EngineError`` for an engine that is not installed or answers a canary wrongly."""
    for name in engines:
        engine = engine_of(name)
        diagnosis = _diagnosis(name, engine.find(), jobs)
        if not diagnosis.ok:
            raise EngineError(
                f"{engine.title} {diagnosis.version} answers a model with a known answer wrongly "
                f"({diagnosis.reasons[0]}); leave it out of the engines, or install another "
                "release; 'nest-opt doctor' lists what it got wrong"
            )


def _answer(engine: str, canary: Canary, options: OptionSet, folder: str) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "time_limit": _LIMIT,
        "presolve": options.presolve,
        "seed": options.seed,
    }
    if engine == FIRST_ENGINE:
        return highs.solve(canary.build, **limits).to_json()
    if engine != "cp-sat":
        return pyomo_engines.solve(engine, canary.build, folder=folder, **limits).to_json()
    model, x = canary.build_cp_sat()
    return cp_sat.solve_model(
        model, lambda value: {f"x[{i}]": float(value(v)) for i, v in enumerate(x)}, **limits
    ).to_json()


def judged(canary: Canary, outcome: Outcome) -> str:
    """What is wrong with an answer; "" if nothing is."""
    answer = answer_of(outcome)
    if answer.status != "optimal" or answer.values is None:
        return f"{answer.status}: {answer.detail}"
    # A variable that occurs in no row and costs nothing has no value.
    point = tuple(answer.values.get(f"x[{i}]", canary.low[i]) for i in range(len(canary.cost)))
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
