"""The MLP of a block: dense, or a mixture of routed and shared experts.

In addition to the notation of :mod:`nest_opt.estimate.parts`: ``i`` the size of an MLP or expert,
``E`` routed experts, ``k`` of them for each token, capacity factor ``f``.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from nest_opt.estimate.architecture import Experts, Mlp
from nest_opt.estimate.parts import Part, Shard, call, tensor_calls
from nest_opt.estimate.roofline import (
    HALF,
    SINGLE,
    TOKEN_ID,
    Operator,
    elementwise,
    matmul,
    total,
)
from nest_opt.estimate.table import Call


def mlp_part(mlp: Mlp, hidden: int, on: Shard) -> Part:
    """A dense MLP; its first matrices column-parallel, its last one row-parallel (Shoeybi et al.).

    Kept (Korthikanti et al., section 4.1): input and output of the activation, 2*n*i bytes each; a
    fused gated activation keeps its two inputs and its product.
    """
    inner = mlp.inner // on.template.tensor
    first = (2 if mlp.gated else 1) * inner
    weights = hidden * (first + inner) + (first + hidden if mlp.bias else 0)
    kept = HALF * on.tokens * (first + inner)
    operators = _products(on.tokens, hidden, inner, mlp.gated)
    return Part(operators, weights, kept, tensor_calls(on, (hidden,), hidden))


def _products(
    rows: int, hidden: int, inner: int, gated: bool, experts: int = 1
) -> tuple[Operator, ...]:
    """Up, activation, down.

    The activation reads its inputs and writes one output; backward it reads both sides and writes
    gradients.
    """
    half = HALF * rows * inner
    return (
        matmul(rows, hidden, (2 if gated else 1) * inner, experts),
        elementwise(3 * half, 5 * half) if gated else elementwise(2 * half, 3 * half),
        matmul(rows, inner, hidden, experts),
    )


def experts_part(experts: Experts, hidden: int, on: Shard, capacity: Fraction) -> Part:
    """A mixture of gated experts: E/e of them on each expert rank, each sharded by t.

    Every token goes to k experts (Shazeer et al. 2017, arXiv 1701.06538), balanced, so that a
    device receives as many rows as it sends, f*k*n (Lepikhin et al. 2020, arXiv 2006.16668, section
    3; f scales the capacity of an expert as in Fedus et al. 2021, arXiv 2101.03961, section 2.2).
    The router is replicated and dense.

    Kept, in bytes: the router's scores, 4*E for each of r tokens, and its choice, 12*k; for each
    row the expert's input, 2*h, what a gated MLP keeps, 6*i/t, and its output, 2*h, which the
    gradient of the routing weights needs. A shared expert is a dense MLP of every token.
    """
    template, r = on.template, on.residual_tokens
    # With sequence parallelism each tensor rank dispatches its own tokens.
    sharded = template.sequence_parallel and template.expert > 1
    sent = r if sharded else on.tokens
    copies, rows = (ceil(capacity * experts.per_token * tokens) for tokens in (sent, on.tokens))
    inner = experts.inner // template.tensor
    local = experts.count // template.expert
    routing = Part(
        (
            matmul(r, hidden, experts.count),
            # Tokens to rows and back; the way back weighs them, and needs them for its gradient.
            elementwise(HALF * (sent + copies) * hidden, HALF * (sent + copies) * hidden),
            elementwise(HALF * (sent + copies) * hidden, HALF * (sent + 2 * copies) * hidden),
        ),
        hidden * experts.count + (experts.count if experts.router_bias else 0),
        r * (SINGLE * experts.count + (SINGLE + TOKEN_ID) * experts.per_token)
        + HALF * copies * hidden,
        _dispatch(on, HALF * copies * hidden, HALF * rows * hidden, sharded),
    )
    routed = Part(
        _products(rows, hidden, inner, True, local),
        weights=0,
        kept=HALF * rows * (hidden + 3 * inner),
        calls=() if sharded else tensor_calls(on, (hidden,), hidden),
        expert_weights=local * 3 * hidden * inner,
    )
    part = routing + routed
    return part + _shared_part(experts, hidden, on, sharded) if experts.shared_inner else part


def _dispatch(on: Shard, copies: int, rows: int, sharded: bool) -> tuple[Call, ...]:
    """All-to-all to the experts and back, and the same for gradients (Lepikhin et al.).

    Where tensor ranks dispatch shards, their rows are gathered for the sharded experts and reduced
    after them, as the all-to-all dispatcher of Megatron-LM does.
    """
    if on.template.expert == 1:
        return ()
    calls = [call("all_to_all", "expert", way, copies, 2) for way in ("forward", "backward")]
    if sharded:
        for way in ("forward", "backward"):
            calls.append(call("all_gather", "tensor", way, rows))
            calls.append(call("reduce_scatter", "tensor", way, rows))
    return tuple(calls)


def _shared_part(experts: Experts, hidden: int, on: Shard, sharded: bool) -> Part:
    """The expert of every token (DeepSeek-AI 2024, arXiv 2401.06066, section 3.2).

    Its input is that of the routed experts, unless these get their own shards of it. A learned gate
    keeps the output that it scales.
    """
    elements = on.residual_tokens * hidden
    mlp = mlp_part(Mlp(experts.shared_inner, gated=True), hidden, on)
    operators, weights, kept = [total(elements)], 0, 0
    if experts.shared_gate:
        operators.append(matmul(on.residual_tokens, hidden, 1))
        operators.append(elementwise(2 * HALF * elements, 3 * HALF * elements))
        weights, kept = hidden, HALF * elements
    calls = mlp.calls if sharded else ()
    return Part((*mlp.operators, *operators), mlp.weights + weights, mlp.kept + kept, calls)
