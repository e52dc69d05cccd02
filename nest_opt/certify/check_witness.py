"""Checks a witness: optimality from value tables, without trusting the solver that wrote them.

Nothing here knows of the dynamic program, of its geometry or of its bounds. Where stages lie is
said by :mod:`nest_opt.certify.own_bounds`, what a primitive costs by the compiled problem; what a
stage costs is stated here. Checked are

- the plan: the evaluator prices it at exactly T*, and it lies in the search space;
- every cell of the search space, listed anew: the work bound of
  :mod:`nest_opt.certify.own_bounds` reaches T* (where no plan exists: its count shows that memory
  does not suffice), or the tables of a group close it;
- every entry of every table: with A[i, k] the least load of a stage of layers i..k-1 at position q
  that fits into memory and keeps the bound on synchronisation,
  V[q][i] = min over k of max(A[i, k], V[q - 1][k]), and V[0][i] = A[i, L]. By induction over q no
  placement is below V, whoever filled the tables in. Less would do (an entry may be too small), but
  a table that is not Bellman's was not written by the program, and is refused;
- the arithmetic by which the tables close a cell (:mod:`nest_opt.certify.witness`).

Time is linear in the transitions, O(L**2) for each position and table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nest_opt.certify.own_bounds import OwnBounds, OwnCell, Way, own_cells, own_interval
from nest_opt.certify.verify import Verification, plan_complaints
from nest_opt.compile import Compiled, StateBytes, compile_problem
from nest_opt.errors import CertificateError, NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.files import canonical_json, complaints_of
from nest_opt.library import load_problem
from nest_opt.network import GroupShape
from nest_opt.plan import Layout, Plan, Recomputation, Template

FORMAT = "nest-opt/witness/1"
Ints = npt.NDArray[np.int64]
Shapes = frozenset[GroupShape]

#: Called now and then with (done, total, what is being done).
Progress = Callable[[int, int, str], None]

#: More than any price: no such stage, no such placement.
_NONE = 2**62
#: At most this many refusals are listed.
_SHOWN = 50

_Value = Annotated[int, Field(ge=-1, lt=_NONE)]
_Rows = list[list[_Value]]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Table(_Record):
    sync_at_most: Annotated[int, Field(ge=-1, lt=_NONE)] | None
    least_load: _Rows


class _Group(_Record):
    microbatch: Annotated[int, Field(ge=1)]
    replicas: Annotated[int, Field(ge=1)]
    layout: Layout
    template: Template
    stages: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    tables: Annotated[list[_Table], Field(min_length=1)]
    least_sync: _Rows


class _Witness(_Record):
    format: Literal["nest-opt/witness/1"]
    problem: dict[str, Any]
    digest: str
    batch_ticks: Annotated[int, Field(ge=0)] | None
    plan: dict[str, Any] | None
    groups: list[_Group]


def check_witness(data: Any, *, progress: Progress | None = None) -> Verification:
    """Check a witness, given as its JSON object.

    Raises ``CertificateError`` for what is no witness at all (unknown fields, wrong types); one
    that does not hold is refused in the result.
    """
    try:
        witness = _Witness.model_validate_json(canonical_json(data))
    except ValidationError as error:
        raise CertificateError(
            "is not a witness: " + "; ".join(map(str, complaints_of(error, data)[:5]))
        ) from None
    return _Check(witness, progress).run()


class _Check:
    """One check."""

    def __init__(self, witness: _Witness, progress: Progress | None) -> None:
        self.witness = witness
        self.progress = progress
        self.refusals: list[str] = []

    def run(self) -> Verification:
        """Everything, in the order of the module's description."""
        witness = self.witness
        checked = {"cells": 0, "bounded": 0, "in_tables": 0, "entries": 0}
        try:
            compiled = compile_problem(load_problem(witness.problem))
        except NestOptError as error:
            return Verification(False, (f"the problem does not compile: {error}",), checked)
        if compiled.digest != witness.digest:
            self.refuse(f"the digest of its problem is {compiled.digest}, not {witness.digest}")
        cells = {cell.label: cell for cell in own_cells(compiled)}
        checked["cells"] = len(cells)
        self.check_plan(compiled, cells)
        own = OwnBounds(compiled)
        closed: set[str] = set()
        for done, group in enumerate(witness.groups):
            self.tick(done, len(witness.groups), "checking tables")
            found = _GroupCheck(compiled, own, group, cells, witness.batch_ticks, self.refuse)
            closed |= found.closed()
            checked["entries"] += found.entries
        checked["in_tables"] = len(closed)
        # Neighbouring cells share what own bounds remember, so they are asked in their order.
        for done, (label, cell) in enumerate(cells.items()):
            if done % 500 == 0:
                self.tick(done, len(cells), "checking bounds")
            if label in closed:
                continue
            if self.is_bounded(own, cell):
                checked["bounded"] += 1
            else:
                self.refuse(f"{label}: no bound closes it, and no table does")
        shown = self.refusals[:_SHOWN]
        if len(self.refusals) > _SHOWN:
            shown.append(f"... and {len(self.refusals) - _SHOWN} more")
        return Verification(not shown, tuple(shown), checked)

    def refuse(self, reason: str) -> None:
        """Note a reason, once."""
        if reason not in self.refusals:
            self.refusals.append(reason)

    def tick(self, done: int, total: int, what: str) -> None:
        """Show progress, if it is shown."""
        if self.progress:
            self.progress(done, total, what)

    def check_plan(self, compiled: Compiled, cells: dict[str, OwnCell]) -> None:
        """The plan is there if T* is, and costs exactly that."""
        witness = self.witness
        if (witness.plan is None) != (witness.batch_ticks is None):
            self.refuse("it has a plan and no T, or a T and no plan")
        if witness.plan is None or witness.batch_ticks is None:
            return
        try:
            plan = Plan.from_dict(witness.plan)
        except NestOptError as error:
            self.refuse(f"the plan is none: {error}")
            return
        evaluation = Evaluator(compiled).evaluate(plan)
        reported = (witness.batch_ticks, evaluation.tau_ticks, evaluation.sigma_ticks)
        for complaint in plan_complaints(compiled, cells, plan, evaluation, reported):
            self.refuse(f"the plan: {complaint}")

    def is_bounded(self, own: OwnBounds, cell: OwnCell) -> bool:
        """Whether a closed-form bound shows that the cell has no better plan."""
        best = self.witness.batch_ticks
        if best is None:
            return not own.may_reach(cell, None)
        return own.work(cell) >= best


class _GroupCheck:
    """The tables of one group: cells that differ in their number of stages alone."""

    def __init__(
        self,
        compiled: Compiled,
        own: OwnBounds,
        group: _Group,
        cells: dict[str, OwnCell],
        best: int | None,
        refuse: Callable[[str], None],
    ) -> None:
        self.compiled, self.own, self.group, self.best = compiled, own, group, best
        self.layers = compiled.layer_count
        self.entries = 0
        template = group.template
        self.name = f"b{group.microbatch} d{group.replicas} {template.label} {group.layout}"
        self._refuse = refuse
        of = {
            stages: OwnCell(template, group.replicas, group.layout, group.microbatch, stages)
            for stages in group.stages
        }
        self.cells = {s: cell for s, cell in of.items() if cell.label in cells}
        for stages in of.keys() - self.cells.keys():
            self.refuse(f"{stages} stages are no cell of the search space")

    def refuse(self, reason: str) -> None:
        """Note what is wrong with this group."""
        self._refuse(f"tables of {self.name}: {reason}")

    def closed(self) -> set[str]:
        """Labels of the cells that the tables close; refuses tables that are wrong."""
        if not self.cells:
            return set()
        rings = {self.ring(s) for s in self.cells}
        if len(rings) > 1 or (1 in self.cells and len(self.cells) > 1 and self.has_tied):
            self.refuse("its cells differ in what a tied weight costs; they need tables apart")
            return set()
        limits = [table.sync_at_most for table in self.group.tables]
        numbers = [_NONE if limit is None else limit for limit in limits]
        if limits[0] is not None or any(a <= b for a, b in pairwise(numbers)):
            self.refuse("the bounds on synchronisation do not fall from none on")
            return set()
        longest = max(self.cells)
        costs = _StageCosts(
            self.compiled, self.own, self.group, next(iter(self.cells.values())), rings.pop()
        )
        every = [table.least_load for table in self.group.tables]
        for rows in (*every, self.group.least_sync):
            if len(rows) != longest or any(len(row) != self.layers + 1 for row in rows):
                self.refuse(f"tables must have {longest} rows of {self.layers + 1} values")
                return set()
        loads = [self.values(rows) for rows in every]
        syncs = self.values(self.group.least_sync)
        sound = True
        for q in range(longest):
            load, sync, fits = costs.of(q, longest)
            for n, limit in enumerate(numbers):
                within = fits & (sync <= limit)
                least = np.where(within, load, _NONE).min(axis=0)
                sound &= self.holds(loads[n], q, least, f"least_load under {limits[n]}")
            least = np.where(fits, sync, _NONE).min(axis=0)
            sound &= self.holds(syncs, q, least, "least_sync")
        if not sound:
            return set()
        return {cell.label for s, cell in self.cells.items() if self.closes(s, cell, loads, syncs)}

    @property
    def has_tied(self) -> bool:
        """Whether first and last layer share a weight."""
        key = self.group.template, self.group.microbatch
        return self.compiled.tables[key].has_tied_weight

    def ring(self, stages: int) -> int:
        """Ticks of the ring that a tied weight needs between the ends of so many stages."""
        group = self.group
        table = self.compiled.tables[group.template, group.microbatch]
        if stages == 1 or not table.has_tied_weight:
            return 0

        def interval(replica: int, behind: int) -> range:
            return own_interval(
                self.compiled.devices, group.template, group.replicas, group.layout, replica, behind
            )

        return max(
            self.compiled.tied_ring_ticks(
                table.tied,
                self.compiled.network.class_of([*interval(r, stages - 1), *interval(r, 0)]),
            )
            for r in range(group.replicas)
        )

    def values(self, rows: Sequence[Sequence[int]]) -> Ints:
        """A table as an array, with -1 (no way at all) as more than any price."""
        table = np.array(rows, dtype=np.int64)
        table[table < 0] = _NONE
        return table

    def holds(self, table: Ints, q: int, least: Ints, what: str) -> bool:
        """Bellman's equation for every entry of row q; ``least[i, k]`` prices one stage."""
        if q == 0:
            allowed = least[:, self.layers].copy()
        else:
            allowed = np.maximum(least, table[q - 1][None, :]).min(axis=1)
        if q == len(table) - 1:
            allowed[1:] = _NONE  # Only a first stage lies there.
        wrong = np.nonzero(table[q] != allowed)[0]
        self.entries += len(allowed)
        if len(wrong):
            i = int(wrong[0])
            self.refuse(
                f"{what}: row {q}, layer {i} says {_said(table[q, i])}, but Bellman's equation "
                f"gives {_said(allowed[i])}"
            )
        return not len(wrong)

    def closes(self, stages: int, cell: OwnCell, loads: Sequence[Ints], syncs: Ints) -> bool:
        """Whether the tables leave no plan better than T* with so many stages."""
        slots = cell.microbatches(self.compiled.global_batch) + stages - 1
        limits = [table.sync_at_most for table in self.group.tables]
        floors = [limit + 1 for limit in limits[1:] if limit is not None]
        floors.append(int(syncs[stages - 1, 0]))
        for table, floor in zip(loads, floors, strict=True):
            load = int(table[stages - 1, 0])
            if load >= _NONE or floor >= _NONE:
                continue
            if self.best is None or slots * load + floor < self.best:
                self.refuse(
                    f"{stages} stages: a plan of load {load} and synchronisation {floor} is not "
                    "excluded, and would be better"
                )
                return False
        return True


def _said(value: int) -> str:
    return "no way" if value >= _NONE else str(int(value))


class _StageCosts:
    """What every stage of one group costs, by position: arrays indexed [choice, i, k]."""

    def __init__(
        self, compiled: Compiled, own: OwnBounds, group: _Group, cell: OwnCell, ring: int
    ) -> None:
        self.compiled, self.own, self.group, self.ring = compiled, own, group, ring
        self.table = compiled.tables[group.template, group.microbatch]
        self.microbatches = cell.microbatches(compiled.global_batch)
        self.count = compiled.layer_count
        #: A tied weight counts once where both ends lie in one stage.
        self.states = [own.states(self.table, i, cell.stages) for i in range(self.count)]
        self.choices: list[tuple[Recomputation, int]] = [
            (recomputation, zero)
            for recomputation in compiled.search.recomputation
            for zero in compiled.search.zero
        ]
        self.exists = np.triu(np.ones((self.count + 1, self.count + 1), dtype=bool), k=1)
        self._known: dict[tuple[object, ...], Ints] = {}

    def of(self, q: int, longest: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """(load, synchronisation, whether it exists and fits) of every stage at position q."""
        group, own = self.group, self.own
        where = (group.template, group.replicas, group.layout, q)
        shapes = own.sync_shapes(*where)
        first = own.ways(*where, True)
        later = own.ways(*where, False) if q + 1 < longest else first
        in_flight = q + 1
        if self.compiled.cost_model.in_flight == "at_most_microbatches":
            in_flight = min(in_flight, self.microbatches)
        load, sync, fits = [], [], []
        for recomputation, zero in self.choices:
            here = self.load(recomputation, zero, later, shapes).copy()
            here[0] = self.load(recomputation, zero, first, shapes)[0]
            load.append(here)
            sync.append(self.sync(zero, shapes, q))
            memory = self.memory(recomputation, zero, in_flight)
            fits.append(self.exists & (memory <= self.compiled.memory_quanta))
        return np.stack(load), np.stack(sync), np.stack(fits)

    def known(self, key: tuple[object, ...], compute: Callable[[], Ints]) -> Ints:
        """Computed once for each key."""
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]

    def sums(self, values: Iterable[int]) -> Ints:
        """``[i, k]``: the sum over layers i..k-1."""
        running = np.zeros(self.count + 1, dtype=np.int64)
        running[1:] = np.cumsum(np.fromiter(values, dtype=np.int64, count=self.count))
        result: Ints = running[None, :] - running[:, None]
        return result

    def largest(self, values: Iterable[int]) -> Ints:
        """``[i, k]``: the largest over layers i..k-1."""
        each = np.fromiter(values, dtype=np.int64, count=self.count)
        result = np.zeros((self.count + 1, self.count + 1), dtype=np.int64)
        for k in range(1, self.count + 1):
            result[:k, k] = np.maximum.accumulate(each[:k][::-1])[::-1]
        return result

    # --- load -------------------------------------------------------------------------------------

    def load(
        self,
        recomputation: Recomputation,
        zero: int,
        ways: frozenset[Way],
        shapes: tuple[Shapes, Shapes],
    ) -> Ints:
        """Ticks per microbatch in the replica where they are most."""
        worst = self.known(
            ("load", recomputation, ways),
            lambda: np.max([self.load_of(recomputation, way) for way in ways], axis=0),
        )
        if zero < 2:
            return worst
        return worst + self.known(
            ("zero", zero, shapes),
            lambda: self.sums(self.own.zero_load(state, zero, shapes) for state in self.states),
        )

    def load_of(self, recomputation: Recomputation, way: Way) -> Ints:
        """Ticks per microbatch of stages that lie in one way."""
        groups = (way.tensor, way.context, way.expert)
        load = self.sums(
            self.own.layer_load(self.table, i, recomputation, groups) for i in range(self.count)
        )
        load = load + self.transfer(way.before)[:, None]
        back = self.transfer(way.behind)[None, :]
        if recomputation == "stage" and self.own.backward_again and way.behind is not None:
            again = self.sums(layer.recompute for layer in self.table.layers)
            return load + np.maximum(again, back)
        return load + back

    def transfer(self, link: int | None) -> Ints:
        """``[i]``: ticks of the cut before layer i; none at the ends of the model."""
        ticks = np.zeros(self.count + 1, dtype=np.int64)
        if link is not None:
            ticks[1 : self.count] = self.table.transfer_ticks[link][1:]
        return ticks

    # --- synchronisation --------------------------------------------------------------------------

    def sync(self, zero: int, shapes: tuple[Shapes, Shapes], q: int) -> Ints:
        """Ticks per batch, with the tied ring where the stage pays it."""
        total = self.known(
            ("sync", zero, shapes),
            lambda: (
                self.sync_of_kind(zero, [dense for dense, _ in self.states], shapes[0])
                + self.sync_of_kind(zero, [expert for _, expert in self.states], shapes[1])
            ),
        ).copy()
        total[0] += self.ring
        if self.compiled.cost_model.synchronisation == "first_stage":
            total[1:] = 0
        elif q == 0:
            total[1:] += self.ring
        return total

    def sync_of_kind(self, zero: int, states: Sequence[StateBytes], shapes: Shapes) -> Ints:
        """One kind of weights: the group with the largest total of latency and shares."""
        holds = self.sums(int(state.weights > 0) for state in states) > 0
        result: Ints = np.max(
            [
                holds * self.compiled.sync_latency_ticks(zero, shape)
                + self.sums(self.compiled.sync_share_ticks(zero, s, shape) for s in states)
                for shape in shapes
            ],
            axis=0,
        )
        return result

    # --- memory -----------------------------------------------------------------------------------

    def memory(self, recomputation: Recomputation, zero: int, in_flight: int) -> Ints:
        """Quanta per device."""
        return self.known(
            ("memory", recomputation, zero, in_flight),
            lambda: self.state_memory(zero) + self.activation_memory(recomputation, in_flight),
        )

    def state_memory(self, zero: int) -> Ints:
        """Weights, gradients, optimizer state, and what ZeRO 3 adds back."""
        quanta, template = self.compiled.quanta, self.group.template
        of_experts = self.group.replicas * template.context
        ranks = (of_experts * template.expert, of_experts)

        def kept(states: tuple[StateBytes, StateBytes]) -> int:
            total = 0
            for state, sharing in zip(states, ranks, strict=True):
                total += quanta(state.weights, sharing if zero == 3 else 1)
                total += quanta(state.gradients, sharing if zero >= 2 else 1)
                total += quanta(state.optimizer, sharing if zero >= 1 else 1)
            return total

        memory = self.sums(map(kept, self.states))
        if zero == 3:
            whole = (sum(quanta(state.weights) for state in states) for states in self.states)
            memory = memory + self.largest(whole)
        return memory

    def activation_memory(self, recomputation: Recomputation, in_flight: int) -> Ints:
        """What microbatches leave behind, and the working memory of one."""
        layers = self.table.layers
        if recomputation == "none":
            return in_flight * self.sums(layer.activations for layer in layers)
        if recomputation == "selective":
            kept = in_flight * self.sums(layer.selective for layer in layers)
            return kept + self.largest(layer.attention_core for layer in layers)
        if recomputation == "layer":
            kept = in_flight * self.sums(layer.checkpoint for layer in layers)
            return kept + self.largest(layer.activations for layer in layers)
        inputs = np.array([*self.table.cut_quanta, 0], dtype=np.int64)
        inputs[0] = layers[0].checkpoint
        return (in_flight - 1) * inputs[:, None] + self.sums(layer.activations for layer in layers)
