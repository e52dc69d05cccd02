"""Networks in files: GraphML, networkx node-link JSON, CSV links, CSV matrices.

A graph's edges carry ``bandwidth_bytes_per_second`` (per direction) and ``latency_seconds`` (0 unless
given). Its devices are the nodes with the attribute ``device``: a number, from 0 on, or true, which
numbers them in the order of the file. A CSV of links has no attributes: there the devices are the
nodes that are called ``device.0``, ``device.1`` and so on.
"""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import networkx as nx

from nest_opt.errors import Complaint, InputError
from nest_opt.files import read_bytes, read_json

#: Columns of a CSV of links; the last may be left out.
COLUMNS = ("source", "target", "bandwidth_bytes_per_second", "latency_seconds")
_NUMBERED = re.compile(r"device\.(0|[1-9][0-9]{0,5})")


def read_network(path: Path) -> dict[str, Any]:
    """The inline form of a graph file, as :class:`nest_opt.problem.Graph` has it.

    The ending says what the file is: ``.graphml``, ``.json`` or ``.csv``. Raises
    :class:`InputError`.
    """
    if path.suffix == ".graphml":
        return _inline(_read_graphml(path), str(path))
    if path.suffix == ".csv":
        return _read_links(path)
    data = read_json(path)
    if isinstance(data, dict) and "kind" in data:
        return data  # a network of this project's own format
    if not isinstance(data, dict) or not {"nodes", "links", "edges"} & data.keys():
        raise InputError(str(path), "is neither a network nor a graph in networkx node-link form")
    edges = "edges" if "edges" in data else "links"
    try:
        graph = nx.node_link_graph(data, edges=edges)
    except (KeyError, TypeError, ValueError, AttributeError, nx.NetworkXException) as error:
        raise InputError(
            str(path), f"is no graph in networkx node-link form: {_said(error)}"
        ) from None
    return _inline(graph, str(path))


def read_matrix(path: Path) -> list[list[float]]:
    """The rows of a CSV file of numbers, without a header. Raises :class:`InputError`."""
    rows = []
    for line, row in enumerate(_csv_rows(path), 1):
        numbers = []
        for column, word in enumerate(row, 1):
            numbers.append(_number(word, str(path), f"line {line}, column {column}"))
        rows.append(numbers)
    if not rows:
        raise InputError(str(path), "has no rows; give one for each device")
    return rows


def _read_graphml(path: Path) -> nx.Graph[Any]:
    raw = read_bytes(path)
    if re.search(rb"<!\s*(DOCTYPE|ENTITY)", raw, re.IGNORECASE):
        raise InputError(str(path), "has a DOCTYPE or ENTITY declaration; GraphML needs none")
    try:
        graph: nx.Graph[Any] = nx.read_graphml(io.BytesIO(raw))
    except Exception as error:  # the parsers raise many kinds for what is no GraphML
        raise InputError(str(path), f"is not GraphML: {_said(error)}") from None
    return graph


def _read_links(path: Path) -> dict[str, Any]:
    rows = _csv_rows(path)
    if not rows or tuple(rows[0]) not in (COLUMNS, COLUMNS[:-1]):
        raise InputError(str(path), f"must start with the columns {','.join(COLUMNS)}")
    links = []
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise InputError(
                str(path), f"line {line} has {len(row)} columns, the header {len(rows[0])}"
            )
        link: dict[str, Any] = {"source": row[0], "target": row[1]}
        for name, word in zip(COLUMNS[2:], row[2:], strict=False):
            link[name] = _number(word, str(path), f"line {line}, {name}")
        links.append(link)
    found = {
        int(match[1]): match[0]
        for link in links
        for match in (_NUMBERED.fullmatch(link["source"]), _NUMBERED.fullmatch(link["target"]))
        if match
    }
    return {"kind": "graph", "devices": _in_order(found, str(path)), "links": links}


def _inline(graph: nx.Graph[Any], source: str) -> dict[str, Any]:
    """A networkx graph in the inline form; parallel edges are links of their own."""
    marked: dict[int, str] = {}
    complaints = []
    ordered = 0
    for node, attributes in graph.nodes(data=True):
        mark = attributes.get("device", False)
        if mark is True:
            mark, ordered = ordered, ordered + 1
        elif mark is False:
            continue
        elif ordered:
            complaints.append(Complaint(f"node {node}", "device is a number, elsewhere it is true"))
        if not isinstance(mark, int) or mark < 0:
            complaints.append(
                Complaint(f"node {node}", "device must be true, or a number from 0 on", repr(mark))
            )
        elif mark in marked:
            complaints.append(
                Complaint(f"node {node}", f"is device {mark}, and so is node {marked[mark]}")
            )
        else:
            marked[mark] = str(node)
    links = []
    for one, other, attributes in graph.edges(data=True):
        link: dict[str, Any] = {"source": str(one), "target": str(other)}
        for name in COLUMNS[2:]:
            value = attributes.get(name, 0.0 if name == "latency_seconds" else None)
            if isinstance(value, bool) or not isinstance(value, int | float):
                complaints.append(
                    Complaint(f"edge {one} - {other}", f"{name} must be a number", repr(value))
                )
            else:
                link[name] = value
        if graph.is_directed():
            link["directed"] = True
        links.append(link)
    if complaints:
        raise InputError(source, complaints)
    return {"kind": "graph", "devices": _in_order(marked, source), "links": links}


def _in_order(numbered: dict[int, str], source: str) -> list[str]:
    if not numbered:
        raise InputError(
            source,
            "has no devices: give nodes the attribute device (true, or a number), or in a CSV "
            "call them device.0, device.1 and so on",
        )
    missing = set(range(len(numbered))) - numbered.keys()
    if missing:
        raise InputError(
            source, f"has {len(numbered)} devices, but none with number {min(missing)}"
        )
    return [numbered[n] for n in range(len(numbered))]


def _csv_rows(path: Path) -> list[list[str]]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})") from None
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise InputError(str(path), f"is not CSV: {error}") from None
    return [[word.strip() for word in row] for row in rows if any(word.strip() for word in row)]


def _number(word: str, source: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in word:
        raise InputError(source, f"{where}: must be a finite number (found {word[:40]!r})")
    return value


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
