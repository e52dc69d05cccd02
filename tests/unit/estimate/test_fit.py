"""The fit to measured iterations: plans, prices, the search, and how its errors are counted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from nest_opt.compile import compile_problem
from nest_opt.errors import InputError
from nest_opt.estimate.fit import (
    Measurement,
    Numbers,
    cluster_of,
    errors_of,
    fit,
    plan_of,
    predicted_seconds,
    problem_of,
    rank_correlation,
    read_measurements,
)
from nest_opt.estimate.roofline import Roofline, Work, matmul
from nest_opt.evaluate import evaluate
from nest_opt.files import read_json
from nest_opt.library import instances_folder, load_cluster

SHIPPED = instances_folder() / "measured" / "vtrain_a100.csv"
CLUSTER = load_cluster("a100-vtrain-64")
#: As instances/measured/README.md has it.
EXPOSURE = 0.792469
TRUTH = Numbers(0.5, 5e-5, 0.6)


def row(**more: float) -> Measurement:
    fields = {
        "parameters_billion": 0.1,
        "devices": 16,
        "global_batch": 64,
        "microbatch": 2,
        "hidden_size": 1024,
        "attention_heads": 16,
        "layers": 4,
        "sequence_length": 512,
        "tensor": 2,
        "data": 4,
        "pipeline": 2,
        "iteration_milliseconds": 100.0,
    }
    return Measurement.model_validate(fields | more)


SHAPES = ((1, 16, 1, 1), (1, 4, 2, 2), (4, 4, 1, 8), (8, 2, 1, 4))


def synthetic(hidden: int = 1024, size: float = 0.1) -> list[Measurement]:
    """Iterations exactly as long as they are priced with TRUTH."""
    rows = [
        row(tensor=t, data=d, pipeline=p, microbatch=b, hidden_size=hidden, parameters_billion=size)
        for t, d, p, b in SHAPES
    ]
    return [
        r.model_copy(update={"iteration_milliseconds": 1e3 * predicted_seconds(r, CLUSTER, TRUTH)})
        for r in rows
    ]


def test_the_plan_is_the_measured_one() -> None:
    measured = row(layers=5, data=2, pipeline=4)
    plan = plan_of(measured)
    # Five blocks over four stages, the longer one first; embedding and head at the ends.
    assert [stage.layers for stage in plan.stages] == [(0, 3), (3, 4), (4, 5), (5, 7)]
    assert [stage.devices[1] for stage in plan.stages] == [(14, 15), (10, 11), (6, 7), (2, 3)]
    assert plan.microbatches == 16
    compiled = compile_problem(problem_of(measured, CLUSTER, TRUTH))
    evaluation = evaluate(compiled, plan)
    assert evaluation.feasible
    assert not evaluation.notes  # it is a plan of its problem's search space


def test_clusters_are_resized_at_their_outermost_level() -> None:
    assert [level.size for level in cluster_of(CLUSTER, 512).levels] == [8, 64]
    assert [level.size for level in cluster_of(CLUSTER, 4).levels] == [4, 1]
    with pytest.raises(InputError, match="12 devices do not fill"):
        cluster_of(CLUSTER, 12)


def test_the_numbers_of_synthetic_measurements_are_found() -> None:
    made = fit(synthetic(), CLUSTER)
    assert made.numbers == pytest.approx(TRUTH, rel=0.01)
    assert made.errors.mean_absolute_error < 1e-3
    assert made.errors.mean_rank_correlation == 1
    assert made.errors.largest_regret == 0
    assert made.device.kernel_seconds == made.numbers.kernel_seconds
    assert made.device.matmul_efficiency == made.device.memory_efficiency
    assert made.held_out is None


def test_cross_validation_prices_each_model_by_the_others() -> None:
    rows = synthetic() + synthetic(2048, 0.3)
    # One model twice as slow as its price: the numbers fitted to it price the other one badly.
    slow = [
        r.model_copy(update={"iteration_milliseconds": 2 * r.iteration_milliseconds})
        for r in rows[:4]
    ]
    made = fit(slow + rows[4:], CLUSTER, cross_validate=True)
    assert made.held_out is not None
    assert made.held_out.mean_absolute_error > made.errors.mean_absolute_error
    numbers = dict(made.held_out_numbers)
    assert numbers["0.1B"] == pytest.approx(TRUTH, rel=0.02)  # fitted to the other model alone
    slower = made.held_out.models[0]
    assert slower.model == "0.1B"
    assert slower.mean_absolute_error == pytest.approx(0.5, abs=0.02)
    with pytest.raises(InputError, match="two models"):
        fit(synthetic(), CLUSTER, cross_validate=True)


def test_a_number_at_its_bound_is_held() -> None:
    fast = [r.model_copy(update={"iteration_milliseconds": 1.0}) for r in synthetic()[:3]]
    made = fit(fast, CLUSTER)
    assert made.numbers.efficiency == 1
    assert 0 < made.numbers.exposure <= 1


def test_errors_by_hand() -> None:
    rows = [
        row(microbatch=1, iteration_milliseconds=1000),
        row(microbatch=2, iteration_milliseconds=800),
        row(microbatch=4, iteration_milliseconds=2000),
        row(parameters_billion=7, iteration_milliseconds=500),
    ]
    errors = errors_of(rows, [0.9, 1.0, 2.0, 0.5])
    first, second = errors.models
    assert first.mean_absolute_error == pytest.approx((0.1 + 0.25 + 0) / 3)
    assert errors.mean_absolute_error == pytest.approx(0.35 / 4)
    assert first.rank_correlation == 0.5
    assert (first.chosen, first.regret) == ("t2 d4 p2 b1", pytest.approx(0.25))
    assert (second.rank_correlation, second.regret) == (None, 0)
    assert errors.mean_rank_correlation == 0.5
    # Ties go as the solver breaks them: the smaller microbatch.
    assert errors_of(rows[:3], [2.0, 1.0, 1.0]).models[0].chosen == "t2 d4 p2 b2"


def test_rank_correlation_with_ties() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1..4: the correlation of the ranks is 4.5 / sqrt(4.5 * 5).
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert rank_correlation([1, 1], [1, 2]) is None


def test_the_roofline_with_launches_and_a_cache() -> None:
    plain = Roofline(Fraction(1), Fraction(2))
    assert plain.forward([matmul(1, 1, 1)]) == 12  # 3 numbers of 2 bytes, at 2 seconds each
    full = replace(plain, kernel_seconds=Fraction(5), cache_bytes=4)
    assert full.forward([matmul(1, 1, 1)]) == 5  # 2 bytes reach the memory; the launch is longer
    assert full.forward([matmul(4, 4, 4)]) == 2 * (3 * 16 * 2 - 4)
    assert full._kernel(Work(0, 0)) == 0


def test_the_shipped_device_is_the_shipped_fit() -> None:
    """The numbers of instances/devices/a100-vtrain.json price the measurements as claimed."""
    device = read_json(instances_folder() / "devices" / "a100-vtrain.json")
    assert device["matmul_efficiency"] == device["memory_efficiency"]
    numbers = Numbers(device["matmul_efficiency"], device["kernel_seconds"], EXPOSURE)
    rows = read_measurements(SHIPPED)
    assert len(rows) == 53
    errors = errors_of(rows, [predicted_seconds(r, CLUSTER, numbers) for r in rows])
    assert errors.mean_absolute_error <= 0.10
    assert errors.mean_rank_correlation is not None
    assert errors.mean_rank_correlation >= 0.8
    assert errors.largest_regret <= 0.08


@pytest.mark.heavy
def test_the_shipped_numbers_are_found_again() -> None:
    made = fit(read_measurements(SHIPPED), CLUSTER, cross_validate=True)
    device = CLUSTER.device
    shipped = Numbers(device.matmul_efficiency, device.kernel_seconds, EXPOSURE)
    assert made.numbers == pytest.approx(shipped, rel=2e-3)
    assert made.held_out is not None
    assert made.held_out.mean_absolute_error < 0.11
    assert made.held_out.largest_regret <= 0.08


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tensor", "3"), "tensor \\* data \\* pipeline is"),
        (("layers", "x"), "line 2, layers: must be a whole number"),
        (("devices", "0"), "row 1.devices"),
        (("pipeline", "64"), "64 stages for"),
        (("iteration_milliseconds", "0"), "row 1.iteration_milliseconds"),
    ],
)
def test_bad_measurements_are_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    cells = {name: str(value) for name, value in row(devices=16).model_dump().items()}
    if change[0] == "pipeline":
        cells |= {"data": "1", "tensor": "1", "devices": "64"}
    cells[change[0]] = change[1]
    path = tmp_path / "m.csv"
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
    with pytest.raises(InputError, match=words):
        read_measurements(path)


def test_rows_that_have_no_price_are_named() -> None:
    with pytest.raises(InputError, match=r"0.1B t3 d1 p1 b2: .*does not divide"):
        predicted_seconds(row(tensor=3, data=1, pipeline=1), CLUSTER, TRUTH)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(",".join(Measurement.model_fields) + "\n")
    with pytest.raises(InputError, match="has no rows"):
        read_measurements(path)
