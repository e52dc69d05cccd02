"""The file format: what is accepted, what is refused, and how the refusal reads."""

from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.library import load_problem
from nest_opt.plan import Template
from nest_opt.problem import LayersModel, Problem, Search, exact


def example() -> dict[str, Any]:
    return load_problem("worked-example-160").to_dict()


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        load_problem(data)
    return str(caught.value)


def layers(data: dict[str, Any]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = data["model"]["layers"]
    return result


def model(data: dict[str, Any]) -> LayersModel:
    found = load_problem(data).model
    assert isinstance(found, LayersModel)
    return found


def test_round_trip() -> None:
    problem = load_problem("worked-example-160")
    assert load_problem(problem.to_dict()) == problem


def test_every_mistake_is_listed_with_its_path() -> None:
    data = example()
    costs = layers(data)[0]["costs"][0]
    costs["forward_seconds"] = "fast"
    costs["output_bytes"] = -1
    costs["colour"] = "red"
    data["search"]["stages"] = [0]
    data["search"]["data_parallel"] = "evn"
    data["training"]["optimizer"] = {"weights": 2}
    del data["cluster"]["device"]
    text = refusal(data)
    for line in (
        "model.layers[0].costs[0].forward_seconds: Input should be a valid number",
        "model.layers[0].costs[0].output_bytes: Input should be greater than or equal to 0",
        "model.layers[0].costs[0].colour: unknown field",
        "search.stages[0]: Input should be greater than or equal to 1",
        "search.data_parallel: Input should be 'any' or 'even'",
        "training.optimizer.gradients: is missing",
        "training.optimizer.optimizer: is missing",
        "cluster.device: is missing",
    ):
        assert line in text
    assert len(text.splitlines()) == 9


def test_a_quantity_given_by_microbatch() -> None:
    data = example()
    costs = layers(data)[0]["costs"][0]
    costs["forward_seconds"] = {"1": 0.5, "2": 0.75}
    assert model(data).layers[0].costs[0].forward_seconds == {"1": 0.5, "2": 0.75}
    costs["forward_seconds"] = {"0": 0.5}
    assert "model.layers[0].costs[0].forward_seconds.0: String should match" in refusal(data)
    costs["forward_seconds"] = {"1": -0.5}
    assert "forward_seconds.1: Input should be greater than or equal to 0" in refusal(data)
    costs["forward_seconds"] = {}
    assert "model.layers[0].costs[0].forward_seconds: " in refusal(data)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (None, "model.kind: is missing"),
        ("tensor", "model.kind: must be one of 'layers', 'config' (found 'tensor')"),
    ],
)
def test_unknown_kind_of_model(kind: str | None, message: str) -> None:
    data = example()
    del data["model"]["kind"]
    if kind:
        data["model"]["kind"] = kind
    assert message in refusal(data)


def test_fields_of_a_config_model_are_named_as_in_the_file() -> None:
    data = example()
    data["model"] = {"kind": "config", "name": "x", "sequence_length": 0, "config": {}}
    assert "model.sequence_length: " in refusal(data)


def test_level_sizes_must_multiply_up() -> None:
    data = example()
    data["cluster"]["devices"] = 6
    assert "2 * 2 = 4, but devices is 6" in refusal(data)


@pytest.mark.parametrize("field", ["microbatch", "tensor", "stages", "recomputation", "layouts"])
def test_lists_are_neither_empty_nor_repetitive(field: str) -> None:
    data = example()
    value = {"recomputation": "none", "layouts": "data-inner"}.get(field, 1)
    data["search"][field] = []
    assert f"search.{field}: must not be empty" in refusal(data)
    data["search"][field] = [value, value]
    assert f"search.{field}: list entries must be different" in refusal(data)


def test_layer_names_are_different() -> None:
    data = example()
    layers(data)[1]["name"] = "layer.0"
    assert "layer names must be different; repeated: layer.0" in refusal(data)


def test_cycle_is_shown() -> None:
    data = example()
    layers(data)[0]["inputs"] = ["layer.2"]
    text = refusal(data)
    assert "the layers form a cycle: " in text
    assert text.count("layer.0") >= 1
    assert "remove one input" in text
    layers(data)[0]["inputs"] = ["layer.0"]
    assert "cycle: layer.0 -> layer.0" in refusal(data)


def test_unknown_input() -> None:
    data = example()
    layers(data)[1]["inputs"] = ["layer.9"]
    assert "layer 'layer.1': unknown input 'layer.9'" in refusal(data)


def test_templates_are_the_same_in_every_layer() -> None:
    data = example()
    extra = deepcopy(layers(data)[0]["costs"][0])
    extra["template"] = {"tensor": 2}
    layers(data)[2]["costs"].append(extra)
    assert "layer 'layer.2' alone has costs for template t2" in refusal(data)
    data = example()
    layers(data)[0]["costs"].append(extra)
    assert "layer 'layer.1' lacks costs for template t2" in refusal(data)
    data = example()
    layers(data)[0]["costs"] *= 2
    assert "templates of one layer must be different" in refusal(data)


@pytest.mark.parametrize(
    ("tied", "message"),
    [
        ([{"weight_bytes": 4194305}], "the tied weight has 4.1943e+06 bytes at template t1"),
        ([{"weight_bytes": 1}, {"weight_bytes": 1}], "tied templates must be different"),
        ([{"template": {"tensor": 2}, "weight_bytes": 1}], "tied_weights lacks template t1"),
        ([{"weight_bytes": -1}], "model.tied_weights[0].weight_bytes: "),
    ],
)
def test_tied_weight_is_checked(tied: list[dict[str, Any]], message: str) -> None:
    data = example()
    data["model"]["tied_weights"] = tied
    assert message in refusal(data)


def test_tied_weight_as_large_as_the_layer_is_accepted() -> None:
    data = example()
    data["model"]["tied_weights"] = [{"weight_bytes": 4194304}]
    assert model(data).tied_weights[0].weight_bytes == 4194304


def test_tied_weight_needs_two_layers() -> None:
    data = example()
    data["model"]["layers"] = layers(data)[:1]
    data["model"]["tied_weights"] = [{"weight_bytes": 1}]
    assert "needs a first and a last layer" in refusal(data)


def test_too_many_layers() -> None:
    data = example()
    layers(data)[0]["count"] = 4096
    assert "4099 layers; at most 4096" in refusal(data)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1]])
def test_no_coercion(value: Any) -> None:
    data = example()
    data["training"]["global_batch"] = value
    assert "training.global_batch: Input should be a valid integer" in refusal(data)


def test_problems_are_immutable() -> None:
    problem = load_problem("worked-example-160")
    with pytest.raises(ValueError, match="frozen"):
        problem.name = "other"  # type: ignore[misc]


def test_execution_order_follows_inputs_then_the_list() -> None:
    data = example()
    a, b, c, d = layers(data)
    a["inputs"], b["inputs"], c["inputs"], d["inputs"] = ["layer.3"], ["layer.0"], [], []
    assert model(data).execution_order() == [2, 3, 0, 1]


def test_templates_in_the_order_of_the_tie_break() -> None:
    search = Search(tensor=(2, 1), context=(2, 1), sequence_parallel=(True, False))
    assert [t.label for t in search.templates()] == [
        "t1", "t1.c2", "t2", "t2s", "t2.c2", "t2s.c2"
    ]  # fmt: skip
    assert Search(tensor=(1, 2)).templates() == (
        Template(1),
        Template(2, sequence_parallel=True),
    )


def test_exact_is_the_decimal_of_the_file() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert exact(3) == 3
    assert exact(1e-30) == Fraction(1, 10**30)


def test_schema_is_exported() -> None:
    schema = Problem.model_json_schema(by_alias=True)
    assert set(schema["required"]) == {"name", "model", "cluster", "training"}


def test_recomputation_at_a_backward_pass_has_a_price_for_some_kinds_only() -> None:
    data = example()
    data["training"]["cost_model"] = {"recomputation": "backward_again"}
    text = refusal(data)
    assert "search.recomputation has layer" in text and "only none and stage" in text
    data["search"]["recomputation"] = ["none", "stage"]
    assert load_problem(data).training.cost_model.recomputation == "backward_again"
