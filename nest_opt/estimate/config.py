"""Published Hugging Face configurations, read into the architecture that the formulas need.

Supported values of ``model_type`` are the keys of :data:`FAMILIES`. A config of several models
(``text_config``, ``llm_config`` or ``language_config`` beside a vision tower) is read for its
language model alone, and a note says so.

What a config leaves out gets the default of its class in Hugging Face transformers
(``src/transformers/models/*/configuration_*.py``). The sizes without which there is no model
(hidden size, blocks, heads, MLP, vocabulary, experts) have such defaults only in a nested config,
which transformers stores as the difference from its class; at the top they are required.

Ignored, because the cost of training does not depend on it: ``rope_scaling``, ``rope_theta`` and
other parameters of rotary embeddings, the activation function (gated or not follows from the
family), epsilons, initialisation, token ids, ``use_cache``, scaling of embeddings, attention scores
and routing weights, how experts are scored and grouped, auxiliary losses. ``torch_dtype`` and
``quantization_config`` describe stored weights; training is estimated at 2 bytes per weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from nest_opt.errors import Complaint
from nest_opt.estimate.architecture import Architecture, Attention, Block, Experts, Latent, Mlp
from nest_opt.estimate.fields import Fields
from nest_opt.problem import MAX_LAYERS, ConfigModel, exact

#: Layers that are not blocks: the embedding and the head.
_ENDS = 2

#: Where a config of several models keeps its language model.
_NESTED = ("text_config", "llm_config", "language_config")


class Family(NamedTuple):
    """A family: how it is read, and the defaults of its class in transformers."""

    read: Callable[[Fields, int], Architecture]
    defaults: Mapping[str, Any]
    #: The field with the number of routed experts; empty for dense families.
    experts: str = ""


# --- parts that families share --------------------------------------------------------------------


def _blocks(fields: Fields) -> int:
    return fields.size("num_hidden_layers", MAX_LAYERS - _ENDS)


def _head_size(fields: Fields, hidden: int, heads: int) -> int:
    """``head_dim``; left out, the class's own, else hidden size over heads."""
    default = None if fields.has("head_dim") else fields.defaults.get("head_dim")
    if fields.get("head_dim") is not None or default is not None:
        return fields.count("head_dim", default)
    fields.divides("num_attention_heads", heads, "hidden_size", hidden)
    return max(hidden // heads, 1)


def _kv_heads(fields: Fields, heads: int) -> int:
    """Key-value heads; null means one for each query head, missing the default of the class."""
    known = "num_key_value_heads" in fields.defaults
    kv_heads = (
        fields.option("num_key_value_heads", null=heads)
        if known
        else fields.count("num_key_value_heads", heads)
    )
    fields.divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    return kv_heads


def _sliding(fields: Fields, blocks: int) -> list[bool]:
    """Which blocks attend to a window, by ``layer_types`` or by the rule of the family."""
    types = fields.get("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or any(kind not in known for kind in types):
            fields.complain("layer_types", f"must be a list of {' and '.join(known)}", types)
        elif len(types) != blocks and not fields.is_bad("num_hidden_layers"):
            fields.complain("layer_types", f"must have one entry for each of {blocks} blocks")
        else:
            return [kind == "sliding_attention" for kind in types]
        return blocks * [False]
    kind = fields.kind
    if kind in ("qwen2", "qwen3", "qwen2_moe"):
        first = fields.option("max_window_layers", least=0)
        if kind == "qwen2_moe":
            return [i < first and i % 2 == 0 for i in range(blocks)]
        return [i >= first for i in range(blocks)]
    if kind == "gemma2":
        return [i % 2 == 0 for i in range(blocks)]
    if kind == "gemma3_text":
        name = "sliding_window_pattern"
        pattern = fields.option(name if fields.has(name) else "_sliding_window_pattern")
        return [(i + 1) % pattern != 0 for i in range(blocks)]
    return blocks * [True]


def _windows(fields: Fields, blocks: int, sequence: int) -> list[int | None]:
    """The attention window of each block; None where it sees the whole sequence."""
    everything: list[int | None] = [None] * blocks
    if "sliding_window" not in fields.defaults:
        return everything
    if "use_sliding_window" in fields.defaults and not fields.flag("use_sliding_window"):
        return everything
    missing = None if fields.has("sliding_window") else fields.defaults["sliding_window"]
    if fields.get("sliding_window") is None and missing is None:
        return everything
    window = fields.count("sliding_window", missing)
    sliding = _sliding(fields, blocks)
    if window >= sequence:
        return everything
    return [window if slides else None for slides in sliding]


def _tied(fields: Fields, default: bool) -> bool:
    return fields.flag("tie_word_embeddings", default)


def _reach(fields: Fields, name: str, positions: int, sequence: int) -> int:
    """Learned positions, which must reach to the end of the sequence."""
    if positions < sequence and not fields.is_bad(name):
        fields.complain(
            name,
            f"learned positions end before the sequence does (sequence_length {sequence}); "
            "shorten the sequence",
            positions,
        )
    return positions


# --- families -------------------------------------------------------------------------------------


def _read_gpt2(fields: Fields, sequence: int) -> Architecture:
    """GPT-2 and GPT-3: LayerNorm, learned positions, biases and dropout everywhere."""
    hidden = fields.size("n_embd")
    heads = fields.size("n_head")
    fields.divides("n_head", heads, "n_embd", hidden)
    positions = _reach(fields, "n_positions", fields.size("n_positions"), sequence)
    fields.refuse("add_cross_attention", "cross attention is not estimated")
    head_size = max(hidden // heads, 1)
    attention = Attention(
        heads,
        heads,
        head_size,
        head_size,
        rotary=0,
        qkv_bias=True,
        output_bias=True,
        dropout=fields.dropout("attn_pdrop"),
    )
    mlp = Mlp(fields.count("n_inner", 4 * hidden), gated=False, bias=True)
    return Architecture(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        blocks=fields.size("n_layer", MAX_LAYERS - _ENDS) * (Block(attention, mlp),),
        tied=_tied(fields, True),
        positions=positions,
        norm_weights=2,
        embedding_dropout=fields.dropout("embd_pdrop"),
        hidden_dropout=fields.dropout("resid_pdrop"),
    )


def _read_gpt_neox(fields: Fields, sequence: int) -> Architecture:
    """GPT-NeoX and Pythia: LayerNorm, biases, partly rotary, attention and MLP in parallel."""
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads")
    head_size = _head_size(fields, hidden, heads)
    share = fields.get("rotary_pct")
    if share is None:
        share = fields.defaults["rotary_pct"]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        fields.complain("rotary_pct", "must be a share from 0 to 1", share)
        share = 1
    bias = fields.flag("attention_bias")
    dropout = fields.dropout("hidden_dropout")
    attention = Attention(
        heads,
        heads,
        head_size,
        head_size,
        rotary=int(exact(share) * head_size),
        qkv_bias=bias,
        output_bias=bias,
        dropout=fields.dropout("attention_dropout"),
    )
    mlp = Mlp(fields.size("intermediate_size"), gated=False, bias=True)
    return Architecture(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        blocks=_blocks(fields) * (Block(attention, mlp),),
        tied=_tied(fields, False),
        norm_weights=2,
        parallel=fields.flag("use_parallel_residual"),
        embedding_dropout=dropout,
        hidden_dropout=dropout,
    )


def _read_bert(fields: Fields, sequence: int) -> Architecture:
    """BERT with its masked language model: an encoder with norms after each half."""
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads")
    fields.divides("num_attention_heads", heads, "hidden_size", hidden)
    name = "max_position_embeddings"
    positions = _reach(fields, name, fields.size(name), sequence)
    fields.refuse("add_cross_attention", "cross attention is not estimated")
    if fields.get("position_embedding_type") not in (None, "absolute"):
        fields.complain(
            "position_embedding_type",
            "only absolute position embeddings are estimated",
            fields.get("position_embedding_type"),
        )
    head_size = max(hidden // heads, 1)
    dropout = fields.dropout("hidden_dropout_prob")
    attention = Attention(
        heads,
        heads,
        head_size,
        head_size,
        rotary=0,
        causal=fields.flag("is_decoder", False),
        qkv_bias=True,
        output_bias=True,
        dropout=fields.dropout("attention_probs_dropout_prob"),
    )
    mlp = Mlp(fields.size("intermediate_size"), gated=False, bias=True)
    return Architecture(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        blocks=_blocks(fields) * (Block(attention, mlp),),
        tied=_tied(fields, True),
        positions=positions,
        token_types=fields.option("type_vocab_size"),
        norm_weights=2,
        norms="after",
        embedding_dropout=dropout,
        hidden_dropout=dropout,
        masked=True,
    )


def _decoder(fields: Fields, sequence: int, mlps: Sequence[Mlp | Experts]) -> Architecture:
    """Llama and what follows it: RMSNorm, rotary positions, grouped heads, gated MLPs."""
    kind = fields.kind
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads")
    head_size = _head_size(fields, hidden, heads)
    kv_heads = _kv_heads(fields, heads)
    bias = fields.flag("attention_bias")
    qkv_bias = bias or kind == "qwen2" or (kind == "qwen2_moe" and fields.flag("qkv_bias"))
    gemma = kind.startswith("gemma")
    dropout = fields.dropout("attention_dropout")
    softcap = kind in ("gemma2", "gemma3_text") and fields.cap("attn_logit_softcapping")
    attentions = [
        Attention(
            heads,
            kv_heads,
            head_size,
            head_size,
            rotary=head_size,
            window=window,
            qkv_bias=qkv_bias,
            output_bias=bias,
            dropout=dropout,
            head_norms=kind in ("qwen3", "qwen3_moe", "gemma3_text"),
            softcap=softcap,
        )
        for window in _windows(fields, len(mlps), sequence)
    ]
    return Architecture(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        blocks=tuple(Block(a, m) for a, m in zip(attentions, mlps, strict=True)),
        tied=_tied(fields, gemma),
        norms="both" if kind in ("gemma2", "gemma3_text") else "before",
        softcap=kind in ("gemma2", "gemma3_text") and fields.cap("final_logit_softcapping"),
    )


def _read_dense(fields: Fields, sequence: int) -> Architecture:
    """Dense decoders: Llama, Mistral, Qwen2, Qwen3, Gemma."""
    bias = fields.kind == "llama" and fields.flag("mlp_bias")
    mlp = Mlp(fields.size("intermediate_size"), gated=True, bias=bias)
    return _decoder(fields, sequence, _blocks(fields) * [mlp])


def _routed(
    fields: Fields, name: str, inner: int, shared: int = 0, shared_gate: bool = False
) -> Experts:
    count = fields.size(name)
    per_token = fields.size("num_experts_per_tok")
    if per_token > count and not fields.is_bad(name, "num_experts_per_tok"):
        fields.complain("num_experts_per_tok", f"must be at most {name} = {count}", per_token)
    return Experts(
        count,
        per_token,
        inner,
        shared,
        shared_gate and shared > 0,
        router_bias=fields.kind == "deepseek_v3",
    )


def _read_mixtral(fields: Fields, sequence: int) -> Architecture:
    """Mixtral (Jiang et al. 2024, arXiv 2401.04088): experts in every block."""
    experts = _routed(fields, "num_local_experts", fields.size("intermediate_size"))
    return _decoder(fields, sequence, _blocks(fields) * [experts])


def _read_qwen_moe(fields: Fields, sequence: int) -> Architecture:
    """Mixtures of Qwen2 (one shared, gated expert) and Qwen3 (none)."""
    shared = fields.kind == "qwen2_moe"
    experts = _routed(
        fields,
        _expert_field(fields),
        fields.size("moe_intermediate_size"),
        fields.option("shared_expert_intermediate_size", null=0, least=0) if shared else 0,
        shared_gate=shared,
    )
    step = fields.option("decoder_sparse_step")
    plain = fields.get("mlp_only_layers") or []
    if not isinstance(plain, list) or any(type(i) is not int or i < 0 for i in plain):
        fields.complain("mlp_only_layers", "must be a list of block numbers", plain)
        plain = []
    sparse = [(i + 1) % step == 0 and i not in plain for i in range(_blocks(fields))]
    return _decoder(fields, sequence, _mixed(fields, sparse, experts))


def _mixed(fields: Fields, sparse: list[bool], experts: Experts | None) -> Sequence[Mlp | Experts]:
    """Experts in sparse blocks, MLPs in the others; the size of an MLP is read if there are any."""
    if experts is not None and all(sparse):
        return len(sparse) * [experts]
    dense = Mlp(fields.size("intermediate_size"), gated=True)
    return [experts if experts is not None and block else dense for block in sparse]


def _expert_field(fields: Fields) -> str:
    """Qwen's number of experts, under either of the names that transformers has given it."""
    name = "num_experts"
    return "num_local_experts" if not fields.has(name) and fields.has("num_local_experts") else name


def _read_deepseek(fields: Fields, sequence: int) -> Architecture:
    """DeepSeek-V2 and V3: latent attention, first blocks dense, routed and shared experts.

    DeepSeek-AI 2024, arXiv 2405.04434 and 2412.19437. The multi-token prediction modules of V3 are
    not modelled.
    """
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads")
    plain, rotary = fields.option("qk_nope_head_dim"), fields.option("qk_rope_head_dim")
    uncompressed = fields.has("q_lora_rank") and fields.get("q_lora_rank") is None
    bias = fields.flag("attention_bias")
    attention = Attention(
        heads,
        heads,
        plain + rotary,
        fields.option("v_head_dim"),
        rotary=rotary,
        qkv_bias=bias,
        output_bias=bias,
        dropout=fields.dropout("attention_dropout"),
        latent=Latent(
            None if uncompressed else fields.option("q_lora_rank"),
            fields.option("kv_lora_rank"),
            rotary,
        ),
    )
    blocks = _blocks(fields)
    sparse, experts = blocks * [False], None
    if not fields.has("n_routed_experts") or fields.get("n_routed_experts") is not None:
        inner = fields.size("moe_intermediate_size")
        shared = fields.option("n_shared_experts", null=0, least=0)
        experts = _routed(fields, "n_routed_experts", inner, shared * inner)
        first, every = (
            fields.option("first_k_dense_replace", least=0),
            fields.option("moe_layer_freq"),
        )
        sparse = [i >= first and i % every == 0 for i in range(blocks)]
    if fields.get("num_nextn_predict_layers"):
        fields.notes.append("multi-token prediction modules are not modelled")
    return Architecture(
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        blocks=tuple(Block(attention, mlp) for mlp in _mixed(fields, sparse, experts)),
        tied=_tied(fields, False),
    )


def _defaults(sizes: str, **others: Any) -> dict[str, Any]:
    pairs = (word.split("=") for word in sizes.split())
    return {name: int(value) for name, value in pairs} | others


_LATENT = (
    "kv_lora_rank=512 q_lora_rank=1536 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128"
)
_QWEN_WINDOW = "sliding_window=4096 max_window_layers=28 use_sliding_window=0"

#: Every family by its ``model_type``, with the defaults of its configuration class.
FAMILIES: dict[str, Family] = {
    "bert": Family(
        _read_bert,
        _defaults(
            "vocab_size=30522 hidden_size=768 intermediate_size=3072 num_hidden_layers=12 "
            "num_attention_heads=12 max_position_embeddings=512 type_vocab_size=2 "
            "hidden_dropout_prob=1 attention_probs_dropout_prob=1"
        ),
    ),
    "deepseek_v2": Family(
        _read_deepseek,
        _defaults(
            "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
            "num_attention_heads=32 first_k_dense_replace=0 moe_layer_freq=1 n_routed_experts=64 "
            f"n_shared_experts=2 moe_intermediate_size=1407 {_LATENT}"
        ),
        "n_routed_experts",
    ),
    "deepseek_v3": Family(
        _read_deepseek,
        _defaults(
            "vocab_size=129280 hidden_size=7168 intermediate_size=18432 num_hidden_layers=61 "
            "num_attention_heads=128 first_k_dense_replace=3 moe_layer_freq=1 n_routed_experts=256 "
            f"n_shared_experts=1 moe_intermediate_size=2048 num_experts_per_tok=8 {_LATENT}"
        ),
        "n_routed_experts",
    ),
    "gemma": Family(
        _read_dense,
        _defaults(
            "vocab_size=256000 hidden_size=3072 intermediate_size=24576 num_hidden_layers=28 "
            "num_attention_heads=16 num_key_value_heads=16 head_dim=256"
        ),
    ),
    "gemma2": Family(
        _read_dense,
        _defaults(
            "vocab_size=256000 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 "
            "num_attention_heads=8 num_key_value_heads=4 head_dim=256 sliding_window=4096 "
            "attn_logit_softcapping=50 final_logit_softcapping=30"
        ),
    ),
    "gemma3_text": Family(
        _read_dense,
        _defaults(
            "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 "
            "num_attention_heads=8 num_key_value_heads=4 head_dim=256 sliding_window=4096 "
            "sliding_window_pattern=6 _sliding_window_pattern=6"
        ),
    ),
    "gpt2": Family(
        _read_gpt2,
        _defaults(
            "vocab_size=50257 n_embd=768 n_layer=12 n_head=12 n_positions=1024 attn_pdrop=1 "
            "embd_pdrop=1 resid_pdrop=1"
        ),
    ),
    "gpt_neox": Family(
        _read_gpt_neox,
        _defaults(
            "vocab_size=50432 hidden_size=6144 intermediate_size=24576 num_hidden_layers=44 "
            "num_attention_heads=64 attention_bias=1 use_parallel_residual=1",
            rotary_pct=0.25,
        ),
    ),
    "llama": Family(
        _read_dense,
        _defaults(
            "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 "
            "num_attention_heads=32"
        ),
    ),
    "mistral": Family(
        _read_dense,
        _defaults(
            "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
            "num_attention_heads=32 num_key_value_heads=8 sliding_window=4096"
        ),
    ),
    "mixtral": Family(
        _read_mixtral,
        _defaults(
            "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 "
            "num_attention_heads=32 num_key_value_heads=8 num_local_experts=8 "
            "num_experts_per_tok=2",
            sliding_window=None,
        ),
        "num_local_experts",
    ),
    "qwen2": Family(
        _read_dense,
        _defaults(
            "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 "
            f"num_attention_heads=32 num_key_value_heads=32 {_QWEN_WINDOW}"
        ),
    ),
    "qwen2_moe": Family(
        _read_qwen_moe,
        _defaults(
            "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24 "
            "num_attention_heads=16 num_key_value_heads=16 num_experts=60 num_experts_per_tok=4 "
            "moe_intermediate_size=1408 shared_expert_intermediate_size=5632 "
            f"decoder_sparse_step=1 qkv_bias=1 {_QWEN_WINDOW}"
        ),
        "num_experts",
    ),
    "qwen3": Family(
        _read_dense,
        _defaults(
            "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 "
            f"num_attention_heads=32 num_key_value_heads=32 head_dim=128 {_QWEN_WINDOW}"
        ),
    ),
    "qwen3_moe": Family(
        _read_qwen_moe,
        _defaults(
            "vocab_size=151936 hidden_size=2048 intermediate_size=6144 num_hidden_layers=24 "
            "num_attention_heads=32 num_key_value_heads=4 num_experts=128 num_experts_per_tok=8 "
            f"moe_intermediate_size=768 decoder_sparse_step=1 {_QWEN_WINDOW}"
        ),
        "num_experts",
    ),
}

#: Any of these, set to something, makes a config one of a mixture of experts.
_EXPERT_FIELDS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "n_shared_experts",
    "moe_num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
)


# --- a config -------------------------------------------------------------------------------------


def language_config(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The part of a config that describes the language model, and the name it is nested under.

    The name is empty where the config itself does.

    >>> language_config({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})
    ('text_config', {'model_type': 'gemma3_text'})
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        for name in _NESTED:
            inner = config.get(name)
            if isinstance(inner, Mapping):
                return name, inner
    return "", config


def expert_count(config: Mapping[str, Any]) -> int:
    """Routed experts of a config; 0 if it has none or cannot be read.

    >>> expert_count({"model_type": "mixtral", "num_local_experts": 8})
    8
    """
    name, inner = language_config(config)
    kind = inner.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or not family.experts:
        return 0
    fields = Fields(inner, name)
    field = _expert_field(fields) if family.experts == "num_experts" else family.experts
    value = inner.get(field, family.defaults.get(field) if name else None)
    return value if type(value) is int and value > 0 else 0


def read_config(model: ConfigModel) -> tuple[Architecture | None, list[Complaint]]:
    """The architecture of a model's config, and everything that is wrong with the config.

    There is no architecture where the family is not known; with complaints, it is a stand-in.
    """
    name, config = language_config(model.config)
    tie = "tie_word_embeddings"
    if config.get(tie) is None and model.config.get(tie) is not None:
        config = {**config, tie: model.config[tie]}  # composite configs may say it at the top
    fields = Fields(config, f"model.config.{name}" if name else "model.config")
    kind = fields.get("model_type")
    supported = ", ".join(sorted(FAMILIES))
    if kind is None:
        fields.complain("model_type", f"missing; supported are {supported}")
        return None, fields.complaints
    if not isinstance(kind, str) or kind not in FAMILIES:
        fields.complain("model_type", f"not supported; supported are {supported}", kind)
        return None, fields.complaints
    family = FAMILIES[kind]
    fields.defaults = family.defaults
    if not family.experts:
        for field in _EXPERT_FIELDS:
            if fields.get(field) not in (None, 0):
                message = f"{kind} has no mixtures of experts; give a table of layers"
                fields.complain(field, message, fields.get(field))
    arch = family.read(fields, model.sequence_length)
    notes = []
    if name:
        outer = model.config.get("model_type")
        of = f" of {outer}" if isinstance(outer, str) else ""
        notes.append(f"only the language model{of} is read, from {name}")
    if "quantization_config" in config or "quantization_config" in model.config:
        notes.append("quantization_config is ignored; weights are estimated at 2 bytes")
    if not model.flash_attention and any(block.attention.window for block in arch.blocks):
        notes.append("attention windows save nothing without flash_attention")
    return replace(arch, notes=(*notes, *fields.notes)), fields.complaints
