"""Published configurations: every shipped model, and variants as they are found in the wild.

A published count is the number of parameters in the weight files of the model's page at
huggingface.co, unless said otherwise. The vocabulary's padding is taken off before comparing.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from nest_opt.errors import InputError
from nest_opt.estimate.config import FAMILIES, expert_count, read_config
from nest_opt.estimate.table import LayerTable
from nest_opt.estimate.transformer import notes_of_config, table_of_config
from nest_opt.library import load_model, load_problem, names
from nest_opt.plan import Template
from nest_opt.problem import ConfigModel, Device

ONE = Template()
DEVICE = Device(
    name="d", memory_bytes=2**30, peak_flops_per_second=1e12, memory_bytes_per_second=1e11
)


def model(config: dict[str, Any], sequence: int = 512, **more: Any) -> ConfigModel:
    return ConfigModel(kind="config", name="m", sequence_length=sequence, config=config, **more)


def table(config: dict[str, Any], sequence: int = 512, **more: Any) -> LayerTable:
    return table_of_config(model(config, sequence, **more), DEVICE, (ONE,), (1,))


def count(found: ConfigModel) -> Fraction:
    """Parameters at tensor degree 1, padding included."""
    made = table_of_config(found, DEVICE, (ONE,), (1,))
    held = sum((c.weight_bytes + c.expert_weight_bytes for c in made.costs[ONE, 1]), Fraction(0))
    return (held - made.tied_bytes[ONE]) / 2


def unpadded(config: dict[str, Any]) -> Fraction:
    arch, _ = read_config(model(config))
    assert arch is not None
    rows = -arch.vocabulary % 128
    extra = rows * arch.hidden * (1 if arch.tied else 2) + (rows if arch.masked else 0)
    return count(model(config)) - extra


# --- shipped models -------------------------------------------------------------------------------

PUBLISHED = {
    # The page says 336M, with pooler and next-sentence head, which are not modelled: Devlin et al.
    # 2018 round up to 340M.
    "bert-large": 336_226_108,
    "deepseek-v2-lite": 15_706_484_224,
    # DeepSeek-AI 2024 (arXiv 2412.19437), section 4.2: 671B; main model alone, as they count it.
    "deepseek-v3": 671_026_419_200,
    "gemma2-27b": 27_227_128_320,
    "gpt3-175b": 175_000_000_000,  # Brown et al. 2020, table 2.1
    "llama2-7b": 6_738_415_616,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
}
#: Every shipped model but the layer tables of the NEST artifact.
CONFIGS = [name for name in names("models") if not name.startswith("nest/")]


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_models_have_the_published_parameters(name: str) -> None:
    found = load_model(name)
    assert isinstance(found, ConfigModel)
    assert abs(count(found) / PUBLISHED[name] - 1) <= Fraction(5, 1000)
    if name not in ("bert-large", "gpt3-175b"):
        assert count(found) == PUBLISHED[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_models_offer_the_default_templates(name: str) -> None:
    found = load_model(name)
    assert isinstance(found, ConfigModel)
    experts = (1, 2, 4, 8) if expert_count(found.config) else (1,)
    templates = tuple(Template(t, 1, e, t > 1) for t in (1, 2, 4, 8) for e in experts)
    assert table_of_config(found, DEVICE, templates, (1,)).skipped == ()


def test_bert_by_hand() -> None:
    # Devlin et al. 2018: h = 1024, 24 encoder blocks of 12h^2 + 13h; 30522 words, 512 positions and
    # 2 token types of h and a norm; the head is h^2 + h, a norm and a bias for each word.
    h = 1024
    by_hand = 24 * (12 * h * h + 13 * h) + (30522 + 512 + 2) * h + 2 * h
    by_hand += h * h + h + 2 * h + 30522
    found = load_model("bert-large")
    assert isinstance(found, ConfigModel)
    assert unpadded(found.config) == by_hand == 335_174_458
    assert found.sequence_length == 512


# --- variants -------------------------------------------------------------------------------------


def decoder(kind: str, sizes: str, **more: Any) -> dict[str, Any]:
    fields = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    return {"model_type": kind, **dict(zip(fields, map(int, sizes.split()), strict=True)), **more}


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192}
QWEN_MOE: dict[str, Any] = {
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
}
LATENT: dict[str, Any] = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

#: (what, config, published parameters)
READABLE: list[tuple[str, dict[str, Any], int]] = [
    (
        "Llama-3.2-1B: scaled rope, head_dim, tied",
        decoder(
            "llama",
            "2048 8192 16 32 8 128256",
            head_dim=64,
            rope_scaling=LLAMA3_ROPE,
            tie_word_embeddings=True,
        ),
        1_235_814_400,
    ),
    (
        "Llama-2-7b-chat, quantised: no key-value heads, null rope",
        {
            k: v
            for k, v in decoder(
                "llama",
                "4096 11008 32 32 32 32000",
                rope_scaling=None,
                quantization_config={"bits": 4, "quant_method": "gptq"},
                torch_dtype="float16",
            ).items()
            if k != "num_key_value_heads"
        },
        6_738_415_616,
    ),
    (
        "Llama with null key-value heads",
        {
            **decoder("llama", "4096 11008 32 32 32 32000"),
            "num_key_value_heads": None,
            "head_dim": None,
        },
        6_738_415_616,
    ),
    (
        "Mistral-Nemo: heads smaller than hidden over heads, no window",
        decoder("mistral", "5120 14336 40 32 8 131072", head_dim=128, sliding_window=None),
        12_247_782_400,
    ),
    (
        "Mistral-7B without the fields that have defaults",
        {
            k: v
            for k, v in decoder("mistral", "4096 14336 32 32 8 32000").items()
            if k != "num_key_value_heads"
        },
        7_241_732_096,
    ),
    (
        "Mixtral-8x22B",
        decoder(
            "mixtral",
            "6144 16384 56 48 8 32768",
            num_local_experts=8,
            num_experts_per_tok=2,
        ),
        140_630_071_296,
    ),
    (
        "Qwen2.5-0.5B: tied, window that is not used",
        decoder(
            "qwen2",
            "896 4864 24 14 2 151936",
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=32768,
            max_window_layers=24,
        ),
        494_032_768,
    ),
    (
        "Qwen1.5-MoE-A2.7B: shared expert with a gate",
        decoder(
            "qwen2_moe",
            "2048 5632 24 16 16 151936",
            **QWEN_MOE,
            shared_expert_intermediate_size=5632,
            decoder_sparse_step=1,
        ),
        14_315_784_192,
    ),
    (
        "Qwen1.5-MoE without the shared size, which has a default",
        decoder("qwen2_moe", "2048 5632 24 16 16 151936", **QWEN_MOE),
        14_315_784_192,
    ),
    (
        "Qwen3-0.6B: norms of heads, tied",
        decoder("qwen3", "1024 3072 28 16 8 151936", head_dim=128, tie_word_embeddings=True),
        596_049_920,
    ),
    (
        "Qwen3-8B: layer types, head_dim left to its default",
        decoder("qwen3", "4096 12288 36 32 8 151936", layer_types=36 * ["full_attention"]),
        8_190_735_360,
    ),
    (
        "Qwen3-30B-A3B with the newer name of the number of experts",
        decoder(
            "qwen3_moe",
            "2048 6144 48 32 4 151936",
            head_dim=128,
            num_local_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            mlp_only_layers=None,
        ),
        30_532_122_624,
    ),
    (
        "gemma-2b: one key-value head, tied by default",
        decoder("gemma", "2048 16384 18 8 1 256000", head_dim=256, hidden_activation=None),
        2_506_172_416,
    ),
    (
        "gemma-2-2b: soft caps and windows by default",
        decoder("gemma2", "2304 9216 26 8 4 256000"),
        2_614_341_888,
    ),
    (
        "gemma-3-1b: five windows to one",
        decoder("gemma3_text", "1152 6912 26 4 1 262144", head_dim=256, sliding_window=512),
        999_885_952,
    ),
    (
        "gemma-3-4b: nested, only what differs from the class; the language model of 4.3B",
        {
            "model_type": "gemma3",
            "architectures": ["Gemma3ForConditionalGeneration"],
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 1024,
            },
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
        },
        3_880_263_168,
    ),
    (
        "llava-1.5-7b: nested Llama, all sizes by default, vocabulary of 32064",
        {
            "model_type": "llava",
            "text_config": {"model_type": "llama", "vocab_size": 32064},
            "tie_word_embeddings": False,
        },
        6_738_415_616 + 2 * 64 * 4096,
    ),
    (
        "InternVL: nested under llm_config, tied at the top",
        {
            "model_type": "internvl_chat",
            "llm_config": decoder("qwen2", "896 4864 24 14 2 151936"),
            "tie_word_embeddings": True,
        },
        494_032_768,
    ),
    (
        "pythia-6.9b: partly rotary, parallel",
        {
            "model_type": "gpt_neox",
            "hidden_size": 4096,
            "intermediate_size": 16384,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 50432,
            "rotary_pct": 0.25,
        },
        6_857_302_016,
    ),
    (
        "gpt-neox-20b",
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "vocab_size": 50432,
        },
        20_554_567_680,
    ),
    (
        "gpt2-xl: dropout and MLP size by default",
        {
            "model_type": "gpt2",
            "n_embd": 1600,
            "n_layer": 48,
            "n_head": 25,
            "n_positions": 1024,
            "n_inner": None,
            "vocab_size": 50257,
        },
        1_557_611_200,
    ),
    (
        "bert-base-uncased as a masked language model, token types by default",
        {
            "model_type": "bert",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "max_position_embeddings": 512,
            "vocab_size": 30522,
        },
        109_514_298,
    ),
    (
        "DeepSeek-V2: compressed queries, yarn",
        decoder(
            "deepseek_v2",
            "5120 12288 60 128 128 102400",
            **LATENT,
            n_routed_experts=160,
            n_shared_experts=2,
            num_experts_per_tok=6,
            moe_intermediate_size=1536,
            first_k_dense_replace=1,
            moe_layer_freq=1,
            rope_scaling={"type": "yarn", "factor": 40},
        ),
        235_741_434_880,
    ),
]


@pytest.mark.parametrize(
    ("config", "published"),
    [(c, p) for _, c, p in READABLE],
    ids=[what.split(":")[0] for what, _, _ in READABLE],
)
def test_variants_that_are_read(config: dict[str, Any], published: int) -> None:
    assert unpadded(config) == published


def test_every_family_is_among_the_variants() -> None:
    kinds = {c.get("model_type") for _, c, _ in READABLE} | {"deepseek_v3"}  # shipped
    assert set(FAMILIES) <= kinds


MIXTRAL = decoder("mixtral", "256 640 2 16 4 1024", num_local_experts=8, num_experts_per_tok=2)
DEEPSEEK = decoder(
    "deepseek_v2",
    "256 640 3 4 4 1024",
    n_routed_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=64,
)
GEMMA3 = decoder("gemma3_text", "256 640 6 4 2 1024")
BERT = {
    "model_type": "bert",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "vocab_size": 1024,
}


def without(config: dict[str, Any], *gone: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in gone}


#: (config, field, what is said)
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"model_type": "phi3", "hidden_size": 3072}, "model_type", "not supported; supported are"),
    ({"model_type": "mamba"}, "model_type", "not supported"),
    ({"model_type": "gpt_oss", "num_local_experts": 32}, "model_type", "not supported"),
    ({"model_type": "t5", "d_model": 512}, "model_type", "not supported"),
    ({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}, "model_type", "missing"),
    ({"model_type": "Llama"}, "model_type", "not supported"),
    ({"model_type": {"name": "llama"}}, "model_type", "not supported"),
    (
        {"model_type": "llama4", "text_config": {"model_type": "llama4_text"}},
        "text_config.model_type",
        "not supported",
    ),
    ({"model_type": "llava", "text_config": {}}, "text_config.model_type", "missing"),
    (
        {"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": "4096"}},
        "text_config.hidden_size",
        "whole number",
    ),
    ({"model_type": "llava", "text_config": "llama"}, "model_type", "not supported"),
    (without(MIXTRAL, "num_local_experts"), "num_local_experts", "missing"),
    (without(MIXTRAL, "num_experts_per_tok"), "num_experts_per_tok", "missing"),
    ({**MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok", "at most num_local_experts = 8"),
    ({**MIXTRAL, "num_local_experts": 8.0}, "num_local_experts", "whole number"),
    ({**BERT, "num_local_experts": 8}, "num_local_experts", "mixtures of experts"),
    (without(DEEPSEEK, "moe_intermediate_size"), "moe_intermediate_size", "missing"),
    (
        without({**DEEPSEEK, "first_k_dense_replace": 1}, "intermediate_size"),
        "intermediate_size",
        "missing",
    ),
    ({**DEEPSEEK, "kv_lora_rank": -1}, "kv_lora_rank", "at least 1"),
    ({**DEEPSEEK, "moe_layer_freq": [0, 1, 1]}, "moe_layer_freq", "whole number"),
    ({**GEMMA3, "layer_types": ["full_attention"]}, "layer_types", "one entry for each"),
    ({**GEMMA3, "layer_types": 6 * ["linear_attention"]}, "layer_types", "must be a list"),
    ({**GEMMA3, "layer_types": [[]]}, "layer_types", "must be a list"),
    ({**GEMMA3, "intermediate_size": 6 * [640]}, "intermediate_size", "whole number"),
    ({**GEMMA3, "final_logit_softcapping": "30"}, "final_logit_softcapping", "positive number"),
    ({**GEMMA3, "sliding_window_pattern": 0}, "sliding_window_pattern", "at least 1"),
    ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type", "absolute"),
    ({**BERT, "max_position_embeddings": 256}, "max_position_embeddings", "end before"),
    ({**BERT, "add_cross_attention": True}, "add_cross_attention", "cross attention"),
    ({**BERT, "hidden_dropout_prob": 1}, "hidden_dropout_prob", "probability"),
    (
        {**BERT, "model_type": "gpt_neox", "rotary_pct": 25},
        "rotary_pct",
        "a share from 0 to 1",
    ),
    (
        decoder("qwen3_moe", "256 640 2 16 4 1024", **QWEN_MOE, mlp_only_layers=[True]),
        "mlp_only_layers",
        "list of block numbers",
    ),
    (decoder("qwen2_moe", "256 640 2 16 4 1024", **QWEN_MOE, qkv_bias=1), "qkv_bias", "true"),
]


@pytest.mark.parametrize(("config", "field", "message"), REFUSED)
def test_variants_that_are_refused(config: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        table(config)
    (complaint,) = caught.value.complaints
    assert complaint.field == f"model.config.{field}"
    assert message in complaint.message
    assert len(str(complaint)) < 320


def test_an_unknown_architecture_is_told_every_family() -> None:
    with pytest.raises(InputError) as caught:
        table({"model_type": "falcon"})
    assert all(kind in str(caught.value) for kind in FAMILIES)


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_empty_config_of_each_family_is_refused_and_completed_where_nested(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        table({"model_type": kind})
    assert all("missing" in c.message for c in caught.value.complaints)
    inner: dict[str, Any] = {"model_type": kind}
    if kind == "deepseek_v2":  # the one class without a default for this
        inner["num_experts_per_tok"] = 6
    assert table({"model_type": "outer", "text_config": inner}).costs


JUNK: list[Any] = [None, True, -1, 0, 1, 10**9, 1.5, float("nan"), "x", [], [1], {}, {"a": 1}]


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_value_of_any_field_breaks_a_reader(kind: str) -> None:
    whole = {"model_type": kind, **FAMILIES[kind].defaults}
    fields = {**whole, "layer_types": None, "mlp_only_layers": None, "head_dim": None, "n_inner": 1}
    for name in fields:
        for junk in JUNK:
            nested = {"model_type": "outer", "text_config": {"model_type": kind, name: junk}}
            for config in ({**whole, name: junk}, nested):
                read_config(model(config))
                expert_count(config)


# --- what is said, and what is not needed ---------------------------------------------------------


def test_notes() -> None:
    assert notes_of_config(model(MIXTRAL)) == ()
    assert notes_of_config(model({})) == ()
    nested = {"model_type": "llava", "text_config": {"model_type": "llama"}}
    assert notes_of_config(model(nested)) == (
        "only the language model of llava is read, from text_config",
    )
    (said,) = notes_of_config(model({**MIXTRAL, "quantization_config": {"bits": 4}}))
    assert "quantization_config is ignored" in said
    (said,) = notes_of_config(model({**MIXTRAL, "sliding_window": 128}))
    assert "flash_attention" in said
    assert not notes_of_config(model({**MIXTRAL, "sliding_window": 128}, flash_attention=True))
    (said,) = notes_of_config(model({**DEEPSEEK, "num_nextn_predict_layers": 1}))
    assert "multi-token prediction" in said


def test_what_does_not_change_the_cost_is_ignored() -> None:
    extra = {
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        "rope_parameters": {"rope_theta": 1e6},
        "quantization_config": {"quant_method": "fp8"},
        "torch_dtype": "float8_e4m3fn",
        "dtype": "bfloat16",
        "router_aux_loss_coef": 0.02,
        "hidden_act": "gelu",
        "transformers_version": "5.0.0",
        "auto_map": {"AutoConfig": "x.y"},
    }
    assert table({**MIXTRAL, **extra}) == table(MIXTRAL)


def test_a_config_without_routed_experts_is_dense() -> None:
    dense = table({**DEEPSEEK, "n_routed_experts": None})
    assert all(c.expert_weight_bytes == 0 for c in dense.costs[ONE, 1])


# --- where names lead -----------------------------------------------------------------------------


def test_expert_counts() -> None:
    shipped = {n: load_model(n) for n in names("models")}
    found = {n: expert_count(m.config) for n, m in shipped.items() if isinstance(m, ConfigModel)}
    assert {n: e for n, e in found.items() if e} == {
        "deepseek-v2-lite": 64,
        "deepseek-v3": 256,
        "mixtral-8x7b": 8,
        "qwen3-235b-a22b": 128,
        "qwen3-30b-a3b": 128,
    }


def test_default_expert_degrees(tmp_path: Path) -> None:
    # Contract, section 2: 1 and the powers of two up to the experts of a node.
    assert load_problem("mixtral-8x7b@h100-64").search.expert == (1, 2, 4, 8)
    assert load_problem("deepseek-v3@a100-128").search.expert == (1, 2, 4, 8)
    assert load_problem("llama2-7b@h100-64").search.expert == (1,)
    assert load_problem("mixtral-8x7b@h100-64", {"search.expert": [2]}).search.expert == (2,)
    few = tmp_path / "few.json"
    few.write_text(json.dumps({**MIXTRAL, "num_local_experts": 6}))
    assert load_problem(f"{few}@h100-64").search.expert == (1, 2, 4)


def test_a_nested_config_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    inner = {**GEMMA3, "max_position_embeddings": 1024}
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": inner}))
    assert load_model(str(path)).sequence_length == 1024
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}))
    found = load_model(str(path))
    assert isinstance(found, ConfigModel)
    with pytest.raises(InputError, match="model_type"):
        table(found.config)
