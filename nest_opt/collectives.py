"""Alpha-beta prices of one primitive, in exact seconds.

Each price splits into a latency and a bandwidth part, because a gradient synchronisation pays its
latency once and its bandwidth layer by layer. Sources: Thakur, Rabenseifner, Gropp 2005,
"Optimization of Collective Communication Operations in MPICH" (ring reduce-scatter and all-gather);
the hierarchical form runs one ring per level on the shard left by the level below, as NCCL and the
NEST system (arXiv 2603.06798) do. The tree form is what the published artifact of that system
charges for an all-reduce; it is there to reproduce its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from nest_opt.network import GroupShape, LinkClass

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_pass"]
Algorithm = Literal["hierarchical", "ring", "tree"]

ZERO = Fraction(0)


def _rings(shape: GroupShape, algorithm: Algorithm) -> list[tuple[int, int]]:
    """(ranks, link class) of the rings of a reduce-scatter or all-gather, innermost first."""
    if algorithm == "hierarchical":
        return [(ranks, level) for level, ranks in enumerate(shape.branching) if ranks > 1]
    return [(shape.size, shape.link_class)]


def _halvings(shape: GroupShape) -> int:
    """Rounds of a halving-doubling among so many ranks: log2, rounded down."""
    return shape.size.bit_length() - 1


def _up_the_tree(innermost: Fraction, rises: Iterable[Fraction]) -> Fraction:
    """A tree's time: every level pays its own way up and down, and all that was paid below."""
    total, below = innermost, ZERO
    for rise in rises:
        total += 2 * rise + below
        below += total
    return total


def latency_seconds(
    kind: CollectiveKind,
    shape: GroupShape,
    classes: tuple[LinkClass, ...],
    algorithm: Algorithm,
) -> Fraction:
    """The part of a collective's time that does not depend on its bytes; 0 for a group of one."""
    if shape.size <= 1:
        return ZERO
    if kind in ("all_to_all", "ring_pass"):
        return (shape.size - 1) * classes[shape.link_class].latency
    if kind == "all_reduce" and algorithm == "tree":
        above = classes[1 : shape.link_class + 1]
        return _up_the_tree(_halvings(shape) * classes[0].latency, (c.latency for c in above))
    once = sum(((n - 1) * classes[k].latency for n, k in _rings(shape, algorithm)), ZERO)
    return 2 * once if kind == "all_reduce" else once


def bandwidth_seconds(
    kind: CollectiveKind,
    size_bytes: Fraction,
    shape: GroupShape,
    classes: tuple[LinkClass, ...],
    algorithm: Algorithm,
) -> Fraction:
    """The part of a collective's time that is proportional to its bytes; 0 for a group of one.

    ``size_bytes`` is the full buffer: output of an all-gather, input of a reduce-scatter or
    all-reduce, what one rank sends in an all-to-all, one block of a ring pass.
    """
    if shape.size <= 1:
        return ZERO
    inverse = classes[shape.link_class].seconds_per_byte
    if kind == "ring_pass":
        return (shape.size - 1) * size_bytes * inverse
    if kind == "all_to_all":
        return Fraction(shape.size - 1, shape.size) * size_bytes * inverse
    if kind == "all_reduce" and algorithm == "tree":
        above = classes[1 : shape.link_class + 1]
        halved = sum((Fraction(size_bytes, 2**i) for i in range(_halvings(shape))), ZERO)
        return _up_the_tree(
            halved * classes[0].seconds_per_byte,
            (size_bytes * c.as_given for c in above),
        )
    total, left = ZERO, size_bytes
    for ranks, level in _rings(shape, algorithm):
        total += Fraction(ranks - 1, ranks) * left * classes[level].seconds_per_byte
        left /= ranks
    return 2 * total if kind == "all_reduce" else total


def collective_seconds(
    kind: CollectiveKind,
    size_bytes: Fraction,
    shape: GroupShape,
    classes: tuple[LinkClass, ...],
    algorithm: Algorithm,
) -> Fraction:
    """Seconds of one collective call; a group of one, or no bytes, costs nothing."""
    if size_bytes == 0:
        return ZERO
    return latency_seconds(kind, shape, classes, algorithm) + bandwidth_seconds(
        kind, size_bytes, shape, classes, algorithm
    )


def transfer_seconds(size_bytes: Fraction, link: LinkClass, times: int = 1) -> Fraction:
    """Seconds of one transfer between stages; with no bytes the latency remains.

    ``times`` is how often the bytes cross such a link on their way.
    """
    return times * (link.latency + size_bytes * link.seconds_per_byte)
