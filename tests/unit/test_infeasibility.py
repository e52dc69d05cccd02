"""Explanations of problems without a plan; the integer programs prove that nothing less helps."""

from typing import Any

import pytest

from nest_opt.certify import certify
from nest_opt.infeasibility import Infeasibility, Relaxation, explain_infeasibility
from nest_opt.library import load_problem

MIB = 2**20
EXAMPLE = "worked-example-160"


def constraints(*given: dict[str, Any]) -> dict[str, Any]:
    return {"search.constraints": list(given)}


#: Ten problems without a plan: overrides of the worked example, and what is in conflict.
PROBLEMS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "memory alone": (
        {"cluster.device.memory_bytes": 50 * MIB},
        {"cluster.device.memory_bytes"},
    ),
    "no recomputation": (
        {"cluster.device.memory_bytes": 110 * MIB, "search.recomputation": ["none"]},
        {"cluster.device.memory_bytes", "search.recomputation"},
    ),
    "more stages than layers": ({"search.stages": [5]}, {"search.stages"}),
    "one stage": (
        {"search.stages": [1]},
        {"cluster.device.memory_bytes", "search.stages", "search.zero"},
    ),
    "more replicas than devices": ({"search.data_parallel": [5]}, {"search.data_parallel"}),
    "few layers in few devices": (
        constraints(
            {"constraint": "layers_per_stage", "at_most": 1},
            {"constraint": "devices_used", "at_most": 3},
        ),
        {"search.constraints[0]", "search.constraints[1]"},
    ),
    "both ends in the first stage": (
        constraints({"constraint": "pinned_layers", "first": [0, 3]}),
        {"cluster.device.memory_bytes", "search.zero", "search.constraints[0]"},
    ),
    "headroom": (
        constraints({"constraint": "memory_headroom", "bytes": 130 * MIB}),
        {"cluster.device.memory_bytes", "search.constraints[0]"},
    ),
    "nothing recomputes": (
        {
            "cluster.device.memory_bytes": 100 * MIB,
            **constraints({"constraint": "recomputing_stages", "at_most": 0}),
        },
        {"cluster.device.memory_bytes", "search.constraints[0]"},
    ),
    "inside a node": (
        constraints(
            {"constraint": "transfer_links", "at_most": 0},
            {"constraint": "layers_per_stage", "at_most": 1},
        ),
        {"search.constraints[0]", "search.constraints[1]"},
    ),
}


def explained(name: str) -> Infeasibility:
    why = explain_infeasibility(load_problem(EXAMPLE, PROBLEMS[name][0]))
    assert why is not None
    return why


def with_change(name: str, field: str, value: Any) -> Any:
    """The problem with one field changed, as somebody would who follows the explanation."""
    overrides = dict(PROBLEMS[name][0])
    if field.startswith("search.constraints["):
        number, _, parameter = field.removeprefix("search.constraints[").partition("]")
        listed = [dict(c) for c in overrides["search.constraints"]]
        if parameter:
            listed[int(number)][parameter.removeprefix(".")] = value
        else:
            del listed[int(number)]
        overrides["search.constraints"] = listed
    elif field == "cluster.devices":
        data = load_problem(EXAMPLE, overrides).to_dict()
        data["cluster"]["levels"][-1]["size"] = value // 2  # two devices in a node
        data["cluster"]["devices"] = value
        return load_problem(data)
    else:
        overrides[field] = value
    return load_problem(EXAMPLE, overrides)


def tighter(why: Infeasibility, relaxation: Relaxation) -> Any:
    """The value next to that of a least relaxation, which should not do."""
    field, value = relaxation.field, relaxation.value
    if field == "cluster.device.memory_bytes":
        return value - 1
    if field.endswith((".at_least", ".bytes")):
        return value + 1
    return value - 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_conflict_is_named(name):
    why = explained(name)
    assert {demand.name for demand in why.conflict} == PROBLEMS[name][1]
    assert why.complete and why.relaxations


@pytest.mark.parametrize(
    "name",
    [
        name if name == "few layers in few devices" else pytest.param(name, marks=pytest.mark.heavy)
        for name in PROBLEMS
    ],
)
def test_every_relaxation_leaves_a_plan_of_that_price(name):
    for relaxation in explained(name).relaxations:
        problem = with_change(name, relaxation.field, relaxation.value)
        certificate = certify(problem, cross_checks=0)
        assert (certificate.verdict, certificate.batch_ticks) == (
            "certified",
            relaxation.batch_ticks,
        ), relaxation


@pytest.mark.parametrize(
    "name",
    [
        name if name == "one stage" else pytest.param(name, marks=pytest.mark.heavy)
        for name in PROBLEMS
    ],
)
def test_the_integer_programs_prove_that_nothing_less_would_do(name):
    why = explained(name)
    for relaxation in why.relaxations:
        if not relaxation.least or relaxation.field == "cluster.devices":
            continue  # devices grow by whole blocks: every smaller number was solved, see below
        problem = with_change(name, relaxation.field, tighter(why, relaxation))
        certificate = certify(problem, use_bounds=False)
        assert certificate.verdict == "certified", certificate.reasons
        assert certificate.batch_ticks is None, f"{relaxation} is not the least"


@pytest.mark.heavy
def test_fewer_devices_would_not_do():
    name = "no recomputation"
    (devices,) = [r for r in explained(name).relaxations if r.field == "cluster.devices"]
    for count in range(6, devices.value, 2):
        data = load_problem(EXAMPLE, PROBLEMS[name][0]).to_dict()
        data["cluster"]["levels"][-1]["size"] = count // 2
        data["cluster"]["devices"] = count
        certificate = certify(load_problem(data))
        assert (certificate.verdict, certificate.batch_ticks) == ("certified", None)


def test_a_conflict_is_smallest():
    why = explained("one stage")
    problem = load_problem(EXAMPLE, PROBLEMS["one stage"][0])
    assert explain_infeasibility(problem) == why
    for change in (
        {"cluster.device.memory_bytes": 1000 * MIB},
        {"search.stages": "any"},
        {"search.zero": [0, 1, 2, 3]},
    ):
        overrides = PROBLEMS["one stage"][0] | change
        assert explain_infeasibility(load_problem(EXAMPLE, overrides)) is None


def test_where_and_by_how_much():
    (memory,) = explained("memory alone").conflict
    assert "stage 1 (layers layer.1..layer.1, device 2)" in memory.where
    assert memory.shortfall == "lacks 20.00 MiB (20,971,520 bytes)"
    first, second = explained("few layers in few devices").conflict
    assert first.where == "stage 0" and "holds 4 layers, more than 1" in first.shortfall
    assert "uses 4 devices, more than 3" in second.shortfall


def test_time_that_ran_out_is_admitted():
    problem = load_problem(EXAMPLE, PROBLEMS["memory alone"][0])
    why = explain_infeasibility(problem, seconds=0.0)
    assert why is not None and why.conflict and not why.complete


def test_a_problem_with_a_plan_has_nothing_to_explain():
    assert explain_infeasibility(load_problem(EXAMPLE)) is None
