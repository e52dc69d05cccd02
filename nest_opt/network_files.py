"""Networks in files: GraphML, networkx node-link JSON, CSV links.

A graph's edges carry ``bandwidth_bytes_per_second`` (per direction) and ``latency_seconds`` (0
unless given). Its devices are the nodes with the attribute ``device``: a number, from 0 on, or
true, which numbers them in the order of the file. A CSV of links has no attributes: there the
devices are the nodes that are called ``device.0``, ``device.1`` and so on.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx

from nest_opt.errors import Complaint, InputError
from nest_opt.files import read_bytes, read_json, read_rows

#: Columns of a CSV of links: the type of each, and whether it may be left out.
COLUMNS: dict[str, tuple[type, bool]] = {
    "source": (str, False),
    "target": (str, False),
    "bandwidth_bytes_per_second": (float, False),
    "latency_seconds": (float, True),
}
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


def _read_graphml(path: Path) -> nx.Graph[Any]:
    raw = read_bytes(path)

    def refuse(*_: object) -> None:
        raise InputError(str(path), "has a DOCTYPE or ENTITY declaration; GraphML needs none")

    # The parser itself looks for entities, which can grow without limit: a search of the bytes
    # would miss them in another encoding.
    scan = expat.ParserCreate()
    scan.StartDoctypeDeclHandler = refuse
    try:
        scan.Parse(raw, True)
        graph: nx.Graph[Any] = nx.read_graphml(io.BytesIO(raw))
    except InputError:
        raise
    except Exception as error:  # the parsers raise many kinds for what is no GraphML
        raise InputError(str(path), f"is not GraphML: {_said(error)}") from None
    return graph


def _read_links(path: Path) -> dict[str, Any]:
    links = read_rows(path, COLUMNS)
    ends = [link[end] for link in links for end in ("source", "target")]
    found = {int(match[1]): match[0] for match in map(_NUMBERED.fullmatch, ends) if match}
    return {"kind": "graph", "devices": _in_order(found, str(path)), "links": links}


def _inline(graph: nx.Graph[Any], source: str) -> dict[str, Any]:
    """A networkx graph in the inline form; parallel edges are links of their own."""
    marked: dict[int, str] = {}
    complaints = []
    names = Counter(map(str, graph))
    for name, times in names.items():
        if times > 1:
            complaints.append(Complaint(f"node {name}", f"is the name of {times} nodes"))
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
        for name in ("bandwidth_bytes_per_second", "latency_seconds"):
            value = attributes.get(name, 0.0 if name == "latency_seconds" else None)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) < inf:
                link[name] = value
            else:
                complaints.append(
                    Complaint(f"edge {one} - {other}", f"{name} must be a number", repr(value))
                )
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


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
