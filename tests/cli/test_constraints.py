"""Constraints on the command line, and what is said of problems without a plan."""

import json

import pytest

from nest_opt.cli import main

EXAMPLE = "worked-example-160"


def test_a_constraint_of_the_command_line_is_kept(capsys):
    assert (
        main(["solve", EXAMPLE, "--json", "--constraint", 'layers_per_stage:{"at_most": 1}']) == 0
    )
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert [stage["layers"] for stage in plan["stages"]] == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_what_a_constraint_costs_is_found_by_solving(capsys):
    def ticks(*more: str) -> int:
        assert main(["solve", EXAMPLE, "--json", *more]) == 0
        return int(json.loads(capsys.readouterr().out)["batch_ticks"])

    most = ("--constraint", 'layers_per_stage:{"at_most": 1}')
    slack = ("--constraint", 'recomputing_stages:{"at_most": 4}')
    cost = ticks(*most) - ticks()
    assert cost > 0, "or there is nothing to see"

    assert main(["explain", EXAMPLE, "--json", *most, *slack]) == 0
    said = json.loads(capsys.readouterr().out)["constraints"]
    assert [(c["constraint"], c["cost_ticks"]) for c in said] == [
        ("layers_per_stage", cost),
        ("recomputing_stages", 0),
    ]
    assert main(["explain", EXAMPLE, *most, *slack]) == 0
    out = capsys.readouterr().out
    assert "layers_per_stage (at_most 1): " in out and "nothing: the optimum" in out


def test_solve_says_which_constraints_are_kept(capsys):
    assert main(["solve", EXAMPLE, "--constraint", 'layers_per_stage:{"at_most": 1}']) == 0
    assert "constraints kept: layers_per_stage (at_most 1)" in capsys.readouterr().out


def test_constraints_are_listed(capsys):
    assert main(["list", "constraints"]) == 0
    out = capsys.readouterr().out
    assert "layers_per_stage" in out and "at_most" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["list", "constraints", "--json"]) == 0
    assert "megatron_lm" in json.loads(capsys.readouterr().out)["constraints"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("layers_per_stag", "did you mean layers_per_stage"),
        ('layers_per_stage:{"at_most": 0}', "at_most"),
        ('layers_per_stage:{"at_most": 1', "is not JSON"),
        ('layers_per_stage:{"at_most": 1, "at_most": 2}', "at_most"),
        ("missing.py:Class", "no such file"),
        ('recomputing_stages:{"at_most": 1e400}', "recomputing_stages"),
        ("same_stage:{\"layers\": [0, 99]}", "layer 99 does not exist"),
    ],
)  # fmt: skip
def test_a_bad_constraint_is_one_message(spec, said, capsys):
    assert main(["solve", EXAMPLE, "--constraint", spec]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err
    assert len(captured.err.splitlines()) <= 22


def test_a_users_file_works_with_certify_and_verify(tmp_path, capsys, monkeypatch):
    import nest_opt.constraints as register

    monkeypatch.setattr(register, "_registered", {})
    path = tmp_path / "own.py"
    path.write_text(
        "from typing import Literal\n"
        "from nest_opt.constraints import Breach, Constraint\n"
        "class Even(Constraint):\n"
        "    constraint: Literal['even_stages'] = 'even_stages'\n"
        "    meaning = 'the number of stages is even'\n"
        "    def check(self, placed):\n"
        "        if len(placed.plan.stages) % 2:\n"
        "            yield Breach('plan', 'has an odd number of stages', whole_cell=True)\n"
        "    def allows_cell(self, cell, places):\n"
        "        return cell.stages % 2 == 0\n"
        "    def restrict(self, stages):\n"
        "        if len(stages.numbers) % 2:\n"
        "            stages.forbid()\n"
    )
    spec, out = f"{path}:Even", tmp_path / "certificate.json"
    arguments = ["certify", "worked-example-1000", "--jobs", "1", "--out", str(out)]
    assert main([*arguments, "--constraint", spec]) == 0
    plan = json.loads(out.read_text())["plan"]
    assert len(plan["stages"]) == 2
    assert main(["verify", str(out), "--constraint", spec]) == 0

    monkeypatch.setattr(register, "_registered", {})
    assert main(["verify", str(out)]) == 2, "without the class nobody knows what it means"
    assert "even_stages" in capsys.readouterr().err
    path.write_text(path.read_text().replace("is even'", "is even, they say'"))
    assert main(["verify", str(out), "--constraint", spec]) == 1, "another text of the constraint"


def test_a_problem_without_a_plan_says_what_would_help(capsys):
    arguments = [EXAMPLE, "--set", "cluster.device.memory_bytes=52428800"]
    assert main(["solve", *arguments]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "1 demand excludes every plan" in out and "lacks 20.00 MiB" in out
    assert "devices with at least 70.00 MiB" in out
    assert main(["explain", *arguments, "--json"]) == 1
    why = json.loads(capsys.readouterr().out)
    assert why["status"] == "infeasible" and why["relaxations"][0]["value"] == 70 * 2**20
