"""The free formulation equals trying every assignment of devices, and never loses to structure.

Each of its families is needed: without it, or weakened, some problem disagrees.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import pytest
from pyomo.environ import ConcreteModel, Constraint, value

from formulations import free
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import best_plan
from nest_opt.errors import CompileError, PlanError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.plan import Plan, StagePlan, Template

Solve = Callable[[Any], tuple[str, dict[str, float]]]

#: (devices per node, nodes) or a network without levels
_NETWORKS: tuple[Any, ...] = ((2, 2), (2, 2), (4, 1), (5,), "matrix", "matrix")


def small_problem(seed: int) -> dict[str, Any]:
    """A random problem of at most five devices and three layers, where everything can bind."""
    pick = random.Random(f"free {seed}")
    kind = pick.choice(_NETWORKS)
    again = pick.random() < 0.2
    layers: list[dict[str, Any]] = [
        {
            "name": f"layer.{i}",
            "costs": [
                {
                    "template": {},
                    "forward_seconds": pick.randint(1, 9) / 1000,
                    "backward_seconds": pick.randint(1, 9) / 1000,
                    "recompute_seconds": pick.randint(1, 9) / 1000,
                    "weight_bytes": pick.choice([0, 4, 10, 20]),
                    "expert_weight_bytes": pick.choice([0, 0, 8]),
                    "activation_bytes": pick.randint(1, 30),
                    "checkpoint_bytes": pick.randint(0, 5),
                    "output_bytes": pick.randint(0, 20),
                }
            ],
        }
        for i in range(pick.randint(1, 3))
    ]
    model: dict[str, Any] = {"kind": "layers", "name": "small", "layers": layers}
    if len(layers) > 1 and pick.random() < 0.4:
        ends = (layers[0]["costs"][0], layers[-1]["costs"][0])
        shared = min(end["weight_bytes"] for end in ends)
        model["tied_weights"] = [{"template": {}, "weight_bytes": shared}]
    cluster: dict[str, Any] = {"name": "small"}
    cluster["device"] = {"name": "small", "memory_bytes": pick.choice([120, 250, 1000, 5000])}
    if kind == "matrix":
        n = cluster["devices"] = pick.choice([3, 4])
        speeds = [[0.0] * n for _ in range(n)]
        for x, y in combinations(range(n), 2):
            speeds[x][y] = speeds[y][x] = pick.choice([500.0, 1000.0, 4000.0])
        latencies = [[0.0 if x == y else 0.001 for y in range(n)] for x in range(n)]
        cluster["network"] = {
            "kind": "matrix",
            "bandwidth_bytes_per_second": [[v or 1.0 for v in row] for row in speeds],
            "latency_seconds": latencies,
        }
    else:
        cluster["devices"] = 1
        cluster["levels"] = []
        for k, size in enumerate(kind):
            cluster["devices"] *= size
            cluster["levels"].append(
                {
                    "name": f"level{k}",
                    "size": size,
                    "bandwidth_bytes_per_second": pick.choice([4000, 1000]) / (k * 3 + 1),
                    "latency_seconds": pick.choice([0.0, 0.002]) * (k + 1),
                }
            )
    hierarchical = kind != "matrix" and pick.random() < 0.8
    return {
        "name": f"small-{seed}",
        "model": model,
        "cluster": cluster,
        "training": {
            "global_batch": pick.choice([1, 3, 4, 6]),
            "all_reduce": "hierarchical" if hierarchical else "ring",
            "reserve_fraction": 0.0,
            "optimizer": "sgd4",
            "cost_model": {
                "synchronisation": pick.choice(["slowest_stage", "first_stage"]),
                "transfer_link": pick.choice(["worst_pair", "worst_pair", "first_devices"]),
                "recomputation": "backward_again" if again else "forward_again",
            },
        },
        "search": {
            "microbatch": [1],
            "tensor": [1],
            "data_parallel": "any",
            "stages": "any",
            "recomputation": ["none", "stage"]
            if again
            else pick.choice([["none"], ["none", "layer"]]),
            "zero": pick.choice([[0], [1], [0, 1], [0, 2], [0, 3]]),
        },
        "units": {"tick_seconds": 0.001, "quantum_bytes": 1},
    }


def every_placement(compiled: Compiled) -> Iterator[Plan]:
    """Every plan with one device for each stage and replica, whichever: the slow way."""
    layers, devices = compiled.layer_count, range(compiled.devices)
    choices = list(product(compiled.search.recomputation, compiled.search.zero))
    for d in range(1, min(compiled.devices, compiled.global_batch) + 1):
        for s in range(1, min(layers, compiled.devices // d) + 1):
            for inner in combinations(range(1, layers), s - 1):
                bounds = [0, *inner, layers]
                for used in permutations(devices, s * d):
                    # Replicas are interchangeable unless the first alone prices the transfers.
                    every = compiled.cost_model.transfer_link == "worst_pair"
                    if every and list(used[:d]) != sorted(used[:d]):
                        continue
                    for chosen in product(choices, repeat=s):
                        yield Plan(
                            microbatch=1,
                            replicas=d,
                            microbatches=compiled.microbatches(1, d, 1),
                            layout="explicit",
                            template=Template(),
                            stages=tuple(
                                StagePlan(
                                    layers=(bounds[j], bounds[j + 1]),
                                    recomputation=kind,
                                    zero=zero,
                                    devices=tuple((x,) for x in used[j * d : (j + 1) * d]),
                                )
                                for j, (kind, zero) in enumerate(chosen)
                            ),
                        )


def exhaustive(compiled: Compiled) -> int | None:
    """The least T over all placements, priced by the evaluator; None if none fits."""
    evaluator = Evaluator(compiled)
    priced = (evaluator.evaluate(plan) for plan in every_placement(compiled))
    times = (e.batch_ticks for e in priced if e.feasible and e.batch_ticks is not None)
    return min(times, default=None)


def free_minimum(compiled: Compiled, solve: Solve) -> int | None:
    """The least T over all frames' minimum models, each solution priced by the evaluator."""
    best: int | None = None
    for cell in free.frames(compiled):
        condition, values = solve(free.build_minimum(compiled, cell))
        if not values:
            assert condition == "provenInfeasible", (cell.label, condition)
            continue
        priced = Evaluator(compiled).evaluate(free.decode(compiled, cell, values))
        assert priced.feasible, (cell.label, priced.violations)
        # The model's own account of T, too: no term may be missing or paid twice.
        claimed = round(cell.slots * values.get("tau", 0) + values.get("sigma", 0))
        assert priced.batch_ticks == claimed, cell.label
        best = claimed if best is None else min(best, claimed)
    return best


@pytest.mark.parametrize("seed", range(10))
def test_the_free_optimum_is_the_least_over_all_assignments_of_devices(
    seed: int, solve: Solve
) -> None:
    compiled = compile_problem(load_problem(small_problem(seed)))
    optimum = free_minimum(compiled, solve)
    assert optimum == exhaustive(compiled)
    structured = best_plan(compiled)
    if structured is not None and structured.evaluation is not None:
        assert optimum is not None
        assert optimum <= structured.evaluation.require_price()


@pytest.mark.parametrize(("mebibytes", "ticks"), [(1000, 352), (160, 454), (110, 584)])
def test_the_worked_example_loses_nothing_to_structure(
    mebibytes: int, ticks: int, worked: Callable[[int], Compiled], solve: Solve
) -> None:
    compiled = worked(mebibytes)
    assert free_minimum(compiled, solve) == ticks
    feasible = [
        bool(solve(free.build_decision(compiled, cell, limit))[1])
        for limit in (ticks, ticks - 1)
        for cell in free.frames(compiled)
    ]
    half = len(feasible) // 2
    assert any(feasible[:half])
    assert not any(feasible[half:])


def test_constraints_are_refused() -> None:
    problem = load_problem("worked-example-160")
    constraint = {"constraint": "reserved_devices", "devices": [0]}
    data = problem.model_dump(mode="json", exclude_none=True)
    data["search"]["constraints"] = [constraint]
    with pytest.raises(CompileError, match="knows no constraints"):
        free.frames(compile_problem(load_problem(data)))


def test_a_cell_of_another_problem_is_refused(worked: Callable[[int], Compiled]) -> None:
    compiled = worked(160)
    cell = replace(free.frames(compiled)[0], stages=99)
    with pytest.raises(CompileError, match="list its frames anew"):
        free.build_minimum(compiled, cell)


# --- mutants --------------------------------------------------------------------------------------

Change = Callable[[ConcreteModel, str], None]


def spread_out(latency: float, slow: int) -> dict[str, Any]:
    """Two nodes of four, four replicas of two stages: near transfers, or near synchronisation.

    What a stage pays for its synchronisation depends on how its devices spread over the nodes.
    """
    data = small_problem(0)
    data["name"] = f"spread-{latency}-{slow}"
    data["model"] = {
        "kind": "layers",
        "name": "spread",
        "layers": [
            {
                "name": f"layer.{i}",
                "costs": [
                    {
                        "template": {},
                        "forward_seconds": 0.002,
                        "backward_seconds": 0.002,
                        "weight_bytes": 60,
                        "output_bytes": 12,
                    }
                ],
            }
            for i in range(2)
        ],
    }
    data["cluster"] = {
        "name": "spread",
        "device": {"name": "spread", "memory_bytes": 5000},
        "devices": 8,
        "levels": [
            {"size": 4, "bandwidth_bytes_per_second": 4000, "latency_seconds": 0.0},
            {"size": 2, "bandwidth_bytes_per_second": slow, "latency_seconds": latency},
        ],
    }
    data["training"] |= {"global_batch": 8, "all_reduce": "hierarchical", "cost_model": {}}
    data["search"] |= {"data_parallel": [4], "stages": [2], "recomputation": ["none"], "zero": [0]}
    return data


def tight(seed: int) -> dict[str, Any] | None:
    """A problem whose best placement has just not enough memory."""
    data = small_problem(seed)
    compiled = compile_problem(load_problem(data))
    evaluator = Evaluator(compiled)
    needs = [
        (e.batch_ticks, max(stage.memory_bytes for stage in e.stages))
        for e in map(evaluator.evaluate, every_placement(compiled))
        if e.feasible and e.batch_ticks is not None
    ]
    if not needs:
        return None
    data["cluster"]["device"]["memory_bytes"] = max(min(needs)[1] - 1, 1)
    return data


@cache
def asked() -> tuple[dict[str, Any], ...]:
    """The problems that the mutants are tried on, in this order."""
    spread = [spread_out(latency, slow) for latency in (0.0, 0.004) for slow in (1000, 250)]
    bound = [data for seed in range(24) if (data := tight(seed)) is not None]
    return (*spread, *bound, *map(small_problem, range(30)))


@cache
def expected_of(number: int) -> tuple[Compiled, int | None]:
    compiled = compile_problem(load_problem(asked()[number]))
    return compiled, exhaustive(compiled)


def rows(model: ConcreteModel, family: str) -> list[Any]:
    found = []
    for component in model.component_objects(Constraint, active=True):
        if component.name.startswith(family):
            found += list(component.values())
    return found


def dropped(model: ConcreteModel, family: str) -> None:
    for row in rows(model, family):
        row.deactivate()


def weakened(model: ConcreteModel, family: str) -> None:
    """Equations keep one side, inequalities get one more."""
    for row in rows(model, family):
        lower, upper = row.lower, row.upper
        if row.equality:
            row.set_value((None, row.body, value(upper)))
        elif upper is not None:
            row.set_value((None, row.body, value(upper) + 1))
        else:
            row.set_value((value(lower) - 1, row.body, None))


def mutated_minimum(
    compiled: Compiled, family: str, change: Change, solve: Callable[..., Any]
) -> int | str | None:
    """The least T that the changed models claim, or what is wrong with a solution of theirs."""
    best: int | None = None
    for cell in free.frames(compiled):
        model = free.build_minimum(compiled, cell)
        change(model, family)
        _, values = solve(model)
        if not values:
            continue
        try:
            priced = Evaluator(compiled).evaluate(free.decode(compiled, cell, values))
        except PlanError as error:
            return f"no plan: {error}"
        claimed = round(cell.slots * values.get("tau", 0) + values.get("sigma", 0))
        if not priced.feasible or priced.batch_ticks != claimed:
            return f"claims {claimed}, priced {priced.batch_ticks} {priced.violations}"
        best = claimed if best is None else min(best, claimed)
    return best


@pytest.mark.heavy
@pytest.mark.parametrize("change", [dropped, weakened], ids=lambda change: change.__name__)
@pytest.mark.parametrize("family", [f for f in free.FAMILIES if f != "C5_pair"])
def test_a_broken_family_is_noticed(family: str, change: Change, solve: Callable[..., Any]) -> None:
    if (family, change) == ("C16_shape", weakened):
        pytest.skip("a stage without a shape has nothing to pay by (C21)")
    for number in range(len(asked())):
        compiled, expected = expected_of(number)
        if mutated_minimum(compiled, family, change, solve) != expected:
            return
    raise AssertionError(f"{family} {change.__name__}: nobody notices")
