"""Why a problem has no plan, and the least change after which it has one.

What may be in conflict are *demands*: the memory of a device, each list of the search space that
could be longer without compiling anew, and each constraint. A conflict is a smallest set of demands
that no plan meets together, found by solving the problem without the others; the devices of the
cluster are always kept. A relaxation changes one thing alone (memory, devices, one parameter of a
constraint, a constraint dropped, a list made as long as it can be) by the least amount that leaves
a plan, found by bisection, with a solve on each side of the answer.

Everything here is relative to the dynamic program, which :func:`nest_opt.certify` proves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from nest_opt.cells import list_cells
from nest_opt.compile import Compiled, compile_problem
from nest_opt.constraints import Constraint
from nest_opt.errors import NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.plan import LAYOUTS, RECOMPUTATIONS
from nest_opt.problem import MAX_DEVICES, Problem, Search, exact
from nest_opt.solve import Solution, solve

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

#: More than any stage needs, far below what overflows.
_AMPLE = 2**50
#: The cluster may grow so many times when more devices are tried.
_GROWTH = 4
#: So many quanta more are tried where a coarser quantum takes the plan away again.
_ROUNDINGS = 16
#: Seconds after which no further relaxation is begun.
SECONDS = 120.0


@dataclass(frozen=True)
class Demand:
    """One thing that plans must meet: ``name`` as in the problem file, ``limit`` in words.

    ``where`` and ``shortfall`` say how near the nearest plan is that meets all other demands of the
    conflict: which stage, its layers and its first device, and by how much it misses this one.
    """

    name: str
    limit: str
    where: str = ""
    shortfall: str = ""

    def __str__(self) -> str:
        nearest = f"; nearest to it: {self.where} {self.shortfall}" if self.where else ""
        return f"{self.name}: {self.limit}{nearest}"


@dataclass(frozen=True)
class Relaxation:
    """One change that leaves a plan, all else as it is.

    ``change`` says it in words; ``field`` is the field of the problem file and ``value`` what to
    write there. ``batch_ticks`` is T then. ``least`` says that no smaller change of the same kind
    does, which was found out by solving.
    """

    field: str
    value: Any
    change: str
    batch_ticks: int
    batch_seconds: float
    least: bool

    def __str__(self) -> str:
        least = "at least " if self.least else ""
        return f"{self.change.format(least=least)}: a batch then takes {self.batch_seconds:.4g} s"


@dataclass(frozen=True)
class Infeasibility:
    """Why a problem has no plan.

    ``conflict`` is a smallest set of demands that exclude each other on these devices; it is empty
    where nothing fits on the devices even without them. ``relaxations`` are single changes that
    leave a plan, in the order memory, devices, lists, constraints. ``complete`` is false where time
    ran out.
    """

    problem: str
    digest: str
    cells: int
    conflict: tuple[Demand, ...]
    relaxations: tuple[Relaxation, ...]
    complete: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "problem": self.problem,
            "digest": self.digest,
            "status": "infeasible",
            "cells": self.cells,
            "conflict": [dict(vars(demand)) for demand in self.conflict],
            "relaxations": [dict(vars(relaxation)) for relaxation in self.relaxations],
            "complete": self.complete,
        }


def explain_infeasibility(
    problem: Problem, *, seconds: float = SECONDS, progress: Progress | None = None
) -> Infeasibility | None:
    """Why a problem has no plan; None if it has one.

    ``seconds`` limits the search for relaxations. Raises what :func:`nest_opt.compile_problem`
    raises, and EngineError for constraints that the dynamic program does not know.

    >>> import nest_opt
    >>> tight = nest_opt.load_problem("worked-example-110", {"search.recomputation": ["none"]})
    >>> why = explain_infeasibility(tight)
    >>> [demand.name for demand in why.conflict]
    ['cluster.device.memory_bytes', 'search.recomputation']
    >>> why.relaxations[0].value // 2**20, why.relaxations[0].least
    (112, True)
    """
    compiled = compile_problem(problem)
    if solve(compiled).plan is not None:
        return None
    return _Search(problem, compiled, seconds, progress).run()


class _Search:
    """One explanation; remembers which sets of demands leave a plan."""

    def __init__(
        self, problem: Problem, compiled: Compiled, seconds: float, progress: Progress | None
    ) -> None:
        self.problem, self.compiled = problem, compiled
        self.until = time.monotonic() + seconds
        self.progress = progress
        self.solved = 0
        self.complete = True

    def run(self) -> Infeasibility:
        compiled = self.compiled
        demands = self._demands()
        conflict = self._smallest_conflict(demands)
        return Infeasibility(
            problem=compiled.name,
            digest=compiled.digest,
            cells=sum(1 for _ in list_cells(compiled)),
            conflict=tuple(self._placed(name, conflict) for name in conflict),
            relaxations=tuple(self._relaxations()),
            complete=self.complete,
        )

    def _solve(self, compiled: Compiled) -> Solution:
        self.solved += 1
        if self.progress:
            self.progress(self.solved, self.solved + 1, "explaining")
        return solve(compiled)

    # --- demands ----------------------------------------------------------------------------------

    def _demands(self) -> list[str]:
        """Everything that can be let go of, by its field in the problem file."""
        widest = _widest(self.compiled.search)
        lists = [
            f"search.{name}"
            for name, value in widest.items()
            if getattr(self.compiled.search, name) != value
        ]
        constraints = [f"search.constraints[{n}]" for n in range(len(self._constraints))]
        return ["cluster.device.memory_bytes", *lists, *constraints]

    @property
    def _constraints(self) -> tuple[Constraint, ...]:
        return self.compiled.search.constraints

    def _with(self, kept: Sequence[str]) -> Compiled:
        """The problem with these demands alone."""
        search = self.compiled.search
        update: dict[str, Any] = {
            name: value for name, value in _widest(search).items() if f"search.{name}" not in kept
        }
        update["constraints"] = tuple(
            c for n, c in enumerate(self._constraints) if f"search.constraints[{n}]" in kept
        )
        memory = self.compiled.memory_quanta
        if "cluster.device.memory_bytes" not in kept:
            memory = _AMPLE
        return replace(self.compiled, memory_quanta=memory, search=search.model_copy(update=update))

    def _is_possible(self, kept: Sequence[str]) -> bool:
        return self._solve(self._with(kept)).plan is not None

    def _smallest_conflict(self, demands: list[str]) -> tuple[str, ...]:
        """Fewest demands that exclude each other; among equally few, the first in order.

        Letting go one by one leaves a set of which no part is in conflict; smaller sets than that
        are then tried, fewest first.
        """
        kept = list(demands)
        for demand in reversed(demands):
            rest = [d for d in kept if d != demand]
            if not self._is_possible(rest):
                kept = rest
        for size in range(len(kept)):
            for few in combinations(demands, size):
                if not self._is_possible(few):
                    return few
        return tuple(kept)

    def _placed(self, name: str, conflict: tuple[str, ...]) -> Demand:
        """A demand of the conflict, with where the nearest plan breaks it."""
        others = [other for other in conflict if other != name]
        limit = self._limit_of(name)
        if name == "cluster.device.memory_bytes":
            return self._memory_demand(name, limit, others)
        solution = self._solve(self._with(others))
        if solution.plan is None or not name.startswith("search.constraints"):
            return Demand(name, limit)
        index = int(name.removeprefix("search.constraints[").removesuffix("]"))
        constraint = self._constraints[index]
        found = Evaluator(self.compiled).evaluate(solution.plan).violations
        broken = [v for v in found if v.constraint == str(constraint)]
        if not broken:
            return Demand(name, limit)
        return Demand(name, limit, broken[0].where, broken[0].message.partition(";")[0])

    def _memory_demand(self, name: str, limit: str, others: Sequence[str]) -> Demand:
        """The stage that needs most, in the plan that needs least of all that meet the others."""
        least = self._least_memory(self._with([*others, name]))
        if least is None:
            return Demand(name, limit)
        quanta, solution = least
        plan = solution.plan
        assert plan is not None
        j, stage = max(enumerate(plan.stages), key=lambda item: item[1].memory_bytes or 0)
        first, stop = stage.layers
        missing = (quanta - self.compiled.memory_quanta) * self.compiled.quantum_bytes
        names = self.compiled.layer_names
        return Demand(
            name,
            limit,
            f"stage {j} (layers {names[first]}..{names[stop - 1]}, device {stage.devices[0][0]})",
            f"lacks {_bytes(missing)}",
        )

    def _limit_of(self, name: str) -> str:
        if name == "cluster.device.memory_bytes":
            usable = self.compiled.memory_quanta * self.compiled.quantum_bytes
            return f"{_bytes(usable)} of a device are usable"
        if name.startswith("search.constraints"):
            index = int(name.removeprefix("search.constraints[").removesuffix("]"))
            constraint = self._constraints[index]
            return f"{constraint}: {constraint.meaning}"
        value = getattr(self.compiled.search, name.removeprefix("search."))
        return value if isinstance(value, str) else f"only {', '.join(map(str, value))}"

    # --- relaxations ------------------------------------------------------------------------------

    def _relaxations(self) -> list[Relaxation]:
        found: list[Relaxation | None] = []
        for step in (self._memory, self._devices, self._lists, self._parameters):
            if time.monotonic() > self.until:
                self.complete = False
                break
            found += step()
        return [relaxation for relaxation in found if relaxation is not None]

    def _relaxation(
        self, field: str, value: Any, change: str, solution: Solution, *, least: bool
    ) -> Relaxation:
        assert solution.batch_ticks is not None and solution.batch_seconds is not None
        return Relaxation(field, value, change, solution.batch_ticks, solution.batch_seconds, least)

    def _least_memory(self, compiled: Compiled) -> tuple[int, Solution] | None:
        """The fewest usable quanta with which there is a plan, above those there are."""
        low = compiled.memory_quanta
        high = max(low, 1)
        solution = self._solve(replace(compiled, memory_quanta=_AMPLE))
        if solution.plan is None:
            return None
        # Some plan needs what this one needs; bisect between that and what there is.
        quantum = compiled.quantum_bytes
        high = max(-(-(stage.memory_bytes or 0) // quantum) for stage in solution.plan.stages)
        while high - low > 1:
            middle = (low + high) // 2
            there = self._solve(replace(compiled, memory_quanta=middle))
            if there.plan is None:
                low = middle
            else:
                high, solution = middle, there
        return high, self._solve(replace(compiled, memory_quanta=high))

    def _memory(self) -> list[Relaxation | None]:
        least = self._least_memory(self.compiled)
        if least is None:
            return [None]
        quanta, solution = least
        share = 1 - exact(self.problem.training.reserve_fraction)
        needed = int(-(-quanta * self.compiled.quantum_bytes // share))
        # With more memory the quantum may be coarser, unless the problem fixes it: solve that
        # problem itself, and go on by its quanta where rounding takes the plan away again.
        exactly = True
        for _ in range(_ROUNDINGS):
            compiled = compile_problem(_with_memory(self.problem, needed))
            solution = self._solve(compiled)
            if solution.plan is not None:
                break
            exactly = False
            needed += compiled.quantum_bytes
        if solution.plan is None:
            return [None]
        change = f"devices with {{least}}{_bytes(needed)} of memory"
        return [
            self._relaxation("cluster.device.memory_bytes", needed, change, solution, least=exactly)
        ]

    def _devices(self) -> list[Relaxation | None]:
        """More blocks of the outermost level, one by one, until there is a plan."""
        levels = self.problem.cluster.levels
        if not levels:
            return [None]
        size, inside = levels[-1].size, self.problem.cluster.devices // levels[-1].size
        for blocks in range(size + 1, _GROWTH * size + 1):
            if inside * blocks > MAX_DEVICES:
                break
            if time.monotonic() > self.until:
                self.complete = False
                break
            try:
                compiled = compile_problem(_enlarged(self.problem, blocks))
                solution = self._solve(compiled)
            except NestOptError:
                continue
            if solution.plan is not None:
                return [
                    self._relaxation(
                        "cluster.devices",
                        inside * blocks,
                        f"{{least}}{inside * blocks:,} devices instead of {inside * size:,}",
                        solution,
                        least=True,
                    )
                ]
        return [None]

    def _lists(self) -> list[Relaxation | None]:
        found: list[Relaxation | None] = []
        for name, value in _widest(self.compiled.search).items():
            if getattr(self.compiled.search, name) == value:
                continue
            search = self.compiled.search.model_copy(update={name: value})
            solution = self._solve(replace(self.compiled, search=search))
            if solution.plan is None:
                continue
            added = _needed_entries(name, self.compiled.search, solution)
            change = f"search.{name} with {', '.join(map(str, added))}"
            found.append(
                self._relaxation(f"search.{name}", _listed(value), change, solution, least=False)
            )
        return found

    def _parameters(self) -> list[Relaxation | None]:
        found: list[Relaxation | None] = []
        for n, constraint in enumerate(self._constraints):
            field = f"search.constraints[{n}]"
            for parameter, values in constraint.relaxations(self.compiled):
                best = self._first_possible(n, constraint, parameter, values)
                if best is None:
                    continue
                value, solution = best
                change = f"{constraint.constraint} with {parameter} {value}"
                found.append(
                    self._relaxation(f"{field}.{parameter}", value, change, solution, least=True)
                )
            solution = self._solve(self._instead(n, None))
            if solution.plan is not None:
                change = f"without {constraint}"
                found.append(self._relaxation(field, None, change, solution, least=False))
        return found

    def _instead(self, number: int, constraint: Constraint | None) -> Compiled:
        """The problem with another constraint, or none, in the place of one."""
        kept = [c for n, c in enumerate(self._constraints) if n != number]
        if constraint is not None:
            kept.insert(number, constraint)
        search = self.compiled.search.model_copy(update={"constraints": tuple(kept)})
        return replace(self.compiled, search=search)

    def _first_possible(
        self, number: int, constraint: Constraint, parameter: str, values: Sequence[Any]
    ) -> tuple[Any, Solution] | None:
        """The first of ever weaker values with which there is a plan."""

        def at(index: int) -> Solution:
            weaker = constraint.model_copy(update={parameter: values[index]})
            return self._solve(self._instead(number, weaker))

        if not len(values):
            return None
        low, high, solution = -1, len(values) - 1, at(len(values) - 1)
        if solution.plan is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            there = at(middle)
            if there.plan is None:
                low = middle
            else:
                high, solution = middle, there
        return values[high], solution


def _widest(search: Search) -> dict[str, Any]:
    """The lists that can be longer without compiling anew, as long as they can be.

    Recomputation and ZeRO have prices whatever the lists say; templates and microbatch sizes not.
    """
    kinds = RECOMPUTATIONS
    zeros = (0, 1, 2, 3)
    return {
        "data_parallel": "any",
        "stages": "any",
        "recomputation": (
            *search.recomputation,
            *(k for k in kinds if k not in search.recomputation),
        ),
        "zero": (*search.zero, *(z for z in zeros if z not in search.zero)),
        "layouts": (*search.layouts, *(x for x in LAYOUTS if x not in search.layouts)),
    }


def _needed_entries(name: str, search: Search, solution: Solution) -> list[Any]:
    """What the plan takes from a list that was made longer, beyond what stood there."""
    plan = solution.plan
    assert plan is not None
    taken: dict[str, list[Any]] = {
        "data_parallel": [plan.replicas],
        "stages": [len(plan.stages)],
        "recomputation": [stage.recomputation for stage in plan.stages],
        "zero": [stage.zero for stage in plan.stages],
        "layouts": [plan.layout],
    }
    had = getattr(search, name)
    return sorted({x for x in taken[name] if isinstance(had, str) or x not in had})


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _with_memory(problem: Problem, memory_bytes: int) -> Problem:
    """The problem on devices of so much memory."""
    device = problem.cluster.device.model_copy(update={"memory_bytes": memory_bytes})
    cluster = problem.cluster.model_copy(update={"device": device})
    return problem.model_copy(update={"cluster": cluster})


def _enlarged(problem: Problem, blocks: int) -> Problem:
    """The problem on a cluster whose outermost level has so many blocks."""
    cluster = problem.cluster
    last = cluster.levels[-1]
    levels = (*cluster.levels[:-1], last.model_copy(update={"size": blocks}))
    devices = cluster.devices // last.size * blocks
    return problem.model_copy(
        update={"cluster": cluster.model_copy(update={"levels": levels, "devices": devices})}
    )


def _bytes(count: int) -> str:
    """A number of bytes, in the unit in which it reads best, and exactly."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.2f} {unit} ({count:,} bytes)"
    return f"{count:,} bytes"
