"""Named models, devices, clusters and problems, and everything that reads a problem from a name.

A problem is named by a file, by a shipped name, or as ``MODEL@CLUSTER``, where each side is again a
shipped name or a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from nest_opt.errors import Complaint, InputError
from nest_opt.files import canonical_json, complaints_of, read_json, read_numbers
from nest_opt.plan import Plan
from nest_opt.problem import FORMAT, Cluster, ConfigModel, LayersModel, Model, Problem

Family = Literal["models", "devices", "clusters", "problems", "plans", "suites"]
FAMILIES: tuple[Family, ...] = ("models", "devices", "clusters", "problems", "plans", "suites")

_model_adapter: TypeAdapter[LayersModel | ConfigModel] = TypeAdapter(Model)


@cache
def instances_folder() -> Path:
    """Where the shipped instances lie: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "instances", here.parent / "instances"):
        if folder.is_dir():
            return folder
    raise InputError("instances", "the shipped instances are missing; reinstall nest-opt")


def names(family: Family) -> list[str]:
    """Shipped names of a family, sorted."""
    folder = instances_folder() / family
    return sorted(
        str(path.relative_to(folder).with_suffix("")).replace("\\", "/")
        for path in folder.rglob("*.json")
    )


def load_problem(
    reference: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> Problem:
    """The problem that ``reference`` names.

    ``reference`` is a problem file, a shipped name (see :func:`names`), ``MODEL@CLUSTER`` or the
    JSON object itself. ``overrides`` maps dotted field paths to JSON values, applied before
    validation: ``{"search.data_parallel": "any"}``.

    Raises :class:`InputError`, listing everything that is wrong.

    >>> load_problem("worked-example-160").cluster.devices
    4
    >>> load_problem("llama2-7b@h100-64", {"search.zero": [1]}).search.zero
    (1,)
    """
    if isinstance(reference, Mapping):
        source, data, folder = str(reference.get("name") or "problem"), dict(reference), Path()
    else:
        source, data, folder = _find_problem(str(reference))
    if not isinstance(data, dict):
        raise InputError(source, "a problem is a JSON object with model, cluster and training")
    data = _resolved(data, folder, source)
    for path, value in (overrides or {}).items():
        data = _with_field(data, path.split("."), value, path)
    data = _resolved(data, Path(), source)
    try:
        return Problem.model_validate_json(canonical_json(data))
    except ValidationError as error:
        raise InputError(source, complaints_of(error, data)) from None


def load_plan(reference: str | Path) -> Plan:
    """A plan by shipped name, or from a file. Raises :class:`InputError`.

    >>> load_plan("nest/tpuv4-llama2-7b-64/manual").replicas
    8
    """
    name = str(reference)
    if name in names("plans"):
        return Plan.from_file(instances_folder() / "plans" / f"{name}.json")
    if not os.path.exists(name) and not name.endswith(".json"):
        hint = _suggestion(name, names("plans"))
        if hint:
            raise InputError(name, f"no such file, and no shipped plan has this name{hint}")
    return Plan.from_file(reference)


def load_cluster(reference: str) -> Cluster:
    """A cluster by shipped name or file. Raises :class:`InputError`."""
    data = _read_cluster(reference, Path())
    try:
        return Cluster.model_validate_json(canonical_json(data))
    except ValidationError as error:
        raise InputError(reference, complaints_of(error, data)) from None


def load_model(reference: str) -> LayersModel | ConfigModel:
    """A model by shipped name or file. Raises :class:`InputError`."""
    data = _read_model(reference, Path())
    try:
        return _model_adapter.validate_json(canonical_json(data))
    except ValidationError as error:
        raise InputError(reference, complaints_of(error, data)) from None


def default_training(cluster: Cluster) -> dict[str, Any]:
    """Training of ``MODEL@CLUSTER``: the batch grows with the cluster.

    All else is default, but where there are no levels the all-reduce is a ring.
    """
    devices = cluster.devices
    batch = 512 if devices <= 64 else 1024 if devices <= 128 else 2048
    return {"global_batch": batch} | ({} if cluster.levels else {"all_reduce": "ring"})


def default_search(model: str, cluster: Cluster) -> dict[str, Any]:
    """Search space of ``MODEL@CLUSTER``, as far as it depends on the two.

    A mixture of experts spreads them over 1 and the powers of two up to as many as there are, or as
    a node has devices. A table of layers is searched over the templates and microbatches it has.
    """
    try:
        data = _read_model(model, Path())
        if isinstance(data, dict) and data.get("kind") == "layers":
            table = LayersModel.model_validate_json(canonical_json(data))
            return _search_of_table(table, cluster.devices)
    except (InputError, ValidationError):
        return {}  # said again, with the field, where the model is read
    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(config, dict):
        return {}
    from nest_opt.estimate.config import expert_count

    node = cluster.levels[0].size if cluster.levels else cluster.devices
    most = min(expert_count(config), node)
    return {"expert": [1 << k for k in range(most.bit_length())]} if most > 1 else {}


def _search_of_table(model: LayersModel, devices: int) -> dict[str, Any]:
    """The degrees, and the microbatch sizes if quantities are given by them, of a layer table."""
    templates = [costs.template for costs in model.layers[0].costs]
    lists = {
        axis: sorted({getattr(t, axis) for t in templates if getattr(t, axis) <= devices})
        for axis in ("tensor", "context", "expert")
    }
    lists["sequence_parallel"] = sorted({t.sequence_parallel for t in templates if t.tensor > 1})
    sizes = [
        {int(size) for size in quantity}
        for layer in model.layers
        for costs in layer.costs
        for quantity in (*vars(costs).values(), *(call.bytes for call in costs.collectives))
        if isinstance(quantity, dict)
    ]
    lists["microbatch"] = sorted(set.intersection(*sizes)) if sizes else []
    return {field: values for field, values in lists.items() if values}


def _resolved(data: Mapping[str, Any], folder: Path, source: str) -> dict[str, Any]:
    """``data`` with what it mentions read in: model and cluster, and what these mention.

    Files are relative to the file that mentions them, ``folder`` for ``data`` itself; complaints
    name ``source`` and the field.
    """
    data = dict(data)
    for part, reader in (("model", _read_model), ("cluster", _read_cluster)):
        if isinstance(data.get(part), str):
            data[part] = _mentioned(reader, data[part], folder, source, part)
        elif isinstance(data.get(part), dict):
            data[part] = _completed(data[part], folder, source, f"{part}.")
    return data


def _completed(owner: dict[str, Any], folder: Path, source: str, within: str) -> dict[str, Any]:
    """A model or cluster with what it mentions read in: device, measured profile, network."""
    readers = {"device": _read_device, "profile": _read_profile, "network": _read_network}
    owner = dict(owner)
    for field, reader in readers.items():
        if isinstance(owner.get(field), str):
            owner[field] = _mentioned(reader, owner[field], folder, source, within + field)
    if isinstance(owner.get("network"), dict):
        owner["network"] = _measured(owner["network"], folder, source, f"{within}network.")
    return owner


def _measured(network: dict[str, Any], folder: Path, source: str, within: str) -> dict[str, Any]:
    """A network with the matrices that it mentions read in."""
    network = dict(network)
    for field in ("latency_seconds", "bandwidth_bytes_per_second"):
        if isinstance(network.get(field), str):
            place = within + field
            network[field] = _mentioned(_read_matrix, network[field], folder, source, place)
    return network


def _mentioned(
    reader: Callable[[str, Path], Any], reference: str, folder: Path, source: str, field: str
) -> Any:
    try:
        return reader(reference, folder)
    except InputError as error:
        # What it mentions, shortened, and what is wrong there.
        raise InputError(source, [Complaint(field, str(error))]) from None


def _find_problem(reference: str) -> tuple[str, Any, Path]:
    if reference in names("problems"):
        path = instances_folder() / "problems" / f"{reference}.json"
        return reference, read_json(path), path.parent
    model, at, cluster = reference.rpartition("@")
    if at and not os.path.exists(reference):
        loaded = load_cluster(cluster)
        parts = {
            "model": model,
            "cluster": cluster,
            "training": default_training(loaded),
            "search": default_search(model, loaded),
        }
        return reference, {"format": FORMAT, "name": reference, **parts}, Path()
    if reference.endswith(".csv"):
        told = f"is a table of layers; name its cluster as well: {reference}@h100-64"
        raise InputError(reference, told)
    if _looks_like_path(reference):
        return reference, read_json(Path(reference)), Path(reference).parent
    if reference in names("models"):
        raise InputError(reference, f"is a model; name its cluster as well: {reference}@h100-64")
    raise InputError(
        reference or "(nothing)",
        "no such problem"
        + _suggestion(reference, names("problems"))
        + "; give a file, MODEL@CLUSTER, or a name that 'nest-opt list problems' shows",
    )


def _looks_like_path(reference: str) -> bool:
    return reference.endswith((".json", ".csv")) or "/" in reference or os.path.exists(reference)


def _find(family: Family, reference: str, folder: Path) -> Path:
    """The file of a shipped name, or a file relative to the one that mentions it."""
    if reference in names(family):
        return instances_folder() / family / f"{reference}.json"
    path = folder / reference
    if reference and (_looks_like_path(reference) or os.path.exists(path)):
        return path
    raise InputError(
        reference or "(nothing)",
        f"no shipped {family[:-1]} has this name"
        + _suggestion(reference, names(family))
        + f"; give a file or one of: {', '.join(names(family)) or '(none)'}",
    )


#: A published config.json has one of these; one without ``model_type`` is refused with the reason.
_CONFIG_FIELDS = frozenset({"model_type", "architectures", "hidden_size", "text_config"})


def _read_model(reference: str, folder: Path) -> Any:
    path = _find("models", reference, folder)
    if path.suffix == ".csv":
        from nest_opt.estimate.layer_csv import read_layers

        return read_layers(path)
    data = read_json(path)
    if isinstance(data, dict) and "kind" not in data and not _CONFIG_FIELDS.isdisjoint(data):
        # A published config.json as it stands.
        from nest_opt.estimate.config import language_config

        _, inner = language_config(data)
        longest = inner.get("max_position_embeddings", inner.get("n_positions", 4096))
        sequence = min(4096, longest) if isinstance(longest, int) and longest > 0 else 4096
        name = Path(reference).parent.name if Path(reference).stem == "config" else ""
        data = {
            "kind": "config",
            "name": name or Path(reference).stem,
            "sequence_length": sequence,
            "config": data,
        }
    return _completed(data, path.parent, reference, "") if isinstance(data, dict) else data


def _read_cluster(reference: str, folder: Path) -> Any:
    path = _find("clusters", reference, folder)
    data = read_json(path)
    return _completed(data, path.parent, reference, "") if isinstance(data, dict) else data


def _read_device(reference: str, folder: Path) -> Any:
    return read_json(_find("devices", reference, folder))


def _read_network(reference: str, folder: Path) -> Any:
    from nest_opt.network_files import read_network

    path = folder / reference
    return _measured(read_network(path), path.parent, reference, "")


def _read_matrix(reference: str, folder: Path) -> Any:
    return read_numbers(folder / reference)


def _read_profile(reference: str, folder: Path) -> Any:
    from nest_opt.estimate.profile import read_profile

    return read_profile(folder / reference)


def _with_field(data: Any, path: Sequence[str], value: Any, whole: str) -> Any:
    if not path:
        return value
    if isinstance(data, list):
        if not path[0].isdigit() or int(path[0]) >= len(data):
            message = f"has {len(data)} entries; {path[0]!r} is none of them"
            raise InputError("override", [Complaint(whole, message)])
        index = int(path[0])
        return [
            _with_field(item, path[1:], value, whole) if i == index else item
            for i, item in enumerate(data)
        ]
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise InputError("override", [Complaint(whole, "leads into a value that has no fields")])
    return {**data, path[0]: _with_field(data.get(path[0]), path[1:], value, whole)}


def _suggestion(word: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
