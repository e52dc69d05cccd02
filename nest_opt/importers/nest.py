"""The input of the NEST artifact's placement program -> a problem that prices as that program does.

Source of the format: github.com/scai-tech/Nest (MIT licence), commit 3e163ad, the JSON that its
placement program reads. What that program charges is in the options of the cost model
(``formulations/README.md``, section 4) and in :data:`CONVENTIONS`; nothing else is special about an
imported problem. Where a file asks for something that these do not cover, its problem's description
says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import gcd, prod
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from nest_opt.compile import MAX_QUANTA
from nest_opt.errors import Complaint, InputError
from nest_opt.files import complaints_of, read_json
from nest_opt.problem import FORMAT, MAX_LAYERS

#: ``training`` of a problem that prices as the artifact does, all but its batch and optimizer.
CONVENTIONS: dict[str, Any] = {
    "all_reduce": "tree",
    "reserve_fraction": 0,
    "cost_model": {
        "synchronisation": "first_stage",
        "transfer": "up_and_down",
        "transfer_link": "first_devices",
        "recomputation": "backward_again",
        "in_flight": "stages_behind",
    },
}
#: Bytes per weight: both hold weights and gradients, Adam two moments and a copy in full precision.
OPTIMIZERS: dict[str, Any] = {
    "SGD": "sgd4",
    "Adam": {"weights": 2, "gradients": 2, "optimizer": 12},
}
#: Devices hold at most so many bytes in a problem; the artifact's inputs may say "without limit".
_MOST_MEMORY = 2**60
#: A problem's batch holds at most so many sequences.
_MOST_SEQUENCES = 10**7


def _whole(value: Any) -> Any:
    """4096.0 is 4096: the artifact's own script divides to count microbatches, and writes that."""
    if not isinstance(value, float):
        return value
    if not value.is_integer():
        raise ValueError("has a fraction, which the program drops; write a whole number")
    return int(value)


_Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, le=1e24, allow_inf_nan=False)]
_Integer = Annotated[int, BeforeValidator(_whole)]
_Count = Annotated[_Integer, Field(ge=1, le=10**6)]
_Degree = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}$")]


class _Record(BaseModel):
    """The program ignores fields that it does not know, and so does the importer."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class _Node(_Record):
    id: _Integer
    parameterSize: _Amount
    activationSize: _Amount
    optimalLatencyFw: _Amount
    optimalLatencyBw: _Amount


class _Edge(_Record):
    sourceId: _Integer
    destId: _Integer
    communicationCost: _Amount


class _Input(_Record):
    maxMemoryPerDevice: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    maxDevices: _Count
    bws: Annotated[list[_Rate], Field(min_length=1, max_length=16)]
    latency_per_level: list[_Amount]
    devices_per_level: list[_Count]
    mbsInBatch: _Count
    nodes: Annotated[
        dict[_Degree, Annotated[list[_Node], Field(min_length=1)]], Field(min_length=1)
    ]
    edges: dict[_Degree, list[_Edge]]
    ep_degree: _Count
    cp_degree: _Count = 1
    activationRecomputation: bool
    optimizerAlgorithm: Literal["SGD", "Adam"]

    @property
    def shards(self) -> int:
        """Devices of a stage besides the tensor ranks; they hold different weights."""
        return self.ep_degree * self.cp_degree


def import_nest(
    path: Path,
    *,
    name: str | None = None,
    synchronisation: Literal["first_stage", "slowest_stage"] = "first_stage",
) -> dict[str, Any]:
    """The self-contained problem, as JSON data, of a file that the artifact's program reads.

    ``synchronisation`` chooses whose synchronisation counts; the artifact counts the first stage's.
    Raises :class:`InputError` with everything that is wrong.
    """
    return problem_of_input(
        read_json(path), str(path), name=name or path.stem, synchronisation=synchronisation
    )


def problem_of_input(
    data: Any,
    source: str,
    *,
    name: str,
    synchronisation: Literal["first_stage", "slowest_stage"] = "first_stage",
) -> dict[str, Any]:
    """:func:`import_nest` of data at hand; ``source`` names it in complaints."""
    if not isinstance(data, dict):
        raise InputError(source, "is not an input of the NEST placement program: no JSON object")
    try:
        found = _Input.model_validate(data)
    except ValidationError as error:
        raise InputError(source, complaints_of(error, data)) from None
    complaints = [*_level_complaints(found), *_graph_complaints(found)]
    if found.mbsInBatch * found.shards > _MOST_SEQUENCES:
        message = f"times ep_degree and cp_degree is above {_MOST_SEQUENCES} sequences"
        complaints.append(Complaint("mbsInBatch", message, str(found.mbsInBatch)))
    if complaints:
        raise InputError(source, complaints)
    cost_model = CONVENTIONS["cost_model"] | {"synchronisation": synchronisation}
    layers = _layers(found)
    memory = min(int(found.maxMemoryPerDevice), _MOST_MEMORY)
    quantum = _exact_quantum(layers, memory)
    return {
        "format": FORMAT,
        "name": name,
        "description": " ".join(_departures(found, layers)),
        "source": "imported from an input of the NEST placement program "
        "(github.com/scai-tech/Nest); priced by its conventions",
        "model": {"kind": "layers", "name": name, "layers": layers},
        "cluster": {
            "name": name,
            "device": {"name": name, "memory_bytes": memory},
            "devices": found.maxDevices,
            "levels": [
                {
                    "size": size,
                    "bandwidth_bytes_per_second": bandwidth,
                    "latency_seconds": latency,
                }
                for size, bandwidth, latency in zip(
                    found.devices_per_level, found.bws, found.latency_per_level, strict=True
                )
            ],
        },
        # A replica's microbatch is one sequence on each of its shards.
        "training": CONVENTIONS
        | {
            "global_batch": found.mbsInBatch * found.shards,
            "optimizer": OPTIMIZERS[found.optimizerAlgorithm],
            "cost_model": cost_model,
        },
        "search": search_space(
            sorted(map(int, found.nodes)), found.shards, found.activationRecomputation
        ),
        "units": {} if quantum is None else {"quantum_bytes": quantum},
    }


def search_space(tensor: Sequence[int], shards: int, recomputation: bool) -> dict[str, Any]:
    """What the artifact's program searches; recomputation is on or off for a whole run."""
    return {
        "microbatch": [1],
        "tensor": list(tensor),
        "expert": [shards],
        "sequence_parallel": [False],
        "data_parallel": "any",
        "recomputation": ["stage" if recomputation else "none"],
        "zero": [0],
        "layouts": ["pipeline-inner"],
    }


def layer_costs(
    tensor: int,
    shards: int,
    *,
    forward: float,
    backward: float,
    weights: float,
    activations: float,
    cut: float,
) -> dict[str, Any]:
    """``costs`` of a layer at one tensor degree: seconds, and bytes per device.

    Shards other than tensor ranks are expert ranks here, whose weights are only their replicas'.
    """
    return {
        "template": {"tensor": tensor, "expert": shards},
        "forward_seconds": forward,
        "backward_seconds": backward,
        "weight_bytes" if shards == 1 else "expert_weight_bytes": weights,
        "activation_bytes": activations,
        "cut_bytes": cut,
    }


def _layers(found: _Input) -> list[dict[str, Any]]:
    """Layers in execution order; what crosses a cut is what enters the first layer behind it."""
    tables = {int(t): {node.id: node for node in nodes} for t, nodes in found.nodes.items()}
    entering = {
        int(t): {
            node: sum(edge.communicationCost for edge in edges if edge.destId == node)
            for node in tables[int(t)]
        }
        for t, edges in found.edges.items()
    }
    return [
        {
            "name": f"layer.{node}",
            "costs": [
                layer_costs(
                    t,
                    found.shards,
                    forward=table[node].optimalLatencyFw,
                    backward=table[node].optimalLatencyBw,
                    weights=table[node].parameterSize,
                    activations=table[node].activationSize,
                    cut=entering[t][node],
                )
                for t, table in sorted(tables.items())
            ],
        }
        for node in _execution_order(found)
    ]


def _exact_quantum(layers: Sequence[dict[str, Any]], memory: int) -> int | None:
    """The unit of memory that divides every size, so that a stage which just fits still does.

    None where there is none, or where a device would hold too many of it: the default serves then.
    """
    sizes = _sizes(layers)
    if any(size != int(size) for size in sizes):
        return None
    unit = gcd(*map(int, sizes))
    return unit if 0 < unit <= memory <= unit * MAX_QUANTA else None


def _sizes(layers: Sequence[dict[str, Any]]) -> list[float]:
    """Every number of bytes in the layers' costs."""
    return [
        size
        for layer in layers
        for costs in layer["costs"]
        for field, size in costs.items()
        if field.endswith("_bytes")
    ]


def _departures(found: _Input, layers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What the program would price otherwise, a sentence for each. Its own inputs have few."""
    if any(above < below for below, above in pairwise(found.latency_per_level)):
        yield (
            "latency_per_level falls from one level to the next, which the program takes as it is; "
            "here a level has at least the latency of those below it."
        )
    if any(node.parameterSize == 0 for nodes in found.nodes.values() for node in nodes):
        yield (
            "There are layers without weights; of a stage that has no others the program charges "
            "the latencies of a synchronisation, here it has none."
        )
    entered = [edge.destId for edge in next(iter(found.edges.values()))]
    if len(set(entered)) < len(entered):
        yield (
            "There are layers that several edges enter; in the program a stage that begins with "
            "one waits for the largest of them, here it pays their sum."
        )
    spread = _spread_degrees(found, layers)
    if spread:
        yield (
            f"At tensor degree {', '.join(map(str, spread))} the last layer does not fit on a "
            "device; the program may spread its weights over more devices (ZeRO), here no plan has "
            "that degree."
        )
    if any(size != int(size) for size in _sizes(layers)):
        yield "There are sizes with fractions of a byte, each of which is rounded up here."


def _spread_degrees(found: _Input, layers: Sequence[dict[str, Any]]) -> list[int]:
    """Tensor degrees at which the last layer fits only if its weights and state are spread.

    The program places the last layer first, and turns to ZeRO if that does not fit.
    """
    copies = {"SGD": 2, "Adam": 8}[found.optimizerAlgorithm]  # weights, gradients, state
    degrees = []
    for costs in layers[-1]["costs"]:
        weights = costs["weight_bytes" if found.shards == 1 else "expert_weight_bytes"]
        free = found.maxMemoryPerDevice - costs["activation_bytes"]
        if 0 < free < copies * weights:
            degrees.append(costs["template"]["tensor"])
    return degrees


def _graph(found: _Input) -> nx.DiGraph[int]:
    """The layers of the first tensor degree and the edges between them."""
    degree = next(iter(found.nodes))
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(node.id for node in found.nodes[degree])
    graph.add_edges_from((edge.sourceId, edge.destId) for edge in found.edges[degree])
    return graph


def _execution_order(found: _Input) -> list[int]:
    """Topological; among free layers, the listed order."""
    graph = _graph(found)
    listed = {node: n for n, node in enumerate(graph)}
    return list(nx.lexicographical_topological_sort(graph, key=listed.__getitem__))


def _level_complaints(found: _Input) -> list[Complaint]:
    """Lists of levels of one length, whose sizes multiply to the devices."""
    levels = len(found.bws)
    complaints = [
        Complaint(field, f"has {len(entries)} entries, but bws has {levels}; one for each level")
        for field, entries in (
            ("latency_per_level", found.latency_per_level),
            ("devices_per_level", found.devices_per_level),
        )
        if len(entries) != levels
    ]
    devices = prod(found.devices_per_level)
    if not complaints and devices != found.maxDevices:
        complaints.append(
            Complaint(
                "maxDevices",
                f"is not the {devices} devices that devices_per_level multiplies to; make them "
                "equal (the last level may have any size)",
                str(found.maxDevices),
            )
        )
    return complaints


def _graph_complaints(found: _Input) -> list[Complaint]:
    """The same layers and edges at every tensor degree, each once, and no cycle."""
    complaints = []
    if found.nodes.keys() != found.edges.keys():
        return [
            Complaint(
                "edges",
                f"has tensor degrees {', '.join(found.edges) or 'none'}, but nodes has "
                f"{', '.join(found.nodes)}",
            )
        ]
    first = next(iter(found.nodes))
    count = len(found.nodes[first])
    if count > MAX_LAYERS:
        message = f"has {count} layers; at most {MAX_LAYERS} are allowed"
        return [Complaint(f"nodes.{first}", message)]
    known = {node.id for node in found.nodes[first]}
    joined = {(edge.sourceId, edge.destId) for edge in found.edges[first]}
    for degree, nodes in found.nodes.items():
        ids = [node.id for node in nodes]
        if len(set(ids)) < len(ids):
            twice = next(i for i in ids if ids.count(i) > 1)
            complaints.append(Complaint(f"nodes.{degree}", f"lists layer {twice} twice"))
        elif set(ids) != known:
            odd = min(set(ids) ^ known)
            complaints.append(
                Complaint(f"nodes.{degree}", f"has other layers than nodes.{first}: see {odd}")
            )
    for degree, edges in found.edges.items():
        pairs = [(edge.sourceId, edge.destId) for edge in edges]
        for n, pair in enumerate(pairs):
            unknown = [end for end in pair if end not in known]
            if unknown:
                complaints.append(
                    Complaint(f"edges.{degree}[{n}]", f"joins layer {unknown[0]}, which is none")
                )
        if len(set(pairs)) < len(pairs):
            complaints.append(Complaint(f"edges.{degree}", "lists an edge twice; add them up"))
        elif set(pairs) != joined:
            complaints.append(Complaint(f"edges.{degree}", f"has other edges than edges.{first}"))
    if not complaints:
        try:
            cycle = nx.find_cycle(_graph(found))
        except nx.NetworkXNoCycle:
            return []
        loop = [str(edge[0]) for edge in cycle] + [str(cycle[0][0])]
        complaints.append(Complaint("edges", f"form a cycle: {' -> '.join(loop)}"))
    return complaints
