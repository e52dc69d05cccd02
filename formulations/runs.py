"""Layers to stages by counting: how many layers of each run of identical ones a stage holds.

A *run* is a maximal sequence of consecutive layers with equal integers and equal cuts before them,
so that it does not matter which of its layers a stage holds or starts with. Layer 0, which has no
cut before it, is a run of its own. The layers of a run are handed to the stages in order, so counts
say it all.

Sets
    runs g in 0..R-1, run g being n_g layers from layer a_g on; stage positions j in 0..s-1; choices
    c = (recomputation kind, ZeRO stage). After stage j, between j+1 and L-s+j+1 layers are placed,
    since no stage is empty, and after the last one all are; fills are bounded accordingly.

Parameters (:mod:`formulations.costs`, integers; of run g: of any of its layers)
    work, receive, send   load terms, ticks per microbatch, by (j, way in which replicas lie)
    share, latency, tied  synchronisation terms, ticks per batch, by (j, pair of group shapes)
    each, entry           memory terms that add up, quanta per device, by (j, c)
    working, gathered     memory terms of which the largest counts, quanta per device, by (j, c)
    load[p], sync[p]      the corner pairs of a limit on T: a bound on all loads and one on sigma
    most[g,j,c]           layers of run g that stage j can hold under c beside nothing else

    Load and synchronisation terms are divided by their greatest common divisors, which is exact.

Variables
    count[g,j,c]     layers of run g in stage j, which chooses c                        integer
    touches[g,j,c]   1 if stage j, which chooses c, holds layers of run g               binary
    starts[g,j,c]    1 if stage j starts in run g and chooses c                         binary
    filled[g,j]      layers of run g in stages 0..j                                     integer
    full[g,j]        1 if stages 0..j hold all of run g, 0 if not                       binary
    pair[p]          1 if corner pair p is the one that the plan keeps (decision)       binary
    tau, sigma       bottleneck load and synchronisation (minimum)                      integer
    working[j,c]     the stage's working memory, quanta                                 >= 0
    gathered[j,c]    the stage's largest gathered layer under ZeRO 3, quanta            >= 0
    pays[j,z,kind]   at least 1 if stage j holds weights of that kind under ZeRO z      >= 0
    nothing          always 0: what a row without terms is made of

    Variables that some right-hand side forbids to be 1 do not exist. Below, "chosen[j,c]" stands
    for sum_g starts[g,j,c]; full[-1,j] is 1, and full[g,-1] is 0.

Constraints
    C1_count      filled[g,j] = filled[g,j-1] + sum_c count[g,j,c]
    C2_full       filled[g,j] >= n_g * full[g,j]
    C3_unfull     filled[g,j] <= n_g - 1 + full[g,j]
    C4_order      filled[g,j] <= n_g * full[g-1,j]: a run begins when the one before it is placed
    C5_start      sum_c starts[g,j,c] = full[g-1,j-1] - full[g,j-1]: a stage starts in the first run
                  that the stages before it left unfinished, under one choice
    C6_touch      count[g,j,c] <= most[g,j,c] * touches[g,j,c]
    C7_choice     touches[g,j,c] <= chosen[j,c]
    C8_nonempty   every stage holds a layer
    C9_pair       exactly one corner pair is kept (decision)
    C10_load      the load of each stage is at most sum_p load[p] * pair[p], or tau
    C11_sync      the synchronisation of each stage is at most sum_p sync[p] * pair[p], or sigma
    C12_memory    the memory of each stage is at most that of a device
    C13_working   working[j,c] covers each run that stage j touches under c
    C14_gathered  gathered[j,c] likewise
    C15_latency   pays[j,z,kind] covers each run with bytes of that kind

    K<n>_<name>   the rows of the problem's n-th constraint (:mod:`formulations.stages`); a layer
                  that it asks about by number is a run of its own

Objective
    none (decision), or slots * tau + sigma, divided by what all its terms share (minimum).

What it proves
    The same as :mod:`formulations.assignment`. With no corner pair at all, C9 reads nothing = 1,
    and the solver refutes it.

Size
    3 R s C + 2 R s integers with C choices, whatever L; about 3 R s C rows, + s for each way in
    which replicas lie and each pair of group shapes. An embedding, equal blocks and a head are
    R = 3. N enters only through the shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyomo.environ import (
    Binary,
    ConcreteModel,
    Constraint,
    NonNegativeIntegers,
    NonNegativeReals,
    Objective,
    Param,
    Set,
    Var,
    minimize,
)

from formulations.costs import (
    CellCosts,
    Choice,
    Run,
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
    "C1_count",
    "C2_full",
    "C3_unfull",
    "C4_order",
    "C5_start",
    "C6_touch",
    "C7_choice",
    "C8_nonempty",
    "C9_pair",
    "C10_load",
    "C11_sync",
    "C12_memory",
    "C13_working",
    "C14_gathered",
    "C15_latency",
)
#: None is needed: the bounds most[g,j,c] make the linear relaxation tight.
STRENGTHENING: tuple[str, ...] = ()

#: (coefficient, variable)
_Terms = list[tuple[int, Any]]


def build_decision(compiled: Compiled, cell: Cell, limit: int) -> ConcreteModel:
    """The model of "a plan of this cell with T <= limit exists", T and limit in ticks.

    Raises :class:`nest_opt.errors.CompileError` for a cell that is not the problem's, and
    :class:`nest_opt.errors.OverflowGuardError` for numbers too large to be trusted to a solver.
    """
    costs = cell_costs(compiled, cell)
    pairs = costs.corner_pairs(limit)
    model = ConcreteModel(name=f"runs decision {cell.label} T <= {limit}")
    most_load = max((load for load, _ in pairs), default=0)
    most_sync = max((sync for _, sync in pairs), default=0)
    runs = _variables(model, costs, most_load, most_sync)
    model.PAIRS = Set(initialize=range(len(pairs)))
    model.pair = Var(model.PAIRS, domain=Binary)
    model.C9_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)
    load_bound = [(pairs[p][0] // costs.load_unit, model.pair[p]) for p in model.PAIRS]
    sync_bound = [(pairs[p][1] // costs.sync_unit, model.pair[p]) for p in model.PAIRS]
    _families(model, costs, runs, load_bound, sync_bound)
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    return model


def build_minimum(compiled: Compiled, cell: Cell) -> ConcreteModel:
    """The model that minimises T over the plans of this cell; infeasible if it has none.

    The objective is T in units of what slots * tau and sigma have in common. A solver's word on it
    is floating point: decode the plan and price it in integers.

    Raises like :func:`build_decision`.
    """
    costs = cell_costs(compiled, cell)
    model = ConcreteModel(name=f"runs minimum {cell.label}")
    most_sync = max(costs.attainable_syncs)
    runs = _variables(model, costs, costs.load_ceiling, most_sync)
    model.tau = Var(
        domain=NonNegativeIntegers, bounds=(0, -(-costs.load_ceiling // costs.load_unit))
    )
    model.sigma = Var(domain=NonNegativeIntegers, bounds=(0, most_sync // costs.sync_unit))
    _families(
        model,
        costs,
        runs,
        [(1, model.tau)],
        [(1, model.sigma)],
    )
    _Stages(model, compiled, cell, costs).restrict(compiled.search.constraints)
    per_tau, per_sigma = costs.objective_weights
    model.objective = Objective(
        expr=linear(model, [(per_tau, model.tau), (per_sigma, model.sigma)]), sense=minimize
    )
    return model


def _families(
    model: ConcreteModel,
    costs: CellCosts,
    runs: Sequence[Run],
    load_bound: _Terms,
    sync_bound: _Terms,
) -> None:
    """Every constraint family but the choice of a corner pair."""
    _count(model, costs, runs)
    _full(model, runs)
    _unfull(model, runs)
    _order(model, runs)
    _start(model, costs, runs)
    _touch(model, costs, runs)
    _choose(model, costs, runs)
    _nonempty(model, costs, runs)
    _load(model, costs, runs, load_bound)
    _sync(model, costs, runs, sync_bound)
    _memory(model, costs, runs)
    _working(model, costs, runs)
    _gathered(model, costs, runs)
    _latency(model, costs, runs)


# --- variables ------------------------------------------------------------------------------------


def _variables(model: ConcreteModel, costs: CellCosts, load: int, sync: int) -> tuple[Run, ...]:
    """All variables but the bottlenecks, whose largest bounds are ``load`` and ``sync`` ticks."""
    runs = costs.runs
    positions, numbers = range(costs.stages), range(len(runs))
    every = [(g, j, c) for j in positions for g in numbers for c in costs.choices]
    most = {(g, j, *c): costs.most(runs[g], j, c, load, sync) for g, j, c in every}
    model.nothing = Var(bounds=(0, 0))
    model.COUNT = Set(dimen=4, initialize=[index for index in most if most[index] > 0])
    model.STARTS = Set(
        dimen=4,
        initialize=[
            (g, j, *c)
            for g, j, c in every
            if most[g, j, *c] > 0
            and any(costs.can_start(j, i, c, load, sync) for i in range(runs[g].first, runs[g].end))
        ],
    )
    model.most = Param(model.COUNT, initialize={index: most[index] for index in model.COUNT})
    model.count = Var(
        model.COUNT, domain=NonNegativeIntegers, bounds=lambda m, *index: (0, m.most[index])
    )
    model.touches = Var(model.COUNT, domain=Binary)
    model.starts = Var(model.STARTS, domain=Binary)

    def filled(_: ConcreteModel, g: int, j: int) -> tuple[int, int]:
        most = costs.layers - costs.stages + j + 1
        least = j + 1 if j + 1 < costs.stages else costs.layers
        return runs[g].among(least), runs[g].among(most)

    def full(_: ConcreteModel, g: int, j: int) -> tuple[int, int]:
        low, high = filled(_, g, j)
        return int(low == runs[g].size), int(high == runs[g].size)

    model.filled = Var(numbers, positions, domain=NonNegativeIntegers, bounds=filled)
    model.full = Var(numbers, positions, domain=Binary, bounds=full)
    stage_choices = [(j, c) for j in positions for c in costs.choices]
    for name, index in (("working", "WORKING"), ("gathered", "GATHERED")):
        some = [(j, *c) for j, c in stage_choices if any(_term(costs, name, j, c))]
        setattr(model, index, Set(dimen=3, initialize=some))
        variable = Var(getattr(model, index), domain=NonNegativeReals, bounds=(0, costs.memory))
        setattr(model, name, variable)
    model.PAYS = Set(
        dimen=3,
        initialize=[
            (j, zero, kind)
            for j in costs.synchronised
            for zero in costs.zeros
            for kind in ("dense", "expert")
            if any(getattr(row, f"{kind}_latency")[zero] for row in costs.positions[j].syncs)
        ],
    )
    model.pays = Var(model.PAYS, domain=NonNegativeReals, bounds=(0, 1))
    return runs


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
    model: ConcreteModel, runs: Sequence[Run], j: int, c: Choice, coefficient: int = 1
) -> _Terms:
    """Terms of chosen[j,c]: 1 if stage j makes choice c."""
    return [t for g in range(len(runs)) for t in _var(model.starts, (g, j, *c), coefficient)]


# --- which layers a stage holds -------------------------------------------------------------------


def _count(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C1: what is placed after stage j was placed before or lies in stage j."""

    def rule(model: ConcreteModel, g: int, j: int) -> Any:
        terms = [t for c in costs.choices for t in _var(model.count, (g, j, *c))]
        before = _var(model.filled, (g, j - 1))
        return linear(model, [*terms, *before, (-1, model.filled[g, j])]) == 0

    model.C1_count = Constraint(range(len(runs)), range(costs.stages), rule=rule)


def _full(model: ConcreteModel, runs: Sequence[Run]) -> None:
    """C2: a full run is placed completely."""

    def rule(model: ConcreteModel, g: int, j: int) -> Any:
        terms = [(1, model.filled[g, j]), (-runs[g].size, model.full[g, j])]
        return linear(model, terms) >= 0

    model.C2_full = Constraint(list(model.full), rule=rule)


def _unfull(model: ConcreteModel, runs: Sequence[Run]) -> None:
    """C3: a run that is not full is not placed completely."""

    def rule(model: ConcreteModel, g: int, j: int) -> Any:
        terms = [(1, model.filled[g, j]), (-1, model.full[g, j])]
        return linear(model, terms) <= runs[g].size - 1

    model.C3_unfull = Constraint(list(model.full), rule=rule)


def _order(model: ConcreteModel, runs: Sequence[Run]) -> None:
    """C4: a run begins only when the one before it is full."""

    def rule(model: ConcreteModel, g: int, j: int) -> Any:
        terms = [(1, model.filled[g, j]), (-runs[g].size, model.full[g - 1, j])]
        return linear(model, terms) <= 0

    model.C4_order = Constraint([(g, j) for g, j in model.full if g > 0], rule=rule)


def _start(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C5: a stage starts in the first run left unfinished by those before it, under one choice."""

    def rule(model: ConcreteModel, g: int, j: int) -> Any:
        terms = [t for c in costs.choices for t in _var(model.starts, (g, j, *c))]
        terms += _var(model.full, (g - 1, j - 1), -1)
        terms += _var(model.full, (g, j - 1))
        return linear(model, terms) == (1 if g == 0 else 0)

    model.C5_start = Constraint(
        [(g, j) for j in range(costs.stages) for g in range(len(runs)) if j > 0 or g == 0],
        rule=rule,
    )


def _touch(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C6: a stage holds layers of the runs that it touches, at most as many as it can."""

    def rule(model: ConcreteModel, g: int, j: int, kind: str, zero: int) -> Any:
        index = (g, j, kind, zero)
        terms = [(1, model.count[index]), (-model.most[index], model.touches[index])]
        return linear(model, terms) <= 0

    model.C6_touch = Constraint(model.COUNT, rule=rule)


def _choose(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C7: a stage holds layers under the choice that it makes."""

    def rule(model: ConcreteModel, g: int, j: int, kind: str, zero: int) -> Any:
        chosen = _chosen(model, runs, j, _choice(kind, zero), -1)
        return linear(model, [(1, model.touches[g, j, kind, zero]), *chosen]) <= 0

    model.C7_choice = Constraint(model.COUNT, rule=rule)


def _nonempty(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C8: every stage holds a layer."""

    def rule(model: ConcreteModel, j: int) -> Any:
        every = [(g, j, *c) for g in range(len(runs)) for c in costs.choices]
        return linear(model, [t for index in every for t in _var(model.count, index)]) >= 1

    model.C8_nonempty = Constraint(range(costs.stages), rule=rule)


# --- what a stage costs ---------------------------------------------------------------------------


def _load(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], bound: _Terms) -> None:
    """C10: the load of each stage, wherever its replicas lie, keeps the bound."""

    def rule(model: ConcreteModel, j: int, n: int) -> Any:
        terms = [t for c in costs.choices for t in _load_terms(model, costs, runs, j, n, c)]
        send = costs.positions[j].loads[n].send
        for c in costs.choices:
            for g, run in enumerate(runs):
                ticks = send[run.first] // costs.load_unit
                terms += _var(model.starts, (g, j + 1, *c), ticks)
        return linear(model, terms + _minus(bound)) <= 0

    model.C10_load = Constraint(
        [(j, n) for j in range(costs.stages) for n in range(len(costs.positions[j].loads))],
        rule=rule,
    )


def _load_terms(
    model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], j: int, n: int, c: Choice
) -> _Terms:
    """Terms of the load of stage j under choice c, without what the next stage sends back."""
    row, unit = costs.positions[j].loads[n], costs.load_unit
    terms: _Terms = []
    for g, run in enumerate(runs):
        terms += _var(model.count, (g, j, *c), row.work[c][run.first] // unit)
        terms += _var(model.starts, (g, j, *c), row.receive[run.first] // unit)
    return terms


def _sync(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], bound: _Terms) -> None:
    """C11: the synchronisation of each stage, whichever its worst groups, keeps the bound."""
    unit = costs.sync_unit

    def rule(model: ConcreteModel, j: int, n: int) -> Any:
        row = costs.positions[j].syncs[n]
        terms = _sync_terms(model, costs, runs, j, row) + _minus(bound)
        return linear(model, terms) <= -(row.tied // unit)

    model.C11_sync = Constraint(
        [(j, n) for j in costs.synchronised for n in range(len(costs.positions[j].syncs))],
        rule=rule,
    )


def _sync_terms(
    model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], j: int, row: SyncRow
) -> _Terms:
    """Terms of the synchronisation of stage j by one row, in units, without the tied part."""
    unit = costs.sync_unit
    terms: _Terms = []
    for c in costs.choices:
        for g, run in enumerate(runs):
            terms += _var(model.count, (g, j, *c), row.share[c.zero][run.first] // unit)
    for zero in costs.zeros:
        dense, expert = row.dense_latency[zero] // unit, row.expert_latency[zero] // unit
        terms += _var(model.pays, (j, zero, "dense"), dense)
        terms += _var(model.pays, (j, zero, "expert"), expert)
    return terms


def _memory_terms(
    model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], j: int, c: Choice
) -> _Terms:
    """Terms of the memory of stage j under choice c, in quanta."""
    memory = costs.positions[j].memory[c]
    terms: _Terms = []
    for g, run in enumerate(runs):
        terms += _var(model.count, (g, j, *c), memory.each[run.first])
        terms += _var(model.starts, (g, j, *c), memory.entry[run.first])
    return terms + _var(model.working, (j, *c)) + _var(model.gathered, (j, *c))


def _memory(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C12: each stage fits in the memory of a device."""

    def rule(model: ConcreteModel, j: int) -> Any:
        terms = [t for c in costs.choices for t in _memory_terms(model, costs, runs, j, c)]
        return linear(model, terms) <= costs.memory

    model.C12_memory = Constraint(range(costs.stages), rule=rule)


def _working(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C13: working memory is that of the largest layer."""
    model.C13_working = _largest(model, costs, runs, "working", model.WORKING)


def _gathered(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C14: ZeRO 3 gathers the weights of the largest layer."""
    model.C14_gathered = _largest(model, costs, runs, "gathered", model.GATHERED)


def _largest(
    model: ConcreteModel, costs: CellCosts, runs: Sequence[Run], name: str, index: Any
) -> Constraint:
    """Rows by which a variable covers the term of each run that the stage touches.

    With a term of at least a for every layer, the row is variable >= a * chosen + (term - a) *
    touches: a stage that makes the choice holds some layer.
    """
    variable = getattr(model, name)

    def rule(model: ConcreteModel, g: int, j: int, kind: str, zero: int) -> Any:
        c = _choice(kind, zero)
        term = getattr(costs.positions[j].memory[c], name)
        least = min(term[i] for i in costs.window(j))
        covered = _chosen(model, runs, j, c, least)
        covered.append((term[runs[g].first] - least, model.touches[g, j, kind, zero]))
        return linear(model, [*covered, (-1, variable[j, kind, zero])]) <= 0

    return Constraint([(g, j, *c) for g, j, *c in model.COUNT if (j, *c) in index], rule=rule)


def _latency(model: ConcreteModel, costs: CellCosts, runs: Sequence[Run]) -> None:
    """C15: a stage that holds bytes of a kind pays the latency of its synchronisation."""
    has_bytes = {"dense": costs.has_dense, "expert": costs.has_expert}

    def rule(model: ConcreteModel, g: int, j: int, zero: int, kind: str) -> Any:
        choices = [c for c in costs.choices if c.zero == zero]
        if all(has_bytes[kind][i] for i in costs.window(j)):
            # Whatever it holds, it holds bytes: tighter than what it touches.
            held = [t for c in choices for t in _chosen(model, runs, j, c)]
        else:
            held = [t for c in choices for t in _var(model.touches, (g, j, *c))]
        return linear(model, [*held, (-1, model.pays[j, zero, kind])]) <= 0

    model.C15_latency = Constraint(
        [
            (g, j, zero, kind)
            for j, zero, kind in model.PAYS
            for g, run in enumerate(runs)
            if has_bytes[kind][run.first]
        ],
        rule=rule,
    )


def _minus(bound: _Terms) -> _Terms:
    """A right-hand side, moved to the left."""
    return [(-coefficient, variable) for coefficient, variable in bound]


# --- what constraints see -------------------------------------------------------------------------


class _Stages(StageModel):
    """The stages in the variables of this formulation; marked layers are runs of one layer."""

    def _layers(self, stage: int, choice: Choice) -> _Terms:
        numbers = range(len(self._costs.runs))
        return [t for g in numbers for t in _var(self.model.count, (g, stage, *choice))]

    def _holds(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return _var(self.model.count, (self._run_of(layer), stage, *choice))

    def _starts(self, layer: int, stage: int, choice: Choice) -> _Terms:
        return _var(self.model.starts, (self._run_of(layer), stage, *choice))

    def _chooses(self, stage: int, choice: Choice) -> _Terms:
        return _chosen(self.model, self._costs.runs, stage, choice)

    def _memory(self, stage: int, choice: Choice) -> _Terms:
        return _memory_terms(self.model, self._costs, self._costs.runs, stage, choice)

    def _sync(self, stage: int, row: SyncRow) -> _Terms:
        return _sync_terms(self.model, self._costs, self._costs.runs, stage, row)

    def _run_of(self, layer: int) -> int:
        """The run that is this layer alone."""
        return next(g for g, run in enumerate(self._costs.runs) if run.first <= layer < run.end)


# --- plans ----------------------------------------------------------------------------------------


def decode(compiled: Compiled, cell: Cell, values: Mapping[str, float]) -> Plan:
    """The plan that a solution stands for; ``values`` maps variable names to values.

    Raises :class:`PlanError` where a value is no integer within 1e-4, or where the values do not
    describe consecutive, non-empty stages under one choice each.
    """
    costs = cell_costs(compiled, cell)
    runs = costs.runs
    starts: list[int] = []
    choices: list[Choice] = []
    end = 0
    for j in range(costs.stages):
        chosen = [
            c
            for c in costs.choices
            for g in range(len(runs))
            if whole(values, _name("starts", g, j, c))
        ]
        if len(chosen) != 1:
            raise PlanError(f"{cell.label}: stage {j} starts {len(chosen)} times in the solution")
        counts = {
            c: [whole(values, _name("count", g, j, c)) for g in range(len(runs))]
            for c in costs.choices
        }
        start, end = end, end + sum(map(sum, counts.values()))
        expected = [run.among(end) - run.among(start) for run in runs]
        if start >= end or any(
            counts[c] != (expected if c == chosen[0] else [0] * len(runs)) for c in costs.choices
        ):
            raise PlanError(f"{cell.label}: stage {j} holds no run of layers in the solution")
        starts.append(start)
        choices.append(chosen[0])
    if end != costs.layers:
        raise PlanError(f"{cell.label}: {end} of {costs.layers} layers are placed in the solution")
    return plan_of(compiled, cell, starts, choices)


def _name(variable: str, run: int, position: int, choice: Choice) -> str:
    """The name that Pyomo gives a variable."""
    return f"{variable}[{run},{position},{choice.recomputation},{choice.zero}]"


def fix_plan(model: ConcreteModel, compiled: Compiled, cell: Cell, plan: Plan) -> None:
    """Restrict a model of this cell to one plan, by rows ``fixed_plan``.

    The rows say how many layers of each run a stage holds, in which run it starts, and under which
    choice; one that needs a variable which the model does not have cannot be satisfied. Raises
    :class:`PlanError` for a plan that is not of this cell, devices included.
    """
    starts, choices = stages_of(compiled, cell, plan)
    ends = [*starts[1:], compiled.layer_count]
    runs = cell_costs(compiled, cell).runs
    first: dict[tuple[Any, ...], int] = {}
    counts: dict[tuple[Any, ...], int] = {}
    for j, (start, end, choice) in enumerate(zip(starts, ends, choices, strict=True)):
        for g, run in enumerate(runs):
            if run.first <= start < run.end:
                first[g, j, *choice] = 1
            if held := run.among(end) - run.among(start):
                counts[g, j, *choice] = held
    rows = [
        linear(model, _var(variable, index)) == wanted.get(index, 0)
        for variable, wanted in ((model.starts, first), (model.count, counts))
        for index in sorted({*variable, *wanted})
    ]
    model.fixed_plan = Constraint(range(len(rows)), rule=lambda _, n: rows[n])
