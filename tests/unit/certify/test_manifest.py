"""The manifest: it is of the code at hand, and says so where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nest_opt.certify import manifest
from nest_opt.certify.certificate import CHECKED_HIGHS
from nest_opt.certify.manifest import DECIDING, PATH, SUITES, standing
from nest_opt.certify.suite import load_suite
from nest_opt.cli import main


def test_the_manifest_is_of_this_code() -> None:
    found = standing()
    assert found.certified, (
        f"{', '.join(found.changed)} changed since the suites passed; "
        "run python -m nest_opt.certify.manifest"
    )
    assert found.suites == {name: len(load_suite(name).entries) for name in SUITES}
    assert found.engines["highs"] == CHECKED_HIGHS


def test_every_file_that_the_program_consists_of_is_listed() -> None:
    package = PATH.parents[1]
    assert all((package / name).is_file() for name in DECIDING)
    listed = {name for name in DECIDING if name.startswith("dp/")}
    assert listed | {"dp/__init__.py"} == {f"dp/{p.name}" for p in (package / "dp").glob("*.py")}


def test_a_changed_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(PATH.read_text())
    data["digests"]["dp/recurrence.py"] = "sha256:0"
    del data["digests"]["cells.py"]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(data))
    found = standing(path)
    assert found.changed == ("cells.py", "dp/recurrence.py")
    assert str(found).startswith("uncertified: cells.py, dp/recurrence.py changed since")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"digests": 3}'])
def test_without_a_manifest_nothing_is_certified(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text)
    assert standing(path).changed == DECIDING


def test_solve_says_how_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["solve", "worked-example-160"]) == 0
    assert "certified encoding: all engines agreed on" in " ".join(capsys.readouterr().out.split())
    assert main(["solve", "worked-example-160", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["encoding"]["certified"]
    monkeypatch.setattr(manifest, "digests", lambda: dict.fromkeys(DECIDING, ""))
    assert main(["solve", "worked-example-160"]) == 0
    assert "uncertified: bounds.py, " in capsys.readouterr().out
