"""What the tests of certification share: random small problems."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from nest_opt.library import load_problem
from nest_opt.problem import Problem


def _some(dice: random.Random, items: list[Any]) -> list[Any]:
    return sorted(dice.sample(items, dice.randint(1, len(items))), key=items.index)


def _costs(dice: random.Random, template: dict[str, Any], scale: list[int]) -> dict[str, Any]:
    calls = [
        {
            "kind": dice.choice(["all_reduce", "all_gather", "all_to_all", "ring_pass"]),
            "axis": axis,
            "pass": dice.choice(["forward", "backward"]),
            "bytes": dice.randint(0, 8) * 2**20,
            "count": dice.randint(1, 2),
        }
        for axis in ("tensor", "context", "expert")
        if template[axis] > 1
    ]
    return {
        "template": template,
        "forward_seconds": scale[0] * 1e-3,
        "backward_seconds": 2 * scale[0] * 1e-3,
        "recompute_seconds": scale[1] * 1e-3,
        "selective_recompute_seconds": scale[2] * 1e-3,
        "weight_bytes": scale[3] * 2**20,
        "expert_weight_bytes": scale[4] * 2**20,
        "activation_bytes": scale[5] * 2**20,
        "checkpoint_bytes": scale[6] * 2**20,
        "attention_core_bytes": scale[6] * 2**19,
        "output_bytes": scale[6] * 2**20,
        "collectives": calls,
    }


def draw(seed: int) -> Problem:
    """A problem of few layers and devices, with every kind of feature now and then."""
    dice = random.Random(seed)
    templates = [{"tensor": 1, "context": 1, "expert": 1, "sequence_parallel": False}]
    axis = dice.choice(["tensor", "tensor", "context", "expert"])
    if dice.random() < 0.6:
        templates.append({**templates[0], axis: 2})
    kinds = [
        [dice.randint(1, 20), dice.randint(0, 9), dice.randint(0, 3)]
        + [dice.randint(0, 9) for _ in range(4)]
        for _ in range(3)
    ]
    pattern = [0, *[1] * dice.randint(0, 3), *[dice.randint(0, 2)] * dice.randint(0, 1), 2]
    tied = dice.random() < 0.3 and len(pattern) > 1
    layers = []
    for number, kind in enumerate(pattern):
        scale = list(kinds[kind])
        if tied:
            scale[3] = max(scale[3], 2)
        costs = [_costs(dice, template, scale) for template in templates]
        if number and pattern[number - 1] == kind:
            costs = [
                {**one, "collectives": before["collectives"]}
                for one, before in zip(costs, layers[-1]["costs"], strict=True)
            ]
        layers.append({"name": f"l{number}", "costs": costs})
    levels = [
        {
            "size": dice.choice([1, 2, 2, 3]),
            "bandwidth_bytes_per_second": 2**30 / 4**k,
            "latency_seconds": dice.choice([0, 1e-3]),
        }
        for k in range(dice.randint(1, 3))
    ]
    devices = 1
    for level in levels:
        devices *= level["size"]
    model: dict[str, Any] = {"kind": "layers", "name": "random", "layers": layers}
    if tied:
        model["tied_weights"] = [
            {"template": template, "weight_bytes": 2 * 2**20} for template in templates
        ]
    return load_problem(
        {
            "name": f"random-{seed}",
            "model": model,
            "cluster": {
                "name": "random",
                "devices": devices,
                "levels": levels,
                "device": {"name": "d", "memory_bytes": dice.choice([100, 200, 400]) * 2**20},
            },
            "training": {
                "global_batch": dice.choice([4, 6, 8]),
                "all_reduce": dice.choice(["hierarchical", "hierarchical", "ring"]),
                "reserve_fraction": 0.0,
                "cost_model": {
                    "synchronisation": dice.choice(["slowest_stage"] * 2 + ["first_stage"])
                },
            },
            "search": {
                "microbatch": _some(dice, [1, 2]),
                "tensor": [1, 2] if axis == "tensor" else [1],
                "context": [1, 2] if axis == "context" else [1],
                "expert": [1, 2] if axis == "expert" else [1],
                "sequence_parallel": [False],
                "data_parallel": dice.choice(["any", "even", [1, 2, 3]]),
                "recomputation": _some(dice, ["none", "selective", "layer", "stage"])[:2],
                "zero": _some(dice, [0, 1, 2, 3])[:2],
                "layouts": ["pipeline-inner", "data-inner"],
            },
            "units": {
                "tick_seconds": 1e-3,
                "quantum_bytes": 2**20,
                "synchronisation_multiple_ticks": dice.choice([1, 1, 5]),
            },
        }
    )


@pytest.fixture(scope="session")
def random_problem() -> Callable[[int], Problem]:
    """A small problem from a seed."""
    return draw
