"""What a constraint can say about the stages of a model, whichever formulation it is of.

A constraint's face for the integer programs receives a :class:`StageModel`: the cell, where its
stages lie, and linear expressions of what each stage holds and chooses, in the variables of the
formulation at hand. A row is added with :meth:`StageModel.require`; it is one more row of the model
named ``K<n>_<name of the constraint>``, so it is a family of its own.

Expressions are sums of integer coefficients times variables. Layers are asked about by number only
where the constraint marks them (:meth:`nest_opt.constraints.Constraint.marked_layers`): the others
may be merged with equal ones beside them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from pyomo.environ import ConcreteModel, ConstraintList

from formulations.costs import CellCosts, Choice, SyncRow, axis_groups, interval, linear
from nest_opt.cells import Cell
from nest_opt.compile import Compiled
from nest_opt.constraints import Constraint
from nest_opt.estimate.table import Axis
from nest_opt.plan import Recomputation

#: (coefficient, variable)
Terms = list[tuple[int, Any]]


class StageModel(ABC):
    """The stages of one cell in a model: facts that are fixed, and expressions of those that vary.

    ``model`` is the Pyomo model, ``cell`` and ``compiled`` what it was built from; stages are
    numbered j = 0..s-1 from the first one on, replicas r = 0..d-1.
    """

    def __init__(
        self, model: ConcreteModel, compiled: Compiled, cell: Cell, costs: CellCosts
    ) -> None:
        self.model = model
        self.compiled = compiled
        self.cell = cell
        self._costs = costs
        self._rows: ConstraintList | None = None

    # --- what is fixed ----------------------------------------------------------------------------

    @property
    def numbers(self) -> range:
        """The stages 0..s-1."""
        return range(self._costs.stages)

    def devices(self, stage: int, replica: int) -> range:
        """Devices of a stage of a replica, tensor index fastest, then context, then expert."""
        return interval(self.compiled, self.cell, replica, stage)

    def groups(self, stage: int, replica: int, axis: Axis) -> list[list[int]]:
        """The groups of one axis in the devices of a stage of a replica."""
        return axis_groups(self.cell, self.devices(stage, replica))[axis]

    # --- what varies ------------------------------------------------------------------------------

    def layers(self, stage: int) -> Any:
        """How many layers a stage holds."""
        return self._sum(t for c in self._costs.choices for t in self._layers(stage, c))

    def holds(self, layer: int, stage: int) -> Any:
        """1 if the stage holds that (marked) layer, else 0."""
        self._must_be_marked(layer)
        return self._sum(t for c in self._costs.choices for t in self._holds(layer, stage, c))

    def starts(self, layer: int, stage: int) -> Any:
        """1 if the stage starts with that (marked) layer, else 0."""
        self._must_be_marked(layer)
        return self._sum(t for c in self._costs.choices for t in self._starts(layer, stage, c))

    def chooses(
        self, stage: int, *, recomputation: Recomputation | None = None, zero: int | None = None
    ) -> Any:
        """1 if the stage chooses that kind of recomputation, and that ZeRO stage, else 0."""
        return self._sum(
            t
            for c in self._costs.choices
            if recomputation in (None, c.recomputation) and zero in (None, c.zero)
            for t in self._chooses(stage, c)
        )

    # --- rows -------------------------------------------------------------------------------------

    def require(self, row: Any) -> None:
        """Add a row: an expression of the above compared with a number or another expression."""
        assert self._rows is not None, "rows are added while a constraint restricts the model"
        self._rows.add(row)

    def forbid(self) -> None:
        """No plan of this cell keeps the constraint."""
        self.require(self._sum(()) >= 1)

    def memory_at_most(self, stage: int, quanta: int) -> None:
        """Rows: a stage needs at most so many quanta per device."""
        terms = [t for c in self._costs.choices for t in self._memory(stage, c)]
        self.require(self._sum(terms) <= quanta)

    def sync_at_most(self, stage: int, ticks: int) -> None:
        """Rows: a stage synchronises for at most so many ticks per batch.

        No row for a stage whose synchronisation is not paid for (``first_stage``).
        """
        if stage in self._costs.synchronised:
            unit = self._costs.sync_unit
            for row in self._costs.positions[stage].syncs:
                # All terms are multiples of the unit, so the room may be rounded down to one.
                self.require(self._sum(self._sync(stage, row)) <= ticks // unit - row.tied // unit)

    # --- what each formulation says in its own variables ------------------------------------------

    @abstractmethod
    def _layers(self, stage: int, choice: Choice) -> Terms:
        """Terms of how many layers a stage holds under a choice."""

    @abstractmethod
    def _holds(self, layer: int, stage: int, choice: Choice) -> Terms:
        """Terms of whether a stage holds a marked layer under a choice."""

    @abstractmethod
    def _starts(self, layer: int, stage: int, choice: Choice) -> Terms:
        """Terms of whether a stage starts with a marked layer under a choice."""

    @abstractmethod
    def _chooses(self, stage: int, choice: Choice) -> Terms:
        """Terms of whether a stage makes a choice."""

    @abstractmethod
    def _memory(self, stage: int, choice: Choice) -> Terms:
        """Terms of a stage's memory under a choice, in quanta; it may be less in a solution."""

    @abstractmethod
    def _sync(self, stage: int, row: SyncRow) -> Terms:
        """Terms of a stage's synchronisation by one row, in units, without the tied part."""

    # --- small things -----------------------------------------------------------------------------

    def _sum(self, terms: Iterable[tuple[int, Any]]) -> Any:
        return linear(self.model, terms)

    def _must_be_marked(self, layer: int) -> None:
        if layer not in self._costs.marked:
            raise ValueError(
                f"layer {layer} is not marked, so it may be merged with others; list it in "
                "marked_layers of the constraint"
            )

    def restrict(self, constraints: Iterable[Constraint]) -> None:
        """Let each constraint add its rows."""
        for n, constraint in enumerate(constraints):
            self._rows = ConstraintList()
            self.model.add_component(f"K{n}_{constraint.constraint}", self._rows)
            constraint.restrict(self)
            self._rows = None
