"""Layers to stages as a path: one arc for every stage that there can be.

A plan of a cell is a path through the cuts 0, 1, .., L: stage j is an arc from the cut before its
first layer to the cut behind its last one, under one choice. What a stage costs is a constant of
its arc, so that nothing has to be added up over layers, and the linear relaxation is strong: it
mixes whole stages, never pieces of them.

Sets
    stage positions j in 0..s-1; cuts 0..L; choices c = (recomputation kind, ZeRO stage); arcs
    (j,i,k,c): stage j holds layers i..k-1 under c, with at least one layer left for every other
    stage. Arcs that cannot be part of a plan do not exist: what they need is more than the memory
    of a device, or their load or synchronisation is beyond the largest bound on it.

Parameters (from the terms of :mod:`formulations.costs`, integers)
    load[a]      load of the arc's stage, in the replicas where it is largest; ticks per microbatch
    sync[a]      its synchronisation, in the groups where it is largest; ticks per batch
    loads[p], syncs[p]   the corner pairs of a limit on T: a bound on all loads and one on sigma

    Loads and synchronisations are divided by their greatest common divisors, which is exact.

Variables
    use[j,i,k,c]     1 if stage j is that arc                                           binary
    pair[p]          1 if corner pair p is the one that the plan keeps (decision)       binary
    tau, sigma       bottleneck load and synchronisation (minimum)                      integer
    nothing          always 0: what a row without terms is made of

Constraints
    C1_source     one arc of stage 0, which starts at cut 0, is used
    C2_flow       as many arcs of stage j end at cut k as arcs of stage j + 1 start there; arcs of
                  the last stage end at L
    C3_pair       exactly one corner pair is kept (decision)
    C4_load       sum of load * use over the arcs of a stage <= sum_p loads[p] * pair[p], or tau
    C5_sync       sum of sync * use over the arcs of a stage <= sum_p syncs[p] * pair[p], or sigma
    K<n>_<name>   the rows of the problem's n-th constraint (:mod:`formulations.stages`)

Objective
    none (decision), or slots * tau + sigma, divided by what all its terms share (minimum).

What it proves
    The same as :mod:`formulations.assignment`, by other variables and rows.

Size
    s C (L - s + 1)(L - s + 2) / 2 binaries with C choices, fewer by what does not fit; s (L + 2)
    rows. For cells of few stages or layers; N enters only through the prices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyomo.environ import (
    Binary,
    ConcreteModel,
    Constraint,
    NonNegativeIntegers,
    Objective,
    Set,
    Var,
    minimize,
)

from formulations.costs import (
    CellCosts,
    Choice,
    SyncRow,
    cell_costs,
    linear,
    plan_of,
    stages_of,
    whole,
)
from formulations.stages import StageModel
from nest_opt.cells import Cell
from nest_opt.compile import Compiled
from nest_opt.errors import PlanError
from nest_opt.plan import Plan

FAMILIES: tuple[str, ...] = ("C1_source", "C2_flow", "C3_pair", "C4_load", "C5_sync")
STRENGTHENING: tuple[str, ...] = ()

#: (coefficient, variable)
_Terms = list[tuple[int, Any]]
#: (j, i, k, recomputation kind, ZeRO stage)
_Index = tuple[int, int, int, str, int]


class Arc(NamedTuple):
    """One stage that there can be: layers i..k-1 at position j under a choice; ticks and quanta."""

    load: int
    sync: int
    memory: int


def build_decision(compiled: Compiled, cell: Cell, limit: int) -> ConcreteModel:
    """The model of "a plan of this cell with T <= limit exists", T and limit in ticks.

    Raises :class:`nest_opt.errors.CompileError` for a cell that is not the problem's, and
    :class:`nest_opt.errors.OverflowGuardError` for numbers too large to be trusted to a solver.
    """
    costs = cell_costs(compiled, cell)
    pairs = costs.corner_pairs(limit)
    model = ConcreteModel(name=f"arcs decision {cell.label} T <= {limit}")
    most_load = max((load for load, _ in pairs), default=-1)
    most_sync = max((sync for _, sync in pairs), default=-1)
    arcs = _variables(model, costs, most_load, most_sync)
    model.PAIRS = Set(initialize=range(len(pairs)))
    model.pair = Var(model.PAIRS, domain=Binary)
    model.C3_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)
    load_bound = [(pairs[p][0] // costs.load_unit, model.pair[p]) for p in model.PAIRS]
    sync_bound = [(pairs[p][1] // costs.sync_unit, model.pair[p]) for p in model.PAIRS]
    _families(model, costs, arcs, load_bound, sync_bound)
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    return model


def build_minimum(compiled: Compiled, cell: Cell) -> ConcreteModel:
    """The model that minimises T over the plans of this cell; infeasible if it has none.

    The objective is T in units of what slots * tau and sigma have in common. A solver's word on it
    is floating point: decode the plan and price it in integers.

    Raises like :func:`build_decision`.
    """
    costs = cell_costs(compiled, cell)
    model = ConcreteModel(name=f"arcs minimum {cell.label}")
    most_sync = max(costs.attainable_syncs)
    arcs = _variables(model, costs, costs.load_ceiling, most_sync)
    model.tau = Var(
        domain=NonNegativeIntegers, bounds=(0, -(-costs.load_ceiling // costs.load_unit))
    )
    model.sigma = Var(domain=NonNegativeIntegers, bounds=(0, most_sync // costs.sync_unit))
    _families(model, costs, arcs, [(1, model.tau)], [(1, model.sigma)])
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    per_tau, per_sigma = costs.objective_weights
    model.objective = Objective(
        expr=linear(model, [(per_tau, model.tau), (per_sigma, model.sigma)]), sense=minimize
    )
    return model


def count_arcs(layers: int, stages: int, choices: int) -> int:
    """How many arcs a cell can have at most.

    >>> count_arcs(4, 2, 1)
    12
    """
    free = layers - stages + 1
    return stages * choices * free * (free + 1) // 2


def _families(
    model: ConcreteModel,
    costs: CellCosts,
    arcs: Mapping[_Index, Arc],
    load_bound: _Terms,
    sync_bound: _Terms,
) -> None:
    """Every constraint family but the choice of a corner pair."""
    _source(model, costs)
    _flow(model, costs)
    _load(model, costs, arcs, load_bound)
    _sync(model, costs, arcs, sync_bound)


# --- arcs -----------------------------------------------------------------------------------------


def _variables(model: ConcreteModel, costs: CellCosts, load: int, sync: int) -> dict[_Index, Arc]:
    """The arcs that may be used under the largest bounds ``load`` and ``sync``, in ticks."""
    arcs = {
        index: arc
        for index, arc in arcs_of(costs)
        if arc.load <= load and arc.sync <= sync and arc.memory <= costs.memory
    }
    model.nothing = Var(bounds=(0, 0))
    model.ARCS = Set(dimen=5, initialize=list(arcs))
    model.use = Var(model.ARCS, domain=Binary)
    return arcs


def arcs_of(costs: CellCosts) -> Iterator[tuple[_Index, Arc]]:
    """Every arc of a cell with what its stage costs, whether it fits or not.

    O(1) per arc and row, by sums over the first layers.
    """
    last = costs.stages - 1
    for j in range(costs.stages):
        window = costs.window(j)
        for c in costs.choices:
            stage = _StageCosts(costs, j, c)
            for i in window[:1] if j == 0 else window:
                # Every stage behind this one holds a layer, too.
                for k in (costs.layers,) if j == last else range(i + 1, window.stop + 1):
                    yield (j, i, k, *c), stage.of(i, k)


class _StageCosts:
    """What layers i..k-1 cost at one position under one choice."""

    def __init__(self, costs: CellCosts, position: int, choice: Choice) -> None:
        terms = costs.positions[position]
        zero = choice.zero
        self.loads = [(row, _sums(row.work[choice])) for row in terms.loads]
        self.syncs = [(row, _sums(row.share[zero])) for row in terms.syncs]
        self.pays_sync = position in costs.synchronised
        self.dense, self.expert = _sums(costs.has_dense), _sums(costs.has_expert)
        self.memory = terms.memory[choice]
        self.each = _sums(self.memory.each)
        self.zero, self.layers = zero, costs.layers

    def of(self, i: int, k: int) -> Arc:
        """The arc from cut i to cut k."""
        load = max(
            work[k] - work[i] + row.receive[i] + (row.send[k] if k < self.layers else 0)
            for row, work in self.loads
        )
        sync = max(self.sync(row, n, i, k) + row.tied for n, (row, _) in enumerate(self.syncs))
        memory = (
            self.each[k]
            - self.each[i]
            + max(self.memory.working[i:k])
            + max(self.memory.gathered[i:k])
            + self.memory.entry[i]
        )
        return Arc(load, sync if self.pays_sync else 0, memory)

    def sync(self, row: SyncRow, number: int, i: int, k: int) -> int:
        """Ticks by one row, without the tied part."""
        share = self.syncs[number][1]
        ticks = share[k] - share[i]
        if self.dense[k] > self.dense[i]:
            ticks += row.dense_latency[self.zero]
        if self.expert[k] > self.expert[i]:
            ticks += row.expert_latency[self.zero]
        return ticks


def _sums(numbers: tuple[int, ...] | tuple[bool, ...]) -> list[int]:
    """Sums of the first 0, 1, 2, ... numbers."""
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return sums


# --- a path ---------------------------------------------------------------------------------------


def _source(model: ConcreteModel, costs: CellCosts) -> None:
    """C1: the path begins at cut 0 with one arc of stage 0."""
    arcs = [(1, model.use[index]) for index in model.ARCS if index[0] == 0]
    model.C1_source = Constraint(expr=linear(model, arcs) == 1)


def _flow(model: ConcreteModel, costs: CellCosts) -> None:
    """C2: where stage j ends, stage j + 1 starts."""
    ends: dict[tuple[int, int], _Terms] = {}
    for index in model.ARCS:
        j, i, k = index[:3]
        if j + 1 < costs.stages:
            ends.setdefault((k, j), []).append((1, model.use[index]))
        if j > 0:
            ends.setdefault((i, j - 1), []).append((-1, model.use[index]))
    model.C2_flow = Constraint(sorted(ends), rule=lambda m, k, j: linear(m, ends[k, j]) == 0)


# --- what a stage costs ---------------------------------------------------------------------------


def _load(
    model: ConcreteModel, costs: CellCosts, arcs: Mapping[_Index, Arc], bound: _Terms
) -> None:
    """C4: the load of each stage, wherever its replicas lie, keeps the bound."""
    unit = costs.load_unit

    def rule(model: ConcreteModel, j: int) -> Any:
        used = [(arc.load // unit, model.use[a]) for a, arc in arcs.items() if a[0] == j]
        return linear(model, used + [(-bounds, variable) for bounds, variable in bound]) <= 0

    model.C4_load = Constraint(range(costs.stages), rule=rule)


def _sync(
    model: ConcreteModel, costs: CellCosts, arcs: Mapping[_Index, Arc], bound: _Terms
) -> None:
    """C5: the synchronisation of each stage, whichever its worst groups, keeps the bound."""
    unit = costs.sync_unit

    def rule(model: ConcreteModel, j: int) -> Any:
        used = [(arc.sync // unit, model.use[a]) for a, arc in arcs.items() if a[0] == j]
        return linear(model, used + [(-bounds, variable) for bounds, variable in bound]) <= 0

    model.C5_sync = Constraint(costs.synchronised, rule=rule)


# --- what constraints see -------------------------------------------------------------------------


class _Stages(StageModel):
    """The stages in the variables of this formulation."""

    def _arcs(self, stage: int, choice: Choice) -> Iterator[tuple[int, int, Any]]:
        """First layer, layer behind the last, and variable of a stage's arcs under a choice."""
        for index in self.model.ARCS:
            if (index[0], *index[3:]) == (stage, *choice):
                yield index[1], index[2], self.model.use[index]

    def _layers(self, stage: int, choice: Choice) -> _Terms:
        return [(k - i, use) for i, k, use in self._arcs(stage, choice)]

    def _holds(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return [(1, use) for i, k, use in self._arcs(stage, choice) if i <= layer < k]

    def _starts(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return [(1, use) for i, _, use in self._arcs(stage, choice) if i == layer]

    def _chooses(self, stage: int, choice: Choice) -> _Terms:
        return [(1, use) for _, _, use in self._arcs(stage, choice)]

    def _memory(self, stage: int, choice: Choice) -> _Terms:
        prices = _StageCosts(self._costs, stage, choice)
        return [(prices.of(i, k).memory, use) for i, k, use in self._arcs(stage, choice)]

    def _sync(self, stage: int, row: SyncRow) -> _Terms:
        number = self._costs.positions[stage].syncs.index(row)
        terms: _Terms = []
        for c in self._costs.choices:
            prices = _StageCosts(self._costs, stage, c)
            for i, k, use in self._arcs(stage, c):
                terms.append((prices.sync(row, number, i, k) // self._costs.sync_unit, use))
        return terms


# --- plans ----------------------------------------------------------------------------------------


def decode(compiled: Compiled, cell: Cell, values: Mapping[str, float]) -> Plan:
    """The plan that a solution stands for; ``values`` maps variable names to values.

    Raises :class:`PlanError` where a value is no integer within 1e-4, or where the arcs used are no
    path.
    """
    costs = cell_costs(compiled, cell)
    used: dict[int, list[_Index]] = {j: [] for j in range(costs.stages)}
    for index, _ in arcs_of(costs):
        if whole(values, _name(index)):
            used[index[0]].append(index)
    end, starts, choices = 0, [], []
    for j, indices in used.items():
        if len(indices) != 1:
            raise PlanError(f"{cell.label}: stage {j} is {len(indices)} arcs in the solution")
        _, i, k, kind, zero = indices[0]
        if i != end:
            raise PlanError(
                f"{cell.label}: stage {j} starts at layer {i} in the solution, not {end}"
            )
        choice = next(c for c in costs.choices if c == (kind, zero))
        starts.append(i)
        choices.append(choice)
        end = k
    return plan_of(compiled, cell, starts, choices)


def _name(index: _Index) -> str:
    """The name that Pyomo gives a variable."""
    return f"use[{','.join(map(str, index))}]"


def fix_plan(model: ConcreteModel, compiled: Compiled, cell: Cell, plan: Plan) -> None:
    """Restrict a model of this cell to one plan, by rows ``fixed_plan``.

    The rows say which arcs are used; one that needs an arc which the model does not have cannot be
    satisfied. Raises :class:`PlanError` for a plan that is not of this cell, devices included.
    """
    starts, choices = stages_of(compiled, cell, plan)
    ends = [*starts[1:], compiled.layer_count]
    chosen = {
        (j, start, end, *choice)
        for j, (start, end, choice) in enumerate(zip(starts, ends, choices, strict=True))
    }
    rows = [
        linear(model, [(1, model.use[index])] if index in model.use else []) == int(index in chosen)
        for index in sorted({*model.use, *chosen})
    ]
    model.fixed_plan = Constraint(range(len(rows)), rule=lambda _, n: rows[n])
