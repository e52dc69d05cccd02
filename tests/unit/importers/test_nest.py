"""The reader of the NEST artifact's input: what it makes of it, and what it refuses."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from nest_opt import InputError, compile_problem, load_problem
from nest_opt.cli import main
from nest_opt.importers.nest import import_nest, problem_of_input


def node(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": number,
        "parameterSize": 4.0,
        "activationSize": 3.0,
        "optimalLatencyFw": 1.0,
        "optimalLatencyBw": 2.0,
        "isTensorParallelized": False,
        **fields,
    }


def edge(source: int, dest: int, size: float = 10.0) -> dict[str, Any]:
    return {"sourceId": source, "destId": dest, "communicationCost": size}


def example() -> dict[str, Any]:
    """Layers 7 -> 3 -> 5, and 7 -> 5 besides, on two nodes of two devices."""
    return {
        "ep_degree": 1,
        "sp_enabled": False,
        "cp_degree": 1,
        "maxMemoryPerDevice": 1000.0,
        "maxDevices": 4,
        "bandwidth": 1e9,
        "bws": [100.0, 10.0],
        "latency_per_level": [0.5, 0.25],
        "devices_per_level": [2, 2],
        "frequency": 1.0,
        "mbsInBatch": 6,
        "nodes": {"1": [node(5), node(3), node(7)], "2": [node(7), node(5), node(3)]},
        "edges": {
            "1": [edge(7, 3, 10.0), edge(3, 5, 20.0), edge(7, 5, 5.0)],
            "2": [edge(7, 3, 10.0), edge(3, 5, 20.0), edge(7, 5, 5.0)],
        },
        "activationRecomputation": False,
        "optimizerAlgorithm": "SGD",
        "baselines": {},
    }


def imported(data: Any, **options: Any) -> dict[str, Any]:
    return problem_of_input(data, "input", name="imported", **options)


def refusal(data: Any) -> str:
    with pytest.raises(InputError) as caught:
        imported(data)
    return str(caught.value)


def test_layers_run_in_topological_order_and_cuts_are_what_enters_the_next_layer() -> None:
    problem = load_problem(imported(example()))
    compiled = compile_problem(problem)
    assert compiled.layer_names == ("layer.7", "layer.3", "layer.5")
    table = compiled.tables[compiled.templates[0], 1]
    # 7 -> 3; then 3 -> 5 and 7 -> 5. The edge 7 -> 5 is not charged to a cut before 3.
    assert table.cut_bytes == (0, 10, 25)


def test_whole_numbers_may_be_written_with_a_point() -> None:
    # The artifact's script divides 4096 sequences by the microbatch and writes 4096.0.
    data = example() | {"mbsInBatch": 6.0, "maxDevices": 4.0, "devices_per_level": [2.0, 2]}
    data["nodes"]["1"][0]["id"] = 5.0
    data["edges"]["1"][0]["destId"] = 3.0
    assert imported(data) == imported(example())


def test_an_imported_problem_prices_by_named_options() -> None:
    data = imported(example(), synchronisation="slowest_stage")
    problem = load_problem(data)
    assert problem.training.all_reduce == "tree"
    assert problem.training.cost_model.model_dump(exclude={"exposed"}) == {
        "synchronisation": "slowest_stage",
        "transfer": "up_and_down",
        "transfer_link": "first_devices",
        "recomputation": "backward_again",
        "in_flight": "stages_behind",
    }
    assert problem.search.recomputation == ("none",)
    again = imported(example() | {"activationRecomputation": True})
    assert load_problem(again).search.recomputation == ("stage",)


def test_adam_holds_moments_and_a_copy_of_twice_the_width() -> None:
    # Weights and gradients, and three times twice the bytes of the weights: eight in all.
    adam = load_problem(imported(example() | {"optimizerAlgorithm": "Adam"}))
    state = adam.training.bytes_per_weight
    assert (state.weights + state.gradients + state.optimizer) / state.weights == 8


def test_expert_and_context_shards_have_weights_of_their_own() -> None:
    data = example() | {"ep_degree": 2, "maxDevices": 8, "devices_per_level": [2, 4]}
    problem = load_problem(imported(data))
    # Two shards work on two sequences at a time, so that m = ceil(6 / d) as in the artifact.
    assert problem.training.global_batch == 12
    compiled = compile_problem(problem)
    assert [t.expert for t in compiled.templates] == [2, 2]
    assert compiled.microbatches(1, 4, 2) == 2
    assert all(
        not layer.dense.weights for layer in compiled.tables[compiled.templates[0], 1].layers
    )
    both = load_problem(imported(data | {"cp_degree": 2}))
    assert both.search.expert == (4,)


def test_memory_without_limit_is_cut_to_what_a_device_can_be() -> None:
    problem = load_problem(imported(example() | {"maxMemoryPerDevice": 1e30}))
    assert problem.cluster.device.memory_bytes == 2**60


def test_a_stage_that_just_fits_is_not_rounded_out() -> None:
    # 3 layers of 2 * 5 GB, in bytes: exactly 30 GB, no more than which a device has.
    data = example() | {"maxMemoryPerDevice": 30e9, "nodes": {}, "edges": {"1": []}}
    data["nodes"]["1"] = [node(i, parameterSize=5e9, activationSize=0.0) for i in (3, 5, 7)]
    problem = load_problem(imported(data))
    assert problem.units.quantum_bytes == 5 * 10**9
    assert compile_problem(problem).memory_quanta == 6
    # By the default unit, no power of two, the three would not fit on one device.
    rounded = compile_problem(load_problem(imported(data), {"units": {}}))
    layers = rounded.tables[rounded.templates[0], 1].layers
    held = sum(2 * rounded.quanta(layer.dense.weights) for layer in layers)
    assert held > rounded.memory_quanta


@pytest.mark.parametrize("size", [2.5, 5e9 + 1])
def test_sizes_without_a_coarse_common_unit_leave_the_default(size: float) -> None:
    data = example() | {"maxMemoryPerDevice": 30e9}
    data["nodes"]["1"][0] = node(5, parameterSize=size)
    assert imported(data)["units"] == {}


def chain() -> dict[str, Any]:
    """The layers in a chain, and nothing that the conventions do not cover."""
    joined = [edge(7, 3), edge(3, 5)]
    return example() | {"latency_per_level": [0.25, 0.5], "edges": {"1": joined, "2": joined}}


def test_nothing_departs_from_the_program_in_a_plain_input() -> None:
    assert imported(chain())["description"] == ""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (chain() | {"latency_per_level": [0.5, 0.25]}, "latency_per_level falls"),
        (chain() | {"edges": example()["edges"]}, "several edges enter"),
        (chain() | {"nodes": {"1": [node(i, parameterSize=0.0) for i in (7, 3, 5)]}}, "no others"),
        (chain() | {"nodes": {"1": [node(i, parameterSize=0.5) for i in (7, 3, 5)]}}, "of a byte"),
        # 2 * 4 + 3 bytes; with Adam 8 * 4 + 3.
        (chain() | {"maxMemoryPerDevice": 10.0}, "degree 1, 2 the last layer does not fit"),
        (
            chain() | {"maxMemoryPerDevice": 34.0, "optimizerAlgorithm": "Adam"},
            "degree 1, 2 the last layer does not fit",
        ),
    ],
)
def test_what_departs_from_the_program_is_said(data: dict[str, Any], said: str) -> None:
    data["edges"] = {degree: data["edges"][degree] for degree in data["nodes"]}
    description = imported(data)["description"]
    assert said in description and description.count(".") == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"maxMemoryPerDevice": 11.0},
        {"maxMemoryPerDevice": 35.0, "optimizerAlgorithm": "Adam"},
        # Activations alone fill the device, and the program finds nothing either.
        {"maxMemoryPerDevice": 3.0},
    ],
)
def test_where_nothing_could_be_spread_nothing_is_said_of_it(fields: dict[str, Any]) -> None:
    assert imported(chain() | fields)["description"] == ""


def changed(*path: Any, to: Any) -> dict[str, Any]:
    data = deepcopy(example())
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no JSON object"),
        ({}, "maxDevices: is missing"),
        (changed("nodes", "1", 0, "parameterSize", to=-1.0), "nodes.1[0].parameterSize"),
        (changed("nodes", "1", 0, "parameterSize", to="4"), "nodes.1[0].parameterSize"),
        (changed("nodes", "1", 0, "id", to=3), "nodes.1: lists layer 3 twice"),
        (changed("nodes", "2", 0, "id", to=8), "nodes.2: has other layers than nodes.1"),
        (changed("nodes", "zwei", to=[node(1)]), "nodes.zwei"),
        (changed("nodes", to={}), "nodes"),
        (changed("edges", to={"1": []}), "edges: has tensor degrees 1, but nodes has 1, 2"),
        (changed("edges", "1", 0, "destId", to=9), "edges.1[0]: joins layer 9, which is none"),
        (changed("edges", "2", 0, to=edge(3, 5)), "edges.2: lists an edge twice"),
        (changed("edges", "2", to=[edge(7, 3)]), "edges.2: has other edges than edges.1"),
        (changed("maxDevices", to=5), "maxDevices: is not the 4 devices"),
        (changed("bws", to=[1.0]), "latency_per_level: has 2 entries, but bws has 1"),
        (changed("bws", to=[0.0, 1.0]), "bws[0]"),
        (changed("optimizerAlgorithm", to="Lion"), "optimizerAlgorithm"),
        (changed("mbsInBatch", to=0), "mbsInBatch"),
        (changed("mbsInBatch", to=4096 / 3), "mbsInBatch: has a fraction"),
        (changed("mbsInBatch", to=float("inf")), "mbsInBatch: has a fraction"),
        (changed("ep_degree", to=2.5), "ep_degree"),
        (changed("ep_degree", to=10**7), "ep_degree"),
        (example() | {"ep_degree": 10**4, "cp_degree": 10**3}, "mbsInBatch: times ep_degree"),
        (
            example() | {"nodes": {"1": [node(i) for i in range(4097)]}, "edges": {"1": []}},
            "nodes.1: has 4097 layers",
        ),
    ],
)
def test_refused_with_its_place(data: Any, message: str) -> None:
    assert message in refusal(data)


def test_a_cycle_is_named() -> None:
    data = example()
    for edges in data["edges"].values():
        edges.append(edge(5, 7))
    assert "edges: form a cycle: " in refusal(data)


def test_everything_wrong_is_said_at_once() -> None:
    text = refusal(example() | {"mbsInBatch": 0, "bws": [], "optimizerAlgorithm": 3})
    assert "mbsInBatch" in text and "bws" in text and "optimizerAlgorithm" in text


def test_the_command_writes_a_problem_that_solves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "placement.json", tmp_path / "problem.json"
    source.write_text(json.dumps(example()))
    assert main(["import", "nest", str(source), "--out", str(target)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "priced as the artifact does: all_reduce tree" in said
    assert "Otherwise than the artifact: latency_per_level falls" in said
    assert json.loads(target.read_text()) == import_nest(source)
    assert main(["solve", str(target), "--json"]) == 0
    capsys.readouterr()
    assert main(["import", "nest", str(source), "--quiet"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["name"] == "placement" and printed.err == ""


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"nodes": NaN}', "\x80"])
def test_the_command_refuses_what_is_no_input(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "bad.json", tmp_path / "problem.json"
    source.write_bytes(text.encode("latin-1"))
    target.write_text("as it was")
    assert main(["import", "nest", str(source), "--out", str(target)]) == 2
    assert "bad.json" in capsys.readouterr().err
    assert target.read_text() == "as it was"
    assert main(["import", "nest", str(tmp_path / "none.json")]) == 2
    assert main(["import", "nest", str(source), "--out", str(source)]) == 2
