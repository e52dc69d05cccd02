"""A table of layers as CSV: one line for each layer, template and (where it matters) microbatch.

The columns are the fields of :class:`nest_opt.problem.LayerCosts`, and

- ``layer``, its name; ``count`` of equal ones in a chain; ``inputs``, the names of the layers whose
  output it needs, separated by ``;``, empty for the layer listed before, ``-`` for none;
- ``tensor``, ``context``, ``expert``, ``sequence_parallel``: the template;
- ``microbatch``: left empty, quantities are per sequence; else they are those of this microbatch
  size, and there is a line for each;
- ``collectives``: calls separated by ``;``, each as KIND AXIS PASS BYTES, and ``xN`` if there are N
  of them: ``all_reduce tensor forward 33554432 x2``.

Columns and cells may be left out where the field has a default. Lines of one layer need not follow
each other; a layer's place is that of its first line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nest_opt.errors import Complaint, InputError
from nest_opt.files import read_rows

_TIMES_AND_SIZES = (
    "recompute_seconds",
    "selective_recompute_seconds",
    "weight_bytes",
    "expert_weight_bytes",
    "activation_bytes",
    "selective_activation_bytes",
    "checkpoint_bytes",
    "attention_core_bytes",
    "output_bytes",
    "cut_bytes",
)
#: The type of each column, and whether it may be left out.
COLUMNS: dict[str, tuple[type, bool]] = {
    "layer": (str, False),
    "count": (int, True),
    "inputs": (str, True),
    "tensor": (int, True),
    "context": (int, True),
    "expert": (int, True),
    "sequence_parallel": (bool, True),
    "microbatch": (int, True),
    "forward_seconds": (float, False),
    "backward_seconds": (float, False),
    **{name: (float, True) for name in _TIMES_AND_SIZES},
    "collectives": (str, True),
}
_TEMPLATE = ("tensor", "context", "expert", "sequence_parallel")
#: Weights do not depend on the microbatch.
_FIXED = ("weight_bytes", "expert_weight_bytes")
_CALL = re.compile(r"(\w+) (\w+) (\w+) ([0-9.eE+]+)(?: x([0-9]+))?")


def read_layers(path: Path) -> dict[str, Any]:
    """The model of a CSV file, as JSON data of kind ``layers`` named like the file.

    Raises :class:`InputError`, listing every line and column that is wrong. What only the whole
    table can tell (a template that one layer lacks, an unknown input) is found where the model is
    validated.
    """
    complaints: list[Complaint] = []
    layers: dict[str, dict[str, Any]] = {}
    lines: dict[tuple[str, Any], list[dict[str, Any]]] = {}
    for number, row in enumerate(read_rows(path, COLUMNS), 1):
        where = f"row {number} below the header, layer {row['layer']}"
        layer = layers.setdefault(row["layer"], {"name": row["layer"]})
        for field, value in (("count", row.get("count")), ("inputs", _inputs(row.get("inputs")))):
            if value is not None and layer.setdefault(field, value) != value:
                complaints.append(
                    Complaint(where, f"another line of the layer has {field} {layer[field]}")
                )
        try:
            row["collectives"] = _calls(row.get("collectives", ""))
        except ValueError as error:
            complaints.append(
                Complaint(
                    f"{where}, collectives",
                    "each must be KIND AXIS PASS BYTES, and xN for N of them, such as "
                    "'all_reduce tensor forward 33554432 x2'",
                    str(error),
                )
            )
            row["collectives"] = []
        template = tuple((axis, row[axis]) for axis in _TEMPLATE if axis in row)
        lines.setdefault((row["layer"], template), []).append(row)
    for (name, template), rows in lines.items():
        costs = _costs(name, dict(template), rows, complaints)
        layers[name].setdefault("costs", []).append(costs)
    if complaints:
        raise InputError(str(path), complaints)
    return {"kind": "layers", "name": path.stem, "layers": list(layers.values())}


def _inputs(cell: str | None) -> list[str] | None:
    if cell is None:
        return None
    return [] if cell == "-" else [name.strip() for name in cell.split(";")]


def _calls(cell: str) -> list[dict[str, Any]]:
    """Collectives of a cell. Raises ValueError with the piece that is none."""
    calls = []
    for piece in filter(None, map(str.strip, cell.split(";"))):
        match = _CALL.fullmatch(" ".join(piece.split()))
        if match is None:
            raise ValueError(repr(piece[:40]))
        kind, axis, direction, size, count = match.groups()
        try:
            call = {"kind": kind, "axis": axis, "pass": direction, "bytes": float(size)}
        except ValueError:
            raise ValueError(repr(piece[:40])) from None
        calls.append(call | ({"count": int(count)} if count else {}))
    return calls


def _costs(
    name: str,
    template: dict[str, Any],
    rows: list[dict[str, Any]],
    complaints: list[Complaint],
) -> dict[str, Any]:
    """``costs`` of one layer and template; by microbatch where the lines say so."""
    where = f"layer {name}" + (f", template {template}" if template else "")
    fields = ("forward_seconds", "backward_seconds", *_TIMES_AND_SIZES)
    sizes = [row.get("microbatch") for row in rows]
    costs: dict[str, Any] = {"template": template}
    if len(rows) == 1 and sizes == [None]:
        costs |= {field: rows[0][field] for field in fields if field in rows[0]}
        return costs | {"collectives": rows[0]["collectives"]}
    if None in sizes or len(set(sizes)) < len(sizes):
        complaints.append(
            Complaint(where, "stands on several lines; give each a microbatch of its own")
        )
        return costs
    for field in fields:
        given = {str(row["microbatch"]): row[field] for row in rows if field in row}
        if not given:
            continue
        if field in _FIXED:
            if len(set(given.values())) > 1:
                complaints.append(Complaint(f"{where}, {field}", "differs between microbatches"))
            costs[field] = next(iter(given.values()))
        elif len(given) < len(rows):
            complaints.append(Complaint(f"{where}, {field}", "is given for some microbatches only"))
        else:
            costs[field] = given
    alike = {
        tuple((c["kind"], c["axis"], c["pass"], c.get("count", 1)) for c in row["collectives"])
        for row in rows
    }
    if len(alike) > 1:
        complaints.append(
            Complaint(f"{where}, collectives", "may differ between microbatches in bytes alone")
        )
        return costs
    costs["collectives"] = [
        call | {"bytes": {str(row["microbatch"]): row["collectives"][n]["bytes"] for row in rows}}
        for n, call in enumerate(rows[0]["collectives"])
    ]
    return costs
