"""What the tests of the formulations share: HiGHS, random small problems, and a slow price.

The price is written straight from section 4 of the model, for one explicit plan at a time, with
device lists and loops, so that it shares nothing with the formulations but the compiled problem.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import pytest
from pyomo.contrib.solver.solvers.highs import Highs
from pyomo.environ import ConcreteModel, Objective, Var

from nest_opt.cells import Cell
from nest_opt.compile import Compiled, compile_problem
from nest_opt.library import load_problem

Stages = tuple[tuple[int, int, str, int], ...]


def solve_model(model: ConcreteModel) -> tuple[str, dict[str, float]]:
    """Termination condition and values of a model solved by HiGHS, gaps zero, one thread."""
    if not list(model.component_data_objects(Objective, active=True)):
        model.no_objective = Objective(expr=0)
    solver = Highs()
    results = solver.solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        threads=1,
        rel_gap=0.0,
        abs_gap=0.0,
        time_limit=60,
        # With presolve on, HiGHS 1.16.0 refutes the feasible runs.build_decision(..., 1103) of
        # random_problem(368), cell "b1 d1 t2.e2 s2 pipeline-inner", and fails on some others.
        solver_options={"presolve": "off"},
    )
    condition = results.termination_condition.name
    if condition != "convergenceCriteriaSatisfied":
        return condition, {}
    results.solution_loader.load_vars()
    variables = model.component_data_objects(Var)
    return condition, {v.name: v.value for v in variables if v.value is not None}


# --- the slow price -------------------------------------------------------------------------------


def _devices(compiled: Compiled, cell: Cell, r: int, j: int) -> list[int]:
    width = cell.template.tensor * cell.template.context * cell.template.expert
    offset = sum(width for k in range(cell.stages) if k > j)
    if cell.layout == "pipeline-inner":
        start = r * (compiled.devices // cell.replicas) + offset
    else:
        start = cell.replicas * offset + r * width
    return [start + x for x in range(width)]


def _indices(cell: Cell) -> list[tuple[int, int, int]]:
    """(tensor, context, expert) index of each device of an interval, in order."""
    t = cell.template
    return [(x, y, z) for z in range(t.expert) for y in range(t.context) for x in range(t.tensor)]


class SlowPrice:
    """Prices the stages of one cell."""

    def __init__(self, compiled: Compiled, cell: Cell) -> None:
        self.compiled, self.cell = compiled, cell
        self.table = compiled.tables[cell.template, cell.microbatch]
        self.known: dict[tuple[int, int, int, str, int], tuple[int, int, int]] = {}

    def sync_groups(self, j: int) -> tuple[list[list[int]], list[list[int]]]:
        dense: dict[Any, list[int]] = {}
        expert: dict[Any, list[int]] = {}
        for r in range(self.cell.replicas):
            devices = _devices(self.compiled, self.cell, r, j)
            for device, (x, _, z) in zip(devices, _indices(self.cell), strict=True):
                dense.setdefault(x, []).append(device)
                expert.setdefault((x, z), []).append(device)
        return list(dense.values()), list(expert.values())

    def load(self, r: int, j: int, i: int, k: int, kind: str, zero: int) -> int:
        compiled, cell, table = self.compiled, self.cell, self.table
        network = compiled.network
        here = _devices(compiled, cell, r, j)
        axis_groups: dict[str, dict[Any, list[int]]] = {"tensor": {}, "context": {}, "expert": {}}
        for device, (x, y, z) in zip(here, _indices(cell), strict=True):
            axis_groups["tensor"].setdefault((y, z), []).append(device)
            axis_groups["context"].setdefault((x, z), []).append(device)
            axis_groups["expert"].setdefault((x, y), []).append(device)
        dense_groups, expert_groups = self.sync_groups(j)

        def worst(collective: Any, size: Any, groups: Any) -> int:
            shapes = [network.shape_of(group) for group in groups]
            return max(compiled.collective_ticks(collective, size, shape) for shape in shapes)

        ticks = 0
        for n in range(i, k):
            layer = table.layers[n]
            ticks += layer.forward + layer.backward
            ticks += {"none": 0, "selective": layer.recompute_selective}.get(kind, layer.recompute)
            for call in layer.calls:
                times = call.count
                if call.direction == "forward" and kind in ("layer", "stage"):
                    times *= 2
                ticks += times * worst(call.kind, call.bytes, axis_groups[call.axis].values())
            for state, groups in (
                (table.dense_state(n, cell.stages), dense_groups),
                (layer.expert, expert_groups),
            ):
                if zero >= 2:
                    ticks += worst("reduce_scatter", state.gradients, groups)
                if zero == 3:
                    ticks += 2 * worst("all_gather", state.weights, groups)
        if j > 0:
            union = here + _devices(compiled, cell, r, j - 1)
            ticks += table.transfer_ticks[network.class_of(union)][i]
        if j < cell.stages - 1:
            union = here + _devices(compiled, cell, r, j + 1)
            ticks += table.transfer_ticks[network.class_of(union)][k]
        return ticks

    def sync(self, j: int, i: int, k: int, zero: int) -> int:
        compiled, cell, table = self.compiled, self.cell, self.table
        total = 0
        dense = [table.dense_state(n, cell.stages) for n in range(i, k)]
        expert = [table.layers[n].expert for n in range(i, k)]
        for states, groups in zip((dense, expert), self.sync_groups(j), strict=True):
            largest = 0
            for group in groups:
                shape = compiled.network.shape_of(group)
                ticks = sum(compiled.sync_share_ticks(zero, state, shape) for state in states)
                if any(state.weights for state in states):
                    ticks += compiled.sync_latency_ticks(zero, shape)
                largest = max(largest, ticks)
            total += largest
        if cell.stages > 1 and table.has_tied_weight and j in (0, cell.stages - 1):
            total += max(
                compiled.tied_ring_ticks(
                    table.tied,
                    compiled.network.class_of(
                        _devices(compiled, cell, r, 0)
                        + _devices(compiled, cell, r, cell.stages - 1)
                    ),
                )
                for r in range(cell.replicas)
            )
        return total

    def memory(self, j: int, i: int, k: int, kind: str, zero: int) -> int:
        compiled, cell, table = self.compiled, self.cell, self.table
        layers = table.layers[i:k]
        expert_ranks = cell.replicas * cell.template.context
        dense_ranks = expert_ranks * cell.template.expert
        total, full = 0, []
        for n in range(i, k):
            whole = 0
            for state, ranks in (
                (table.dense_state(n, cell.stages), dense_ranks),
                (table.layers[n].expert, expert_ranks),
            ):
                total += compiled.quanta(state.weights, ranks if zero == 3 else 1)
                total += compiled.quanta(state.gradients, ranks if zero >= 2 else 1)
                total += compiled.quanta(state.optimizer, ranks if zero >= 1 else 1)
                whole += compiled.quanta(state.weights)
            full.append(whole)
        if zero == 3:
            total += max(full)
        in_flight = min(cell.stages - j, cell.microbatches)
        if kind == "none":
            total += in_flight * sum(layer.activations for layer in layers)
        elif kind == "selective":
            total += in_flight * sum(layer.selective for layer in layers)
            total += max(layer.attention_core for layer in layers)
        elif kind == "layer":
            total += in_flight * sum(layer.checkpoint for layer in layers)
            total += max(layer.activations for layer in layers)
        else:
            total += (in_flight - 1) * (table.cut_quanta[i] if j else layers[0].checkpoint)
            total += sum(layer.activations for layer in layers)
        return total

    def stage(self, j: int, i: int, k: int, kind: str, zero: int) -> tuple[int, int, int]:
        """Largest load over the replicas, synchronisation, memory of one stage."""
        key = j, i, k, kind, zero
        if key not in self.known:
            load = max(self.load(r, *key) for r in range(self.cell.replicas))
            self.known[key] = load, self.sync(j, i, k, zero), self.memory(*key)
        return self.known[key]

    def plan(self, stages: Stages) -> int | None:
        """T of a plan of this cell, None if it does not fit in memory."""
        prices = [self.stage(j, *stage) for j, stage in enumerate(stages)]
        if any(memory > self.compiled.memory_quanta for _, _, memory in prices):
            return None
        tau = max(load for load, _, _ in prices)
        syncs = [sync for _, sync, _ in prices]
        first = self.compiled.cost_model.synchronisation == "first_stage"
        sigma = syncs[0] if first else max(syncs)
        return (self.cell.microbatches + self.cell.stages - 1) * tau + sigma

    def plans(self) -> Iterator[Stages]:
        """Every plan of the cell."""
        search = self.compiled.search
        choices = list(product(search.recomputation, search.zero))
        layers, s = self.compiled.layer_count, self.cell.stages
        for inner in combinations(range(1, layers), s - 1):
            ends = (*inner, layers)
            for picked in product(choices, repeat=s):
                starts = (0, *inner)
                yield tuple((i, k, *c) for i, k, c in zip(starts, ends, picked, strict=True))

    def best(self) -> int | None:
        """Smallest T of the cell, None if no plan fits."""
        prices = [price for price in map(self.plan, self.plans()) if price is not None]
        return min(prices, default=None)


def stages_of_plan(plan: Any) -> Stages:
    return tuple((*stage.layers, stage.recomputation, stage.zero) for stage in plan.stages)


# --- random small problems ------------------------------------------------------------------------


def random_problem(seed: int) -> dict[str, Any]:
    """A problem of 2 to 5 layers on 2 to 8 devices, different in kind from seed to seed."""
    pick = random.Random(seed)
    mebibyte = 2**20
    template = pick.choice(
        [
            {},
            {},
            {"tensor": 2},
            {"context": 2},
            {"expert": 2},
            {"tensor": 2, "context": 2},
            {"context": 2, "expert": 2},
            {"tensor": 2, "expert": 2},
        ]
    )
    axes = sorted(template)

    def costs(expert: bool) -> dict[str, Any]:
        forward, core = pick.randint(1, 20), pick.randint(0, 10)
        activations = core + pick.randint(0, 20)
        return {
            "template": template,
            "forward_seconds": forward / 1000,
            "backward_seconds": pick.randint(1, 30) / 1000,
            "recompute_seconds": pick.randint(0, forward) / 1000,
            "selective_recompute_seconds": pick.randint(0, 4) / 1000,
            "weight_bytes": pick.choice([0, pick.randint(1, 9)]) * mebibyte,
            "expert_weight_bytes": pick.randint(1, 9) * mebibyte if expert else 0,
            "activation_bytes": activations * mebibyte,
            "attention_core_bytes": core * mebibyte,
            "checkpoint_bytes": pick.randint(0, 4) * mebibyte,
            "output_bytes": pick.choice([0, 1, 4, 9]) * mebibyte,
            "collectives": [
                {
                    "kind": pick.choice(
                        ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_pass"]
                    ),
                    "axis": axis,
                    "pass": pick.choice(["forward", "backward"]),
                    "bytes": pick.randint(1, 4) * mebibyte,
                    "count": pick.randint(1, 2),
                }
                for axis in axes
                if pick.random() < 0.7
            ],
        }

    layers = []
    total = pick.randint(3, 5)
    while total:
        count = min(total, pick.choice([1, 1, 2, 3]))
        layers.append({"name": f"l{len(layers)}", "count": count})
        layers[-1]["costs"] = [costs(pick.random() < 0.4)]
        total -= count
    levels = pick.choice([[2], [4], [2, 2], [3, 2], [2, 2, 2], [4, 2], [2, 3]])
    width = 2 ** len(template)
    devices = 1
    for size in levels:
        devices *= size
    if devices < 2 * width:
        levels, devices = [*levels, 2], devices * 2
    model: dict[str, Any] = {"kind": "layers", "name": "random", "layers": layers}
    ends = [layers[0]["costs"][0], layers[-1]["costs"][0]]
    least = min(end["weight_bytes"] for end in ends)
    if least and len(layers) > 1 and pick.random() < 0.7:
        model["tied_weights"] = [{"template": template, "weight_bytes": least}]
    per_layer = [
        c["weight_bytes"] + c["expert_weight_bytes"] for c in (x["costs"][0] for x in layers)
    ]
    held = (
        8 * sum(layer["count"] * w for layer, w in zip(layers, per_layer, strict=True)) // mebibyte
    )
    recomputation = ["none", "selective", "layer", "stage"]
    zero = [0, 1, 2, 3]
    return {
        "format": "nest-opt/problem/1",
        "name": f"random-{seed}",
        "model": model,
        "cluster": {
            "name": "random",
            "device": {
                "name": "device",
                "memory_bytes": mebibyte * max(20, int(held * pick.uniform(0.3, 1.6)) + 30),
            },
            "devices": devices,
            "levels": [
                {
                    "size": size,
                    "bandwidth_bytes_per_second": mebibyte * (1000 // 4**k),
                    "latency_seconds": pick.randint(0, 3) / 1000,
                }
                for k, size in enumerate(levels)
            ],
        },
        "training": {
            "global_batch": pick.choice([1, 2, 5, 8]),
            "optimizer": "zero16",
            "all_reduce": pick.choice(["hierarchical", "ring"]),
            "reserve_fraction": 0.0,
            "cost_model": {"synchronisation": pick.choice(["slowest_stage", "first_stage"])},
        },
        "search": {
            "microbatch": [1],
            "tensor": [template.get("tensor", 1)],
            "context": [template.get("context", 1)],
            "expert": [template.get("expert", 1)],
            "sequence_parallel": [False],
            "data_parallel": "any",
            "stages": "any",
            "recomputation": sorted(
                pick.sample(recomputation, pick.randint(1, 4)), key=recomputation.index
            ),
            "zero": sorted(pick.sample(zero, pick.randint(1, 3))),
        },
        "units": {
            "tick_seconds": 0.001,
            "quantum_bytes": mebibyte,
            "synchronisation_multiple_ticks": pick.choice([1, 3]),
        },
    }


@pytest.fixture(scope="session")
def solve() -> Callable[[ConcreteModel], tuple[str, dict[str, float]]]:
    return solve_model


@pytest.fixture(scope="session")
def slow_price() -> type[SlowPrice]:
    return SlowPrice


@pytest.fixture(scope="session")
def stages_in() -> Callable[[Any], Stages]:
    return stages_of_plan


@pytest.fixture(scope="session")
def random_compiled() -> Callable[[int], Compiled]:
    return lambda seed: compile_problem(load_problem(random_problem(seed)))


@pytest.fixture(scope="session")
def worked() -> Callable[[int], Compiled]:
    return lambda mebibytes: compile_problem(load_problem(f"worked-example-{mebibytes}"))
