"""Tables of layers in CSV files: the same model as in JSON, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nest_opt import InputError, compile_problem, load_problem, solve
from nest_opt.estimate.layer_csv import COLUMNS, read_layers
from nest_opt.library import instances_folder
from nest_opt.plan import Template
from nest_opt.problem import LayerCosts

MIB = 2**20
WORKED = f"""layer,forward_seconds,backward_seconds,recompute_seconds,weight_bytes,\
activation_bytes,checkpoint_bytes,output_bytes
layer.0,0.01,0.02,0.01,{4 * MIB},{20 * MIB},{3 * MIB},{4 * MIB}
layer.1,0.012,0.024,0.012,{6 * MIB},{16 * MIB},{2 * MIB},{4 * MIB}
layer.2,0.012,0.024,0.012,{6 * MIB},{16 * MIB},{2 * MIB},{2 * MIB}
layer.3,0.014,0.028,0.014,{4 * MIB},{24 * MIB},{2 * MIB},
"""


def table(folder: Path, text: str, name: str = "layers.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_worked_example_as_csv_has_the_same_digest(tmp_path: Path) -> None:
    table(tmp_path, WORKED)
    data = load_problem("worked-example-160").to_dict()
    expected = compile_problem(load_problem(data))
    data["model"] = "layers.csv"
    (tmp_path / "problem.json").write_text(json.dumps(data))
    found = compile_problem(load_problem(str(tmp_path / "problem.json")))
    assert found.digest == expected.digest
    assert solve(found).batch_ticks == 454


def test_with_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_bytes(b"\xef\xbb\xbf" + WORKED.replace("\n", "\r\n").encode())
    assert read_layers(path)["layers"] == read_layers(table(tmp_path, WORKED, "b.csv"))["layers"]


def test_a_csv_on_the_left_of_a_cluster(tmp_path: Path) -> None:
    path = table(tmp_path, WORKED)
    problem = load_problem(f"{path}@h100-64")
    assert problem.model.name == "layers"
    assert compile_problem(problem).layer_count == 4


def test_what_the_table_has_is_what_is_searched(tmp_path: Path) -> None:
    # Not the usual 1, 2, 4, 8 with sequence parallelism and 1, 2, 4: neither is 4 in the table.
    text = (
        "layer,tensor,expert,sequence_parallel,microbatch,forward_seconds,backward_seconds,"
        "output_bytes,collectives\n"
        "a,1,,,1,1,2,8,\na,1,,,8,6,9,8,\na,128,,,1,1,2,8,\n"
        "a,16,2,true,1,1,2,8,all_gather tensor forward 3\n"
        "a,16,2,true,8,1,2,8,all_gather tensor forward 5\n"
    )
    path = table(tmp_path, text)
    search = load_problem(f"{path}@h100-64").search
    assert (search.tensor, search.context, search.expert) == ((1, 16), (1,), (1, 2))
    # One of the templates has no line for 8.
    assert search.sequence_parallel == (False, True) and search.microbatch == (1,)
    path = table(tmp_path, text.replace("a,128,,,1,1,2,8,\n", ""))
    problem = load_problem(f"{path}@h100-64")
    assert problem.search.sequence_parallel == (True,) and problem.search.microbatch == (1, 8)
    assert solve(problem).batch_ticks is not None
    # Per sequence, and of one template without tensor parallelism: the usual lists.
    search = load_problem(f"{table(tmp_path, WORKED)}@h100-64").search
    assert search.tensor == (1,) and search.microbatch == (1, 2, 4)


def test_each_template_may_have_sizes_of_its_own(tmp_path: Path) -> None:
    lines = "a,1,1,1,1\nb,1,1,1,1\na,1,1,2,4\nb,1,1,2,4\n"
    path = table(tmp_path, f"{HEAD},tensor,microbatch\n{lines}")
    wide = {"search.tensor": [2], "search.microbatch": [4]}
    compiled = compile_problem(load_problem(f"{path}@h100-64", wide))
    assert [template.label for template in compiled.templates] == ["t2"]


def test_overrides_come_after_what_the_table_has(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEAD},microbatch\na,1,2,1\na,1,2,8\n")
    problem = load_problem(f"{path}@h100-64", {"search.microbatch": [8]})
    assert problem.search.microbatch == (8,)


def test_graphs_templates_counts_and_collectives(tmp_path: Path) -> None:
    text = (
        "layer,count,inputs,tensor,sequence_parallel,forward_seconds,backward_seconds,output_bytes,"
        "collectives\n"
        "in,,-,,,1,2,8,\n"
        "body,3,,,,1,2,4,\n"
        "in,,,2,true,1,1,8,\n"
        "body,,,2,true,1,1,4,all_gather tensor forward 16 x2; reduce_scatter tensor backward 1e1\n"
        "out,,in; body,,,1,2,0,\n"
        "out,,,2,true,1,1,0,\n"
    )
    layers = read_layers(table(tmp_path, text))["layers"]
    assert [layer["name"] for layer in layers] == ["in", "body", "out"]
    assert layers[0]["inputs"] == [] and "inputs" not in layers[1]
    assert layers[2]["inputs"] == ["in", "body"]
    assert layers[1]["count"] == 3
    wide = layers[1]["costs"][1]
    assert Template(**wide["template"]) == Template(tensor=2, sequence_parallel=True)
    assert wide["collectives"] == [
        {"kind": "all_gather", "axis": "tensor", "pass": "forward", "bytes": 16.0, "count": 2},
        {"kind": "reduce_scatter", "axis": "tensor", "pass": "backward", "bytes": 10.0},
    ]
    compiled = compile_problem(load_problem(f"{tmp_path / 'layers.csv'}@h100-64"))
    first = compiled.tables[compiled.templates[0], 1]
    # The output of "in" lives until "out" needs it.
    assert first.cut_bytes == (0, 8, 12, 12, 12)


def test_a_line_for_each_microbatch(tmp_path: Path) -> None:
    text = (
        "layer,tensor,microbatch,forward_seconds,backward_seconds,weight_bytes,collectives\n"
        "a,2,1,1,2,5,all_reduce tensor forward 4\n"
        "a,2,2,1.5,3,5,all_reduce tensor forward 6\n"
    )
    (costs,) = read_layers(table(tmp_path, text))["layers"][0]["costs"]
    assert costs["forward_seconds"] == {"1": 1.0, "2": 1.5}
    assert costs["weight_bytes"] == 5
    assert costs["collectives"][0]["bytes"] == {"1": 4.0, "2": 6.0}


HEAD = "layer,forward_seconds,backward_seconds"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("layer,forward_seconds\na,1\n", "column backward_seconds: is missing"),
        (f"{HEAD},forward_seconds\na,1,1,1\n", "column forward_seconds: stands twice"),
        (f"{HEAD},colour\na,1,1,red\n", "column colour: unknown; known are layer, count"),
        (f"{HEAD},outputbytes\na,1,1,3\n", "outputbytes: unknown; did you mean output_bytes?"),
        (f"{HEAD}\n", "has no line below the header"),
        (f"{HEAD}\na,1\n", "line 2: has 2 cells, not 3"),
        (f"{HEAD}\na,nan,1\n", "line 2, forward_seconds: must be a number"),
        (f"{HEAD}\na,1,inf\n", "line 2, backward_seconds: must be a number"),
        (f"{HEAD}\na,-1,1\n", "line 2, forward_seconds: must be a number"),
        (f"{HEAD}\na,1,\n", "line 2, backward_seconds: must be a number"),
        (f"{HEAD},tensor\n\na,1,1,0\n", "line 3, tensor: Input should be greater"),
        (f"{HEAD},count\na,1,1,5000\n", "line 2, count: Input should be less than or equal"),
        (f"{HEAD},microbatch\na,1,1,0\n", "line 2, microbatch: must be 1 to 999,999"),
        (f"{HEAD},weight_bytes\na,1,1,1e30\n", "line 2, weight_bytes: Input should be less"),
        (f"{HEAD},inputs\na,1,1,-\nb,1,1,a;;a\n", "line 3, inputs[1]: String should have"),
        (f"{HEAD},sequence_parallel\na,1,1,true\n", "line 2, sequence_parallel: needs a tensor"),
        (f"{HEAD}\na,1,1\na,1,1\n", "layer a, template t1: stands on several lines"),
        (f"{HEAD},tensor\na,1,1,1\na,1,1,\n", "layer a, template t1: stands on several lines"),
        (f"{HEAD},count\na,1,1,2\na,1,1,3\n", "line 3, count: another line of layer a has 2"),
        (f"{HEAD},collectives\na,1,1,all_reduce\n", "collectives: each must be KIND AXIS PASS"),
        (f"{HEAD},collectives\na,1,1,all_reduce tensor forward e\n", "each must be KIND AXIS"),
        (f"{HEAD},collectives\na,1,1,all_reduce tensor forward 1e999\n", "(found 'all_reduce"),
        (f"{HEAD},collectives\na,1,1,gossip tensor forward 1\n", "line 2, collectives[0].kind"),
        (f"{HEAD},collectives\na,1,1,all_reduce tensor forward 1 x0\n", "collectives[0].count"),
        (f"{HEAD},microbatch\na,1,1,1\na,1,1,1\n", "stands on several lines"),
        (f"{HEAD},microbatch,weight_bytes\na,1,1,1,3\na,1,1,2,4\n", "differs between microbatch"),
        (
            f"{HEAD},microbatch,output_bytes\na,1,1,1,3\na,1,1,2,\n",
            "output_bytes: is given for some microbatches only",
        ),
        (
            f"{HEAD},microbatch,collectives\na,1,1,1,all_reduce tensor forward 1\na,1,1,2,\n",
            "may differ between microbatches in bytes alone",
        ),
        (
            f"{HEAD},microbatch\na,1,1,1\na,1,1,2\nb,1,1,\nc,1,1,4\n",
            "column microbatch: layer c, template t1 has lines for 4 and those above for 1, 2",
        ),
        (f'{HEAD}\n"a,1,1\n', "is not CSV"),
    ],
)
def test_refused_with_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_layers(table(tmp_path, text))
    assert message in str(caught.value) and "layers.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD},tensor\na,1,1,1\na,1,1,2\nb,1,1,1\n", "lacks costs for template t2"),
        (f"{HEAD},inputs\na,1,1,\nb,1,1,c\n", "unknown input 'c'"),
        (f"{HEAD},inputs\na,1,1,b\nb,1,1,a\n", "the layers form a cycle"),
        (f"{HEAD},cut_bytes\na,1,1,4\nb,1,1,\n", "'a' gives cut_bytes and layer 'b' does not"),
    ],
)
def test_what_the_whole_table_tells(text: str, message: str, tmp_path: Path) -> None:
    # Also where the table is one field of another file: what is wrong is wrong in layers.csv.
    path = table(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_problem("worked-example-160", {"model": str(path)})
    assert message in str(caught.value) and "layers.csv" in str(caught.value)


def test_the_line_is_the_one_that_an_editor_shows(tmp_path: Path) -> None:
    path = table(tmp_path, f"{HEAD},count\n\na,1,1,1\n  ,,,\nb,1,1,0\n")
    with pytest.raises(InputError, match="line 5, count"):
        read_layers(path)


def test_a_table_without_a_cluster_is_no_problem(tmp_path: Path) -> None:
    path = table(tmp_path, WORKED)
    with pytest.raises(InputError) as caught:
        load_problem(str(path))
    assert f"name its cluster as well: {path}@h100-64" in str(caught.value)


def test_cuts_stand_in_for_outputs(tmp_path: Path) -> None:
    text = f"{HEAD},cut_bytes\na,1,1,0\nb,1,1,7\nc,1,1,5\n"
    compiled = compile_problem(load_problem(f"{table(tmp_path, text)}@h100-64"))
    assert compiled.tables[compiled.templates[0], 1].cut_bytes == (0, 7, 5)


def test_the_example_of_the_manual(tmp_path: Path) -> None:
    manual = (instances_folder() / "models" / "README.md").read_text()
    example = manual.partition("```csv\n")[2].partition("```")[0]
    compiled = compile_problem(load_problem(f"{table(tmp_path, example)}@h100-64"))
    assert compiled.layer_count == 34
    assert [template.label for template in compiled.templates] == ["t1", "t2"]
    assert all(f"`{column}`" in manual for column in COLUMNS)


def test_every_field_of_the_costs_has_a_column() -> None:
    fields: set[Any] = set(LayerCosts.model_fields) - {"template"}
    assert fields <= set(COLUMNS)
