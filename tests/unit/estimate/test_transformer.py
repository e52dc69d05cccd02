"""The Transformer estimate against published counts and against calculations done by hand.

In the comments: s sequence, b microbatch, h hidden, a heads, t tensor degree, v vocabulary.
"Korthikanti" is arXiv 2205.05198, "Shoeybi" arXiv 1909.08053, "Narayanan" arXiv 2104.04473, "Dao"
arXiv 2307.08691.
"""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.estimate.table import Call, LayerCost, LayerTable
from nest_opt.estimate.transformer import table_of_config
from nest_opt.library import load_cluster, load_model, names
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, Device

ONE = Template()
GIB = 2**30


def tensor(t: int, sp: bool = False, **more: int) -> Template:
    return Template(tensor=t, sequence_parallel=sp, **more)


def device(peak: float = 1e12, bandwidth: float = 1e11, **more: Any) -> Device:
    return Device(
        name="d",
        memory_bytes=GIB,
        peak_flops_per_second=peak,
        memory_bytes_per_second=bandwidth,
        **more,
    )


GPT = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 1000,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 640,
    "vocab_size": 1024,
}


def model(config: dict[str, Any], sequence: int = 64, **more: Any) -> ConfigModel:
    return ConfigModel(kind="config", name="m", sequence_length=sequence, config=config, **more)


def table(
    config: dict[str, Any],
    *templates: Template,
    sequence: int = 64,
    microbatches: tuple[int, ...] = (1,),
    on: Device | None = None,
    flash: bool = False,
) -> LayerTable:
    return table_of_config(
        model(config, sequence, flash_attention=flash),
        on or device(),
        templates or (ONE,),
        microbatches,
    )


def block(config: dict[str, Any], template: Template = ONE, b: int = 1, **more: Any) -> LayerCost:
    return table(config, template, microbatches=(b,), **more).costs[template, b][1]


def ends(
    config: dict[str, Any], template: Template = ONE, b: int = 1, **more: Any
) -> tuple[LayerCost, LayerCost]:
    costs = table(config, template, microbatches=(b,), **more).costs[template, b]
    return costs[0], costs[-1]


# --- shipped models -------------------------------------------------------------------------------


def shipped(name: str) -> ConfigModel:
    found = load_model(name)
    assert isinstance(found, ConfigModel)
    return found


def parameters(found: ConfigModel) -> Fraction:
    made = table_of_config(found, device(), (ONE,), (1,))
    held = sum((c.weight_bytes for c in made.costs[ONE, 1]), Fraction(0))
    return (held - made.tied_bytes[ONE]) / 2


def test_llama_parameters_are_the_published_ones() -> None:
    # Number of parameters in the weight files at huggingface.co/meta-llama.
    assert parameters(shipped("llama2-7b")) == 6_738_415_616
    assert parameters(shipped("llama3-70b")) == 70_553_706_496


def test_gpt3_parameters_are_the_published_ones() -> None:
    # Brown et al. 2020, table 2.1: 175.0 billion.
    count = parameters(shipped("gpt3-175b"))
    assert abs(count / 175_000_000_000 - 1) < Fraction(5, 1000)
    # By hand: 96 blocks of 12h^2 + 13h, (v + s)h with v padded to 50304, final norm 2h.
    h = 12288
    assert count == 96 * (12 * h * h + 13 * h) + (50304 + 2048) * h + 2 * h


def test_gpt2_small_parameters() -> None:
    # Radford et al. 2019; the released weights hold 124,439,808 parameters.
    small = {**GPT, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
    count = parameters(model({**small, "vocab_size": 50257}, 1024))
    assert count - 47 * 768 == 124_439_808  # less the padding of the vocabulary


def test_qwen2_and_mistral_parameters() -> None:
    # Sizes of the weight files at huggingface.co, Qwen/Qwen2-7B and mistralai/Mistral-7B-v0.1.
    qwen = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "use_sliding_window": False,
        "sliding_window": 131072,
    }
    mistral = {
        "model_type": "mistral",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
        "sliding_window": 4096,
    }
    assert parameters(model(qwen, 4096)) == 7_615_616_512
    assert parameters(model(mistral, 4096)) == 7_241_732_096


def test_every_default_template_fits_every_shipped_model() -> None:
    for name in ("llama2-7b", "llama3-70b", "gpt3-175b"):
        templates = (ONE, *(tensor(t, sp) for t in (2, 4, 8) for sp in (False, True)))
        assert table_of_config(shipped(name), device(), templates, (1, 2, 4)).skipped == ()


@pytest.mark.parametrize("gpu", ["a100", "h100"])
@pytest.mark.parametrize("devices", [64, 128, 256, 512, 1024])
def test_shipped_clusters(gpu: str, devices: int) -> None:
    assert f"{gpu}-{devices}" in names("clusters")
    found = load_cluster(f"{gpu}-{devices}")
    assert found.devices == devices
    assert [level.size for level in found.levels] == [8, devices // 8]
    per_direction = {"a100": [300e9, 25e9], "h100": [450e9, 50e9]}[gpu]
    assert [level.bandwidth_bytes_per_second for level in found.levels] == per_direction
    assert found.device.name == f"{gpu}-80gb"
    assert found.device.memory_bytes == 80 * GIB
    assert found.device.peak_flops_per_second == {"a100": 312e12, "h100": 989.4e12}[gpu]


# --- measured memory ------------------------------------------------------------------------------


def megatron(h: int, a: int, blocks: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_embd": h,
        "n_head": a,
        "n_layer": blocks,
        "n_positions": 2048,
        "vocab_size": 51200,
    }


def test_measured_memory_of_the_22b_model() -> None:
    """Korthikanti, figure 1: A100, s = 2048, b = 4, t = 8, one stage, 18 bytes per parameter."""
    plain, sharded = tensor(8), tensor(8, sp=True)
    made = table(megatron(6144, 64, 48), plain, sharded, sequence=2048, microbatches=(4,))
    without = sum(c.activation_bytes for c in made.costs[plain, 4]) / GIB
    selective = sum(c.selective_bytes for c in made.costs[sharded, 4]) / GIB
    assert abs(without / Fraction("59.25") - 1) < Fraction(1, 100)
    assert abs(selective / Fraction("9.5625") - 1) < Fraction(3, 100)
    # The figure leaves out embedding and head; the blocks alone agree exactly.
    assert sum(c.activation_bytes for c in made.costs[plain, 4][1:-1]) == Fraction("59.25") * GIB
    assert sum(c.selective_bytes for c in made.costs[sharded, 4][1:-1]) == Fraction("9.5625") * GIB
    for template in (plain, sharded):
        held = sum(c.weight_bytes for c in made.costs[template, 4]) - made.tied_bytes[template]
        assert abs(held * 9 / GIB / Fraction("45.5625") - 1) < Fraction(2, 100)


def test_measured_memory_of_the_530b_model() -> None:
    """Korthikanti, figure 1: t = 8, 35 stages of 3 blocks."""
    weights = block(megatron(20480, 128, 105), tensor(8), sequence=2048).weight_bytes
    assert abs(3 * weights * 9 / GIB / Fraction("31.640625") - 1) < Fraction(1, 1000)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [1, 2, 4])
def test_gpt_block_weights(t: int) -> None:
    # Shoeybi, section 3: column-parallel QKV (3h^2 + 3h) and first MLP matrix (4h^2 + 4h), and the
    # row-parallel h^2 and 4h^2, are divided by t; their biases (2h) and two norms (4h) are not.
    h = 128
    by_hand = (12 * h * h + 7 * h) // t + 6 * h
    assert block(GPT, tensor(t)).weight_bytes == 2 * by_hand
    assert block(GPT, tensor(t)).expert_weight_bytes == 0


@pytest.mark.parametrize(("t", "kv"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_llama_block_weights_with_grouped_heads(t: int, kv: int) -> None:
    # Q and output h^2/t each; K and V one h x 16 matrix per local head, replicated for t > 4
    # (contract, section 2); three h x 640/t matrices; two RMSNorms of h.
    h, head = 256, 16
    by_hand = 2 * h * h // t + 2 * h * kv * head + 3 * h * 640 // t + 2 * h
    assert block(LLAMA, tensor(t)).weight_bytes == 2 * by_hand


def test_biases_follow_the_flags() -> None:
    plain = block(LLAMA, tensor(2)).weight_bytes
    with_attention = block({**LLAMA, "attention_bias": True}, tensor(2)).weight_bytes
    with_mlp = block({**LLAMA, "mlp_bias": True}, tensor(2)).weight_bytes
    assert with_attention - plain == 2 * ((256 + 2 * 64) // 2 + 256)  # QKV sharded, output not
    assert with_mlp - plain == 2 * (2 * 640 // 2 + 256)  # gate and up sharded, down not


def test_head_size_may_differ_from_hidden_over_heads() -> None:
    wide = block({**LLAMA, "head_dim": 32})
    assert wide.weight_bytes == 2 * (2 * 256 * 512 + 2 * 256 * 4 * 32 + 3 * 256 * 640 + 512)


def test_inner_size_of_gpt() -> None:
    h = 128
    change = (
        block({**GPT, "n_inner": 256}).weight_bytes - block({**GPT, "n_inner": None}).weight_bytes
    )
    assert change == -2 * 256 * (2 * h + 1)  # 512 is the default, 4h


@pytest.mark.parametrize("t", [1, 2, 4])
def test_embedding_and_head_weights(t: int) -> None:
    # Vocabulary-parallel (Shoeybi, section 3), padded to a multiple of 128t: 1000 -> 1024;
    # learned positions (64 x h) and final LayerNorm (2h) replicated.
    embedding, head = ends(GPT, tensor(t))
    assert embedding.weight_bytes == 2 * (1024 // t * 128 + 64 * 128)
    assert head.weight_bytes == 2 * (1024 // t * 128 + 2 * 128)
    first, last = ends(LLAMA, tensor(t))
    assert first.weight_bytes == 2 * (1024 // t * 256)
    assert last.weight_bytes == 2 * (1024 // t * 256 + 256)


def test_the_vocabulary_is_padded_for_the_tensor_degree() -> None:
    # 32000 = 250 * 128 divides by 128*2, not by 128*8 = 1024: 32768 / 8 rows a device.
    wide = {**LLAMA, "vocab_size": 32000}
    for t, rows in ((1, 32000), (2, 16000), (4, 8064), (8, 4096)):
        assert ends(wide, tensor(t))[0].weight_bytes == 2 * rows * 256


def test_tied_bytes() -> None:
    two = tensor(2)
    tied = table(GPT, ONE, two).tied_bytes
    assert tied == {ONE: 2 * 1024 * 128, two: 2 * 512 * 128}
    assert table({**GPT, "tie_word_embeddings": False}).tied_bytes == {ONE: 0}
    assert table(LLAMA).tied_bytes == {ONE: 0}
    assert table({**LLAMA, "tie_word_embeddings": True}).tied_bytes == {ONE: 2 * 1024 * 256}


def test_weights_do_not_depend_on_microbatch_sequence_or_context() -> None:
    expected = block(LLAMA).weight_bytes
    assert block(LLAMA, b=4).weight_bytes == expected
    assert block(LLAMA, sequence=128).weight_bytes == expected
    assert block(LLAMA, Template(context=4)).weight_bytes == expected
    assert block(LLAMA, tensor(2, sp=True)).weight_bytes == block(LLAMA, tensor(2)).weight_bytes


# --- kept bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("b", [1, 2])
@pytest.mark.parametrize("t", [1, 2, 4])
def test_gpt_activations(t: int, b: int) -> None:
    s, h, a = 64, 128, 4
    sbh = s * b * h
    core = 5 * a * s * s * b // t
    plain, sharded = tensor(t), tensor(t, sp=t > 1)
    # Korthikanti, equations 2 (no sequence parallelism) and 4 (with), and 6 (selective).
    cost = block(GPT, plain, b)
    assert cost.activation_bytes == sbh * 10 + sbh * 24 // t + core
    assert cost.selective_bytes == sbh * 10 + sbh * 24 // t
    assert cost.attention_core_bytes == core
    cost = block(GPT, sharded, b)
    assert cost.activation_bytes == sbh * 34 // t + core
    assert cost.selective_bytes == sbh * 34 // t


def test_gpt_without_dropout_keeps_no_masks() -> None:
    s, h, a = 64, 128, 4
    config = {**GPT, "attn_pdrop": 0.0, "resid_pdrop": 0, "embd_pdrop": 0.0}
    cost = block(config, tensor(2))
    assert cost.activation_bytes == 8 * s * h + 24 * s * h // 2 + 2 * a * s * s // 2
    assert ends(config)[0].activation_bytes == 8 * s


@pytest.mark.parametrize(("t", "kv"), [(1, 4), (4, 1), (8, 1)])
def test_llama_activations(t: int, kv: int) -> None:
    # Per token, 2 bytes each: inputs of two norms, of QKV and of the MLP (4h, replicated); Q (h/t);
    # K and V (16 per local head each); input of the output projection (h/t); gate, up and their
    # product (3*640/t). Core: softmax output of 16/t heads, no dropout.
    s, b, h = 64, 2, 256
    core = 2 * (16 // t) * s * s * b
    sharded = 2 * h // t + 2 * kv * 16 + 3 * 640 // t
    cost = block(LLAMA, tensor(t), b)
    assert cost.attention_core_bytes == core
    assert cost.selective_bytes == 2 * s * b * (4 * h + sharded)
    assert cost.activation_bytes == cost.selective_bytes + core
    if t > 1:
        cost = block(LLAMA, tensor(t, sp=True), b)
        assert cost.selective_bytes == 2 * s * b * (4 * h // t + sharded)


def test_attention_dropout_of_llama() -> None:
    with_dropout = block({**LLAMA, "attention_dropout": 0.1}).attention_core_bytes
    assert with_dropout == 5 * 16 * 64 * 64
    assert block({**LLAMA, "attention_dropout": 0.0}).attention_core_bytes == 2 * 16 * 64 * 64


def test_flash_attention_leaves_selective_recomputation_nothing_to_save() -> None:
    # Dao, section 3.1: a log-sum-exp per query and head, 4 bytes.
    cost = block(GPT, tensor(2), 2, flash=True)
    assert cost.attention_core_bytes == 4 * 2 * 64 * 2
    assert cost.selective_bytes == block(GPT, tensor(2), 2).selective_bytes
    assert cost.attention_core_bytes * 100 < cost.activation_bytes


def test_checkpoints_and_outputs() -> None:
    # Korthikanti, section 5: 2sbh per block, stored; with sequence parallelism each device has 1/t.
    s, b, h = 64, 2, 128
    for template, share in ((ONE, 1), (tensor(4), 1), (tensor(4, sp=True), 4)):
        made = table(GPT, template, microbatches=(b,))
        embedding, *blocks, head = made.costs[template, b]
        stream = 2 * s * b * h // share
        assert {c.checkpoint_bytes for c in (*blocks, head)} == {stream}
        assert {c.output_bytes for c in (embedding, *blocks)} == {stream}
        assert embedding.checkpoint_bytes == 8 * s * b  # token ids
        assert head.output_bytes == 0
        assert made.cut_bytes(template, b) == (0, *(4 * [stream]))


@pytest.mark.parametrize(("template", "share"), [(tensor(2), 1), (tensor(2, sp=True), 2)])
def test_embedding_and_head_activations(template: Template, share: int) -> None:
    # Korthikanti, section 4.3: dropout mask sbh; 4sbh for the inputs of final norm and projection,
    # logits 4sbv/t. Token ids are ours.
    s, b, h = 64, 2, 128
    embedding, head = ends(GPT, template, b)
    assert embedding.activation_bytes == s * b * h // share + 8 * s * b
    assert head.activation_bytes == 4 * s * b * h // share + 4 * s * b * 1024 // 2
    for cost in (embedding, head):
        assert cost.selective_bytes == cost.activation_bytes
        assert cost.attention_core_bytes == 0
        assert cost.recompute_selective == 0


def test_context_parallelism_divides_what_is_kept_and_sent() -> None:
    whole, part = block(LLAMA), block(LLAMA, Template(context=4))
    for field in (
        "activation_bytes",
        "selective_bytes",
        "attention_core_bytes",
        "checkpoint_bytes",
        "output_bytes",
    ):
        assert getattr(part, field) * 4 == getattr(whole, field), field


# --- collectives ----------------------------------------------------------------------------------


def calls(cost: LayerCost) -> set[tuple[str, str, str, int, int]]:
    return {(c.kind, c.axis, c.direction, int(c.bytes), c.count) for c in cost.calls}


def test_no_collectives_on_one_device() -> None:
    assert all(c.calls == () for c in table(GPT).costs[ONE, 1])


def test_collectives_of_tensor_parallelism() -> None:
    # Shoeybi, section 3: two all-reduces of the whole activation each way; the embedding's forward,
    # the head's backward; the loss's maximum, target logit and sum in 4 bytes.
    full = 2 * 64 * 2 * 128
    embedding, head = ends(GPT, tensor(4), 2)
    assert calls(block(GPT, tensor(4), 2)) == {
        ("all_reduce", "tensor", "forward", full, 2),
        ("all_reduce", "tensor", "backward", full, 2),
    }
    assert calls(embedding) == {("all_reduce", "tensor", "forward", full, 1)}
    assert calls(head) == {
        ("all_reduce", "tensor", "forward", 4 * 64 * 2, 3),
        ("all_reduce", "tensor", "backward", full, 1),
    }


def test_collectives_of_sequence_parallelism() -> None:
    # Korthikanti, section 4.2.2: four all-gathers and four reduce-scatters per block; the full
    # buffer is the same as without.
    full = 2 * 64 * 2 * 128
    template = tensor(4, sp=True)
    embedding, head = ends(GPT, template, 2)
    assert calls(block(GPT, template, 2)) == {
        (kind, "tensor", way, full, 2)
        for kind in ("all_gather", "reduce_scatter")
        for way in ("forward", "backward")
    }
    assert calls(embedding) == {
        ("reduce_scatter", "tensor", "forward", full, 1),
        ("all_gather", "tensor", "backward", full, 1),
    }
    assert calls(head) == {
        ("all_gather", "tensor", "forward", full, 1),
        ("all_reduce", "tensor", "forward", 4 * 64 * 2, 3),
        ("reduce_scatter", "tensor", "backward", full, 1),
    }


def test_collectives_of_context_parallelism() -> None:
    # Liu et al. (arXiv 2310.01889): K and V of one block; backward also their gradients. Two of
    # four key-value heads of 16 on each of t = 2, 64/4 tokens.
    template = tensor(2, context=4)
    ring = 2 * 2 * (64 // 4) * 2 * 16
    full = 2 * (64 // 4) * 256
    assert calls(block(LLAMA, template)) == {
        ("all_reduce", "tensor", "forward", full, 2),
        ("all_reduce", "tensor", "backward", full, 2),
        ("ring_pass", "context", "forward", ring, 1),
        ("ring_pass", "context", "backward", 2 * ring, 1),
    }
    embedding, head = ends(LLAMA, Template(context=4))
    assert embedding.calls == head.calls == ()


# --- time -----------------------------------------------------------------------------------------

#: So fast that what it does takes less than one second in total, yet not nothing.
INSTANT = 1e24


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("b", [1, 2])
def test_flops(t: int, b: int) -> None:
    # Narayanan, appendix: forward 24bsh^2 + 4bs^2h per block, 2bshv for the head; backward twice.
    s, h, v = 64, 128, 1024
    on = device(peak=1, bandwidth=INSTANT)
    cost = block(GPT, tensor(t), b, on=on)
    assert int(cost.forward) == (24 * b * s * h * h + 4 * b * s * s * h) // t
    assert int(cost.backward) == 2 * int(cost.forward)
    assert int(cost.recompute_selective) == 4 * b * s * s * h // t
    assert cost.recompute == cost.forward
    embedding, head = ends(GPT, tensor(t), b, on=on)
    assert int(head.forward) == 2 * b * s * h * v // t
    assert int(head.backward) == 4 * b * s * h * v // t
    assert 0 < embedding.forward < 1


def test_flops_of_grouped_heads_and_gated_mlp() -> None:
    # 2 FLOPs per weight of a matrix and token, and 4*s^2*h for the attention (K and V replicated).
    s, h = 64, 256
    for t, kv in ((1, 4), (8, 1)):
        matrices = 2 * h * h // t + 2 * h * kv * 16 + 3 * h * 640 // t
        cost = block(LLAMA, tensor(t), on=device(peak=1, bandwidth=INSTANT))
        assert int(cost.forward) == 2 * s * matrices + 4 * s * s * h // t


def test_flash_attention_computes_the_causal_half() -> None:
    # Dao, section 4.1: 4*s^2*d*heads / 2 forward, 2.5 times that backward.
    s, h = 64, 128
    on = device(peak=1, bandwidth=INSTANT)
    cost = block(GPT, on=on, flash=True)
    assert int(cost.forward) == 24 * s * h * h + 2 * s * s * h
    assert int(cost.backward) == 48 * s * h * h + 5 * s * s * h
    assert int(cost.recompute_selective) == 2 * s * s * h


def test_context_parallelism_divides_the_flops() -> None:
    on = device(peak=1, bandwidth=INSTANT)
    whole, part = block(LLAMA, on=on), block(LLAMA, Template(context=4), on=on)
    assert int(part.forward) * 4 == int(whole.forward)
    assert int(part.recompute_selective) * 4 == int(whole.recompute_selective)


def test_memory_traffic_of_a_gpt_block() -> None:
    # 2 bytes an element, every operand read once and every result written once.
    s, h, a = 64, 128, 4
    n, scores = s, a * s * s
    matmuls = sum(
        2 * (n * k + k * m + n * m) for k, m in ((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))
    )
    norms = 2 * (2 * 2 * n * h)
    gelu = 2 * 2 * n * 4 * h
    sums = 2 * (3 * 2 * n * h + n * h)  # residual sums with their dropout masks
    products = 2 * 2 * (2 * n * h + scores)
    softmax = 2 * 2 * scores
    dropout = 2 * 2 * scores + scores
    cost = block(GPT, on=device(peak=INSTANT, bandwidth=1))
    assert cost.recompute_selective == products + softmax + dropout
    assert cost.forward == matmuls + norms + gelu + sums + products + softmax + dropout
    # Backward: two products for each; norms, GELU and softmax read one operand more; gradients of
    # two branches meet at each residual sum.
    backward = 2 * matmuls + norms * 3 // 2 + gelu * 3 // 2
    backward += 2 * (3 * 2 * n * h + 2 * 2 * n * h + n * h)
    backward += 2 * products + softmax * 3 // 2 + dropout
    assert cost.backward == backward


def test_memory_traffic_of_a_llama_block() -> None:
    s, h, kv, i, a = 64, 256, 64, 640, 16
    matmuls = sum(
        2 * (s * k + k * m + s * m) for k, m in ((h, h + 2 * kv), (h, h), (h, 2 * i), (i, h))
    )
    other = 2 * (4 * s * h) + 6 * s * i + 4 * s * (h + kv) + 2 * (6 * s * h)
    core = 2 * 2 * (s * h + s * kv + a * s * s) + 4 * a * s * s
    cost = block(LLAMA, on=device(peak=INSTANT, bandwidth=1))
    assert cost.forward == matmuls + other + core
    # With flash attention no score is moved: Q, K, V in, output and statistics out.
    flash = block(LLAMA, on=device(peak=INSTANT, bandwidth=1), flash=True)
    assert flash.recompute_selective == 2 * (2 * s * h + 2 * s * kv) + 4 * a * s


def test_memory_traffic_of_embedding_and_head() -> None:
    s, h, v = 64, 128, 1024
    embedding, head = ends(GPT, on=device(peak=INSTANT, bandwidth=1))
    assert embedding.forward == 4 * s * h + 6 * s * h + 5 * s * h
    assert embedding.backward == 6 * s * h + 6 * s * h + 5 * s * h
    projection = 2 * (s * h + h * v + s * v)
    assert head.forward == 4 * s * h + projection + 18 * s * v
    assert head.backward == 6 * s * h + 2 * projection + 6 * s * v


def test_sequence_parallelism_shards_norms_and_dropouts() -> None:
    # Korthikanti, section 4.2.2. 12h + 7h forward bytes per token and half of them with t = 2.
    on = device(peak=INSTANT, bandwidth=1)
    saved = block(GPT, tensor(2), on=on).forward - block(GPT, tensor(2, sp=True), on=on).forward
    assert saved == (2 * 4 + 2 * 7) * 64 * 128 // 2


def test_each_kernel_takes_the_longer_of_arithmetic_and_traffic() -> None:
    # One FLOP and one byte per second: products are bound by arithmetic, all else by traffic.
    s, h, a = 64, 128, 4
    both = block(GPT, on=device(peak=1, bandwidth=1)).forward
    traffic = 2 * 4 * s * h + 16 * s * h + 2 * 7 * s * h + 4 * a * s * s + 5 * a * s * s
    assert both == 24 * s * h * h + 4 * s * s * h + traffic


def test_efficiencies_divide_the_rates() -> None:
    full = block(GPT, on=device(peak=1e12, bandwidth=1e11))
    less = block(
        GPT, on=device(peak=2e12, bandwidth=4e11, matmul_efficiency=0.5, memory_efficiency=0.25)
    )
    assert less == full


def test_time_does_not_scale_with_the_microbatch_where_weights_are_read_once() -> None:
    on = device(peak=INSTANT, bandwidth=1)
    made = table(GPT, microbatches=(1, 2), on=on)
    one, two = made.costs[ONE, 1][1], made.costs[ONE, 2][1]
    matrices = 2 * 12 * 128 * 128
    assert two.forward == 2 * one.forward - matrices
    assert two.activation_bytes == 2 * one.activation_bytes


# --- templates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "template", "sequence", "reason"),
    [
        (GPT, Template(expert=2), 64, "no experts"),
        (GPT, tensor(3), 64, "does not divide the 4 attention heads"),
        (GPT, tensor(8), 64, "does not divide the 4 attention heads"),
        ({**GPT, "n_inner": 510}, tensor(4), 64, "does not divide the MLP size 510"),
        (GPT, Template(context=3), 64, "does not divide the sequence of 64"),
        (GPT, tensor(4, sp=True), 62, "does not divide the sequence of 62"),
        (GPT, tensor(4, sp=True, context=32), 64, "a context share of 64"),
        (
            {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 16},
            tensor(4),
            64,
            "neither divides the 6 key-value heads nor is a multiple",
        ),
    ],
)
def test_templates_that_do_not_divide_are_skipped(
    config: dict[str, Any], template: Template, sequence: int, reason: str
) -> None:
    made = table(config, ONE, template, sequence=sequence)
    assert set(made.costs) == {(ONE, 1)}
    assert set(made.tied_bytes) == {ONE}
    ((skipped, why),) = made.skipped
    assert skipped == template
    assert reason in why


def test_the_uneven_sequence_matters_only_with_sequence_parallelism() -> None:
    assert table(GPT, tensor(4), sequence=62).skipped == ()


def test_a_model_that_fits_no_template_has_an_empty_table() -> None:
    made = table(GPT, tensor(3))
    assert not made.costs
    assert len(made.skipped) == 1


# --- shape of the table ---------------------------------------------------------------------------


def test_names_and_consumers() -> None:
    made = table(GPT)
    assert made.names == ("embedding", "block.0", "block.1", "block.2", "head")
    assert made.consumers == (1, 2, 3, 4, 4)


def test_blocks_share_one_object_per_template_and_microbatch() -> None:
    made = table(GPT, ONE, tensor(2), microbatches=(1, 2))
    assert set(made.costs) == {(t, b) for t in (ONE, tensor(2)) for b in (1, 2)}
    for costs in made.costs.values():
        assert len(costs) == 5
        assert len({id(c) for c in costs[1:-1]}) == 1
        assert len({id(c) for c in costs}) == 3


def test_everything_is_exact_and_the_same_every_time() -> None:
    on = device(peak=0.1, bandwidth=0.3, matmul_efficiency=0.7)
    templates = (ONE, tensor(2), tensor(4, sp=True), tensor(2, context=2))
    made = table(LLAMA, *templates, microbatches=(1, 3), on=on)
    assert made == table(LLAMA, *templates, microbatches=(1, 3), on=on)
    for costs in made.costs.values():
        for cost in costs:
            for field in fields(LayerCost):
                value: Any = getattr(cost, field.name)
                if field.name == "calls":
                    assert all(type(c) is Call and type(c.bytes) is Fraction for c in value)
                elif field.name == "cut_bytes":
                    assert value is None  # cuts follow from the outputs
                else:
                    assert type(value) is Fraction, field.name
                    assert value >= 0, field.name
    assert all(type(x) is Fraction for x in made.tied_bytes.values())
    # A decimal efficiency is taken as written.
    flops = block(GPT, on=device(peak=1, bandwidth=INSTANT, matmul_efficiency=0.7))
    plain = block(GPT, on=device(peak=1, bandwidth=INSTANT))
    matmuls = 24 * 64 * 128 * 128 + 4 * 64 * 64 * 128
    assert flops.forward - plain.forward == matmuls * (Fraction(10, 7) - 1)


# --- bad configs ----------------------------------------------------------------------------------


def without(config: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k != name}


@pytest.mark.parametrize(
    ("config", "field", "message"),
    [
        (without(LLAMA, "model_type"), "model_type", "missing; supported are bert, deepseek_v2"),
        ({**LLAMA, "model_type": "t5"}, "model_type", "not supported; supported are bert"),
        ({**LLAMA, "model_type": ["llama"]}, "model_type", "not supported"),
        ({}, "model_type", "missing"),
        (without(LLAMA, "hidden_size"), "hidden_size", "missing"),
        ({**LLAMA, "hidden_size": None}, "hidden_size", "missing"),
        ({**LLAMA, "hidden_size": "256"}, "hidden_size", "whole number"),
        ({**LLAMA, "hidden_size": 256.0}, "hidden_size", "whole number"),
        ({**LLAMA, "hidden_size": True}, "hidden_size", "whole number"),
        ({**LLAMA, "hidden_size": [256]}, "hidden_size", "whole number"),
        ({**LLAMA, "hidden_size": -256}, "hidden_size", "at least 1"),
        ({**LLAMA, "vocab_size": 0}, "vocab_size", "at least 1"),
        ({**LLAMA, "intermediate_size": 10**7 + 1}, "intermediate_size", "at most 10000000"),
        ({**LLAMA, "num_hidden_layers": 4095}, "num_hidden_layers", "at most 4094"),
        ({**LLAMA, "num_attention_heads": 15}, "num_attention_heads", "divide hidden_size = 256"),
        ({**LLAMA, "num_key_value_heads": 5}, "num_key_value_heads", "divide num_attention_heads"),
        ({**LLAMA, "num_key_value_heads": 32}, "num_key_value_heads", "divide num_attention_heads"),
        ({**LLAMA, "head_dim": 0}, "head_dim", "at least 1"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "tie_word_embeddings", "true or false"),
        ({**LLAMA, "attention_bias": 1}, "attention_bias", "true or false"),
        ({**LLAMA, "attention_dropout": 1.5}, "attention_dropout", "probability"),
        ({**LLAMA, "attention_dropout": float("nan")}, "attention_dropout", "probability"),
        ({**LLAMA, "num_local_experts": 8}, "num_local_experts", "mixtures of experts"),
        ({**LLAMA, "n_routed_experts": 64}, "n_routed_experts", "mixtures of experts"),
        ({**LLAMA, "model_type": "mistral", "sliding_window": 0}, "sliding_window", "at least 1"),
        (
            {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": "32"},
            "sliding_window",
            "whole number",
        ),
        (without(GPT, "n_embd"), "n_embd", "missing"),
        ({**GPT, "n_head": 3}, "n_head", "divide n_embd = 128"),
        ({**GPT, "n_layer": 10**6}, "n_layer", "at most 4094"),
        ({**GPT, "n_inner": -1}, "n_inner", "at least 1"),
        ({**GPT, "n_positions": 63}, "n_positions", "learned positions end before"),
        ({**GPT, "resid_pdrop": "0.1"}, "resid_pdrop", "probability"),
        ({**GPT, "embd_pdrop": -0.1}, "embd_pdrop", "probability"),
        ({**GPT, "add_cross_attention": True}, "add_cross_attention", "cross attention"),
    ],
)
def test_bad_configs(config: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        table(config)
    (complaint,) = caught.value.complaints
    assert complaint.field == f"model.config.{field}"
    assert message in complaint.message
    assert len(str(complaint)) < 250
    assert caught.value.exit_status == 2


def test_all_complaints_at_once() -> None:
    with pytest.raises(InputError) as caught:
        table({"model_type": "gpt2", "n_embd": "x", "n_head": 0, "n_inner": 1.5})
    found = {c.field.removeprefix("model.config.") for c in caught.value.complaints}
    assert found == {"n_embd", "n_head", "n_inner", "n_positions", "n_layer", "vocab_size"}
    assert len(caught.value.complaints) == len(found)


def test_long_values_are_shortened() -> None:
    with pytest.raises(InputError) as caught:
        table({**LLAMA, "hidden_size": "9" * 10_000})
    assert len(str(caught.value)) < 250


def test_fields_that_do_not_matter_are_ignored() -> None:
    extra = {
        "architectures": ["LlamaForCausalLM"],
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        "torch_dtype": "bfloat16",
        "num_local_experts": None,
        "sliding_window": None,
    }
    assert table({**LLAMA, **extra}) == table(LLAMA)


def test_missing_key_value_heads_of_llama_mean_one_per_head() -> None:
    expected = block({**LLAMA, "num_key_value_heads": 16})
    assert block(without(LLAMA, "num_key_value_heads")) == expected


@pytest.mark.parametrize("own", [False, True])
def test_a_device_without_a_roofline_is_refused(own: bool) -> None:
    bare = Device(name="bare", memory_bytes=GIB)
    with pytest.raises(InputError) as caught:
        table_of_config(model(GPT, device=bare if own else None), bare, (ONE,), (1,))
    owner = "model.device" if own else "cluster.device"
    assert [c.field for c in caught.value.complaints] == [
        f"{owner}.peak_flops_per_second",
        f"{owner}.memory_bytes_per_second",
    ]
