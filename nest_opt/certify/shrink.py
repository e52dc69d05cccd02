"""The smallest problem on which something still goes wrong.

As long as the same complaint remains, pieces are taken away and numbers made simpler: first whole
kinds of costs and all entries of a search list but one, then layers, entries and levels one by one,
then single numbers. A pass goes through all changes of what is left, and passes are repeated until
one of them changes nothing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

#: A problem as JSON data.
Data = dict[str, Any]

_NEEDED = ("template", "forward_seconds", "backward_seconds")


def shrink(
    data: Data,
    still: Callable[[Data], str | None],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Data, str | None]:
    """A smaller problem on which ``still`` says something, and what it says.

    ``seconds`` is a limit on ``clock``; what has been reached by then is returned.
    """
    until = clock() + seconds
    said = still(data)
    tried, changed, before = 0, said is not None, data
    while changed:
        # Changes of what is left now, from where this pass has come to.
        for candidate in islice(simpler(data), tried, None):
            if clock() > until:
                return data, said
            found = still(candidate)
            if found is not None:
                data, said = candidate, found
                break
            tried += 1
        else:
            # A pass is over: another one, if this one has changed something since its start.
            changed, tried, before = data is not before, 0, data
    return data, said


def simpler(data: Data) -> Iterator[Data]:
    """Problems with pieces less, or with a simpler number; the boldest changes first."""
    yield from _without_options(data)
    if data["model"]["kind"] == "layers":
        yield from _without_costs(data)
        yield from _fewer_layers(data)
    yield from _shorter_lists(data)
    yield from _smaller_batches(data)
    yield from _smaller_networks(data)
    if data["model"]["kind"] == "layers":
        yield from _plainer_costs(data)


def _changed(data: Data, *path: Any, to: Any) -> Data:
    other = copy.deepcopy(data)
    place: Any = other
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return other


def _without(data: Data, *path: Any) -> Data:
    other = copy.deepcopy(data)
    place: Any = other
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return other


def _without_options(data: Data) -> Iterator[Data]:
    training = data["training"]
    for name in ("cost_model", "all_reduce", "reserve_fraction", "optimizer"):
        if name in training:
            yield _without(data, "training", name)
    options = training.get("cost_model", {})
    if len(options) > 1:
        for name in options:
            yield _without(data, "training", "cost_model", name)
    if data["model"].get("tied_weights"):
        yield _without(data, "model", "tied_weights")
    if "synchronisation_multiple_ticks" in data["units"]:
        yield _without(data, "units", "synchronisation_multiple_ticks")


def _without_costs(data: Data) -> Iterator[Data]:
    """One kind of cost taken from all layers at once."""
    layers = data["model"]["layers"]
    kinds = dict.fromkeys(name for x in layers for costs in x["costs"] for name in costs)
    for name in kinds:
        if name in _NEEDED:
            continue
        other = copy.deepcopy(data)
        for layer in other["model"]["layers"]:
            for costs in layer["costs"]:
                costs.pop(name, None)
        yield other


def _fewer_layers(data: Data) -> Iterator[Data]:
    layers = data["model"]["layers"]
    if any("inputs" in layer for layer in layers):
        other = copy.deepcopy(data)
        for layer in other["model"]["layers"]:
            layer.pop("inputs", None)
        yield other
    for n, layer in enumerate(layers):
        if len(layers) > 1:
            rest = [
                {key: value for key, value in kept.items() if key != "inputs"}
                for k, kept in enumerate(layers)
                if k != n
            ]
            yield _changed(data, "model", "layers", to=rest)
        if layer.get("count", 1) > 1:
            yield _changed(data, "model", "layers", n, "count", to=1)
            yield _changed(data, "model", "layers", n, "count", to=layer["count"] - 1)


def _shorter_lists(data: Data) -> Iterator[Data]:
    for name, entries in data["search"].items():
        if not isinstance(entries, list) or len(entries) < 2:
            continue
        if len(entries) > 2:
            for entry in entries:
                yield _changed(data, "search", name, to=[entry])
        for n in range(len(entries)):
            yield _changed(data, "search", name, to=entries[:n] + entries[n + 1 :])
    layers = data["model"].get("layers", [])
    if layers and len(layers[0]["costs"]) > 1:
        for n in range(len(layers[0]["costs"])):
            other = copy.deepcopy(data)
            for layer in other["model"]["layers"]:
                del layer["costs"][n]
            for tied in other["model"].get("tied_weights", [])[n : n + 1]:
                other["model"]["tied_weights"].remove(tied)
            yield other


def _smaller_batches(data: Data) -> Iterator[Data]:
    batch = data["training"]["global_batch"]
    for smaller in sorted({1, batch // 2, batch - 1}):
        if 0 < smaller < batch:
            yield _changed(data, "training", "global_batch", to=smaller)


def _smaller_networks(data: Data) -> Iterator[Data]:
    cluster = data["cluster"]
    levels = cluster.get("levels", [])
    for n, level in enumerate(levels):
        rest = cluster["devices"] // level["size"]
        if len(levels) > 1:
            other = _without(data, "cluster", "levels", n)
            other["cluster"]["devices"] = rest
            yield other
        if level["size"] > 1:
            other = _changed(data, "cluster", "levels", n, "size", to=level["size"] - 1)
            other["cluster"]["devices"] = rest * (level["size"] - 1)
            yield other


def _plainer_costs(data: Data) -> Iterator[Data]:
    for n, layer in enumerate(data["model"]["layers"]):
        for k, costs in enumerate(layer["costs"]):
            for name, value in costs.items():
                if name in _NEEDED:
                    continue
                yield _without(data, "model", "layers", n, "costs", k, name)
                if isinstance(value, int | float) and value > 1:
                    yield _changed(data, "model", "layers", n, "costs", k, name, to=1)
