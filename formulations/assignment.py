"""Layers to stages, one by one: an ordered 0/1 assignment with a choice for each stage.

Sets
    layers i in 0..L-1; stage positions j in 0..s-1; choices c = (recomputation kind, ZeRO stage).
    Stage j can hold the layers of its window j..L-s+j, since no stage is empty.

Parameters (:mod:`formulations.costs`, integers)
    work, receive, send   load terms, ticks per microbatch, by (j, way in which replicas lie)
    share, latency, tied  synchronisation terms, ticks per batch, by (j, pair of group shapes)
    each, entry           memory terms that add up, quanta per device, by (j, c)
    working, gathered     memory terms of which the largest counts, quanta per device, by (j, c)
    load[p], sync[p]      the corner pairs of a limit on T: a bound on all loads and one on sigma

    Load and synchronisation terms are divided by their greatest common divisors, which is exact.

Variables
    holds[i,j,c]     1 if layer i lies in stage j and that stage chooses c              binary
    starts[i,j,c]    1 if stage j starts with layer i and chooses c                     binary
    pair[p]          1 if corner pair p is the one that the plan keeps (decision)       binary
    tau, sigma       bottleneck load and synchronisation (minimum)                      integer
    working[j,c]     the stage's working memory, quanta                                 >= 0
    gathered[j,c]    the stage's largest gathered layer under ZeRO 3, quanta            >= 0
    touches[j,z,kind]  at least 1 if stage j holds weights of that kind under ZeRO z    >= 0
    nothing          always 0: what a row without terms is made of

    Variables that some right-hand side forbids to be 1 do not exist. Below, "chosen[j,c]" stands
    for sum_i starts[i,j,c], and "stops[k,j,c]" for starts[k,j,c] - holds[k,j,c] + holds[k-1,j,c],
    which is 1 if stage j ends before layer k.

Constraints
    C1_start      each stage starts once, with one layer, under one choice; stage 0 with layer 0
    C2_run        holds[i,j,c] <= holds[i-1,j,c] + starts[i,j,c]: one run of layers, one choice
    C3_nonempty   starts[i,j,c] <= holds[i,j,c]
    C4_order      a stage ends where the next one starts; the last one at L
    C5_pair       exactly one corner pair is kept (decision)
    C6_load       the load of each stage is at most sum_p load[p] * pair[p], or tau
    C7_sync       the synchronisation of each stage is at most sum_p sync[p] * pair[p], or sigma
    C8_memory     the memory of each stage is at most that of a device
    C9_working    working[j,c] covers each layer that stage j holds under c
    C10_gathered  gathered[j,c] likewise
    C11_latency   touches[j,z,kind] covers each layer with bytes of that kind

    Rows that only tighten the linear relaxation; every plan that satisfies the families satisfies
    them too:

    S1_identical  of a run of identical layers, stage j holds at most most[g,j,c] * chosen[j,c]
                  layers under c, which is how many its memory, load or synchronisation has room
                  for beside nothing else

    K<n>_<name>   the rows of the problem's n-th constraint (:mod:`formulations.stages`)

Objective
    none (decision), or slots * tau + sigma, divided by what all its terms share (minimum).

What it proves
    The decision model is infeasible exactly when no plan of the cell has T <= limit. With no corner
    pair at all, C5 reads nothing = 1, and the solver refutes it.

Size
    2 L s C binaries with C choices, fewer by the windows; about 3 L s C rows, + s for each way in
    which replicas lie and each pair of group shapes. N enters only through those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pyomo.environ import (
    Binary,
    ConcreteModel,
    Constraint,
    NonNegativeIntegers,
    NonNegativeReals,
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
from nest_opt.plan import Plan, Recomputation

FAMILIES: tuple[str, ...] = (
    "C1_start",
    "C2_run",
    "C3_nonempty",
    "C4_order",
    "C5_pair",
    "C6_load",
    "C7_sync",
    "C8_memory",
    "C9_working",
    "C10_gathered",
    "C11_latency",
)
STRENGTHENING: tuple[str, ...] = ("S1_identical",)

#: (coefficient, variable)
_Terms = list[tuple[int, Any]]


def build_decision(compiled: Compiled, cell: Cell, limit: int) -> ConcreteModel:
    """The model of "a plan of this cell with T <= limit exists", T and limit in ticks.

    Raises :class:`nest_opt.errors.CompileError` for a cell that is not the problem's, and
    :class:`nest_opt.errors.OverflowGuardError` for numbers too large to be trusted to a solver.
    """
    costs = cell_costs(compiled, cell)
    pairs = costs.corner_pairs(limit)
    model = ConcreteModel(name=f"assignment decision {cell.label} T <= {limit}")
    most_load = max((load for load, _ in pairs), default=0)
    most_sync = max((sync for _, sync in pairs), default=0)
    _variables(model, costs, most_load, most_sync)
    model.PAIRS = Set(initialize=range(len(pairs)))
    model.pair = Var(model.PAIRS, domain=Binary)
    model.C5_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)
    load_bound = [(pairs[p][0] // costs.load_unit, model.pair[p]) for p in model.PAIRS]
    sync_bound = [(pairs[p][1] // costs.sync_unit, model.pair[p]) for p in model.PAIRS]
    _families(model, costs, load_bound, sync_bound)
    _strengthen(model, costs, most_load, most_sync)
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    return model


def build_minimum(compiled: Compiled, cell: Cell) -> ConcreteModel:
    """The model that minimises T over the plans of this cell; infeasible if it has none.

    The objective is T in units of what slots * tau and sigma have in common. A solver's word on it
    is floating point: decode the plan and price it in integers.

    Raises like :func:`build_decision`.
    """
    costs = cell_costs(compiled, cell)
    model = ConcreteModel(name=f"assignment minimum {cell.label}")
    most_sync = max(costs.attainable_syncs)
    _variables(model, costs, costs.load_ceiling, most_sync)
    model.tau = Var(
        domain=NonNegativeIntegers, bounds=(0, -(-costs.load_ceiling // costs.load_unit))
    )
    model.sigma = Var(domain=NonNegativeIntegers, bounds=(0, most_sync // costs.sync_unit))
    _families(model, costs, [(1, model.tau)], [(1, model.sigma)])
    _strengthen(model, costs, costs.load_ceiling, most_sync)
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    per_tau, per_sigma = costs.objective_weights
    model.objective = Objective(
        expr=linear(model, [(per_tau, model.tau), (per_sigma, model.sigma)]), sense=minimize
    )
    return model


def _families(
    model: ConcreteModel,
    costs: CellCosts,
    load_bound: _Terms,
    sync_bound: _Terms,
) -> None:
    """Every constraint family but the choice of a corner pair."""
    _start(model, costs)
    _run(model, costs)
    _nonempty(model)
    _order(model, costs)
    _load(model, costs, load_bound)
    _sync(model, costs, sync_bound)
    _memory(model, costs)
    _working(model, costs)
    _gathered(model, costs)
    _latency(model, costs)


# --- variables ------------------------------------------------------------------------------------


def _variables(model: ConcreteModel, costs: CellCosts, load: int, sync: int) -> None:
    """All variables but the bottlenecks, whose largest bounds are ``load`` and ``sync`` ticks."""
    every = [(i, j, c) for j in range(costs.stages) for i in costs.window(j) for c in costs.choices]
    model.nothing = Var(bounds=(0, 0))
    model.HOLDS = Set(
        dimen=4, initialize=[(i, j, *c) for i, j, c in every if costs.can_hold(j, i, c, load, sync)]
    )
    model.STARTS = Set(
        dimen=4,
        initialize=[(i, j, *c) for i, j, c in every if costs.can_start(j, i, c, load, sync)],
    )
    model.holds = Var(model.HOLDS, domain=Binary)
    model.starts = Var(model.STARTS, domain=Binary)
    stage_choices = [(j, c) for j in range(costs.stages) for c in costs.choices]
    for name, index in (("working", "WORKING"), ("gathered", "GATHERED")):
        some = [(j, *c) for j, c in stage_choices if any(_term(costs, name, j, c))]
        setattr(model, index, Set(dimen=3, initialize=some))
        variable = Var(getattr(model, index), domain=NonNegativeReals, bounds=(0, costs.memory))
        setattr(model, name, variable)
    model.TOUCHES = Set(
        dimen=3,
        initialize=[
            (j, zero, kind)
            for j in costs.synchronised
            for zero in costs.zeros
            for kind in ("dense", "expert")
            if any(getattr(row, f"{kind}_latency")[zero] for row in costs.positions[j].syncs)
        ],
    )
    model.touches = Var(model.TOUCHES, domain=NonNegativeReals, bounds=(0, 1))


def _choice(kind: str, zero: int) -> Choice:
    """A choice from the two parts that Pyomo's flat indices hold it in."""
    return Choice(cast(Recomputation, kind), zero)


def _term(costs: CellCosts, name: str, position: int, choice: Choice) -> tuple[int, ...]:
    """A memory term by layer, over the stage's window; 0 outside of it."""
    term: tuple[int, ...] = getattr(costs.positions[position].memory[choice], name)
    window = costs.window(position)
    return tuple(number if i in window else 0 for i, number in enumerate(term))


def _var(variable: Any, index: tuple[Any, ...], coefficient: int = 1) -> _Terms:
    """The term of a variable, or no term where it does not exist."""
    return [(coefficient, variable[index])] if index in variable else []


def _chosen(
    model: ConcreteModel, costs: CellCosts, j: int, c: Choice, coefficient: int = 1
) -> _Terms:
    """Terms of chosen[j,c]: 1 if stage j makes choice c."""
    return [t for i in costs.window(j) for t in _var(model.starts, (i, j, *c), coefficient)]


def _stops(model: ConcreteModel, k: int, j: int, c: Choice) -> _Terms:
    """Terms of stops[k,j,c]: 1 if stage j, which makes choice c, ends before layer k."""
    return (
        _var(model.starts, (k, j, *c))
        + _var(model.holds, (k, j, *c), -1)
        + _var(model.holds, (k - 1, j, *c))
    )


# --- which layers a stage holds -------------------------------------------------------------------


def _start(model: ConcreteModel, costs: CellCosts) -> None:
    """C1: each stage starts once, with one layer, under one choice."""

    def rule(model: ConcreteModel, j: int) -> Any:
        terms = [t for c in costs.choices for t in _chosen(model, costs, j, c)]
        return linear(model, terms) == 1

    model.C1_start = Constraint(range(costs.stages), rule=rule)


def _run(model: ConcreteModel, costs: CellCosts) -> None:
    """C2: a layer is held because it is the first, or because the one before it is."""

    def rule(model: ConcreteModel, i: int, j: int, kind: str, zero: int) -> Any:
        index = (kind, zero)
        held = _var(model.holds, (i, j, *index))
        before = _var(model.holds, (i - 1, j, *index), -1)
        return linear(model, held + before + _var(model.starts, (i, j, *index), -1)) <= 0

    model.C2_run = Constraint(model.HOLDS, rule=rule)


def _nonempty(model: ConcreteModel) -> None:
    """C3: a stage holds the layer that it starts with."""

    def rule(model: ConcreteModel, i: int, j: int, kind: str, zero: int) -> Any:
        index = (i, j, kind, zero)
        return linear(model, [(1, model.starts[index]), *_var(model.holds, index, -1)]) <= 0

    model.C3_nonempty = Constraint(model.STARTS, rule=rule)


def _order(model: ConcreteModel, costs: CellCosts) -> None:
    """C4: stage j ends before layer k exactly if stage j + 1 starts with it; the last one at L."""
    last = costs.stages - 1

    def rule(model: ConcreteModel, k: int, j: int) -> Any:
        ends = [t for c in costs.choices for t in _stops(model, k, j, c)]
        begins = [t for c in costs.choices for t in _var(model.starts, (k, j + 1, *c), -1)]
        return linear(model, ends + begins) == 0

    model.C4_order = Constraint(
        [
            (i + 1, j)
            for j in range(costs.stages)
            for i in costs.window(j)
            if j < last or i + 1 < costs.layers
        ],
        rule=rule,
    )


# --- what a stage costs ---------------------------------------------------------------------------


def _load(model: ConcreteModel, costs: CellCosts, bound: _Terms) -> None:
    """C6: the load of each stage, wherever its replicas lie, keeps the bound."""

    def rule(model: ConcreteModel, j: int, n: int) -> Any:
        terms = [t for c in costs.choices for t in _load_terms(model, costs, j, n, c)]
        if j + 1 < costs.stages:
            send = costs.positions[j].loads[n].send
            for c in costs.choices:
                for k in costs.window(j + 1):
                    terms += _var(model.starts, (k, j + 1, *c), send[k] // costs.load_unit)
        return linear(model, terms + _minus(bound)) <= 0

    model.C6_load = Constraint(
        [(j, n) for j in range(costs.stages) for n in range(len(costs.positions[j].loads))],
        rule=rule,
    )


def _load_terms(model: ConcreteModel, costs: CellCosts, j: int, n: int, c: Choice) -> _Terms:
    """Terms of the load of stage j under choice c, without what the next stage sends back."""
    row, unit = costs.positions[j].loads[n], costs.load_unit
    terms: _Terms = []
    for i in costs.window(j):
        terms += _var(model.holds, (i, j, *c), row.work[c][i] // unit)
        terms += _var(model.starts, (i, j, *c), row.receive[i] // unit)
    return terms


def _sync(model: ConcreteModel, costs: CellCosts, bound: _Terms) -> None:
    """C7: the synchronisation of each stage, whichever its worst groups, keeps the bound."""
    unit = costs.sync_unit

    def rule(model: ConcreteModel, j: int, n: int) -> Any:
        row = costs.positions[j].syncs[n]
        terms = _sync_terms(model, costs, j, row) + _minus(bound)
        return linear(model, terms) <= -(row.tied // unit)

    model.C7_sync = Constraint(
        [(j, n) for j in costs.synchronised for n in range(len(costs.positions[j].syncs))],
        rule=rule,
    )


def _sync_terms(model: ConcreteModel, costs: CellCosts, j: int, row: SyncRow) -> _Terms:
    """Terms of the synchronisation of stage j by one row, in units, without the tied part."""
    unit = costs.sync_unit
    terms: _Terms = []
    for c in costs.choices:
        for i in costs.window(j):
            terms += _var(model.holds, (i, j, *c), row.share[c.zero][i] // unit)
    for zero in costs.zeros:
        dense, expert = row.dense_latency[zero] // unit, row.expert_latency[zero] // unit
        terms += _var(model.touches, (j, zero, "dense"), dense)
        terms += _var(model.touches, (j, zero, "expert"), expert)
    return terms


def _memory_terms(model: ConcreteModel, costs: CellCosts, j: int, c: Choice) -> _Terms:
    """Terms of the memory of stage j under choice c, in quanta."""
    memory = costs.positions[j].memory[c]
    terms: _Terms = []
    for i in costs.window(j):
        terms += _var(model.holds, (i, j, *c), memory.each[i])
        terms += _var(model.starts, (i, j, *c), memory.entry[i])
    return terms + _var(model.working, (j, *c)) + _var(model.gathered, (j, *c))


def _memory(model: ConcreteModel, costs: CellCosts) -> None:
    """C8: each stage fits in the memory of a device."""

    def rule(model: ConcreteModel, j: int) -> Any:
        terms = [t for c in costs.choices for t in _memory_terms(model, costs, j, c)]
        return linear(model, terms) <= costs.memory

    model.C8_memory = Constraint(range(costs.stages), rule=rule)


def _working(model: ConcreteModel, costs: CellCosts) -> None:
    """C9: working memory is that of the largest layer."""
    model.C9_working = _largest(model, costs, "working", model.WORKING)


def _gathered(model: ConcreteModel, costs: CellCosts) -> None:
    """C10: ZeRO 3 gathers the weights of the largest layer."""
    model.C10_gathered = _largest(model, costs, "gathered", model.GATHERED)


def _largest(model: ConcreteModel, costs: CellCosts, name: str, index: Any) -> Constraint:
    """Rows by which a variable covers the term of each layer that the stage holds.

    With a term of at least a for every layer, the row is variable >= a * chosen + (term - a) *
    holds: a stage that makes the choice holds some layer.
    """
    variable = getattr(model, name)

    def rule(model: ConcreteModel, i: int, j: int, kind: str, zero: int) -> Any:
        c = _choice(kind, zero)
        term = _term(costs, name, j, c)
        least = min(term[k] for k in costs.window(j))
        covered = _chosen(model, costs, j, c, least)
        covered += _var(model.holds, (i, j, *c), term[i] - least)
        return linear(model, [*covered, (-1, variable[j, kind, zero])]) <= 0

    rows = [(i, j, kind, zero) for j, kind, zero in index for i in costs.window(j)]
    return Constraint([row for row in rows if row in model.HOLDS], rule=rule)


def _latency(model: ConcreteModel, costs: CellCosts) -> None:
    """C11: a stage that holds bytes of a kind pays the latency of its synchronisation."""
    has_bytes = {"dense": costs.has_dense, "expert": costs.has_expert}

    def everywhere(j: int, kind: str) -> bool:
        return all(has_bytes[kind][i] for i in costs.window(j))

    def rule(model: ConcreteModel, i: int, j: int, zero: int, kind: str) -> Any:
        choices = [c for c in costs.choices if c.zero == zero]
        if everywhere(j, kind):
            held = [t for c in choices for t in _chosen(model, costs, j, c)]
        else:
            held = [t for c in choices for t in _var(model.holds, (i, j, *c))]
        return linear(model, [*held, (-1, model.touches[j, zero, kind])]) <= 0

    # Where every layer has bytes, so has the stage: one row, tighter than one for each layer.
    model.C11_latency = Constraint(
        [
            (i, j, zero, kind)
            for j, zero, kind in model.TOUCHES
            for i in (costs.window(j)[:1] if everywhere(j, kind) else costs.window(j))
            if has_bytes[kind][i]
        ],
        rule=rule,
    )


def _strengthen(model: ConcreteModel, costs: CellCosts, load: int, sync: int) -> None:
    """S1: of identical layers, a stage holds at most as many as one of its rows has room for.

    ``load`` and ``sync`` are the largest bounds on load and synchronisation, in ticks.
    """

    def rule(model: ConcreteModel, g: int, j: int, kind: str, zero: int) -> Any:
        c, run = _choice(kind, zero), costs.runs[g]
        room = _chosen(model, costs, j, c, -costs.most(run, j, c, load, sync))
        held = [t for i in range(run.first, run.end) for t in _var(model.holds, (i, j, *c))]
        return linear(model, held + room) <= 0

    model.S1_identical = Constraint(
        [
            (g, j, *c)
            for j in range(costs.stages)
            for g, run in enumerate(costs.runs)
            for c in costs.choices
            if any((i, j, *c) in model.holds for i in range(run.first, run.end))
        ],
        rule=rule,
    )


def _minus(bound: _Terms) -> _Terms:
    """A right-hand side, moved to the left."""
    return [(-coefficient, variable) for coefficient, variable in bound]


# --- what constraints see -------------------------------------------------------------------------


class _Stages(StageModel):
    """The stages in the variables of this formulation."""

    def _layers(self, stage: int, choice: Choice) -> _Terms:
        window = self._costs.window(stage)
        return [t for i in window for t in _var(self.model.holds, (i, stage, *choice))]

    def _holds(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return _var(self.model.holds, (layer, stage, *choice))

    def _starts(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return _var(self.model.starts, (layer, stage, *choice))

    def _chooses(self, stage: int, choice: Choice) -> _Terms:
        return _chosen(self.model, self._costs, stage, choice)

    def _memory(self, stage: int, choice: Choice) -> _Terms:
        return _memory_terms(self.model, self._costs, stage, choice)

    def _sync(self, stage: int, row: SyncRow) -> _Terms:
        return _sync_terms(self.model, self._costs, stage, row)


# --- plans ----------------------------------------------------------------------------------------


def decode(compiled: Compiled, cell: Cell, values: Mapping[str, float]) -> Plan:
    """The plan that a solution stands for; ``values`` maps variable names to values.

    Raises :class:`PlanError` where a value is no integer within 1e-4, or where the values do not
    describe consecutive, non-empty stages under one choice each.
    """
    costs = cell_costs(compiled, cell)
    starts: list[int] = []
    choices: list[Choice] = []
    for j in range(costs.stages):
        found = [
            (i, c)
            for i in costs.window(j)
            for c in costs.choices
            if whole(values, _name("starts", i, j, c))
        ]
        if len(found) != 1:
            raise PlanError(f"{cell.label}: stage {j} starts {len(found)} times in the solution")
        starts.append(found[0][0])
        choices.append(found[0][1])
    ends = [*starts[1:], costs.layers]
    for j, c in ((j, c) for j in range(costs.stages) for c in costs.choices):
        held = [i for i in costs.window(j) if whole(values, _name("holds", i, j, c))]
        if held != (list(range(starts[j], ends[j])) if c == choices[j] else []):
            raise PlanError(f"{cell.label}: stage {j} holds layers {held} in the solution: no run")
    if any(start >= end for start, end in zip(starts, ends, strict=True)):
        raise PlanError(f"{cell.label}: the stages start at layers {starts} in the solution")
    return plan_of(compiled, cell, starts, choices)


def _name(variable: str, layer: int, position: int, choice: Choice) -> str:
    """The name that Pyomo gives a variable."""
    return f"{variable}[{layer},{position},{choice.recomputation},{choice.zero}]"


def fix_plan(model: ConcreteModel, compiled: Compiled, cell: Cell, plan: Plan) -> None:
    """Restrict a model of this cell to one plan, by rows ``fixed_plan``.

    The rows say which layer each stage starts with and which it holds, under which choice; one that
    needs a variable which the model does not have cannot be satisfied. Raises :class:`PlanError`
    for a plan that is not of this cell, devices included.
    """
    starts, choices = stages_of(compiled, cell, plan)
    ends = [*starts[1:], compiled.layer_count]
    first = {(start, j, *choices[j]) for j, start in enumerate(starts)}
    held = {
        (i, j, *choices[j])
        for j, (start, end) in enumerate(zip(starts, ends, strict=True))
        for i in range(start, end)
    }
    rows = [
        linear(model, _var(variable, index)) == int(index in chosen)
        for variable, chosen in ((model.starts, first), (model.holds, held))
        for index in sorted({*variable, *chosen})
    ]
    model.fixed_plan = Constraint(range(len(rows)), rule=lambda _, n: rows[n])
