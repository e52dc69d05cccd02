"""Measured layer times: what they replace, what they scale to, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import nest_opt
from nest_opt.errors import InputError
from nest_opt.estimate import layer_table
from nest_opt.estimate.profile import kind_of, layer_times, read_profile, summary
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, ProfileRow

CONFIG = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 1000,
}
HEADER = "layer,tensor,context,expert,sequence_parallel,microbatch,forward_seconds,backward_seconds"


def row(layer: str = "block", microbatch: int = 2, **more: Any) -> dict[str, Any]:
    times = {"forward_seconds": 0.25, "backward_seconds": 0.5}
    return {"layer": layer, "microbatch": microbatch} | times | more


def problem(profile: Any, **model: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "model": {
            "kind": "config",
            "name": "tiny",
            "sequence_length": 64,
            "config": CONFIG,
            "profile": profile,
        }
        | model,
        "cluster": "h100-64",
        "training": {"global_batch": 64},
    }


def table(profile: Any, **model: Any) -> Any:
    return layer_table(nest_opt.load_problem(problem(profile, **model)))


def test_a_measured_time_is_taken_as_it_is() -> None:
    measured = table([row()]).costs[Template(), 2]
    modelled = table([]).costs[Template(), 2]
    for cost in measured[1:4]:
        assert (cost.forward, cost.backward) == (Fraction(1, 4), Fraction(1, 2))
        assert cost.recompute == cost.forward
        assert cost is measured[1]  # equal blocks go on sharing one object
    assert (measured[0], measured[4]) == (modelled[0], modelled[4])
    # Bytes and collectives stay, and the core's share of the forward pass.
    assert measured[1].activation_bytes == modelled[1].activation_bytes
    share = modelled[1].recompute_selective / modelled[1].forward
    assert measured[1].recompute_selective == share / 4


@pytest.mark.parametrize(
    ("microbatch", "rows", "factor"),
    [
        (1, [2], Fraction(1, 2)),
        (4, [2], Fraction(2)),
        (2, [1, 4], Fraction(1, 2)),  # both a factor of two away: the larger
        (4, [1, 2], Fraction(2)),
    ],
)
def test_another_microbatch_is_scaled_from_the_nearest(
    microbatch: int, rows: list[int], factor: Fraction
) -> None:
    profile = [row(microbatch=b, recompute_seconds=0.125) for b in rows]
    cost = table(profile).costs[Template(), microbatch][1]
    assert cost.forward == factor / 4
    assert cost.backward == factor / 2
    assert cost.recompute == factor / 8


def test_other_templates_stay_modelled() -> None:
    profile = [row(tensor=2, sequence_parallel=True)]
    with_rows, without = table(profile).costs, table([]).costs
    changed = {key for key in without if with_rows[key] != without[key]}
    assert changed == {(Template(2, sequence_parallel=True), b) for b in (1, 2, 4)}


def test_a_name_wins_over_its_kind() -> None:
    costs = table([row(), row("block.1", forward_seconds=1.0)]).costs[Template(), 2]
    assert [cost.forward for cost in costs[1:4]] == [Fraction(1, 4), 1, Fraction(1, 4)]


def test_halves_have_kinds_of_their_own() -> None:
    costs = table([row("block.mlp")], granularity="half").costs[Template(), 2]
    assert [cost.forward == Fraction(1, 4) for cost in costs[1:5]] == [False, True, False, True]
    assert kind_of("block.12.attention") == "block.attention"


def test_where_each_time_comes_from() -> None:
    rows = (row(), row("block.1", 4), row("head", 1))
    model = ConfigModel(
        kind="config",
        name="m",
        sequence_length=64,
        config=CONFIG,
        profile=tuple(ProfileRow(**r) for r in rows),
    )
    names = ("embedding", "block.0", "block.1", "block.2", "head")
    times = layer_times(model, names, [(Template(), 2), (Template(), 1)])
    assert [(t.layers, t.microbatch, t.source, t.measured_at) for t in times] == [
        ("embedding", 1, "modelled", None),
        ("embedding", 2, "modelled", None),
        ("block", 1, "scaled", 2),
        ("block", 2, "measured", 2),
        ("block.1", 1, "scaled", 4),
        ("block.1", 2, "scaled", 4),
        ("head", 1, "measured", 1),
        ("head", 2, "scaled", 1),
    ]
    assert summary(times) == "2 measured, 4 scaled, 2 modelled"


def test_a_file_beside_the_problem(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(f"{HEADER},recompute_seconds\nblock,2,1,1,true,2,2.5e-1,0.5,\n")
    expected = row(tensor=2, context=1, expert=1, sequence_parallel=True)
    assert read_profile(path) == [expected]
    file = tmp_path / "p.json"
    from nest_opt.files import write_json

    write_json(file, problem("times.csv"))
    loaded = nest_opt.load_problem(str(file))
    assert isinstance(loaded.model, ConfigModel)
    assert loaded.model.profile == (ProfileRow(**expected),)
    assert nest_opt.load_problem(loaded.to_dict()) == loaded


def test_a_problem_without_a_profile_keeps_its_digest() -> None:
    digests = {
        nest_opt.compile_problem(nest_opt.load_problem("llama3-70b@h100-64", overrides)).digest
        for overrides in ({}, {"model.profile": []})
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ([row(), row()], "repeated: block t1 microbatch 2"),
        ([row(tensor=0)], "model.profile[0].tensor"),
        ([row(seconds=1)], "model.profile[0].seconds: unknown field"),
        ([row(sequence_parallel=True)], "needs a tensor degree above 1"),
        ([row(microbatch="2")], "model.profile[0].microbatch"),
        ([row(forward_seconds=-1.0)], "model.profile[0].forward_seconds"),
        ("no-such.csv", "model.profile: no-such.csv: no such file"),
    ],
)
def test_bad_profiles_are_refused(profile: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        nest_opt.load_problem(problem(profile))
    assert words in str(caught.value)


def test_a_row_of_no_layer_is_refused() -> None:
    with pytest.raises(InputError, match=r"profile\[1\].layer: no such layer.*found blok"):
        table([row(), row("blok")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("layer,microbatch\n", "column forward_seconds: is missing"),
        (f"{HEADER},{HEADER}\n", "stands twice"),
        (f"{HEADER},gpu\n", "column gpu: unknown"),
        (f"{HEADER}\nblock,1,1,1,maybe,2,1,1\n", "line 2, sequence_parallel: must be true or"),
        (f"{HEADER}\nblock,1,1,1,false,2.0,1,1\n", "line 2, microbatch: must be a whole number"),
        (f"{HEADER}\nblock,1,1,1,false,2,nan,1\n", "line 2, forward_seconds: must be a number"),
        (f"{HEADER}\nblock,1,1,1,false,2,1e999,1\n", "line 2, forward_seconds: must be a number"),
        (f"{HEADER}\nblock,1\n", "line 2: has 2 cells, not 8"),
        (f'{HEADER}\n"block\n', "is not CSV"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_profile(path)
    assert words in str(caught.value)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    for path, words in ((tmp_path / "x.csv", "not UTF-8"), (tmp_path, "is a folder")):
        with pytest.raises(InputError, match=words):
            read_profile(path)
