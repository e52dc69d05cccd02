"""What every possible stage costs at every position: load, synchronisation, memory.

A stage is a run of layers [i, k). All arrays are indexed ``[i, k]`` with shape (L + 1, L + 1) and
mean something for i < k only. Ticks and quanta, int64; sums are below 2**62 because the compiler
guards them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from nest_opt.compile import Compiled, StateBytes, Table, WeightKind
from nest_opt.geometry import Ints, Position, Shapes, Signature
from nest_opt.network import GroupShape
from nest_opt.plan import RECOMPUTATIONS, Recomputation

#: More than any price: marks stages that do not fit.
INFINITE = np.int64(2**62)


@dataclass(frozen=True)
class Choice:
    """What a stage decides for itself."""

    recomputation: Recomputation
    zero: int


def choices_of(compiled: Compiled) -> tuple[Choice, ...]:
    """All per-stage choices, weaker recomputation first, then lower ZeRO stage."""
    search = compiled.search
    return tuple(
        Choice(recomputation, zero)
        for recomputation in RECOMPUTATIONS
        if recomputation in search.recomputation
        for zero in sorted(search.zero)
    )


def _run_sums(per_layer: Iterable[int]) -> Ints:
    """``[i, k]``: sum over layers i..k-1."""
    prefix = np.concatenate([[0], np.cumsum(np.fromiter(per_layer, dtype=np.int64))])
    sums: Ints = prefix[None, :] - prefix[:, None]
    return sums


def _run_maxima(per_layer: Iterable[int]) -> Ints:
    """``[i, k]``: largest over layers i..k-1 (0 where there are none)."""
    values = np.fromiter(per_layer, dtype=np.int64)
    count = len(values)
    result = np.zeros((count + 1, count + 1), dtype=np.int64)
    for i in range(count):
        result[i, i + 1 :] = np.maximum.accumulate(values[i:])
    return result


@dataclass(frozen=True)
class StageTable:
    """Every stage that can lie at one position.

    ``load[c]`` is the largest load over the replicas under choice c, INFINITE where the stage does
    not fit in memory or does not exist. ``sync[zero]`` is the stage's synchronisation without a
    tied weight's ring.
    """

    load: Ints
    sync: dict[int, Ints]


class Pricer:
    """Stage tables of one (template, microbatch) and one number of data-parallel replicas.

    ``stages`` matters only for whether it is one: a tied weight then counts once.
    """

    def __init__(
        self, compiled: Compiled, table: Table, replicas: int, microbatches: int, stages: int
    ) -> None:
        self.compiled = compiled
        self.table = table
        self.microbatches = microbatches
        self.choices = choices_of(compiled)
        count = len(table.layers)
        self.dense = [table.dense_state(i, stages) for i in range(count)]
        self.expert = [layer.expert for layer in table.layers]
        template = table.template
        self.shards: dict[WeightKind, int] = {
            "dense": replicas * template.context * template.expert,
            "expert": replicas * template.context,
        }
        layers = table.layers
        self._compute = _run_sums(x.forward + x.backward for x in layers)
        self._recompute = {
            "none": None,
            "selective": _run_sums(x.recompute_selective for x in layers),
            "layer": _run_sums(x.recompute for x in layers),
            "stage": _run_sums(x.recompute for x in layers),
        }
        self._activations = _run_sums(x.activations for x in layers)
        self._selective = _run_sums(x.selective for x in layers)
        self._checkpoints = _run_sums(x.checkpoint for x in layers)
        self._largest_activations = _run_maxima(x.activations for x in layers)
        self._largest_core = _run_maxima(x.attention_core for x in layers)
        self._static = {zero: self._static_memory(zero) for zero in compiled.search.zero}
        inputs = list(table.cut_quanta)
        inputs[0] = layers[0].checkpoint
        self._input = np.array([*inputs, 0], dtype=np.int64)[:, None]
        self._runs = np.triu(np.ones((count + 1, count + 1), dtype=bool), k=1)
        self._memory_fits: dict[int, list[np.ndarray]] = {}
        self._loads: dict[tuple[frozenset[Signature], Position | None], list[Ints]] = {}
        self._syncs: dict[tuple[Shapes, Shapes], dict[int, Ints]] = {}

    # --- memory -----------------------------------------------------------------------------------

    def _static_memory(self, zero: int) -> Ints:
        """Weights, gradients and optimizer state, sharded by ZeRO."""
        quanta = self.compiled.quanta

        def held(state: StateBytes, shards: int) -> int:
            return (
                quanta(state.weights, shards if zero >= 3 else 1)
                + quanta(state.gradients, shards if zero >= 2 else 1)
                + quanta(state.optimizer, shards if zero >= 1 else 1)
            )

        total = _run_sums(
            held(dense, self.shards["dense"]) + held(expert, self.shards["expert"])
            for dense, expert in zip(self.dense, self.expert, strict=True)
        )
        if zero >= 3:
            total = total + _run_maxima(
                quanta(dense.weights) + quanta(expert.weights)
                for dense, expert in zip(self.dense, self.expert, strict=True)
            )
        return total

    def memory(self, choice: Choice, in_flight: int) -> Ints:
        """Quanta of every stage that keeps ``in_flight`` microbatches."""
        static = self._static[choice.zero]
        if choice.recomputation == "none":
            return static + in_flight * self._activations
        if choice.recomputation == "selective":
            return static + in_flight * self._selective + self._largest_core
        if choice.recomputation == "layer":
            return static + in_flight * self._checkpoints + self._largest_activations
        return static + (in_flight - 1) * self._input + self._activations

    def in_flight(self, q: int) -> int:
        """Microbatches that the stage at position ``q`` from the end keeps."""
        if self.compiled.cost_model.in_flight == "stages_behind":
            return q + 1
        return min(q + 1, self.microbatches)

    def _fits(self, in_flight: int) -> list[np.ndarray]:
        if in_flight not in self._memory_fits:
            limit = self.compiled.memory_quanta
            self._memory_fits[in_flight] = [
                (self.memory(choice, in_flight) <= limit) & self._runs for choice in self.choices
            ]
        return self._memory_fits[in_flight]

    # --- load -------------------------------------------------------------------------------------

    def _worst(self, price: Callable[[GroupShape], int], shapes: Shapes) -> int:
        return max(price(shape) for shape in shapes)

    def _collectives(self, signature: Signature, forward_only: bool) -> Ints:
        shapes = {
            "tensor": signature.tensor,
            "context": signature.context,
            "expert": signature.expert,
        }
        return _run_sums(
            sum(
                call.count
                * self._worst(
                    lambda shape, call=call: self.compiled.collective_ticks(  # type: ignore[misc]
                        call.kind, call.bytes, shape
                    ),
                    shapes[call.axis],
                )
                for call in layer.calls
                if not forward_only or call.direction == "forward"
            )
            for layer in self.table.layers
        )

    def _transfers(self, link: int) -> Ints:
        """``[i]``: transfer before layer i over that link class; -1 is no link."""
        count = len(self.table.layers)
        ticks = np.zeros(count + 1, dtype=np.int64)
        if link >= 0:
            ticks[1:count] = self.table.transfer_ticks[link][1:]
        return ticks

    def _zero_load(self, zero: int, position: Position) -> Ints:
        """What ZeRO 2 and 3 add to every microbatch: gathered weights, scattered gradients."""
        price = self.compiled.collective_ticks

        def of(state: StateBytes, shapes: Shapes) -> int:
            ticks = self._worst(lambda s: price("reduce_scatter", state.gradients, s), shapes)
            if zero == 3:
                ticks += 2 * self._worst(lambda s: price("all_gather", state.weights, s), shapes)
            return ticks

        return _run_sums(
            of(dense, position.dense) + of(expert, position.expert)
            for dense, expert in zip(self.dense, self.expert, strict=True)
        )

    def _loads_of(self, signatures: frozenset[Signature], position: Position) -> list[Ints]:
        """Largest load over replicas, for each choice, without regard to memory."""
        needs_groups = any(zero >= 2 for zero in self.compiled.search.zero)
        key = (signatures, position if needs_groups else None)
        if key in self._loads:
            return self._loads[key]
        per_recomputation: dict[str, Ints] = {}
        backward_again = self.compiled.cost_model.recomputation == "backward_again"
        for signature in signatures:
            every = self._compute + self._transfers(signature.before)[:, None]
            every += self._collectives(signature, forward_only=False)
            back = self._transfers(signature.behind)[None, :]
            again = None
            for recomputation in {choice.recomputation for choice in self.choices}:
                extra = self._recompute[recomputation]
                if extra is None:
                    load = every + back
                elif backward_again:
                    # Behind the last stage nothing is awaited, and it recomputes nothing.
                    load = every + (np.maximum(extra, back) if signature.behind >= 0 else 0)
                else:
                    load = every + back + extra
                    if recomputation in ("layer", "stage"):
                        if again is None:
                            again = self._collectives(signature, forward_only=True)
                        load = load + again
                known = per_recomputation.get(recomputation)
                per_recomputation[recomputation] = (
                    load if known is None else np.maximum(known, load)
                )
        zero_load = {
            zero: self._zero_load(zero, position) for zero in self.compiled.search.zero if zero >= 2
        }
        self._loads[key] = [
            per_recomputation[choice.recomputation] + zero_load.get(choice.zero, np.int64(0))
            for choice in self.choices
        ]
        return self._loads[key]

    # --- synchronisation --------------------------------------------------------------------------

    def _sync(self, dense: Shapes, expert: Shapes) -> dict[int, Ints]:
        key = (dense, expert)
        if key not in self._syncs:
            self._syncs[key] = {
                zero: self._sync_kind(zero, self.dense, dense)
                + self._sync_kind(zero, self.expert, expert)
                for zero in self.compiled.search.zero
            }
        return self._syncs[key]

    def _sync_kind(self, zero: int, states: list[StateBytes], shapes: Shapes) -> Ints:
        count = len(states)
        worst = np.zeros((count + 1, count + 1), dtype=np.int64)
        holds = _run_sums(int(state.weights > 0) for state in states) > 0
        for shape in shapes:
            total = _run_sums(self.compiled.sync_share_ticks(zero, s, shape) for s in states)
            total = total + holds * self.compiled.sync_latency_ticks(zero, shape)
            np.maximum(worst, total, out=worst)
        return worst

    # --- both -------------------------------------------------------------------------------------

    def stage_table(self, position: Position, q: int) -> StageTable:
        """Prices of every stage at position ``q`` from the end.

        Row i = 0 is the first stage of the pipeline; every other row is a later one.
        """
        fits = self._fits(self.in_flight(q))
        later = self._loads_of(position.as_later, position)
        first = self._loads_of(position.as_first, position)
        load = np.empty((len(self.choices), *later[0].shape), dtype=np.int64)
        for c in range(len(self.choices)):
            load[c] = later[c]
            load[c, 0] = first[c][0]
            load[c][~fits[c]] = INFINITE
        sync = self._sync(position.dense, position.expert)
        if self.compiled.cost_model.synchronisation == "first_stage":
            is_first = np.arange(load.shape[1])[:, None] == 0
            sync = {zero: np.where(is_first, ticks, 0) for zero, ticks in sync.items()}
        return StageTable(load, sync)
