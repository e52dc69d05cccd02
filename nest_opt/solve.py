"""Cells, bounds and the DP together: the reference plan of a problem."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from nest_opt.bounds import Bounds
from nest_opt.cells import Cell, list_cells
from nest_opt.compile import Compiled, compile_problem
from nest_opt.dp.constrained import allowed_cells, pipelines_of
from nest_opt.dp.frontier import Corner, best_corners
from nest_opt.dp.recurrence import Family, Pipelines, StageChoice
from nest_opt.dp.stages import require_dp_faces
from nest_opt.dp.tables import INFINITE
from nest_opt.geometry import Geometry
from nest_opt.plan import LAYOUTS, RECOMPUTATIONS, Plan, StagePlan
from nest_opt.problem import Problem

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Solution:
    """What ``solve`` found. Ticks are integers; ``tick_seconds`` turns them into seconds.

    ``cells`` counts the cells of the search space: ``total``, ``excluded`` (a constraint allows
    none of their plans), ``bounded`` (a closed-form bound shows that they cannot win) and
    ``solved`` (the DP ran). Optimal is relative to the search space.
    """

    problem: str
    digest: str
    status: Literal["optimal", "infeasible"]
    batch_ticks: int | None
    tick_seconds: Fraction
    global_batch: int
    tau_ticks: int | None
    sigma_ticks: int | None
    plan: Plan | None
    cells: dict[str, int]
    wall_seconds: float

    @property
    def batch_seconds(self) -> float | None:
        """Seconds per batch, for people; compare ticks."""
        if self.batch_ticks is None:
            return None
        return float(self.batch_ticks * self.tick_seconds)

    @property
    def sequences_per_second(self) -> float | None:
        """Throughput; None where there is no plan or it takes no time."""
        seconds = self.batch_seconds
        return self.global_batch / seconds if seconds else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; its field names are stable."""
        return {
            "problem": self.problem,
            "digest": self.digest,
            "status": self.status,
            "batch_ticks": self.batch_ticks,
            "tick_seconds": float(self.tick_seconds),
            "batch_seconds": self.batch_seconds,
            "sequences_per_second": self.sequences_per_second,
            "tau_ticks": self.tau_ticks,
            "sigma_ticks": self.sigma_ticks,
            "plan": self.plan.to_dict() if self.plan else None,
            "cells": dict(self.cells),
            "wall_seconds": self.wall_seconds,
        }


@dataclass(frozen=True)
class _Candidate:
    """A cell's plan at one corner, with its place in the total order of plans."""

    key: tuple[Any, ...]
    cell: Cell
    corner: Corner
    stages: list[StageChoice]


def solve(
    problem: Problem | Compiled, *, use_bounds: bool = True, progress: Progress | None = None
) -> Solution:
    """The reference plan: least batch time, and among equal ones the first in the total order.

    ``use_bounds=False`` runs the DP in every cell. Raises :class:`nest_opt.errors.NestOptError` for
    problems that cannot be compiled.

    >>> import nest_opt
    >>> solution = nest_opt.solve(nest_opt.load_problem("worked-example-160"))
    >>> solution.batch_ticks, solution.plan.replicas, len(solution.plan.stages)
    (454, 2, 2)
    """
    started = time.perf_counter()
    compiled = problem if isinstance(problem, Compiled) else compile_problem(problem)
    constraints = compiled.search.constraints
    require_dp_faces(constraints)
    listed = list(list_cells(compiled))
    geometry = Geometry.of(compiled)
    cells = allowed_cells(compiled, geometry, listed)
    bounds = Bounds(compiled, geometry)
    # Where constraints filter stages, no two cells share their tables.
    apart = any(c.filters_stages for c in constraints)
    families: defaultdict[tuple[Family, int], list[tuple[int, Cell]]] = defaultdict(list)
    for done, cell in enumerate(cells):
        if progress and done % 1000 == 0:
            progress(done, len(cells), "bounding")
        bound = bounds.work(cell) if use_bounds else 0
        families[Family.of(cell), cell.stages if apart else 0].append((bound, cell))
    order = sorted(families.items(), key=lambda item: min(bound for bound, _ in item[1]))
    best = int(INFINITE)
    won: list[tuple[Cell, Corner]] = []
    solved = 0
    for done, ((family, _), members) in enumerate(order):
        if progress:
            progress(done, len(order), "solving")
        if use_bounds:
            members = [
                (bound, cell)
                for bound, cell in members
                if bound <= best and bounds.may_reach(cell, best)
            ]
        if not members:
            continue
        if apart:
            pipelines = pipelines_of(compiled, geometry, members[0][1])
        else:
            pipelines = Pipelines(compiled, geometry, family, max(c.stages for _, c in members))
        solved += len(members)
        for _, cell in sorted(members, key=lambda member: member[0]):
            for corner in best_corners(pipelines, cell.stages, cell.slots, best):
                if corner.batch_ticks < best:
                    best, won = corner.batch_ticks, []
                won.append((cell, corner))
    chosen = min(
        (_candidate(compiled, geometry, cell, corner) for cell, corner in won),
        key=lambda candidate: candidate.key,
        default=None,
    )
    return Solution(
        problem=compiled.name,
        digest=compiled.digest,
        status="optimal" if chosen else "infeasible",
        batch_ticks=chosen.corner.batch_ticks if chosen else None,
        tick_seconds=compiled.tick_seconds,
        global_batch=compiled.global_batch,
        tau_ticks=chosen.corner.tau if chosen else None,
        sigma_ticks=chosen.corner.sigma if chosen else None,
        plan=_plan(compiled, geometry, chosen) if chosen else None,
        cells={
            "total": len(listed),
            "excluded": len(listed) - len(cells),
            "bounded": len(cells) - solved,
            "solved": solved,
        },
        wall_seconds=time.perf_counter() - started,
    )


def _candidate(compiled: Compiled, geometry: Geometry, cell: Cell, corner: Corner) -> _Candidate:
    pipelines = pipelines_of(compiled, geometry, cell)
    stages = pipelines.reference_stages(cell.stages, corner.tau, corner.sigma)
    template = cell.template
    key = (
        sum(stage.load for stage in stages),
        cell.replicas * cell.stages * template.width,
        cell.stages,
        cell.replicas,
        cell.microbatch,
        template.tensor,
        template.context,
        template.expert,
        template.sequence_parallel,
        LAYOUTS.index(cell.layout),
        [stage.stop for stage in stages],
        [RECOMPUTATIONS.index(stage.choice.recomputation) for stage in stages],
        [stage.choice.zero for stage in stages],
    )
    return _Candidate(key, cell, corner, stages)


def _plan(compiled: Compiled, geometry: Geometry, chosen: _Candidate) -> Plan:
    cell = chosen.cell
    template, width = cell.template, cell.template.width
    starts = geometry.starts(template, cell.replicas, cell.layout)
    pipelines = pipelines_of(compiled, geometry, cell)
    stages = []
    for j, stage in enumerate(chosen.stages):
        q = cell.stages - 1 - j
        stages.append(
            StagePlan(
                layers=(stage.first, stage.stop),
                recomputation=stage.choice.recomputation,
                zero=stage.choice.zero,
                load_ticks=stage.load,
                memory_bytes=compiled.quantum_bytes
                * pipelines.memory_quanta(cell.stages, q, stage),
                devices=tuple(tuple(range(start, start + width)) for start in starts[q].tolist()),
            )
        )
    return Plan(
        digest=compiled.digest,
        microbatch=cell.microbatch,
        replicas=cell.replicas,
        microbatches=cell.microbatches,
        layout=cell.layout,
        template=template,
        stages=tuple(stages),
    )
