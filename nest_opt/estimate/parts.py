"""Sizes on one device, and the parts of which a layer is put together.

Notation, per device: ``s`` sequence, ``b`` microbatch, ``h`` hidden size, ``t`` tensor, ``c``
context and ``e`` expert degree; ``n = s*b/c`` tokens, and ``r = n/t`` of them with sequence
parallelism, else ``r = n``, in the parts that tensor parallelism does not shard (norms, dropouts on
the residual path, inputs). Expert ranks hold different sequences, so ``e`` divides nothing but the
experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nest_opt.collectives import CollectiveKind
from nest_opt.estimate.architecture import Architecture
from nest_opt.estimate.roofline import HALF, MASK, Operator, elementwise, norm, total
from nest_opt.estimate.table import Axis, Call, Pass
from nest_opt.plan import Template


class Shard(NamedTuple):
    """What one template and microbatch leave on one device."""

    template: Template
    sequence: int  # s
    sequences: int  # b
    tokens: int  # n
    residual_tokens: int  # r


def shard_of(sequence: int, template: Template, microbatch: int) -> Shard:
    """The shard of a microbatch."""
    tokens = sequence // template.context * microbatch
    residual = tokens // template.tensor if template.sequence_parallel else tokens
    return Shard(template, sequence, microbatch, tokens, residual)


@dataclass(frozen=True)
class Part:
    """A part of a layer on one device; parts add up.

    ``weights`` and ``expert_weights`` are numbers, ``kept`` and ``core_kept`` bytes per microbatch
    outside and inside the attention core, ``core`` the operators of that core.
    """

    operators: tuple[Operator, ...]
    weights: int
    kept: int
    calls: tuple[Call, ...] = ()
    core: tuple[Operator, ...] = ()
    core_kept: int = 0
    expert_weights: int = 0

    def __add__(self, other: Part) -> Part:
        return Part(
            self.operators + other.operators,
            self.weights + other.weights,
            self.kept + other.kept,
            merged(self.calls + other.calls),
            self.core + other.core,
            self.core_kept + other.core_kept,
            self.expert_weights + other.expert_weights,
        )


def call(kind: CollectiveKind, axis: Axis, direction: Pass, size: int, count: int = 1) -> Call:
    """One collective of ``size`` bytes."""
    return Call(kind, axis, direction, Fraction(size), count)


def merged(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Equal calls as one with their count, in the order of first mention."""
    counts: dict[tuple[CollectiveKind, Axis, Pass, Fraction], int] = {}
    for c in calls:
        key = (c.kind, c.axis, c.direction, c.bytes)
        counts[key] = counts.get(key, 0) + c.count
    return tuple(Call(*key, count) for key, count in counts.items())


def tensor_calls(on: Shard, inputs: tuple[int, ...], output: int) -> tuple[Call, ...]:
    """Collectives of column-parallel products of ``inputs`` and a row-parallel one, in features.

    One all-reduce of the output forward and one of each input's gradient backward (Shoeybi et al.,
    section 3); with sequence parallelism an all-gather into the products and a reduce-scatter out
    of them, and the reverse (Korthikanti et al., section 4.2.2).
    """
    if on.template.tensor == 1:
        return ()
    size = HALF * on.tokens
    if not on.template.sequence_parallel:
        return merged(
            (
                call("all_reduce", "tensor", "forward", size * output),
                *(call("all_reduce", "tensor", "backward", size * f) for f in inputs),
            )
        )
    return merged(
        (
            *(call("all_gather", "tensor", "forward", size * f) for f in inputs),
            call("reduce_scatter", "tensor", "forward", size * output),
            call("all_gather", "tensor", "backward", size * output),
            *(call("reduce_scatter", "tensor", "backward", size * f) for f in inputs),
        )
    )


def residual_part(arch: Architecture, on: Shard) -> Part:
    """What stands around the attention and around the MLP: norms, dropout, the residual sum.

    Kept are the input of the norm and that of the products (Korthikanti et al., section 4.1), 2*r*h
    bytes each, whichever comes first; a second norm, on the output, keeps its input as well. The
    mask of a dropout takes one byte.
    """
    elements = on.residual_tokens * arch.hidden
    norms = 2 if arch.norms == "both" else 1
    operators = [*(norms * [norm(elements)]), total(elements)]
    kept = (1 + norms) * HALF * elements
    if arch.hidden_dropout:  # fused into the sum forward: only the mask is extra
        mask = MASK * elements
        operators.append(elementwise(mask, 2 * HALF * elements + mask))
        kept += mask
    return Part(tuple(operators), norms * arch.norm_weights * arch.hidden, kept)
