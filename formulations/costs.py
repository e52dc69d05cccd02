"""The cost rules of one cell, as the coefficients of a linear model.

With one template for all stages, every term of a plan's price is a sum over the layers of a stage,
a maximum over them, a price of where a stage starts, or a constant of the stage's position. This
module states those terms for one cell; :mod:`formulations.assignment` and :mod:`formulations.runs`
turn them into rows.

What is read: the compiled problem (per-layer integers, the price of one primitive), the class table
of its network, the cell. What is stated here: which devices a stage gets, which groups run which
collective, and which primitives a stage pays. All numbers are integers: ticks, and quanta per
device.

Indices: layer i in 0..L-1; stage position j in 0..s-1 (0 is first in the pipeline); replica r in
0..d-1; choice c = (recomputation kind, ZeRO stage).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from math import gcd, isfinite
from typing import Any, NamedTuple, TypeVar

from pyomo.core.expr import LinearExpression

from nest_opt.cells import Cell
from nest_opt.compile import Compiled, LayerKind, StateBytes, Table
from nest_opt.errors import CompileError, OverflowGuardError, PlanError
from nest_opt.estimate.table import Axis
from nest_opt.network import GroupShape
from nest_opt.plan import Plan, Recomputation, StagePlan, ZeroStage

#: Largest coefficient or right-hand side that a model may hold: beyond it a floating-point solver
#: with absolute tolerances of 1e-6 was seen to be wrong by whole units.
MAX_DATA = 10**7
#: How far from an integer the value of an integer variable may lie in a solution.
INTEGRAL_WITHIN = 1e-4

AXES: tuple[Axis, ...] = ("tensor", "context", "expert")

Row = TypeVar("Row")


class Choice(NamedTuple):
    """What one stage decides for itself."""

    recomputation: Recomputation
    zero: ZeroStage


@dataclass(frozen=True)
class LoadRow:
    """The load of a stage in the replicas that lie alike, in ticks per microbatch.

    load = sum of ``work[c][i]`` over its layers i under its choice c, + ``receive[i]`` for its
    first layer i (the forward transfer in), + ``send[k]`` for the first layer k of the next stage
    (the backward transfer in). ``receive`` is 0 for the first stage, ``send`` for the last.
    """

    work: dict[Choice, tuple[int, ...]]
    receive: tuple[int, ...]
    send: tuple[int, ...]


@dataclass(frozen=True)
class SyncRow:
    """The synchronisation of a stage with one dense and one expert group shape taken for the worst.

    sigma_j >= sum of ``share[z][i]`` over its layers i under its ZeRO stage z,
    + ``dense_latency[z]`` if it holds dense weights, + ``expert_latency[z]`` if it holds expert
    weights, + ``tied``. The largest of these rows is sigma_j. In ticks.
    """

    share: dict[ZeroStage, tuple[int, ...]]
    dense_latency: dict[ZeroStage, int]
    expert_latency: dict[ZeroStage, int]
    tied: int


@dataclass(frozen=True)
class MemoryTerms:
    """The memory of a stage under one choice, in quanta per device.

    memory = sum of ``each[i]`` over its layers, + the largest ``working[i]`` among them, + the
    largest ``gathered[i]`` among them, + ``entry[i]`` for its first layer i.

    ``each`` is the state that the rank keeps and what the microbatches in flight leave behind;
    ``working`` the layer's activations (`layer`) or attention core (`selective`); ``gathered`` the
    full weights of a layer under ZeRO 3; ``entry`` the kept inputs of `stage`.
    """

    each: tuple[int, ...]
    working: tuple[int, ...]
    gathered: tuple[int, ...]
    entry: tuple[int, ...]


@dataclass(frozen=True)
class Position:
    """All terms of one stage position."""

    loads: tuple[LoadRow, ...]
    syncs: tuple[SyncRow, ...]
    memory: dict[Choice, MemoryTerms]

    @cached_property
    def worst_work(self) -> dict[Choice, tuple[int, ...]]:
        """By choice and layer: the largest ``work`` of any load row."""
        return {
            choice: tuple(map(max, zip(*(row.work[choice] for row in self.loads), strict=True)))
            for choice in self.loads[0].work
        }

    @cached_property
    def worst_share(self) -> dict[ZeroStage, tuple[int, ...]]:
        """By ZeRO stage and layer: the largest ``share`` of any synchronisation row."""
        return {
            zero: tuple(map(max, zip(*(row.share[zero] for row in self.syncs), strict=True)))
            for zero in self.syncs[0].share
        }


class Run(NamedTuple):
    """Consecutive layers between which a stage cannot tell."""

    first: int
    size: int

    @property
    def end(self) -> int:
        """The first layer behind the run."""
        return self.first + self.size

    def among(self, layers: int) -> int:
        """How many of the first ``layers`` layers belong to the run."""
        return min(max(layers - self.first, 0), self.size)


@dataclass(frozen=True)
class CellCosts:
    """The coefficients of one cell.

    ``positions[j]`` are the terms of stage position j. ``memory`` is the usable memory in quanta.
    ``synchronised`` lists the positions whose sigma_j enters sigma. ``has_dense[i]`` and
    ``has_expert[i]`` say whether layer i holds bytes of that kind in this cell. ``same[i]`` numbers
    the layers so that equal numbers mean equal coefficients at every position, except for what
    depends on the cut before the layer; ``cut[i]`` numbers the cuts likewise. ``marked`` are layers
    that a constraint of the problem asks about by number.
    """

    layers: int
    stages: int
    slots: int
    choices: tuple[Choice, ...]
    memory: int
    positions: tuple[Position, ...]
    synchronised: tuple[int, ...]
    has_dense: tuple[bool, ...]
    has_expert: tuple[bool, ...]
    same: tuple[int, ...]
    cut: tuple[int, ...]
    marked: frozenset[int] = frozenset()

    @property
    def zeros(self) -> tuple[ZeroStage, ...]:
        """ZeRO stages among the choices, ascending."""
        return tuple(sorted({choice.zero for choice in self.choices}))

    def window(self, position: int) -> range:
        """Layers that a stage can hold when every stage holds at least one."""
        return range(position, self.layers - self.stages + position + 1)

    @cached_property
    def load_unit(self) -> int:
        """Greatest common divisor of all load terms, in ticks; at least 1."""
        numbers: set[int] = set()
        for position in self.positions:
            for row in position.loads:
                numbers.update(row.receive, row.send, *row.work.values())
        return gcd(*numbers) or 1

    @cached_property
    def sync_unit(self) -> int:
        """Greatest common divisor of all synchronisation terms, in ticks; at least 1."""
        numbers: set[int] = set()
        for j in self.synchronised:
            for row in self.positions[j].syncs:
                numbers.update(*row.share.values())
                numbers.update(row.dense_latency.values(), row.expert_latency.values())
                numbers.add(row.tied)
        return gcd(*numbers) or 1

    @property
    def objective_weights(self) -> tuple[int, int]:
        """Weights of tau and sigma, each in its own unit, in slots * tau + sigma, scaled down."""
        per_tau, per_sigma = self.slots * self.load_unit, self.sync_unit
        shared = gcd(per_tau, per_sigma)
        return per_tau // shared, per_sigma // shared

    @cached_property
    def load_ceiling(self) -> int:
        """Ticks that no stage's load can exceed."""
        ceiling = 0
        for j, position in enumerate(self.positions):
            window = self.window(j)
            worst = position.worst_work.values()
            ceiling = max(
                ceiling,
                sum(max(work[i] for work in worst) for i in window)
                + max(max(row.receive) for row in position.loads)
                + max(max(row.send) for row in position.loads),
            )
        return ceiling

    @cached_property
    def load_floor(self) -> int:
        """Ticks that the largest load of any plan reaches: its heaviest layer, and the average."""
        heaviest, together = 0, 0
        for i in range(self.layers):
            where = [self.positions[j] for j in range(self.stages) if i in self.window(j)]
            heaviest = max(
                heaviest, min(min(work[i] for work in p.worst_work.values()) for p in where)
            )
            # Layers of one stage may be worst in different replicas, so the worst do not add up.
            together += min(
                min(work[i] for work in row.work.values()) for p in where for row in p.loads
            )
        return max(heaviest, -(-together // self.stages))

    @cached_property
    def attainable_syncs(self) -> tuple[int, ...]:
        """A superset of the values that sigma can take, in ticks, ascending.

        sigma_j of every position that enters sigma, every run of layers and every ZeRO stage;
        values that every plan exceeds are left out. O(L^2) for each different kind of position.
        """
        alike: defaultdict[tuple[int, bool, bool], list[int]] = defaultdict(list)
        known: list[tuple[SyncRow, ...]] = []
        for j in self.synchronised:
            rows = self.positions[j].syncs
            if rows not in known:
                known.append(rows)
            # The first stage starts at layer 0 and the last ends at layer L-1.
            alike[known.index(rows), j == 0, j == self.stages - 1].append(j)
        values: set[int] = set()
        floor = 0
        for (_, first, last), positions in alike.items():
            found = self._sync_values(positions, first, last)
            values |= found
            floor = max(floor, min(found))
        return tuple(sorted(value for value in values if value >= floor))

    def _sync_values(self, positions: Sequence[int], first: bool, last: bool) -> set[int]:
        """sigma_j of every run of layers that stages at these positions, priced alike, can hold."""
        longest = self.layers - self.stages + 1
        low, high = positions[0], self.layers - self.stages + positions[-1] + 1
        dense, expert = _running(self.has_dense), _running(self.has_expert)
        rows = self.positions[positions[0]].syncs
        values = set()
        for zero in self.zeros:
            sums = [(row, _running(row.share[zero])) for row in rows]
            for i in [0] if first else range(low, high):
                for k in [self.layers] if last else range(i + 1, min(i + longest, high) + 1):
                    values.add(
                        max(
                            running[k]
                            - running[i]
                            + row.dense_latency[zero] * (dense[k] > dense[i])
                            + row.expert_latency[zero] * (expert[k] > expert[i])
                            + row.tied
                            for row, running in sums
                        )
                    )
        return values

    def can_hold(self, position: int, layer: int, choice: Choice, load: int, sync: int) -> bool:
        """Whether a stage can hold a layer at all: no term of it is beyond a right-hand side.

        ``load`` and ``sync`` are the largest right-hand sides of load and synchronisation rows.
        """
        terms = self.positions[position]
        memory = terms.memory[choice]
        return (
            layer in self.window(position)
            and terms.worst_work[choice][layer] <= load
            and (position not in self.synchronised or terms.worst_share[choice.zero][layer] <= sync)
            and max(memory.each[layer], memory.working[layer], memory.gathered[layer])
            <= self.memory
        )

    def can_start(self, position: int, layer: int, choice: Choice, load: int, sync: int) -> bool:
        """Whether a stage can start with a layer, judged in the same way."""
        terms = self.positions[position]
        return (
            (layer == 0 if position == 0 else layer > 0)
            and self.can_hold(position, layer, choice, load, sync)
            and all(row.receive[layer] <= load for row in terms.loads)
            and (
                position == 0
                or all(row.send[layer] <= load for row in self.positions[position - 1].loads)
            )
            and terms.memory[choice].entry[layer] <= self.memory
        )

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The maximal runs of consecutive layers with equal integers and equal cuts before them.

        Layer 0, which has no cut before it, is a run of its own, and so is every marked layer.
        """
        found: list[Run] = []

        def kind(i: int) -> tuple[int, int, int | None]:
            return self.same[i], self.cut[i], i if i in self.marked else None

        for _, alike in groupby(range(self.layers), kind):
            found.append(Run(found[-1].end if found else 0, len(list(alike))))
        return tuple(found)

    def most(self, run: Run, position: int, choice: Choice, load: int, sync: int) -> int:
        """The most layers of a run that a stage can hold under a choice, beside nothing else.

        ``load`` and ``sync`` are the largest bounds on load and synchronisation. A stage that holds
        a layer of the run needs the run's working memory and latency, and the cheapest transfers.
        """
        window, i = self.window(position), run.first
        inside = run.among(window.stop) - run.among(window.start)
        if not inside:
            return 0
        terms = self.positions[position]
        memory = terms.memory[choice]
        once = memory.working[i] + memory.gathered[i] + min(memory.entry[k] for k in window)
        caps = [inside, _times(memory.each[i], self.memory - once)]
        for row in terms.loads:
            transfers = min(row.receive[k] for k in window)
            if position + 1 < self.stages:
                transfers += min(row.send[k] for k in self.window(position + 1))
            caps.append(_times(row.work[choice][i], load - transfers))
        for sync_row in terms.syncs if position in self.synchronised else ():
            fixed = sync_row.tied
            fixed += sync_row.dense_latency[choice.zero] if self.has_dense[i] else 0
            fixed += sync_row.expert_latency[choice.zero] if self.has_expert[i] else 0
            caps.append(_times(sync_row.share[choice.zero][i], sync - fixed))
        return min(caps)

    def corner_pairs(self, limit: int) -> tuple[tuple[int, int], ...]:
        """The pairs (bound on every load, bound on sigma), in ticks, that T <= limit comes down to.

        T = slots * tau + sigma <= limit holds exactly when for some attainable u both sigma <= u
        and tau <= floor((limit - u) / slots). Pairs that another pair dominates, or whose load
        bound no plan can keep, are left out. Load bounds are descending, sigma bounds ascending.
        """
        pairs: list[tuple[int, int]] = []
        for sync in self.attainable_syncs:
            load = min((limit - sync) // self.slots, self.load_ceiling)
            if sync > limit or load < self.load_floor:
                break
            if pairs and pairs[-1][0] == load:
                pairs.pop()
            pairs.append((load, sync))
        return tuple(pairs)


def _times(each: int, room: int) -> int:
    """How often ``each`` fits in ``room``; without end where it takes none."""
    if room < 0:
        return 0
    return room // each if each else MAX_DATA


def _running(numbers: Iterable[int]) -> list[int]:
    """Sums of the first 0, 1, 2, ... numbers."""
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return sums


def linear(model: Any, terms: Iterable[tuple[int, Any]]) -> Any:
    """The sum of coefficient * variable.

    Of no terms it is ``model.nothing``, a variable that can only be 0, so that a row without terms
    is judged by the solver like any other. Raises :class:`OverflowGuardError` for a coefficient
    beyond MAX_DATA.
    """
    kept = [(coefficient, variable) for coefficient, variable in terms if coefficient]
    if not kept:
        kept = [(1, model.nothing)]
    largest = max(abs(coefficient) for coefficient, _ in kept)
    if largest > MAX_DATA:
        raise OverflowGuardError(
            f"a coefficient is {largest}, but floating point is trusted up to {MAX_DATA} only; "
            "use a larger units.tick_seconds or units.quantum_bytes"
        )
    coefficients, variables = zip(*kept, strict=True)
    return LinearExpression(linear_coefs=list(coefficients), linear_vars=list(variables))


def whole(values: Mapping[str, float], name: str) -> int:
    """The integer value of a variable in a solution; 0 for one that the model does not have.

    Raises :class:`PlanError` for a value further than INTEGRAL_WITHIN from an integer.
    """
    number = values.get(name, 0.0)
    if not isfinite(number) or abs(number - round(number)) > INTEGRAL_WITHIN:
        raise PlanError(f"{name} is {number} in the solution, not an integer; it is no plan")
    return round(number)


# --- where a stage lies ---------------------------------------------------------------------------


def interval(compiled: Compiled, cell: Cell, replica: int, position: int) -> range:
    """Devices of one stage of one replica.

    Offsets grow from the last stage. `pipeline-inner` gives each replica floor(N/d) consecutive
    devices; `data-inner` puts all replicas of a stage side by side.
    """
    width = cell.template.width
    offset = width * (cell.stages - 1 - position)
    if cell.layout == "pipeline-inner":
        start = replica * (compiled.devices // cell.replicas) + offset
    else:
        start = cell.replicas * offset + replica * width
    return range(start, start + width)


def axis_groups(cell: Cell, devices: range) -> dict[Axis, list[list[int]]]:
    """The groups of each axis in one interval: tensor index fastest, then context, then expert."""
    t, c, e = cell.template.tensor, cell.template.context, cell.template.expert

    def at(tensor: int, context: int, expert: int) -> int:
        return devices[tensor + t * (context + c * expert)]

    return {
        "tensor": [[at(x, y, z) for x in range(t)] for y in range(c) for z in range(e)],
        "context": [[at(x, y, z) for y in range(c)] for x in range(t) for z in range(e)],
        "expert": [[at(x, y, z) for z in range(e)] for x in range(t) for y in range(c)],
    }


def dense_groups(cell: Cell, intervals: Sequence[range]) -> list[list[int]]:
    """Ranks that share dense weights: those with one tensor index, over all replicas of a stage."""
    t = cell.template.tensor
    return [[x for devices in intervals for x in devices[index::t]] for index in range(t)]


def expert_groups(cell: Cell, intervals: Sequence[range]) -> list[list[int]]:
    """Ranks that share expert weights: those with one tensor and one expert index."""
    t, c, e = cell.template.tensor, cell.template.context, cell.template.expert
    block = t * c
    return [
        [x for devices in intervals for x in devices[block * z : block * (z + 1)][index::t]]
        for z in range(e)
        for index in range(t)
    ]


def plan_of(
    compiled: Compiled, cell: Cell, starts: Sequence[int], choices: Sequence[Choice]
) -> Plan:
    """The plan of a cell whose stage j starts at layer ``starts[j]`` under ``choices[j]``."""
    ends = [*starts[1:], compiled.layer_count]
    return Plan(
        digest=compiled.digest,
        microbatch=cell.microbatch,
        replicas=cell.replicas,
        microbatches=cell.microbatches,
        layout=cell.layout,
        template=cell.template,
        stages=tuple(
            StagePlan(
                layers=(start, end),
                recomputation=choice.recomputation,
                zero=choice.zero,
                devices=tuple(tuple(interval(compiled, cell, r, j)) for r in range(cell.replicas)),
            )
            for j, (start, end, choice) in enumerate(zip(starts, ends, choices, strict=True))
        ),
    )


def stages_of(compiled: Compiled, cell: Cell, plan: Plan) -> tuple[list[int], list[Choice]]:
    """First layer and choice of each stage of a plan of this cell; :func:`plan_of` backwards.

    Raises :class:`PlanError` for a plan that is not of this cell, devices included.
    """
    starts = [stage.layers[0] for stage in plan.stages]
    choices = [Choice(stage.recomputation, stage.zero) for stage in plan.stages]
    search = compiled.search
    if any(
        c.recomputation not in search.recomputation or c.zero not in search.zero for c in choices
    ):
        raise PlanError(f"{cell.label}: the plan makes a choice that is not in the search space")
    same = plan_of(compiled, cell, starts, choices) if len(starts) == cell.stages else None

    def placement(p: Plan) -> tuple[object, ...]:
        stages = tuple((stage.layers, stage.devices) for stage in p.stages)
        return p.microbatch, p.replicas, p.microbatches, p.layout, p.template, stages

    if same is None or placement(same) != placement(plan):
        raise PlanError(f"{cell.label}: the plan is none of this cell's; find its own cell")
    if starts[0] != 0 or any(a >= b for a, b in pairwise([*starts, compiled.layer_count])):
        raise PlanError(f"{cell.label}: the stages do not cover the layers in order")
    return starts, choices


# --- what a stage pays ----------------------------------------------------------------------------


class _ReplicaSignature(NamedTuple):
    """All that a replica's place decides about a stage's load: link classes and group shapes."""

    receive_class: int | None
    send_class: int | None
    groups: tuple[frozenset[GroupShape], ...]


def cell_costs(compiled: Compiled, cell: Cell) -> CellCosts:
    """The coefficients of one cell.

    Raises :class:`CompileError` for a cell that is none of this problem's: an unknown template or
    microbatch, more stages than layers, more devices than there are.

    O(N * levels + s * rows * choices * L).
    """
    table = compiled.tables.get((cell.template, cell.microbatch))
    if table is None or not 1 <= cell.stages <= compiled.layer_count:
        raise CompileError(f"{cell.label}: not a cell of {compiled.name}; list its cells anew")
    if cell.replicas * cell.stages * cell.template.width > compiled.devices:
        raise CompileError(f"{cell.label}: needs more than the {compiled.devices} devices")
    return _Pricing(compiled, cell, table).cell_costs()


@dataclass(frozen=True)
class _Pricing:
    """Prices the terms of one cell."""

    compiled: Compiled
    cell: Cell
    table: Table

    def cell_costs(self) -> CellCosts:
        """Everything, put together."""
        layers, stages = range(self.compiled.layer_count), range(self.cell.stages)
        first_only = self.compiled.cost_model.synchronisation == "first_stage"
        cuts: dict[object, int] = {}
        same: dict[object, int] = {}
        return CellCosts(
            layers=len(layers),
            stages=len(stages),
            slots=self.cell.slots,
            choices=self.choices,
            memory=self.compiled.memory_quanta,
            positions=tuple(Position(self.loads(j), self.syncs(j), self.memory(j)) for j in stages),
            synchronised=(0,) if first_only else tuple(stages),
            has_dense=tuple(self.dense(i).weights > 0 for i in layers),
            has_expert=tuple(self.expert(i).weights > 0 for i in layers),
            same=tuple(
                same.setdefault((self.table.kind[i], self.dense(i)), len(same)) for i in layers
            ),
            # Layer 0 has no cut before it, which is not the same as a cut of no bytes.
            cut=tuple(
                cuts.setdefault((i == 0, self.table.cut_bytes[i]), len(cuts)) for i in layers
            ),
            marked=frozenset(
                i
                for constraint in self.compiled.search.constraints
                for i in constraint.marked_layers(self.compiled)
            ),
        )

    @property
    def choices(self) -> tuple[Choice, ...]:
        """(recomputation, ZeRO stage) of the search space, in its order."""
        search = self.compiled.search
        return tuple(Choice(kind, zero) for kind in search.recomputation for zero in search.zero)

    def dense(self, layer: int) -> StateBytes:
        """Dense state of a layer; a tied weight counts once in a pipeline of one stage."""
        return self.table.dense_state(layer, self.cell.stages)

    def expert(self, layer: int) -> StateBytes:
        """Expert state of a layer."""
        return self.table.layers[layer].expert

    def each_layer(self, price: Callable[[LayerKind, StateBytes], int]) -> tuple[int, ...]:
        """``price(kind, dense state)`` of every layer, equal layers priced once."""
        known: dict[tuple[int, bool], int] = {}
        prices = []
        for i, number in enumerate(self.table.kind):
            # Only the last layer can differ from its kind: a tied weight may be taken off it.
            key = number, i == len(self.table.kind) - 1
            if key not in known:
                known[key] = price(self.table.layers[i], self.dense(i))
            prices.append(known[key])
        return tuple(prices)

    def intervals(self, position: int) -> list[range]:
        """Devices of a stage, by replica."""
        return [interval(self.compiled, self.cell, r, position) for r in range(self.cell.replicas)]

    def dense_shapes(self, position: int) -> frozenset[GroupShape]:
        """Shapes of the groups that synchronise a stage's dense weights."""
        groups = dense_groups(self.cell, self.intervals(position))
        return frozenset(map(self.compiled.network.shape_of, groups))

    def expert_shapes(self, position: int) -> frozenset[GroupShape]:
        """Shapes of the groups that synchronise a stage's expert weights."""
        groups = expert_groups(self.cell, self.intervals(position))
        return frozenset(map(self.compiled.network.shape_of, groups))

    # --- load -------------------------------------------------------------------------------------

    def signatures(self, position: int) -> list[_ReplicaSignature]:
        """The different ways in which the replicas of a stage lie."""
        network, last = self.compiled.network, self.cell.stages - 1
        here = self.intervals(position)
        before = self.intervals(position - 1) if position > 0 else None
        after = self.intervals(position + 1) if position < last else None
        found: dict[_ReplicaSignature, None] = {}
        first_devices = self.compiled.cost_model.transfer_link == "first_devices"

        def link(others: list[range], r: int) -> int:
            """Class between this stage and a neighbour, in one replica."""
            if first_devices:
                return network.class_of([here[0][0], others[0][0]])
            return network.class_of([*here[r], *others[r]])

        for r, devices in enumerate(here):
            groups = axis_groups(self.cell, devices)
            signature = _ReplicaSignature(
                link(before, r) if before else None,
                link(after, r) if after else None,
                tuple(frozenset(map(network.shape_of, groups[axis])) for axis in AXES),
            )
            found[signature] = None
        return list(found)

    def loads(self, position: int) -> tuple[LoadRow, ...]:
        """One load row for each different way in which a replica's stage lies.

        Two where recomputation runs while the gradients arrive (`backward_again`): the load is at
        least that with the transfer and without recomputation, and at least that with recomputation
        and without the transfer.
        """
        gathers = {zero: self.zero_work(position, zero) for zero in self.compiled.search.zero}
        nothing = (0,) * self.compiled.layer_count
        rows = []
        for signature in self.signatures(position):
            compute = {
                kind: self.each_layer(self.compute(kind, signature))
                for kind in self.compiled.search.recomputation
            }
            ticks = self.table.transfer_ticks
            receive = nothing if signature.receive_class is None else ticks[signature.receive_class]
            send = nothing if signature.send_class is None else ticks[signature.send_class]
            work = {c: _plus(compute[c.recomputation], gathers[c.zero]) for c in self.choices}
            rows.append(LoadRow(work, receive, send))
            if self.backward_again and signature.send_class is not None:
                again = self.each_layer(lambda layer, _: layer.recompute)
                instead = {
                    c: _plus(work[c], again) if c.recomputation == "stage" else work[c]
                    for c in self.choices
                }
                rows.append(LoadRow(instead, receive, nothing))
        return _different(rows)

    @property
    def backward_again(self) -> bool:
        """Whether a stage recomputes at the cost of a backward pass, while the gradients arrive."""
        return self.compiled.cost_model.recomputation == "backward_again"

    def compute(
        self, recomputation: Recomputation, signature: _ReplicaSignature
    ) -> Callable[[LayerKind, StateBytes], int]:
        """Passes, recomputation and collectives of one layer, per microbatch."""

        def price(layer: LayerKind, _: StateBytes) -> int:
            ticks = layer.forward + layer.backward
            again = recomputation in ("layer", "stage") and not self.backward_again
            if recomputation == "selective":
                ticks += layer.recompute_selective
            elif again:
                ticks += layer.recompute
            for call in layer.calls:
                once = max(
                    self.compiled.collective_ticks(call.kind, call.bytes, shape)
                    for shape in signature.groups[AXES.index(call.axis)]
                )
                ticks += call.count * once * (2 if again and call.direction == "forward" else 1)
            return ticks

        return price

    def zero_work(self, position: int, zero: ZeroStage) -> tuple[int, ...]:
        """What ZeRO 2 and 3 add to each layer, per microbatch: they shard what every one needs."""
        if zero < 2:
            return (0,) * self.compiled.layer_count
        price = self.compiled.collective_ticks

        def of_kind(state: StateBytes, shapes: frozenset[GroupShape]) -> int:
            ticks = max(price("reduce_scatter", state.gradients, shape) for shape in shapes)
            if zero == 3:
                ticks += 2 * max(price("all_gather", state.weights, shape) for shape in shapes)
            return ticks

        dense_shapes, expert_shapes = self.dense_shapes(position), self.expert_shapes(position)
        return self.each_layer(
            lambda layer, dense: of_kind(dense, dense_shapes) + of_kind(layer.expert, expert_shapes)
        )

    # --- synchronisation --------------------------------------------------------------------------

    def syncs(self, position: int) -> tuple[SyncRow, ...]:
        """One row for each pair of a dense and an expert group shape."""
        zeros = self.compiled.search.zero
        share, latency = self.compiled.sync_share_ticks, self.compiled.sync_latency_ticks

        def share_of(
            zero: ZeroStage, dense_shape: GroupShape, expert_shape: GroupShape
        ) -> Callable[[LayerKind, StateBytes], int]:
            return lambda layer, dense: (
                share(zero, dense, dense_shape) + share(zero, layer.expert, expert_shape)
            )

        tied = self.tied_ring() if position in (0, self.cell.stages - 1) else 0
        return _different(
            SyncRow(
                share={z: self.each_layer(share_of(z, dense_shape, expert_shape)) for z in zeros},
                dense_latency={z: latency(z, dense_shape) for z in zeros},
                expert_latency={z: latency(z, expert_shape) for z in zeros},
                tied=tied,
            )
            for dense_shape in sorted(self.dense_shapes(position))
            for expert_shape in sorted(self.expert_shapes(position))
        )

    def tied_ring(self) -> int:
        """All-reduce of a tied weight's gradients between first and last stage, worst replica."""
        if self.cell.stages == 1 or not self.table.has_tied_weight:
            return 0
        return max(
            self.compiled.tied_ring_ticks(
                self.table.tied, self.compiled.network.class_of([*first, *last])
            )
            for first, last in zip(
                self.intervals(0), self.intervals(self.cell.stages - 1), strict=True
            )
        )

    # --- memory -----------------------------------------------------------------------------------

    def memory(self, position: int) -> dict[Choice, MemoryTerms]:
        """Memory terms by choice."""
        in_flight = self.cell.stages - position
        if self.compiled.cost_model.in_flight == "at_most_microbatches":
            in_flight = min(in_flight, self.cell.microbatches)
        nothing = (0,) * self.compiled.layer_count
        states = {zero: self.each_layer(self.state_at(zero)) for zero in self.compiled.search.zero}
        gathered = self.each_layer(self.gathered)
        kinds = self.compiled.search.recomputation
        left = {kind: self.each_layer(_left_behind(kind, in_flight)) for kind in kinds}
        working = {kind: self.each_layer(_working(kind)) for kind in kinds}
        entry = tuple(
            (in_flight - 1) * (cut if i else self.table.layers[0].checkpoint)
            for i, cut in enumerate(self.table.cut_quanta)
        )
        return {
            c: MemoryTerms(
                each=_plus(states[c.zero], left[c.recomputation]),
                working=working[c.recomputation],
                gathered=gathered if c.zero == 3 else nothing,
                entry=entry if c.recomputation == "stage" else nothing,
            )
            for c in self.choices
        }

    def state_at(self, zero: ZeroStage) -> Callable[[LayerKind, StateBytes], int]:
        """Quanta that one rank keeps of a layer's weights, gradients and optimizer state."""
        cell, quanta = self.cell, self.compiled.quanta
        expert_ranks = cell.replicas * cell.template.context
        dense_ranks = expert_ranks * cell.template.expert

        def kept(state: StateBytes, ranks: int) -> int:
            return (
                quanta(state.weights, ranks if zero >= 3 else 1)
                + quanta(state.gradients, ranks if zero >= 2 else 1)
                + quanta(state.optimizer, ranks if zero >= 1 else 1)
            )

        return lambda layer, dense: kept(dense, dense_ranks) + kept(layer.expert, expert_ranks)

    def gathered(self, layer: LayerKind, dense: StateBytes) -> int:
        """Quanta of a layer's full weights, which ZeRO 3 gathers while the layer runs."""
        return self.compiled.quanta(dense.weights) + self.compiled.quanta(layer.expert.weights)


def _left_behind(
    recomputation: Recomputation, in_flight: int
) -> Callable[[LayerKind, StateBytes], int]:
    """Quanta that the microbatches in flight leave behind, layer by layer.

    With `stage` the kept inputs are priced by where the stage starts; the layers hold the
    activations of the one microbatch that is worked on.
    """
    return {
        "none": lambda layer, _: in_flight * layer.activations,
        "selective": lambda layer, _: in_flight * layer.selective,
        "layer": lambda layer, _: in_flight * layer.checkpoint,
        "stage": lambda layer, _: layer.activations,
    }[recomputation]


def _working(recomputation: Recomputation) -> Callable[[LayerKind, StateBytes], int]:
    """Quanta of working memory, of which a stage needs that of its largest layer."""
    if recomputation == "selective":
        return lambda layer, _: layer.attention_core
    if recomputation == "layer":
        return lambda layer, _: layer.activations
    return lambda layer, _: 0


def _plus(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """Sums, one by one."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _different(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows without repetitions, in order."""
    kept: list[Row] = []
    for row in rows:
        if row not in kept:
            kept.append(row)
    return tuple(kept)
