"""Prices of one primitive, by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_opt.collectives import (
    Algorithm,
    CollectiveKind,
    bandwidth_seconds,
    collective_seconds,
    latency_seconds,
    transfer_seconds,
)
from nest_opt.network import GroupShape, LinkClass

#: Seconds of latency, seconds per byte.
CLASSES = (
    LinkClass(Fraction(1), Fraction(1)),
    LinkClass(Fraction(10), Fraction(2)),
    LinkClass(Fraction(100), Fraction(4)),
)
NODE = GroupShape(2, 0, (2, 1, 1))  # {0, 1}
RACK = GroupShape(4, 1, (2, 2, 1))  # {0, 1, 2, 3}
SPREAD = GroupShape(3, 2, (1, 2, 2))  # {0, 2, 4}: irregular
KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "ring_pass",
)
ALGORITHMS: tuple[Algorithm, ...] = ("hierarchical", "ring")


@pytest.mark.parametrize(
    ("kind", "shape", "algorithm", "latency", "bandwidth"),
    [
        # NODE, S = 12: one ring of two at class 0: 1 * 1, and 1/2 * 12 * 1.
        ("reduce_scatter", NODE, "hierarchical", 1, 6),
        ("all_gather", NODE, "hierarchical", 1, 6),
        ("all_reduce", NODE, "hierarchical", 2, 12),
        ("reduce_scatter", NODE, "ring", 1, 6),
        # RACK: (2 - 1) * 1 + (2 - 1) * 10; 1/2 * 12 * 1, then 1/2 * (12 / 2) * 2.
        ("reduce_scatter", RACK, "hierarchical", 11, 6 + 6),
        ("all_gather", RACK, "hierarchical", 11, 6 + 6),
        ("all_reduce", RACK, "hierarchical", 22, 24),
        # One ring of four at class 1: 3 * 10; 3/4 * 12 * 2.
        ("reduce_scatter", RACK, "ring", 30, 18),
        ("all_gather", RACK, "ring", 30, 18),
        ("all_reduce", RACK, "ring", 60, 36),
        # All-to-all and ring pass know no hierarchy: 3 * 10; 3/4 * 12 * 2 and 3 * 12 * 2.
        ("all_to_all", RACK, "hierarchical", 30, 18),
        ("all_to_all", RACK, "ring", 30, 18),
        ("ring_pass", RACK, "hierarchical", 30, 72),
        ("ring_pass", RACK, "ring", 30, 72),
        # SPREAD: level 0 is empty, then 10 + 100; 1/2 * 12 * 2, then 1/2 * 6 * 4.
        ("reduce_scatter", SPREAD, "hierarchical", 110, 12 + 12),
        ("all_reduce", SPREAD, "hierarchical", 220, 48),
        # Three ranks at class 2: 2 * 100; 2/3 * 12 * 4.
        ("reduce_scatter", SPREAD, "ring", 200, 32),
        ("all_reduce", SPREAD, "ring", 400, 64),
        ("all_to_all", SPREAD, "hierarchical", 200, 32),
        ("ring_pass", SPREAD, "hierarchical", 200, 96),
    ],
)
def test_by_hand(
    kind: CollectiveKind, shape: GroupShape, algorithm: Algorithm, latency: int, bandwidth: int
) -> None:
    size = Fraction(12)
    assert latency_seconds(kind, shape, CLASSES, algorithm) == latency
    assert bandwidth_seconds(kind, size, shape, CLASSES, algorithm) == bandwidth
    assert collective_seconds(kind, size, shape, CLASSES, algorithm) == latency + bandwidth


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_or_no_bytes_cost_nothing(
    kind: CollectiveKind, algorithm: Algorithm
) -> None:
    alone = GroupShape(1, 0, (1, 1, 1))
    assert collective_seconds(kind, Fraction(12), alone, CLASSES, algorithm) == 0
    assert latency_seconds(kind, alone, CLASSES, algorithm) == 0
    assert bandwidth_seconds(kind, Fraction(12), alone, CLASSES, algorithm) == 0
    assert collective_seconds(kind, Fraction(0), RACK, CLASSES, algorithm) == 0


def test_a_transfer_pays_its_latency_even_without_bytes() -> None:
    assert transfer_seconds(Fraction(12), CLASSES[1]) == 10 + 12 * 2
    assert transfer_seconds(Fraction(0), CLASSES[1]) == 10


branchings = st.tuples(*[st.integers(1, 4)] * 3)
sizes = st.fractions(0, 1000)


def full(branching: tuple[int, ...]) -> GroupShape:
    """The shape of a regular group."""
    ranks = branching[0] * branching[1] * branching[2]
    return GroupShape(
        ranks, max((k for k, n in enumerate(branching) if n > 1), default=0), branching
    )


@given(branchings, sizes, st.sampled_from(ALGORITHMS))
def test_all_reduce_is_reduce_scatter_and_all_gather(
    branching: tuple[int, ...], size: Fraction, algorithm: Algorithm
) -> None:
    def price(kind: CollectiveKind) -> Fraction:
        return collective_seconds(kind, size, full(branching), CLASSES, algorithm)

    assert price("all_reduce") == price("reduce_scatter") + price("all_gather")


@given(branchings, sizes)
def test_the_hierarchy_is_never_slower_than_one_ring(
    branching: tuple[int, ...], size: Fraction
) -> None:
    shape = full(branching)
    hierarchical = collective_seconds("all_reduce", size, shape, CLASSES, "hierarchical")
    assert hierarchical <= collective_seconds("all_reduce", size, shape, CLASSES, "ring")


@given(st.integers(2, 8), st.integers(0, 2), sizes)
def test_within_one_level_both_algorithms_agree(n: int, level: int, size: Fraction) -> None:
    shape = GroupShape(n, level, tuple(n if k == level else 1 for k in range(3)))
    assert collective_seconds(
        "all_reduce", size, shape, CLASSES, "hierarchical"
    ) == collective_seconds("all_reduce", size, shape, CLASSES, "ring")


@given(branchings, sizes, sizes, st.sampled_from(KINDS), st.sampled_from(ALGORITHMS))
def test_the_bandwidth_part_adds_up_layer_by_layer(
    branching: tuple[int, ...],
    one: Fraction,
    other: Fraction,
    kind: CollectiveKind,
    algorithm: Algorithm,
) -> None:
    def price(size: Fraction) -> Fraction:
        return bandwidth_seconds(kind, size, full(branching), CLASSES, algorithm)

    assert price(one + other) == price(one) + price(other)
