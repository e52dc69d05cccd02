"""Any devices for any stage: the placements that the two layouts leave out, on small problems.

Stages are still contiguous runs of layers, all replicas alike, one device wide (t = c = e = 1); but
each stage of each replica may lie on any device. The optimum over these placements, against that
over the two layouts, is the *price of structure*.

Sets
    layers i in 0..L-1; stage positions j in 0..s-1; replicas r in 0..d-1; devices x in 0..N-1;
    choices c = (recomputation kind, ZeRO stage); link classes k; synchronisation shapes g, the
    shapes that groups of d devices can have (:class:`nest_opt.network.GroupShape`): how many
    blocks of each level they spread over, or, without levels, the largest class between them.
    Far(k): pairs (X, F), the devices X that are further than class k from exactly those in F.

Parameters (integers; prices of one primitive from the compiled problem)
    work[c,i], receive[k,i], gathers[z,i,g]   load, ticks per microbatch
    share[z,i,g], latency[z,kind,g], ring[k]  synchronisation, ticks per batch
    each, entry, working, gathered            memory, quanta (:mod:`formulations.costs`)
    load[p], sync[p]                          the corner pairs of a limit on T

Variables
    holds[i,j,c], starts[i,j,c], working[j,c], gathered[j,c]  as in :mod:`formulations.assignment`
    pair[p]            1 if corner pair p is kept (decision)                          binary
    tau, sigma         bottleneck load and synchronisation (minimum), ticks           integer
    put[x,j,r]         1 if stage j of replica r lies on device x                     binary
    enters[i,j,r,k]    1 if stage j starts with layer i and the link into it has class k  >= 0
    shape[j,g]         1 if the devices of stage j have shape g                       binary
    touched[j,l,B]     1 if stage j has a device in block B of level l                binary
    attains[j,l,B,n]   1 if block B of level l shows that the shape's n_l is n        binary
    pays[i,j,z,g]      1 if stage j holds layer i under ZeRO z and has shape g        >= 0
    touches[j,z,g,kind]  at least 1 if stage j holds weights of that kind likewise    >= 0
    tied[k]            1 if the ring of a tied weight has class k                     >= 0

Constraints
    C1_start .. C4_order, C8_memory .. C10_gathered  as in :mod:`formulations.assignment`
    C5_pair      exactly one corner pair is kept (decision)
    C6_load      the load of each stage in each replica is at most the bound
    C7_sync      the synchronisation of each stage is at most the bound
    C11_latency  touches[j,z,g,kind] covers each layer with bytes of that kind
    C12_place    each stage of each replica lies on one device
    C13_device   a device serves at most one stage of one replica
    C14_enter    sum_k enters[i,j,r,k] = sum_c starts[i,j,c]
    C15_far      a transfer between devices further apart than class k has a class above k
    C16_shape    a stage has one shape
    C17_touch    touched[j,l,B] covers the devices of B, and is 0 if none of them is used
    C18_spread   no level-l block of stage j has more than n_l(shape) touched blocks within
    C19_attain   some level-l block of stage j has n_l(shape) of them: n_l is exact, since spreading
                 less within a node may cost more beyond it
    C20_apart    without levels: devices further apart than class k force a shape above class k
    C21_pay      sum_g pays[i,j,z,g] = sum of holds[i,j,c] over c with ZeRO z; pays[.,j,.,g] is 0
                 unless shape[j,g] is 1
    C22_tied     the ring of a tied weight has a class above k if some replica's first and last
                 stage are further apart than class k; it has one class

    Symmetry breaking. List the devices of stage 0 by replica, then those of stage 1, and so on.
    Permuting replicas, and network automorphisms, change no price; of all equivalent plans one has
    the lexicographically smallest list, and it satisfies all of

    B1_replicas  the devices of stage 0 ascend with the replica (from replica 1 on where the price
                 of a transfer is that of replica 0's)
    B2_twins     of two devices equally far from all others, the first comes first in the list
    B3_first     where levels divide evenly, device 0 is the first: every device is like any other

Objective
    none (decision), or slots * tau + sigma (minimum). There is no big-M, no product of variables.

What it proves
    The decision model is infeasible exactly when no placement of this (b, d, s) with templates of
    width one has T <= limit, whatever its devices.

Size
    Binaries: 2 L s C for layers with C choices, N s d <= N^2 for devices, s times (shapes + blocks
    + block sizes) for shapes; about N s d K rows for K classes (without levels also s d^2 N K) and
    L s Z G for Z ZeRO stages and G shapes. For N up to about 20.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise
from math import comb
from typing import Any

from pyomo.environ import (
    Binary,
    ConcreteModel,
    Constraint,
    ConstraintList,
    NonNegativeIntegers,
    NonNegativeReals,
    Objective,
    Set,
    Var,
    minimize,
)

from formulations import assignment
from formulations.costs import (
    AXES,
    CellCosts,
    Choice,
    LoadRow,
    Position,
    SyncRow,
    _Pricing,
    _ReplicaSignature,
    linear,
    whole,
)
from nest_opt.cells import Cell, list_cells
from nest_opt.compile import Compiled
from nest_opt.errors import CompileError, PlanError
from nest_opt.network import AnyNetwork, GroupShape, Network
from nest_opt.plan import Plan, StagePlan, Template, ZeroStage

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
    "C12_place",
    "C13_device",
    "C14_enter",
    "C15_far",
    "C16_shape",
    "C17_touch",
    "C18_spread",
    "C19_attain",
    "C20_apart",
    "C21_pay",
    "C22_tied",
)
#: More groups of devices than this are not looked through for their shapes.
MAX_GROUPS = 200_000

#: (coefficient, variable)
_Terms = list[tuple[int, Any]]


def frames(compiled: Compiled) -> list[Cell]:
    """One cell for each (b, d, s) of the search space; its layout means nothing here.

    Raises :class:`CompileError` for a problem with wider templates or with constraints, which this
    formulation does not have.
    """
    if compiled.templates != (Template(),):
        raise CompileError(
            f"{compiled.name}: the free formulation has templates of width one only; set the "
            "search's tensor, context and expert degrees to [1]"
        )
    if compiled.search.constraints:
        raise CompileError(
            f"{compiled.name}: the free formulation knows no constraints; remove search.constraints"
        )
    unique = {(c.microbatch, c.replicas, c.stages): c for c in list_cells(compiled)}
    return list(unique.values())


@lru_cache(maxsize=256)
def shapes_of(network: AnyNetwork, size: int) -> tuple[GroupShape, ...]:
    """The different shapes of all groups of so many devices.

    Raises :class:`CompileError` if there are more than MAX_GROUPS groups. O(groups).
    """
    if comb(network.devices, size) > MAX_GROUPS:
        raise CompileError(
            f"{comb(network.devices, size)} groups of {size} among {network.devices} devices: the "
            f"free formulation looks through at most {MAX_GROUPS}; take fewer devices or replicas"
        )
    groups = combinations(range(network.devices), size)
    return tuple(sorted({network.shape_of(group) for group in groups}))


@dataclass(frozen=True)
class FreeCosts:
    """The coefficients of one (b, d, s).

    ``floor`` has the structure, the memory terms, and the cheapest load and synchronisation terms
    of any placement. ``work[c][i]``, ``receive[k][i]`` and ``gathers[z][g][i]`` are in ticks per
    microbatch; ``syncs[g]`` and ``ring[k]`` in ticks per batch. ``again[i]``: full recomputation.
    """

    compiled: Compiled
    cell: Cell
    floor: CellCosts
    shapes: tuple[GroupShape, ...]
    work: dict[Choice, tuple[int, ...]]
    again: tuple[int, ...] | None
    receive: tuple[tuple[int, ...], ...]
    gathers: dict[int, tuple[tuple[int, ...], ...]]
    syncs: tuple[SyncRow, ...]
    ring: tuple[int, ...]

    @property
    def priced_replicas(self) -> range:
        """Replicas whose transfers are priced: the first stands for all with `first_devices`."""
        first_only = self.compiled.cost_model.transfer_link == "first_devices"
        return range(1 if first_only else self.cell.replicas)

    @property
    def load_ceiling(self) -> int:
        """Ticks that no stage's load can exceed."""
        layers = range(self.floor.layers)
        extra = self.again or (0,) * len(layers)
        work = sum(max(row[i] for row in self.work.values()) + extra[i] for i in layers)
        gathers = sum(max(row[i] for z in self.gathers.values() for row in z) for i in layers)
        return work + gathers + 2 * max(self.receive[-1])

    def attainable_syncs(self) -> list[int]:
        """A superset of the values of sigma, ascending, without those that every plan exceeds."""
        floor, values = 0, set()
        last = self.cell.stages - 1
        for j in self.floor.synchronised:
            found: set[int] = set()
            for row in self.syncs:
                for ring in set(self.ring) if j in (0, last) else {0}:
                    one = SyncRow(row.share, row.dense_latency, row.expert_latency, ring)
                    found |= self._with_sync(one)._sync_values([j], j == 0, j == last)
            floor = max(floor, min(found))
            values |= found
        return sorted(value for value in values if value >= floor)

    def _with_sync(self, row: SyncRow) -> CellCosts:
        base = self.floor
        positions = tuple(Position(p.loads, (row,), p.memory) for p in base.positions)
        return replace(base, positions=positions)

    def corner_pairs(self, limit: int) -> list[tuple[int, int]]:
        """(bound on every load, bound on sigma), in ticks, that T <= limit comes down to."""
        pairs: list[tuple[int, int]] = []
        ceiling, least = self.load_ceiling, self.floor.load_floor
        for sync in self.attainable_syncs():
            load = min((limit - sync) // self.cell.slots, ceiling)
            if sync > limit or load < least:
                break
            if pairs and pairs[-1][0] == load:
                pairs.pop()
            pairs.append((load, sync))
        return pairs


def free_costs(compiled: Compiled, cell: Cell) -> FreeCosts:
    """The coefficients of one (b, d, s). Raises :class:`CompileError` like :func:`frames`."""
    if cell not in frames(compiled):
        raise CompileError(f"{cell.label}: not of {compiled.name}; list its frames anew")
    table = compiled.tables[cell.template, cell.microbatch]
    pricing = _Pricing(compiled, cell, table)
    stages, zeros = range(cell.stages), compiled.search.zero
    network = compiled.network
    shapes = shapes_of(network, cell.replicas)
    alone = frozenset({network.shape_of([0])})
    nowhere = _ReplicaSignature(None, None, (alone,) * len(AXES))
    work = {
        c: pricing.each_layer(pricing.compute(c.recomputation, nowhere)) for c in pricing.choices
    }
    price, share = compiled.collective_ticks, compiled.sync_share_ticks

    def gathers(zero: int, shape: GroupShape) -> tuple[int, ...]:
        def ticks(layer: Any, dense: Any) -> int:
            total = 0
            for state in (dense, layer.expert):
                if zero >= 2:
                    total += price("reduce_scatter", state.gradients, shape)
                if zero == 3:
                    total += 2 * price("all_gather", state.weights, shape)
            return total

        return pricing.each_layer(ticks)

    def shares(zero: ZeroStage, shape: GroupShape) -> tuple[int, ...]:
        return pricing.each_layer(
            lambda layer, dense: share(zero, dense, shape) + share(zero, layer.expert, shape)
        )

    def sync(shape: GroupShape) -> SyncRow:
        latency = {z: compiled.sync_latency_ticks(z, shape) for z in zeros}
        return SyncRow({z: shares(z, shape) for z in zeros}, latency, latency, tied=0)

    gathered = {z: tuple(gathers(z, shape) for shape in shapes) for z in zeros}
    syncs = tuple(map(sync, shapes))
    classes = range(len(network.classes))
    ring = tuple(compiled.tied_ring_ticks(table.tied, k) for k in classes)
    if cell.stages == 1 or not table.has_tied_weight:
        ring = (0,) * len(classes)
    receive = tuple(table.transfer_ticks[k] for k in classes)
    nothing = (0,) * compiled.layer_count
    cheapest = {
        c: tuple(w + min(row[i] for row in gathered[c.zero]) for i, w in enumerate(work[c]))
        for c in pricing.choices
    }
    least_share = {z: tuple(map(min, *(row.share[z] for row in [*syncs, syncs[0]]))) for z in zeros}
    free_of_latency = dict.fromkeys(zeros, 0)
    least_sync = SyncRow(least_share, free_of_latency, free_of_latency, 0)

    def position(j: int) -> Position:
        load = LoadRow(
            cheapest,
            receive[0] if j > 0 else nothing,
            receive[0] if j + 1 < cell.stages else nothing,
        )
        return Position((load,), (least_sync,), pricing.memory(j))

    first_only = compiled.cost_model.synchronisation == "first_stage"
    layers = range(compiled.layer_count)
    floor = CellCosts(
        layers=len(layers),
        stages=cell.stages,
        slots=cell.slots,
        choices=pricing.choices,
        memory=compiled.memory_quanta,
        positions=tuple(map(position, stages)),
        synchronised=(0,) if first_only else tuple(stages),
        has_dense=tuple(pricing.dense(i).weights > 0 for i in layers),
        has_expert=tuple(pricing.expert(i).weights > 0 for i in layers),
        same=tuple(layers),
        cut=tuple(layers),
    )
    again = pricing.each_layer(lambda layer, _: layer.recompute) if pricing.backward_again else None
    return FreeCosts(compiled, cell, floor, shapes, work, again, receive, gathered, syncs, ring)


def build_decision(compiled: Compiled, cell: Cell, limit: int) -> ConcreteModel:
    """The model of "a placement with this (b, d, s) and T <= limit exists", T and limit in ticks.

    Raises :class:`nest_opt.errors.CompileError` for a cell that :func:`frames` does not list, and
    :class:`nest_opt.errors.OverflowGuardError` for numbers too large to be trusted to a solver.
    """
    costs = free_costs(compiled, cell)
    pairs = costs.corner_pairs(limit)
    model = ConcreteModel(name=f"free decision {cell.label} T <= {limit}")
    most_load = max((load for load, _ in pairs), default=0)
    most_sync = max((sync for _, sync in pairs), default=0)
    _variables(model, costs, most_load, most_sync)
    model.PAIRS = Set(initialize=range(len(pairs)))
    model.pair = Var(model.PAIRS, domain=Binary)
    model.C5_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)
    load_bound = [(pairs[p][0], model.pair[p]) for p in model.PAIRS]
    sync_bound = [(pairs[p][1], model.pair[p]) for p in model.PAIRS]
    _families(model, costs, load_bound, sync_bound)
    return model


def build_minimum(compiled: Compiled, cell: Cell) -> ConcreteModel:
    """The model that minimises T, in ticks, over the placements; infeasible if there are none.

    Raises like :func:`build_decision`.
    """
    costs = free_costs(compiled, cell)
    most_sync = max(costs.attainable_syncs())
    model = ConcreteModel(name=f"free minimum {cell.label}")
    _variables(model, costs, costs.load_ceiling, most_sync)
    model.tau = Var(domain=NonNegativeIntegers, bounds=(0, costs.load_ceiling))
    model.sigma = Var(domain=NonNegativeIntegers, bounds=(0, most_sync))
    _families(model, costs, [(1, model.tau)], [(1, model.sigma)])
    time = linear(model, [(cell.slots, model.tau), (1, model.sigma)])
    model.objective = Objective(expr=time, sense=minimize)
    return model


def _families(
    model: ConcreteModel, costs: FreeCosts, load_bound: _Terms, sync_bound: _Terms
) -> None:
    """Every constraint family but the choice of a corner pair."""
    assignment._start(model, costs.floor)
    assignment._run(model, costs.floor)
    assignment._nonempty(model)
    assignment._order(model, costs.floor)
    assignment._memory(model, costs.floor)
    assignment._working(model, costs.floor)
    assignment._gathered(model, costs.floor)
    _place(model, costs)
    _device(model, costs)
    _enter(model, costs)
    _far(model, costs)
    _shape(model, costs)
    if isinstance(costs.compiled.network, Network):
        _touch(model, costs, costs.compiled.network)
        _spread(model, costs, costs.compiled.network)
        _attain(model, costs, costs.compiled.network)
    else:
        _apart(model, costs)
    _pay(model, costs)
    _tied(model, costs)
    _load(model, costs, load_bound)
    _latency(model, costs)
    _sync(model, costs, sync_bound)
    _break_symmetry(model, costs)


# --- variables ------------------------------------------------------------------------------------


def _variables(model: ConcreteModel, costs: FreeCosts, load: int, sync: int) -> None:
    """All variables but the bottlenecks, whose largest bounds are ``load`` and ``sync`` ticks."""
    assignment._variables(model, costs.floor, load, sync)
    compiled, cell, floor = costs.compiled, costs.cell, costs.floor
    network, stages, zeros = compiled.network, range(cell.stages), compiled.search.zero
    devices, shapes = range(network.devices), range(len(costs.shapes))
    model.put = Var(devices, stages, range(cell.replicas), domain=Binary)
    model.ENTERS = Set(
        dimen=4,
        initialize=[
            (i, j, r, k)
            for j in stages[1:]
            for i in floor.window(j)
            for r in costs.priced_replicas
            for k in range(len(costs.receive))
        ],
    )
    model.enters = Var(model.ENTERS, domain=NonNegativeReals, bounds=(0, 1))
    model.shape = Var(stages, shapes, domain=Binary)
    model.PAYS = Set(
        dimen=4,
        initialize=[
            (i, j, z, g) for j in stages for i in floor.window(j) for z in zeros for g in shapes
        ],
    )
    model.pays = Var(model.PAYS, domain=NonNegativeReals, bounds=(0, 1))
    model.del_component("touches")
    model.touches = Var(
        stages, zeros, shapes, ["dense", "expert"], domain=NonNegativeReals, bounds=(0, 1)
    )
    model.tied = Var(range(len(costs.ring)), domain=NonNegativeReals, bounds=(0, 1))
    if isinstance(network, Network):
        blocks = [
            (level, b) for level in range(len(network.block)) for b in _blocks(network, level)
        ]
        model.TOUCHED = Set(dimen=3, initialize=[(j, *block) for j in stages for block in blocks])
        model.touched = Var(model.TOUCHED, domain=Binary)
        model.ATTAINS = Set(
            dimen=4,
            initialize=[
                (j, level, b, n)
                for j in stages
                for level, b in blocks
                for n in sorted({shape.branching[level] for shape in costs.shapes})
            ],
        )
        model.attains = Var(model.ATTAINS, domain=Binary)


def _blocks(network: Network, level: int) -> range:
    """Numbers of the blocks of a level."""
    return range(-(-network.devices // network.block[level]))


def _members(network: Network, level: int, block: int) -> range:
    """Devices of a block."""
    size = network.block[level]
    return range(block * size, min((block + 1) * size, network.devices))


def _within(
    model: ConcreteModel, costs: FreeCosts, network: Network, j: int, at: int, b: int
) -> _Terms:
    """Terms of the number of blocks one level down that stage j touches in a block."""
    members = _members(network, at, b)
    if at == 0:
        return [(1, model.put[x, j, r]) for x in members for r in range(costs.cell.replicas)]
    inner = sorted({x // network.block[at - 1] for x in members})
    return [(1, model.touched[j, at - 1, i]) for i in inner]


def _far_sets(network: AnyNetwork, beyond: int) -> Iterator[tuple[list[int], list[int]]]:
    """Far(k): devices with one and the same set of devices further away than class k, and it."""
    alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    devices = range(network.devices)
    for x in devices:
        alike[tuple(y for y in devices if y != x and network.class_of((x, y)) > beyond)].append(x)
    return ((here, list(far)) for far, here in alike.items() if far)


# --- where a stage lies ---------------------------------------------------------------------------


def _place(model: ConcreteModel, costs: FreeCosts) -> None:
    """C12: each stage of each replica lies on one device."""
    devices = range(costs.compiled.devices)
    model.C12_place = Constraint(
        range(costs.cell.stages),
        range(costs.cell.replicas),
        rule=lambda m, j, r: linear(m, [(1, m.put[x, j, r]) for x in devices]) == 1,
    )


def _device(model: ConcreteModel, costs: FreeCosts) -> None:
    """C13: a device serves at most one stage of one replica."""
    slots = [(j, r) for j in range(costs.cell.stages) for r in range(costs.cell.replicas)]
    model.C13_device = Constraint(
        range(costs.compiled.devices),
        rule=lambda m, x: linear(m, [(1, m.put[x, j, r]) for j, r in slots]) <= 1,
    )


def _enter(model: ConcreteModel, costs: FreeCosts) -> None:
    """C14: the layer that a stage starts with comes in over a link of one class."""
    classes = range(len(costs.receive))

    def rule(m: ConcreteModel, i: int, j: int, r: int) -> Any:
        entering = [(1, m.enters[i, j, r, k]) for k in classes]
        starting = [
            t for c in costs.floor.choices for t in assignment._var(m.starts, (i, j, *c), -1)
        ]
        return linear(m, entering + starting) == 0

    model.C14_enter = Constraint(sorted({index[:3] for index in model.ENTERS}), rule=rule)


def _apart_rows(
    model: ConcreteModel, costs: FreeCosts, one: tuple[int, int], other: tuple[int, int]
) -> Iterator[tuple[int, _Terms]]:
    """(k, terms) for which the terms exceed 1 exactly if two slots are further apart than k."""
    for k in range(len(costs.receive) - 1):
        for here, far in _far_sets(costs.compiled.network, k):
            put = [(1, model.put[x, *one]) for x in here]
            yield k, put + [(1, model.put[y, *other]) for y in far]


def _far(model: ConcreteModel, costs: FreeCosts) -> None:
    """C15: a transfer is priced at no less than the class of the two devices."""
    model.C15_far = ConstraintList()
    for j in range(1, costs.cell.stages):
        for r in costs.priced_replicas:
            for k, terms in _apart_rows(model, costs, (j - 1, r), (j, r)):
                above = [
                    (-1, model.enters[i, j, r, higher])
                    for i in costs.floor.window(j)
                    for higher in range(k + 1, len(costs.receive))
                ]
                model.C15_far.add(linear(model, terms + above) <= 1)


def _shape(model: ConcreteModel, costs: FreeCosts) -> None:
    """C16: a stage has one shape."""
    shapes = range(len(costs.shapes))
    model.C16_shape = Constraint(
        range(costs.cell.stages),
        rule=lambda m, j: linear(m, [(1, m.shape[j, g]) for g in shapes]) == 1,
    )


def _touch(model: ConcreteModel, costs: FreeCosts, network: Network) -> None:
    """C17: a block is touched exactly if one of its devices is used."""
    model.C17_touch = ConstraintList()
    for j, level, b in model.TOUCHED:
        members = _members(network, level, b)
        for r in range(costs.cell.replicas):
            used = [(1, model.put[x, j, r]) for x in members]
            model.C17_touch.add(linear(model, [*used, (-1, model.touched[j, level, b])]) <= 0)
        used = [(-1, model.put[x, j, r]) for x in members for r in range(costs.cell.replicas)]
        model.C17_touch.add(linear(model, [*used, (1, model.touched[j, level, b])]) <= 0)


def _spread(model: ConcreteModel, costs: FreeCosts, network: Network) -> None:
    """C18: no block of a level has more touched blocks within than the shape says."""

    def rule(m: ConcreteModel, j: int, level: int, b: int) -> Any:
        said = [(-s.branching[level], m.shape[j, g]) for g, s in enumerate(costs.shapes)]
        return linear(m, _within(m, costs, network, j, level, b) + said) <= 0

    model.C18_spread = Constraint(model.TOUCHED, rule=rule)


def _attain(model: ConcreteModel, costs: FreeCosts, network: Network) -> None:
    """C19: on each level, some block has as many touched blocks within as the shape says."""
    model.C19_attain = ConstraintList()
    for j, level, b in model.TOUCHED:
        numbers = sorted({shape.branching[level] for shape in costs.shapes})
        shown = [(-n, model.attains[j, level, b, n]) for n in numbers]
        within = _within(model, costs, network, j, level, b)
        model.C19_attain.add(linear(model, within + shown) >= 0)
        if b == 0:
            for n in numbers:
                somewhere = [(1, model.attains[j, level, x, n]) for x in _blocks(network, level)]
                said = [
                    (-1, model.shape[j, g])
                    for g, shape in enumerate(costs.shapes)
                    if shape.branching[level] == n
                ]
                model.C19_attain.add(linear(model, somewhere + said) == 0)


def _apart(model: ConcreteModel, costs: FreeCosts) -> None:
    """C20: without levels, a shape is a class, no less than that of any two devices."""
    model.C20_apart = ConstraintList()
    for j in range(costs.cell.stages):
        for one, other in combinations(range(costs.cell.replicas), 2):
            for k, terms in _apart_rows(model, costs, (j, one), (j, other)):
                above = [
                    (-1, model.shape[j, g])
                    for g, shape in enumerate(costs.shapes)
                    if shape.link_class > k
                ]
                model.C20_apart.add(linear(model, terms + above) <= 1)


def _tied(model: ConcreteModel, costs: FreeCosts) -> None:
    """C22: the ring of a tied weight is that of the worst replica."""
    classes = range(len(costs.ring))
    model.C22_tied = ConstraintList()
    model.C22_tied.add(linear(model, [(1, model.tied[k]) for k in classes]) == 1)
    if not any(costs.ring):
        return
    for r in range(costs.cell.replicas):
        for k, terms in _apart_rows(model, costs, (0, r), (costs.cell.stages - 1, r)):
            above = [(-1, model.tied[higher]) for higher in classes[k + 1 :]]
            model.C22_tied.add(linear(model, terms + above) <= 1)


# --- what a stage costs ---------------------------------------------------------------------------


def _pay(model: ConcreteModel, costs: FreeCosts) -> None:
    """C21: what a stage holds is paid for at its shape."""
    model.C21_pay = ConstraintList()
    floor, zeros = costs.floor, costs.compiled.search.zero
    shapes = range(len(costs.shapes))
    for j in range(costs.cell.stages):
        for i in floor.window(j):
            for z in zeros:
                held = [
                    t
                    for c in floor.choices
                    if c.zero == z
                    for t in assignment._var(model.holds, (i, j, *c), -1)
                ]
                paid = [(1, model.pays[i, j, z, g]) for g in shapes]
                model.C21_pay.add(linear(model, paid + held) == 0)
            for g in shapes:
                paid = [(1, model.pays[i, j, z, g]) for z in zeros]
                model.C21_pay.add(linear(model, [*paid, (-1, model.shape[j, g])]) <= 0)


def _load(model: ConcreteModel, costs: FreeCosts, bound: _Terms) -> None:
    """C6: the load of each stage in each replica keeps the bound.

    Two rows where recomputation runs while the gradients arrive (`backward_again`): one with the
    transfer and without the recomputation, one the other way round.
    """
    model.C6_load = ConstraintList()
    last = costs.cell.stages - 1
    for j in range(costs.cell.stages):
        held: _Terms = []
        again: _Terms = []
        for i in costs.floor.window(j):
            for c in costs.floor.choices:
                held += assignment._var(model.holds, (i, j, *c), costs.work[c][i])
                if costs.again and c.recomputation == "stage":
                    again += assignment._var(model.holds, (i, j, *c), costs.again[i])
            for z, by_shape in costs.gathers.items():
                held += [(row[i], model.pays[i, j, z, g]) for g, row in enumerate(by_shape)]
        for r in costs.priced_replicas:
            into = _transfer(model, costs, j, r) if j > 0 else []
            back = _transfer(model, costs, j + 1, r) if j < last else []
            model.C6_load.add(linear(model, held + into + back + _minus(bound)) <= 0)
            if again and j < last:
                model.C6_load.add(linear(model, held + again + into + _minus(bound)) <= 0)


def _transfer(model: ConcreteModel, costs: FreeCosts, j: int, r: int) -> _Terms:
    """Terms of the transfer between stages j - 1 and j, one way."""
    return [
        (ticks[i], model.enters[i, j, r, k])
        for k, ticks in enumerate(costs.receive)
        for i in costs.floor.window(j)
    ]


def _latency(model: ConcreteModel, costs: FreeCosts) -> None:
    """C11: a stage that holds bytes of a kind pays the latency of its synchronisation."""
    model.C11_latency = ConstraintList()
    has_bytes = {"dense": costs.floor.has_dense, "expert": costs.floor.has_expert}
    for i, j, z, g in model.PAYS:
        for kind, has in has_bytes.items():
            if has[i] and j in costs.floor.synchronised:
                row = [(1, model.pays[i, j, z, g]), (-1, model.touches[j, z, g, kind])]
                model.C11_latency.add(linear(model, row) <= 0)


def _sync(model: ConcreteModel, costs: FreeCosts, bound: _Terms) -> None:
    """C7: the synchronisation of each stage keeps the bound."""

    def rule(m: ConcreteModel, j: int) -> Any:
        terms: _Terms = []
        for g, row in enumerate(costs.syncs):
            for z in costs.compiled.search.zero:
                terms += [(row.share[z][i], m.pays[i, j, z, g]) for i in costs.floor.window(j)]
                terms.append((row.dense_latency[z], m.touches[j, z, g, "dense"]))
                terms.append((row.expert_latency[z], m.touches[j, z, g, "expert"]))
        if j in (0, costs.cell.stages - 1):
            terms += [(ticks, m.tied[k]) for k, ticks in enumerate(costs.ring)]
        return linear(m, terms + _minus(bound)) <= 0

    model.C7_sync = Constraint(costs.floor.synchronised, rule=rule)


def _minus(bound: _Terms) -> _Terms:
    """A right-hand side, moved to the left."""
    return [(-coefficient, variable) for coefficient, variable in bound]


# --- symmetry -------------------------------------------------------------------------------------


def _break_symmetry(model: ConcreteModel, costs: FreeCosts) -> None:
    """B1, B2, B3: of equivalent plans, one with the smallest list of devices is kept."""
    network, cell = costs.compiled.network, costs.cell
    devices, first = range(network.devices), len(costs.priced_replicas) < cell.replicas
    model.B1_replicas = ConstraintList()
    for r in range(1 if first else 0, cell.replicas - 1):
        here = [(x, model.put[x, 0, r]) for x in devices]
        model.B1_replicas.add(
            linear(model, here + [(-x, model.put[x, 0, r + 1]) for x in devices]) <= -1
        )
    slots = [(j, r) for j in range(cell.stages) for r in range(cell.replicas)]
    model.B2_twins = ConstraintList()
    alike: list[list[int]] = []
    for x in devices:
        twins = next((group for group in alike if _twins(network, group[0], x)), None)
        if twins is None:
            alike.append([x])
        else:
            twins.append(x)
    for x, y in (pair for group in alike for pair in pairwise(group)):
        terms = []
        for n, slot in enumerate(slots):
            terms += [(n - len(slots), model.put[x, *slot]), (len(slots) - n, model.put[y, *slot])]
        model.B2_twins.add(linear(model, terms) <= 0)
    if isinstance(network, Network) and all(network.devices % size == 0 for size in network.block):
        model.B3_first = Constraint(expr=linear(model, [(1, model.put[0, 0, 0])]) == 1)


def _twins(network: AnyNetwork, x: int, y: int) -> bool:
    """Whether two devices are equally far from every other."""
    others = (z for z in range(network.devices) if z not in (x, y))
    return all(network.class_of((x, z)) == network.class_of((y, z)) for z in others)


# --- plans ----------------------------------------------------------------------------------------


def decode(compiled: Compiled, cell: Cell, values: Mapping[str, float]) -> Plan:
    """The explicit plan that a solution stands for; ``values`` maps variable names to values.

    Raises :class:`PlanError` where a value is no integer within 1e-4, or where a stage has no
    single start or a slot no single device.
    """
    window = range(compiled.layer_count)
    choices = [Choice(k, z) for k in compiled.search.recomputation for z in compiled.search.zero]
    starts: list[int] = []
    chosen: list[Choice] = []
    devices: list[tuple[tuple[int, ...], ...]] = []
    for j in range(cell.stages):
        found = [
            (i, c)
            for i in window
            for c in choices
            if whole(values, assignment._name("starts", i, j, c))
        ]
        lies = [
            [x for x in range(compiled.devices) if whole(values, f"put[{x},{j},{r}]")]
            for r in range(cell.replicas)
        ]
        if len(found) != 1 or any(len(x) != 1 for x in lies):
            raise PlanError(f"{cell.label}: stage {j} has starts {found} and devices {lies}")
        starts.append(found[0][0])
        chosen.append(found[0][1])
        devices.append(tuple((x[0],) for x in lies))
    ends = [*starts[1:], compiled.layer_count]
    if any(start >= end for start, end in zip(starts, ends, strict=True)):
        raise PlanError(f"{cell.label}: the stages start at layers {starts} in the solution")
    return Plan(
        digest=compiled.digest,
        microbatch=cell.microbatch,
        replicas=cell.replicas,
        microbatches=cell.microbatches,
        layout="explicit",
        template=cell.template,
        stages=tuple(
            StagePlan(
                layers=(start, end), recomputation=c.recomputation, zero=c.zero, devices=where
            )
            for start, end, c, where in zip(starts, ends, chosen, devices, strict=True)
        ),
    )
