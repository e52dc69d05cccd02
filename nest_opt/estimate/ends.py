"""The embedding and the head: the layers before and after the blocks.

In addition to the notation of :mod:`nest_opt.estimate.parts`: ``v`` the vocabulary, padded and
divided by ``t``.
"""

from __future__ import annotations

from nest_opt.estimate.architecture import Architecture
from nest_opt.estimate.parts import Part, Shard, call
from nest_opt.estimate.roofline import (
    HALF,
    MASK,
    SINGLE,
    TOKEN_ID,
    Operator,
    elementwise,
    matmul,
    norm,
    total,
)
from nest_opt.estimate.table import Call

#: The vocabulary is padded to a multiple of this times the tensor degree, as Megatron-LM does.
VOCABULARY_MULTIPLE = 128


def _vocabulary(arch: Architecture, on: Shard) -> int:
    tensor = on.template.tensor
    padding = VOCABULARY_MULTIPLE * tensor
    return -(-arch.vocabulary // padding) * padding // tensor


def word_matrix(arch: Architecture, on: Shard) -> int:
    """Weights of a vocabulary-parallel matrix: v*h/t (Shoeybi et al., section 3)."""
    return _vocabulary(arch, on) * arch.hidden


def inputs_kept(arch: Architecture, on: Shard) -> int:
    """Bytes of the model's input: ids of tokens, and of their types where the model has them."""
    return (2 if arch.token_types else 1) * TOKEN_ID * on.tokens


def embedding_part(arch: Architecture, on: Shard) -> Part:
    """Look-up of every token; learned positions, token types, norm and dropout where it has them.

    Backward adds gradients into the rows: read one, read and write the other. Kept: the ids, the
    input of the norm, the mask of the dropout (Korthikanti et al., section 4.3).
    """
    elements = on.residual_tokens * arch.hidden
    looked_up = HALF * on.tokens * arch.hidden
    operators = [elementwise(2 * looked_up, 3 * looked_up)]
    weights, kept = word_matrix(arch, on), inputs_kept(arch, on)
    for rows in (arch.positions, arch.token_types):
        if rows:
            operators.append(total(elements))
            weights += rows * arch.hidden
    if arch.masked:
        operators.append(norm(elements))
        weights += arch.norm_weights * arch.hidden
        kept += HALF * elements
    if arch.embedding_dropout:
        mask = MASK * elements
        operators.append(elementwise(2 * HALF * elements + mask, 2 * HALF * elements + mask))
        kept += mask
    return Part(tuple(operators), weights, kept, _embedding_calls(arch, on))


def _embedding_calls(arch: Architecture, on: Shard) -> tuple[Call, ...]:
    """Partial look-ups are summed; with sequence parallelism into shards (Shoeybi et al.)."""
    full = HALF * on.tokens * arch.hidden
    if on.template.tensor == 1:
        return ()
    if not on.template.sequence_parallel:
        return (call("all_reduce", "tensor", "forward", full),)
    return (
        call("reduce_scatter", "tensor", "forward", full),
        call("all_gather", "tensor", "backward", full),
    )


def head_part(arch: Architecture, on: Shard) -> Part:
    """Final norm, vocabulary projection, vocabulary-parallel cross-entropy.

    Kept (Korthikanti et al., section 4.3): inputs of norm and projection, 2*r*h bytes each, and the
    logits in 4 bytes. The loss casts 2-byte logits to 4 (read, write), finds the maximum (read),
    takes exponentials and their sum (read, write); backward reads those and writes 2-byte
    gradients. A masked language model has a dense layer and an activation, replicated, before the
    norm, and biases; they keep their inputs (Devlin et al. 2018, arXiv 1810.04805). Every position
    is projected, masked or not.
    """
    elements, vocabulary = on.residual_tokens * arch.hidden, _vocabulary(arch, on)
    logits = on.tokens * vocabulary
    operators: list[Operator] = [
        norm(elements),
        matmul(on.tokens, arch.hidden, vocabulary),
        elementwise((HALF + 4 * SINGLE) * logits, (SINGLE + HALF) * logits),
    ]
    weights = arch.norm_weights * arch.hidden + word_matrix(arch, on)
    kept = 2 * HALF * elements + SINGLE * logits
    if arch.masked:
        operators.append(matmul(on.residual_tokens, arch.hidden, arch.hidden))
        operators.append(elementwise(2 * HALF * elements, 3 * HALF * elements))
        weights += arch.hidden * arch.hidden + arch.hidden + vocabulary
        kept += 2 * HALF * elements
    if arch.softcap:
        operators.append(elementwise(2 * HALF * logits, 3 * HALF * logits))
    return Part(tuple(operators), weights, kept, _head_calls(arch, on))


def _head_calls(arch: Architecture, on: Shard) -> tuple[Call, ...]:
    """Input of the column-parallel projection, and the loss's maximum, target logit and sum."""
    full = HALF * on.tokens * arch.hidden
    if on.template.tensor == 1:
        return ()
    loss = call("all_reduce", "tensor", "forward", SINGLE * on.tokens, 3)
    if not on.template.sequence_parallel:
        return (loss, call("all_reduce", "tensor", "backward", full))
    return (
        call("all_gather", "tensor", "forward", full),
        loss,
        call("reduce_scatter", "tensor", "backward", full),
    )
