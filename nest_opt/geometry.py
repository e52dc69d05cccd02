"""Where the two layouts put stages, and what that means for links and groups.

Counted from the last stage, a stage's place does not depend on how many stages lie before it. So
for one (template, replicas, layout) there is one list of *positions*, q = 0 for the last stage,
that serves pipelines of every length. The DP and the closed-form bounds read it; the evaluator, the
MILPs and enumeration each state the layouts on their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nest_opt.compile import Compiled
from nest_opt.network import AnyNetwork, GeneralNetwork, GroupShape
from nest_opt.plan import Layout, Template

Ints = npt.NDArray[np.int64]
Shapes = frozenset[GroupShape]


@dataclass(frozen=True)
class Signature:
    """All that distinguishes, for the load of a stage, one replica's interval from another's.

    ``before`` is the link class of the union with the stage before (towards the input), ``behind``
    with the stage behind; ``behind`` is -1 at q = 0.
    """

    tensor: Shapes
    context: Shapes
    expert: Shapes
    before: int
    behind: int


@dataclass(frozen=True)
class Position:
    """One place in the pipeline, over all replicas.

    ``as_first`` are the signatures when this is the first stage, which has nothing before it
    (``before`` is -1 there), ``as_later`` when it is not. ``dense`` and ``expert`` are the shapes
    of the groups that synchronise dense and expert weights.
    """

    as_first: frozenset[Signature]
    as_later: frozenset[Signature]
    dense: Shapes
    expert: Shapes


@dataclass
class Geometry:
    """Positions of every (template, replicas, layout) of a network, computed once each.

    With ``first_devices``, a transfer runs at the class of the first devices of neighbouring stages
    in replica 0, whatever the rest of both intervals.
    """

    network: AnyNetwork
    first_devices: bool = False
    _positions: dict[tuple[Template, int, Layout], tuple[Position, ...]] = field(
        default_factory=dict
    )
    _axis_shapes: dict[tuple[Template, int], tuple[Shapes, Shapes, Shapes]] = field(
        default_factory=dict
    )
    _windows: dict[int, npt.NDArray[np.integer[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, compiled: Compiled) -> Geometry:
        """The geometry of a problem's network, under the problem's cost model."""
        return cls(compiled.network, compiled.cost_model.transfer_link == "first_devices")

    def positions(self, template: Template, replicas: int, layout: Layout) -> tuple[Position, ...]:
        """All positions that fit, last stage first. O(N * width) the first time."""
        key = (template, replicas, layout)
        if key not in self._positions:
            self._positions[key] = self._compute(template, replicas, layout)
        return self._positions[key]

    def ring_classes(self, template: Template, replicas: int, layout: Layout) -> Ints:
        """``[q]``: worst class, over replicas, of the union of the last stage and position q."""
        starts = self.starts(template, replicas, layout)
        worst: Ints = self._classes(starts[0], starts, template.width).max(axis=1)
        return worst

    def starts(self, template: Template, replicas: int, layout: Layout) -> Ints:
        """``[q, r]``: first device of replica r's interval at position q."""
        devices, width = self.network.devices, template.width
        q = np.arange(devices // (replicas * width), dtype=np.int64)[:, None]
        r = np.arange(replicas, dtype=np.int64)[None, :]
        if layout == "pipeline-inner":
            return r * (devices // replicas) + q * width
        return q * (replicas * width) + r * width

    def axis_shapes(self, template: Template, axis: str) -> list[Shapes]:
        """Shapes of an axis's groups, for every place where an interval can start."""
        index = ("tensor", "context", "expert").index(axis)
        starts = self._period
        if isinstance(self.network, GeneralNetwork):
            starts = self.network.devices - template.width + 1
        return [self._axes(template, start)[index] for start in range(starts)]

    @property
    def _period(self) -> int:
        """Shifting a set by this many devices changes neither its class nor its shape."""
        if isinstance(self.network, GeneralNetwork):
            return self.network.devices  # no shift at all
        block = self.network.block
        return block[-2] if len(block) > 1 else 1

    def _classes(self, low: Ints, high: Ints, width: int) -> Ints:
        """Class of the union of two intervals that start at ``low <= high``."""
        if isinstance(self.network, GeneralNetwork):
            return self._general_classes(low, high, width)
        result = np.zeros(np.broadcast_shapes(low.shape, high.shape), dtype=np.int64)
        for size in self.network.block[:-1]:
            result += low // size != (high + width - 1) // size
        return result

    def _general_classes(self, low: Ints, high: Ints, width: int) -> Ints:
        """Largest class between any two devices of both intervals."""
        between = self._between(width)
        low, high = np.broadcast_arrays(low, high)
        result = np.zeros(low.shape, dtype=np.int64)
        for first, second in ((low, low), (low, high), (high, high)):
            np.maximum(result, between[first, second], out=result)
        return result

    def _between(self, width: int) -> npt.NDArray[np.integer[Any]]:
        """``[x, y]``: largest class of a device in the interval at x and one in that at y."""
        if width not in self._windows:
            assert isinstance(self.network, GeneralNetwork)
            largest = self.network.matrix.astype(np.min_scalar_type(len(self.network.classes)))
            reached = 1
            while reached < width:
                step = min(reached, width - reached)
                largest = np.maximum(largest[:-step], largest[step:])
                largest = np.maximum(largest[:, :-step], largest[:, step:])
                reached += step
            self._windows[width] = largest
        return self._windows[width]

    def joins(self, template: Template, replicas: int, layout: Layout) -> Ints:
        """``[q, r]``: link class of replica r's transfers between positions q and q + 1."""
        starts = self.starts(template, replicas, layout)
        if self.first_devices:
            first = self._classes(starts[:-1, :1], starts[1:, :1], 1)
            return np.repeat(first, replicas, axis=1)
        return self._classes(starts[:-1], starts[1:], template.width)

    def _compute(self, template: Template, replicas: int, layout: Layout) -> tuple[Position, ...]:
        starts = self.starts(template, replicas, layout)
        count = len(starts)
        if count == 0:
            return ()
        joins = self.joins(template, replicas, layout)
        offsets = starts % self._period
        none = np.full(replicas, -1, dtype=np.int64)
        positions = []
        for q in range(count):
            behind = joins[q - 1] if q else none
            before = joins[q] if q + 1 < count else none
            rows = np.unique(np.stack([offsets[q], before, behind], axis=1), axis=0)
            first, later = set(), set()
            for offset, link_before, link_behind in rows.tolist():
                shapes = self._axes(template, offset)
                first.add(Signature(*shapes, -1, link_behind))
                later.add(Signature(*shapes, link_before, link_behind))
            dense, expert = self._sync_shapes(template, starts[q])
            positions.append(Position(frozenset(first), frozenset(later), dense, expert))
        return tuple(positions)

    def _axes(self, template: Template, start: int) -> tuple[Shapes, Shapes, Shapes]:
        """Shapes of the tensor, context and expert groups of an interval."""
        key = (template, start)
        if key not in self._axis_shapes:
            t, c, e = template.tensor, template.context, template.expert
            index = start + np.arange(t * c * e).reshape(e, c, t)
            self._axis_shapes[key] = (
                self._shapes(index.reshape(-1, t)),
                self._shapes(index.transpose(0, 2, 1).reshape(-1, c)),
                self._shapes(index.transpose(1, 2, 0).reshape(-1, e)),
            )
        return self._axis_shapes[key]

    def _sync_shapes(self, template: Template, starts: Ints) -> tuple[Shapes, Shapes]:
        t, c, e = template.tensor, template.context, template.expert
        index = starts[:, None, None, None] + np.arange(t * c * e).reshape(1, e, c, t)
        dense = index.transpose(3, 0, 1, 2).reshape(t, -1)
        if e == 1:
            shapes = self._shapes(dense)
            return shapes, shapes
        return self._shapes(dense), self._shapes(index.transpose(1, 3, 0, 2).reshape(e * t, -1))

    def _shapes(self, groups: Ints) -> Shapes:
        """Different shapes of the rows of ``groups`` (each row one group of devices)."""
        size = groups.shape[1]
        if isinstance(self.network, GeneralNetwork):
            matrix = self.network.matrix
            worst = {int(matrix[np.ix_(row, row)].max()) for row in groups}
            return frozenset(GroupShape(size, k, ()) for k in worst)
        if size == 1:
            return frozenset({GroupShape(1, 0, (1,) * len(self.network.block))})
        # Rows that differ by a shift of whole second-highest blocks have one shape.
        shift = groups.min(axis=1, keepdims=True) // self._period * self._period
        rows = np.unique(np.sort(groups - shift, axis=1), axis=0)
        branching = []
        child_size = 1
        for size_k in self.network.block:
            child, parent = rows // child_size, rows // size_k
            new = np.ones(rows.shape, dtype=bool)
            new[:, 1:] = child[:, 1:] != child[:, :-1]
            seen = np.cumsum(new, axis=1)
            opens = np.ones(rows.shape, dtype=bool)
            opens[:, 1:] = parent[:, 1:] != parent[:, :-1]
            before_parent = np.maximum.accumulate(np.where(opens, seen - 1, 0), axis=1)
            branching.append((seen - before_parent).max(axis=1))
            child_size = size_k
        classes = self._classes(rows[:, 0], rows[:, -1], 1)
        return frozenset(
            GroupShape(size, int(k), tuple(int(n) for n in ns))
            for k, ns in zip(classes, np.stack(branching, axis=1), strict=True)
        )
