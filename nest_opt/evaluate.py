"""The specification in code: the price of one explicit plan, slowly and obviously.

This module states section 4 of the placement model once more, for any explicit lists of devices, in
exact integers. With

- s stages (number j counts from 0), d replicas (r), m = ceil(G / (d * b * e)) microbatches,
- f_j = min(s - j, m) microbatches in flight at stage j,
- tau, the largest load of any stage in any replica, in ticks per microbatch,
- sigma, the synchronisation of the slowest (or, as an option, the first) stage, in ticks per batch,

a batch takes T = (m + s - 1) * tau + sigma ticks. Every stage must fit into the usable memory.

It shares with the rest of the package only the compiled problem: its tables of integers and the
functions that price one primitive (one collective call, one transfer, one layer's share of a
synchronisation), and the network's answers about sets of devices.

Source: I. Wang et al., "NEST: Network- and Memory-Aware Device Placement for Distributed Deep
Learning", MLSys 2026 (arXiv 2603.06798); ZeRO stages after Rajbhandari et al. 2020
(arXiv 1910.02054).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from nest_opt.collectives import CollectiveKind
from nest_opt.compile import Compiled, StateBytes, Table, compile_problem
from nest_opt.constraints import Placed
from nest_opt.errors import PlanError
from nest_opt.estimate.table import Axis
from nest_opt.network import GroupShape
from nest_opt.plan import Plan, Recomputation, Template
from nest_opt.problem import Problem

#: Devices of one replica of a stage, in the order of the plan.
Group = tuple[int, ...]
#: Devices of a stage, one group for each replica.
Groups = tuple[Group, ...]

#: Stages remembered by one evaluator; plans of a search share most of theirs.
_REMEMBERED = 2**17

#: Collectives that each layer runs per microbatch because of the ZeRO stage, and what they carry.
_ZERO_CALLS: dict[int, tuple[tuple[CollectiveKind, str], ...]] = {
    0: (),
    1: (),
    2: (("reduce_scatter", "gradients"),),
    3: (("all_gather", "weights"), ("all_gather", "weights"), ("reduce_scatter", "gradients")),
}


# --- what comes out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Violation:
    """One thing that a plan breaks: which constraint, where, and what to do.

    ``excess`` is by how much, where that is a number: bytes per device for ``memory``.
    ``whole_cell``: a constraint of the problem that every plan of the same microbatch, replicas,
    template, number of stages and layout breaks.
    """

    constraint: str
    where: str
    message: str
    excess: int | None = None
    whole_cell: bool = False

    def __str__(self) -> str:
        return f"{self.constraint}: {self.where}: {self.message}"


@dataclass(frozen=True)
class Claim:
    """A number that the plan's author claims and that is not what was computed."""

    where: str
    field: str
    claimed: int
    computed: int


@dataclass(frozen=True)
class LoadParts:
    """What a load is made of, in ticks per microbatch, in the replica where it is largest.

    ``recomputation`` includes the forward collectives that a recomputed layer runs once more;
    ``zero`` is what ZeRO 2 and 3 exchange per microbatch.
    """

    compute: int
    recomputation: int
    collectives: int
    transfer_forward: int
    transfer_backward: int
    zero: int

    @property
    def total(self) -> int:
        """The load."""
        return (
            self.compute
            + self.recomputation
            + self.collectives
            + self.transfer_forward
            + self.transfer_backward
            + self.zero
        )


@dataclass(frozen=True)
class SyncParts:
    """What a stage's synchronisation is made of, in ticks per batch."""

    dense: int
    expert: int
    tied: int

    @property
    def total(self) -> int:
        """The sigma of the stage."""
        return self.dense + self.expert + self.tied


@dataclass(frozen=True)
class MemoryParts:
    """What a device of a stage holds, in quanta.

    ``activations`` is what all microbatches in flight leave behind, ``working`` what the one being
    worked on needs besides, ``gather`` the full weights of the largest layer under ZeRO 3.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    gather: int

    @property
    def total(self) -> int:
        """Quanta per device."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.working
            + self.gather
        )


@dataclass(frozen=True)
class StageEvaluation:
    """One stage, priced.

    ``layers`` is the half-open run of the plan. ``worst_replica`` is the first whose load is the
    largest; that load is shown. ``load_ticks`` is per microbatch, ``sync_ticks`` per batch,
    ``memory_quanta`` and ``memory_bytes`` per device.
    """

    layers: tuple[int, int]
    in_flight: int
    load_ticks: int
    load_parts_ticks: LoadParts
    worst_replica: int
    sync_ticks: int
    sync_parts_ticks: SyncParts
    memory_quanta: int
    memory_bytes: int
    memory_parts_quanta: MemoryParts


@dataclass(frozen=True)
class StageTimes:
    """One stage of one replica by passes, in ticks per microbatch; together they are its load.

    ``receive_forward`` and ``receive_backward`` are the transfers that it waits for before a
    forward and a backward pass. ``backward`` holds recomputation and what ZeRO exchanges, but for
    the all-gather of ZeRO 3 that the forward pass needs.
    """

    forward: int
    backward: int
    receive_forward: int
    receive_backward: int


@dataclass(frozen=True)
class Evaluation:
    """What a plan costs and what it breaks.

    The price (``batch_ticks``, ``tau_ticks``, ``sigma_ticks``, their seconds, ``bottleneck`` and
    ``stages``) is there unless the plan is no placement of the problem at all; a plan that only
    exceeds the memory has a price and is not feasible. ``bottleneck`` is the first stage with the
    largest load. ``microbatches`` is the m of this problem, whatever the plan claims.

    ``stale`` says that the plan was made for another problem. ``claims`` lists numbers of the plan
    that were computed differently here. ``notes`` says what is allowed but worth knowing: choices
    that the problem's search space does not contain, idle devices, padding.
    """

    feasible: bool
    violations: tuple[Violation, ...]
    batch_ticks: int | None
    tau_ticks: int | None
    sigma_ticks: int | None
    tick_seconds: float
    quantum_bytes: int
    batch_seconds: float | None
    sequences_per_second: float | None
    microbatches: int
    devices_used: int
    memory_limit_bytes: int
    bottleneck: int | None
    stages: tuple[StageEvaluation, ...]
    stale: bool
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]

    @property
    def total_load_ticks(self) -> int:
        """Sum over the stages of their largest load, the first tie-break; 0 without a price."""
        return sum(stage.load_ticks for stage in self.stages)

    def require_price(self) -> int:
        """``batch_ticks``; raises :class:`PlanError` with every violation if there is no price."""
        if self.batch_ticks is None:
            raise PlanError(
                "the plan is no placement of this problem: "
                + "; ".join(str(violation) for violation in self.violations)
            )
        return self.batch_ticks

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, one key for each field."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


# --- groups ---------------------------------------------------------------------------------------


def axis_groups(template: Template, devices: Sequence[int], axis: Axis) -> list[Group]:
    """The groups of one axis in the devices of a stage and replica.

    The tensor index varies fastest, then context, then expert. A group holds the devices that agree
    in the other two indices.

    >>> axis_groups(Template(tensor=2, context=2), [10, 11, 12, 13], "tensor")
    [(10, 11), (12, 13)]
    >>> axis_groups(Template(tensor=2, context=2), [10, 11, 12, 13], "context")
    [(10, 12), (11, 13)]
    """
    t, c, e = template.tensor, template.context, template.expert

    def device(i: int, j: int, k: int) -> int:
        return devices[i + t * (j + c * k)]

    if axis == "tensor":
        return [tuple(device(i, j, k) for i in range(t)) for k in range(e) for j in range(c)]
    if axis == "context":
        return [tuple(device(i, j, k) for j in range(c)) for k in range(e) for i in range(t)]
    return [tuple(device(i, j, k) for k in range(e)) for j in range(c) for i in range(t)]


def dense_groups(template: Template, replicas: Groups) -> list[Group]:
    """The groups that hold the same dense weights: all ranks of all replicas with one tensor index.

    >>> dense_groups(Template(tensor=2), ((0, 1), (4, 5)))
    [(0, 4), (1, 5)]
    """
    t = template.tensor
    return [tuple(x for devices in replicas for x in devices[i::t]) for i in range(t)]


def expert_groups(template: Template, replicas: Groups) -> list[Group]:
    """The groups that hold the same expert weights: ranks with one tensor and one expert index.

    >>> expert_groups(Template(context=2, expert=2), ((0, 1, 2, 3),))
    [(0, 1), (2, 3)]
    """
    t, c, e = template.tensor, template.context, template.expert
    return [
        tuple(devices[i + t * (j + c * k)] for devices in replicas for j in range(c))
        for k in range(e)
        for i in range(t)
    ]


# --- the evaluator --------------------------------------------------------------------------------


class Evaluator:
    """Prices plans of one compiled problem, remembering stages that it has seen.

    Nothing that is remembered can change an answer: the key of a stage is everything that its price
    depends on. Time without memory is O(devices * levels + layers * kinds of groups) per stage.

    >>> from nest_opt.library import load_problem
    >>> evaluator = Evaluator(compile_problem(load_problem("worked-example-160")))
    >>> plan = Plan.from_dict({
    ...     "microbatch": 1, "replicas": 2, "microbatches": 4, "layout": "pipeline-inner",
    ...     "template": {}, "stages": [
    ...         {"layers": [0, 2], "devices": [[1], [3]]},
    ...         {"layers": [2, 4], "devices": [[0], [2]]},
    ...     ]})
    >>> evaluation = evaluator.evaluate(plan)
    >>> evaluation.feasible, evaluation.tau_ticks, evaluation.sigma_ticks, evaluation.batch_ticks
    (True, 82, 44, 454)
    """

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._tick_seconds = float(compiled.tick_seconds)
        self._limit_bytes = compiled.memory_quanta * compiled.quantum_bytes
        self._remembered_stage = lru_cache(_REMEMBERED)(self._price_stage)
        self._remembered_devices = lru_cache(_REMEMBERED)(self._device_violations)
        self._remembered_notes = lru_cache(_REMEMBERED)(self._notes)
        self._remembered_tied = lru_cache(_REMEMBERED)(self._tied_ticks)

    def evaluate(self, plan: Plan) -> Evaluation:
        """The price of ``plan`` and everything that it breaks; never raises for a bad plan."""
        problem = self.compiled
        devices = tuple(stage.devices for stage in plan.stages)
        layers = tuple(stage.layers for stage in plan.stages)
        microbatches = problem.microbatches(plan.microbatch, plan.replicas, plan.template.expert)

        violations = [
            *_layer_violations(problem, layers),
            *self._remembered_devices(plan.replicas, plan.template.width, devices),
            *_table_violations(problem, plan),
        ]
        claims = []
        if plan.microbatches != microbatches:
            violations.append(_microbatches_violation(problem, plan, microbatches))
            claims.append(Claim("plan", "microbatches", plan.microbatches, microbatches))
        if violations:
            return self._evaluation(plan, violations, microbatches, (), claims, ())

        priced = self._price_stages(plan)
        for j, (stage, computed) in enumerate(zip(plan.stages, priced, strict=True)):
            if computed.memory_quanta > problem.memory_quanta:
                violations.append(self._memory_violation(j, computed.memory_bytes))
            if stage.load_ticks not in (None, computed.load_ticks):
                claims.append(
                    Claim(f"stage {j}", "load_ticks", stage.load_ticks, computed.load_ticks)
                )
            if stage.memory_bytes not in (None, computed.memory_bytes):
                claims.append(
                    Claim(f"stage {j}", "memory_bytes", stage.memory_bytes, computed.memory_bytes)
                )
        violations += self.breaches(plan)
        notes = self._remembered_notes(
            plan.microbatch,
            plan.replicas,
            plan.layout,
            plan.template,
            tuple(stage.recomputation for stage in plan.stages),
            tuple(stage.zero for stage in plan.stages),
            devices,
        )
        return self._evaluation(plan, violations, microbatches, priced, claims, notes)

    def _price_stages(self, plan: Plan) -> tuple[StageEvaluation, ...]:
        """Every stage of a plan that is a placement, priced."""
        stages = len(plan.stages)
        devices = tuple(stage.devices for stage in plan.stages)
        microbatches = self.compiled.microbatches(
            plan.microbatch, plan.replicas, plan.template.expert
        )
        tied = (
            self._remembered_tied(plan.template, plan.microbatch, devices[0], devices[-1])
            if stages > 1
            else 0
        )
        return tuple(
            self._remembered_stage(
                plan.template,
                plan.microbatch,
                stages,
                stage.layers,
                stage.recomputation,
                stage.zero,
                devices[j],
                devices[j - 1] if j > 0 else None,
                devices[j + 1] if j < stages - 1 else None,
                self._in_flight(stages - j, microbatches),
                tied if j in (0, stages - 1) else 0,
            )
            for j, stage in enumerate(plan.stages)
        )

    def stage_times(self, plan: Plan) -> tuple[tuple[StageTimes, ...], ...]:
        """``[stage][replica]``: the passes and transfers of a plan that is a placement."""
        table = self.compiled.tables[plan.template, plan.microbatch]
        last = len(plan.stages) - 1
        result = []
        for j, stage in enumerate(plan.stages):
            held = _Held(table, stage.layers, len(plan.stages))
            sharing = self._sharing(plan.template, stage.devices)
            zero_ticks = self._zero_ticks(held, stage.zero, sharing)
            gathers = self._gather_ticks(held, stage.zero, sharing)
            replicas = []
            for r, devices in enumerate(stage.devices):
                parts = self._load(
                    table,
                    stage.layers,
                    stage.recomputation,
                    devices,
                    self._link(plan.stages[j - 1].devices, stage.devices, r) if j > 0 else None,
                    self._link(stage.devices, plan.stages[j + 1].devices, r) if j < last else None,
                    zero_ticks,
                )
                forward = gathers + self._forward_ticks(table, stage.layers, devices)
                received = parts.transfer_forward + parts.transfer_backward
                replicas.append(
                    StageTimes(
                        forward=forward,
                        backward=parts.total - received - forward,
                        receive_forward=parts.transfer_forward,
                        receive_backward=parts.transfer_backward,
                    )
                )
            result.append(tuple(replicas))
        return tuple(result)

    def _forward_ticks(self, table: Table, layers: tuple[int, int], devices: Group) -> int:
        """Forward passes of a stage and the collectives in them."""
        ticks = 0
        for layer in table.layers[slice(*layers)]:
            ticks += layer.forward
            for call in layer.calls:
                if call.direction == "forward":
                    groups = axis_groups(table.template, devices, call.axis)
                    worst = self._worst_call(call.kind, call.bytes, self._shapes(groups))
                    ticks += call.count * worst
        return ticks

    def breaches(self, plan: Plan) -> list[Violation]:
        """What the constraints of the problem have against a plan that is a placement."""
        if not self.compiled.search.constraints:
            return []
        placed = Placed(plan, self.compiled, lambda: self._price_stages(plan), axis_groups)
        return [
            Violation(str(c), breach.where, breach.message, breach.excess, breach.whole_cell)
            for c in self.compiled.search.constraints
            for breach in c.check(placed)
        ]

    def _evaluation(
        self,
        plan: Plan,
        violations: Sequence[Violation],
        microbatches: int,
        stages: tuple[StageEvaluation, ...],
        claims: Sequence[Claim],
        notes: tuple[str, ...],
    ) -> Evaluation:
        """T = (m + s - 1) * tau + sigma of priced stages; no price where there are none."""
        problem = self.compiled
        batch = tau = sigma = bottleneck = seconds = None
        if stages:
            loads = [stage.load_ticks for stage in stages]
            tau = max(loads)
            bottleneck = loads.index(tau)
            if problem.cost_model.synchronisation == "first_stage":
                sigma = stages[0].sync_ticks
            else:
                sigma = max(stage.sync_ticks for stage in stages)
            batch = (microbatches + len(stages) - 1) * tau + sigma
            seconds = float(batch * problem.tick_seconds)
        return Evaluation(
            feasible=not violations,
            violations=tuple(violations),
            batch_ticks=batch,
            tau_ticks=tau,
            sigma_ticks=sigma,
            tick_seconds=self._tick_seconds,
            quantum_bytes=problem.quantum_bytes,
            batch_seconds=seconds,
            sequences_per_second=problem.global_batch / seconds if seconds else None,
            microbatches=microbatches,
            devices_used=plan.devices_used,
            memory_limit_bytes=self._limit_bytes,
            bottleneck=bottleneck,
            stages=stages,
            stale=bool(plan.digest) and plan.digest != problem.digest,
            claims=tuple(claims),
            notes=notes,
        )

    def _in_flight(self, to_the_end: int, microbatches: int) -> int:
        """Microbatches that a stage keeps, given the stages from it to the end of the pipeline."""
        if self.compiled.cost_model.in_flight == "stages_behind":
            return to_the_end
        return min(to_the_end, microbatches)

    # --- one stage --------------------------------------------------------------------------------

    def _price_stage(
        self,
        template: Template,
        microbatch: int,
        stages: int,
        layers: tuple[int, int],
        recomputation: Recomputation,
        zero: int,
        devices: Groups,
        devices_before: Groups | None,
        devices_after: Groups | None,
        in_flight: int,
        tied_ticks: int,
    ) -> StageEvaluation:
        """The price of one stage, from all that it depends on.

        ``devices_before`` and ``devices_after`` are those of the neighbouring stages, None at the
        ends of the pipeline.
        """
        table = self.compiled.tables[template, microbatch]
        held = _Held(table, layers, stages)
        sharing = self._sharing(template, devices)
        zero_ticks = self._zero_ticks(held, zero, sharing)
        loads = [
            self._load(
                table,
                layers,
                recomputation,
                devices[r],
                self._link(devices_before, devices, r) if devices_before else None,
                self._link(devices, devices_after, r) if devices_after else None,
                zero_ticks,
            )
            for r in range(len(devices))
        ]
        load = max(loads, key=lambda parts: parts.total)

        sync = SyncParts(
            dense=self._sync_ticks(held.dense, zero, sharing.dense_shapes),
            expert=self._sync_ticks(held.expert, zero, sharing.expert_shapes),
            tied=tied_ticks,
        )
        memory = self._memory(table, layers, held, recomputation, zero, sharing, in_flight)
        return StageEvaluation(
            layers=layers,
            in_flight=in_flight,
            load_ticks=load.total,
            load_parts_ticks=load,
            worst_replica=loads.index(load),
            sync_ticks=sync.total,
            sync_parts_ticks=sync,
            memory_quanta=memory.total,
            memory_bytes=memory.total * self.compiled.quantum_bytes,
            memory_parts_quanta=memory,
        )

    def _sharing(self, template: Template, devices: Groups) -> _Sharing:
        """Who shares the weights of a stage on these devices."""
        return _Sharing(
            self._shapes(dense_groups(template, devices)),
            self._shapes(expert_groups(template, devices)),
            dense_ranks=len(devices) * template.context * template.expert,
            expert_ranks=len(devices) * template.context,
        )

    def _link(self, sender: Groups, receiver: Groups, replica: int) -> int:
        """Link class between two neighbouring stages in one replica."""
        network = self.compiled.network
        if self.compiled.cost_model.transfer_link == "first_devices":
            return network.class_of((sender[0][0], receiver[0][0]))
        return network.class_of(sender[replica] + receiver[replica])

    def _load(
        self,
        table: Table,
        layers: tuple[int, int],
        recomputation: Recomputation,
        devices: Group,
        link_before: int | None,
        link_after: int | None,
        zero_ticks: int,
    ) -> LoadParts:
        """Ticks per microbatch of a stage in one replica.

        ``link_before`` and ``link_after`` are the link classes to the neighbouring stages, None at
        the ends of the pipeline.
        """
        first, end = layers
        kinds = table.layers[first:end]

        collectives = forward_collectives = 0
        for layer in kinds:
            for call in layer.calls:
                groups = axis_groups(table.template, devices, call.axis)
                ticks = call.count * self._worst_call(call.kind, call.bytes, self._shapes(groups))
                collectives += ticks
                if call.direction == "forward":
                    forward_collectives += ticks

        transfer_forward = transfer_backward = 0
        if link_before is not None:
            transfer_forward = table.transfer_ticks[link_before][first]
        if link_after is not None:
            transfer_backward = table.transfer_ticks[link_after][end]

        if recomputation == "none":
            recompute = 0
        elif recomputation == "selective":
            recompute = sum(layer.recompute_selective for layer in kinds)
        elif self.compiled.cost_model.recomputation == "forward_again":  # layer, stage
            recompute = sum(layer.recompute for layer in kinds) + forward_collectives
        elif link_after is None:  # backward_again: the last stage recomputes nothing
            recompute = 0
        else:  # backward_again: while it recomputes, the gradients arrive
            recompute = sum(layer.recompute for layer in kinds)
            transfer_backward = max(0, transfer_backward - recompute)

        return LoadParts(
            compute=sum(layer.forward + layer.backward for layer in kinds),
            recomputation=recompute,
            collectives=collectives,
            transfer_forward=transfer_forward,
            transfer_backward=transfer_backward,
            zero=zero_ticks,
        )

    def _zero_ticks(self, held: _Held, zero: int, sharing: _Sharing) -> int:
        """Ticks per microbatch that ZeRO 2 and 3 add: a few collectives for each layer."""
        return sum(
            self._worst_call(kind, getattr(state, part), shapes)
            for states, shapes in (
                (held.dense, sharing.dense_shapes),
                (held.expert, sharing.expert_shapes),
            )
            for state in states
            for kind, part in _ZERO_CALLS[zero]
        )

    def _gather_ticks(self, held: _Held, zero: int, sharing: _Sharing) -> int:
        """Of these, what the forward pass needs: ZeRO 3 gathers the weights once for each pass."""
        if zero < 3:
            return 0
        return sum(
            self._worst_call("all_gather", state.weights, shapes)
            for states, shapes in (
                (held.dense, sharing.dense_shapes),
                (held.expert, sharing.expert_shapes),
            )
            for state in states
        )

    def _sync_ticks(
        self, states: Sequence[StateBytes], zero: int, shapes: frozenset[GroupShape]
    ) -> int:
        """Ticks per batch to synchronise one kind of weights: the group with the largest total."""
        if not any(state.weights for state in states):
            return 0
        return max(
            self.compiled.sync_latency_ticks(zero, shape)
            + sum(self.compiled.sync_share_ticks(zero, state, shape) for state in states)
            for shape in shapes
        )

    def _tied_ticks(self, template: Template, microbatch: int, first: Groups, last: Groups) -> int:
        """Ticks per batch of the ring of two that a tied weight needs between the end stages."""
        table = self.compiled.tables[template, microbatch]
        if not table.has_tied_weight:
            return 0
        return max(
            self.compiled.tied_ring_ticks(table.tied, self.compiled.network.class_of(one + other))
            for one, other in zip(first, last, strict=True)
        )

    def _memory(
        self,
        table: Table,
        layers: tuple[int, int],
        held: _Held,
        recomputation: Recomputation,
        zero: int,
        sharing: _Sharing,
        in_flight: int,
    ) -> MemoryParts:
        """Quanta per device of a stage."""
        quanta = self.compiled.quanta

        def sharded(part: str, from_zero: int) -> int:
            """One part of the state of all layers, shared from that ZeRO stage on."""
            dense_ranks = sharing.dense_ranks if zero >= from_zero else 1
            expert_ranks = sharing.expert_ranks if zero >= from_zero else 1
            return sum(quanta(getattr(state, part), dense_ranks) for state in held.dense) + sum(
                quanta(getattr(state, part), expert_ranks) for state in held.expert
            )

        gather = 0
        if zero == 3:
            gather = max(
                quanta(dense.weights) + quanta(expert.weights)
                for dense, expert in zip(held.dense, held.expert, strict=True)
            )

        first, end = layers
        kinds = table.layers[first:end]
        if recomputation == "none":
            activations = in_flight * sum(layer.activations for layer in kinds)
            working = 0
        elif recomputation == "selective":
            activations = in_flight * sum(layer.selective for layer in kinds)
            working = max(layer.attention_core for layer in kinds)
        elif recomputation == "layer":
            activations = in_flight * sum(layer.checkpoint for layer in kinds)
            working = max(layer.activations for layer in kinds)
        else:  # stage
            stage_input = kinds[0].checkpoint if first == 0 else table.cut_quanta[first]
            activations = (in_flight - 1) * stage_input
            working = sum(layer.activations for layer in kinds)

        return MemoryParts(
            weights=sharded("weights", from_zero=3),
            gradients=sharded("gradients", from_zero=2),
            optimizer=sharded("optimizer", from_zero=1),
            activations=activations,
            working=working,
            gather=gather,
        )

    # --- one call ---------------------------------------------------------------------------------

    def _shapes(self, groups: Iterable[Group]) -> frozenset[GroupShape]:
        """The different shapes among some groups: all that their prices can depend on."""
        return frozenset(self.compiled.network.shape_of(group) for group in groups)

    def _worst_call(
        self, kind: CollectiveKind, size: Fraction, shapes: frozenset[GroupShape]
    ) -> int:
        """Ticks of one call, in the group where it is slowest."""
        return max(self.compiled.collective_ticks(kind, size, shape) for shape in shapes)

    # --- what is broken, what is worth knowing ----------------------------------------------------

    def _memory_violation(self, stage: int, needed: int) -> Violation:
        excess = needed - self._limit_bytes
        return Violation(
            "memory",
            f"stage {stage}",
            f"needs {_size(needed)} per device, {_size(excess)} more than the usable "
            f"{_size(self._limit_bytes)}; move layers to another stage, recompute more, raise the "
            "ZeRO stage, or use more devices",
            excess,
        )

    def _device_violations(
        self, replicas: int, width: int, devices: tuple[Groups, ...]
    ) -> tuple[Violation, ...]:
        return tuple(_device_violations(self.compiled.devices, replicas, width, devices))

    def _notes(
        self,
        microbatch: int,
        replicas: int,
        layout: str,
        template: Template,
        recomputations: tuple[Recomputation, ...],
        zeros: tuple[int, ...],
        devices: tuple[Groups, ...],
    ) -> tuple[str, ...]:
        """Choices that the search space does not contain, idle devices, padding."""
        problem, search = self.compiled, self.compiled.search
        notes = []
        allowed = search.data_parallel
        if isinstance(allowed, tuple):
            if replicas not in allowed:
                notes.append(f"{replicas} replicas: not in search.data_parallel {allowed}")
        else:
            most = min(problem.devices, problem.microbatches(microbatch, 1, template.expert))
            if replicas > most:
                notes.append(
                    f"{replicas} replicas: search.data_parallel {allowed!r} ends at {most}, "
                    "where each replica has one microbatch or each device is a replica"
                )
        together = replicas * microbatch * template.expert
        padding = -problem.global_batch % together
        if padding:
            notes.append(
                f"replicas * microbatch * expert = {together} does not divide the batch of "
                f"{problem.global_batch}: {padding} sequences are padding"
                + ("; search.data_parallel 'even' excludes it" if allowed == "even" else "")
            )
        if search.stages != "any" and len(devices) not in search.stages:
            notes.append(f"{len(devices)} stages: not in search.stages {search.stages}")
        for j, recomputation in enumerate(recomputations):
            if recomputation not in search.recomputation:
                notes.append(
                    f"stage {j}: recomputation {recomputation!r} is not in search.recomputation "
                    f"{search.recomputation}"
                )
        for j, zero in enumerate(zeros):
            if zero not in search.zero:
                notes.append(f"stage {j}: ZeRO {zero} is not in search.zero {search.zero}")
        if layout not in search.layouts:
            notes.append(
                f"layout {layout!r} is not in search.layouts {search.layouts}: what is proved "
                "about the search space says nothing about this plan"
            )
        stray = _stray_from_layout(problem.devices, layout, replicas, template.width, devices)
        if stray is not None:
            notes.append(
                f"the devices do not follow the layout {layout!r} that the plan names, first at "
                f"{stray}; they are priced as listed (name the layout 'explicit')"
            )
        idle = problem.devices - replicas * template.width * len(devices)
        if idle:
            notes.append(f"{idle} of {problem.devices} devices idle")
        return tuple(notes)


class _Held:
    """The weights that a stage holds, layer by layer: dense and expert state, in bytes."""

    def __init__(self, table: Table, layers: tuple[int, int], stages: int) -> None:
        run = range(*layers)
        self.dense = [table.dense_state(i, stages) for i in run]
        self.expert = [table.layers[i].expert for i in run]


@dataclass(frozen=True)
class _Sharing:
    """Who shares a stage's weights: shapes of the groups, and the ranks in each."""

    dense_shapes: frozenset[GroupShape]
    expert_shapes: frozenset[GroupShape]
    dense_ranks: int
    expert_ranks: int


def evaluate(problem: Problem | Compiled, plan: Plan) -> Evaluation:
    """The price of ``plan`` and everything that it breaks.

    Times are in ticks of ``tick_seconds``, memory in bytes per device. A plan that is no placement
    of this problem has violations and no price; one that exceeds the memory has both. To price many
    plans of one problem use one :class:`Evaluator`. Raises only what
    :func:`nest_opt.compile.compile_problem` raises.

    >>> from nest_opt.library import load_problem
    >>> one_stage = {"layers": [0, 4], "devices": [[0], [1], [2], [3]]}
    >>> plan = Plan.from_dict({"microbatch": 1, "replicas": 4, "microbatches": 2,
    ...                        "template": {}, "stages": [one_stage]})
    >>> evaluate(load_problem("worked-example-1000"), plan).batch_ticks
    352
    >>> evaluation = evaluate(load_problem("worked-example-160"), plan)
    >>> evaluation.batch_ticks, evaluation.feasible
    (352, False)
    >>> evaluation.violations[0].constraint, evaluation.violations[0].excess // 2**20
    ('memory', 76)
    """
    compiled = compile_problem(problem) if isinstance(problem, Problem) else problem
    return Evaluator(compiled).evaluate(plan)


# --- is it a placement at all? --------------------------------------------------------------------


def _layer_violations(
    problem: Compiled, layers: tuple[tuple[int, int], ...]
) -> Iterator[Violation]:
    """Stages are non-empty, contiguous runs that cover every layer once, in order."""
    count = problem.layer_count
    expected = 0
    for first, end in layers:
        if first != expected or end <= first:
            break
        expected = end
    else:
        if expected == count:
            return

    covered = [0] * count
    for j, (first, end) in enumerate(layers):
        if first >= end:
            yield Violation(
                "layers",
                f"stage {j}",
                f"is empty: layers [{first}, {end}) hold nothing; give it layers or drop the stage",
            )
        elif end > count:
            yield Violation(
                "layers",
                f"stage {j}",
                f"ends at layer {end - 1}, but the model ends at {count - 1}; "
                f"end the last stage at [.., {count}]",
            )
        for i in range(min(first, count), min(end, count)):
            covered[i] += 1
    for wrong, message in (
        ([i for i in range(count) if covered[i] == 0], "in no stage; extend a stage to cover it"),
        ([i for i in range(count) if covered[i] > 1], "in several stages; shorten all but one"),
    ):
        for first, last in _runs(wrong):
            name = f"layer {first}" if first == last else f"layers {first}..{last}"
            yield Violation("layers", name, message)
    starts = [first for first, _ in layers]
    if starts != sorted(starts):
        yield Violation(
            "layers",
            "stages",
            f"are not in execution order (they start at layers {starts}); sort them by first layer",
        )


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _device_violations(
    count: int, replicas: int, width: int, devices: tuple[Groups, ...]
) -> Iterator[Violation]:
    """Every replica of a stage has as many devices as the template is wide, each used once."""
    places: dict[int, list[str]] = {}
    for j, groups in enumerate(devices):
        if len(groups) != replicas:
            yield Violation(
                "devices",
                f"stage {j}",
                f"lists devices for {len(groups)} replicas, but the plan has {replicas}; "
                "give one list for each replica",
            )
        for r, group in enumerate(groups):
            where = f"stage {j}, replica {r}"
            if len(group) != width:
                yield Violation(
                    "devices",
                    where,
                    f"lists {len(group)} devices, but the template is {width} wide; list {width}",
                )
            for device in group:
                places.setdefault(device, []).append(where)
    for device, found in places.items():
        if device >= count:
            yield Violation(
                "devices",
                found[0],
                f"device {device} does not exist; the cluster has devices 0..{count - 1}",
            )
        if len(found) > 1:
            yield Violation(
                "devices",
                "; ".join(found),
                f"device {device} is used {len(found)} times; a device serves one stage of one "
                "replica",
            )


def _table_violations(problem: Compiled, plan: Plan) -> Iterator[Violation]:
    """The compiled problem has integers for this template and microbatch."""
    if (plan.template, plan.microbatch) in problem.tables:
        return
    if plan.microbatch not in problem.microbatch_sizes:
        yield Violation(
            "microbatch",
            "plan",
            f"microbatch {plan.microbatch} was not compiled; add it to search.microbatch "
            f"{problem.microbatch_sizes}",
        )
    template = plan.template
    if template in problem.templates:
        return
    reason = dict(problem.skipped).get(template)
    if reason is not None:
        message = f"is not valid for the model: {reason}; choose one of"
    else:
        search = problem.search
        missing = [
            f"{name} {degree} to search.{name} {listed}"
            for name, degree, listed in (
                ("tensor", template.tensor, search.tensor),
                ("context", template.context, search.context),
                ("expert", template.expert, search.expert),
            )
            if degree not in listed
        ]
        if template.sequence_parallel and template.tensor == 1:
            missing = ["sequence parallelism only where the tensor degree exceeds 1"]
        elif template.tensor > 1 and template.sequence_parallel not in search.sequence_parallel:
            wanted = str(template.sequence_parallel).lower()
            missing.append(f"{wanted} to search.sequence_parallel")
        message = f"was not compiled: add {', '.join(missing)}, or choose one of"
    choices = ", ".join(t.label for t in problem.templates)
    yield Violation("template", f"template {template.label}", f"{message} {choices}")


def _microbatches_violation(problem: Compiled, plan: Plan, right: int) -> Violation:
    return Violation(
        "microbatches",
        "plan",
        f"claims {plan.microbatches} microbatches per replica, but ceil({problem.global_batch} / "
        f"({plan.replicas} replicas * {plan.microbatch} sequences * {plan.template.expert} expert "
        f"ranks)) = {right}; write {right}",
    )


def _stray_from_layout(
    count: int, layout: str, replicas: int, width: int, devices: tuple[Groups, ...]
) -> str | None:
    """The first stage and replica whose devices are not where the named layout puts them."""
    if layout == "explicit":
        return None
    for j, groups in enumerate(devices):
        offset = width * (len(devices) - 1 - j)
        for r, group in enumerate(groups):
            if layout == "pipeline-inner":
                start = r * (count // replicas) + offset
            else:
                start = replicas * offset + r * width
            if group != tuple(range(start, start + width)):
                return f"stage {j}, replica {r} (expected {start}..{start + width - 1})"
    return None


def _size(number: int) -> str:
    return f"{number / 2**20:.1f} MiB ({number} bytes)"
