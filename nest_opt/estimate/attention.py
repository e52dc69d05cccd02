"""The attention of a block: grouped heads, attention windows, latent attention, the core.

In addition to the notation of :mod:`nest_opt.estimate.parts`: ``a`` query and ``k`` key-value heads
on one device (key-value heads are replicated where ``t`` exceeds them).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nest_opt.estimate.architecture import Attention, Latent
from nest_opt.estimate.parts import Part, Shard, call, tensor_calls
from nest_opt.estimate.roofline import (
    HALF,
    MASK,
    SINGLE,
    Operator,
    Work,
    elementwise,
    matmul,
    norm,
)
from nest_opt.estimate.table import Call


@dataclass(frozen=True)
class _Sizes:
    """Heads and features on one device."""

    heads: int
    query: int
    key: int
    value: int
    output: int
    rotated: int


def _sizes(attention: Attention, tensor: int) -> _Sizes:
    heads = attention.heads // tensor
    kv_heads = attention.kv_heads // min(tensor, attention.kv_heads)
    # Latent attention rotates one part of the key for all heads.
    rotated_keys = 1 if attention.latent else kv_heads
    return _Sizes(
        heads,
        query=heads * attention.key_size,
        key=kv_heads * attention.key_size,
        value=kv_heads * attention.value_size,
        output=heads * attention.value_size,
        rotated=(heads + rotated_keys) * attention.rotary,
    )


def attention_part(attention: Attention, hidden: int, on: Shard, flash: bool) -> Part:
    """Projections, rotary embedding, core and output projection of one device.

    Kept (Korthikanti et al., section 4.1): Q, K, V and the input of the output projection, 2 bytes
    an element; norms of heads keep their inputs as well. Column-parallel matrices and their biases
    are sharded by t, K and V by min(t, k); the bias of the row-parallel output is replicated
    (Shoeybi et al., section 3, figure 3).
    """
    n, on_device = on.tokens, _sizes(attention, on.template.tensor)
    query, key = on_device.query, on_device.key
    if attention.latent:
        projections = _latent_projections(attention, attention.latent, hidden, on, on_device)
    else:
        projections = _projections(attention, hidden, on, on_device)
    operators = [matmul(n, on_device.output, hidden)]
    weights = on_device.output * hidden + (hidden if attention.output_bias else 0)
    kept = HALF * n * (query + key + on_device.value + on_device.output)
    if attention.head_norms:
        operators.append(norm(n * (query + key)))
        weights += 2 * attention.key_size
        kept += HALF * n * (query + key)
    if attention.rotary:  # in and out
        rotated = 2 * HALF * n * on_device.rotated
        operators.append(elementwise(rotated, rotated))
    return projections + Part(
        tuple(operators),
        weights,
        kept,
        _ring(on, on_device),
        tuple(_core(attention, on, on_device, flash)),
        _core_kept(attention, on, on_device, flash),
    )


def _projections(attention: Attention, hidden: int, on: Shard, size: _Sizes) -> Part:
    """Q, K and V in one product."""
    columns = size.query + size.key + size.value
    weights = hidden * columns + (columns if attention.qkv_bias else 0)
    product = matmul(on.tokens, hidden, columns)
    return Part((product,), weights, 0, tensor_calls(on, (hidden,), hidden))


def _latent_projections(
    attention: Attention, latent: Latent, hidden: int, on: Shard, size: _Sizes
) -> Part:
    """Down to the latents, a norm, and up to the heads (DeepSeek-AI 2024, appendix C).

    As in Megatron-LM the down projections are replicated and work on r tokens, and the up
    projections are column-parallel, so that latents cross the tensor group where the model
    compresses, and the input itself where it does not. Kept beside Q, K and V: each latent before
    and after its norm.
    """
    n, r = on.tokens, on.residual_tokens
    shared, plain_key = latent.rotary, size.key - size.heads * latent.rotary
    down, up = latent.rank + shared, plain_key + size.value
    operators = [
        matmul(r, hidden, down),
        norm(r * latent.rank),
        matmul(n, latent.rank, up),
        # Keys are written together from the heads' own part and the shared one.
        elementwise(2 * HALF * n * size.key, 2 * HALF * n * size.key),
    ]
    weights = hidden * down + latent.rank + latent.rank * up
    biases = down
    kept = 2 * HALF * r * latent.rank
    if latent.query_rank is None:
        operators.append(matmul(n, hidden, size.query))
        weights += hidden * size.query
        inputs = (hidden, down)
    else:
        rank = latent.query_rank
        operators += [matmul(r, hidden, rank), norm(r * rank), matmul(n, rank, size.query)]
        weights += hidden * rank + rank + rank * size.query
        biases += rank
        kept += 2 * HALF * r * rank
        inputs = (rank, down)
    if attention.qkv_bias:
        weights += biases
    return Part(tuple(operators), weights, kept, tensor_calls(on, inputs, hidden))


def _ring(on: Shard, size: _Sizes) -> tuple[Call, ...]:
    """K and V of one block go round the ring; backward, their gradients too (Liu et al.).

    A window shortens the arithmetic, not the ring.
    """
    if on.template.context == 1:
        return ()
    block = HALF * on.tokens * (size.key + size.value)
    return (
        call("ring_pass", "context", "forward", block),
        call("ring_pass", "context", "backward", 2 * block),
    )


def _scores(on: Shard, size: _Sizes) -> int:
    """Entries of the attention matrix: n queries per head, s keys each."""
    return size.heads * on.tokens * on.sequence


def _attended(attention: Attention, sequence: int) -> Fraction:
    """The share of the attention matrix that the mask leaves: s*s/2 of s*s if causal.

    A query sees the window before it, and the first ones less: w*s - w*w/2 of s*s.
    """
    if not attention.causal:
        return Fraction(1)
    window = attention.window or sequence
    return Fraction(2 * window * sequence - window * window, 2 * sequence * sequence)


def _core_kept(attention: Attention, on: Shard, size: _Sizes, flash: bool) -> int:
    """Bytes of the attention core, what selective recomputation frees.

    Korthikanti et al., section 4.1: softmax output, dropout mask and dropout output,
    5*a*s*s*b/t; without dropout the first alone; a soft cap keeps its output. Flash attention keeps
    one log-sum-exp per query and head (Dao 2023, section 3.1).
    """
    if flash:
        return SINGLE * size.heads * on.tokens
    each = 2 * HALF + MASK if attention.dropout else HALF
    return _scores(on, size) * (each + (HALF if attention.softcap else 0))


def _core(attention: Attention, on: Shard, size: _Sizes, flash: bool) -> list[Operator]:
    """The attention core. 2 FLOPs per multiply-add; s*b/c queries meet s keys.

    Without flash attention the full square is computed and masked: Q*K', softmax, dropout, times V;
    two products backward for each forward. With it, the part that the mask leaves, in one kernel
    each way, with 5 products backward for 2 forward, three of them over the key's features
    (Dao 2023, section 4.1), and no score touches memory. The share of the mask assumes that ring
    attention deals tokens out evenly (Brandon et al. 2023, arXiv 2311.09431).
    """
    scores = _scores(on, size)
    with_keys, with_values = 2 * scores * attention.key_size, 2 * scores * attention.value_size
    rows, columns = on.tokens, on.sequences * on.sequence
    if flash:
        attended = _attended(attention, on.sequence)
        traffic = HALF * (rows * (size.query + size.output) + columns * (size.key + size.value))
        statistics = SINGLE * size.heads * rows
        return [
            Operator(
                (Work(attended * (with_keys + with_values), traffic + statistics),),
                (Work(attended * (3 * with_keys + 2 * with_values), 2 * traffic + statistics),),
            )
        ]
    square = HALF * scores
    first = Work(with_keys, HALF * (rows * size.query + columns * size.key) + square)
    second = Work(with_values, HALF * (rows * size.output + columns * size.value) + square)
    operators = [Operator((work,), (work, work)) for work in (first, second)]
    operators.append(norm(scores))  # the softmax moves what a norm does
    if attention.softcap:
        operators.append(elementwise(2 * square, 3 * square))
    if attention.dropout:
        mask = MASK * scores
        operators.append(elementwise(2 * square + mask, 2 * square + mask))
    return operators
