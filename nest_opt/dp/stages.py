"""What the dynamic program shows to a constraint: cells, places and stages; and its answers.

Positions are counted from the first stage here (j), as people do; everywhere else in this package
they are counted from the last (q = s - 1 - j).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nest_opt.cells import Cell
from nest_opt.compile import Compiled
from nest_opt.constraints import Constraint, carried
from nest_opt.dp.tables import Choice
from nest_opt.errors import EngineError
from nest_opt.estimate.table import Axis
from nest_opt.geometry import Geometry, Ints
from nest_opt.plan import Recomputation

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Places:
    """Where the stages of a cell lie."""

    compiled: Compiled
    cell: Cell
    geometry: Geometry

    @cached_property
    def starts(self) -> Ints:
        """``[j, r]``: first device of stage j of replica r."""
        cell = self.cell
        starts = self.geometry.starts(cell.template, cell.replicas, cell.layout)
        return starts[: cell.stages][::-1]

    def devices(self, stage: int, replica: int) -> range:
        """Devices of a stage of a replica, tensor index fastest, then context, then expert."""
        start = int(self.starts[stage, replica])
        return range(start, start + self.cell.template.width)

    @cached_property
    def transfer_classes(self) -> Ints:
        """``[j, r]``: link class of the union of stages j and j + 1 of replica r."""
        cell = self.cell
        # Whatever the cost model takes a transfer's link for, what counts here is how far it is.
        geometry = self.geometry
        if geometry.first_devices:
            geometry = Geometry(self.compiled.network)
        joins = geometry.joins(cell.template, cell.replicas, cell.layout)
        return joins[: cell.stages - 1][::-1]

    @cached_property
    def stage_classes(self) -> Ints:
        """``[j]``: link class of all devices of stage j in all replicas."""
        width = np.arange(self.cell.template.width)
        every = (self.starts[:, :, None] + width).reshape(self.cell.stages, -1).tolist()
        return np.array([self.compiled.network.class_of(devices) for devices in every])

    def group_class(self, axis: Axis) -> int:
        """The farthest link class of a group of that axis, over all stages and replicas."""
        cell = self.cell
        positions = self.geometry.positions(cell.template, cell.replicas, cell.layout)
        farthest: int = max(
            shape.link_class
            for position in positions[: cell.stages]
            for signature in position.as_later
            for shape in getattr(signature, axis)
        )
        return farthest


@dataclass(frozen=True)
class Stages:
    """Every stage that can lie at one position under one choice.

    ``number`` is the position from the first stage on. ``first`` and ``stop`` are the first layer
    of a stage and the first behind it, ``[i, 1]`` and ``[1, k]``, so that ``stages.stop -
    stages.first`` is an array ``[i, k]``; it means something where i < k.
    """

    compiled: Compiled
    cell: Cell
    number: int
    recomputation: Recomputation
    zero: int
    first: Ints
    stop: Ints
    _memory: Callable[[], Ints]
    _sync: Callable[[], Ints]
    _load: Callable[[], Ints]

    @property
    def layers(self) -> Ints:
        """``[i, k]``: how many layers a stage holds."""
        return self.stop - self.first

    def holds(self, layer: int) -> Flags:
        """``[i, k]``: whether a stage holds a layer."""
        held: Flags = (self.first <= layer) & (layer < self.stop)
        return held

    @cached_property
    def memory(self) -> Ints:
        """``[i, k]``: quanta per device."""
        return self._memory()

    @cached_property
    def sync(self) -> Ints:
        """``[i, k]``: ticks of synchronisation per batch, a tied weight's ring included.

        0 in the stages whose synchronisation is not paid for (``first_stage``).
        """
        return self._sync()

    @cached_property
    def load(self) -> Ints:
        """``[i, k]``: ticks per microbatch, more than any price where the stage does not fit."""
        return self._load()


class Rules:
    """The constraints of a problem in one cell, as the recurrence asks them."""

    def __init__(self, compiled: Compiled, cell: Cell) -> None:
        self.cell = cell
        self.constraints = [c for c in compiled.search.constraints if c.filters_stages]
        self._sizes = [c.carried(cell) for c in self.constraints]
        #: How many numbers are carried, those of all constraints combined into one.
        self.carried = carried(self.constraints, cell)

    def allowed(self, stages: Stages) -> Flags | None:
        """``[i, k]``: which stages all constraints allow; None for all of them."""
        allowed: Flags | None = None
        shape = np.broadcast_shapes(stages.first.shape, stages.stop.shape)
        for constraint in self.constraints:
            answer = constraint.allows_stage(stages)
            if answer is True:
                continue
            answer = np.broadcast_to(np.asarray(answer, dtype=bool), shape)
            allowed = answer if allowed is None else allowed & answer
        return allowed

    def carry(self, value: int, stages: Stages) -> Ints:
        """``[i, k]`` or one number: what is carried on from ``value``; -1 where it is forbidden."""
        total: Ints = np.zeros((), dtype=np.int64)
        refused: Flags = np.zeros((), dtype=bool)
        place = 1
        for constraint, size in zip(self.constraints, self._sizes, strict=True):
            value, own = divmod(value, size)
            following = np.asarray(constraint.carry(own, stages), dtype=np.int64)
            refused = refused | (following < 0)
            if np.any(following >= size):
                raise EngineError(
                    f"constraint {constraint.constraint} carries {int(following.max())}, but says "
                    f"that it carries numbers below {size}"
                )
            total = total + place * following
            place *= size
        carried_on: Ints = np.where(refused, -1, total)
        return carried_on

    def accepts(self, value: int) -> bool:
        """Whether a pipeline may end, at its first stage, with that number."""
        for constraint, size in zip(self.constraints, self._sizes, strict=True):
            value, own = divmod(value, size)
            if not constraint.accepts(own, self.cell):
                return False
        return True


def require_dp_faces(constraints: Sequence[Constraint]) -> None:
    """Raises :class:`EngineError` for a constraint that only the integer programs know."""
    for constraint in constraints:
        if not constraint.has_dp_face:
            raise EngineError(
                f"constraint {constraint.constraint} has no face for the dynamic program; solve "
                "the problem with the integer programs alone (solve --engine milp)"
            )


def choice_of(stages: Stages) -> Choice:
    """The choice that stages make."""
    return Choice(stages.recomputation, stages.zero)
