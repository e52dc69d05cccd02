"""Dense decoder Transformers from their published configuration, in closed form.

Layers: ``embedding``, ``block.0`` .. ``block.n-1`` and ``head`` (final norm, vocabulary projection,
loss). Everything is exact: bytes are integers, seconds are fractions of the device's numbers.

Notation, per device: ``s`` sequence, ``b`` microbatch, ``h`` hidden size, ``a`` query heads, ``k``
key-value heads, ``d`` head size, ``i`` MLP size, ``v`` vocabulary, ``t`` tensor and ``c`` context
degree; ``n = s*b/c`` tokens, and ``r = n/t`` of them with sequence parallelism, else ``r = n``, in
the parts that tensor parallelism does not shard (norms, dropouts on the residual path, inputs).

Sources:

- Shoeybi et al. 2019 (arXiv 1909.08053), section 3: what is sharded by ``t``, the two all-reduces
  per block and direction, vocabulary-parallel embedding, head and cross-entropy;
- Korthikanti et al. 2022 (arXiv 2205.05198), section 4: bytes kept per block (equations 1, 2, 4),
  selective recomputation (equation 6), sequence parallelism, the embedding and the head (4.3);
- Ainslie et al. 2023 (arXiv 2305.13245): grouped key-value heads; Shazeer 2020 (arXiv 2002.05202):
  gated MLPs;
- Dao 2023 (arXiv 2307.08691): memory and FLOPs of flash attention;
- Liu et al. 2023 (arXiv 2310.01889): ring attention over the context axis;
- Williams et al. 2009 (doi 10.1145/1498765.1498785): the roofline.

Weights, activations and their gradients take 2 bytes, logits 4, dropout masks 1, token ids 8.

Not modelled: optimizer step, kernel launches, allocator fragmentation, communication buffers; the
cosine and sine tables of rotary embeddings and the row statistics of norms; the all-reduce of norm
gradients over the tensor group with sequence parallelism (once per batch); scatter-gather of what
pipeline stages exchange. With sequence parallelism Megatron-LM gathers the input of column-parallel
products a second time in the backward pass, behind the product that computes the gradient of that
input (Korthikanti et al., section 4.2.2); as in their count of communication, it is left out.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from nest_opt.errors import Complaint, InputError
from nest_opt.estimate.table import Axis, Call, LayerCost, LayerTable, Pass
from nest_opt.plan import Template
from nest_opt.problem import MAX_LAYERS, ConfigModel, Device, exact

#: Bytes of a weight, activation or gradient in fp16 or bf16.
_HALF = 2
#: Bytes of a logit, of a log-sum-exp and of what the vocabulary-parallel loss reduces.
_SINGLE = 4
_MASK = 1
_TOKEN_ID = 8

#: The vocabulary is padded to a multiple of this times the tensor degree, as Megatron-LM does.
VOCABULARY_MULTIPLE = 128

#: Sizes beyond this are mistakes, not models.
LARGEST_SIZE = 10**7

# --- the architecture, read from a config ---------------------------------------------------------


@dataclass(frozen=True)
class _Architecture:
    """What the formulas need to know of a dense decoder."""

    hidden: int
    blocks: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    #: Learned position embeddings; 0 with rotary ones.
    positions: int
    #: Weights of a norm per feature: 1 for RMSNorm, 2 for LayerNorm.
    norm_weights: int
    gated: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied: bool
    embedding_dropout: bool
    attention_dropout: bool
    hidden_dropout: bool


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


class _Fields:
    """Reads fields of a config, collecting complaints; a bad field yields a harmless stand-in."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.complaints: list[Complaint] = []

    def complain(self, name: str, message: str, value: Any = None) -> None:
        shown = "" if value is None else reprlib.repr(value)[:60]
        self.complaints.append(Complaint(f"model.config.{name}", message, shown))

    def get(self, name: str) -> Any:
        return self._config.get(name)

    def count(self, name: str, default: int | None = None, most: int = LARGEST_SIZE) -> int:
        """A whole number from 1 to ``most``; required unless it has a default."""
        value = self.get(name)
        if value is None:
            if default is None:
                self.complain(name, "missing; the estimate needs it")
            return 1 if default is None else default
        if isinstance(value, bool) or not isinstance(value, int):
            self.complain(name, "must be a whole number", value)
            return 1
        if value < 1:
            self.complain(name, "must be at least 1", value)
            return 1
        if value > most:
            self.complain(name, f"must be at most {most}", value)
            return 1
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.complain(name, "must be true or false", value)
            return default
        return value

    def dropout(self, name: str, default: bool) -> bool:
        """Whether a dropout probability is above 0."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.complain(name, "must be a probability, at least 0 and below 1", value)
            return default
        return value > 0

    def divides(self, name: str, part: int, whole_name: str, whole: int) -> None:
        """Complain unless field ``name`` divides field ``whole_name``; both read before."""
        bad = {c.field for c in self.complaints}
        if {f"model.config.{name}", f"model.config.{whole_name}"} & bad:
            return
        if whole % part:
            self.complain(name, f"must divide {whole_name} = {whole}", part)


def _read_llama(fields: _Fields, model: ConfigModel) -> _Architecture:
    """Llama, Mistral and Qwen2: RMSNorm, rotary positions, grouped heads, gated MLP."""
    kind = fields.get("model_type")
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    # Only LlamaConfig takes a missing count to mean one key-value head per query head.
    kv_heads = fields.count("num_key_value_heads", heads if kind == "llama" else None)
    if fields.get("head_dim") is None:
        fields.divides("num_attention_heads", heads, "hidden_size", hidden)
        head_size = max(hidden // heads, 1)
    else:
        head_size = fields.count("head_dim")
    fields.divides("num_key_value_heads", kv_heads, "num_attention_heads", heads)
    windowed = kind == "mistral" or (kind == "qwen2" and fields.flag("use_sliding_window", False))
    if windowed and fields.get("sliding_window") is not None:
        window = fields.count("sliding_window")
        if window < model.sequence_length:
            fields.complain(
                "sliding_window",
                f"attention windows shorter than the sequence ({model.sequence_length}) are not "
                "estimated; set it to null for full attention",
                window,
            )
    attention_bias = fields.flag("attention_bias", False)
    return _Architecture(
        hidden=hidden,
        blocks=fields.count("num_hidden_layers", most=MAX_LAYERS - 2),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        inner=fields.count("intermediate_size"),
        vocabulary=fields.count("vocab_size"),
        positions=0,
        norm_weights=1,
        gated=True,
        qkv_bias=attention_bias or kind == "qwen2",
        output_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
        tied=fields.flag("tie_word_embeddings", False),
        embedding_dropout=False,
        attention_dropout=fields.dropout("attention_dropout", False),
        hidden_dropout=False,
    )


def _read_gpt2(fields: _Fields, model: ConfigModel) -> _Architecture:
    """GPT-2 and GPT-3: LayerNorm, learned positions, biases and dropout everywhere."""
    hidden = fields.count("n_embd")
    heads = fields.count("n_head")
    fields.divides("n_head", heads, "n_embd", hidden)
    positions = fields.count("n_positions")
    if positions < model.sequence_length and not any(
        c.field == "model.config.n_positions" for c in fields.complaints
    ):
        fields.complain(
            "n_positions",
            f"learned positions end before the sequence does (sequence_length "
            f"{model.sequence_length}); shorten the sequence",
            positions,
        )
    if fields.flag("add_cross_attention", False):
        fields.complain("add_cross_attention", "cross attention is not estimated", True)
    return _Architecture(
        hidden=hidden,
        blocks=fields.count("n_layer", most=MAX_LAYERS - 2),
        heads=heads,
        kv_heads=heads,
        head_size=max(hidden // heads, 1),
        inner=fields.count("n_inner", 4 * hidden),
        vocabulary=fields.count("vocab_size"),
        positions=positions,
        norm_weights=2,
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=fields.flag("tie_word_embeddings", True),
        embedding_dropout=fields.dropout("embd_pdrop", True),
        attention_dropout=fields.dropout("attn_pdrop", True),
        hidden_dropout=fields.dropout("resid_pdrop", True),
    )


_READERS: dict[str, Callable[[_Fields, ConfigModel], _Architecture]] = {
    "gpt2": _read_gpt2,
    "llama": _read_llama,
    "mistral": _read_llama,
    "qwen2": _read_llama,
}


def _architecture(fields: _Fields, model: ConfigModel) -> _Architecture | None:
    """The architecture of a config; None, with a complaint, if it is not one of ours."""
    kind = fields.get("model_type")
    supported = ", ".join(sorted(_READERS))
    if kind is None:
        fields.complain("model_type", f"missing; supported are {supported}")
        return None
    if not isinstance(kind, str) or kind not in _READERS:
        fields.complain("model_type", f"not supported; supported are {supported}", kind)
        return None
    for name in _EXPERT_FIELDS:
        if fields.get(name) is not None:
            message = "mixtures of experts are not estimated; give a table of layers"
            fields.complain(name, message, fields.get(name))
    return _READERS[kind](fields, model)


# --- one template, one microbatch -----------------------------------------------------------------


def _why_not(arch: _Architecture, sequence: int, template: Template) -> str:
    """Why a model cannot use a template; empty if it can."""
    t, c = template.tensor, template.context
    if template.expert > 1:
        return "the model has no experts"
    if arch.heads % t:
        return f"tensor degree {t} does not divide the {arch.heads} attention heads"
    if arch.kv_heads % t and t % arch.kv_heads:
        return (
            f"tensor degree {t} neither divides the {arch.kv_heads} key-value heads nor is a "
            "multiple of them"
        )
    if arch.inner % t:
        return f"tensor degree {t} does not divide the MLP size {arch.inner}"
    if sequence % c:
        return f"context degree {c} does not divide the sequence of {sequence}"
    if template.sequence_parallel and (sequence // c) % t:
        part = f"{sequence // c}" + (f" (a context share of {sequence})" if c > 1 else "")
        return f"tensor degree {t} does not divide the sequence of {part} for sequence parallelism"
    return ""


class _Shard(NamedTuple):
    """Sizes on one device; see the notation of the module."""

    sequences: int
    keys: int  # positions every query attends to: the whole sequence, s
    tokens: int  # n
    residual_tokens: int  # r
    heads: int
    kv_heads: int
    query: int  # features of Q, and of the attention's output
    key: int  # features of K, and of V
    inner: int
    vocabulary: int

    @property
    def scores(self) -> int:
        """Entries of the attention matrix: n queries per head, s keys each."""
        return self.heads * self.tokens * self.keys


def _shard(arch: _Architecture, sequence: int, template: Template, microbatch: int) -> _Shard:
    t = template.tensor
    tokens = sequence // template.context * microbatch
    heads = arch.heads // t
    kv_heads = arch.kv_heads // min(t, arch.kv_heads)
    padding = VOCABULARY_MULTIPLE * t
    return _Shard(
        sequences=microbatch,
        keys=sequence,
        tokens=tokens,
        residual_tokens=tokens // t if template.sequence_parallel else tokens,
        heads=heads,
        kv_heads=kv_heads,
        query=heads * arch.head_size,
        key=kv_heads * arch.head_size,
        inner=arch.inner // t,
        vocabulary=-(-arch.vocabulary // padding) * padding // t,
    )


# --- weights --------------------------------------------------------------------------------------


def _word_matrix(arch: _Architecture, on: _Shard) -> int:
    """Weights of a vocabulary-parallel matrix: v*h/t (Shoeybi et al., section 3)."""
    return on.vocabulary * arch.hidden


def _block_weights(arch: _Architecture, on: _Shard) -> int:
    """Weights of one block on one device (Shoeybi et al., section 3, figure 3).

    Column-parallel (QKV, first MLP matrices) with their biases and row-parallel (output, last MLP
    matrix) are sharded by t, K and V by min(t, k); norms and row-parallel biases are replicated.
    """
    qkv = on.query + 2 * on.key
    first = (2 if arch.gated else 1) * on.inner
    weights = arch.hidden * (qkv + on.query + first + on.inner)
    weights += 2 * arch.norm_weights * arch.hidden
    if arch.qkv_bias:
        weights += qkv
    if arch.output_bias:
        weights += arch.hidden
    if arch.mlp_bias:
        weights += first + arch.hidden
    return weights


# --- kept bytes -----------------------------------------------------------------------------------


def _block_kept(arch: _Architecture, on: _Shard) -> int:
    """Bytes a block keeps outside its attention core (Korthikanti et al., section 4.1).

    With h = a*d, i = 4h, k = a and dropout this is the paper's s*b*h*(10 + 24/t), or s*b*h*34/t
    with sequence parallelism. A fused gated activation keeps its two inputs and its product.
    """
    n, r = on.tokens, on.residual_tokens
    kept = 2 * (_HALF * r * arch.hidden)  # input of each norm
    kept += 2 * (_HALF * r * arch.hidden)  # input of QKV and of the MLP
    kept += _HALF * n * (on.query + 2 * on.key)  # Q, K, V
    kept += _HALF * n * on.query  # input of the output projection
    kept += _HALF * n * on.inner * (3 if arch.gated else 2)  # around the activation function
    if arch.hidden_dropout:
        kept += 2 * (_MASK * r * arch.hidden)
    return kept


def _core_kept(arch: _Architecture, on: _Shard, flash: bool) -> int:
    """Bytes of the attention core, what selective recomputation frees.

    Korthikanti et al., section 4.1: softmax output, dropout mask and dropout output,
    5*a*s*s*b/t; without dropout the first alone. Flash attention keeps one log-sum-exp per query
    and head (Dao 2023, section 3.1).
    """
    if flash:
        return _SINGLE * on.heads * on.tokens
    return on.scores * (2 * _HALF + _MASK if arch.attention_dropout else _HALF)


# --- time -----------------------------------------------------------------------------------------


class _Work(NamedTuple):
    """One kernel: floating-point operations, and bytes to and from the device's memory."""

    flops: int
    bytes: int


class _Operator(NamedTuple):
    forward: tuple[_Work, ...]
    backward: tuple[_Work, ...]


def _matmul(rows: int, inner: int, columns: int) -> _Operator:
    """(rows x inner) times (inner x columns); backward, one such product for each factor."""
    work = _Work(
        2 * rows * inner * columns, _HALF * (rows * inner + inner * columns + rows * columns)
    )
    return _Operator((work,), (work, work))


def _elementwise(forward_bytes: int, backward_bytes: int) -> _Operator:
    """A memory-bound operator, by the bytes it reads and writes."""
    return _Operator((_Work(0, forward_bytes),), (_Work(0, backward_bytes),))


def _norm(arch: _Architecture, on: _Shard) -> _Operator:
    """Forward reads x, writes y; backward reads dy and x, writes dx."""
    features = _HALF * on.residual_tokens * arch.hidden
    return _elementwise(2 * features, 3 * features)


def _core_operators(arch: _Architecture, on: _Shard, flash: bool) -> list[_Operator]:
    """The attention core. 2 FLOPs per multiply-add; s*b/c queries meet s keys.

    Without flash attention the full square is computed and masked: Q*K', softmax, dropout, times V;
    two products backward for each forward. With it, the causal half, in one kernel each way, with
    5 products backward for 2 forward (Dao 2023, section 4.1), and no score touches memory. The half
    assumes that ring attention deals tokens out evenly (Brandon et al. 2023, arXiv 2311.09431).
    """
    queries = _HALF * on.tokens * on.query
    keys = _HALF * on.sequences * on.keys * on.key
    product = 2 * on.scores * arch.head_size
    if flash:
        statistics = _SINGLE * on.heads * on.tokens
        return [
            _Operator(
                (_Work(2 * product // 2, 2 * queries + 2 * keys + statistics),),
                (_Work(5 * product // 2, 4 * queries + 4 * keys + statistics),),
            )
        ]
    scores = _HALF * on.scores
    work = _Work(product, queries + keys + scores)
    operators = [_Operator((work,), (work, work)) for _ in ("Q*K'", "scores*V")]
    operators.append(_elementwise(2 * scores, 3 * scores))  # softmax
    if arch.attention_dropout:
        mask = _MASK * on.scores
        operators.append(_elementwise(2 * scores + mask, 2 * scores + mask))
    return operators


def _block_operators(arch: _Architecture, on: _Shard) -> list[_Operator]:
    """The block without its attention core. Biases are fused into the products before them."""
    n, residual = on.tokens, _HALF * on.residual_tokens * arch.hidden
    first = (2 if arch.gated else 1) * on.inner
    inner = _HALF * n * on.inner
    operators = [
        _norm(arch, on),
        _matmul(n, arch.hidden, on.query + 2 * on.key),
        _matmul(n, on.query, arch.hidden),
        _norm(arch, on),
        _matmul(n, arch.hidden, first),
        # Activation: read its inputs, write one output; backward read both sides, write gradients.
        _elementwise(3 * inner, 5 * inner) if arch.gated else _elementwise(2 * inner, 3 * inner),
        _matmul(n, on.inner, arch.hidden),
    ]
    if not arch.positions:  # rotary embedding of Q and K, in and out
        rotated = 2 * _HALF * n * (on.query + on.key)
        operators.append(_elementwise(rotated, rotated))
    # Two residual sums, read two and write one; backward, their gradients meet at the norm's input.
    operators += 2 * [_elementwise(3 * residual, 3 * residual)]
    if arch.hidden_dropout:  # fused into the sums forward: only the mask is extra
        mask = _MASK * on.residual_tokens * arch.hidden
        operators += 2 * [_elementwise(mask, 2 * residual + mask)]
    return operators


def _embedding_operators(arch: _Architecture, on: _Shard) -> list[_Operator]:
    """Look-up of every token; learned positions and dropout where the model has them.

    Backward adds gradients into the rows: read one, read and write the other.
    """
    looked_up = _HALF * on.tokens * arch.hidden
    residual = _HALF * on.residual_tokens * arch.hidden
    operators = [_elementwise(2 * looked_up, 3 * looked_up)]
    if arch.positions:
        operators.append(_elementwise(3 * residual, 3 * residual))
    if arch.embedding_dropout:
        mask = _MASK * on.residual_tokens * arch.hidden
        operators.append(_elementwise(2 * residual + mask, 2 * residual + mask))
    return operators


def _head_operators(arch: _Architecture, on: _Shard) -> list[_Operator]:
    """Final norm, vocabulary projection, vocabulary-parallel cross-entropy.

    The loss casts 2-byte logits to 4 (read, write), finds the maximum (read), takes exponentials
    and their sum (read, write); backward reads those and writes 2-byte gradients.
    """
    logits = on.tokens * on.vocabulary
    return [
        _norm(arch, on),
        _matmul(on.tokens, arch.hidden, on.vocabulary),
        _elementwise((_HALF + 4 * _SINGLE) * logits, (_SINGLE + _HALF) * logits),
    ]


@dataclass(frozen=True)
class _Roofline:
    """A kernel takes the longer of its arithmetic and its memory traffic (Williams et al. 2009)."""

    seconds_per_flop: Fraction
    seconds_per_byte: Fraction

    def forward(self, operators: list[_Operator]) -> Fraction:
        return sum((self._kernel(w) for op in operators for w in op.forward), Fraction(0))

    def backward(self, operators: list[_Operator]) -> Fraction:
        return sum((self._kernel(w) for op in operators for w in op.backward), Fraction(0))

    def _kernel(self, work: _Work) -> Fraction:
        return max(work.flops * self.seconds_per_flop, work.bytes * self.seconds_per_byte)


def _roofline(device: Device, field: str, complaints: list[Complaint]) -> _Roofline | None:
    """The device's roofline; None, with complaints, where it lacks the numbers."""
    flops, memory = device.peak_flops_per_second, device.memory_bytes_per_second
    for name, value in (("peak_flops_per_second", flops), ("memory_bytes_per_second", memory)):
        if value is None:
            complaints.append(
                Complaint(f"{field}.{name}", "missing; a model given by a config needs it")
            )
    if flops is None or memory is None:
        return None
    return _Roofline(
        1 / (exact(flops) * exact(device.matmul_efficiency)),
        1 / (exact(memory) * exact(device.memory_efficiency)),
    )


# --- collectives ----------------------------------------------------------------------------------


def _call(kind: Any, axis: Axis, direction: Pass, size: int, count: int = 1) -> Call:
    return Call(kind, axis, direction, Fraction(size), count)


def _block_calls(arch: _Architecture, on: _Shard, template: Template) -> tuple[Call, ...]:
    """Calls of one block.

    Tensor: two all-reduces of s*b*h each way (Shoeybi et al., section 3), or, with sequence
    parallelism, an all-gather into and a reduce-scatter out of each half (Korthikanti et al.,
    section 4.2.2). Context: K and V of a block go round the ring; backward, their gradients too.
    """
    calls: list[Call] = []
    full = _HALF * on.tokens * arch.hidden
    directions: tuple[Pass, Pass] = ("forward", "backward")
    if template.tensor > 1:
        for direction in directions:
            if template.sequence_parallel:
                calls.append(_call("all_gather", "tensor", direction, full, 2))
                calls.append(_call("reduce_scatter", "tensor", direction, full, 2))
            else:
                calls.append(_call("all_reduce", "tensor", direction, full, 2))
    if template.context > 1:
        block = 2 * _HALF * on.tokens * on.key
        calls.append(_call("ring_pass", "context", "forward", block))
        calls.append(_call("ring_pass", "context", "backward", 2 * block))
    return tuple(calls)


def _embedding_calls(arch: _Architecture, on: _Shard, template: Template) -> tuple[Call, ...]:
    """Partial look-ups are summed; with sequence parallelism into shards (Shoeybi et al.)."""
    full = _HALF * on.tokens * arch.hidden
    if template.tensor == 1:
        return ()
    if not template.sequence_parallel:
        return (_call("all_reduce", "tensor", "forward", full),)
    return (
        _call("reduce_scatter", "tensor", "forward", full),
        _call("all_gather", "tensor", "backward", full),
    )


def _head_calls(arch: _Architecture, on: _Shard, template: Template) -> tuple[Call, ...]:
    """Input of the column-parallel projection, and the loss's maximum, target logit and sum."""
    full = _HALF * on.tokens * arch.hidden
    if template.tensor == 1:
        return ()
    loss = _call("all_reduce", "tensor", "forward", _SINGLE * on.tokens, 3)
    if not template.sequence_parallel:
        return (loss, _call("all_reduce", "tensor", "backward", full))
    return (
        _call("all_gather", "tensor", "forward", full),
        loss,
        _call("reduce_scatter", "tensor", "backward", full),
    )


# --- the table ------------------------------------------------------------------------------------


def _layer(
    roofline: _Roofline,
    operators: list[_Operator],
    core: list[_Operator],
    *,
    weights: int,
    kept: int,
    core_kept: int,
    checkpoint: int,
    output: int,
    calls: tuple[Call, ...],
) -> LayerCost:
    forward = roofline.forward(operators + core)
    return LayerCost(
        forward=forward,
        backward=roofline.backward(operators + core),
        recompute=forward,
        recompute_selective=roofline.forward(core),
        weight_bytes=Fraction(_HALF * weights),
        expert_weight_bytes=Fraction(0),
        activation_bytes=Fraction(kept + core_kept),
        selective_bytes=Fraction(kept),
        checkpoint_bytes=Fraction(checkpoint),
        attention_core_bytes=Fraction(core_kept),
        output_bytes=Fraction(output),
        calls=calls,
    )


def _layers(
    arch: _Architecture, on: _Shard, template: Template, flash: bool, roofline: _Roofline
) -> tuple[LayerCost, ...]:
    """Costs in execution order; all blocks are one object."""
    # What crosses from layer to layer: s*b*h, each device its share with sequence parallelism.
    stream = _HALF * on.residual_tokens * arch.hidden
    ids = _TOKEN_ID * on.tokens
    mask = _MASK * on.residual_tokens * arch.hidden if arch.embedding_dropout else 0
    embedding = _layer(
        roofline,
        _embedding_operators(arch, on),
        [],
        weights=_word_matrix(arch, on) + arch.positions * arch.hidden,
        kept=ids + mask,
        core_kept=0,
        checkpoint=ids,
        output=stream,
        calls=_embedding_calls(arch, on, template),
    )
    block = _layer(
        roofline,
        _block_operators(arch, on),
        _core_operators(arch, on, flash),
        weights=_block_weights(arch, on),
        kept=_block_kept(arch, on),
        core_kept=_core_kept(arch, on, flash),
        checkpoint=stream,
        output=stream,
        calls=_block_calls(arch, on, template),
    )
    head = _layer(
        roofline,
        _head_operators(arch, on),
        [],
        weights=arch.norm_weights * arch.hidden + _word_matrix(arch, on),
        # Korthikanti et al., section 4.3: inputs of norm and projection, logits in 4 bytes.
        kept=2 * stream + _SINGLE * on.tokens * on.vocabulary,
        core_kept=0,
        checkpoint=stream,
        output=0,
        calls=_head_calls(arch, on, template),
    )
    return (embedding, *(arch.blocks * (block,)), head)


def table_of_config(
    model: ConfigModel,
    device: Device,
    templates: tuple[Template, ...],
    microbatches: tuple[int, ...],
) -> LayerTable:
    """The layer table of a dense decoder Transformer given by its Hugging Face ``config.json``.

    Supports ``model_type`` gpt2, llama, mistral and qwen2. Bytes and seconds are per device, for
    one microbatch of ``model.sequence_length`` tokens per sequence; weights at 2 bytes. A template
    that does not divide what it shards is skipped with the reason. Tied word matrices count in
    both ends' weights and are given in ``tied_bytes``.

    Raises :class:`nest_opt.errors.InputError`, listing every complaint, for a config that is
    incomplete, contradictory or not of these families, and for a device without a peak rate or
    memory bandwidth. Takes O(templates * (microbatches + blocks)) time.

    >>> device = Device(name="d", memory_bytes=1, peak_flops_per_second=1e12,
    ...                 memory_bytes_per_second=1e11)
    >>> config = {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4,
    ...           "n_positions": 64, "vocab_size": 256}
    >>> model = ConfigModel(kind="config", name="tiny", sequence_length=64, config=config)
    >>> table = table_of_config(model, device, (Template(), Template(tensor=3)), (1,))
    >>> table.names
    ('embedding', 'block.0', 'block.1', 'head')
    >>> [(template.label, reason) for template, reason in table.skipped]
    [('t3', 'tensor degree 3 does not divide the 4 attention heads')]
    """
    fields = _Fields(model.config)
    arch = _architecture(fields, model)
    complaints = fields.complaints
    owner = "cluster.device" if model.device is None else "model.device"
    roofline = _roofline(device, owner, complaints)
    if complaints or arch is None or roofline is None:
        raise InputError(model.name, complaints)

    sequence = model.sequence_length
    costs: dict[tuple[Template, int], tuple[LayerCost, ...]] = {}
    tied: dict[Template, Fraction] = {}
    skipped: list[tuple[Template, str]] = []
    for template in templates:
        reason = _why_not(arch, sequence, template)
        if reason:
            skipped.append((template, reason))
            continue
        word = _HALF * _word_matrix(arch, _shard(arch, sequence, template, 1))
        tied[template] = Fraction(word if arch.tied else 0)
        for microbatch in microbatches:
            on = _shard(arch, sequence, template, microbatch)
            costs[template, microbatch] = _layers(
                arch, on, template, model.flash_attention, roofline
            )
    names = ("embedding", *(f"block.{index}" for index in range(arch.blocks)), "head")
    last = len(names) - 1
    return LayerTable(
        names=names,
        consumers=tuple(min(index + 1, last) for index in range(len(names))),
        costs=costs,
        tied_bytes=tied,
        skipped=tuple(skipped),
    )
