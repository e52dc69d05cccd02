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

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nest_opt.errors import Complaint, InputError
from nest_opt.files import canonical_json, complaints_of, read_rows, read_text
from nest_opt.plan import Template
from nest_opt.problem import Layer, LayersModel

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
_QUANTITIES = ("forward_seconds", "backward_seconds", *_TIMES_AND_SIZES)
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
_LARGEST_MICROBATCH = 10**6 - 1
_CALL = re.compile(
    r"(\w+) (\w+) (\w+) ([0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE]\+?[0-9]{1,3})?)(?: x([0-9]{1,9}))?"
)

#: A cell of every column that a line fills, with its calls read.
_Row = dict[str, Any]


def read_layers(path: Path) -> dict[str, Any]:
    """The model of a CSV file, as valid JSON data of kind ``layers`` named like the file.

    Raises :class:`InputError`, listing every line and column that is wrong; then what only the
    whole table can tell (a template that one layer lacks, an unknown input).
    """
    complaints: list[Complaint] = []
    layers: dict[str, dict[str, Any]] = {}
    lines: dict[tuple[str, Template], list[_Row]] = {}
    for number, row in _rows(path):
        where = f"line {number}"
        complaints += _wrong(row, where)
        layer = layers.setdefault(row["layer"], {"name": row["layer"]})
        for field in ("count", "inputs"):
            if field in row and layer.setdefault(field, row[field]) != row[field]:
                told = f"another line of layer {row['layer']} has {layer[field]}"
                complaints.append(Complaint(f"{where}, {field}", told, str(row[field])))
        template = Template(**{axis: row[axis] for axis in _TEMPLATE if axis in row})
        lines.setdefault((row["layer"], template), []).append(row)
    for (name, template), rows in lines.items():
        costs = _costs(name, template, rows, complaints)
        layers[name].setdefault("costs", []).append(costs)
    complaints += _no_common_size(lines)
    if not layers:
        complaints.append(Complaint("", "has no line below the header; give each layer one"))
    if complaints:
        raise InputError(str(path), complaints)
    data = {"kind": "layers", "name": path.stem, "layers": list(layers.values())}
    _validate(LayersModel, data, str(path))
    return data


def _rows(path: Path) -> Iterator[tuple[int, _Row]]:
    """The lines below the header, each with its number and its calls and inputs read."""
    try:
        rows = read_rows(path, COLUMNS)
    except InputError as error:
        raise InputError(error.source, [_hinted(c) for c in error.complaints]) from None
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    numbers = [reader.line_num for line in reader if any(map(str.strip, line))]
    complaints = []
    for number, row in zip(numbers[1:], rows, strict=True):
        try:
            row["collectives"] = _calls(row.get("collectives", ""))
        except ValueError as error:
            wanted = (
                "each must be KIND AXIS PASS BYTES, and xN for N of them, such as "
                "'all_reduce tensor forward 33554432 x2'"
            )
            complaints.append(Complaint(f"line {number}, collectives", wanted, str(error)))
        if "inputs" in row:
            cell = row["inputs"]
            row["inputs"] = [] if cell == "-" else [name.strip() for name in cell.split(";")]
    if complaints:
        raise InputError(str(path), complaints)
    yield from zip(numbers[1:], rows, strict=True)


def _hinted(complaint: Complaint) -> Complaint:
    """A complaint about a column that nobody knows, with the one that was meant."""
    close = get_close_matches(complaint.field.removeprefix("column "), COLUMNS, n=1)
    if not close or not complaint.message.startswith("unknown;"):
        return complaint
    hint = f"unknown; did you mean {close[0]}?"
    return replace(complaint, message=complaint.message.replace("unknown;", hint))


def _calls(cell: str) -> list[dict[str, Any]]:
    """Collectives of a cell. Raises ValueError with the piece that is none."""
    calls = []
    for piece in filter(None, map(str.strip, cell.split(";"))):
        match = _CALL.fullmatch(" ".join(piece.split()))
        if match is None or not isfinite(float(match[4])):
            raise ValueError(repr(piece[:40]))
        kind, axis, direction, size, count = match.groups()
        call = {"kind": kind, "axis": axis, "pass": direction, "bytes": float(size)}
        calls.append(call | ({"count": int(count)} if count else {}))
    return calls


def _wrong(row: _Row, where: str) -> list[Complaint]:
    """What is wrong with one line, whatever the others say."""
    complaints = []
    microbatch = row.get("microbatch", 1)
    if not 1 <= microbatch <= _LARGEST_MICROBATCH:
        told = f"must be 1 to {_LARGEST_MICROBATCH:,}, or empty for quantities per sequence"
        complaints.append(Complaint(f"{where}, microbatch", told, str(microbatch)))
    if row.get("sequence_parallel") and row.get("tensor", 1) == 1:
        told = "needs a tensor degree above 1"
        complaints.append(Complaint(f"{where}, sequence_parallel", told, "true"))
    costs = {field: row[field] for field in (*_QUANTITIES, "collectives") if field in row}
    costs["template"] = {axis: row[axis] for axis in _TEMPLATE if axis in row}
    layer = {"name": row["layer"], "costs": [costs]}
    layer |= {field: row[field] for field in ("count", "inputs") if field in row}
    try:
        _validate(Layer, layer, "")
    except InputError as error:
        for complaint in error.complaints:
            column = re.sub(r"^(costs\[0\]\.)?(template\.)?", "", complaint.field)
            column = {"name": "layer"}.get(column, column)
            complaints.append(replace(complaint, field=f"{where}, {column}"))
    return complaints


def _validate(model: type[Layer | LayersModel], data: dict[str, Any], source: str) -> None:
    try:
        model.model_validate_json(canonical_json(data))
    except ValidationError as error:
        raise InputError(source, complaints_of(error, data)) from None


def _no_common_size(lines: dict[tuple[str, Template], list[_Row]]) -> Iterator[Complaint]:
    """Templates that no microbatch size can use, since none has a line at every layer."""
    common: dict[Template, set[int]] = {}
    for (name, template), rows in lines.items():
        sizes = {row["microbatch"] for row in rows if "microbatch" in row}
        above = common.setdefault(template, sizes)
        if sizes and above and not above & sizes:
            told = (
                f"layer {name}, template {template.label} has lines for {_listed(sizes)} and those "
                f"above for {_listed(above)}; some size must be there for all of them"
            )
            yield Complaint("column microbatch", told)
        common[template] = above & sizes or sizes or above


def _listed(sizes: set[int]) -> str:
    return ", ".join(map(str, sorted(sizes)))


def _costs(
    name: str, template: Template, rows: list[_Row], complaints: list[Complaint]
) -> dict[str, Any]:
    """``costs`` of one layer and template; by microbatch where the lines say so."""
    where = f"layer {name}, template {template.label}"
    sizes = [row.get("microbatch") for row in rows]
    costs: dict[str, Any] = {"template": asdict(template)}
    if sizes == [None]:
        costs |= {field: rows[0][field] for field in _QUANTITIES if field in rows[0]}
        return costs | {"collectives": rows[0]["collectives"]}
    if None in sizes or len(set(sizes)) < len(sizes):
        complaints.append(
            Complaint(where, "stands on several lines; give each a microbatch of its own")
        )
        return costs
    for field in _QUANTITIES:
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
