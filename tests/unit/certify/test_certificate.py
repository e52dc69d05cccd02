"""Certificates as files: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import nest_opt
from nest_opt.certify import Certificate, certify
from nest_opt.certify.certificate import FIRST, Answer, CellCounts, Closure
from nest_opt.errors import CertificateError, InputError
from nest_opt.files import write_json
from nest_opt.library import load_problem


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return certify(load_problem("worked-example-160"), jobs=2, cross_checks=0)


@pytest.fixture
def data(certificate: Certificate) -> dict[str, Any]:
    return copy.deepcopy(certificate.to_dict())


def test_stable_names(data: dict[str, Any]) -> None:
    assert data["format"] == "nest-opt/certificate/2"
    assert data["verdict"] == "certified" and data["batch_ticks"] == 454
    assert list(data["cells"]) == ["total", "bounded", "refuted", "solved", "open"]
    assert data["batch_seconds"] == pytest.approx(0.454)
    assert data["units"]["tick_seconds"] == "1/1000"
    assert data["problem"]["name"] == data["name"] == "worked-example-160"
    assert "consecutive devices" in data["relative_to"]
    assert data["engines"]["highs"] == "1.16.0"
    assert data["nest_opt"] == nest_opt.__version__


def test_it_is_exported_under_the_names_that_are_documented() -> None:
    assert nest_opt.Certificate is Certificate
    assert nest_opt.certify is certify
    assert callable(nest_opt.verify)


def test_what_is_written_is_read_back(
    certificate: Certificate, data: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "certificate.json"
    write_json(path, data)
    again = Certificate.from_file(path)
    assert again == certificate
    assert again.to_dict() == data == json.loads(path.read_text())


def test_entries_are_compact(data: dict[str, Any]) -> None:
    bounded = [closure for closure in data["closures"] if closure["method"] == "bounded"]
    assert bounded and all(len(json.dumps(closure)) < 120 for closure in bounded)


def test_answers_say_how_to_ask_again(data: dict[str, Any]) -> None:
    (answers,) = [
        closure["answers"]
        for closure in data["closures"]
        if closure["method"] == "refuted" and "pipeline-inner" in closure["cell"]
    ]
    assert [(a["presolve"], a["seed"]) for a in answers] == [(False, 1), (True, 2)]
    for one in answers:
        assert one["status"] == "infeasible" and one["limit"] == 453
        assert one["options"]["mip_rel_gap"] == 0 and one["options"]["threads"] == 1
        assert one["version"] == "1.16.0" and one["pyomo_version"] and one["seconds"] > 0
        assert "nodes" in one and one["detail"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["format"], "nest-opt/certificate/3"),
        (["verdict"], "proved"),
        (["extra"], 1),
        (["cells", "skipped"], 0),
        (["cells", "open"], -1),
        (["closures", 0, "method"], "believed"),
        (["closures", 0, "weight"], 1),
        (["closures", 0, "value"], "352"),
        (["completeness", 0, "status"], "yes"),
        (["batch_ticks"], 454.0),
        (["batch_ticks"], None),
        (["units", "tick_seconds"], "0.001"),
        (["plan", "stages", 0, "zero"], 4),
        (["problem", "search", "zero"], []),
        (["problem", "comment"], "x"),
        (["options", "jobs"], 0),
        (["wall_seconds"], -1.0),
    ],
)
def test_malformed(data: dict[str, Any], path: list[Any], value: Any) -> None:
    at: Any = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    if path == ["batch_ticks"] and value is None:
        Certificate.from_dict(data)  # allowed by the format: problems without a plan
        return
    with pytest.raises(CertificateError, match="not a certificate"):
        Certificate.from_dict(data)


@pytest.mark.parametrize("name", ["verdict", "problem", "closures", "cells", "digest"])
def test_missing_fields(data: dict[str, Any], name: str) -> None:
    del data[name]
    with pytest.raises(CertificateError, match=f"{name}: is missing"):
        Certificate.from_dict(data)


@pytest.mark.parametrize("value", [None, [], "certified", {}, {"batch_ticks": float("nan")}])
def test_no_certificate_at_all(value: Any) -> None:
    with pytest.raises(CertificateError):
        Certificate.from_dict(value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Certificate.from_file(tmp_path / "none.json")


def test_counts() -> None:
    closures = [
        Closure(cell="a", method="bounded"),
        Closure(cell="b", method="open"),
        Closure(cell="c", method="open"),
    ]
    counts = CellCounts.of(closures).model_dump()
    assert counts == {"total": 3, "bounded": 1, "refuted": 0, "solved": 0, "open": 2}


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({}, None),
        ({"version": "1.14.0"}, "1.14.0"),
        ({"version": ""}, "unknown"),
        ({"seed": 7}, "random_seed"),
        ({"presolve": True}, "presolve"),
        ({"options": {}}, "threads"),
        ({"options": {}, "detail": "contradiction: x has bounds [2, 1]"}, None),
        ({"detail": "maxTimeLimit"}, "maxTimeLimit"),
        ({"options": {}, "detail": "contradiction: no", "status": "optimal"}, "threads"),
    ],
)
def test_what_makes_an_answer_evidence(facts: dict[str, Any], complaint: str | None) -> None:
    fields: dict[str, Any] = {
        "formulation": "runs",
        "question": "decision",
        "limit": 5,
        "status": "infeasible",
        "detail": "provenInfeasible",
        "presolve": FIRST.presolve,
        "seed": FIRST.seed,
        "options": {
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": 1e-6,
            "presolve": "off",
            "random_seed": 1,
        },
        "version": "1.16.0",
    }
    found = Answer(**{**fields, **facts}).complaint()
    assert found is None if complaint is None else found is not None and complaint in found
