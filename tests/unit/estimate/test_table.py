"""The layer table of explicit models: order, cuts, scaling, defaults."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.estimate.table import LayerTable, table_of_layers
from nest_opt.plan import Template
from nest_opt.problem import LayersModel

ONE = Template()
TWO = Template(tensor=2)


def layer(name: str, output: Any = 0, *, inputs: list[str] | None = None, **fields: Any) -> Any:
    costs = {"forward_seconds": 1.0, "backward_seconds": 2.0, "output_bytes": output}
    costs |= {k: fields.pop(k) for k in list(fields) if k not in ("count", "costs")}
    row: dict[str, Any] = {"name": name, "costs": [costs], **fields}
    if inputs is not None:
        row["inputs"] = inputs
    return row


def model_of(*layers: Any, **fields: Any) -> LayersModel:
    data = {"kind": "layers", "name": "m", "layers": layers, **fields}
    # Python lists are not tuples to a strict model; go through JSON as files do.
    from nest_opt.files import canonical_json

    return LayersModel.model_validate_json(canonical_json(data))


def table_of(
    model: LayersModel,
    templates: tuple[Template, ...] = (ONE,),
    microbatches: tuple[int, ...] = (1,),
) -> LayerTable:
    return table_of_layers(model, templates, microbatches)


# --- order ----------------------------------------------------------------------------------------


def test_a_chain_keeps_its_order_and_hands_each_output_to_the_next() -> None:
    table = table_of(model_of(layer("a", 5), layer("b", 7), layer("c", 9)))
    assert table.names == ("a", "b", "c")
    assert table.consumers == (1, 2, 2)
    assert table.cut_bytes(ONE, 1) == (0, 5, 7)


def test_layers_run_in_topological_order_with_costs_moved_along() -> None:
    model = model_of(
        layer("late", 1, inputs=["early"], weight_bytes=10),
        layer("early", 2, inputs=[], weight_bytes=20),
    )
    table = table_of(model)
    assert table.names == ("early", "late")
    assert [c.weight_bytes for c in table.costs[ONE, 1]] == [20, 10]
    assert table.consumers == (1, 1)


def test_among_free_layers_the_listed_order_decides() -> None:
    model = model_of(
        layer("x", inputs=[]),
        layer("right", inputs=["x"]),
        layer("left", inputs=["x"]),
        layer("join", inputs=["left", "right"]),
    )
    assert table_of(model).names == ("x", "right", "left", "join")


# --- cuts -----------------------------------------------------------------------------------------


def test_an_output_needed_twice_is_counted_once_per_cut() -> None:
    model = model_of(
        layer("a", 5), layer("b", 7), layer("c", 11), layer("d", 0, inputs=["a", "c", "b"])
    )
    table = table_of(model)
    assert table.consumers == (3, 3, 3, 3)
    # before b: a; before c: a and b; before d: a, b, c, each once
    assert table.cut_bytes(ONE, 1) == (0, 5, 12, 23)


def test_an_output_nobody_needs_crosses_no_cut() -> None:
    model = model_of(layer("a", 5), layer("aside", 100, inputs=["a"]), layer("b", 3, inputs=["a"]))
    table = table_of(model)
    assert table.consumers == (2, 1, 2)
    assert table.cut_bytes(ONE, 1) == (0, 5, 5)


def test_cuts_scale_with_the_microbatch() -> None:
    table = table_of(model_of(layer("a", 5), layer("b")), microbatches=(1, 4))
    assert table.cut_bytes(ONE, 4) == (0, 20)


def test_cuts_are_those_of_the_template() -> None:
    def two(name: str, one_bytes: int, two_bytes: int) -> Any:
        common = {"forward_seconds": 1, "backward_seconds": 1}
        return {
            "name": name,
            "costs": [
                {**common, "output_bytes": one_bytes},
                {**common, "template": {"tensor": 2}, "output_bytes": two_bytes},
            ],
        }

    table = table_of(model_of(two("a", 8, 4), two("b", 0, 0)), (ONE, TWO))
    assert table.cut_bytes(ONE, 1) == (0, 8)
    assert table.cut_bytes(TWO, 1) == (0, 4)


# --- repeated layers ------------------------------------------------------------------------------


def test_given_cuts_stand_in_for_the_outputs() -> None:
    # Before each copy of a repeated layer; the number before the very first layer has no effect.
    table = table_of(
        model_of(
            layer("a", cut_bytes=99), layer("b", count=2, cut_bytes=5), layer("c", cut_bytes=7)
        ),
        microbatches=(1, 2),
    )
    assert table.cut_bytes(ONE, 1) == (0, 5, 5, 7)
    assert table.cut_bytes(ONE, 2) == (0, 10, 10, 14)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([layer("a", cut_bytes=1), layer("b")], "layer 'a' gives cut_bytes and layer 'b' does not"),
        ([layer("a", 3, cut_bytes=1), layer("b", cut_bytes=1)], "output_bytes besides cut_bytes"),
    ],
)
def test_cuts_are_given_for_all_layers_and_without_outputs(layers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model_of(*layers)


def test_a_count_expands_into_a_chain_of_one_shared_object() -> None:
    table = table_of(model_of(layer("in", 1), layer("block", 3, count=3), layer("out")))
    assert table.names == ("in", "block.0", "block.1", "block.2", "out")
    assert table.consumers == (1, 2, 3, 4, 4)
    costs = table.costs[ONE, 1]
    assert costs[1] is costs[2] is costs[3]
    assert table.cut_bytes(ONE, 1) == (0, 1, 3, 3, 3)


def test_an_input_naming_a_repeated_layer_means_its_last_copy() -> None:
    model = model_of(
        layer("block", 3, count=2), layer("mid", 5), layer("out", 0, inputs=["block", "mid"])
    )
    table = table_of(model)
    assert table.names == ("block.0", "block.1", "mid", "out")
    assert table.consumers == (1, 3, 3, 3)
    assert table.cut_bytes(ONE, 1) == (0, 3, 3, 8)


def test_an_input_of_a_repeated_layer_goes_to_its_first_copy() -> None:
    model = model_of(layer("in", 7), layer("mid", 1), layer("block", 3, inputs=["in"], count=2))
    assert table_of(model).consumers == (2, 1, 3, 3)


# --- quantities -----------------------------------------------------------------------------------


def test_per_sequence_quantities_scale_and_weights_do_not() -> None:
    call = {"kind": "all_reduce", "axis": "tensor", "pass": "backward", "bytes": 6, "count": 2}
    model = model_of(
        layer(
            "a",
            4,
            weight_bytes=10,
            expert_weight_bytes=11,
            recompute_seconds=0.7,
            selective_recompute_seconds=0.3,
            activation_bytes=100,
            selective_activation_bytes=60,
            checkpoint_bytes=5,
            attention_core_bytes=30,
            collectives=[call],
        )
    )
    (cost,) = table_of(model, microbatches=(3,)).costs[ONE, 3]
    assert (cost.forward, cost.backward) == (3, 6)
    assert cost.recompute == Fraction(21, 10)  # 0.7 as written, not its nearest binary float
    assert cost.recompute_selective == Fraction(9, 10)
    assert (cost.weight_bytes, cost.expert_weight_bytes) == (10, 11)
    assert (cost.activation_bytes, cost.selective_bytes, cost.checkpoint_bytes) == (300, 180, 15)
    assert (cost.attention_core_bytes, cost.output_bytes) == (90, 12)
    (made,) = cost.calls
    assert (made.kind, made.axis, made.direction) == ("all_reduce", "tensor", "backward")
    assert (made.bytes, made.count) == (18, 2)


def test_what_is_left_out_gets_its_default() -> None:
    (cost,) = table_of(
        model_of(layer("a", activation_bytes=100, attention_core_bytes=40)), microbatches=(2,)
    ).costs[ONE, 2]
    assert cost.recompute == cost.forward == 2
    assert cost.recompute_selective == 0
    assert cost.selective_bytes == 120  # activations less the attention core
    assert cost.weight_bytes == cost.expert_weight_bytes == cost.checkpoint_bytes == 0
    assert cost.calls == ()


def test_selective_bytes_are_never_negative() -> None:
    (cost,) = table_of(model_of(layer("a", activation_bytes=1, attention_core_bytes=3))).costs[
        ONE, 1
    ]
    assert cost.selective_bytes == 0


def test_a_zero_that_is_written_is_not_a_default() -> None:
    (cost,) = table_of(
        model_of(layer("a", recompute_seconds=0, activation_bytes=9, selective_activation_bytes=0))
    ).costs[ONE, 1]
    assert (cost.recompute, cost.selective_bytes) == (0, 0)


def test_quantities_by_microbatch_are_taken_as_they_are() -> None:
    model = model_of(layer("a", activation_bytes={"1": 10, "4": 33}))
    table = table_of(model, microbatches=(1, 4))
    assert [table.costs[ONE, b][0].activation_bytes for b in (1, 4)] == [10, 33]


def test_every_missing_microbatch_is_named_with_its_path() -> None:
    call = {"kind": "all_gather", "axis": "tensor", "pass": "forward", "bytes": {"1": 5}}
    model = model_of(layer("a"), layer("b", {"1": 2}, collectives=[call]))
    with pytest.raises(InputError) as caught:
        table_of(model, microbatches=(1, 2))
    fields = [c.field for c in caught.value.complaints]
    assert fields == [
        "model.layers[1].costs[0].output_bytes",
        "model.layers[1].costs[0].collectives[0].bytes",
    ]
    assert "no entry for microbatch 2" in str(caught.value)


# --- templates and ties ---------------------------------------------------------------------------


def test_templates_without_costs_are_skipped_with_a_reason() -> None:
    table = table_of(model_of(layer("a"), layer("b")), (ONE, TWO))
    assert set(table.costs) == {(ONE, 1)}
    assert [t for t, _ in table.skipped] == [TWO]
    assert "no costs" in table.skipped[0][1]


def test_tied_bytes_are_given_for_every_usable_template() -> None:
    plain = table_of(model_of(layer("a"), layer("b")))
    assert plain.tied_bytes == {ONE: 0}
    tied = table_of(
        model_of(
            layer("a", weight_bytes=9),
            layer("b", weight_bytes=8),
            tied_weights=[{"weight_bytes": 8}],
        )
    )
    assert tied.tied_bytes == {ONE: 8}


def test_the_table_is_the_same_every_time() -> None:
    model = model_of(layer("a", 5, count=2), layer("b", 7))
    assert table_of(model, microbatches=(1, 2)) == table_of(model, microbatches=(1, 2))
