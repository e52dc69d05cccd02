"""``fit``, and what ``compile`` and ``solve`` say of measured times and of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nest_opt.cli import main
from nest_opt.library import instances_folder

Capture = pytest.CaptureFixture[str]


def table(argv: list[str], capsys: Capture, status: int = 0) -> str:
    assert main(argv) == status, capsys.readouterr().err
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80, out
    return out


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Iterations of two small models that are quick to price."""
    path = tmp_path / "measured.csv"
    header = "parameters_billion,devices,global_batch,microbatch,hidden_size,attention_heads,"
    header += "layers,sequence_length,tensor,data,pipeline,iteration_milliseconds"
    lines = [header]
    for size, hidden, scale in ((0.1, 1024, 1), (0.4, 2048, 3.5)):
        for t, d, p, b, time in ((1, 8, 1, 1, 30), (2, 4, 1, 2, 32), (4, 1, 2, 2, 47)):
            lines.append(f"{size},8,64,{b},{hidden},16,4,512,{t},{d},{p},{time * scale}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_fit(capsys: Capture, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    argv = ["fit", str(measured), "--cluster", "a100-vtrain-64"]
    text = table([*argv, "--out", str(out), "--quiet"], capsys)
    for words in ("6 measured iterations", "efficiency", "least time of a kernel", "exposure"):
        assert words in text
    assert "0.4B" in text
    assert "cross-validation" not in text
    device = json.loads(out.read_text())
    assert device["source"].endswith("fitted by nest-opt fit to 6 measured iterations on "
                                     "a100-vtrain-64")  # fmt: skip
    assert 0 < device["matmul_efficiency"] <= 1
    assert main(["compile", "llama2-7b@h100-64", "--set", f"cluster.device={out}"]) == 0
    capsys.readouterr()

    assert main([*argv, "--json", "--cross-validate"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["device"]["matmul_efficiency"] == device["matmul_efficiency"]
    assert set(data["fitted"]) == {"efficiency", "kernel_seconds", "exposure"}
    assert [m["model"] for m in data["errors"]["models"]] == ["0.1B", "0.4B"]
    assert set(data["cross_validation"]["numbers"]) == {"0.1B", "0.4B"}
    assert len(data["rows"]) == 6


def test_fit_refuses(capsys: Capture, measured: Path, tmp_path: Path) -> None:
    assert main(["fit", str(measured)]) == 2
    assert "--cluster" in capsys.readouterr().err
    assert main(["fit", str(tmp_path / "none.csv"), "--cluster", "a100-vtrain-64"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["fit", str(measured), "--cluster", "a100-vtrain-65"]) == 2
    assert "no shipped cluster" in capsys.readouterr().err


PROFILE = "layer,tensor,sequence_parallel,microbatch,forward_seconds,backward_seconds\n"


def test_measured_times_are_shown(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(PROFILE + "block,1,false,2,0.01,0.02\nblock,2,true,1,0.003,0.006\n")
    argv = ["llama2-7b@h100-64", "--tensor", "1,2", "--microbatch", "1,2"]
    argv += ["--set", f"model.profile={path}"]
    text = table(["compile", *argv], capsys)
    assert "times: 2 measured, 2 scaled, 8 modelled" in text
    assert "scaled from 2" in text
    assert main(["compile", *argv, "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["times"]
    assert times[4] == {
        "layers": "block",
        "template": "t1",
        "microbatch": 1,
        "source": "scaled",
        "measured_at_microbatch": 2,
    }
    assert "times: 2 measured, 2 scaled, 8 modelled" in table(["solve", *argv], capsys)


def test_what_was_read_but_not_modelled_is_shown(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = json.loads((instances_folder() / "models" / "llama2-7b.json").read_text())["config"]
    path.write_text(json.dumps({"model_type": "llava", "text_config": config}))
    text = table(["compile", f"{path}@h100-64"], capsys)
    assert "notes on the model" in text
    assert "text_config" in text
    assert "notes on the model" not in table(["compile", "llama2-7b@h100-64"], capsys)
    assert "times:" not in table(["compile", "worked-example-160"], capsys)
