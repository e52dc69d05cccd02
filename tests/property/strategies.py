"""Small random problems, as hypothesis strategies that shrink."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import strategies as st

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_pass")


def some(*values: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=len(values), unique=True)


def ticks(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most).map(lambda n: n / 1000)


@st.composite
def collectives(draw: st.DrawFn, template: dict[str, Any]) -> list[dict[str, Any]]:
    axes = [axis for axis in ("tensor", "context", "expert") if template[axis] > 1]
    if not axes:
        return []
    call = st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "axis": st.sampled_from(axes),
            "pass": st.sampled_from(["forward", "backward"]),
            "bytes": st.integers(0, 12),
            "count": st.integers(1, 2),
        }
    )
    return draw(st.lists(call, max_size=2))


@st.composite
def costs(draw: st.DrawFn, template: dict[str, Any]) -> dict[str, Any]:
    return {
        "template": template,
        "forward_seconds": draw(ticks(20)),
        "backward_seconds": draw(ticks(40)),
        "recompute_seconds": draw(ticks(20)),
        "selective_recompute_seconds": draw(ticks(5)),
        "weight_bytes": draw(st.integers(0, 12)),
        "expert_weight_bytes": draw(st.just(0) | st.integers(0, 12)),
        "activation_bytes": draw(st.integers(0, 30)),
        "checkpoint_bytes": draw(st.integers(0, 4)),
        "attention_core_bytes": draw(st.integers(0, 10)),
        "output_bytes": draw(st.integers(0, 6)),
        "collectives": draw(collectives(template)),
    }


@st.composite
def networks(draw: st.DrawFn, devices: int) -> dict[str, Any]:
    """A network that is no hierarchy."""
    rate = st.sampled_from([1000.0, 500.0, 100.0, 50.0, 10.0])
    latency = st.sampled_from([0.0, 0.001, 0.002, 0.01])
    few = {"reference_bytes": 6, "max_classes": draw(st.sampled_from([1, 2, 16]))}
    if draw(st.booleans()):
        return few | {
            "kind": "torus",
            "shape": [devices],
            "wraparound": draw(st.booleans()),
            "link_bandwidth_bytes_per_second": draw(rate),
            "link_latency_seconds": draw(latency),
        }
    rows = st.lists(st.tuples(rate, latency), min_size=devices, max_size=devices)
    measured = [draw(rows) for _ in range(devices)]
    return few | {
        "kind": "matrix",
        "bandwidth_bytes_per_second": [[pair[0] for pair in row] for row in measured],
        "latency_seconds": [[pair[1] for pair in row] for row in measured],
    }


@st.composite
def problems(
    draw: st.DrawFn, most_layers: int = 4, most_devices: int = 8, hierarchical: bool = True
) -> dict[str, Any]:
    """The JSON object of a problem that is always valid, but not always feasible."""
    sizes = draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(
            lambda sizes: math.prod(sizes) <= most_devices
        )
    )
    levels = [
        {
            "size": size,
            "bandwidth_bytes_per_second": float(draw(st.sampled_from([1000, 500, 100, 50, 10]))),
            "latency_seconds": draw(st.sampled_from([0.0, 0.001, 0.002, 0.01])),
        }
        for size in sizes
    ]
    search = {
        "microbatch": draw(some(1, 2, 3)),
        "tensor": draw(some(1, 2, 3)),
        "context": draw(st.sampled_from([[1], [1, 2]])),
        "expert": draw(st.sampled_from([[1], [1, 2], [2]])),
        "sequence_parallel": draw(some(False, True)),
        "data_parallel": draw(st.sampled_from(["any", "even", [1, 2, 3]])),
        "recomputation": draw(some("none", "selective", "layer", "stage")),
        "zero": draw(some(0, 1, 2, 3)),
        "layouts": draw(some("pipeline-inner", "data-inner")),
    }
    templates = [
        dict(zip(("tensor", "context", "expert", "sequence_parallel"), values, strict=True))
        for values in itertools.product(
            search["tensor"], search["context"], search["expert"], [False, True]
        )
        if values[0] > 1 or not values[3]
    ]
    layers = [
        {
            "name": f"layer {i}",
            "count": draw(st.sampled_from([1, 1, 2])),
            "costs": [draw(costs(template)) for template in templates],
        }
        for i in range(draw(st.integers(1, most_layers // 2 + 1)))
    ]
    model: dict[str, Any] = {"kind": "layers", "name": "drawn", "layers": layers}
    if len(layers) > 1 and draw(st.booleans()):
        model["tied_weights"] = [
            {
                "template": template,
                "weight_bytes": min(
                    layers[0]["costs"][k]["weight_bytes"], layers[-1]["costs"][k]["weight_bytes"]
                ),
            }
            for k, template in enumerate(templates)
        ]
    devices = math.prod(sizes)
    links = {"levels": levels} if hierarchical else {"network": draw(networks(devices))}
    share = st.sampled_from([1.0, 0.5])
    again = draw(st.sampled_from(["forward_again", "forward_again", "backward_again"]))
    if again == "backward_again":
        search["recomputation"] = draw(some("none", "stage"))
    return {
        "name": "drawn",
        "model": model,
        "cluster": {
            "name": "drawn",
            "device": {"name": "drawn", "memory_bytes": draw(st.integers(20, 700))},
            "devices": devices,
            **links,
        },
        "training": {
            "global_batch": draw(st.integers(1, 12)),
            "all_reduce": draw(st.sampled_from(["ring", "hierarchical", "tree"]))
            if hierarchical
            else "ring",
            "reserve_fraction": 0.0,
            "optimizer": draw(st.sampled_from(["zero16", "sgd4", "megatron18"])),
            "cost_model": {
                "synchronisation": draw(st.sampled_from(["slowest_stage", "first_stage"])),
                "transfer": draw(st.sampled_from(["direct", "up_and_down"])),
                "transfer_link": draw(st.sampled_from(["worst_pair", "first_devices"])),
                "recomputation": again,
                "in_flight": draw(st.sampled_from(["at_most_microbatches", "stages_behind"])),
                "exposed": {
                    "collectives": draw(share),
                    "transfers": draw(share),
                    "synchronisation": draw(share),
                },
            },
        },
        "search": search,
        "units": {"tick_seconds": 0.001, "quantum_bytes": 1},
    }
