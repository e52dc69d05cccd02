"""Plans as data."""

import json
from pathlib import Path
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.plan import Plan, Template


def example() -> dict[str, Any]:
    return {
        "digest": "sha256:0",
        "microbatch": 1,
        "replicas": 2,
        "microbatches": 4,
        "layout": "pipeline-inner",
        "template": {"tensor": 1, "context": 1, "expert": 1, "sequence_parallel": False},
        "stages": [
            {
                "layers": [0, 2],
                "recomputation": "none",
                "zero": 0,
                "load_ticks": 70,
                "memory_bytes": 10,
                "devices": [[1], [3]],
            },
            {
                "layers": [2, 4],
                "recomputation": "layer",
                "zero": 1,
                "load_ticks": None,
                "memory_bytes": None,
                "devices": [[0], [3]],
            },
        ],
    }


def test_round_trip(tmp_path: Path) -> None:
    plan = Plan.from_dict(example())
    assert plan.to_dict() == example()
    assert plan.devices_used == 3
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_dict()))
    assert Plan.from_file(path) == plan


def test_the_output_of_solve_is_a_plan_file() -> None:
    assert Plan.from_dict({"status": "optimal", "plan": example()}) == Plan.from_dict(example())


def test_defaults() -> None:
    plan = Plan.from_dict(
        {
            "microbatch": 1,
            "replicas": 1,
            "microbatches": 1,
            "template": {},
            "stages": [{"layers": [0, 1], "devices": [[0]]}],
        }
    )
    assert plan.layout == "explicit"
    assert plan.template == Template()
    assert plan.stages[0].recomputation == "none"


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("microbatch", 0, "microbatch"),
        ("microbatch", 1.0, "microbatch"),
        ("microbatch", True, "microbatch"),
        ("replicas", "2", "replicas"),
        ("layout", "diagonal", "layout"),
        ("stages", [], "stages"),
        ("stages", {}, "stages"),
        ("template", {"tensor": 0}, "template.tensor"),
        ("template", {"tensors": 1}, "template.tensors"),
        ("colour", 1, "colour"),
        ("stages", [{"layers": [0], "devices": [[0]]}], "stages[0].layers[1]"),
        ("stages", [{"layers": [0, 1, 2], "devices": [[0]]}], "stages[0].layers"),
        ("stages", [{"layers": [-1, 1], "devices": [[0]]}], "stages[0].layers[0]"),
        ("stages", [{"layers": [0, 1], "devices": [[-1]]}], "stages[0].devices[0][0]"),
        ("stages", [{"layers": [0, 1], "devices": [0]}], "stages[0].devices[0]"),
        ("stages", [{"layers": [0, 1]}], "stages[0].devices: is missing"),
        ("stages", [{"layers": [0, 1], "devices": [[0]], "zero": 4}], "stages[0].zero"),
        ("stages", [{"layers": [0, 2**63], "devices": [[0]]}], "stages[0].layers[1]"),
    ],
)
def test_refused_with_a_path(field: str, value: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        Plan.from_dict({**example(), field: value}, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert where in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, "plan", [], [1, 2]])
def test_refused_altogether(value: Any) -> None:
    with pytest.raises(InputError):
        Plan.from_dict(value)


def test_template() -> None:
    template = Template(tensor=4, context=2, expert=3, sequence_parallel=True)
    assert template.width == 24
    assert template.label == "t4s.c2.e3"
    assert Template().label == "t1"
    assert Template(2) < Template(2, sequence_parallel=True) < Template(2, 2) < Template(4)
