"""Chains stages from the last one: Bellman's recurrence over (stages laid, first layer laid).

With one shared template a stage's place and in-flight count follow from its position from the end,
so the state is (q, i): positions 0..q hold layers i..L-1. One sweep over q answers pipelines of
every length at once, because the first stage is the one that starts at layer 0 (row i = 0 of its
stage table). The bottleneck is a maximum, hence monotone, so Bellman's principle holds.
O(L**2) per position and choice, all of it in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nest_opt.cells import Cell
from nest_opt.compile import Compiled
from nest_opt.dp.tables import INFINITE, Choice, Pricer, StageTable
from nest_opt.geometry import Geometry, Ints
from nest_opt.plan import Layout, Template

#: Stage tables are kept while they fit in this many bytes, and computed again beyond.
_TABLE_BYTES = 256 * 2**20

Combine = Callable[[Ints, Ints], Ints]


@dataclass(frozen=True)
class StageChoice:
    """One stage of a solution: layers [first, stop) under a choice, and its load in ticks."""

    first: int
    stop: int
    choice: Choice
    load: int


@dataclass(frozen=True)
class Family:
    """Cells that differ only in their number of stages."""

    microbatch: int
    template: Template
    replicas: int
    layout: Layout
    microbatches: int

    @classmethod
    def of(cls, cell: Cell) -> Family:
        """The family of a cell."""
        return cls(cell.microbatch, cell.template, cell.replicas, cell.layout, cell.microbatches)


class Pipelines:
    """All pipelines of one family, of up to ``longest`` stages."""

    def __init__(
        self, compiled: Compiled, geometry: Geometry, family: Family, longest: int
    ) -> None:
        self.compiled = compiled
        self.longest = longest
        self.table = compiled.tables[family.template, family.microbatch]
        self.positions = geometry.positions(family.template, family.replicas, family.layout)
        self.layers = compiled.layer_count
        pricer = Pricer(compiled, self.table, family.replicas, family.microbatches, stages=2)
        self.pricer = pricer
        self.choices = pricer.choices
        #: A tied weight counts once in a pipeline of one stage, and needs no ring.
        self._alone = (
            Pricer(compiled, self.table, family.replicas, family.microbatches, stages=1)
            if self.table.has_tied_weight
            else pricer
        )
        self._tables: dict[int, StageTable] = {}
        #: ``[s]``: ticks that a tied weight's ring adds to the first and last of s stages.
        self.ring = [0] * (longest + 1)
        if self.table.has_tied_weight:
            classes = geometry.ring_classes(family.template, family.replicas, family.layout)
            for s in range(2, longest + 1):
                self.ring[s] = compiled.tied_ring_ticks(self.table.tied, int(classes[s - 1]))

    # --- stage tables under limits ----------------------------------------------------------------

    def _stage(self, q: int, alone: bool) -> StageTable:
        if alone:
            return self._alone.stage_table(self.positions[q], q)
        if q not in self._tables:
            table = self.pricer.stage_table(self.positions[q], q)
            if (len(self._tables) + 1) * table.load.nbytes > _TABLE_BYTES:
                return table
            self._tables[q] = table
        return self._tables[q]

    def _sync_with_ring(self, table: StageTable, q: int, ring: int, zero: int) -> Ints:
        sync = table.sync[zero]
        if not ring:
            return sync
        sync = sync.copy()
        sync[0] += ring  # The first stage,
        # and the last, unless only the first stage's synchronisation is paid for.
        if q == 0 and self.compiled.cost_model.synchronisation == "slowest_stage":
            sync[1:] += ring
        return sync

    def _allowed_loads(self, q: int, ring: int, max_load: int, max_sync: int, alone: bool) -> Ints:
        """``[c, i, k]``: loads within both limits, INFINITE elsewhere."""
        table = self._stage(q, alone)
        if max_load >= INFINITE and max_sync >= INFINITE:
            return table.load
        load = np.where(table.load <= max_load, table.load, INFINITE)
        if max_sync < INFINITE:
            for zero in table.sync:
                within = self._sync_with_ring(table, q, ring, zero) <= max_sync
                for c, choice in enumerate(self.choices):
                    if choice.zero == zero:
                        load[c] = np.where(within, load[c], INFINITE)
        return load

    def _least_load(self, q: int, ring: int, max_load: int, max_sync: int, alone: bool) -> Ints:
        least: Ints = self._allowed_loads(q, ring, max_load, max_sync, alone).min(axis=0)
        return least

    def _least_sync(self, q: int, ring: int, max_load: int, alone: bool) -> Ints:
        """``[i, k]``: least synchronisation among the choices whose load is within the limit."""
        table = self._stage(q, alone)
        least = np.full(table.load.shape[1:], INFINITE, dtype=np.int64)
        for zero in table.sync:
            sync = self._sync_with_ring(table, q, ring, zero)
            for c, choice in enumerate(self.choices):
                if choice.zero == zero:
                    allowed = np.where(table.load[c] <= max_load, sync, INFINITE)
                    # Stages that do not exist or fit have load INFINITE, whatever the limit.
                    allowed[table.load[c] >= INFINITE] = INFINITE
                    np.minimum(least, allowed, out=least)
        return least

    # --- sweeps -----------------------------------------------------------------------------------

    def _sweep(self, cost: Callable[[int], Ints], combine: Combine, longest: int) -> list[Ints]:
        """``[q][i]``: best value of layers i..L-1 on positions 0..q."""
        values = [cost(0)[:, self.layers]]
        for q in range(1, longest):
            stage = cost(q)[:, : self.layers + 1]
            best = combine(stage, values[-1][None, :]).min(axis=1)
            values.append(np.minimum(best, INFINITE))
        return values

    def least_bottlenecks(self, max_sync: int, ring: int, longest: int) -> list[int]:
        """``[s]``: least bottleneck load of s stages whose synchronisation is at most ``max_sync``.

        INFINITE where there is no such pipeline. Valid for the s whose ring is ``ring``.
        """
        values = self._sweep(
            lambda q: self._least_load(q, ring, int(INFINITE), max_sync, alone=False),
            np.maximum,
            longest,
        )
        return [int(INFINITE), *(int(v[0]) for v in values)]

    def least_syncs(self, max_load: int, ring: int, longest: int) -> list[int]:
        """``[s]``: least synchronisation of s stages whose loads are at most ``max_load``."""
        values = self._sweep(
            lambda q: self._least_sync(q, ring, max_load, alone=False), np.maximum, longest
        )
        return [int(INFINITE), *(int(v[0]) for v in values)]

    def load_table(self, max_sync: int, ring: int, longest: int, alone: bool) -> list[Ints]:
        """``[q][i]``: least bottleneck of layers i..L-1 on positions 0..q under a limit."""
        return self._sweep(
            lambda q: self._least_load(q, ring, int(INFINITE), max_sync, alone), np.maximum, longest
        )

    def sync_table(self, ring: int, longest: int, alone: bool) -> list[Ints]:
        """``[q][i]``: least synchronisation of layers i..L-1 on positions 0..q."""
        return self._sweep(
            lambda q: self._least_sync(q, ring, int(INFINITE), alone), np.maximum, longest
        )

    def least_bottleneck(self, stages: int, max_sync: int) -> int:
        """Least bottleneck load of exactly ``stages`` stages under a synchronisation limit."""
        if stages == 1:
            alone = self._least_load(0, 0, int(INFINITE), max_sync, alone=True)
            return int(alone[0, self.layers])
        return self.least_bottlenecks(max_sync, self.ring[stages], stages)[stages]

    def least_sync(self, stages: int, max_load: int) -> int:
        """Least synchronisation of exactly ``stages`` stages under a load limit."""
        if stages == 1:
            return int(self._least_sync(0, 0, max_load, alone=True)[0, self.layers])
        return self.least_syncs(max_load, self.ring[stages], stages)[stages]

    # --- the reference plan of a corner -----------------------------------------------------------

    def reference_stages(self, stages: int, max_load: int, max_sync: int) -> list[StageChoice]:
        """The preferred plan with every load and synchronisation within the limits.

        Preferred: least sum of loads; then earlier stage ends, from the first stage on; then weaker
        recomputation, one whole list before the next; then lower ZeRO stage. There must be a plan.
        """
        alone = stages == 1
        ring = self.ring[stages]
        allowed = [self._allowed_loads(q, ring, max_load, max_sync, alone) for q in range(stages)]
        least = [loads.min(axis=0) for loads in allowed]
        values = self._sweep(lambda q: least[q], add, stages)
        result, i = [], 0
        for q in reversed(range(stages)):
            # argmin takes the first of equal ones: the earliest end.
            k = int(np.argmin(add(least[q][i], values[q - 1]))) if q else self.layers
            load = int(least[q][i, k])
            # Given the ends, stages choose independently, so the first choice of least load wins.
            c = int(np.argmax(allowed[q][:, i, k] == load))
            result.append(StageChoice(i, k, self.choices[c], load))
            i = k
        return result

    def memory_quanta(self, stages: int, q: int, stage: StageChoice) -> int:
        """Memory of a stage at position ``q`` of a pipeline of ``stages`` stages."""
        pricer = self._alone if stages == 1 else self.pricer
        return int(pricer.memory(stage.choice, pricer.in_flight(q))[stage.first, stage.stop])


def add(left: Ints, right: Ints) -> Ints:
    """Sum that stays INFINITE where either side is."""
    total = np.minimum(left, INFINITE // 2) + np.minimum(right, INFINITE // 2)
    result: Ints = np.where((left >= INFINITE) | (right >= INFINITE), INFINITE, total)
    return result
