"""OR-Tools CP-SAT, with a model of one cell of its own.

A second opinion that shares nothing with the first: another solver, which computes in integers
throughout, and another model, written from the rules of formulations/README.md and not from the
integer programs beside it, whose variables, rows and cost rules it does not use. It reads the
compiled problem (its tables, the price of one primitive, the network's answers about sets of
devices) and the cell, and nothing else. OR-Tools is an optional extra: ``pip install
'nest-opt[cp-sat]'``.

Indices: layer i in 0..L-1; stage j in 0..s-1, counted from the input; recomputation kind k and ZeRO
stage z of the search space; *way* v, one of the different ways in which replicas of a stage lie.

Variables
    begun[j,i]   stage j or one before it has begun by layer i: it starts with layer i or an
                 earlier one. Constant where every stage could otherwise not have a layer: false for
                 i < j, true for i >= L-s+j. So "begun[j,i] and not begun[j+1,i]" reads: stage j
                 holds layer i; "begun[j,i] and not begun[j,i-1]": it starts with layer i.
    kind[j,k]    stage j recomputes that way
    zero[j,z]    stage j uses that ZeRO stage
    holds[j,p]   stage j holds weights of that kind, dense or expert
    dense[j], expert[j]   ticks in which a stage's weights of that kind synchronise
    working[j], gathered[j]   quanta of its largest layer's working memory and gathered weights
    tau, sigma   ticks of the largest load and of the synchronisation that counts

Constraints
    ordered      begun[j,i] implies begun[j,i+1]
    nonempty     begun[j+1,i] implies begun[j,i-1]: each stage holds at least one layer
    one_kind, one_zero   each stage chooses one of each
    load         tau >= the load of stage j in way v, for the kind and ZeRO stage that it chooses
    held         holds[j,p] where the stage holds a layer with bytes of that kind
    synchronise  dense[j] (expert[j]) >= the total of each shape of group, for the chosen ZeRO stage
    slowest      sigma >= dense[j] + expert[j] + the tied weight's ring (of each stage, or stage 0)
    largest      working[j], gathered[j] >= the term of each layer that the stage holds
    memory       what stage j keeps fits, for the kind and ZeRO stage that it chooses
    limit        (m+s-1) tau + sigma <= limit (decision)
    (others)     what the constraints of the problem require of :class:`Stages`

Objective
    (m+s-1) tau + sigma (minimum); none (decision)

Size: s (L - s + K + Z) Booleans; per stage 2 (L - s) clauses and one row of at most 2 (L - s + 1)
terms for each way, kind and ZeRO stage that differ.
"""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from nest_opt.certify.answers import (
    CP_SAT_CONDITIONS,
    EngineAnswer,
    Option,
    Refusal,
    Status,
    status_of,
)
from nest_opt.compile import Compiled, LayerKind, StateBytes, Table
from nest_opt.errors import CompileError, EngineError, PlanError
from nest_opt.estimate.table import Axis
from nest_opt.plan import Plan, Recomputation, StagePlan, ZeroStage

if TYPE_CHECKING:
    from nest_opt.cells import Cell
    from nest_opt.network import GroupShape

Kind = Literal["decision", "minimum", "fixed_plan"]

#: What OR-Tools is called in the package index, and how it gets here.
_INSTALL = "OR-Tools is not installed: pip install 'nest-opt[cp-sat]'"


def version() -> str | None:
    """The installed release of OR-Tools; None without one."""
    try:
        return importlib.metadata.version("ortools")
    except importlib.metadata.PackageNotFoundError:
        return None


# --- terms of a cell ------------------------------------------------------------------------------

#: One number for each layer.
Row = tuple[int, ...]


class Way(NamedTuple):
    """How a stage of one replica lies: all that its load depends on.

    ``receives`` and ``sends`` are the link classes of its transfers (None: it has none), the others
    the shapes of the groups of each axis.
    """

    receives: int | None
    sends: int | None
    tensor: frozenset[GroupShape]
    context: frozenset[GroupShape]
    expert: frozenset[GroupShape]


@dataclass(frozen=True)
class Terms:
    """The numbers of one cell. Ticks and quanta, all integers.

    Raises :class:`CompileError` for a cell that is none of the problem's.
    """

    compiled: Compiled
    cell: Cell
    _shapes: dict[tuple[int, ...], GroupShape] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        cell, compiled = self.cell, self.compiled
        if (
            (cell.template, cell.microbatch) not in compiled.tables
            or not 1 <= cell.stages <= compiled.layer_count
            or cell.replicas * cell.stages * cell.template.width > compiled.devices
        ):
            raise CompileError(f"{cell.label} is no cell of {compiled.name}; list its cells anew")

    @cached_property
    def table(self) -> Table:
        """The integers of the cell's template and microbatch."""
        return self.compiled.tables[self.cell.template, self.cell.microbatch]

    @property
    def layers(self) -> int:
        """L."""
        return self.compiled.layer_count

    @property
    def stages(self) -> int:
        """s."""
        return self.cell.stages

    @property
    def microbatches(self) -> int:
        """m, counted from the batch: the last ones are padded if need be."""
        cell = self.cell
        together = cell.replicas * cell.microbatch * cell.template.expert
        return (self.compiled.global_batch + together - 1) // together

    @property
    def slots(self) -> int:
        """m + s - 1."""
        return self.microbatches + self.stages - 1

    def window(self, stage: int) -> range:
        """Layers that a stage can hold where no other is empty."""
        return range(stage, self.layers - self.stages + stage + 1)

    # --- where stages lie -------------------------------------------------------------------------

    def devices(self, stage: int, replica: int) -> tuple[int, ...]:
        """Devices of one stage of one replica, tensor index fastest, then context, then expert.

        The last stage lies first: the stages behind this one take the devices before it.
        """
        cell, behind = self.cell, self.stages - 1 - stage
        if cell.layout == "pipeline-inner":
            first = replica * (self.compiled.devices // cell.replicas)
            first += behind * cell.template.width
        else:
            first = (behind * cell.replicas + replica) * cell.template.width
        return tuple(range(first, first + cell.template.width))

    def shape(self, group: tuple[int, ...]) -> GroupShape:
        """Shape of a group of devices."""
        if group not in self._shapes:
            self._shapes[group] = self.compiled.network.shape_of(group)
        return self._shapes[group]

    def sub_groups(self, devices: tuple[int, ...], varying: str) -> set[tuple[int, ...]]:
        """The groups of ranks that differ in the indices named in ``varying`` alone.

        ``varying`` holds letters of "tce": tensor, context, expert.
        """
        sizes = {
            "t": self.cell.template.tensor,
            "c": self.cell.template.context,
            "e": self.cell.template.expert,
        }
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, device in enumerate(devices):
            index = {}
            for axis, size in sizes.items():
                rank, index[axis] = divmod(rank, size)
            fixed = tuple(index[axis] for axis in sizes if axis not in varying)
            groups.setdefault(fixed, []).append(device)
        return set(map(tuple, groups.values()))

    def ways(self, stage: int) -> list[Way]:
        """The different ways in which the replicas of a stage lie."""
        network, found = self.compiled.network, []
        first_devices = self.compiled.cost_model.transfer_link == "first_devices"

        def link(one: int, other: int, replica: int) -> int | None:
            if not 0 <= one < other < self.stages:
                return None
            if first_devices:
                return network.class_of((self.devices(one, 0)[0], self.devices(other, 0)[0]))
            return network.class_of(self.devices(one, replica) + self.devices(other, replica))

        for r in range(self.cell.replicas):
            here = self.devices(stage, r)
            tensor, context, expert = (
                frozenset(map(self.shape, self.sub_groups(here, axis))) for axis in "tce"
            )
            links = link(stage - 1, stage, r), link(stage, stage + 1, r)
            found.append(Way(*links, tensor, context, expert))
        return list(dict.fromkeys(found))

    def sharing(self, stage: int, expert: bool) -> tuple[set[GroupShape], int]:
        """Shapes of the groups that share a stage's weights of one kind, and the ranks of each.

        Dense weights: all ranks of one tensor index; expert weights: of one tensor and one expert
        index.
        """
        together: dict[tuple[int, ...], list[int]] = {}
        for r in range(self.cell.replicas):
            here = self.devices(stage, r)
            for group in self.sub_groups(here, "c" if expert else "ce"):
                # What the group shares, told by where its first rank lies in the stage.
                together.setdefault((group[0] - here[0],), []).extend(group)
        groups = [tuple(group) for group in together.values()]
        return set(map(self.shape, groups)), len(groups[0])

    # --- ticks ------------------------------------------------------------------------------------

    def _row(self, price: Callable[[LayerKind, StateBytes], int]) -> Row:
        """A price of every layer, which is asked for each kind of layer once."""
        table, known, row = self.table, {}, []
        for i, layer in enumerate(table.layers):
            dense = table.dense_state(i, self.stages)
            key = table.kind[i], dense
            if key not in known:
                known[key] = price(layer, dense)
            row.append(known[key])
        return tuple(row)

    def work(self, way: Way, kind: Recomputation) -> Row:
        """Ticks per microbatch that each layer adds to its stage, without ZeRO's collectives."""
        forward_again = self.compiled.cost_model.recomputation == "forward_again"
        again = kind in ("layer", "stage") and forward_again
        shapes = {"tensor": way.tensor, "context": way.context, "expert": way.expert}

        def price(layer: LayerKind, _: StateBytes) -> int:
            total = layer.forward + layer.backward
            if kind == "selective":
                total += layer.recompute_selective
            if again:
                total += layer.recompute
            for call in layer.calls:
                one = max(
                    self.compiled.collective_ticks(call.kind, call.bytes, shape)
                    for shape in shapes[call.axis]
                )
                times = call.count
                if again and call.direction == "forward":
                    times += call.count
                total += times * one
            return total

        return self._row(price)

    def backward_again(self, way: Way, kind: Recomputation) -> Row | None:
        """What a stage that recomputes while gradients arrive pays in place of that transfer.

        None unless the cost model says so; the last stage, to which nothing arrives, recomputes
        nothing.
        """
        if self.compiled.cost_model.recomputation != "backward_again":
            return None
        if kind != "stage" or way.sends is None:
            return None
        return self._row(lambda layer, _: layer.recompute)

    def transfer(self, link: int | None) -> Row:
        """Ticks of the cut before each layer; the last number, of no cut, is 0."""
        if link is None:
            return (0,) * (self.layers + 1)
        return (*self.table.transfer_ticks[link], 0)

    def zero_work(self, stage: int, zero: ZeroStage) -> Row:
        """Ticks per microbatch that a ZeRO stage adds to each layer."""
        if zero < 2:
            return (0,) * self.layers
        price = self.compiled.collective_ticks

        def of_kind(state: StateBytes, shapes: set[GroupShape]) -> int:
            scatter = max(price("reduce_scatter", state.gradients, shape) for shape in shapes)
            gather = max(price("all_gather", state.weights, shape) for shape in shapes)
            return scatter + (2 * gather if zero == 3 else 0)

        dense, _ = self.sharing(stage, expert=False)
        experts, _ = self.sharing(stage, expert=True)
        return self._row(
            lambda layer, state: of_kind(state, dense) + of_kind(layer.expert, experts)
        )

    def share(self, zero: ZeroStage, shape: GroupShape, expert: bool) -> Row:
        """Ticks per batch that each layer adds to its stage's synchronisation of one kind."""
        price = self.compiled.sync_share_ticks
        return self._row(lambda layer, dense: price(zero, layer.expert if expert else dense, shape))

    def has_bytes(self, expert: bool) -> tuple[bool, ...]:
        """Whether each layer holds weights of one kind."""
        row = self._row(lambda layer, dense: int((layer.expert if expert else dense).weights > 0))
        return tuple(map(bool, row))

    def tied_ring(self) -> int:
        """Ticks per batch that a tied weight adds to the first and to the last stage."""
        if self.stages == 1 or not self.table.has_tied_weight:
            return 0
        pairs = [
            self.devices(0, r) + self.devices(self.stages - 1, r) for r in range(self.cell.replicas)
        ]
        classes = set(map(self.compiled.network.class_of, pairs))
        return max(self.compiled.tied_ring_ticks(self.table.tied, link) for link in classes)

    # --- quanta -----------------------------------------------------------------------------------

    def in_flight(self, stage: int) -> int:
        """Microbatches that a stage keeps."""
        to_the_end = self.stages - stage
        if self.compiled.cost_model.in_flight == "stages_behind":
            return to_the_end
        return min(to_the_end, self.microbatches)

    def state(self, stage: int, zero: ZeroStage) -> Row:
        """Quanta of weights, gradients and optimizer state that a rank keeps of each layer."""
        quanta = self.compiled.quanta
        _, dense_ranks = self.sharing(stage, expert=False)
        _, expert_ranks = self.sharing(stage, expert=True)

        def of_kind(state: StateBytes, ranks: int) -> int:
            shards = [ranks if zero >= least else 1 for least in (3, 2, 1)]
            sizes = (state.weights, state.gradients, state.optimizer)
            return sum(quanta(size, n) for size, n in zip(sizes, shards, strict=True))

        return self._row(
            lambda layer, dense: of_kind(dense, dense_ranks) + of_kind(layer.expert, expert_ranks)
        )

    def left_behind(self, stage: int, kind: Recomputation) -> Row:
        """Quanta that each layer adds to what the microbatches in flight leave behind."""
        flying = self.in_flight(stage)
        if kind == "none":
            return self._row(lambda layer, _: flying * layer.activations)
        if kind == "selective":
            return self._row(lambda layer, _: flying * layer.selective)
        if kind == "layer":
            return self._row(lambda layer, _: flying * layer.checkpoint)
        # Of the one microbatch that is worked on; what the others leave is the stage's input.
        return self._row(lambda layer, _: layer.activations)

    def inputs(self, stage: int, kind: Recomputation) -> Row:
        """Quanta of kept inputs of a stage that starts with each layer."""
        if kind != "stage":
            return (0,) * self.layers
        kept = self.in_flight(stage) - 1
        return tuple(
            kept * (self.table.layers[0].checkpoint if i == 0 else self.table.cut_quanta[i])
            for i in range(self.layers)
        )

    def working(self, kind: Recomputation) -> Row:
        """Quanta of working memory for each layer, of which the largest counts."""
        if kind == "selective":
            return self._row(lambda layer, _: layer.attention_core)
        if kind == "layer":
            return self._row(lambda layer, _: layer.activations)
        return (0,) * self.layers

    def gathered(self, zero: ZeroStage) -> Row:
        """Quanta of each layer's full weights where ZeRO gathers them; the largest counts."""
        if zero != 3:
            return (0,) * self.layers
        quanta = self.compiled.quanta
        return self._row(lambda layer, dense: quanta(dense.weights) + quanta(layer.expert.weights))


# --- the model ------------------------------------------------------------------------------------

#: A Boolean variable, its negation, or what is known.
_Literal = Any


class _Sum:
    """A linear expression on its way: what is known is added up, the rest kept as terms."""

    def __init__(self) -> None:
        self.known = 0
        self.variables: list[Any] = []
        self.coefficients: list[int] = []

    def add(self, coefficient: int, variable: _Literal) -> None:
        """Add coefficient * variable."""
        if isinstance(variable, (bool, int)):
            self.known += coefficient * int(variable)
        elif coefficient:
            self.variables.append(variable)
            self.coefficients.append(coefficient)

    def expression(self) -> Any:
        """The sum, for the solver."""
        from ortools.sat.python.cp_model import LinearExpr

        return LinearExpr.weighted_sum(self.variables, self.coefficients) + self.known


class Model:
    """The model of one cell; see the module's description.

    ``limit`` bounds T (None: no bound); ``minimise`` makes T the objective. Raises
    :class:`CompileError` for a cell that is none of the problem's.
    """

    def __init__(
        self, compiled: Compiled, cell: Cell, *, limit: int | None = None, minimise: bool = False
    ) -> None:
        from ortools.sat.python.cp_model import CpModel

        self.terms = Terms(compiled, cell)
        self.search = compiled.search
        self.solver_model: Any = CpModel()
        self.stages = range(cell.stages)
        #: By stage, the one after the last included, and layer.
        self.begun: list[list[_Literal]] = [
            [self._begun(j, i) for i in range(self.terms.layers)] for j in range(cell.stages + 1)
        ]
        self.kind = [
            {k: self._bool(f"kind[{j},{k}]") for k in self.search.recomputation}
            for j in self.stages
        ]
        self.zero = [
            {z: self._bool(f"zero[{j},{z}]") for z in self.search.zero} for j in self.stages
        ]
        #: By stage: quanta that it keeps, and the choice under which.
        self.kept: list[list[tuple[Any, list[_Literal]]]] = [[] for _ in self.stages]
        self.tau = self._integer("tau", self._most_load())
        self.sigma = self._integer("sigma", self._most_sync())
        self._boundaries()
        self._choices()
        for j in self.stages:
            self._load(j)
            self._memory(j)
        first_only = compiled.cost_model.synchronisation == "first_stage"
        #: Ticks of the stages whose synchronisation counts.
        self.sync = {
            j: self._synchronise(j) for j in (self.stages[:1] if first_only else self.stages)
        }
        for constraint in self.search.constraints:
            constraint.restrict(cast(Any, Stages(self)))
        price = self.terms.slots * self.tau + self.sigma
        if limit is not None:
            self.solver_model.add(price <= limit)
        if minimise:
            self.solver_model.minimize(price)

    # --- small things -----------------------------------------------------------------------------

    def _bool(self, name: str) -> Any:
        return self.solver_model.new_bool_var(name)

    def _begun(self, stage: int, layer: int) -> _Literal:
        """Whether a stage or one before it begins by a layer: known where no stage is empty."""
        if stage == 0:
            return True
        if stage == self.terms.stages or layer < stage:
            return False
        return layer >= self.terms.window(stage)[-1] or self._bool(f"begun[{stage},{layer}]")

    def _integer(self, name: str, most: int) -> Any:
        return self.solver_model.new_int_var(0, most, name)

    def _where(self, constraint: Any, literals: Iterable[_Literal]) -> None:
        """Let a constraint hold only where all literals do."""
        unknown = [literal for literal in literals if literal is not True]
        if unknown:
            constraint.only_enforce_if(unknown)

    def _holds(self, stage: int, layer: int) -> list[_Literal]:
        """Literals that together say: the stage holds the layer."""
        return [self.begun[stage][layer], _not(self.begun[stage + 1][layer])]

    def total(
        self, stage: int, each: Row, first: Sequence[int] = (), behind: Sequence[int] = ()
    ) -> _Sum:
        """The sum of a row over a stage's layers, and what depends on where it starts and ends.

        That is ``first`` of the layer that it starts with and ``behind`` of the one that the next
        stage starts with.
        """
        total, here, after = _Sum(), self.begun[stage], self.begun[stage + 1]
        for i in range(self.terms.layers):
            before, before_after = (here[i - 1], after[i - 1]) if i else (False, False)
            total.add(each[i], here[i])
            total.add(-each[i], after[i])
            if first:
                total.add(first[i], here[i])
                total.add(-first[i], before)
            if behind:
                total.add(behind[i], after[i])
                total.add(-behind[i], before_after)
        return total

    def _most_load(self) -> int:
        """Ticks that no load exceeds."""
        most = 0
        for j in self.stages:
            for way in self.terms.ways(j):
                transfers = max(self.terms.transfer(way.receives))
                transfers += max(self.terms.transfer(way.sends))
                for k in self.search.recomputation:
                    again = self.terms.backward_again(way, k) or ()
                    work = sum(self.terms.work(way, k)) + sum(again)
                    for z in self.search.zero:
                        most = max(most, work + sum(self.terms.zero_work(j, z)) + transfers)
        return most

    def _most_sync(self) -> int:
        """Ticks that no synchronisation exceeds."""
        most, compiled = 0, self.terms.compiled
        for j in self.stages:
            for z in self.search.zero:
                total = self.terms.tied_ring()
                for expert in (False, True):
                    shapes, _ = self.terms.sharing(j, expert)
                    total += max(
                        sum(self.terms.share(z, shape, expert))
                        + compiled.sync_latency_ticks(z, shape)
                        for shape in shapes
                    )
                most = max(most, total)
        return most

    # --- constraints ------------------------------------------------------------------------------

    def _boundaries(self) -> None:
        """ordered, nonempty."""
        for j in self.stages[1:]:
            for earlier, later in pairwise(self.begun[j]):
                self._imply(earlier, later)
        for j in self.stages:
            for i in range(self.terms.layers):
                before = self.begun[j][i - 1] if i else False
                self._imply(self.begun[j + 1][i], before)

    def _imply(self, one: _Literal, other: _Literal) -> None:
        if one is False or other is True:
            return
        self.solver_model.add_bool_or([_not(one), other])

    def _choices(self) -> None:
        """one_kind, one_zero."""
        for j in self.stages:
            self.solver_model.add_exactly_one(self.kind[j].values())
            self.solver_model.add_exactly_one(self.zero[j].values())

    def _load(self, j: int) -> None:
        """load: tau reaches that of the stage in every way in which its replicas lie."""
        terms = self.terms
        alike: dict[Row, list[_Literal]] = {}
        for z, chosen in self.zero[j].items():
            alike.setdefault(terms.zero_work(j, z), []).append(chosen)
        for way in terms.ways(j):
            receives, sends = terms.transfer(way.receives), terms.transfer(way.sends)
            for k, chosen in self.kind[j].items():
                work = terms.work(way, k)
                costs = [(work, sends)]
                again = terms.backward_again(way, k)
                if again is not None:  # the longer of the two counts
                    costs.append((_plus(work, again), ()))
                for zero_work, zeros in alike.items():
                    for each, behind in costs:
                        load = self.total(j, _plus(each, zero_work), receives, behind)
                        row = self.solver_model.add(load.expression() <= self.tau)
                        self._where(row, [chosen, self._any(zeros)])

    def both(self, one: Any, other: Any) -> Any:
        """A literal that holds exactly where two do."""
        both = self._bool("")
        self._imply(both, one)
        self._imply(both, other)
        self.solver_model.add_bool_or([_not(one), _not(other), both])
        return both

    def _any(self, literals: Sequence[_Literal]) -> _Literal:
        """A literal that holds where one of several does, of which at most one holds."""
        if len(literals) == 1:
            return literals[0]
        either = self._bool("")
        self.solver_model.add(sum(literals) == either)
        return either

    def _synchronise(self, j: int) -> Any:
        """held, synchronise, slowest; what the stage pays."""
        slowest = _Sum()
        slowest.add(1, self._of_kind(j, expert=False))
        slowest.add(1, self._of_kind(j, expert=True))
        if j in (0, self.stages[-1]):
            slowest.add(self.terms.tied_ring(), True)
        self.solver_model.add(slowest.expression() <= self.sigma)
        return slowest.expression()

    def _of_kind(self, j: int, expert: bool) -> _Literal:
        """Ticks in which a stage's weights of one kind synchronise: its slowest group."""
        terms, window = self.terms, self.terms.window(j)
        has_bytes = terms.has_bytes(expert)
        if not any(has_bytes[i] for i in window):
            return 0
        held: _Literal = True
        if not all(has_bytes[i] for i in window):
            held = self._bool(f"holds[{j},{'expert' if expert else 'dense'}]")
            for i in window:
                if has_bytes[i]:
                    row = self.solver_model.add_bool_or([held])
                    self._where(row, self._holds(j, i))
        ticks = self._integer(f"{'expert' if expert else 'dense'}[{j}]", self._most_sync())
        for shape in sorted(terms.sharing(j, expert)[0]):
            for z, chosen in self.zero[j].items():
                total = self.total(j, terms.share(z, shape, expert))
                total.add(terms.compiled.sync_latency_ticks(z, shape), held)
                self._where(self.solver_model.add(total.expression() <= ticks), [chosen])
        return ticks

    def _memory(self, j: int) -> None:
        """largest, memory."""
        terms = self.terms
        working = self._largest(j, {self.kind[j][k]: terms.working(k) for k in self.kind[j]})
        gathered = self._largest(j, {self.zero[j][z]: terms.gathered(z) for z in self.zero[j]})
        for k, kind in self.kind[j].items():
            for z, zero in self.zero[j].items():
                each = _plus(terms.state(j, z), terms.left_behind(j, k))
                kept = self.total(j, each, terms.inputs(j, k))
                kept.add(1, working)
                kept.add(1, gathered)
                self.kept[j].append((kept.expression(), [kind, zero]))
        self.memory_at_most(j, terms.compiled.memory_quanta)

    def memory_at_most(self, stage: int, quanta: int) -> None:
        """Let a stage keep at most so many quanta."""
        for kept, choice in self.kept[stage]:
            self._where(self.solver_model.add(kept <= quanta), choice)

    def _largest(self, j: int, rows: Mapping[Any, Row]) -> _Literal:
        """A variable that reaches the row of the choice made at each layer of the stage."""
        window = self.terms.window(j)
        if not any(any(row) for row in rows.values()):
            return 0
        largest = self._integer("", max(max(row) for row in rows.values()))
        for chosen, row in rows.items():
            least = min(row[i] for i in window)  # the stage holds some layer
            self._where(self.solver_model.add(largest >= least), [chosen])
            for i in window:
                if row[i] > least:
                    reached = self.solver_model.add(largest >= row[i])
                    self._where(reached, [chosen, *self._holds(j, i)])
        return largest

    def fix(self, plan: Plan) -> None:
        """Admit nothing but one plan. Raises :class:`PlanError` for one of another cell."""
        terms, cell = self.terms, self.terms.cell
        placed = tuple(
            tuple(terms.devices(j, r) for r in range(cell.replicas)) for j in self.stages
        )
        facts = (plan.microbatch, plan.replicas, plan.microbatches, plan.template, plan.layout)
        own = (cell.microbatch, cell.replicas, terms.microbatches, cell.template, cell.layout)
        if facts != own or tuple(stage.devices for stage in plan.stages) != placed:
            raise PlanError(f"{cell.label}: the plan lies in another cell; ask about that one")
        for j, stage in enumerate(plan.stages):
            first, end = stage.layers
            for i in range(terms.layers):
                self._fix(self.begun[j][i], i >= first)
                self._fix(self.begun[j + 1][i], i >= end)
            for k, chosen in self.kind[j].items():
                self._fix(chosen, k == stage.recomputation)
            for z, chosen in self.zero[j].items():
                self._fix(chosen, z == stage.zero)

    def _fix(self, literal: _Literal, value: bool) -> None:
        if isinstance(literal, bool):
            if literal is not value:
                self.solver_model.add_bool_or([])
        else:
            self.solver_model.add_bool_or([literal if value else _not(literal)])

    def solution(self, value: Callable[[Any], int]) -> dict[str, float]:
        """What a solution says of each stage, as numbers; :func:`decode` reads it."""
        numbers: dict[str, float] = {}

        def holds(literal: _Literal) -> bool:
            return literal if isinstance(literal, bool) else bool(value(literal))

        for j in self.stages:
            numbers[f"start[{j}]"] = [holds(b) for b in self.begun[j]].index(True)
            for name, literals in (("kind", self.kind[j]), ("zero", self.zero[j])):
                chosen = [n for n, literal in enumerate(literals.values()) if holds(literal)]
                (numbers[f"{name}[{j}]"],) = chosen
        return numbers


class Stages:
    """What a constraint can say about the stages of this model.

    It offers what :class:`formulations.stages.StageModel` offers, in these variables.
    """

    def __init__(self, model: Model) -> None:
        self._model, self._terms = model, model.terms
        self.compiled, self.cell, self.numbers = (
            model.terms.compiled,
            model.terms.cell,
            model.stages,
        )

    def devices(self, stage: int, replica: int) -> Sequence[int]:
        """Devices of a stage of a replica."""
        return self._terms.devices(stage, replica)

    def groups(self, stage: int, replica: int, axis: Axis) -> Iterable[Sequence[int]]:
        """The groups of one axis in the devices of a stage of a replica."""
        return self._terms.sub_groups(self._terms.devices(stage, replica), axis[0])

    def layers(self, stage: int) -> Any:
        """How many layers a stage holds."""
        return self._row((1,) * self._terms.layers, stage)

    def holds(self, layer: int, stage: int) -> Any:
        """1 if the stage holds that layer, else 0."""
        return self._row(_unit(layer, self._terms.layers), stage)

    def starts(self, layer: int, stage: int) -> Any:
        """1 if the stage starts with that layer, else 0."""
        none = (0,) * self._terms.layers
        return self._model.total(stage, none, _unit(layer, self._terms.layers)).expression()

    def chooses(
        self, stage: int, *, recomputation: Recomputation | None = None, zero: int | None = None
    ) -> Any:
        """1 if the stage chooses that kind of recomputation, and that ZeRO stage, else 0."""
        asked: list[_Literal] = []
        if recomputation is not None:
            asked.append(self._model.kind[stage].get(recomputation, False))
        if zero is not None:
            asked.append(self._model.zero[stage].get(zero, False))
        if any(literal is False for literal in asked):
            return 0
        if len(asked) == 2:
            return self._model.both(*asked)
        return asked[0] if asked else 1

    def require(self, row: Any) -> None:
        """Add a row; one without variables is true or false by itself."""
        if isinstance(row, bool):
            if not row:
                self.forbid()
        else:
            self._model.solver_model.add(row)

    def forbid(self) -> None:
        """No plan of this cell keeps the constraint."""
        self._model.solver_model.add_bool_or([])

    def memory_at_most(self, stage: int, quanta: int) -> None:
        """A stage needs at most so many quanta per device."""
        self._model.memory_at_most(stage, quanta)

    def sync_at_most(self, stage: int, ticks: int) -> None:
        """A stage whose synchronisation is paid for synchronises for at most so many ticks."""
        if stage in self._model.sync:
            self._model.solver_model.add(self._model.sync[stage] <= ticks)

    def _row(self, each: Row, stage: int) -> Any:
        return self._model.total(stage, each).expression()


def _unit(layer: int, layers: int) -> Row:
    return tuple(int(i == layer) for i in range(layers))


def _not(literal: _Literal) -> _Literal:
    return not literal if isinstance(literal, bool) else ~literal


def _plus(one: Row, other: Row) -> Row:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def decode(compiled: Compiled, cell: Cell, values: Mapping[str, float]) -> Plan:
    """The plan that a solution stands for.

    Raises :class:`PlanError` for numbers that describe no plan of the cell.
    """
    terms, search = Terms(compiled, cell), compiled.search
    try:
        numbers = {name: int(number) for name, number in values.items()}
        starts = [numbers[f"start[{j}]"] for j in range(cell.stages)]
        kinds = [search.recomputation[numbers[f"kind[{j}]"]] for j in range(cell.stages)]
        zeros = [search.zero[numbers[f"zero[{j}]"]] for j in range(cell.stages)]
    except (KeyError, IndexError, ValueError, OverflowError) as error:
        raise PlanError(
            f"{cell.label}: the solution is no plan: {type(error).__name__} {error}"
        ) from None
    return Plan(
        digest=compiled.digest,
        microbatch=cell.microbatch,
        replicas=cell.replicas,
        microbatches=terms.microbatches,
        layout=cell.layout,
        template=cell.template,
        stages=tuple(
            StagePlan(
                layers=layers,
                recomputation=kinds[j],
                zero=zeros[j],
                devices=tuple(terms.devices(j, r) for r in range(cell.replicas)),
            )
            for j, layers in enumerate(pairwise([*starts, compiled.layer_count]))
        ),
    )


# --- asking ---------------------------------------------------------------------------------------

#: Names and values of a solution, from the solver's value of each variable.
_Read = Callable[[Callable[[Any], int]], dict[str, float]]


def solve(
    compiled: Compiled,
    cell: Cell,
    kind: Kind,
    limit: int | None,
    *,
    time_limit: float,
    presolve: bool,
    seed: int,
    plan: Plan | None = None,
) -> EngineAnswer:
    """Have CP-SAT answer one question about a cell: one worker, gaps zero.

    ``decision``: is there a plan with T <= ``limit`` (None: any plan)? ``minimum``: the best plan.
    ``fixed_plan``: is ``plan`` one with T <= ``limit``? A ``plan`` that is given is the only one
    that is admitted. ``time_limit`` in seconds. Whatever goes wrong is a ``fault``.
    """
    started = time.monotonic()

    def build() -> tuple[Any, _Read]:
        model = Model(
            compiled, cell, limit=None if kind == "minimum" else limit, minimise=kind == "minimum"
        )
        if plan is not None:
            model.fix(plan)
        elif kind == "fixed_plan":
            raise PlanError("no plan is given that could be fixed")
        return model.solver_model, model.solution

    return _answered(started, build, time_limit, presolve, seed)


def solve_model(
    model: Any, read: _Read, *, time_limit: float, presolve: bool, seed: int
) -> EngineAnswer:
    """Have CP-SAT solve any model of its own kind; ``read`` tells the values of a solution."""
    return _answered(time.monotonic(), lambda: (model, read), time_limit, presolve, seed)


def _answered(
    started: float,
    build: Callable[[], tuple[Any, _Read]],
    time_limit: float,
    presolve: bool,
    seed: int,
) -> EngineAnswer:
    """Build and solve; whatever OR-Tools or the model raises is no answer."""
    facts: dict[str, Any] = {}
    status: Status
    try:
        if version() is None:
            raise EngineError(_INSTALL)
        model, read = build()
        status, detail = run(model, read, time_limit, presolve, seed, facts)
    except Refusal as refusal:
        status, detail = "fault", str(refusal)
    except Exception as error:
        status, detail = "fault", f"exception: {type(error).__name__}: {error}"
    return EngineAnswer(
        status=status,
        detail=detail,
        seconds=time.monotonic() - started,
        version=version() or "",
        **facts,
    )


def run(
    model: Any,
    read: _Read,
    time_limit: float,
    presolve: bool,
    seed: int,
    facts: dict[str, Any],
) -> tuple[Status, str]:
    """Solve a CP-SAT model; ``read`` tells the values. Leaves what is learned in ``facts``."""
    from ortools.sat.python.cp_model import CpSolver

    solver = CpSolver()
    asked: dict[str, Option] = {
        "num_workers": 1,
        "random_seed": seed,
        "cp_model_presolve": presolve,
        "max_time_in_seconds": float(time_limit),
        "relative_gap_limit": 0.0,
        "absolute_gap_limit": 0.0,
    }
    for name, wanted in asked.items():
        setattr(solver.parameters, name, wanted)
    invalid = model.validate()
    if invalid:
        return "fault", f"exception: OverflowGuardError: CP-SAT refuses the model: {invalid}"
    condition = solver.status_name(solver.solve(model))
    facts["options"] = {name: getattr(solver.parameters, name) for name in asked}
    facts["nodes"] = int(solver.num_branches)
    has_objective = model.has_objective()
    if condition in ("OPTIMAL", "FEASIBLE"):
        facts["values"] = read(solver.value)
        facts["objective"] = float(round(solver.objective_value)) if has_objective else 0.0
    if condition in ("OPTIMAL", "FEASIBLE", "UNKNOWN") and has_objective:
        bound = float(solver.best_objective_bound)
        facts["bound"] = bound if math.isfinite(bound) else None
    return status_of(CP_SAT_CONDITIONS, condition, "values" in facts), condition
