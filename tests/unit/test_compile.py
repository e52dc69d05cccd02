"""Compilation, by hand: units, one rounding per primitive, the digest, the guard."""

import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest

from nest_opt.compile import Compiled, compile_problem
from nest_opt.errors import CompileError, InputError, OverflowGuardError
from nest_opt.library import load_problem
from nest_opt.network import GroupShape
from nest_opt.plan import Template

T1 = Template()
T2 = Template(2, sequence_parallel=True)


def problem_of(
    costs: dict[str, Any] | list[dict[str, Any]],
    *,
    layers: int = 2,
    units: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    search: dict[str, Any] | None = None,
    tied: int = 0,
    **cluster: Any,
) -> dict[str, Any]:
    """Equal layers on four devices: nodes of two, 1 ms and 1e9 bytes/s between them."""
    listed = costs if isinstance(costs, list) else [costs]
    listed = [{"forward_seconds": 0.5, "backward_seconds": 1.5} | c for c in listed]
    model = {
        "kind": "layers",
        "name": "m",
        "layers": [{"name": f"l{i}", "costs": listed} for i in range(layers)],
    }
    if tied:
        model["tied_weights"] = [{"weight_bytes": tied}]
    return {
        "name": "p",
        "model": model,
        "cluster": {
            "name": "c",
            "device": {"name": "d", "memory_bytes": cluster.get("memory", 100_000)},
            "devices": 4,
            "levels": [
                {"size": 2, "bandwidth_bytes_per_second": 4e9},
                {"size": 2, "bandwidth_bytes_per_second": 1e9, "latency_seconds": 0.001},
            ],
        },
        "training": {"global_batch": 8, "reserve_fraction": 0} | (training or {}),
        "search": {"microbatch": [1], "tensor": [1]} | (search or {}),
        "units": units or {},
    }


def compiled_of(costs: Any, **settings: Any) -> Compiled:
    return compile_problem(load_problem(problem_of(costs, **settings)))


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "tick"),
    [
        # forward + backward + full recomputation (= forward) of two layers: 5 s = 5e6 ticks of 1 us
        ({}, Fraction(1, 10**6)),
        ({"forward_seconds": 0.500001}, Fraction(1, 10**5)),
        ({"recompute_seconds": 0}, Fraction(1, 10**6)),
        ({"recompute_seconds": 0.500001}, Fraction(1, 10**5)),
        # the selective pass does not count
        ({"selective_recompute_seconds": 9}, Fraction(1, 10**6)),
        ({"forward_seconds": 0, "backward_seconds": 0}, Fraction(1, 10**12)),
        ({"forward_seconds": 0, "backward_seconds": 0.25}, Fraction(1, 10**7)),
        ({"forward_seconds": 5e11}, Fraction(10**6)),
    ],
)
def test_tick_is_the_smallest_power_of_ten(costs: dict[str, Any], tick: Fraction) -> None:
    assert compiled_of(costs).tick_seconds == tick


def test_tick_looks_at_the_worst_microbatch_and_template() -> None:
    assert compiled_of({}, search={"microbatch": [1, 2]}).tick_seconds == Fraction(1, 10**5)
    both = [{}, {"template": {"tensor": 2, "sequence_parallel": True}, "backward_seconds": 3}]
    assert compiled_of(both, search={"tensor": [1, 2]}).tick_seconds == Fraction(1, 10**5)
    assert compiled_of(both, search={"tensor": [1]}).tick_seconds == Fraction(1, 10**6)


def test_tick_counts_collectives_at_the_worst_class() -> None:
    # An all-reduce of two ranks between nodes: 2 * (1 ms + half of 0.5e9 B at 1e9 B/s) = 0.502 s.
    call = {"kind": "all_reduce", "axis": "tensor", "pass": "forward", "bytes": 0.5e9, "count": 1}
    costs = {
        "template": {"tensor": 2, "sequence_parallel": True},
        "forward_seconds": 0,
        "backward_seconds": 1.998,
        "collectives": [call],
    }
    search = {"tensor": [2]}
    assert compiled_of(costs, search=search).tick_seconds == Fraction(1, 10**6)
    costs["backward_seconds"] = 1.9980001
    assert compiled_of(costs, search=search).tick_seconds == Fraction(1, 10**5)
    hidden = {"cost_model": {"exposed": {"collectives": 0.5}}}
    assert compiled_of(costs, search=search, training=hidden).tick_seconds == Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("weights", "optimizer", "multiple"),
    [
        # All-reduce of four ranks between nodes, two layers: 2 * (3 ms + 3/4 * 2 W / 1e9) seconds;
        # at most 5e6 multiples of 1 us.
        (0, "zero16", 1),
        (1_000_000_000, "zero16", 1),  # 3.006 s
        (1_664_666_666, "zero16", 1),  # 4.99999... s
        (1_664_666_667, "zero16", 10),  # 5.000000001 s
        (1_664_666_666, "megatron18", 10),  # twice the gradients
        (10**12, "zero16", 1000),  # 3000.006 s
        (2 * 10**12, "zero16", 10**4),
    ],
)
def test_synchronisation_multiple(weights: int, optimizer: str, multiple: int) -> None:
    compiled = compiled_of({"weight_bytes": weights}, training={"optimizer": optimizer})
    assert compiled.tick_seconds == Fraction(1, 10**6)
    assert compiled.sync_multiple == multiple


def test_synchronisation_multiple_counts_experts_and_exposure() -> None:
    costs = {"expert_weight_bytes": 1_664_666_667}
    assert compiled_of(costs).sync_multiple == 10
    hidden = {"cost_model": {"exposed": {"synchronisation": 0.5}}}
    assert compiled_of(costs, training=hidden).sync_multiple == 1


@pytest.mark.parametrize(
    ("memory", "quantum", "quanta"),
    [
        (1, 1, 1),
        (100_000, 1, 100_000),
        (100_001, 2, 50_000),
        (200_001, 4, 50_000),
        (80 * 2**30, 2**20, 81_920),
    ],
)
def test_quantum_is_the_smallest_power_of_two(memory: int, quantum: int, quanta: int) -> None:
    compiled = compiled_of({}, memory=memory)
    assert (compiled.quantum_bytes, compiled.memory_quanta) == (quantum, quanta)


def test_reserve_is_taken_off_before_the_floor() -> None:
    compiled = compiled_of({}, memory=80 * 2**30, training={"reserve_fraction": 0.05})
    assert compiled.memory_quanta == 77_824  # 0.95 * 81,920 exactly
    assert compiled_of({}, memory=99, training={"reserve_fraction": 0.1}).memory_quanta == 89


def test_units_of_the_problem_win() -> None:
    units = {"tick_seconds": 0.25, "quantum_bytes": 3, "synchronisation_multiple_ticks": 7}
    compiled = compiled_of({}, units=units)
    assert compiled.tick_seconds == Fraction(1, 4)
    assert (compiled.quantum_bytes, compiled.memory_quanta, compiled.sync_multiple) == (3, 33333, 7)


# --- one rounding per primitive -------------------------------------------------------------------

MS = {"tick_seconds": 0.001, "quantum_bytes": 1000, "synchronisation_multiple_ticks": 1}


def test_layers_are_rounded_up_once() -> None:
    costs = {
        "forward_seconds": 0.0011,
        "backward_seconds": 0.002,
        "recompute_seconds": 0.0000001,
        "selective_recompute_seconds": 0.0015,
        "activation_bytes": 1500,
        "attention_core_bytes": 400,
        "checkpoint_bytes": 1000,
        "output_bytes": 1100,
        "weight_bytes": 3,
    }
    compiled = compiled_of(costs, units=MS, search={"microbatch": [1, 2]})
    one, two = (compiled.tables[T1, b].layers[0] for b in (1, 2))
    assert (one.forward, one.backward, one.recompute, one.recompute_selective) == (2, 2, 1, 2)
    assert (two.forward, two.backward, two.recompute, two.recompute_selective) == (3, 4, 1, 3)
    assert (one.activations, one.selective, one.checkpoint, one.attention_core) == (2, 2, 1, 1)
    assert (two.activations, two.selective, two.checkpoint, two.attention_core) == (3, 3, 2, 1)
    # 1100 B: 2 quanta; 0.000000275 s and 1 ms + 0.0000011 s: 1 and 2 ticks
    table = compiled.tables[T1, 1]
    assert table.cut_bytes == (0, 1100)
    assert table.cut_quanta == (0, 2)
    assert table.transfer_ticks == ((0, 1), (0, 2))
    # zero16: 2 + 2 + 12 bytes per weight, weights given in bytes
    assert (one.dense.weights, one.dense.gradients, one.dense.optimizer) == (3, 3, 18)


def test_a_decimal_is_not_the_nearest_binary_number() -> None:
    # 0.3 / 0.1 is 2.9999999999999996 in floating point, and 0.1 + 0.2 more than 0.3.
    costs = {"forward_seconds": 0.3, "backward_seconds": 0.7}
    compiled = compiled_of(costs, units=MS | {"tick_seconds": 0.1})
    layer = compiled.tables[T1, 1].layers[0]
    assert (layer.forward, layer.backward) == (3, 7)


def test_a_sharded_size_is_divided_first() -> None:
    compiled = compiled_of({}, units=MS)
    assert compiled.quanta(Fraction(5000), 2) == 3
    assert compiled.quanta(Fraction(1000), 3) == 1
    assert compiled.quanta(Fraction(0), 3) == 0


PAIR = GroupShape(2, 1, (1, 2))  # one device in each of two nodes


def test_a_call_is_rounded_by_itself() -> None:
    compiled = compiled_of({}, units=MS)
    # reduce-scatter: 1 ms + half of 0.2e6 B at 1e9 B/s = 1.1 ms, up to 2; all-reduce 2.2, up to 3
    size = Fraction(200_000)
    assert compiled.collective_ticks("reduce_scatter", size, PAIR) == 2
    assert compiled.collective_ticks("all_reduce", size, PAIR) == 3
    assert compiled.collective_ticks("all_reduce", Fraction(0), PAIR) == 0
    assert compiled.collective_ticks("all_reduce", size, GroupShape(1, 0, (1, 1))) == 0


def test_synchronisation_is_a_latency_and_shares() -> None:
    compiled = compiled_of({"weight_bytes": 800_000}, units=MS)
    state = compiled.tables[T1, 1].layers[0].dense
    # reduce-scatter and all-gather of one share are one price: 0.4 + 0.4 ms, up to 1
    assert [compiled.sync_share_ticks(z, state, PAIR) for z in range(4)] == [1, 1, 1, 0]
    assert [compiled.sync_latency_ticks(z, PAIR) for z in range(4)] == [2, 2, 1, 0]
    tens = compiled_of({"weight_bytes": 800_000}, units=MS | {"synchronisation_multiple_ticks": 10})
    assert tens.sync_share_ticks(0, state, PAIR) == 10
    assert tens.sync_latency_ticks(0, PAIR) == 10


def test_gradients_may_be_wider_than_weights() -> None:
    compiled = compiled_of(
        {"weight_bytes": 2_000_000}, units=MS, training={"optimizer": "megatron18"}
    )
    state = compiled.tables[T1, 1].layers[0].dense
    assert (state.weights, state.gradients, state.optimizer) == (2e6, 4e6, 12e6)
    # reduce-scatter of 4e6 B and all-gather of 2e6 B: 2 + 1 ms; all-reduce of 4e6 B: 4 ms
    assert [compiled.sync_share_ticks(z, state, PAIR) for z in range(4)] == [4, 3, 1, 0]


def test_tied_weight_counts_once_in_one_stage() -> None:
    compiled = compiled_of({"weight_bytes": 2500}, units=MS, tied=1500)
    table = compiled.tables[T1, 1]
    assert table.has_tied_weight
    assert table.dense_state(1, stages=1).weights == 1000
    assert table.dense_state(1, stages=2).weights == 2500
    assert table.dense_state(0, stages=1).weights == 2500
    # a ring of two: 2 * (1 ms + half of 1500 B at 1e9 B/s)
    assert compiled.tied_ring_ticks(table.tied, 1) == 3
    assert compiled.tied_ring_ticks(table.tied, 0) == 1


def test_cuts_hold_every_tensor_that_is_still_needed() -> None:
    data = problem_of({"output_bytes": 100}, layers=4, units=MS)
    data["model"]["layers"][3]["inputs"] = ["l2", "l0"]  # a skip connection over two layers
    compiled = compile_problem(load_problem(data))
    assert compiled.tables[T1, 1].cut_bytes == (0, 100, 200, 200)
    data["model"]["layers"][2]["inputs"] = ["l0"]  # l1 feeds nothing
    compiled = compile_problem(load_problem(data))
    assert compiled.tables[T1, 1].cut_bytes == (0, 100, 100, 200)


def test_repeated_layers_are_the_same_as_written_out() -> None:
    data = problem_of({"output_bytes": 100}, layers=3)
    short = problem_of({"output_bytes": 100}, layers=1)
    short["model"]["layers"][0]["count"] = 3
    long_, brief = (compile_problem(load_problem(d)) for d in (data, short))
    assert brief.layer_names == ("l0.0", "l0.1", "l0.2")
    assert brief.tables == long_.tables
    assert brief.tables[T1, 1].kind == (0, 0, 0)


def test_rounding_error_is_reported_in_units_of_the_reader() -> None:
    errors = compiled_of({}, units=MS).rounding_error()
    assert set(errors) == {"load_seconds", "synchronisation_seconds", "memory_bytes"}
    assert all(value > 0 for value in errors.values())


# --- templates ------------------------------------------------------------------------------------


def test_templates_without_costs_are_skipped_and_listed() -> None:
    compiled = compiled_of({}, search={"tensor": [1, 2]})
    assert compiled.templates == (T1,)
    assert [t for t, _ in compiled.skipped] == [T2]


def test_no_template_at_all() -> None:
    with pytest.raises(CompileError, match=r"no template .*t2s: .* change search.tensor"):
        compiled_of({}, search={"tensor": [2]})


def test_degrees_must_divide_the_model() -> None:
    compiled = compile_problem(load_problem("llama2-7b@h100-64", {"search.tensor": [1, 3]}))
    assert compiled.templates == (T1,)
    assert [t.tensor for t, _ in compiled.skipped] == [3]


def test_a_quantity_by_microbatch_must_have_each() -> None:
    costs = {"forward_seconds": {"1": 0.5}}
    with pytest.raises(InputError) as caught:
        compiled_of(costs, search={"microbatch": [1, 2]})
    assert "model.layers[0].costs[0].forward_seconds: has no entry for microbatch 2" in str(
        caught.value
    )


# --- digest ---------------------------------------------------------------------------------------


def digest(**overrides: Any) -> str:
    paths = {path.replace("__", "."): value for path, value in overrides.items()}
    return compile_problem(load_problem("worked-example-160", paths)).digest


def test_digest_is_the_same_in_every_process() -> None:
    code = (
        "from nest_opt import compile_problem, load_problem;"
        "print(compile_problem(load_problem('worked-example-160')).digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest()}
    assert digest().startswith("sha256:")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "another"),
        ("description", "words"),
        ("source", "words"),
        ("model.name", "another"),
        ("cluster.name", "another"),
        ("cluster.device.name", "another"),
        ("cluster.levels.0.name", "another"),
    ],
)
def test_words_do_not_change_the_digest(field: str, value: Any) -> None:
    assert digest(**{field: value}) == digest()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model.layers.0.name", "first"),
        ("model.layers.0.costs.0.forward_seconds", 0.011),
        ("model.layers.0.costs.0.backward_seconds", 0.021),
        ("model.layers.0.costs.0.recompute_seconds", 0.011),
        ("model.layers.0.costs.0.selective_recompute_seconds", 0.001),
        ("model.layers.0.costs.0.weight_bytes", 4194305),
        ("model.layers.0.costs.0.expert_weight_bytes", 1),
        ("model.layers.0.costs.0.activation_bytes", 20971521),
        ("model.layers.0.costs.0.selective_activation_bytes", 1),
        ("model.layers.0.costs.0.checkpoint_bytes", 3145729),
        ("model.layers.0.costs.0.attention_core_bytes", 1048577),
        ("model.layers.0.costs.0.output_bytes", 4194305),
        ("model.tied_weights", [{"weight_bytes": 1}]),
        ("cluster.device.memory_bytes", 168820736),
        ("cluster.levels.0.bandwidth_bytes_per_second", 1048576001),
        ("cluster.levels.1.latency_seconds", 0.0021),
        ("training.global_batch", 9),
        ("training.optimizer", "megatron18"),
        ("training.all_reduce", "ring"),
        ("training.reserve_fraction", 0.01),
        ("training.cost_model.synchronisation", "first_stage"),
        ("training.cost_model.exposed.collectives", 0.9),
        ("training.cost_model.exposed.transfers", 0.9),
        ("training.cost_model.exposed.synchronisation", 0.9),
        ("search.microbatch", [1, 2]),
        ("search.tensor", [1, 2]),
        ("search.data_parallel", "even"),
        ("search.stages", [1, 2]),
        ("search.recomputation", ["none"]),
        ("search.zero", [0, 1]),
        ("search.layouts", ["data-inner"]),
        ("units.tick_seconds", 0.0001),
        ("units.quantum_bytes", 524288),
        ("units.synchronisation_multiple_ticks", 2),
    ],
)
def test_everything_that_counts_changes_the_digest(field: str, value: Any) -> None:
    assert digest(**{field: value}) != digest()


def test_the_written_form_is_plain_json() -> None:
    import json

    data = compile_problem(load_problem("llama2-7b@h100-64")).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data


# --- guard ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "units"),
    [
        ({"forward_seconds": 1e12}, {"tick_seconds": 1e-12}),
        ({"weight_bytes": 1e24}, {"tick_seconds": 1e-9, "synchronisation_multiple_ticks": 1}),
        ({"activation_bytes": 1e24}, {"quantum_bytes": 1}),
        ({"output_bytes": 1e24}, {"tick_seconds": 1e-6, "quantum_bytes": 2**60}),
        ({"weight_bytes": 1e22}, {"quantum_bytes": 1}),
    ],
)
def test_overflow_guard(costs: dict[str, Any], units: dict[str, Any]) -> None:
    with pytest.raises(OverflowGuardError, match="use a larger"):
        compiled_of(costs, units=units)


def test_the_largest_numbers_do_not_break_the_rules_for_units() -> None:
    compiled = compiled_of({"forward_seconds": 1e24, "weight_bytes": 1e9})
    assert compiled.tick_seconds == 10**18
