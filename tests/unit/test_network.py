"""Link classes and shapes of groups, by hand and against definitions spelled out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_opt.network import GroupShape, LinkClass, Network, network_of
from nest_opt.problem import Cluster

#: Eight devices: nodes of two, racks of two nodes, two racks.
LINK = LinkClass(Fraction(0), Fraction(1))
EIGHT = Network((2, 4, 8), (LINK, LINK, LINK))


def cluster(*levels: tuple[int, float, float]) -> Cluster:
    devices = 1
    for size, _, _ in levels:
        devices *= size
    data: dict[str, Any] = {
        "name": "c",
        "device": {"name": "d", "memory_bytes": 1},
        "devices": devices,
        "levels": [
            {"size": size, "latency_seconds": latency, "bandwidth_bytes_per_second": bandwidth}
            for size, latency, bandwidth in levels
        ],
    }
    return Cluster.model_validate({**data, "levels": tuple(data["levels"])})


def test_blocks_multiply_up() -> None:
    network = network_of(cluster((2, 0, 4), (3, 1, 2), (5, 2, 1)))
    assert network.block == (2, 6, 30)
    assert network.devices == 30


def test_costs_are_exact_decimals() -> None:
    network = network_of(
        cluster(
            (2, 0.1, 0.3),
        )
    )
    assert network.classes == (LinkClass(Fraction(1, 10), Fraction(10, 3)),)


def test_costs_become_running_maxima() -> None:
    # Latencies 5, 1, 7 and bandwidths 2, 8, 1: a path to level 1 also crosses level 0, so it costs
    # at least latency 5 and 1/2 second per byte.
    network = network_of(cluster((2, 5, 2), (2, 1, 8), (2, 7, 1)))
    assert [c.latency for c in network.classes] == [5, 5, 7]
    assert [c.seconds_per_byte for c in network.classes] == [Fraction(1, 2), Fraction(1, 2), 1]


def test_latency_and_bandwidth_are_made_monotone_each_on_its_own() -> None:
    network = network_of(cluster((2, 5, 8), (2, 1, 2)))
    assert network.classes[1] == LinkClass(Fraction(5), Fraction(1, 2))


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([3], 0),
        ([0, 1], 0),
        ([1, 2], 1),
        ([0, 3], 1),
        ([3, 4], 2),
        ([0, 1, 2, 3], 1),
        ([6, 7, 5], 1),
        ([7, 0], 2),
        (range(8), 2),
    ],
)
def test_class_of(devices: Any, expected: int) -> None:
    assert EIGHT.class_of(devices) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([5], GroupShape(1, 0, (1, 1, 1))),
        ([0, 1], GroupShape(2, 0, (2, 1, 1))),
        ([0, 2], GroupShape(2, 1, (1, 2, 1))),
        ([0, 4], GroupShape(2, 2, (1, 1, 2))),
        ([0, 1, 2, 3], GroupShape(4, 1, (2, 2, 1))),
        # Irregular: the largest number of members in a block, level by level.
        ([0, 1, 2], GroupShape(3, 1, (2, 2, 1))),
        ([0, 2, 4], GroupShape(3, 2, (1, 2, 2))),
        ([0, 1, 4], GroupShape(3, 2, (2, 1, 2))),
        ([0, 1, 2, 4], GroupShape(4, 2, (2, 2, 2))),
        (list(range(8)), GroupShape(8, 2, (2, 2, 2))),
    ],
)
def test_shape_of(devices: list[int], expected: GroupShape) -> None:
    assert EIGHT.shape_of(devices) == expected
    assert EIGHT.shape_of(devices[::-1]) == expected


networks = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(
    lambda sizes: network_of(cluster(*((size, 1, 1) for size in sizes)))
)


@st.composite
def networks_with_groups(draw: st.DrawFn) -> tuple[Network, list[int]]:
    network = draw(networks)
    members = draw(st.sets(st.integers(0, network.devices - 1), min_size=1))
    return network, draw(st.permutations(sorted(members)))


@given(networks_with_groups())
def test_class_is_the_largest_of_any_pair(case: tuple[Network, list[int]]) -> None:
    network, group = case

    def class_of_pair(x: int, y: int) -> int:
        level = 0
        while x // network.block[level] != y // network.block[level]:
            level += 1
        return level

    assert network.class_of(group) == max(class_of_pair(x, y) for x in group for y in group)


@given(networks_with_groups())
def test_branching_by_its_definition(case: tuple[Network, list[int]]) -> None:
    network, group = case
    sizes = (1, *network.block)
    for k, n in enumerate(network.shape_of(group).branching):
        inner, outer = sizes[k], sizes[k + 1]
        assert n == max(
            len({x // inner for x in group if x // outer == block})
            for block in range(network.devices // outer)
        )


@given(networks_with_groups())
def test_a_group_spans_no_more_than_its_branching_allows(case: tuple[Network, list[int]]) -> None:
    network, group = case
    shape = network.shape_of(group)
    room = 1
    for n in shape.branching:
        room *= n
    assert shape.size <= room
    assert all(n == 1 for n in shape.branching[shape.link_class + 1 :])
