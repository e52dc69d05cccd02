"""Blocks of every family against calculations done by hand.

In the comments: s sequence, h hidden, t tensor, c context, e expert degree, n = s*b/c tokens on a
device, r = n/t of them with sequence parallelism. "Korthikanti" is arXiv 2205.05198, "Shoeybi"
arXiv 1909.08053, "Dao" arXiv 2307.08691, "Lepikhin" arXiv 2006.16668, "Fedus" arXiv 2101.03961,
"DeepSeek-V2" arXiv 2405.04434, "DeepSeekMoE" arXiv 2401.06066.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from nest_opt.compile import compile_problem
from nest_opt.estimate.table import LayerCost, LayerTable
from nest_opt.estimate.transformer import table_of_config
from nest_opt.library import load_problem
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, Device

ONE = Template()
#: So fast that what it does takes less than one second in total, yet not nothing.
INSTANT = 1e24
TEMPLATES = [Template(), Template(2), Template(4, sequence_parallel=True), Template(2, context=4)]


def device(peak: float = 1e12, bandwidth: float = 1e11) -> Device:
    return Device(
        name="d",
        memory_bytes=2**30,
        peak_flops_per_second=peak,
        memory_bytes_per_second=bandwidth,
    )


def table(
    config: dict[str, Any],
    template: Template = ONE,
    *,
    b: int = 1,
    sequence: int = 64,
    on: Device | None = None,
    **more: Any,
) -> LayerTable:
    found = ConfigModel(kind="config", name="m", sequence_length=sequence, config=config, **more)
    return table_of_config(found, on or device(), (template,), (b,))


def layers(config: dict[str, Any], template: Template = ONE, **more: Any) -> dict[str, LayerCost]:
    made = table(config, template, **more)
    return dict(zip(made.names, made.costs[template, more.get("b", 1)], strict=True))


def block(config: dict[str, Any], template: Template = ONE, at: int = 0, **more: Any) -> LayerCost:
    return layers(config, template, **more)[f"block.{at}"]


def calls(cost: LayerCost) -> set[tuple[str, str, str, int, int]]:
    return {(c.kind, c.axis, c.direction, int(c.bytes), c.count) for c in cost.calls}


LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 640,
    "vocab_size": 1024,
}
MIXTRAL = {
    **LLAMA,
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
SHARED = {
    **LLAMA,
    "model_type": "qwen2_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 320,
}
DEEPSEEK = {
    "model_type": "deepseek_v2",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 640,
    "vocab_size": 1024,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
GEMMA2 = {
    **LLAMA,
    "model_type": "gemma2",
    "head_dim": 16,
    "sliding_window": 16,
    "num_hidden_layers": 4,
}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 1024,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "vocab_size": 1000,
}
GPT = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 1024,
}
EVERY = {
    "llama": LLAMA,
    "mixtral": MIXTRAL,
    "qwen2_moe": SHARED,
    "deepseek": DEEPSEEK,
    "gemma2": GEMMA2,
    "neox": NEOX,
    "bert": BERT,
    "gpt2": GPT,
}


def gqa_weights(t: int) -> int:
    """Shoeybi, section 3: Q and output h*h/t, K and V 16 columns for each of 4/t heads; a norm."""
    return 2 * 256 * 256 // t + 2 * 256 * 16 * max(4 // t, 1) + 256


def gqa_kept(t: int, share: int) -> int:
    """Korthikanti, section 4.1, per token: inputs of norm and products, Q, K, V and output."""
    return 2 * (2 * 256 // share + 2 * 256 // t + 2 * 16 * max(4 // t, 1))


# --- mixtures of experts --------------------------------------------------------------------------


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("e", [1, 2, 8])
def test_expert_weights(t: int, e: int) -> None:
    # Jiang et al. (arXiv 2401.04088), section 2.1: experts are gated MLPs, three h x 640 matrices;
    # 8/e on a rank, each divided by t. The router, h x 8, and the other norm are replicated.
    cost = block(MIXTRAL, Template(t, expert=e))
    assert cost.expert_weight_bytes == 2 * (8 // e) * 3 * 256 * 640 // t
    assert cost.weight_bytes == 2 * (gqa_weights(t) + 256 * 8 + 256)


@pytest.mark.parametrize("t", [1, 2])
def test_shared_expert_weights(t: int) -> None:
    # Qwen2: QKV bias; a gated MLP of 320 for every token, sharded by t, and its gate, h.
    cost = block(SHARED, Template(t, expert=4))
    bias = (256 + 2 * 64) // t
    dense = gqa_weights(t) + bias + 256 * 8 + 256 + 3 * 256 * 320 // t + 256
    assert cost.weight_bytes == 2 * dense
    assert cost.expert_weight_bytes == 2 * 2 * 3 * 256 * 128 // t


@pytest.mark.parametrize(("b", "factor"), [(1, 1.0), (2, 1.25), (1, 0.3)])
@pytest.mark.parametrize("e", [1, 4])
@pytest.mark.parametrize(("t", "sp"), [(1, False), (2, False), (2, True)])
def test_expert_activations(t: int, sp: bool, e: int, b: int, factor: float) -> None:
    # Two experts for each token, balanced: 2*f*n rows whatever e (Lepikhin, section 3; Fedus,
    # section 2.2). Per row: input 2h, gate, up and product 6*640/t, output 2h, the latter of the
    # rows that this tensor rank sent. Scores of 8 experts in 4 bytes, two choices of 4 + 8.
    n = 64 * b
    r = n // t if sp else n
    rows = -(-2 * n * Fraction(repr(factor)).numerator // Fraction(repr(factor)).denominator)
    sent = -(-rows // t) if sp and e > 1 else rows
    by_hand = n * gqa_kept(t, t if sp else 1) + r * (4 * 256) + r * (4 * 8 + 12 * 2)
    by_hand += rows * (2 * 256 + 6 * 640 // t) + sent * 2 * 256
    cost = block(MIXTRAL, Template(t, 1, e, sp), b=b, capacity_factor=factor)
    assert cost.selective_bytes == by_hand
    assert cost.checkpoint_bytes == cost.output_bytes == 2 * r * 256


def test_shared_expert_activations() -> None:
    # A dense MLP of 320 (6*320/t), and the output that its gate scales (2h).
    with_shared = block(SHARED, Template(2))
    without = block({**SHARED, "shared_expert_intermediate_size": 0}, Template(2))
    kept = with_shared.activation_bytes - without.activation_bytes
    assert kept == 64 * (6 * 320 // 2 + 2 * 256)
    weights = with_shared.weight_bytes - without.weight_bytes
    assert weights == 2 * (3 * 256 * 320 // 2 + 256)


def test_memory_traffic_of_a_mixture() -> None:
    # 2 bytes an element: router n x h by h x 8; tokens to 2n rows and back, both read and written;
    # two grouped products that read the weights of all 8 experts; the gated activation reads two
    # and writes one; a norm, and a residual sum.
    n, h, i, rows = 64, 256, 640, 128
    moved = n * h + h * 8 + n * 8 + 2 * (n + rows) * h
    products = (rows * h + 8 * h * 2 * i + rows * 2 * i) + (rows * i + 8 * i * h + rows * h)
    forward = 2 * (moved + products + 3 * rows * i + 2 * n * h + 3 * n * h)
    on = device(peak=INSTANT, bandwidth=1)
    cost = layers(MIXTRAL, on=on, granularity="half")["block.0.mlp"]
    assert cost.forward == forward
    # Backward: each product twice; the way back reads the experts' outputs once more; activation
    # and norm read one side more.
    router = n * h + h * 8 + n * 8
    backward = forward + 2 * (router + products + rows * h + 2 * rows * i + n * h)
    assert cost.backward == backward


@pytest.mark.parametrize("e", [1, 2, 8])
@pytest.mark.parametrize("t", [1, 2])
def test_flops_of_experts_do_not_depend_on_the_expert_degree(t: int, e: int) -> None:
    # Two gated experts for each token: 6*h*640/t multiply-adds, twice FLOPs; router h*8; attention
    # as in Llama: 2n(2h*h + 2h*64)/t and 4*s*s*h/t.
    s, h = 64, 256
    on = device(peak=1, bandwidth=INSTANT)
    products = 2 * s * (h * h + 2 * h * 64 + h * h) // t + 4 * s * s * h // t
    experts = 2 * (2 * s) * 3 * h * 640 // t
    cost = block(MIXTRAL, Template(t, expert=e), on=on)
    assert int(cost.forward) == products + experts + 2 * s * h * 8
    assert int(cost.backward) == 2 * int(cost.forward)


def test_fewer_experts_on_a_rank_read_fewer_weights() -> None:
    on = device(peak=INSTANT, bandwidth=1)
    one, four = (block(MIXTRAL, Template(expert=e), on=on) for e in (1, 4))
    assert one.forward - four.forward == 2 * 6 * 3 * 256 * 640


def test_dispatch_and_combine() -> None:
    # Lepikhin, section 3: an all-to-all to the experts and one back, each 2 bytes of 2*f*n rows
    # of h; the same backward. Without tensor parallelism nothing else is sent.
    rows = 2 * 64 * 2
    assert calls(block(MIXTRAL, Template(expert=4), b=2)) == {
        ("all_to_all", "expert", "forward", 2 * rows * 256, 2),
        ("all_to_all", "expert", "backward", 2 * rows * 256, 2),
    }
    assert block(MIXTRAL).calls == ()
    half = block(MIXTRAL, Template(expert=4), b=2, capacity_factor=0.5)
    assert {c.bytes for c in half.calls} == {rows * 256}


def test_dispatch_beside_tensor_parallelism() -> None:
    # Every tensor rank sends all tokens; the sharded experts' outputs are summed as a dense MLP's.
    full, rows = 2 * 64 * 256, 2 * 64
    assert calls(block(MIXTRAL, Template(2, expert=4))) == {
        ("all_reduce", "tensor", "forward", full, 2),
        ("all_reduce", "tensor", "backward", full, 2),
        ("all_to_all", "expert", "forward", 2 * rows * 256, 2),
        ("all_to_all", "expert", "backward", 2 * rows * 256, 2),
    }


def test_dispatch_of_sequence_shards() -> None:
    # Megatron-LM's all-to-all dispatcher: a rank sends the rows of its n/t tokens; those that
    # arrive are gathered over the tensor group, and reduced after the experts.
    full, rows = 2 * 64 * 256, 2 * 64
    expected = {
        ("all_to_all", "expert", way, 2 * rows * 256 // 2, 2) for way in ("forward", "backward")
    }
    for way in ("forward", "backward"):
        for kind in ("all_gather", "reduce_scatter"):
            expected |= {
                (kind, "tensor", way, full, 1),  # attention
                (kind, "tensor", way, 2 * rows * 256, 1),  # experts
            }
    template = Template(2, expert=4, sequence_parallel=True)
    assert calls(block(MIXTRAL, template)) == expected
    # A shared expert is dense, and needs all tokens of the group.
    shared = {c for c in calls(block(SHARED, template)) if c[1] == "tensor" and c[3] == full}
    assert {c[4] for c in shared} == {2}
    # Without an expert axis there is no dispatch: tokens are gathered as for a dense MLP.
    alone = Template(2, sequence_parallel=True)
    assert calls(block(MIXTRAL, alone)) == calls(block(LLAMA, alone))


def test_expert_and_context_parallelism_together() -> None:
    template = Template(context=4, expert=2)
    whole, part = block(MIXTRAL, Template(expert=2)), block(MIXTRAL, template)
    assert part.activation_bytes * 4 == whole.activation_bytes
    assert part.expert_weight_bytes == whole.expert_weight_bytes
    ring = 2 * 2 * 16 * 64
    assert calls(part) == {
        ("all_to_all", "expert", "forward", 2 * 2 * 16 * 256, 2),
        ("all_to_all", "expert", "backward", 2 * 2 * 16 * 256, 2),
        ("ring_pass", "context", "forward", ring, 1),
        ("ring_pass", "context", "backward", 2 * ring, 1),
    }


@pytest.mark.parametrize(
    ("config", "template", "reason"),
    [
        (MIXTRAL, Template(expert=3), "expert degree 3 does not divide the 8 experts"),
        (MIXTRAL, Template(expert=16), "expert degree 16 does not divide the 8 experts"),
        (DEEPSEEK, Template(8, expert=32), "expert degree 32 does not divide the 16 experts"),
        ({**SHARED, "moe_intermediate_size": 129}, Template(2), "expert size 129"),
        ({**SHARED, "shared_expert_intermediate_size": 321}, Template(2), "shared expert size 321"),
        (LLAMA, Template(expert=2), "the model has no experts"),
        (BERT, Template(expert=2), "the model has no experts"),
    ],
)
def test_templates_that_do_not_divide(
    config: dict[str, Any], template: Template, reason: str
) -> None:
    ((skipped, why),) = table(config, template).skipped
    assert skipped == template
    assert reason in why


# --- latent attention -----------------------------------------------------------------------------

#: Heads 8; a key of 16 + 8 features, a value of 20; latents of 48 for queries and 32.
KEY, VALUE, QUERY_RANK, RANK, ROPE = 24, 20, 48, 32, 8


@pytest.mark.parametrize("t", [1, 2, 8])
def test_latent_attention_weights(t: int) -> None:
    # DeepSeek-V2, appendix C: down to 48 and to 32 + 8, replicated, with norms of 48 and
    # 32; up to 8*24 queries and 8*(16 + 20) keys and values, and the output 8*20, divided by t.
    h, a = 256, 8 // t
    attention = h * QUERY_RANK + QUERY_RANK + QUERY_RANK * a * KEY
    attention += h * (RANK + ROPE) + RANK + RANK * a * (16 + VALUE) + a * VALUE * h + h
    dense = attention + 3 * h * 640 // t + h
    assert block(DEEPSEEK, Template(t)).weight_bytes == 2 * dense
    # Without compressed queries: one h x 8*24 matrix.
    plain = block({**DEEPSEEK, "q_lora_rank": None}, Template(t)).weight_bytes
    change = h * a * KEY - (h * QUERY_RANK + QUERY_RANK + QUERY_RANK * a * KEY)
    assert plain - 2 * dense == 2 * change
    # Routed experts 16 of 64, shared ones 2 of 64 as one, router h x 16.
    sparse = block(DEEPSEEK, Template(t), at=1)
    assert sparse.weight_bytes == 2 * (attention + h * 16 + 3 * h * 128 // t + h)
    assert sparse.expert_weight_bytes == 2 * 16 * 3 * h * 64 // t


@pytest.mark.parametrize(("t", "sp"), [(1, False), (4, False), (4, True)])
def test_latent_attention_activations(t: int, sp: bool) -> None:
    # Per token, 2 bytes each: inputs of norms and products (4h over r), each latent before and
    # after its norm (over r), Q and K of 24, V and output of 20 for each of 8/t heads; MLP 3*640/t.
    s, h, a = 64, 256, 8 // t
    r = s // t if sp else s
    by_hand = 2 * r * (4 * h + 2 * QUERY_RANK + 2 * RANK)
    by_hand += 2 * s * (2 * a * KEY + 2 * a * VALUE + 3 * 640 // t)
    cost = block(DEEPSEEK, Template(t, sequence_parallel=sp))
    assert cost.selective_bytes == by_hand
    assert cost.attention_core_bytes == 2 * a * s * s


def test_latent_attention_flops() -> None:
    # Projections as their weights, 2 FLOPs each; the core's two products over 24 and 20 features.
    s, h = 64, 256
    on = device(peak=1, bandwidth=INSTANT)
    weights = h * QUERY_RANK + QUERY_RANK * 8 * KEY + h * (RANK + ROPE)
    weights += RANK * 8 * (16 + VALUE) + 8 * VALUE * h + 3 * h * 640
    cost = block(DEEPSEEK, on=on)
    assert int(cost.forward) == 2 * s * weights + 2 * 8 * s * s * (KEY + VALUE)
    # Dao, section 4.1: the causal half; backward S, dQ and dK over keys, dP and dV over values.
    cost = block(DEEPSEEK, on=on, flash_attention=True)
    assert int(cost.recompute_selective) == 8 * s * s * (KEY + VALUE)
    assert int(cost.backward) == 4 * s * weights + 8 * s * s * (3 * KEY + 2 * VALUE)


def test_latents_cross_the_tensor_group() -> None:
    # Megatron-LM: down projections replicated on r tokens, then latents of 48 and of 32 + 8 are
    # gathered; the output and the MLP (h both) as ever.
    size = 2 * 64
    template = Template(4, sequence_parallel=True)
    assert calls(block(DEEPSEEK, template)) == {
        ("all_gather", "tensor", "forward", size * QUERY_RANK, 1),
        ("all_gather", "tensor", "forward", size * (RANK + ROPE), 1),
        ("all_gather", "tensor", "forward", size * 256, 1),
        ("reduce_scatter", "tensor", "forward", size * 256, 2),
        ("all_gather", "tensor", "backward", size * 256, 2),
        ("reduce_scatter", "tensor", "backward", size * QUERY_RANK, 1),
        ("reduce_scatter", "tensor", "backward", size * (RANK + ROPE), 1),
        ("reduce_scatter", "tensor", "backward", size * 256, 1),
    }
    assert calls(block(DEEPSEEK, Template(4))) == {
        ("all_reduce", "tensor", "forward", size * 256, 2),
        ("all_reduce", "tensor", "backward", size * QUERY_RANK, 1),
        ("all_reduce", "tensor", "backward", size * (RANK + ROPE), 1),
        ("all_reduce", "tensor", "backward", size * 256, 1),
    }
    ring = 2 * 16 * (8 * KEY + 8 * VALUE)
    assert ("ring_pass", "context", "forward", ring, 1) in calls(
        block(DEEPSEEK, Template(context=4))
    )


# --- windows, soft caps, norms --------------------------------------------------------------------


def test_a_window_shortens_flash_attention() -> None:
    # Of s*s scores a causal mask leaves s*s/2, a window of w leaves w*s - w*w/2.
    s, h, w = 64, 256, 16
    on = device(peak=1, bandwidth=INSTANT)
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": w}
    cost = block(mistral, on=on, flash_attention=True)
    assert int(cost.recompute_selective) == 4 * (w * s - w * w // 2) * h
    whole = block({**mistral, "sliding_window": s}, on=on, flash_attention=True)
    assert int(whole.recompute_selective) == 2 * s * s * h
    # Otherwise the square is computed and masked.
    assert block(mistral) == block(LLAMA)


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({**GEMMA2}, "10101010"),
        ({**GEMMA2, "model_type": "gemma3_text"}, "11111011"),
        ({**GEMMA2, "model_type": "gemma3_text", "sliding_window_pattern": 2}, "10101010"),
        ({**GEMMA2, "model_type": "gemma3_text", "_sliding_window_pattern": 4}, "11101110"),
        ({**GEMMA2, "sliding_window": None}, "00000000"),
        ({**GEMMA2, "layer_types": 4 * ["full_attention", "sliding_attention"]}, "01010101"),
        ({**LLAMA, "model_type": "mistral", "sliding_window": 16}, "11111111"),
        ({**LLAMA, "model_type": "mistral", "sliding_window": None}, "00000000"),
        ({**LLAMA, "model_type": "mistral"}, "00000000"),  # 4096 by default, the sequence is 64
        ({**LLAMA, "model_type": "qwen2", "sliding_window": 16}, "00000000"),
        (
            {
                **LLAMA,
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 6,
            },
            "00000011",
        ),
        (
            {
                **SHARED,
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            "10100000",
        ),
    ],
)
def test_which_blocks_have_windows(config: dict[str, Any], windows: str) -> None:
    found = layers({**config, "num_hidden_layers": 8}, flash_attention=True)
    full = max(found[f"block.{i}"].recompute_selective for i in range(8))
    if "0" not in windows:
        full = block({**config, "sliding_window": 64}, flash_attention=True).recompute_selective
    short = [found[f"block.{i}"].recompute_selective < full for i in range(8)]
    assert "".join("1" if x else "0" for x in short) == windows
    assert len({id(found[f"block.{i}"]) for i in range(8)}) == len(set(windows))


def test_gemma_has_norms_on_both_sides_and_soft_caps() -> None:
    # Gemma Team 2024 (arXiv 2408.00118), section 2: four RMSNorms a block; those on the outputs
    # keep their inputs, 2*s*h each. The capped scores are kept beside the softmax output.
    gemma, plain = block(GEMMA2), block(LLAMA)
    assert gemma.weight_bytes - plain.weight_bytes == 2 * 2 * 256
    assert gemma.selective_bytes - plain.selective_bytes == 2 * 2 * 64 * 256
    assert gemma.attention_core_bytes == 2 * plain.attention_core_bytes
    on = device(peak=INSTANT, bandwidth=1)
    norms, scores = 2 * 4 * 64 * 256, 2 * 2 * 16 * 64 * 64
    assert block(GEMMA2, on=on).forward - block(LLAMA, on=on).forward == norms + scores
    uncapped = {**GEMMA2, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    assert block(uncapped).attention_core_bytes == plain.attention_core_bytes
    heads = [layers(c, on=on)["head"].forward for c in (GEMMA2, uncapped)]
    assert heads[0] - heads[1] == 2 * 2 * 64 * 1024
    assert table(GEMMA2).tied_bytes[ONE] == 2 * 1024 * 256


def test_norms_of_heads() -> None:
    # Qwen3 (arXiv 2505.09388, section 2): an RMSNorm of 16 over each head of Q and of K, which
    # keep their inputs.
    qwen3 = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
    for t in (1, 2):
        normed, plain = block(qwen3, Template(t)), block(LLAMA, Template(t))
        assert normed.weight_bytes - plain.weight_bytes == 2 * 2 * 16
        assert normed.selective_bytes - plain.selective_bytes == 2 * 64 * (256 + 64) // t


def test_neox_block() -> None:
    # Black et al. 2022 (arXiv 2204.06745), section 2.1: attention and MLP in parallel, so that both
    # norms keep one input; a quarter of each head is rotated; no dropout. Weights as in GPT-2.
    s, h, a = 64, 128, 4
    cost = block(NEOX)
    assert cost.weight_bytes == 2 * (12 * h * h + 13 * h)
    assert cost.selective_bytes == 2 * s * h * (3 + 3 + 1 + 8)
    assert cost.attention_core_bytes == 2 * a * s * s
    serial = block({**NEOX, "use_parallel_residual": False})
    assert serial.activation_bytes - cost.activation_bytes == 2 * s * h
    on = device(peak=INSTANT, bandwidth=1)
    without = block({**NEOX, "rotary_pct": 0}, on=on)
    assert block(NEOX, on=on).forward - without.forward == 2 * 2 * s * 2 * h // 4


# --- BERT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [1, 2])
def test_bert_block_and_ends(t: int) -> None:
    # Devlin et al. 2018 (arXiv 1810.04805). A block weighs and keeps what a GPT block does
    # (Korthikanti, equation 2: its norms come after, and keep as much).
    s, h, a, v = 64, 128, 4, 1024
    bert, gpt = layers(BERT, Template(t)), layers(GPT, Template(t))
    assert bert["block.0"].weight_bytes == gpt["block.0"].weight_bytes
    assert bert["block.0"].activation_bytes == s * h * (10 + 24 // t) + 5 * a * s * s // t
    # Embedding: words, 64 positions, two types, a norm; ids of tokens and types, the norm's input
    # and the dropout's mask.
    embedding, head = bert["embedding"], bert["head"]
    assert embedding.weight_bytes == 2 * (v // t * h + (64 + 2) * h + 2 * h)
    assert embedding.activation_bytes == 16 * s + 2 * s * h + s * h
    assert embedding.checkpoint_bytes == 16 * s
    # Head: h x h with bias and a norm, replicated; words and their bias; inputs of four.
    assert head.weight_bytes == 2 * (h * h + h + 2 * h + v // t * (h + 1))
    assert head.activation_bytes == 4 * 2 * s * h + 4 * s * v // t
    assert table(BERT, Template(t)).tied_bytes[Template(t)] == 2 * v // t * h


def test_an_encoder_attends_to_both_sides() -> None:
    s, h = 64, 128
    on = device(peak=1, bandwidth=INSTANT)
    for config, products in ((BERT, 4 * s * s * h), ({**BERT, "is_decoder": True}, 2 * s * s * h)):
        cost = block(config, on=on, flash_attention=True)
        assert int(cost.recompute_selective) == products
        assert int(cost.forward) == 24 * s * h * h + products


# --- halves, kinds --------------------------------------------------------------------------------

ADDED = (
    "forward",
    "backward",
    "recompute",
    "recompute_selective",
    "weight_bytes",
    "expert_weight_bytes",
    "activation_bytes",
    "selective_bytes",
    "attention_core_bytes",
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.label)
@pytest.mark.parametrize("config", EVERY.values(), ids=EVERY)
def test_halves_add_up_to_blocks(config: dict[str, Any], template: Template) -> None:
    whole, half = layers(config, template), layers(config, template, granularity="half")
    shared = config["model_type"] == "gpt_neox"  # halves in parallel each keep the shared input
    for name in [n for n in whole if n.startswith("block")]:
        first, second = half[f"{name}.attention"], half[f"{name}.mlp"]
        for field in ADDED:
            twice = shared and field in ("activation_bytes", "selective_bytes")
            extra = whole[name].checkpoint_bytes if twice else 0
            total = getattr(first, field) + getattr(second, field)
            assert total == getattr(whole[name], field) + extra, field
        total_bytes = sum(c.bytes * c.count for c in whole[name].calls)
        assert sum(c.bytes * c.count for c in first.calls + second.calls) == total_bytes
        assert second.attention_core_bytes == 0
        assert first.expert_weight_bytes == 0
    assert whole["embedding"] == half["embedding"]
    assert whole["head"] == half["head"]
    assert [n for n in half if not n.startswith("block")] == ["embedding", "head"]


def test_names_and_cuts_of_halves() -> None:
    made = table(LLAMA, granularity="half")
    assert made.names == (
        "embedding",
        "block.0.attention",
        "block.0.mlp",
        "block.1.attention",
        "block.1.mlp",
        "head",
    )
    assert made.consumers == (1, 2, 3, 4, 5, 5)
    stream = 2 * 64 * 256
    assert made.cut_bytes(ONE, 1) == (0, *(5 * [stream]))
    # In parallel, the MLP half needs the block's input beside what attention has added to it.
    made = table(NEOX, granularity="half")
    assert made.consumers == (2, 2, 4, 4, 6, 6, 7, 7)
    stream = 2 * 64 * 128
    assert made.cut_bytes(ONE, 1) == tuple(x * stream for x in (0, 1, 2, 1, 2, 1, 2, 1))


def test_equal_blocks_share_one_object() -> None:
    found = layers(DEEPSEEK)
    assert found["block.0"] is not found["block.1"]
    assert found["block.1"] is found["block.2"] is found["block.3"]
    assert len({id(c) for c in found.values()}) == 4
    sparse = [
        n for n, c in layers({**DEEPSEEK, "moe_layer_freq": 2}).items() if c.expert_weight_bytes
    ]
    assert sparse == ["block.2"]
    qwen = {**SHARED, "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    assert [n for n, c in layers(qwen).items() if c.expert_weight_bytes] == ["block.1", "block.5"]


def test_capacity_and_granularity_are_validated() -> None:
    for field, value in (("capacity_factor", 0), ("capacity_factor", 1e4), ("granularity", "op")):
        with pytest.raises(ValidationError, match=field):
            ConfigModel.model_validate(
                {"kind": "config", "name": "m", "sequence_length": 1, "config": {}, field: value}
            )


def test_a_compiled_mixture_in_halves() -> None:
    overrides = {
        "model.granularity": "half",
        "model.capacity_factor": 1.25,
        "search.tensor": [1, 2],
        "search.microbatch": [1],
        "search.context": [1, 2],
    }
    compiled = compile_problem(load_problem("deepseek-v2-lite@h100-64", overrides))
    assert len(compiled.layer_names) == 2 + 2 * 27
    assert {t.expert for t, _ in compiled.tables} == {1, 2, 4, 8}
    for (template, _), made in compiled.tables.items():
        held = sum(layer.expert.weights for layer in made.layers)
        assert held == Fraction(2 * 26 * 64 * 3 * 2048 * 1408, template.tensor * template.expert)
