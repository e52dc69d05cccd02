"""Networks in files: GraphML, networkx node-link JSON, CSV links.

A graph's edges carry ``bandwidth_bytes_per_second`` (per direction) and ``latency_seconds`` (0
unless given); several edges between the same nodes are links side by side. Its devices are the
nodes with the attribute ``device``: a number, from 0 on, or true, which numbers them in the order
of the file. A CSV of links has no attributes: there the devices are the nodes that are called
``device.0``, ``device.1`` and so on.

What a reader would pass over in silence, such as a node that is declared twice or a second graph,
is refused: a network that lost a link would have another optimum.
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
    "directed": (bool, True),
}
_NUMBERS = ("bandwidth_bytes_per_second", "latency_seconds")
_NUMBERED = re.compile(r"device\.(0|[1-9][0-9]{0,5})")


def read_network(path: Path) -> dict[str, Any]:
    """The inline form of a graph file, as :class:`nest_opt.problem.Graph` has it.

    The ending says what the file is: ``.graphml``, ``.json`` or ``.csv``. Raises
    :class:`InputError`.
    """
    ending = path.suffix.lower()
    if ending == ".graphml":
        return _read_graphml(path)
    if ending == ".csv":
        return _read_links(path)
    data = read_json(path)
    if isinstance(data, dict) and "kind" in data:
        return data  # a network of this project's own format
    if not isinstance(data, dict) or not {"nodes", "links", "edges"} & data.keys():
        raise InputError(str(path), "is neither a network nor a graph in networkx node-link form")
    return _read_node_link(data, str(path))


def _read_node_link(data: dict[str, Any], source: str) -> dict[str, Any]:
    if {"links", "edges"} <= data.keys():
        raise InputError(source, "has links and edges; which are meant? keep one of the two")
    edges = "edges" if "edges" in data else "links"
    try:
        declared = [node["id"] for node in data["nodes"]]
        # Edges between the same nodes are kept apart, whether or not the file says so.
        graph = nx.node_link_graph({**data, "multigraph": True, "graph": {}}, edges=edges)
        count = len(data[edges])
    except (KeyError, TypeError, ValueError, AttributeError, nx.NetworkXException) as error:
        raise InputError(
            source, f"is no graph in networkx node-link form: {_said(error)}"
        ) from None
    complaints = [
        Complaint(f"node {node}", "an id must be text or a whole number")
        for node in declared
        if isinstance(node, bool) or not isinstance(node, str | int)
    ]
    if not isinstance(data.get("directed", False), bool):
        complaints.append(Complaint("directed", "must be true or false", repr(data["directed"])))
    if complaints:
        raise InputError(source, complaints)
    _check_whole(graph, list(map(str, declared)), count, source)
    return _inline(graph, source)


def _read_graphml(path: Path) -> dict[str, Any]:
    raw, source = read_bytes(path), str(path)
    ids: dict[str, list[str]] = {"node": [], "edge": []}

    def refuse(*_: object) -> None:
        raise InputError(source, "has a DOCTYPE or ENTITY declaration; GraphML needs none")

    def note(tag: str, attributes: dict[str, str]) -> None:
        kind = tag.rpartition(":")[2]
        if kind in ids:
            ids[kind].append(attributes.get("id", ""))

    # The parser itself looks for entities, which can grow without limit: a search of the bytes
    # would miss them in another encoding.
    scan = expat.ParserCreate()
    scan.StartDoctypeDeclHandler = refuse
    scan.StartElementHandler = note
    try:
        scan.Parse(raw, True)
        graph: nx.Graph[Any] = nx.read_graphml(io.BytesIO(raw))
    except InputError:
        raise
    except Exception as error:  # the parsers raise many kinds for what is no GraphML
        raise InputError(source, f"is not GraphML: {_said(error)}") from None
    _check_whole(graph, ids["node"], len(ids["edge"]), source)
    # The reader keeps the defaults of attributes apart.
    for _, attributes in graph.nodes(data=True):
        attributes.update({**graph.graph["node_default"], **attributes})
    for _, _, attributes in graph.edges(data=True):
        attributes.update({**graph.graph["edge_default"], **attributes})
    return _inline(graph, source)


def _check_whole(graph: nx.Graph[Any], declared: list[str], edges: int, source: str) -> None:
    """Complain where ``graph`` is not all of what the file declares."""
    found = set(map(str, graph))
    complaints = [
        Complaint(f"node {name}", f"is the name of {times} nodes")
        for name, times in Counter(declared).items()
        if times > 1
    ]
    complaints += [
        Complaint(f"node {name}", "has an edge, but is not among the nodes")
        for name in sorted(found - set(declared))
    ]
    complaints += [
        Complaint(f"node {name}", "was not read; a file has one graph, and none within a node")
        for name in sorted(set(declared) - found)
    ]
    read = graph.number_of_edges()
    if read != edges:
        complaints.append(
            Complaint(
                "edges",
                f"of {edges}, {read} were read; give edges between the same nodes different ids "
                "(keys), or none, and a file one graph",
            )
        )
    if complaints:
        raise InputError(source, complaints)


def _read_links(path: Path) -> dict[str, Any]:
    links = read_rows(path, COLUMNS)
    ends = [link[end] for link in links for end in ("source", "target")]
    unclear = sorted({e for e in ends if e.startswith("device.") and not _NUMBERED.fullmatch(e)})
    if unclear:
        message = "is no number of a device; they are called device.0, device.1 and so on"
        raise InputError(str(path), [Complaint(name, message) for name in unclear])
    found = {int(match[1]): match[0] for match in map(_NUMBERED.fullmatch, ends) if match}
    return {"kind": "graph", "devices": _in_order(found, str(path)), "links": links}


def _inline(graph: nx.Graph[Any], source: str) -> dict[str, Any]:
    """A networkx graph in the inline form; parallel edges are links of their own."""
    marks = {str(node): found.get("device", False) for node, found in graph.nodes(data=True)}
    ordered = [node for node, mark in marks.items() if mark is True]
    marked = dict(enumerate(ordered))
    complaints = []
    for node, mark in marks.items():
        if isinstance(mark, bool):
            continue
        where = f"node {node}"
        if ordered:
            message = f"device must be true, as at node {ordered[0]}, or all must be numbers"
            complaints.append(Complaint(where, message, repr(mark)))
        elif not isinstance(mark, int) or mark < 0:
            message = "device must be true, or a number from 0 on"
            complaints.append(Complaint(where, message, repr(mark)))
        elif mark in marked:
            complaints.append(Complaint(where, f"is device {mark}, and so is node {marked[mark]}"))
        else:
            marked[mark] = node
    links = []
    for one, other, attributes in graph.edges(data=True):
        link: dict[str, Any] = {"source": str(one), "target": str(other)}
        for name in attributes.keys() - {*_NUMBERS}:
            if name.startswith(("bandwidth", "latency", "directed")):
                message = f"{name} would not be read; there are {' and '.join(_NUMBERS)}, and "
                message += "either all edges of a graph are directed or none"
                complaints.append(Complaint(f"edge {one} - {other}", message))
        for name in _NUMBERS:
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
    said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return " ".join(said.split())[:200] or type(error).__name__
