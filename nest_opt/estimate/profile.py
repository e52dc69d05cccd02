"""Measured layer times in place of estimated ones.

A profile is a list of rows (:class:`nest_opt.problem.ProfileRow`), or a CSV file with their fields
as columns. For each layer, template and microbatch,

- a row at this microbatch is taken as it is: **measured**;
- else the row whose microbatch is nearest by ratio, the larger of two equally near, times the
  ratio: **scaled**;
- else the roofline stands: **modelled**.

Rows that name a layer go before rows that name its kind. A measured time covers the layer's own
kernels, not its collectives, which the network prices. The attention core keeps its share of the
forward pass. Bytes are never measured here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from nest_opt.errors import Complaint, InputError
from nest_opt.estimate.table import LayerCost, LayerTable
from nest_opt.files import read_rows
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, ProfileRow, exact

Source = Literal["measured", "scaled", "modelled"]
SOURCES: tuple[Source, ...] = get_args(Source)


@dataclass(frozen=True)
class LayerTime:
    """Where the times of some layers come from at one template and microbatch.

    ``layers`` is a kind, or one layer that the profile names. ``measured_at`` is the microbatch of
    the row in use, None where there is none.
    """

    layers: str
    template: Template
    microbatch: int
    source: Source
    measured_at: int | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "layers": self.layers,
            "template": self.template.label,
            "microbatch": self.microbatch,
            "source": self.source,
            "measured_at_microbatch": self.measured_at,
        }


def kind_of(name: str) -> str:
    """The kind of a layer: its name without the number.

    >>> kind_of("block.17"), kind_of("block.0.mlp"), kind_of("head")
    ('block', 'block.mlp', 'head')
    """
    return re.sub(r"\.[0-9]+(?=\.|$)", "", name)


class _Profile:
    """Rows by what they were measured for."""

    def __init__(self, rows: Iterable[ProfileRow]) -> None:
        self._rows: dict[tuple[str, Template], list[ProfileRow]] = {}
        for row in rows:
            self._rows.setdefault((row.layer, row.template), []).append(row)
        self.named = {layer for layer, _ in self._rows}

    def row(self, name: str, template: Template, microbatch: int) -> ProfileRow | None:
        """The row that prices a layer, if there is one."""
        rows = self._rows.get((name, template)) or self._rows.get((kind_of(name), template), [])

        def distance(row: ProfileRow) -> tuple[Fraction, int]:
            return _ratio(row.microbatch, microbatch), -row.microbatch

        return min(rows, key=distance, default=None)


def _ratio(a: int, b: int) -> Fraction:
    return Fraction(max(a, b), min(a, b))


def with_profile(table: LayerTable, model: ConfigModel) -> LayerTable:
    """``table`` with the measured times of the model's profile.

    Raises :class:`InputError` for rows of layers that the model does not have.
    """
    if not model.profile:
        return table
    known = {*table.names, *map(kind_of, table.names)}
    complaints = [
        Complaint(
            f"model.profile[{i}].layer",
            f"no such layer; known are {', '.join(sorted(set(map(kind_of, table.names))))} and "
            "single layers such as " + table.names[len(table.names) // 2],
            row.layer,
        )
        for i, row in enumerate(model.profile)
        if row.layer not in known
    ]
    if complaints:
        raise InputError(model.name, complaints)
    profile = _Profile(model.profile)
    costs = {}
    for (template, microbatch), layers in table.costs.items():
        # Equal layers go on sharing one object.
        made: dict[tuple[int, ProfileRow | None], LayerCost] = {}
        replaced = []
        for name, cost in zip(table.names, layers, strict=True):
            row = profile.row(name, template, microbatch)
            key = (id(cost), row)
            if key not in made:
                made[key] = cost if row is None else _replaced(cost, row, microbatch)
            replaced.append(made[key])
        costs[template, microbatch] = tuple(replaced)
    return replace(table, costs=costs)


def _replaced(cost: LayerCost, row: ProfileRow, microbatch: int) -> LayerCost:
    scale = Fraction(microbatch, row.microbatch)
    forward = exact(row.forward_seconds) * scale
    again = row.recompute_seconds
    share = cost.recompute_selective / cost.forward if cost.forward else Fraction(0)
    return replace(
        cost,
        forward=forward,
        backward=exact(row.backward_seconds) * scale,
        recompute=forward if again is None else exact(again) * scale,
        recompute_selective=forward * share,
    )


def layer_times(
    model: ConfigModel, names: Sequence[str], keys: Collection[tuple[Template, int]]
) -> tuple[LayerTime, ...]:
    """Where each time comes from: by kind of layer, template and microbatch.

    ``names`` are the model's layers and ``keys`` the templates and microbatches in use.

    >>> model = ConfigModel(kind="config", name="m", sequence_length=64, config={}, profile=(
    ...     ProfileRow(layer="block", microbatch=2, forward_seconds=1.0, backward_seconds=2.0),))
    >>> times = layer_times(model, ("block.0", "head"), [(Template(), 1), (Template(), 2)])
    >>> [(time.layers, time.microbatch, time.source) for time in times[:2]]
    [('block', 1, 'scaled'), ('block', 2, 'measured')]
    >>> summary(times)
    '1 measured, 1 scaled, 2 modelled'
    """
    profile = _Profile(model.profile)
    groups: dict[str, str] = {}
    for name in names:
        groups.setdefault(name if name in profile.named else kind_of(name), name)
    times = []
    for layers, name in groups.items():
        for template, microbatch in sorted(keys):
            row = profile.row(name, template, microbatch)
            at = row.microbatch if row else None
            source: Source = (
                "modelled" if at is None else "measured" if at == microbatch else "scaled"
            )
            times.append(LayerTime(layers, template, microbatch, source, at))
    return tuple(times)


def summary(times: Iterable[LayerTime]) -> str:
    """How many of the times are measured, scaled and modelled."""
    counts = Counter(time.source for time in times)
    return ", ".join(f"{counts[source]} {source}" for source in SOURCES)


# --- files ----------------------------------------------------------------------------------------

#: Columns of a profile: the type of each, and whether it may be left out.
_COLUMNS: dict[str, tuple[type, bool]] = {
    "layer": (str, False),
    "tensor": (int, True),
    "context": (int, True),
    "expert": (int, True),
    "sequence_parallel": (bool, True),
    "microbatch": (int, False),
    "forward_seconds": (float, False),
    "backward_seconds": (float, False),
    "recompute_seconds": (float, True),
}


def read_profile(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file as JSON objects. Raises :class:`InputError`."""
    return read_rows(path, _COLUMNS)
