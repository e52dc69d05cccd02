"""Cells and closed-form bounds once more, in plain Python, for whoever checks a certificate.

Nothing here knows of :mod:`nest_opt.cells`, :mod:`nest_opt.bounds` or :mod:`nest_opt.geometry`.
What is shared is the compiled problem, the price of one primitive, and what the network says about
sets of devices; where stages lie is stated here again.

Notation: L layers, N devices; a cell fixes b, the template (t, c, e; w = t * c * e devices wide),
d, s and the layout; m = ceil(G / (d * b * e)) microbatches; slots = m + s - 1. Stages are named by
the number q of stages behind them, so q = s - 1 is the first and q = 0 the last.

Every bound relaxes the cell: it holds for each plan of the cell, whatever its boundaries and
choices.

``work``
    With load_q and sigma_q of any plan, T >= slots * tau + sigma, where tau is at least the mean
    and the largest of the loads, and sigma at least the mean of the sigma_q; and T is at least the
    mean of slots * load_q + sigma_q. A sum over all stages is at least the sum over all layers of
    what each costs where, and under the choice for which, it is cheapest. Loads are those of
    replica 0 (the largest of all replicas is no smaller), synchronisation that of one group shape
    of the stage (the worst is no smaller).
``may_reach``
    Only layers of the most frequent kind strictly between first and last are counted; the others
    are left out, which makes no stage dearer. If T <= limit, let u be the largest synchronisation
    that remains: every load is at most (limit - u) // slots and every synchronisation at most u. So
    if for each u the stages together have room for fewer layers than are counted, there is no such
    plan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

from nest_opt.collectives import bandwidth_seconds
from nest_opt.compile import Compiled, StateBytes, Table
from nest_opt.evaluate import Evaluator
from nest_opt.network import GroupShape
from nest_opt.plan import Layout, Plan, Recomputation, StagePlan, Template

Shapes = frozenset[GroupShape]

#: Larger than any price.
_INFINITE = 2**63


@dataclass(frozen=True)
class OwnCell:
    """One cell: everything but the stage boundaries and the choices of each stage."""

    template: Template
    replicas: int
    layout: Layout
    microbatch: int
    stages: int

    def microbatches(self, global_batch: int) -> int:
        """m, the microbatches that pass through each replica, the last one padded."""
        return -(-global_batch // (self.replicas * self.microbatch * self.template.expert))

    @property
    def label(self) -> str:
        """The name that a certificate calls it by: ``b1 d2 t4s s3 pipeline-inner``."""
        return (
            f"b{self.microbatch} d{self.replicas} {self.template.label} "
            f"s{self.stages} {self.layout}"
        )


def own_cells(compiled: Compiled) -> list[OwnCell]:
    """Every cell of the search space, once; templates that the model cannot use are left out."""
    search, devices, batch = compiled.search, compiled.devices, compiled.global_batch
    unusable = {template for template, _ in compiled.skipped}
    stage_counts = (
        range(1, compiled.layer_count + 1)
        if search.stages == "any"
        else [s for s in search.stages if s <= compiled.layer_count]
    )
    cells: dict[OwnCell, None] = {}
    for t, c, e, sequence_parallel in product(
        search.tensor, search.context, search.expert, search.sequence_parallel
    ):
        # Sequence parallelism requires t > 1; elsewhere the two templates are one.
        template = Template(t, c, e, sequence_parallel and t > 1)
        if template in unusable:
            continue
        for b, d in product(search.microbatch, range(1, devices // template.width + 1)):
            if search.data_parallel == "any":
                allowed = d <= -(-batch // (b * e))
            elif search.data_parallel == "even":
                allowed = batch % (d * b * e) == 0
            else:
                allowed = d in search.data_parallel
            if not allowed:
                continue
            for s, layout in product(stage_counts, search.layouts):
                if layout == "pipeline-inner":
                    fits = s * template.width <= devices // d
                else:
                    fits = d * s * template.width <= devices
                if fits:
                    cells[OwnCell(template, d, layout, b, s)] = None
    return list(cells)


def own_interval(
    devices: int, template: Template, replicas: int, layout: str, replica: int, behind: int
) -> range:
    """Devices of one stage of one replica with ``behind`` stages behind it."""
    width = template.width
    if layout == "pipeline-inner":
        start = replica * (devices // replicas) + behind * width
    else:
        start = replicas * behind * width + replica * width
    return range(start, start + width)


def own_plan(compiled: Compiled, cell: OwnCell) -> Plan:
    """Some plan of a cell, feasible or not: one layer in each stage, the rest in the last."""
    last = cell.stages - 1
    return Plan(
        digest=compiled.digest,
        microbatch=cell.microbatch,
        replicas=cell.replicas,
        microbatches=cell.microbatches(compiled.global_batch),
        layout=cell.layout,
        template=cell.template,
        stages=tuple(
            StagePlan(
                layers=(j, j + 1 if j < last else compiled.layer_count),
                recomputation=compiled.search.recomputation[0],
                zero=compiled.search.zero[0],
                devices=tuple(
                    tuple(
                        own_interval(
                            compiled.devices,
                            cell.template,
                            cell.replicas,
                            cell.layout,
                            r,
                            last - j,
                        )
                    )
                    for r in range(cell.replicas)
                ),
            )
            for j in range(cell.stages)
        ),
    )


def excluded_by(evaluator: Evaluator, cell: OwnCell) -> str | None:
    """The constraint that every plan of a cell breaks, by its own check; None if there is none.

    A breach of some plan that is said to be one of the whole cell, whatever its boundaries and
    choices.
    """
    if not evaluator.compiled.search.constraints:
        return None
    breaches = evaluator.breaches(own_plan(evaluator.compiled, cell))
    return next((breach.constraint for breach in breaches if breach.whole_cell), None)


class Way(NamedTuple):
    """How one replica of a stage lies: shapes of its axis groups, classes to its neighbours."""

    tensor: Shapes
    context: Shapes
    expert: Shapes
    before: int | None
    behind: int | None


class _Stage(NamedTuple):
    """Least costs of a stage by the number n of counted layers that it holds, none ever falling.

    ``options`` has, for each choice, the load by n, the synchronisation by n, and the most n that
    fit into memory (-1 if not even none).
    """

    options: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]

    def most(self, max_load: int, max_sync: int) -> int:
        """Most counted layers under both limits and the memory, -1 if not even none."""
        return max(
            min(fit, bisect_right(load, max_load) - 1, bisect_right(sync, max_sync) - 1)
            for load, sync, fit in self.options
        )


class OwnBounds:
    """Lower bounds on the batch time of the cells of one problem, in ticks."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._interval_shapes = cache(self._compute_interval_shapes)
        self.sync_shapes = cache(self._compute_sync_shapes)
        self.ways = cache(self._compute_ways)
        self._least_load = cache(self._compute_least_load)
        self._dearest = cache(self._compute_dearest)
        self._stages: dict[tuple[object, ...], _Stage] = {}
        self._family: tuple[object, ...] = ()

    # --- where stages lie -------------------------------------------------------------------------

    def _shapes(self, groups: Sequence[Sequence[int]]) -> Shapes:
        return frozenset(self.compiled.network.shape_of(group) for group in groups)

    def _compute_interval_shapes(
        self, template: Template, devices: range
    ) -> tuple[Shapes, Shapes, Shapes]:
        """Shapes of the tensor, context and expert groups; tensor index fastest, then context."""
        t, c, e = template.tensor, template.context, template.expert
        ranks = {
            (i, j, k): devices[i + t * j + t * c * k]
            for i, j, k in product(range(t), range(c), range(e))
        }
        return (
            self._shapes(
                [[ranks[i, j, k] for i in range(t)] for j, k in product(range(c), range(e))]
            ),
            self._shapes(
                [[ranks[i, j, k] for j in range(c)] for i, k in product(range(t), range(e))]
            ),
            self._shapes(
                [[ranks[i, j, k] for k in range(e)] for i, j in product(range(t), range(c))]
            ),
        )

    def _compute_sync_shapes(
        self, template: Template, replicas: int, layout: Layout, behind: int
    ) -> tuple[Shapes, Shapes]:
        """Shapes of the groups that synchronise dense and expert weights of a stage."""
        t, c = template.tensor, template.context
        dense: dict[int, list[int]] = {}
        expert: dict[tuple[int, int], list[int]] = {}
        for r in range(replicas):
            devices = own_interval(self.compiled.devices, template, replicas, layout, r, behind)
            for rank, device in enumerate(devices):
                dense.setdefault(rank % t, []).append(device)
                expert.setdefault((rank % t, rank // (t * c)), []).append(device)
        of_dense = self._shapes(list(dense.values()))
        # With one expert rank both kinds are shared by the same groups.
        return of_dense, of_dense if template.expert == 1 else self._shapes(list(expert.values()))

    def _compute_ways(
        self, template: Template, replicas: int, layout: Layout, behind: int, is_first: bool
    ) -> frozenset[Way]:
        """The different ways in which the replicas of a stage lie."""
        found = set()
        for r in range(replicas):

            def interval(q: int, r: int = r) -> range:
                return own_interval(self.compiled.devices, template, replicas, layout, r, q)

            def link(q: int, r: int = r) -> int:
                """Class between the stages with q and q + 1 behind them."""
                if self.compiled.cost_model.transfer_link == "first_devices":
                    return self.compiled.network.class_of(
                        [interval(q, 0)[0], interval(q + 1, 0)[0]]
                    )
                return self.compiled.network.class_of([*interval(q, r), *interval(q + 1, r)])

            found.add(
                Way(
                    *self._interval_shapes(template, interval(behind)),
                    before=None if is_first else link(behind),
                    behind=link(behind - 1) if behind else None,
                )
            )
        return frozenset(found)

    # --- what a layer costs -----------------------------------------------------------------------

    def layer_load(
        self, table: Table, layer: int, recomputation: Recomputation, shapes: Sequence[Shapes]
    ) -> int:
        """Passes, recomputation and collectives of a layer in an interval with those groups."""
        costs = table.layers[layer]
        forward = every = 0
        for call in costs.calls:
            worst = max(
                self.compiled.collective_ticks(call.kind, call.bytes, shape)
                for shape in shapes[("tensor", "context", "expert").index(call.axis)]
            )
            every += call.count * worst
            forward += call.count * worst if call.direction == "forward" else 0
        load = costs.forward + costs.backward + every
        if recomputation == "selective":
            load += costs.recompute_selective
        elif recomputation in ("layer", "stage") and not self.backward_again:
            load += costs.recompute + forward
        return load

    @property
    def backward_again(self) -> bool:
        """Whether a stage's recomputation depends on what it waits for, and so on its place."""
        return self.compiled.cost_model.recomputation == "backward_again"

    def states(self, table: Table, layer: int, stages: int) -> tuple[StateBytes, StateBytes]:
        """Dense and expert state of a layer in a pipeline of so many stages."""
        return table.dense_state(layer, stages), table.layers[layer].expert

    def zero_load(self, states: Sequence[StateBytes], zero: int, shapes: Sequence[Shapes]) -> int:
        """What ZeRO 2 and 3 exchange for a layer per microbatch, each call in its worst group."""
        price, ticks = self.compiled.collective_ticks, 0
        if zero >= 2:
            for state, of_kind in zip(states, shapes, strict=True):
                ticks += max(price("reduce_scatter", state.gradients, x) for x in of_kind)
                if zero >= 3:
                    ticks += 2 * max(price("all_gather", state.weights, x) for x in of_kind)
        return ticks

    # --- work -------------------------------------------------------------------------------------

    def work(self, cell: OwnCell) -> int:
        """A lower bound on T of every plan of the cell."""
        compiled, s = self.compiled, cell.stages
        slots = cell.microbatches(self.compiled.global_batch) + s - 1
        table = compiled.tables[cell.template, cell.microbatch]
        # The last layer is priced on its own: a tied weight may be taken off it.
        layers = Counter(table.kind[:-1])
        examples = [(table.kind.index(kind), times) for kind, times in layers.items()]
        examples.append((len(table.kind) - 1, 1))

        intervals = [
            own_interval(compiled.devices, cell.template, cell.replicas, cell.layout, 0, q)
            for q in range(s)
        ]
        places = {self._interval_shapes(cell.template, interval) for interval in intervals}
        loads = {
            i: min(self._least_load(cell.template, cell.microbatch, i, place) for place in places)
            for i, _ in examples
        }
        of_pair = compiled.network.class_of
        if compiled.cost_model.transfer_link == "first_devices":
            links = [of_pair([x[0], y[0]]) for x, y in pairwise(intervals)]
        else:
            links = [of_pair([*x, *y]) for x, y in pairwise(intervals)]
        transfers = [min(table.transfer_ticks[link][1:]) for link in links]
        total = sum(times * loads[i] for i, times in examples) + 2 * sum(transfers)
        largest = max(loads.values()) + min(transfers, default=0)
        tau = max(-(-total // s), largest)

        groups = {self._sync_of(cell, q) for q in range(s)}
        sync = joint = 0
        for i, times in examples:
            states = self.states(table, i, s)
            prices = [
                (self.zero_load(states, zero, shapes), self._share(states, zero, shapes))
                for shapes in groups
                for zero in compiled.search.zero
            ]
            sync += times * min(share for _, share in prices)
            joint += times * min(slots * load + share for load, share in prices)
        multiple = compiled.sync_multiple
        sigma = -(-sync // (s * multiple)) * multiple
        return max(slots * tau + sigma, -(-(slots * total + joint) // s))

    def _compute_least_load(
        self, template: Template, microbatch: int, layer: int, shapes: Sequence[Shapes]
    ) -> int:
        table = self.compiled.tables[template, microbatch]
        return min(
            self.layer_load(table, layer, recomputation, shapes)
            for recomputation in self.compiled.search.recomputation
        )

    def _sync_of(self, cell: OwnCell, behind: int) -> tuple[Shapes, Shapes]:
        return self.sync_shapes(cell.template, cell.replicas, cell.layout, behind)

    def _compute_dearest(self, shapes: Shapes) -> GroupShape:
        """The shape with the dearest byte. Any shape would do: a stage pays for its worst."""
        network, algorithm = self.compiled.network, self.compiled.all_reduce
        return max(
            sorted(shapes),
            key=lambda shape: bandwidth_seconds(
                "all_gather", Fraction(1), shape, network.classes, algorithm
            ),
        )

    def _share(self, states: Sequence[StateBytes], zero: int, shapes: Sequence[Shapes]) -> int:
        """A layer's share of its stage's synchronisation; nothing where only one stage counts."""
        if self.compiled.cost_model.synchronisation == "first_stage":
            return 0
        return sum(
            self.compiled.sync_share_ticks(zero, state, self._dearest(of_kind))
            for state, of_kind in zip(states, shapes, strict=True)
        )

    # --- counting ---------------------------------------------------------------------------------

    def may_reach(self, cell: OwnCell, limit: int | None) -> bool:
        """Whether counting leaves room for a plan with T <= ``limit``; False is a proof.

        Without a limit the question is whether any plan fits into memory.
        """
        table = self.compiled.tables[cell.template, cell.microbatch]
        inner = Counter(table.kind[1:-1])
        kind, needed = max(inner.items(), key=lambda item: item[1]) if inner else (-1, 0)
        counted = table.kind.index(kind) if inner else None
        stages = Counter(self._stage(cell, table, q, counted, needed) for q in range(cell.stages))

        def has_room(max_load: int, max_sync: int) -> bool:
            total = 0
            for stage, times in stages.items():
                most = stage.most(max_load, max_sync)
                if most < 0:
                    return False
                total += times * most
            return total >= needed

        if limit is None:
            return has_room(_INFINITE, _INFINITE)
        slots = cell.microbatches(self.compiled.global_batch) + cell.stages - 1
        values = sorted({u for stage in stages for _, sync, _ in stage.options for u in sync})
        # No stage can synchronise less than its cheapest choice does without counted layers.
        least = max(min(sync[0] for _, sync, _ in stage.options) for stage in stages)
        values = values[bisect_left(values, least) : bisect_right(values, limit)]
        ranges = [(0, len(values) - 1)] if values else []
        while ranges:
            # If there is no room with the largest u of a range and the loads of its smallest, none
            # of its values leaves room.
            low, high = ranges.pop()
            if has_room((limit - values[low]) // slots, values[high]):
                if low == high:
                    return True
                middle = (low + high) // 2
                ranges += [(low, middle), (middle + 1, high)]
        return False

    def _stage(
        self, cell: OwnCell, table: Table, behind: int, counted: int | None, needed: int
    ) -> _Stage:
        family = (cell.template, cell.replicas, cell.layout, cell.microbatch)
        if family != self._family:
            self._family, self._stages = family, {}
        is_first = behind == cell.stages - 1
        last_layer = len(table.layers) - 1
        fixed = tuple(
            sorted(({0} if is_first else set()) | ({last_layer} if behind == 0 else set()))
        )
        ways = self.ways(cell.template, cell.replicas, cell.layout, behind, is_first)
        shapes = self._sync_of(cell, behind)
        in_flight = behind + 1
        if self.compiled.cost_model.in_flight == "at_most_microbatches":
            in_flight = min(in_flight, cell.microbatches(self.compiled.global_batch))
        key = (fixed, ways, shapes, in_flight, cell.stages == 1, is_first)
        if key not in self._stages:
            layers = _Layers(fixed, counted, needed)
            self._stages[key] = self._compute_stage(
                cell, table, layers, ways, shapes, in_flight, is_first
            )
        return self._stages[key]

    def _compute_stage(
        self,
        cell: OwnCell,
        table: Table,
        layers: _Layers,
        ways: frozenset[Way],
        shapes: tuple[Shapes, Shapes],
        in_flight: int,
        is_first: bool,
    ) -> _Stage:
        search = self.compiled.search
        counts = self.compiled.cost_model.synchronisation == "slowest_stage" or is_first
        sync = {
            zero: self._sync_by_count(table, layers, zero, shapes, cell.stages)
            if counts
            else (0,) * (layers.needed + 1)
            for zero in search.zero
        }
        options = []
        for recomputation, zero in product(search.recomputation, search.zero):
            load = self._load_by_count(
                table, layers, recomputation, zero, ways, shapes, cell.stages
            )
            memory = self._memory_by_count(cell, table, layers, recomputation, zero, in_flight)
            fit = bisect_right(memory, self.compiled.memory_quanta) - 1
            options.append((load, sync[zero], fit))
        return _Stage(tuple(options))

    def _load_by_count(
        self,
        table: Table,
        layers: _Layers,
        recomputation: Recomputation,
        zero: int,
        ways: frozenset[Way],
        shapes: tuple[Shapes, Shapes],
        stages: int,
    ) -> tuple[int, ...]:
        by_way = []
        for way in ways:
            groups = (way.tensor, way.context, way.expert)
            into, back = (
                0 if link is None else min(table.transfer_ticks[link][1:])
                for link in (way.before, way.behind)
            )
            load = layers.sums(
                lambda i, groups=groups: self.layer_load(  # type: ignore[misc]
                    table, i, recomputation, groups
                ),
                into,
            )
            # The pass that is run again in the time in which the gradients arrive.
            again = [0] * len(load)
            if recomputation == "stage" and self.backward_again and way.behind is not None:
                again = layers.sums(lambda i: table.layers[i].recompute)
            by_way.append([x + max(y, back) for x, y in zip(load, again, strict=True)])
        zero_load = layers.sums(
            lambda i: self.zero_load(self.states(table, i, stages), zero, shapes)
        )
        return tuple(max(loads) + extra for *loads, extra in zip(*by_way, zero_load, strict=True))

    def _sync_by_count(
        self,
        table: Table,
        layers: _Layers,
        zero: int,
        shapes: tuple[Shapes, Shapes],
        stages: int,
    ) -> tuple[int, ...]:
        total = [0] * (layers.needed + 1)
        for which, of_kind in enumerate(shapes):
            by_shape = []
            held = layers.maxima(lambda i, w=which: self.states(table, i, stages)[w].weights > 0)  # type: ignore[misc]
            for shape in of_kind:
                latency = self.compiled.sync_latency_ticks(zero, shape)
                shares = layers.sums(
                    lambda i, w=which, shape=shape: self.compiled.sync_share_ticks(  # type: ignore[misc]
                        zero, self.states(table, i, stages)[w], shape
                    )
                )
                by_shape.append([a + latency * b for a, b in zip(shares, held, strict=True)])
            total = [a + max(b) for a, *b in zip(total, *by_shape, strict=True)]
        return tuple(total)

    def _memory_by_count(
        self,
        cell: OwnCell,
        table: Table,
        layers: _Layers,
        recomputation: Recomputation,
        zero: int,
        in_flight: int,
    ) -> tuple[int, ...]:
        """Quanta that a stage holds at least."""
        quanta, template = self.compiled.quanta, cell.template
        ranks = (
            cell.replicas * template.context * template.expert,
            cell.replicas * template.context,
        )

        def state(i: int) -> int:
            return sum(
                quanta(kept.weights, shared if zero >= 3 else 1)
                + quanta(kept.gradients, shared if zero >= 2 else 1)
                + quanta(kept.optimizer, shared if zero >= 1 else 1)
                for kept, shared in zip(self.states(table, i, cell.stages), ranks, strict=True)
            )

        parts = [layers.sums(state)]
        if zero >= 3:
            parts.append(
                layers.maxima(
                    lambda i: sum(quanta(s.weights) for s in self.states(table, i, cell.stages))
                )
            )
        if recomputation == "none":
            parts.append(layers.sums(lambda i: in_flight * table.layers[i].activations))
        elif recomputation == "selective":
            parts.append(layers.sums(lambda i: in_flight * table.layers[i].selective))
            parts.append(layers.maxima(lambda i: table.layers[i].attention_core))
        elif recomputation == "layer":
            parts.append(layers.sums(lambda i: in_flight * table.layers[i].checkpoint))
            parts.append(layers.maxima(lambda i: table.layers[i].activations))
        else:
            # Where a stage starts is open, but for the first: the smallest cut is kept at least.
            first = table.layers[0].checkpoint
            kept = first if 0 in layers.fixed else min(table.cut_quanta[1:])
            parts.append(layers.sums(lambda i: table.layers[i].activations, (in_flight - 1) * kept))
        return tuple(map(sum, zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Layers:
    """Layers that a stage holds for certain, and up to ``needed`` equal ones besides."""

    fixed: tuple[int, ...]
    counted: int | None
    needed: int

    def sums(self, value: Callable[[int], int], base: int = 0) -> list[int]:
        """By n: ``base``, and the sum over the fixed and n counted layers."""
        base += sum(value(i) for i in self.fixed)
        each = 0 if self.counted is None else value(self.counted)
        return [base + n * each for n in range(self.needed + 1)]

    def maxima(self, value: Callable[[int], int]) -> list[int]:
        """By n: the largest among the fixed and n counted layers."""
        base = max((value(i) for i in self.fixed), default=0)
        each = 0 if self.counted is None else value(self.counted)
        return [int(base)] + [int(max(base, each))] * self.needed
