"""Names, files and overrides."""

import json
from pathlib import Path
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.library import (
    FAMILIES,
    default_training,
    instances_folder,
    load_cluster,
    load_model,
    load_problem,
    names,
)
from nest_opt.problem import ConfigModel


def write(path: Path, data: Any) -> str:
    path.write_text(json.dumps(data))
    return str(path)


def refusal(reference: Any, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        load_problem(reference, overrides)
    return str(caught.value)


def test_what_is_shipped() -> None:
    assert {"llama2-7b", "llama3-70b", "gpt3-175b"} <= set(names("models"))
    assert {"a100-80gb", "h100-80gb"} <= set(names("devices"))
    for count in (64, 128, 256, 512, 1024):
        assert {f"h100-{count}", f"a100-{count}"} <= set(names("clusters"))
    assert {f"worked-example-{m}" for m in (1000, 160, 110)} <= set(names("problems"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_where_it_comes_from(family: str) -> None:
    assert (instances_folder() / family / "README.md").is_file()


@pytest.mark.parametrize("name", names("models"))
def test_every_model_loads(name: str) -> None:
    assert load_model(name).name == name
    assert load_model(name).source


@pytest.mark.parametrize("name", names("clusters"))
def test_every_cluster_loads(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert cluster.source
    assert name.endswith(f"-{cluster.devices}")


@pytest.mark.parametrize("name", names("problems"))
def test_every_problem_loads(name: str) -> None:
    assert load_problem(name).name == name


def test_model_at_cluster() -> None:
    problem = load_problem("llama2-7b@h100-64")
    assert problem.name == "llama2-7b@h100-64"
    assert problem.training.global_batch == 512
    assert problem.cluster.devices == 64
    assert problem.model.sequence_length == 4096
    assert load_problem("gpt3-175b@h100-128").model.sequence_length == 2048


def test_h100_bandwidths_are_per_device_and_direction() -> None:
    levels = load_cluster("h100-64").levels
    assert [level.bandwidth_bytes_per_second for level in levels] == [450e9, 50e9]
    assert levels[0].size == 8


@pytest.mark.parametrize(
    ("devices", "batch"), [(1, 512), (64, 512), (65, 1024), (128, 1024), (129, 2048), (1024, 2048)]
)
def test_default_batch(devices: int, batch: int) -> None:
    cluster = load_cluster("h100-64")
    resized = cluster.model_copy(update={"devices": devices})
    assert default_training(resized) == {"global_batch": batch}
    flat = resized.model_copy(update={"levels": ()})
    assert default_training(flat) == {"global_batch": batch, "all_reduce": "ring"}


def test_a_file_that_mentions_names_and_files(tmp_path: Path) -> None:
    cluster = {
        "name": "mine",
        "device": "gpu.json",
        "devices": 2,
        "levels": [{"size": 2, "bandwidth_bytes_per_second": 1e9}],
    }
    write(tmp_path / "mine.json", cluster)
    write(tmp_path / "gpu.json", {"name": "gpu", "memory_bytes": 1000})
    problem = {
        "name": "p",
        "model": "llama2-7b",
        "cluster": "mine.json",
        "training": {"global_batch": 2},
    }
    loaded = load_problem(write(tmp_path / "p.json", problem))
    assert loaded.cluster.device.memory_bytes == 1000
    assert loaded.model.name == "llama2-7b"


def test_files_on_both_sides_of_the_at(tmp_path: Path) -> None:
    path = write(tmp_path / "c.json", load_cluster("h100-64").model_dump(mode="json"))
    assert load_problem(f"llama2-7b@{path}").cluster == load_cluster("h100-64")


def test_a_published_configuration_as_it_stands(tmp_path: Path) -> None:
    shipped = load_model("llama2-7b")
    assert isinstance(shipped, ConfigModel)
    folder = tmp_path / "my-llama"
    folder.mkdir()
    path = write(folder / "config.json", shipped.config)
    model = load_model(path)
    assert isinstance(model, ConfigModel)
    assert (model.name, model.sequence_length) == ("my-llama", 4096)
    assert load_problem(f"{path}@h100-64").model == model


def test_misspelt_names() -> None:
    assert "did you mean worked-example-160" in refusal("worked-exmple-160")
    assert "did you mean llama2-7b" in refusal("llama2-7@h100-64")
    assert "did you mean h100-64" in refusal("llama2-7b@h10-64")
    assert "is a model; name its cluster as well" in refusal("llama2-7b")


def test_a_reference_that_cannot_be_followed_names_file_and_field(tmp_path: Path) -> None:
    data = load_problem("worked-example-160").to_dict()
    for part, reference, reason in (
        ("model", "llama9", "no shipped model"),
        ("model", "none.json", "no such file"),
        ("cluster", "h101", "no shipped cluster"),
        ("cluster", "x" * 5000, "no shipped cluster"),
        ("model", "a\0b.json", "cannot be read"),
    ):
        text = refusal(write(tmp_path / "p.json", {**data, part: reference}))
        assert text.startswith(f"{tmp_path / 'p.json'}: ")
        assert f"  {part}: " in text
        assert reason in text
    data["cluster"]["device"] = "h99"
    text = refusal(write(tmp_path / "p.json", data))
    assert "  cluster.device: h99: no shipped device" in text


def test_overrides() -> None:
    problem = load_problem(
        "worked-example-160",
        {
            "search.zero": [1, 2],
            "training.cost_model.exposed.transfers": 0.5,
            "model.layers.0.name": "first",
            "cluster.levels.1.latency_seconds": 1,
        },
    )
    assert problem.search.zero == (1, 2)
    assert problem.training.cost_model.exposed.transfers == 0.5
    assert problem.model.layers[0].name == "first"  # type: ignore[union-attr]
    assert problem.cluster.levels[1].latency_seconds == 1


def test_overrides_may_be_names() -> None:
    assert load_problem("llama2-7b@h100-64", {"cluster": "h100-128"}).cluster.devices == 128
    problem = load_problem("llama2-7b@h100-64", {"cluster.device": "a100-80gb"})
    assert problem.cluster.device.name.lower().startswith("a100")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("search.zeros", [1], "search.zeros: unknown field"),
        ("search.zero", 1, "search.zero: Input should be a valid array"),
        ("model.layers.9.name", "x", "has 4 entries; '9' is none of them"),
        ("name.first", 1, "leads into a value that has no fields"),
        ("cluster", "h101", "cluster: h101: no shipped cluster"),
    ],
)
def test_bad_overrides(path: str, value: Any, message: str) -> None:
    assert message in refusal("worked-example-160", {path: value})


@pytest.mark.parametrize("data", [{}, {"name": 3}, {"name": "", "model": 1}, {"format": "x"}])
def test_objects_that_are_no_problem(data: dict[str, Any]) -> None:
    assert "training: is missing" in refusal(data)
