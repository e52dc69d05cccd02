"""The NEST artifact's tables -> the shipped problems ``nest/...`` and the plans of its rivals.

``instances/measured/nest_artifact.json`` restates the layer tables, clusters, published degrees and
results of github.com/scai-tech/Nest (MIT licence, commit 3e163ad). This module makes from it, byte
for byte, everything under a ``nest`` folder of ``instances``; run as a program it writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nest_opt.files import read_json, write_text
from nest_opt.importers.nest import CONVENTIONS, layer_costs, search_space
from nest_opt.library import instances_folder
from nest_opt.problem import FORMAT

SOURCE = "restated from github.com/scai-tech/Nest (MIT licence), commit 3e163ad"
#: Short names of the artifact's two set-ups.
SETUPS = {"tpuv4": "tpuv4_fatTree", "h100": "h100_spineLeaf"}
RIVALS = ("Manual", "Phaze", "MCMC")

Json = dict[str, Any]


def artifact() -> Json:
    """The restated tables."""
    data: Json = read_json(instances_folder() / "measured" / "nest_artifact.json")
    return data


def shipped_files() -> Iterator[tuple[str, Json]]:
    """(path under ``instances``, JSON data) of every file, models and clusters first."""
    for short, setup in SETUPS.items():
        models = artifact()["setups"][setup]
        for model, facts in models.items():
            yield f"models/nest/{short}-{model}.json", _model(f"{short}-{model}", facts)
        facts = next(iter(models.values()))
        for devices in sorted(map(int, facts["devices_per_level"])):
            yield f"clusters/nest/{short}-{devices}.json", _cluster(short, devices, facts)
        for model, facts in models.items():
            for devices in sorted(map(int, facts["devices_per_level"])):
                name = f"nest/{short}-{model}-{devices}"
                yield f"problems/{name}.json", _problem(name, short, model, devices, facts)
                for rival, degrees in facts["published_plans"].get(str(devices), {}).items():
                    plan = balanced_plan(facts, devices, degrees)
                    if plan is not None:
                        yield f"plans/{name}/{rival.lower()}.json", plan


def _model(name: str, facts: Json) -> Json:
    """One record for each run of layers that no table or edge tells apart, at any degree."""
    tables = facts["by_tensor_degree"]
    rows = {t: list(_rows(table)) for t, table in tables.items()}
    layers: list[Json] = []
    for i in range(len(next(iter(rows.values())))):
        costs = [
            layer_costs(int(t), facts["expert"], **rows[t][i]) for t in sorted(tables, key=int)
        ]
        if i > 1 and layers[-1]["costs"] == costs:
            layers[-1]["count"] = layers[-1].get("count", 1) + 1
        else:
            layers.append({"name": f"layer.{i}" if i else "embedding", "costs": costs})
    for layer in layers[1:]:
        first = int(layer["name"].partition(".")[2])
        last = first + layer.get("count", 1) - 1
        layer["name"] = f"blocks.{first - 1}-{last - 1}" if last > first else f"block.{first - 1}"
    return {
        "kind": "layers",
        "name": f"nest/{name}",
        "description": "Latencies as the artifact's placement program reads them: it adds them to "
        "seconds, but they are mostly milliseconds. Only to reproduce the artifact.",
        "source": SOURCE,
        "layers": layers,
    }


def _rows(table: Json) -> Iterator[Json]:
    """Costs of each layer in execution order: the embedding, numbered -1, and the blocks."""
    runs = [run for run in table["runs"] for _ in range(run["count"])]
    for i, run in enumerate(runs):
        # An entry of ``edges`` is so many edges, each one layer further on; those that fan out from
        # the embedding keep their source.
        entering = sum(
            edge["bytes"] for edge in table["edges"] if edge["to"][0] <= i - 1 <= edge["to"][1]
        )
        yield {
            "forward": run["forward"],
            "backward": run["backward"],
            "weights": run["weight_bytes"],
            "activations": run["activation_bytes"],
            "cut": entering,
        }


def _cluster(short: str, devices: int, facts: Json) -> Json:
    return {
        "name": f"nest/{short}-{devices}",
        "description": "As the artifact's placement program reads it.",
        "source": SOURCE,
        "device": {"name": f"nest/{short}", "memory_bytes": facts["memory_bytes"]},
        "devices": devices,
        "levels": [
            {
                "size": size,
                "bandwidth_bytes_per_second": bandwidth,
                "latency_seconds": latency,
            }
            for size, bandwidth, latency in zip(
                facts["devices_per_level"][str(devices)],
                facts["bandwidth_bytes_per_second"],
                facts["latency_seconds"],
                strict=True,
            )
        ],
    }


def _problem(name: str, short: str, model: str, devices: int, facts: Json) -> Json:
    return {
        "format": FORMAT,
        "name": name,
        "description": "The artifact's layers, cluster, search space and conventions.",
        "source": SOURCE,
        "model": f"nest/{short}-{model}",
        "cluster": f"nest/{short}-{devices}",
        "training": CONVENTIONS
        | {"global_batch": facts["microbatches"] * facts["expert"], "optimizer": "sgd4"},
        "search": search_space(
            sorted(map(int, facts["by_tensor_degree"])), facts["expert"], facts["recomputation"]
        ),
    }


def balanced_plan(facts: Json, devices: int, degrees: Json) -> Json | None:
    """A plan of published degrees: blocks split evenly, longer stages first.

    The embedding goes with the first stage; replicas lie one behind the other, stages in each from
    the last one on. None if the devices do not suffice.
    """
    stages, replicas = degrees["pipeline"], degrees["data"]
    width = degrees["tensor"] * facts["expert"]
    blocks = sum(run["count"] for run in next(iter(facts["by_tensor_degree"].values()))["runs"]) - 1
    if replicas * stages * width > devices or stages > blocks:
        return None
    short, longer = divmod(blocks, stages)
    listed, first = [], 0
    for j in range(stages):
        end = first + short + (j < longer) + (j == 0)
        starts = [(r * stages + stages - 1 - j) * width for r in range(replicas)]
        listed.append(
            {
                "layers": [first, end],
                "recomputation": "stage" if facts["recomputation"] else "none",
                "zero": 0,
                "devices": [list(range(start, start + width)) for start in starts],
            }
        )
        first = end
    packed = devices // replicas == stages * width
    return {
        "microbatch": 1,
        "replicas": replicas,
        "microbatches": -(-facts["microbatches"] // replicas),
        "layout": "pipeline-inner" if packed else "explicit",
        "template": {"tensor": degrees["tensor"], "expert": facts["expert"]},
        "stages": listed,
    }


def file_text(data: Json) -> str:
    """How a shipped file is written; the devices of a stage on one line."""
    if "stages" not in data:
        return json.dumps(data, indent=1) + "\n"
    stages = ",\n  ".join(json.dumps(stage) for stage in data["stages"])
    head = json.dumps({key: value for key, value in data.items() if key != "stages"}, indent=1)
    return f'{head[:-2]},\n "stages": [\n  {stages}\n ]\n}}\n'


def main() -> int:
    """Write every shipped file."""
    for path, data in shipped_files():
        target = instances_folder() / Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, file_text(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
