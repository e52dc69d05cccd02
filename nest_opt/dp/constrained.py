"""The recurrence of one cell whose stages must keep constraints.

As in :mod:`nest_opt.dp.recurrence`, with two additions: stages that a constraint forbids do not
exist, and constraints may carry a small number from stage to stage (how many stages recompute, say,
or what the stage laid last has chosen). The state is then (q, x, i): positions 0..q hold layers
i..L-1, and x is carried on. The number of stages is fixed, because a constraint may ask for a
stage's position.

O(X * C * L**2) for each position with C choices and X carried numbers, times the different numbers
that one of them leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from nest_opt.cells import Cell
from nest_opt.compile import Compiled
from nest_opt.dp.recurrence import Combine, Family, Pipelines, StageChoice, add
from nest_opt.dp.stages import Flags, Places, Rules, Stages
from nest_opt.dp.tables import INFINITE
from nest_opt.geometry import Geometry, Ints
from nest_opt.plan import RECOMPUTATIONS

#: Stages by (number carried into them, number carried on): their cost ``[i, k]``.
Steps = dict[tuple[int, int], Ints]


class ConstrainedPipelines(Pipelines):
    """All pipelines of one cell that keep the constraints of the problem."""

    def __init__(self, compiled: Compiled, geometry: Geometry, cell: Cell) -> None:
        super().__init__(compiled, geometry, Family.of(cell), cell.stages)
        self.cell = cell
        self.rules = Rules(compiled, cell)
        self._stages_at = [
            [self._stages(q, c) for c in range(len(self.choices))] for q in range(cell.stages)
        ]

    @property
    def _is_alone(self) -> bool:
        return self.cell.stages == 1

    def _stages(self, q: int, c: int) -> Stages:
        """All stages at position ``q`` under choice ``c``, as constraints see them."""
        choice = self.choices[c]
        pricer = self._alone if self._is_alone else self.pricer
        size = np.arange(self.layers + 1, dtype=np.int64)
        return Stages(
            compiled=self.compiled,
            cell=self.cell,
            number=self.cell.stages - 1 - q,
            recomputation=choice.recomputation,
            zero=choice.zero,
            first=size[:, None],
            stop=size[None, :],
            _memory=lambda: pricer.memory(choice, pricer.in_flight(q)),
            _sync=lambda: self._sync_with_ring(
                self._stage(q, self._is_alone), q, self.ring[self.cell.stages], choice.zero
            ),
            _load=lambda: self._stage(q, self._is_alone).load[c],
        )

    @cached_property
    def _allowed_by_rules(self) -> list[list[Flags | None]]:
        """``[q][c]``: ``[i, k]``, which stages the constraints allow; None for all."""
        return [[self.rules.allowed(stages) for stages in row] for row in self._stages_at]

    @cached_property
    def _carried_on(self) -> list[dict[int, list[Ints]]]:
        """``[q][x][c]``: the number carried on, or ``[i, k]`` of them; -1 where it is forbidden.

        For the numbers x that can be carried into position q; into the last stage, that is 0.
        """
        result = []
        reached = {0}
        for row in self._stages_at:
            following = {
                x: [self.rules.carry(x, stages) for stages in row] for x in sorted(reached)
            }
            result.append(following)
            reached = {
                y for arrays in following.values() for a in arrays for y in np.unique(a).tolist()
            } - {-1}
        return result

    def _costs(self, q: int, max_load: int, max_sync: int, of_sync: bool = False) -> list[Ints]:
        """``[c]``: ``[i, k]``, load or synchronisation of the stages that keep everything."""
        ring = self.ring[self.cell.stages]
        loads = self._allowed_loads(q, ring, max_load, max_sync, self._is_alone)
        table = self._stage(q, self._is_alone)
        costs = []
        for c, choice in enumerate(self.choices):
            cost = loads[c]
            if of_sync:
                sync = self._sync_with_ring(table, q, ring, choice.zero)
                cost = np.where(cost < INFINITE, sync, INFINITE)
            allowed = self._allowed_by_rules[q][c]
            costs.append(cost if allowed is None else np.where(allowed, cost, INFINITE))
        return costs

    def _steps(self, q: int, costs: list[Ints]) -> Steps:
        """The cheapest stage for each pair of numbers carried in and on."""
        steps: Steps = {}
        for x, row in self._carried_on[q].items():
            for cost, following in zip(costs, row, strict=True):
                for y in sorted({*np.unique(following).tolist()} - {-1}):
                    there = (
                        cost if following.ndim == 0 else np.where(following == y, cost, INFINITE)
                    )
                    known = steps.get((x, y))
                    steps[x, y] = there if known is None else np.minimum(known, there)
        return steps

    def _carry_through(self, cost: Callable[[int], list[Ints]], combine: Combine) -> list[Ints]:
        """``[q]``: ``[x, i]``, best value of layers i..L-1 on positions 0..q that carries x on."""
        values: list[Ints] = []
        for q in range(self.cell.stages):
            best = np.full((self.rules.carried, self.layers + 1), INFINITE, dtype=np.int64)
            for (x, y), stage in self._steps(q, cost(q)).items():
                if q == 0:
                    found = stage[:, self.layers]
                else:
                    found = combine(stage, values[-1][x][None, :]).min(axis=1)
                best[y] = np.minimum(best[y], found)
            values.append(np.minimum(best, INFINITE))
        return values

    @cached_property
    def _accepted(self) -> list[int]:
        """Numbers with which a pipeline may end."""
        return [x for x in range(self.rules.carried) if self.rules.accepts(x)]

    def _best(self, values: list[Ints]) -> int:
        return min((int(values[-1][x][0]) for x in self._accepted), default=int(INFINITE))

    # --- what the frontier asks -------------------------------------------------------------------

    def least_bottleneck(self, stages: int, max_sync: int) -> int:
        """Least bottleneck load of the cell's stages under a synchronisation limit."""
        values = self._carry_through(lambda q: self._costs(q, int(INFINITE), max_sync), np.maximum)
        return self._best(values)

    def least_sync(self, stages: int, max_load: int) -> int:
        """Least synchronisation of the cell's stages under a load limit."""
        values = self._carry_through(
            lambda q: self._costs(q, max_load, int(INFINITE), of_sync=True), np.maximum
        )
        return self._best(values)

    def reference_stages(self, stages: int, max_load: int, max_sync: int) -> list[StageChoice]:
        """The preferred plan with every load and synchronisation within the limits.

        Preferred as in :meth:`Pipelines.reference_stages`. What one stage chooses may depend on the
        others here, so there are three passes, each among the plans that the passes before it left:
        least sum of loads and earliest ends, weakest recomputation, lowest ZeRO stage.
        """
        costs = [self._costs(q, max_load, max_sync) for q in range(stages)]
        walk = self._walk(costs, lambda i, k, c: k)
        ends = [k for _, k, _ in walk]
        starts = [0, *ends[:-1]]
        for j, (i, k) in enumerate(zip(starts, ends, strict=True)):
            costs[stages - 1 - j] = [_only(cost, i, k) for cost in costs[stages - 1 - j]]
        kinds = [RECOMPUTATIONS.index(choice.recomputation) for choice in self.choices]
        walk = self._walk(costs, lambda i, k, c: kinds[c])
        for j, (_, _, chosen) in enumerate(walk):
            at = costs[stages - 1 - j]
            for c in range(len(self.choices)):
                if kinds[c] != kinds[chosen]:
                    at[c] = np.full_like(at[c], INFINITE)
        walk = self._walk(costs, lambda i, k, c: self.choices[c].zero)
        return [
            StageChoice(i, k, self.choices[c], int(costs[stages - 1 - j][c][i, k]))
            for j, (i, k, c) in enumerate(walk)
        ]

    def _walk(
        self, costs: list[list[Ints]], rank: Callable[[int, int, int], int]
    ) -> list[tuple[int, int, int]]:
        """Stages (i, k, c) from the first on, of least sum, each of least ``rank`` in its turn.

        All ways on that tie in what was ranked so far are kept, so that no stage's choice is made
        at the cost of a later one's rank. Of ways that tie throughout, one is returned.
        """
        values = self._carry_through(lambda q: costs[q], add)
        total = self._best(values)
        # Carried on by the stages from here, their cost, their first layer, the stages before.
        ways: list[tuple[int, int, int, list[tuple[int, int, int]]]] = [
            (x, total, 0, []) for x in self._accepted if values[-1][x][0] == total
        ]
        for q in reversed(range(len(costs))):
            following = []
            for x, left, i, taken in ways:
                for before, k, c in self._last_steps(q, costs[q], values, x, i, left):
                    rest = left - int(costs[q][c][i, k])
                    following.append((rank(i, k, c), (before, rest, k, [*taken, (i, k, c)])))
            best = min(ranked for ranked, _ in following)
            unique = {way[:3]: way for ranked, way in reversed(following) if ranked == best}
            ways = list(unique.values())
        return ways[0][3]

    def _last_steps(
        self, q: int, costs: list[Ints], values: list[Ints], x: int, i: int, left: int
    ) -> Iterable[tuple[int, int, int]]:
        """Ways (number carried in, end, choice) to lay a stage from layer ``i`` at position ``q``.

        It carries on ``x``, and together with those behind it costs ``left``.
        """
        for before, row in self._carried_on[q].items():
            if q == 0:
                rest = np.full(self.layers + 1, INFINITE, dtype=np.int64)
                rest[self.layers] = 0
            else:
                rest = values[q - 1][before]
            for c, (cost, following) in enumerate(zip(costs, row, strict=True)):
                fits = add(cost[i], rest) == left
                fits &= np.broadcast_to(following, cost.shape)[i] == x
                for k in np.flatnonzero(fits).tolist():
                    yield before, k, c


def _only(cost: Ints, first: int, stop: int) -> Ints:
    """A table in which only one stage exists."""
    kept = np.full_like(cost, INFINITE)
    kept[first, stop] = cost[first, stop]
    return kept


def allowed_cells(compiled: Compiled, geometry: Geometry, cells: Iterable[Cell]) -> list[Cell]:
    """The cells that every constraint of the problem allows."""
    constraints = compiled.search.constraints
    if not constraints:
        return list(cells)
    return [
        cell
        for cell in cells
        if all(c.allows_cell(cell, Places(compiled, cell, geometry)) for c in constraints)
    ]


def pipelines_of(compiled: Compiled, geometry: Geometry, cell: Cell) -> Pipelines:
    """The pipelines of one cell, by the recurrence that the problem's constraints need."""
    if any(c.filters_stages for c in compiled.search.constraints):
        return ConstrainedPipelines(compiled, geometry, cell)
    return Pipelines(compiled, geometry, Family.of(cell), cell.stages)
