"""The price of structure: what consecutive devices in two layouts cost, measured and proven.

For one problem with templates of width one, two optima are proven: the certified one of the search
space, and the least batch time of any placement at all (:mod:`formulations.free`). Every (b, d, s)
of the latter is *refuted* by HiGHS twice, without presolve and with presolve and another seed: it
has no placement with T <= T_free - 1; or *bounded*: the cheapest conceivable loads leave no pair of
bounds within T_free - 1 to ask for. The placement with T_free itself is priced by the evaluator.

The price of structure is T_structured / T_free, an exact fraction. A problem of which anything is
left undecided is ``open``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from formulations import free
from nest_opt.cells import Cell
from nest_opt.certify import highs, processes
from nest_opt.certify.answers import EngineAnswer
from nest_opt.certify.certificate import FIRST, SECOND, STAND_IN, OptionSet
from nest_opt.certify.harness import certify
from nest_opt.certify.questions import NO_LIMIT, claimed
from nest_opt.compile import Compiled, compile_problem
from nest_opt.errors import CompileError, InputError, NestOptError, PlanError
from nest_opt.evaluate import Evaluator
from nest_opt.files import read_json, write_json
from nest_opt.plan import Plan
from nest_opt.problem import Problem

FORMAT = "nest-opt/price-of-structure/1"
#: Wall clock of one solve, seconds.
SOLVE_LIMIT = 120.0

Status = Literal["proven", "infeasible", "open", "disputed", "fault"]
#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Price:
    """The price of structure of one problem.

    ``proven``: both optima are, in ticks. ``infeasible``: the search space has no plan, certified.
    ``open``: a limit was reached; ``disputed``: answers contradict each other; ``fault``: a solver
    or encoding broke; ``reason`` says where. ``frames`` counts the (b, d, s), of which so many are
    ``bounded`` without asking HiGHS. ``plan`` is the best placement found, ``structured_plan`` the
    reference plan.
    """

    problem: str
    digest: str
    status: Status
    structured_ticks: int | None = None
    free_ticks: int | None = None
    reason: str = ""
    frames: int = 0
    bounded: int = 0
    seconds: float = 0.0
    structured_plan: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether there is nothing left to prove."""
        return self.status in ("proven", "infeasible")

    @property
    def ratio(self) -> Fraction | None:
        """T_structured / T_free; None unless both are proven."""
        if self.status != "proven" or not self.structured_ticks or not self.free_ticks:
            return None
        return Fraction(self.structured_ticks, self.free_ticks)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; :meth:`from_dict` reads it back."""
        ratio = self.ratio
        return asdict(self) | {"ratio": None if ratio is None else str(ratio)}

    @classmethod
    def from_dict(cls, data: Any) -> Price:
        """Raises TypeError, KeyError or ValueError for what :meth:`to_dict` did not write."""
        price = cls(**{key: value for key, value in data.items() if key != "ratio"})
        numbers = (price.structured_ticks, price.free_ticks)
        if price.status not in get_args(Status) or not isinstance(price.digest, str):
            raise ValueError("no known status")
        if any(x is not None and type(x) is not int for x in numbers):
            raise ValueError("ticks are integers")
        if price.status == "proven" and (price.ratio is None or price.ratio < 1):
            raise ValueError("a price of structure below 1")
        return price


class _Stop(Exception):
    """Why a measurement ends early."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status


def price_of_structure(
    problem: Problem, *, jobs: int = 1, solve_limit: float = SOLVE_LIMIT
) -> Price:
    """Prove both optima of one problem.

    ``jobs`` solvers run at once, each in a process of its own, for at most ``solve_limit`` seconds.
    Raises :class:`CompileError` for a problem that the free formulation does not cover (wider
    templates, constraints, too many devices) and what :func:`nest_opt.certify` raises.
    """
    started = time.monotonic()
    measured = _Measurement(compile_problem(problem), jobs, solve_limit)
    certificate = certify(problem, jobs=jobs, solve_limit=solve_limit, cross_checks=0)
    status: Status = "proven"
    reason = ""
    if certificate.verdict != "certified":
        status = "open" if certificate.verdict == "open" else "fault"
        if certificate.verdict in ("disputed", "refuted"):
            status = "disputed"
        reason = f"the structured optimum is {certificate.verdict}"
    elif certificate.batch_ticks is None:
        status = "infeasible"
    else:
        try:
            measured.prove(certificate.batch_ticks, certificate.plan)
        except _Stop as stop:
            status, reason = stop.status, str(stop)
    return Price(
        problem=measured.compiled.name,
        digest=measured.compiled.digest,
        status=status,
        structured_ticks=certificate.batch_ticks,
        free_ticks=measured.best,
        reason=reason,
        frames=len(measured.frames),
        bounded=measured.bounded,
        seconds=round(time.monotonic() - started, 3),
        structured_plan=None if certificate.plan is None else certificate.plan.to_dict(),
        plan=None if measured.plan is None else measured.plan.to_dict(),
    )


class _Measurement:
    """The free optimum of one problem."""

    def __init__(self, compiled: Compiled, jobs: int, solve_limit: float) -> None:
        self.compiled = compiled
        self.frames = free.frames(compiled)
        for replicas in {cell.replicas for cell in self.frames}:
            free.shapes_of(compiled.network, replicas)
        self._jobs, self._limit = jobs, solve_limit
        self._evaluator = Evaluator(compiled)
        self.best: int | None = None
        self.plan: Plan | None = None
        self.bounded = 0

    def prove(self, structured: int, plan: Plan | None) -> None:
        """Find the free optimum, from the structured one down, and prove it. Raises _Stop."""
        self.best, self.plan = structured, plan
        costs = {cell: free.free_costs(self.compiled, cell) for cell in self.frames}
        left = list(self.frames)
        while left:
            # What is refuted for a limit stays refuted for the lower ones to come.
            limit = self.best - 1
            left = [cell for cell in left if costs[cell].corner_pairs(limit)]
            left = self._round(left, limit, FIRST)
        limit = self.best - 1
        asked = [cell for cell in self.frames if costs[cell].corner_pairs(limit)]
        self.bounded = len(self.frames) - len(asked)
        found = self._round(asked, limit, SECOND)
        if found:
            labels = ", ".join(cell.label for cell in found)
            raise _Stop("disputed", f"with presolve there is a better plan in {labels}")

    def _round(self, cells: Sequence[Cell], limit: int, options: OptionSet) -> list[Cell]:
        """Ask whether each has a plan within the limit; those that have one. Raises _Stop."""
        outcomes = processes.run_all(
            [self._task(cell, limit, options) for cell in cells],
            jobs=self._jobs,
            seconds=self._limit,
        )
        answers = dict(zip(cells, map(highs.answer_of, outcomes), strict=True))
        broken = [cell for cell, answer in answers.items() if answer.status == "fault"]
        if broken and options == SECOND:
            again = self._round(broken, limit, STAND_IN)
            answers = {c: a for c, a in answers.items() if c not in broken}
            if again:
                return again
        found: list[Cell] = []
        for cell, answer in answers.items():
            if answer.status in ("limit", "fault"):
                status: Status = "open" if answer.status == "limit" else "fault"
                raise _Stop(status, f"{cell.label}, T <= {limit}: {answer.detail}")
            if answer.values is not None:
                self._take(cell, answer, limit)
                found.append(cell)
        return found

    def _task(self, cell: Cell, limit: int, options: OptionSet) -> Callable[[], dict[str, Any]]:
        presolve, seed = options
        return lambda: highs.solve(
            lambda: free.build_decision(self.compiled, cell, min(limit, NO_LIMIT)),
            time_limit=self._limit,
            presolve=presolve,
            seed=seed,
        ).to_json()

    def _take(self, cell: Cell, answer: EngineAnswer, limit: int) -> None:
        """Price the plan of an answer; it must keep the limit. Raises _Stop."""
        try:
            plan = free.decode(self.compiled, cell, answer.values or {})
        except PlanError as error:
            raise _Stop("fault", str(error)) from None
        priced = self._evaluator.evaluate(plan)
        ticks = priced.batch_ticks
        if not priced.feasible or ticks is None or ticks > limit:
            raise _Stop("fault", f"{cell.label}: the plan for T <= {limit} costs {ticks}")
        if self.best is None or ticks < self.best:
            self.best, self.plan = ticks, claimed(plan, priced)


# --- many problems --------------------------------------------------------------------------------


def measure(
    problems: Iterable[Problem],
    *,
    jobs: int = 1,
    solve_limit: float = SOLVE_LIMIT,
    out: Path | None = None,
    progress: Progress | None = None,
) -> list[Price]:
    """The price of structure of each problem, in order.

    With ``out``, what is finished is written there after each problem, and what was finished there
    before is not measured again. Raises :class:`InputError` for a file that is something else.
    """
    known = {price.digest: price for price in read_prices(out)} if out and out.is_file() else {}
    every = list(problems)
    prices: list[Price] = []
    for n, problem in enumerate(every):
        if progress:
            progress(n, len(every), problem.name)
        price = known.get(compile_problem(problem).digest)
        if price is None or not price.is_decided:
            try:
                price = price_of_structure(problem, jobs=jobs, solve_limit=solve_limit)
            except CompileError as error:
                raise NestOptError(f"{problem.name}: {error}") from None
        known[price.digest] = price
        prices.append(price)
        if out:
            write_json(out, {"format": FORMAT, "prices": [p.to_dict() for p in known.values()]})
    if progress:
        progress(len(every), len(every), "problems")
    return prices


def read_prices(path: Path) -> list[Price]:
    """What :func:`measure` wrote. Raises :class:`InputError`."""
    data = read_json(path)
    try:
        if data["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        return [Price.from_dict(item) for item in data["prices"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            str(path), f"holds no prices of structure ({error}); name a new file for --out"
        ) from None


def summary(prices: Sequence[Price]) -> dict[str, Any]:
    """Counts by status, and what structure costs where that is proven; fractions as text."""
    ratios = [price.ratio for price in prices if price.ratio is not None]
    worst = max((p for p in prices if p.ratio), key=lambda p: p.ratio or 0, default=None)
    mean = sum(ratios, Fraction(0)) / len(ratios) if ratios else None
    return {
        "problems": len(prices),
        **{status: sum(p.status == status for p in prices) for status in get_args(Status)},
        "cost_nothing": sum(ratio == 1 for ratio in ratios),
        "mean_ratio": None if mean is None else round(float(mean), 6),
        "worst_ratio": None if worst is None else str(worst.ratio),
        "worst_problem": None if worst is None else worst.problem,
    }


def table(prices: Sequence[Price]) -> str:
    """A line for each problem, and the summary below."""
    width = max([len(price.problem) for price in prices], default=7)
    lines = [f"{'problem':{width}}  structured        free  ratio"]
    for price in prices:
        ratio = price.ratio
        said = price.status if ratio is None else f"{float(ratio):.4f}"
        if ratio is not None and ratio != 1:
            said += f" = {ratio}"
        if price.reason:
            said += f": {price.reason}"
        ticks = ["-" if x is None else f"{x:,}" for x in (price.structured_ticks, price.free_ticks)]
        lines.append(f"{price.problem:{width}}  {ticks[0]:>10}  {ticks[1]:>10}  {said}")
    told = summary(prices)
    counts = ", ".join(f"{told[status]} {status}" for status in get_args(Status) if told[status])
    lines.append(f"{told['problems']} problems: {counts}")
    if told["worst_ratio"]:
        lines.append(
            f"structure costs nothing in {told['cost_nothing']}; mean ratio "
            f"{told['mean_ratio']:.4f}, worst {told['worst_ratio']} "
            f"= {float(Fraction(told['worst_ratio'])):.4f} ({told['worst_problem']})"
        )
    return "\n".join(lines)
