"""The price of structure: proven, exact, resumable, and open where a limit is hit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from nest_opt.certify import structure
from nest_opt.certify.structure import (
    Price,
    measure,
    price_of_structure,
    read_prices,
    summary,
    table,
)
from nest_opt.certify.suite import load_suite
from nest_opt.cli import main
from nest_opt.compile import compile_problem
from nest_opt.errors import InputError
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_plan, load_problem
from nest_opt.plan import Plan
from nest_opt.problem import Problem


def straddling() -> Problem:
    """Two replicas on three nodes of two: the second starts at device 3, across nodes."""
    costs = {
        "template": {},
        "forward_seconds": 0.001,
        "backward_seconds": 0.001,
        "weight_bytes": 1,
        "activation_bytes": 1,
        "checkpoint_bytes": 1,
        "output_bytes": 10,
    }
    levels = [
        {
            "name": name,
            "size": size,
            "bandwidth_bytes_per_second": bandwidth,
            "latency_seconds": 0.0,
        }
        for name, size, bandwidth in (("node", 2, 10000), ("network", 3, 1000))
    ]
    return load_problem(
        {
            "name": "straddling",
            "model": {
                "kind": "layers",
                "name": "two",
                "layers": [{"name": f"layer.{i}", "costs": [costs]} for i in range(2)],
            },
            "cluster": {
                "name": "three-by-two",
                "device": {"name": "device", "memory_bytes": 1000},
                "devices": 6,
                "levels": levels,
            },
            "training": {"global_batch": 8, "optimizer": "sgd4", "reserve_fraction": 0.0},
            "search": {
                "microbatch": [1],
                "tensor": [1],
                "data_parallel": [2],
                "stages": [2],
                "recomputation": ["none"],
                "zero": [0],
                "layouts": ["pipeline-inner"],
            },
            "units": {"tick_seconds": 0.001, "quantum_bytes": 1},
        }
    )


def test_a_replica_that_straddles_nodes_pays_for_it() -> None:
    price = price_of_structure(straddling())
    # m = 4, mu = 5. Loads: 2 for the passes, and 10 across nodes or 1 within one. Synchronisation:
    # two ranks in different nodes, an all-reduce of 1 byte: 2 * 1/2 * 1 B = 0.001 s.
    assert (price.structured_ticks, price.free_ticks) == (5 * 12 + 1, 5 * 3 + 1)
    assert price.status == "proven"
    assert price.ratio == Fraction(61, 16)
    plan = Plan.from_dict(price.plan)
    assert Evaluator(compile_problem(straddling())).evaluate(plan).batch_ticks == 16


def test_a_limit_is_no_success() -> None:
    price = price_of_structure(straddling(), solve_limit=1e-6)
    assert price.status == "open"
    assert price.ratio is None
    assert not price.is_decided


def test_what_is_finished_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "prices.json"
    first = measure([straddling()], out=out)
    monkeypatch.setattr(structure, "price_of_structure", None)
    assert measure([straddling()], out=out) == first == read_prices(out)
    assert "61/16" in table(first)
    assert summary(first)["worst_ratio"] == "61/16"


@pytest.mark.parametrize(
    "change", [{"status": "fine"}, {"free_ticks": 62}, {"free_ticks": 1.5}, {"more": 1}]
)
def test_a_tampered_price_is_refused(change: dict[str, Any]) -> None:
    data = Price("name", "digest", "proven", 61, 16).to_dict()
    assert Price.from_dict(data).ratio == Fraction(61, 16)
    with pytest.raises((TypeError, ValueError)):
        Price.from_dict(data | change)


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    out.write_text("{}")
    with pytest.raises(InputError, match="no prices of structure"):
        measure([straddling()], out=out)
    assert out.read_text() == "{}"


def test_the_suite_is_large_enough() -> None:
    entries = load_suite("structure").entries
    assert len(entries) >= 200
    assert len({entry.digest for entry in entries}) == len(entries)


def test_the_command_needs_problems_or_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["price-of-structure"]) == 2
    assert "--suite NAME" in capsys.readouterr().err
    assert main(["price-of-structure", "llama2-7b@h100-64"]) == 2
    assert "width one" in capsys.readouterr().err
    assert main(["price-of-structure", "worked-example-160"]) == 0
    assert "ratio 1.0000" in capsys.readouterr().out


def test_the_shipped_worst_case_is_what_the_page_says() -> None:
    price = price_of_structure(load_problem("price-of-structure"))
    assert (price.status, price.ratio) == ("proven", Fraction(595, 115))
    plan = load_plan("price-of-structure")
    assert (
        Evaluator(compile_problem(load_problem("price-of-structure"))).evaluate(plan).batch_ticks
        == price.free_ticks
    )
