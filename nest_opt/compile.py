"""From a problem to integers: ticks, memory quanta, and the price of one primitive.

Every primitive duration becomes an integer number of ticks and every primitive size an integer
number of quanta, each rounded up once, on its own. From here on everything is integer arithmetic.
What depends on where a stage lies (the group that runs a collective, the class of a link) is priced
on demand by the methods of :class:`Compiled`, which round in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Literal

from nest_opt.collectives import (
    Algorithm,
    CollectiveKind,
    bandwidth_seconds,
    collective_seconds,
    latency_seconds,
    transfer_seconds,
)
from nest_opt.constraints import complaints
from nest_opt.errors import CompileError, OverflowGuardError
from nest_opt.estimate import layer_table
from nest_opt.estimate.table import Call, LayerCost, LayerTable
from nest_opt.files import canonical_json
from nest_opt.network import AnyNetwork, GeneralNetwork, GroupShape, network_of
from nest_opt.plan import Template
from nest_opt.problem import CostModel, OptimizerBytes, Problem, Search, exact

COMPILED_FORMAT = "nest-opt/compiled/1"

#: Ticks (and multiples of ticks, for synchronisation) that the durations of one microbatch may sum
#: to: small enough for a floating-point solver to be exact, see formulations/README.md.
MAX_TICKS = 5 * 10**6
#: Quanta that a device may hold.
MAX_QUANTA = 10**5
#: Sums at or above this are refused, so that 64-bit arithmetic downstream cannot wrap.
INT64_GUARD = 2**62

WeightKind = Literal["dense", "expert"]


@dataclass(frozen=True)
class StateBytes:
    """Bytes per device of one layer's weights, gradients and optimizer state, of one kind."""

    weights: Fraction
    gradients: Fraction
    optimizer: Fraction

    def __sub__(self, other: StateBytes) -> StateBytes:
        return StateBytes(
            self.weights - other.weights,
            self.gradients - other.gradients,
            self.optimizer - other.optimizer,
        )


@dataclass(frozen=True)
class LayerKind:
    """The integers of one layer at one template and microbatch; equal layers share one.

    Times in ticks per microbatch, kept bytes in quanta per microbatch, state in exact bytes (it is
    divided by the ranks that share it before it is rounded: :meth:`Compiled.quanta`).
    """

    forward: int
    backward: int
    recompute: int
    recompute_selective: int
    activations: int
    selective: int
    checkpoint: int
    attention_core: int
    dense: StateBytes
    expert: StateBytes
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Table:
    """A model's integers at one template and microbatch.

    ``layers[i]`` are the integers of layer i; ``kind[i]`` numbers them so that equal layers have
    equal numbers. ``cut_bytes[i]``, ``cut_quanta[i]`` and ``transfer_ticks[k][i]`` describe the cut
    before layer i (0 for i = 0), the last priced at link class k. ``tied`` is the part of the last
    layer's dense state that is the first layer's as well.
    """

    template: Template
    microbatch: int
    layers: tuple[LayerKind, ...]
    kind: tuple[int, ...]
    cut_bytes: tuple[Fraction, ...]
    cut_quanta: tuple[int, ...]
    transfer_ticks: tuple[tuple[int, ...], ...]
    tied: StateBytes

    @property
    def has_tied_weight(self) -> bool:
        """Whether the first and last layer share a weight."""
        return self.tied.weights > 0

    def dense_state(self, layer: int, stages: int) -> StateBytes:
        """Dense state of a layer in a pipeline of ``stages``.

        With one stage both ends of a tied weight lie together, and it counts once: its bytes are
        taken off the last layer.
        """
        state = self.layers[layer].dense
        if stages == 1 and layer == len(self.layers) - 1:
            state = state - self.tied
        return state


@dataclass(frozen=True)
class Compiled:
    """A problem in integers. Everything downstream reads this and nothing before it.

    ``memory_quanta`` is the usable memory of a device, reserve taken off. ``tables`` has an entry
    for each valid template and microbatch. ``skipped`` lists the templates that the model cannot
    use. Obtained from :func:`compile_problem`.
    """

    name: str
    layer_names: tuple[str, ...]
    network: AnyNetwork
    all_reduce: Algorithm
    cost_model: CostModel
    search: Search
    global_batch: int
    tick_seconds: Fraction
    sync_multiple: int
    quantum_bytes: int
    memory_quanta: int
    tables: Mapping[tuple[Template, int], Table]
    skipped: tuple[tuple[Template, str], ...]
    digest: str = ""
    _prices: dict[tuple[Any, ...], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def layer_count(self) -> int:
        """L, the number of layers."""
        return len(self.layer_names)

    @property
    def devices(self) -> int:
        """N, the number of devices."""
        return self.network.devices

    @property
    def templates(self) -> tuple[Template, ...]:
        """Valid templates, in the order of the tie-break."""
        return tuple(sorted({template for template, _ in self.tables}))

    @property
    def microbatch_sizes(self) -> tuple[int, ...]:
        """Microbatch sizes, ascending."""
        return tuple(sorted(self.search.microbatch))

    def microbatches(self, microbatch: int, replicas: int, expert: int) -> int:
        """m, the microbatches that pass through each replica."""
        return -(-self.global_batch // (replicas * microbatch * expert))

    # --- prices of one primitive ------------------------------------------------------------------

    def quanta(self, size_bytes: Fraction, shards: int = 1) -> int:
        """Quanta of one size shared by ``shards`` ranks: divided first, rounded up then."""
        return ceil(size_bytes / (shards * self.quantum_bytes))

    def collective_ticks(self, kind: CollectiveKind, size: Fraction, shape: GroupShape) -> int:
        """Ticks of one collective call by a group of that shape."""
        return self._priced(
            (kind, size, shape),
            lambda: self._ticks(
                collective_seconds(kind, size, shape, self.network.classes, self.all_reduce)
                * exact(self.cost_model.exposed.collectives)
            ),
        )

    def sync_latency_ticks(self, zero: int, shape: GroupShape) -> int:
        """Ticks of the latency of one stage's gradient synchronisation, for one kind of weights.

        ZeRO 0 all-reduces, 1 reduce-scatters and all-gathers, 2 all-gathers, 3 does nothing.
        """
        return self._priced(
            ("latency", zero, shape),
            lambda: self._sync_ticks(
                sum(
                    (
                        latency_seconds(kind, shape, self.network.classes, self.all_reduce)
                        for kind, _ in _SYNCHRONISATION[zero]
                    ),
                    Fraction(0),
                )
            ),
        )

    def sync_share_ticks(self, zero: int, state: StateBytes, shape: GroupShape) -> int:
        """Ticks that one layer adds to its stage's synchronisation, for one kind of weights."""
        return self._priced(
            ("share", zero, state, shape),
            lambda: self._sync_ticks(
                sum(
                    (
                        bandwidth_seconds(
                            kind,
                            getattr(state, part),
                            shape,
                            self.network.classes,
                            self.all_reduce,
                        )
                        for kind, part in _SYNCHRONISATION[zero]
                    ),
                    Fraction(0),
                )
            ),
        )

    def tied_ring_ticks(self, state: StateBytes, link_class: int) -> int:
        """Ticks of the all-reduce of a tied weight's gradients between first and last stage."""
        pair = GroupShape(2, link_class, ())
        return self._priced(
            ("tied", state, link_class),
            lambda: self._sync_ticks(
                collective_seconds(
                    "all_reduce", state.gradients, pair, self.network.classes, "ring"
                )
            ),
        )

    def _priced(self, key: tuple[Any, ...], price: Callable[[], int]) -> int:
        if key not in self._prices:
            self._prices[key] = price()
        return self._prices[key]

    def _ticks(self, seconds: Fraction) -> int:
        return ceil(seconds / self.tick_seconds)

    def _sync_ticks(self, seconds: Fraction) -> int:
        exposed = seconds * exact(self.cost_model.exposed.synchronisation)
        return ceil(exposed / (self.tick_seconds * self.sync_multiple)) * self.sync_multiple

    # --- what is written down ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, documented in formulations/README.md; fractions are ``"p/q"`` text."""
        return {
            "format": COMPILED_FORMAT,
            "name": self.name,
            "digest": self.digest,
            "tick_seconds": str(self.tick_seconds),
            "synchronisation_multiple_ticks": self.sync_multiple,
            "quantum_bytes": self.quantum_bytes,
            "memory_quanta": self.memory_quanta,
            "global_batch": self.global_batch,
            "devices": self.devices,
            "network": _network_dict(self.network),
            "classes": [
                {
                    "latency_seconds": str(c.latency),
                    "seconds_per_byte": str(c.seconds_per_byte),
                    "given_seconds_per_byte": str(c.as_given),
                }
                for c in self.network.classes
            ],
            "all_reduce": self.all_reduce,
            "cost_model": self.cost_model.model_dump(mode="json"),
            "search": self.search.model_dump(mode="json"),
            "layers": list(self.layer_names),
            "skipped_templates": [
                {"template": template.label, "reason": reason} for template, reason in self.skipped
            ],
            "tables": [_table_dict(self.tables[key]) for key in sorted(self.tables)],
        }

    def rounding_error(self) -> dict[str, float]:
        """How far rounding can move a price: upper bounds per microbatch, batch end and device."""
        calls = max(
            sum(2 * c.count for layer in table.layers for c in layer.calls)
            for table in self.tables.values()
        )
        layers = self.layer_count
        return {
            "load_seconds": float((3 * layers + calls + 3 * layers * 2 + 2) * self.tick_seconds),
            "synchronisation_seconds": float(
                (2 * layers + 3) * self.sync_multiple * self.tick_seconds
            ),
            "memory_bytes": float((8 * layers + 2) * self.quantum_bytes),
        }


#: What each ZeRO stage does once per batch: (collective, what it carries).
_SYNCHRONISATION: dict[int, tuple[tuple[CollectiveKind, str], ...]] = {
    0: (("all_reduce", "gradients"),),
    1: (("reduce_scatter", "gradients"), ("all_gather", "weights")),
    2: (("all_gather", "weights"),),
    3: (),
}


def _network_dict(network: AnyNetwork) -> dict[str, Any]:
    """Which devices are joined at which class: blocks of levels, or a row for each device."""
    if isinstance(network, GeneralNetwork):
        return {"class_rows": [" ".join(map(str, row)) for row in network.class_rows]}
    return {"blocks": list(network.block)}


def _table_dict(table: Table) -> dict[str, Any]:
    kinds = {number: layer for number, layer in zip(table.kind, table.layers, strict=True)}

    def state(s: StateBytes) -> dict[str, str]:
        return {p: str(getattr(s, p)) for p in ("weights", "gradients", "optimizer")}

    return {
        "template": {
            "tensor": table.template.tensor,
            "context": table.template.context,
            "expert": table.template.expert,
            "sequence_parallel": table.template.sequence_parallel,
        },
        "microbatch": table.microbatch,
        "kind": list(table.kind),
        "kinds": [
            {
                "forward_ticks": k.forward,
                "backward_ticks": k.backward,
                "recompute_ticks": k.recompute,
                "recompute_selective_ticks": k.recompute_selective,
                "activation_quanta": k.activations,
                "selective_activation_quanta": k.selective,
                "checkpoint_quanta": k.checkpoint,
                "attention_core_quanta": k.attention_core,
                "dense_bytes": state(k.dense),
                "expert_bytes": state(k.expert),
                "collectives": [
                    {
                        "kind": c.kind,
                        "axis": c.axis,
                        "pass": c.direction,
                        "bytes": str(c.bytes),
                        "count": c.count,
                    }
                    for c in k.calls
                ],
            }
            for _, k in sorted(kinds.items())
        ],
        "cut_bytes": [str(b) for b in table.cut_bytes],
        "cut_quanta": list(table.cut_quanta),
        "transfer_ticks": [list(row) for row in table.transfer_ticks],
        "tied_bytes": state(table.tied),
    }


# --- compilation ----------------------------------------------------------------------------------


def compile_problem(problem: Problem) -> Compiled:
    """Compile a problem to integers.

    Raises :class:`InputError` for a model that cannot be read, :class:`CompileError` if no template
    of the search space is valid for it, :class:`OverflowGuardError` if sums could leave 64 bits.

    >>> import nest_opt
    >>> compiled = compile_problem(nest_opt.load_problem("worked-example-160"))
    >>> compiled.layer_count, compiled.devices, float(compiled.tick_seconds)
    (4, 4, 0.001)
    """
    table = layer_table(problem)
    if not table.costs:
        reasons = "; ".join(f"{t.label}: {why}" for t, why in table.skipped[:5])
        raise CompileError(
            f"{problem.name}: no template of the search space is valid for the model ({reasons}); "
            "change search.tensor, search.context or search.expert"
        )
    network = network_of(problem.cluster)
    ratios = problem.training.bytes_per_weight
    scale = _Scale(problem, table, network, ratios)
    units = problem.units
    tick = exact(units.tick_seconds) if units.tick_seconds else scale.tick_seconds()
    multiple = units.synchronisation_multiple_ticks or scale.sync_multiple(tick)
    memory = problem.cluster.device.memory_bytes
    quantum = units.quantum_bytes or _quantum(memory)
    usable = memory * (1 - exact(problem.training.reserve_fraction))
    compiled = Compiled(
        name=problem.name,
        layer_names=table.names,
        network=network,
        all_reduce=problem.training.all_reduce,
        cost_model=problem.training.cost_model,
        search=problem.search,
        global_batch=problem.training.global_batch,
        tick_seconds=tick,
        sync_multiple=multiple,
        quantum_bytes=quantum,
        memory_quanta=int(usable // quantum),
        tables={
            key: _compile_table(problem, table, network, key, tick, quantum, ratios)
            for key in table.costs
        },
        skipped=table.skipped,
    )
    _guard_overflow(compiled)
    wrong = complaints(problem.search.constraints, compiled)
    if wrong:
        raise CompileError(f"{problem.name}: search.constraints: {'; '.join(wrong)}")
    facts = compiled.to_dict()
    del facts["name"], facts["digest"]
    digest = hashlib.sha256(canonical_json(facts).encode()).hexdigest()
    return replace(compiled, digest=f"sha256:{digest}")


def _quantum(memory_bytes: int) -> int:
    quantum = 1
    while memory_bytes > MAX_QUANTA * quantum:
        quantum *= 2
    return quantum


@dataclass(frozen=True)
class _Scale:
    """Chooses the units: the durations before rounding, at their worst."""

    problem: Problem
    table: LayerTable
    network: AnyNetwork
    ratios: OptimizerBytes

    @property
    def _algorithm(self) -> Algorithm:
        """How a group all of whose links are the worst runs its collectives."""
        return "tree" if self.problem.training.all_reduce == "tree" else "ring"

    def _flat(self, ranks: int) -> GroupShape:
        """A group every two of whose members are a worst link apart."""
        last = len(self.network.classes) - 1
        return GroupShape(ranks, last, (1,) * last + (ranks,))

    def tick_seconds(self) -> Fraction:
        """The smallest power of ten seconds for which one microbatch takes at most MAX_TICKS."""
        exposed = exact(self.problem.training.cost_model.exposed.collectives)
        worst = Fraction(0)
        for (template, _), costs in self.table.costs.items():
            total = Fraction(0)
            for cost in costs:
                total += cost.forward + cost.backward + _full_recomputation(self.problem, cost)
                for call in cost.calls:
                    total += (
                        call.count
                        * exposed
                        * collective_seconds(
                            call.kind,
                            call.bytes,
                            self._flat(getattr(template, call.axis)),
                            self.network.classes,
                            self._algorithm,
                        )
                    )
            worst = max(worst, total)
        # A model that takes no time at all has no smallest tick; a picosecond is fine enough.
        tick = Fraction(1, 10**12)
        while worst > MAX_TICKS * tick:
            tick *= 10
        return tick

    def sync_multiple(self, tick: Fraction) -> int:
        """10**k ticks, with the smallest k for which synchronisation takes at most MAX_TICKS."""
        exposed = exact(self.problem.training.cost_model.exposed.synchronisation)
        ratio = exact(self.ratios.gradients) / exact(self.ratios.weights)
        worst = Fraction(0)
        for (template, _), costs in self.table.costs.items():
            held = sum((c.weight_bytes + c.expert_weight_bytes for c in costs), Fraction(0))
            total = collective_seconds(
                "all_reduce",
                held * max(ratio, Fraction(1)),
                self._flat(self.network.devices),
                self.network.classes,
                self._algorithm,
            )
            if self.table.tied_bytes[template]:
                total += collective_seconds(
                    "all_reduce",
                    self.table.tied_bytes[template] * ratio,
                    self._flat(2),
                    self.network.classes,
                    "ring",
                )
            worst = max(worst, total * exposed)
        multiple = 1
        while worst > MAX_TICKS * multiple * tick:
            multiple *= 10
        return multiple


def _full_recomputation(problem: Problem, cost: LayerCost) -> Fraction:
    """Seconds of a layer's full recomputation."""
    if problem.training.cost_model.recomputation == "backward_again":
        return cost.backward
    return cost.recompute


def _compile_table(
    problem: Problem,
    table: LayerTable,
    network: AnyNetwork,
    key: tuple[Template, int],
    tick: Fraction,
    quantum: int,
    ratios: OptimizerBytes,
) -> Table:
    template, microbatch = key
    weights = exact(ratios.weights)

    def ticks(seconds: Fraction) -> int:
        return ceil(seconds / tick)

    def quanta(size: Fraction) -> int:
        return ceil(size / quantum)

    def state(size: Fraction) -> StateBytes:
        return StateBytes(
            size,
            size * exact(ratios.gradients) / weights,
            size * exact(ratios.optimizer) / weights,
        )

    def kind_of(cost: LayerCost) -> LayerKind:
        return LayerKind(
            forward=ticks(cost.forward),
            backward=ticks(cost.backward),
            recompute=ticks(_full_recomputation(problem, cost)),
            recompute_selective=ticks(cost.recompute_selective),
            activations=quanta(cost.activation_bytes),
            selective=quanta(cost.selective_bytes),
            checkpoint=quanta(cost.checkpoint_bytes),
            attention_core=quanta(cost.attention_core_bytes),
            dense=state(cost.weight_bytes),
            expert=state(cost.expert_weight_bytes),
            # A call without bytes, or of a group of one, costs nothing wherever it runs.
            calls=tuple(c for c in cost.calls if c.bytes and getattr(template, c.axis) > 1),
        )

    compiled_once: dict[int, LayerKind] = {}
    numbers: dict[LayerKind, int] = {}
    layers, kind = [], []
    for cost in table.costs[key]:
        if id(cost) not in compiled_once:
            compiled_once[id(cost)] = kind_of(cost)
        layer = compiled_once[id(cost)]
        layers.append(layer)
        kind.append(numbers.setdefault(layer, len(numbers)))
    cuts = table.cut_bytes(template, microbatch)
    exposed = exact(problem.training.cost_model.exposed.transfers)
    up_and_down = problem.training.cost_model.transfer == "up_and_down"
    times = [2 if up_and_down and k > 0 else 1 for k in range(len(network.classes))]
    return Table(
        template=template,
        microbatch=microbatch,
        layers=tuple(layers),
        kind=tuple(kind),
        cut_bytes=cuts,
        cut_quanta=tuple(quanta(cut) for cut in cuts),
        transfer_ticks=tuple(
            (0, *(ticks(transfer_seconds(cut, link, times[k]) * exposed) for cut in cuts[1:]))
            for k, link in enumerate(network.classes)
        ),
        tied=state(table.tied_bytes[template]),
    )


def _guard_overflow(compiled: Compiled) -> None:
    """Refuse problems whose largest conceivable plan price leaves 64-bit range."""
    last = len(compiled.network.classes) - 1

    def flat(ranks: int) -> GroupShape:
        return GroupShape(ranks, last, (ranks,) * (last + 1))

    everyone = flat(compiled.devices)
    for table in compiled.tables.values():
        load = 2 * max(table.transfer_ticks[-1])
        sync = compiled.tied_ring_ticks(table.tied, last)
        memory = 0
        for layer in table.layers:
            load += layer.forward + layer.backward + layer.recompute + layer.recompute_selective
            load += sum(
                2
                * call.count
                * compiled.collective_ticks(
                    call.kind, call.bytes, flat(getattr(table.template, call.axis))
                )
                for call in layer.calls
            )
            for state in (layer.dense, layer.expert):
                load += 2 * compiled.collective_ticks("all_gather", state.weights, everyone)
                load += compiled.collective_ticks("reduce_scatter", state.gradients, everyone)
                sync += max(compiled.sync_share_ticks(z, state, everyone) for z in (0, 1))
                memory += sum(
                    compiled.quanta(size) for size in (state.weights, state.gradients)
                ) + compiled.quanta(state.optimizer)
            memory += compiled.layer_count * (
                layer.activations + layer.selective + layer.checkpoint + layer.attention_core
            )
        sync += 2 * compiled.sync_latency_ticks(0, everyone)
        memory += compiled.layer_count * max(table.cut_quanta)
        slots = compiled.global_batch + compiled.layer_count
        if slots * load + sync >= INT64_GUARD or memory >= INT64_GUARD:
            raise OverflowGuardError(
                f"{compiled.name}: a plan could cost more than 2^62 ticks or quanta at template "
                f"{table.template.label}; use a larger units.tick_seconds or units.quantum_bytes, "
                "or check the largest times and sizes of the problem"
            )
