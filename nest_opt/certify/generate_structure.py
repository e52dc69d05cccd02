"""Makes the suite ``structure``: small problems in which the two layouts may cost something.

Each is drawn around one aim: the number of replicas does not divide the devices, so that replicas
straddle nodes; a deep hierarchy; a network without levels; uneven layers; or memory that binds. All
templates are one device wide, so that :mod:`formulations.free` covers them, and the numbers of
replicas and stages are few, so that it proves them in seconds.

    python -m nest_opt.certify.generate_structure --out instances/suites/structure.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from nest_opt.certify.generate import SUITE_FORMAT, expected_of, suite_text, summary
from nest_opt.compile import compile_problem
from nest_opt.errors import NestOptError
from nest_opt.files import canonical_json, write_text
from nest_opt.library import load_problem

SEED = 1
PROBLEMS = 216
AIMS = ("straddle", "deep", "no_levels", "straddle", "uneven", "memory")

_LEVELS: dict[str, tuple[tuple[int, ...], ...]] = {
    "straddle": ((2, 3), (2, 4), (3, 3), (2, 5), (4, 2)),
    "deep": ((2, 2, 2), (2, 3), (2, 2, 2), (3, 2)),
    "uneven": ((2, 2), (2, 3), (3, 2), (4, 2)),
    "memory": ((2, 2), (2, 3), (3, 2)),
}


def draw(seed: int, number: int) -> dict[str, Any]:
    """Problem ``number``: its aim in turn, everything else drawn from the two numbers."""
    for attempt in range(100):
        random = Random(f"structure {seed} {number} {attempt}")
        data = _problem(random, AIMS[number % len(AIMS)], number)
        expected = expected_of(compile_problem(load_problem(data)))
        if expected["batch_ticks"] is not None:
            return {"problem": data, "expected": expected, "decisive": []}
    raise NestOptError(f"problem {number}: 100 draws without a feasible one")


def _problem(random: Random, aim: str, number: int) -> dict[str, Any]:
    """One draw."""
    sizes = random.choice(_LEVELS[aim]) if aim in _LEVELS else (random.randint(4, 6),)
    devices = prod(sizes)
    uneven = aim in ("uneven", "memory") or random.random() < 0.3
    count = random.randint(3, 5)
    layers: list[dict[str, Any]] = []
    for i in range(count):
        compute = random.randint(1, 30) if uneven else 6
        layers.append(
            {
                "name": f"layer.{i}",
                "costs": [
                    {
                        "template": {},
                        "forward_seconds": compute / 1000,
                        "backward_seconds": 2 * compute / 1000,
                        "recompute_seconds": compute / 1000,
                        "weight_bytes": random.randint(1, 12) * (1 if aim == "straddle" else 3),
                        "activation_bytes": random.randint(5, 30),
                        "checkpoint_bytes": random.randint(1, 5),
                        "output_bytes": random.randint(4, 40) * (6 if aim == "straddle" else 1),
                    }
                ],
            }
        )
    model: dict[str, Any] = {"kind": "layers", "name": "drawn", "layers": layers}
    if random.random() < 0.2:
        shared = min(layers[0]["costs"][0]["weight_bytes"], layers[-1]["costs"][0]["weight_bytes"])
        model["tied_weights"] = [{"template": {}, "weight_bytes": shared}]
    cluster: dict[str, Any] = {
        "name": "drawn",
        "device": {"name": "drawn", "memory_bytes": _memory(random, aim, layers)},
        "devices": devices,
    }
    if aim == "no_levels":
        cluster["network"] = _matrix(random, devices)
    else:
        cluster["levels"] = _levels(random, sizes)
    # Numbers of replicas that do not divide the devices are what straddles nodes.
    odd = [d for d in range(2, devices) if devices % d and devices // d >= 2]
    replicas = {random.randint(1, max(devices // 2, 1))}
    if odd and (aim == "straddle" or random.random() < 0.5):
        replicas = {random.choice(odd)}
    if random.random() < 0.4:
        replicas.add(random.randint(1, max(devices // 2, 1)))
    hierarchical = aim != "no_levels" and random.random() < 0.8
    return {
        "format": "nest-opt/problem/1",
        "name": f"structure-{number:03d}",
        "description": f"Drawn for: {aim.replace('_', ' ')}.",
        "source": f"python -m nest_opt.certify.generate_structure, problem {number}",
        "model": model,
        "cluster": cluster,
        "training": {
            "global_batch": max(replicas) * random.randint(1, 6),
            "all_reduce": "hierarchical" if hierarchical else "ring",
            "reserve_fraction": 0.0,
            "optimizer": "sgd4",
        },
        "search": {
            "microbatch": [1],
            "tensor": [1],
            "data_parallel": sorted(replicas),
            "stages": "any" if aim != "straddle" else [s for s in (2, 3, 4) if s <= count],
            "recomputation": ["none", "layer"] if aim == "memory" else ["none"],
            "zero": [0, 1] if aim == "memory" else [random.choice((0, 0, 1, 2))],
        },
        "units": {"tick_seconds": 0.001, "quantum_bytes": 1},
    }


def _memory(random: Random, aim: str, layers: Sequence[dict[str, Any]]) -> int:
    """Bytes of a device: ample, or room for about half of the model."""
    costs = [layer["costs"][0] for layer in layers]
    model: int = sum(4 * cost["weight_bytes"] + 2 * cost["activation_bytes"] for cost in costs)
    if aim == "memory" or random.random() < 0.3:
        return max(1, int(model * (0.4 + 0.5 * random.random())))
    return 100 * model


def _levels(random: Random, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Levels whose bandwidth falls by 2 to 16 outwards."""
    bandwidth, levels = 20_000.0, []
    for k, size in enumerate(sizes):
        levels.append(
            {
                "name": f"level{k}",
                "size": size,
                "bandwidth_bytes_per_second": bandwidth,
                "latency_seconds": k * random.choice((0.0, 0.001, 0.004)),
            }
        )
        bandwidth /= random.choice((2, 4, 8, 16))
    return levels


def _matrix(random: Random, devices: int) -> dict[str, Any]:
    """Measured pairs: a shuffled order of devices in which near ones are fast."""
    order = list(range(devices))
    random.shuffle(order)
    near = random.choice((2, 3))
    slow = 20_000.0 / random.choice((4, 8, 16))
    rows = [
        [20_000.0 if order[x] // near == order[y] // near else slow for y in range(devices)]
        for x in range(devices)
    ]
    return {
        "kind": "matrix",
        "bandwidth_bytes_per_second": rows,
        "latency_seconds": [
            [0.0 if x == y else 0.001 for y in range(devices)] for x in range(devices)
        ],
    }


def generate_structure(seed: int = SEED) -> dict[str, Any]:
    """The whole suite. Raises :class:`NestOptError` if a problem cannot be made."""
    entries = [json.loads(canonical_json(draw(seed, n))) for n in range(PROBLEMS)]
    return {
        "format": SUITE_FORMAT,
        "name": "structure",
        "description": "Small problems in which consecutive devices in two layouts may cost time.",
        "source": f"python -m nest_opt.certify.generate_structure --seed {seed}",
        "problems": entries,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the suite; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.generate_structure",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write the suite to")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        suite = generate_structure(options.seed)
        write_text(options.out, suite_text(suite))
    except NestOptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(summary(suite) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
