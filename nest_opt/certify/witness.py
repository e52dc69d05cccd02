"""Writes a witness: tables of the dynamic program, from which optimality can be re-checked.

A certificate rests on an engine where no closed-form bound closes a cell. A witness rests on no
engine: it holds, for every such cell, tables of the dynamic program, and whoever reads it only has
to check that no entry is above what Bellman's equation allows
(:mod:`nest_opt.certify.check_witness`, which imports nothing of the solver).

Notation of :mod:`nest_opt.certify.own_bounds`: q stages lie behind a stage, i is its first layer.

- ``least_load[q][i]``, under a bound on the synchronisation of every stage: no way to place layers
  i..L-1 on positions 0..q has a smaller largest load; -1 if there is no way at all;
- ``least_sync[q][i]``: likewise, no way has a smaller largest synchronisation.

Entry i = 0 is the first stage of the pipeline. With bounds w_0 = none > w_1 > ... on the
synchronisation, a plan of s stages has, for some n, a synchronisation in (w_(n+1), w_n], hence
T >= slots * least_load_n[s-1][0] + w_(n+1) + 1; behind the last bound the least synchronisation
takes the place of w_(n+1) + 1. If each of these is at least T*, no plan of the cell is better.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nest_opt.bounds import UNLIMITED, Bounds
from nest_opt.cells import Cell, list_cells
from nest_opt.certify.own_bounds import OwnBounds, own_cells
from nest_opt.compile import compile_problem
from nest_opt.dp.recurrence import Family, Pipelines
from nest_opt.dp.tables import INFINITE
from nest_opt.errors import InputError
from nest_opt.geometry import Geometry, Ints
from nest_opt.problem import Problem
from nest_opt.solve import solve

FORMAT = "nest-opt/witness/1"

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Witness:
    """A witness as JSON data, and what it took."""

    data: dict[str, Any]
    cells: int
    in_tables: int
    wall_seconds: float


def write_witness(problem: Problem, *, progress: Progress | None = None) -> Witness:
    """Solve a problem and write down why nothing is better.

    Raises what :func:`nest_opt.compile_problem` raises, and :class:`InputError` for a problem with
    constraints, which the checker does not know.

    >>> from nest_opt import load_problem
    >>> from nest_opt.certify.check_witness import check_witness
    >>> witness = write_witness(load_problem("worked-example-160"))
    >>> witness.data["batch_ticks"], check_witness(witness.data).ok
    (454, True)
    """
    started = time.perf_counter()
    if problem.search.constraints:
        raise InputError(
            problem.name,
            "has search.constraints, which the checker of witnesses does not know; certify it, or "
            "leave them out",
        )
    compiled = compile_problem(problem)
    solution = solve(compiled, progress=progress)
    best = solution.batch_ticks
    geometry = Geometry.of(compiled)
    bounds, own = Bounds(compiled, geometry), OwnBounds(compiled)
    listed = {cell.label: cell for cell in own_cells(compiled)}
    groups: defaultdict[tuple[Family, int, bool], list[Cell]] = defaultdict(list)
    pipelines: dict[Family, Pipelines] = {}
    count = 0
    for cell in list_cells(compiled):
        count += 1
        if progress and count % 500 == 0:
            progress(count, len(listed), "bounding")
        # Left out is only what whoever checks the witness can leave out as well.
        if best is None:
            if not bounds.may_reach(cell, UNLIMITED) and not own.may_reach(
                listed[cell.label], None
            ):
                continue
        elif bounds.work(cell) >= best and own.work(listed[cell.label]) >= best:
            continue
        family = Family.of(cell)
        if family not in pipelines:
            longest = len(geometry.positions(family.template, family.replicas, family.layout))
            longest = min(longest, compiled.layer_count)
            pipelines[family] = Pipelines(compiled, geometry, family, longest)
        groups[family, pipelines[family].ring[cell.stages], cell.stages == 1].append(cell)
    written = []
    for done, ((family, ring, alone), cells) in enumerate(groups.items()):
        if progress:
            progress(done, len(groups), "writing tables")
        written.append(_group(pipelines[family], family, ring, alone, cells, best))
    data = {
        "format": FORMAT,
        "problem": problem.to_dict(),
        "digest": compiled.digest,
        "batch_ticks": best,
        "plan": solution.plan.to_dict() if solution.plan else None,
        "groups": written,
    }
    in_tables = sum(len(cells) for cells in groups.values())
    return Witness(data, count, in_tables, time.perf_counter() - started)


def _group(
    pipelines: Pipelines,
    family: Family,
    ring: int,
    alone: bool,
    cells: list[Cell],
    best: int | None,
) -> dict[str, Any]:
    """The tables of cells that differ in their stages alone and pay the same tied ring."""
    longest = max(cell.stages for cell in cells)
    no_limit = int(INFINITE)
    limits = {no_limit}
    for cell in cells if best is not None else ():
        limits |= _limits(pipelines, cell, best or 0)
    tables = []
    for limit in sorted(limits, reverse=True):
        values = pipelines.load_table(limit, ring, longest, alone)
        tables.append(
            {
                "sync_at_most": None if limit == no_limit else limit,
                "least_load": _rows(values),
            }
        )
    syncs = pipelines.sync_table(ring, longest, alone)
    template = family.template
    return {
        "microbatch": family.microbatch,
        "replicas": family.replicas,
        "layout": family.layout,
        "template": {
            "tensor": template.tensor,
            "context": template.context,
            "expert": template.expert,
            "sequence_parallel": template.sequence_parallel,
        },
        "stages": sorted(cell.stages for cell in cells),
        "tables": tables,
        "least_sync": _rows(syncs),
    }


def _limits(pipelines: Pipelines, cell: Cell, best: int) -> set[int]:
    """The bounds on synchronisation at which the walk along the frontier of a cell stops."""
    found: set[int] = set()
    least_sync = pipelines.least_sync(cell.stages, int(INFINITE))
    limit = int(INFINITE)
    while least_sync < INFINITE:
        tau = pipelines.least_bottleneck(cell.stages, limit)
        if tau >= INFINITE or cell.slots * tau + least_sync >= best:
            return found
        limit = pipelines.least_sync(cell.stages, tau) - 1
        found.add(limit)
    return found


def _rows(values: list[Ints]) -> list[list[int]]:
    """A table in plain numbers; in the last row only a first stage lies."""
    rows = [[-1 if value >= INFINITE else int(value) for value in row] for row in values]
    rows[-1][1:] = [-1] * (len(rows[-1]) - 1)
    return rows
