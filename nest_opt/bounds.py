"""Closed-form lower bounds on the batch time of a cell, in exact integers.

Two of them, both valid for every plan of a cell. ``work`` spreads the whole model's time and
synchronisation evenly over the stages. ``may_reach`` counts: under a batch-time limit each stage
has room for only so many of the model's most frequent layer, and if the room of all stages together
is less than there are such layers, no plan meets the limit. For the usual Transformer (embedding,
equal blocks, head) nothing is lost in counting but the order of the boundaries.

``verify`` computes both anew in code of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import lcm

import numpy as np
import numpy.typing as npt

from nest_opt.cells import Cell
from nest_opt.collectives import bandwidth_seconds
from nest_opt.compile import Compiled, StateBytes, Table
from nest_opt.geometry import Geometry, Ints, Position, Shapes, Signature
from nest_opt.network import GeneralNetwork, GroupShape
from nest_opt.plan import RECOMPUTATIONS, Layout, Recomputation, Template
from nest_opt.problem import exact

Flags = npt.NDArray[np.bool_]

#: Larger than any price; a limit that limits nothing.
UNLIMITED = 2**62
#: The range of synchronisations is split into at most this many parts when a limit is tested.
_MAX_PARTS = 256


@dataclass(frozen=True)
class _Work:
    """Totals over all layers of one (template, microbatch), ticks and bytes."""

    compute: int
    largest: int
    transfer: tuple[int, ...]
    state: dict[str, StateBytes]


@dataclass(frozen=True)
class _Spread:
    """The whole model in one family at least: per ZeRO stage, added load and synchronisation.

    ``added`` has, for each kind of weights, (load, sync) of every ZeRO stage, in ticks over
    ``denominator``. Kinds are kept apart because each may have its own best ZeRO stage.
    """

    added: tuple[tuple[tuple[int, int], ...], ...]
    denominator: int
    link_class: int


class Bounds:
    """Bounds for the cells of one problem; shares work between cells."""

    def __init__(self, compiled: Compiled, geometry: Geometry) -> None:
        self.compiled = compiled
        self.geometry = geometry
        self._work_of = cache(self._compute_work)
        self._spread_of = cache(self._compute_spread)
        self._room_of = cache(self._compute_room)

    # --- the work bound ---------------------------------------------------------------------------

    def work(self, cell: Cell) -> int:
        """A lower bound on T: total work over the number of stages. O(1) per cell."""
        work = self._work_of(cell.template, cell.microbatch)
        spread = self._spread_of(cell.template, cell.microbatch, cell.replicas, cell.layout)
        s, slots = cell.stages, cell.slots
        transfer = work.transfer[spread.link_class] if s > 1 else 0
        total = work.compute + 2 * (s - 1) * transfer
        tau = max(-(-total // s), work.largest + transfer)
        multiple, denominator = self.compiled.sync_multiple, spread.denominator
        sync = sum(min(sync for _, sync in kind) for kind in spread.added)
        separate = slots * tau - (-sync // (s * multiple * denominator)) * multiple
        # T is at least the mean over stages of slots * load + synchronisation, whatever their ZeRO.
        least = sum(min(slots * load + sync for load, sync in kind) for kind in spread.added)
        joint = slots * total * denominator + least
        return max(separate, -(-joint // (s * denominator)))

    def _compute_work(self, template: Template, microbatch: int) -> _Work:
        table = self.compiled.tables[template, microbatch]
        recomputation = self.compiled.search.recomputation
        load_of: dict[int, int] = {}
        for kind, layer in dict(zip(table.kind, table.layers, strict=True)).items():
            load = layer.forward + layer.backward
            forward = 0
            for call in layer.calls:
                ticks = call.count * self._cheapest_call(template, call.kind, call.axis, call.bytes)
                load += ticks
                forward += ticks if call.direction == "forward" else 0
            full = layer.recompute + forward
            if self.compiled.cost_model.recomputation == "backward_again":
                full = 0  # in the last stage; elsewhere it hides no more than the transfer
            extra = {
                "none": 0,
                "selective": layer.recompute_selective,
                "layer": full,
                "stage": full,
            }
            load_of[kind] = load + min(extra[again] for again in recomputation)
        loads = [load_of[kind] for kind in table.kind]
        cuts = range(1, len(table.layers))
        return _Work(
            compute=sum(loads),
            largest=max(loads),
            transfer=tuple(min((row[i] for i in cuts), default=0) for row in table.transfer_ticks),
            state={
                "dense": _total(table.dense_state(i, 1) for i in range(len(table.layers))),
                "expert": _total(layer.expert for layer in table.layers),
            },
        )

    def _cheapest_call(self, template: Template, kind: str, axis: str, size: Fraction) -> int:
        """Least price of a call over all places where an interval can start."""
        price = self.compiled.collective_ticks
        return min(
            max(price(kind, size, shape) for shape in shapes)  # type: ignore[arg-type]
            for shapes in self.geometry.axis_shapes(template, axis)
        )

    def _compute_spread(
        self, template: Template, microbatch: int, replicas: int, layout: Layout
    ) -> _Spread:
        compiled = self.compiled
        exposed = compiled.cost_model.exposed
        on_load, on_sync = exact(exposed.collectives), exact(exposed.synchronisation)
        if compiled.cost_model.synchronisation == "first_stage":
            on_sync = Fraction(0)
        sizes = {
            "dense": replicas * template.context * template.expert,
            "expert": replicas * template.context,
        }
        added: list[list[tuple[Fraction, Fraction]]] = []
        for kind, state in self._work_of(template, microbatch).state.items():
            gather = self._cheapest_seconds_per_byte(template, replicas, layout, sizes[kind])
            ticks = gather / compiled.tick_seconds
            gradients, weights = state.gradients * ticks, state.weights * ticks
            reduced = 2 * gradients
            if compiled.all_reduce == "tree":
                reduced = self._tree_seconds(state.gradients, sizes[kind]) / compiled.tick_seconds
            # (on every microbatch, once per batch)
            carried = {
                0: (Fraction(0), reduced),
                1: (Fraction(0), gradients + weights),
                2: (gradients, weights),
                3: (gradients + 2 * weights, Fraction(0)),
            }
            added.append(
                [
                    (carried[zero][0] * on_load, carried[zero][1] * on_sync)
                    for zero in compiled.search.zero
                ]
            )
        link_class = self._least_link_class(template, replicas, layout)
        denominator = lcm(*(x.denominator for pairs in added for pair in pairs for x in pair))
        scaled = tuple(
            tuple((int(load * denominator), int(sync * denominator)) for load, sync in pairs)
            for pairs in added
        )
        return _Spread(scaled, denominator, link_class)

    def _least_link_class(self, template: Template, replicas: int, layout: Layout) -> int:
        """Least class of a transfer between neighbouring stages, in any replica."""
        network, width = self.compiled.network, template.width
        if isinstance(network, GeneralNetwork):
            joins = self.geometry.joins(template, replicas, layout)
            return int(joins.min()) if len(joins) else 0
        apart = width if layout == "pipeline-inner" else replicas * width
        span = apart + (1 if self.compiled.cost_model.transfer_link == "first_devices" else width)
        return next(
            (k for k, size in enumerate(network.block) if span <= size), len(network.block) - 1
        )

    def _cheapest_seconds_per_byte(
        self, template: Template, replicas: int, layout: Layout, size: int
    ) -> Fraction:
        """Least inverse bandwidth of a reduce-scatter or all-gather over a synchronising group.

        With S_k the buffer that reaches level k, the time is B_0 S_0 + sum of (B_k - B_(k-1)) S_k -
        B_last S_last+1; S_k is S over the product of the branching below, which is at most what the
        layout puts into one block, and the last is at most S / size.
        """
        network = self.compiled.network
        inverse = [c.seconds_per_byte for c in network.classes]
        if size == 1:
            return Fraction(0)
        if self.compiled.all_reduce != "hierarchical" or isinstance(network, GeneralNetwork):
            return Fraction(size - 1, size) * inverse[0]
        per_replica = template.width // template.tensor
        stride = network.devices // replicas if layout == "pipeline-inner" else template.width
        total, product, below = inverse[0], 1, 1
        for k in range(len(inverse) - 1):
            block = network.block[k]
            if k == 0:
                # Members of one replica lie a tensor degree apart, replicas a stride apart.
                most = min(-(-block // template.tensor), ((block - 1) // stride + 2) * per_replica)
                if per_replica == 1:
                    most = min(most, (block - 1) // stride + 1)
            else:
                most = block // below
            product *= max(1, min(most, size))
            below = block
            total += (inverse[k + 1] - inverse[k]) / product
        # The product of the branching is at least the number of members.
        flat = total - inverse[-1] / size
        return max(flat, Fraction(size - 1, size) * inverse[0])

    def _tree_seconds(self, size_bytes: Fraction, ranks: int) -> Fraction:
        """Least bandwidth part of a tree all-reduce: that of a group inside one level-0 block."""
        inside = GroupShape(ranks, 0, ())
        classes = self.compiled.network.classes
        return bandwidth_seconds("all_reduce", size_bytes, inside, classes, "tree")

    # --- the counting bound -----------------------------------------------------------------------

    def may_reach(self, cell: Cell, limit: int) -> bool:
        """Whether counting leaves room for a plan with T <= ``limit``; False is a proof.

        ``limit`` UNLIMITED asks about memory alone. For T <= limit there is a bound u on the
        synchronisation with every load at most (limit - u) // slots; the range of u is halved until
        each part is refused or too many parts are left.
        """
        room = self._room_of(
            cell.microbatch, cell.template, cell.replicas, cell.layout, cell.microbatches
        )
        stages = room.of(cell.stages)
        if limit >= UNLIMITED:
            return stages.room(UNLIMITED, UNLIMITED)
        values = stages.sync_values()
        values = values[values <= limit]
        if len(values) == 0:
            return False
        parts = [(0, len(values) - 1)]
        for _ in range(_MAX_PARTS):
            if not parts:
                return False
            low, high = parts.pop()
            max_load = (limit - int(values[low])) // cell.slots
            if stages.room(max_load, int(values[high])):
                if low == high:
                    return True
                middle = (low + high) // 2
                parts += [(low, middle), (middle + 1, high)]
        return True

    def _compute_room(
        self,
        microbatch: int,
        template: Template,
        replicas: int,
        layout: Layout,
        microbatches: int,
    ) -> _Room:
        table = self.compiled.tables[template, microbatch]
        positions = self.geometry.positions(template, replicas, layout)
        return _Room(self.compiled, table, positions, replicas, microbatches)


def _total(states: Iterable[StateBytes]) -> StateBytes:
    total = StateBytes(Fraction(0), Fraction(0), Fraction(0))
    for state in states:
        total = StateBytes(
            total.weights + state.weights,
            total.gradients + state.gradients,
            total.optimizer + state.optimizer,
        )
    return total


def _worst(price: Callable[[GroupShape], int], shapes: Shapes) -> int:
    return max(price(shape) for shape in shapes)


@dataclass(frozen=True)
class _Stages:
    """Per stage of one pipeline and number n of counted layers in it, what it costs at least.

    ``load[q, c, n]``, ``sync[q, c, n]``, ``fits[q, c, n]`` with c the per-stage choice. ``needed``
    is the number of counted layers in the model.
    """

    load: Ints
    sync: Ints
    fits: Flags
    needed: int

    def room(self, max_load: int, max_sync: int) -> bool:
        """Whether the stages together have room for the counted layers under both limits."""
        within = self.fits & (self.load <= max_load) & (self.sync <= max_sync)
        allowed = np.any(within, axis=1)
        if not allowed[:, 0].all():
            return False
        # Costs never fall as n grows, so the allowed n are 0..most.
        most = self.needed - np.argmax(allowed[:, ::-1], axis=1)
        return int(most.sum()) >= self.needed

    def sync_values(self) -> Ints:
        """Every value that the largest synchronisation can have here, ascending.

        Values below the largest of the least ones (n = 0) cannot be met by every stage.
        """
        floor = int(self.sync[:, :, 0].min(axis=1).max())
        values = np.unique(self.sync)
        result: Ints = np.union1d(values[values >= floor], np.array([floor]))
        return result


class _Room:
    """Least costs of a stage by the number of counted layers, for all positions of one family.

    Counted are the layers strictly between first and last that are of the most frequent kind. The
    first layer always lies in the first stage and the last in the last; all others are left out,
    which can only make stages cheaper.
    """

    def __init__(
        self,
        compiled: Compiled,
        table: Table,
        positions: tuple[Position, ...],
        replicas: int,
        microbatches: int,
    ) -> None:
        self.compiled = compiled
        self.table = table
        self.positions = positions
        self.microbatches = microbatches
        count = len(table.layers)
        inner = Counter(table.kind[1 : count - 1])
        kind, self.needed = inner.most_common(1)[0] if inner else (-1, 0)
        self.counted = table.kind.index(kind) if inner else None
        template = table.template
        self.shards = {
            "dense": replicas * template.context * template.expert,
            "expert": replicas * template.context,
        }
        self.numbers = np.arange(self.needed + 1, dtype=np.int64)
        self.choices: list[tuple[Recomputation, int]] = [
            (recomputation, zero)
            for recomputation in RECOMPUTATIONS
            if recomputation in compiled.search.recomputation
            for zero in sorted(compiled.search.zero)
        ]
        self._parts: dict[tuple[object, ...], Ints] = {}

    def of(self, stages: int) -> _Stages:
        """The pipeline of the first ``stages`` positions."""
        load, sync, fits = [], [], []
        last_layer = len(self.table.layers) - 1
        for q in range(stages):
            fixed = ((0,) if q == stages - 1 else ()) + (
                (last_layer,) if q == 0 and (last_layer or stages > 1) else ()
            )
            alone = stages == 1
            position = self.positions[q]
            signatures = position.as_first if q == stages - 1 else position.as_later
            load.append(self._load(fixed, signatures, position, alone))
            sync.append(self._sync(fixed, position, alone, q == stages - 1))
            capped = self.compiled.cost_model.in_flight == "at_most_microbatches"
            in_flight = min(q + 1, self.microbatches) if capped else q + 1
            fits.append(self._memory(fixed, in_flight, alone))
        limit = self.compiled.memory_quanta
        return _Stages(np.stack(load), np.stack(sync), np.stack(fits) <= limit, self.needed)

    def _sum(self, fixed: tuple[int, ...], value: Callable[[int], int]) -> Ints:
        """``[n]``: value summed over the fixed layers and n counted ones."""
        base = sum(value(i) for i in fixed)
        each = value(self.counted) if self.counted is not None else 0
        return base + self.numbers * each

    def _largest(self, fixed: tuple[int, ...], value: Callable[[int], int]) -> Ints:
        """``[n]``: value's maximum over the fixed layers and n counted ones."""
        base = max((value(i) for i in fixed), default=0)
        each = value(self.counted) if self.counted is not None else 0
        return np.where(self.numbers > 0, max(base, each), base)

    def _cached(self, key: tuple[object, ...], compute: Callable[[], Ints]) -> Ints:
        if key not in self._parts:
            self._parts[key] = compute()
        return self._parts[key]

    def _load(
        self,
        fixed: tuple[int, ...],
        signatures: frozenset[Signature],
        position: Position,
        alone: bool,
    ) -> Ints:
        zero_matters = any(zero >= 2 for _, zero in self.choices)
        groups = (position.dense, position.expert) if zero_matters else ()
        return self._cached(
            ("load", fixed, signatures, groups, alone),
            lambda: np.stack(
                [
                    np.max([self._load_of(fixed, signature, r) for signature in signatures], axis=0)
                    + self._zero_load(fixed, position, z, alone)
                    for r, z in self.choices
                ]
            ),
        )

    def _load_of(
        self, fixed: tuple[int, ...], signature: Signature, recomputation: Recomputation
    ) -> Ints:
        table = self.table
        shapes = {
            "tensor": signature.tensor,
            "context": signature.context,
            "expert": signature.expert,
        }
        backward_again = (
            recomputation != "none" and self.compiled.cost_model.recomputation == "backward_again"
        )
        again = recomputation in ("layer", "stage") and not backward_again

        def of(i: int) -> int:
            layer = table.layers[i]
            load = layer.forward + layer.backward
            if recomputation == "selective":
                load += layer.recompute_selective
            elif again:
                load += layer.recompute
            for call in layer.calls:
                times = 2 if again and call.direction == "forward" else 1
                load += (
                    times
                    * call.count
                    * _worst(
                        lambda shape, call=call: self.compiled.collective_ticks(  # type: ignore[misc]
                            call.kind, call.bytes, shape
                        ),
                        shapes[call.axis],
                    )
                )
            return load

        into, back = (
            min(table.transfer_ticks[link][1:]) if link >= 0 and len(table.layers) > 1 else 0
            for link in (signature.before, signature.behind)
        )
        load = self._sum(fixed, of) + into
        if backward_again and signature.behind >= 0:
            return load + np.maximum(self._sum(fixed, lambda i: table.layers[i].recompute), back)
        return load + back

    def _states(self, i: int, alone: bool) -> tuple[StateBytes, StateBytes]:
        return self.table.dense_state(i, 1 if alone else 2), self.table.layers[i].expert

    def _zero_load(
        self, fixed: tuple[int, ...], position: Position, zero: int, alone: bool
    ) -> Ints:
        if zero < 2:
            return np.zeros_like(self.numbers)
        price = self.compiled.collective_ticks

        def of(i: int) -> int:
            total = 0
            groups = (position.dense, position.expert)
            for state, shapes in zip(self._states(i, alone), groups, strict=True):
                total += max(price("reduce_scatter", state.gradients, s) for s in shapes)
                if zero == 3:
                    total += 2 * max(price("all_gather", state.weights, s) for s in shapes)
            return total

        return self._sum(fixed, of)

    def _sync(self, fixed: tuple[int, ...], position: Position, alone: bool, first: bool) -> Ints:
        if self.compiled.cost_model.synchronisation == "first_stage" and not first:
            return np.zeros((len(self.choices), len(self.numbers)), dtype=np.int64)
        return self._cached(
            ("sync", fixed, position.dense, position.expert, alone),
            lambda: np.stack([self._sync_of(fixed, position, z, alone) for _, z in self.choices]),
        )

    def _sync_of(self, fixed: tuple[int, ...], position: Position, zero: int, alone: bool) -> Ints:
        total = np.zeros_like(self.numbers)
        for index, shapes in enumerate((position.dense, position.expert)):
            worst = np.zeros_like(self.numbers)
            for shape in shapes:
                share = self._sum(
                    fixed,
                    lambda i, shape=shape, index=index: self.compiled.sync_share_ticks(  # type: ignore[misc]
                        zero, self._states(i, alone)[index], shape
                    ),
                )
                holds = self._largest(
                    fixed,
                    lambda i, index=index: int(self._states(i, alone)[index].weights > 0),  # type: ignore[misc]
                )
                latency = self.compiled.sync_latency_ticks(zero, shape)
                worst = np.maximum(worst, share + holds * latency)
            total = total + worst
        return total

    def _memory(self, fixed: tuple[int, ...], in_flight: int, alone: bool) -> Ints:
        return self._cached(
            ("memory", fixed, in_flight, alone),
            lambda: np.stack(
                [self._memory_of(fixed, in_flight, r, z, alone) for r, z in self.choices]
            ),
        )

    def _memory_of(
        self, fixed: tuple[int, ...], in_flight: int, recomputation: str, zero: int, alone: bool
    ) -> Ints:
        quanta, layers = self.compiled.quanta, self.table.layers

        def held(i: int) -> int:
            total = 0
            for state, shards in zip(self._states(i, alone), self.shards.values(), strict=True):
                total += quanta(state.weights, shards if zero >= 3 else 1)
                total += quanta(state.gradients, shards if zero >= 2 else 1)
                total += quanta(state.optimizer, shards if zero >= 1 else 1)
            return total

        memory = self._sum(fixed, held)
        if zero >= 3:
            memory = memory + self._largest(
                fixed, lambda i: sum(quanta(s.weights) for s in self._states(i, alone))
            )
        if recomputation == "none":
            return memory + in_flight * self._sum(fixed, lambda i: layers[i].activations)
        if recomputation == "selective":
            kept = self._sum(fixed, lambda i: layers[i].selective)
            return (
                memory + in_flight * kept + self._largest(fixed, lambda i: layers[i].attention_core)
            )
        if recomputation == "layer":
            kept = self._sum(fixed, lambda i: layers[i].checkpoint)
            return memory + in_flight * kept + self._largest(fixed, lambda i: layers[i].activations)
        least_input = (
            layers[0].checkpoint if 0 in fixed else min(self.table.cut_quanta[1:], default=0)
        )
        return (
            memory
            + (in_flight - 1) * least_input
            + self._sum(fixed, lambda i: layers[i].activations)
        )
