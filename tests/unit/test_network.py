"""Link classes and shapes of groups, by hand and against definitions spelled out."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations, pairwise
from math import prod
from typing import Any

import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nest_opt import InputError, certify, compile_problem, load_problem, solve, verify
from nest_opt.geometry import Geometry
from nest_opt.network import (
    GeneralNetwork,
    GroupShape,
    LinkClass,
    Loss,
    Network,
    network_of,
)
from nest_opt.plan import Template
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


# --- networks without levels ----------------------------------------------------------------------


def general(**network: Any) -> GeneralNetwork:
    count = {"torus": lambda: prod(network["shape"]), "graph": lambda: len(network["devices"])}
    devices = count.get(network["kind"], lambda: len(network["latency_seconds"]))()
    found = network_of(cluster_with({"devices": devices, "network": network}))
    assert isinstance(found, GeneralNetwork)
    return found


def cluster_with(fields: dict[str, Any]) -> Cluster:
    device = {"name": "device", "memory_bytes": 1}
    data = {"name": "cluster", "device": device, **fields}
    return Cluster.model_validate_json(json.dumps(data))


def test_oversubscription_divides_the_bandwidth() -> None:
    levels = [
        {"size": 2, "bandwidth_bytes_per_second": 700},
        {"size": 3, "bandwidth_bytes_per_second": 70, "oversubscription": 7, "latency_seconds": 1},
    ]
    network = network_of(cluster_with({"devices": 6, "levels": levels}))
    assert network.classes == (
        LinkClass(Fraction(0), Fraction(1, 700)),
        LinkClass(Fraction(1), Fraction(1, 10)),
    )


def test_a_torus_counts_hops() -> None:
    # 2 x 4, last dimension fastest: device 5 is (1, 1). Four devices in a ring are at most 2 apart.
    network = general(
        kind="torus", shape=[2, 4], link_bandwidth_bytes_per_second=10, link_latency_seconds=2
    )
    assert [c.latency for c in network.classes] == [2, 4, 6]
    assert {c.seconds_per_byte for c in network.classes} == {Fraction(1, 10)}
    hops = [0, 1, 2, 1, 1, 2, 3, 2]
    assert [network.class_rows[0][y] for y in range(1, 8)] == [h - 1 for h in hops[1:]]
    assert network.class_of([5]) == 0
    assert network.shape_of([4, 5, 6, 7]) == GroupShape(4, 1, ())
    assert network.loss == Loss(Fraction(0), Fraction(0), (0, 1))


def test_a_mesh_has_no_way_around() -> None:
    network = general(
        kind="torus", shape=[4], wraparound=False, link_bandwidth_bytes_per_second=1,
        link_latency_seconds=1,
    )  # fmt: skip
    assert network.class_rows[0] == (0, 0, 1, 2)


def test_each_dimension_may_wrap_around_or_not() -> None:
    torus = {"kind": "torus", "shape": [4, 4], "link_bandwidth_bytes_per_second": 1}
    network = general(**torus, link_latency_seconds=1, wraparound=[True, False])
    # From (0, 0) to (3, 0) is one hop around; to (0, 3) it is three.
    assert network.classes[network.class_of([0, 12])].latency == 1
    assert network.classes[network.class_of([0, 3])].latency == 3
    assert max(c.latency for c in network.classes) == 2 + 3
    with pytest.raises(ValueError, match="wraparound has 1 entries and shape 2"):
        general(**torus, wraparound=[True])


def link(
    source: str, target: str, rate: float, latency: float = 0.0, **more: Any
) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "bandwidth_bytes_per_second": rate,
        "latency_seconds": latency,
        **more,
    }


def test_the_best_path_depends_on_the_size() -> None:
    # a to b: directly, 1 s and 1 byte/s; or over a switch, 8 s and 10 bytes/s.
    links = [link("a", "b", 1, 1), link("a", "switch", 10, 4), link("switch", "b", 10, 4)]
    graph = {"kind": "graph", "devices": ["a", "b"], "links": links}
    assert general(**graph, reference_bytes=5).classes == (LinkClass(Fraction(1), Fraction(1)),)
    far = general(**graph, reference_bytes=100)
    assert far.classes == (LinkClass(Fraction(8), Fraction(1, 10)),)
    # 1 + 7.7 = 8.7 against 8 + 0.77: the switch; 1 + 7 = 8 against 8.7: directly.
    assert general(**graph, reference_bytes=8).classes[0].latency == 8
    assert general(**graph, reference_bytes=7).classes[0].latency == 1


def test_a_path_is_as_slow_as_its_slowest_link() -> None:
    links = [link("a", "s", 10, 1), link("s", "b", 2, 1), link("s", "c", 10, 2)]
    network = general(kind="graph", devices=["a", "b", "c"], links=links, reference_bytes=1)
    assert network.classes == (
        LinkClass(Fraction(2), Fraction(1, 2)),
        LinkClass(Fraction(3), Fraction(1, 2), Fraction(1, 10)),
        LinkClass(Fraction(3), Fraction(1, 2)),
    )
    assert network.class_rows == ((0, 0, 1), (0, 0, 2), (1, 2, 0))
    # a - c costs 3 + 1/10 and is priced at 3 + 1/2, because it lies a class above a - b.
    assert network.loss.worst_pair == (0, 2)
    assert network.loss.largest == Fraction(35, 31) - 1


@pytest.mark.parametrize("latencies", [(1, 2), (2, 1)])
def test_of_parallel_links_the_nearer_counts(latencies: tuple[int, int]) -> None:
    links = [link("a", "b", 10, latency) for latency in latencies]
    network = general(kind="graph", devices=["a", "b"], links=links)
    assert network.classes == (LinkClass(Fraction(1), Fraction(1, 10)),)


def test_the_worse_direction_counts() -> None:
    links = [link("a", "b", 10, 0, directed=True), link("b", "a", 10, 3, directed=True)]
    network = general(kind="graph", devices=["a", "b"], links=links, reference_bytes=1)
    assert network.classes == (LinkClass(Fraction(3), Fraction(1, 10)),)
    measured = general(
        kind="matrix", latency_seconds=[[9, 1], [2, 9]], reference_bytes=1,
        bandwidth_bytes_per_second=[[0, 4], [4, 0]],
    )  # fmt: skip
    assert measured.classes == (LinkClass(Fraction(2), Fraction(1, 4)),)


def test_devices_that_nothing_joins_are_named() -> None:
    with pytest.raises(InputError, match="no path joins device 0 to device 2"):
        general(kind="graph", devices=["a", "b", "c"], links=[link("a", "b", 1)])
    with pytest.raises(InputError, match="no path joins device 1 to device 0"):
        general(kind="graph", devices=["a", "b"], links=[link("a", "b", 1, directed=True)])


def test_merged_classes_are_the_worst_of_their_members_and_the_loss_is_said() -> None:
    latencies = [[0, 10, 11], [10, 0, 40], [11, 40, 0]]
    rates = [[1e24] * 3] * 3
    matrix = {"kind": "matrix", "latency_seconds": latencies, "bandwidth_bytes_per_second": rates}
    whole = general(**matrix, reference_bytes=1)
    assert [c.latency for c in whole.classes] == [10, 11, 40]
    assert whole.loss.largest == 0
    two = general(**matrix, reference_bytes=1, max_classes=2)
    # 10 with 11, a tenth dearer; not 11 with 40.
    assert [c.latency for c in two.classes] == [11, 40]
    assert two.class_rows == ((0, 0, 0), (0, 0, 1), (0, 1, 0))
    assert float(two.loss.largest) == pytest.approx(0.1)
    assert float(two.loss.mean) == pytest.approx(0.1 / 3)
    assert two.loss.worst_pair == (0, 1)
    one = general(**matrix, reference_bytes=1, max_classes=1)
    assert [c.latency for c in one.classes] == [40] and float(one.loss.largest) == pytest.approx(3)


@given(st.lists(st.integers(1, 30), min_size=6, max_size=6), st.integers(1, 5))
def test_no_other_merging_of_neighbours_has_a_smaller_largest_loss(
    latencies: list[int], most: int
) -> None:
    pairs = dict(zip(combinations(range(4), 2), latencies, strict=True))
    matrix = [[float(pairs.get((min(x, y), max(x, y)), 0)) for y in range(4)] for x in range(4)]
    network = general(
        kind="matrix", latency_seconds=matrix, bandwidth_bytes_per_second=[[1e24] * 4] * 4,
        reference_bytes=1, max_classes=most,
    )  # fmt: skip
    ways = sorted(set(latencies))
    least = min(
        max(ways[high - 1] / ways[low] - 1 for low, high in pairwise((0, *cuts, len(ways))))
        for size in range(most)
        for cuts in combinations(range(1, len(ways)), size)
    )
    assert float(network.loss.largest) == pytest.approx(least, abs=1e-12)


def test_measurements_that_all_differ() -> None:
    # 4,032 of them: an exact mean of their losses would have tens of thousands of digits.
    count = 64
    rates = [[1e9 + 1e6 * (count * x + y) for y in range(count)] for x in range(count)]
    network = general(
        kind="matrix", latency_seconds=[[0.0] * count] * count, bandwidth_bytes_per_second=rates,
        max_classes=2,
    )  # fmt: skip
    own = [min(rates[x][y], rates[y][x]) for x, y in combinations(range(count), 2)]
    priced = [
        float(1 / network.classes[network.class_rows[x][y]].seconds_per_byte)
        for x, y in combinations(range(count), 2)
    ]
    shares = [mine / class_rate - 1 for mine, class_rate in zip(own, priced, strict=True)]
    assert float(network.loss.largest) == pytest.approx(max(shares))
    assert network.loss.mean == pytest.approx(sum(shares) / len(shares))


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    devices = [f"d{x}" for x in range(draw(st.integers(1, 6)))]
    nodes = [*devices, "s0", "s1"]
    ends = [(a, b) for n, a in enumerate(nodes) for b in nodes[n + 1 :]]
    chosen = draw(st.lists(st.sampled_from(ends), max_size=10, unique=True))
    # A star keeps it connected.
    chosen = list(dict.fromkeys([*chosen, *((d, "s0") for d in devices)]))
    rates, latencies = st.sampled_from([1, 2, 5, 9]), st.sampled_from([0, 0.1, 1, 7])
    links = [
        link(a, b, draw(rates), draw(latencies), directed=b != "s0" and draw(st.booleans()))
        for a, b in chosen
    ]
    return {
        "kind": "graph",
        "devices": devices,
        "links": links,
        "reference_bytes": draw(st.sampled_from([1, 3, 20])),
        "max_classes": draw(st.sampled_from([1, 2, 3, 16])),
    }


def cheapest(graph: dict[str, Any], one: str, other: str) -> Fraction:
    """Every simple path, one by one."""
    found: nx.DiGraph[str] = nx.DiGraph()
    for entry in graph["links"]:
        found.add_edge(entry["source"], entry["target"], **entry)
        if not entry["directed"]:
            found.add_edge(entry["target"], entry["source"], **entry)
    costs = []
    for path in nx.all_simple_paths(found, one, other):
        hops = [found.edges[pair] for pair in pairwise(path)]
        latency = sum((Fraction(repr(h["latency_seconds"])) for h in hops), Fraction(0))
        rate = min(h["bandwidth_bytes_per_second"] for h in hops)
        costs.append(latency + Fraction(graph["reference_bytes"], rate))
    return min(costs)


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_classes_never_make_a_path_cheaper_and_the_loss_is_what_they_add(graph: Any) -> None:
    network = general(**graph)
    devices = graph["devices"]
    assert len(network.classes) <= graph["max_classes"]
    shares = {}
    for x, y in combinations(range(len(devices)), 2):
        there, back = (devices[x], devices[y]), (devices[y], devices[x])
        own = max(cheapest(graph, *there), cheapest(graph, *back))
        k = network.class_of([x, y])
        assert network.class_rows[x][y] == network.class_rows[y][x] == k
        cost = network.classes[k]
        priced = cost.latency + graph["reference_bytes"] * cost.seconds_per_byte
        assert priced >= own
        shares[x, y] = priced / own - 1
    if shares:
        assert network.loss.largest == max(shares.values()) == shares[network.loss.worst_pair]
        assert network.loss.mean == pytest.approx(float(sum(shares.values()) / len(shares)))
    for slower, faster in zip(network.classes[1:], network.classes, strict=False):
        assert slower.latency >= faster.latency
        assert slower.seconds_per_byte >= faster.seconds_per_byte


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_geometry_of_any_network_is_that_of_its_sets(
    graph: Any, tensor: int, replicas: int, inner: bool, first_devices: bool
) -> None:
    network = general(**graph)
    assume(tensor * replicas <= network.devices)
    template = Template(tensor)
    layout = "pipeline-inner" if inner else "data-inner"
    geometry = Geometry(network, first_devices)
    starts = geometry.starts(template, replicas, layout)
    joins = geometry.joins(template, replicas, layout)
    for q, position in enumerate(geometry.positions(template, replicas, layout)):
        groups = [[int(s) + i for s in starts[q]] for i in range(tensor)]
        assert position.dense == {network.shape_of(group) for group in groups}
        for r in range(replicas):
            here = range(starts[q, r], starts[q, r] + tensor)
            shape = network.shape_of(list(here))
            assert any(s.tensor == {shape} for s in position.as_later)
            if q + 1 < len(starts):
                there = range(starts[q + 1, r], starts[q + 1, r] + tensor)
                pair = [starts[q, 0], starts[q + 1, 0]] if first_devices else [*here, *there]
                assert joins[q, r] == network.class_of(pair)


def test_a_hierarchy_given_as_a_graph_has_the_same_optimum() -> None:
    data = load_problem("worked-example-160", {"training.all_reduce": "ring"}).to_dict()
    expected = solve(load_problem(data))
    # 1000 MiB/s in a node, 250 MiB/s and 2 ms across; devices on their node, nodes on a spine.
    inner = data["cluster"]["levels"][0]["bandwidth_bytes_per_second"]
    outer = data["cluster"]["levels"][1]["bandwidth_bytes_per_second"]
    links = [link(f"d{x}", f"node{x // 2}", inner) for x in range(4)]
    links += [link(f"node{n}", "spine", outer, 0.001) for n in range(2)]
    del data["cluster"]["levels"]
    data["cluster"]["network"] = {
        "kind": "graph", "devices": [f"d{x}" for x in range(4)], "links": links,
    }  # fmt: skip
    found = solve(load_problem(data))
    assert found.batch_ticks == expected.batch_ticks
    assert found.plan is not None and expected.plan is not None
    assert found.plan.stages == expected.plan.stages
    certificate = certify(load_problem(data), jobs=1)
    assert certificate.verdict == "certified"
    assert verify(certificate.to_dict()).ok


@pytest.mark.parametrize(
    "network",
    [
        {
            "kind": "torus",
            "shape": [2, 2],
            "wraparound": [True, False],
            "link_bandwidth_bytes_per_second": 5e8,
            "link_latency_seconds": 1e-3,
        },
        {
            "kind": "graph",
            "devices": ["a", "b", "c", "d"],
            "links": [
                link("a", "b", 1e9),
                link("b", "c", 3e8, 1e-3),
                link("c", "d", 1e9),
                link("d", "a", 2e8, 2e-3, directed=True),
            ],
            "max_classes": 2,
        },
        {
            "kind": "matrix",
            "latency_seconds": [
                [0 if x == y else 1e-3 * (x + y) for y in range(4)] for x in range(4)
            ],
            "bandwidth_bytes_per_second": [[1e8 * (5 + x - y) for y in range(4)] for x in range(4)],
            "max_classes": 3,
        },
    ],
    ids=lambda network: network["kind"],
)
def test_every_kind_of_network_is_certified(network: dict[str, Any]) -> None:
    data = load_problem("worked-example-160", {"training.all_reduce": "ring"}).to_dict()
    del data["cluster"]["levels"]
    data["cluster"]["network"] = network
    certificate = certify(load_problem(data), jobs=1)
    assert certificate.verdict == "certified"
    assert verify(certificate.to_dict()).ok


def test_the_compiled_file_says_which_devices_a_class_joins() -> None:
    # The same two classes, on different pairs.
    digests = set()
    for near in ((0, 1), (1, 2)):
        data = load_problem("worked-example-160", {"training.all_reduce": "ring"}).to_dict()
        del data["cluster"]["levels"]
        rates = [[2e9 if {x, y} == set(near) else 1e9 for y in range(4)] for x in range(4)]
        data["cluster"]["network"] = {
            "kind": "matrix", "latency_seconds": [[0] * 4] * 4, "bandwidth_bytes_per_second": rates,
        }  # fmt: skip
        compiled = compile_problem(load_problem(data))
        digests.add(compiled.digest)
        rows = compiled.to_dict()["network"]["class_rows"]
        assert [row.split() for row in rows] == [
            ["0" if x == y or {x, y} == set(near) else "1" for y in range(4)] for x in range(4)
        ]
    assert len(digests) == 2


@pytest.mark.parametrize("all_reduce", ["hierarchical", "tree"])
def test_without_levels_there_is_nothing_to_climb(all_reduce: str) -> None:
    data = load_problem("worked-example-160").to_dict()
    del data["cluster"]["levels"]
    data["cluster"]["network"] = {
        "kind": "torus", "shape": [2, 2], "link_bandwidth_bytes_per_second": 1e9,
    }  # fmt: skip
    data["training"]["all_reduce"] = all_reduce
    with pytest.raises(InputError, match=f"training.all_reduce is {all_reduce}.*set it to ring"):
        load_problem(data)
    data["training"]["all_reduce"] = "ring"
    assert load_problem(load_problem(data).to_dict()) == load_problem(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"devices": 2}, "levels: must not be empty; or give a network"),
        (
            {
                "devices": 2,
                "levels": [{"size": 2, "bandwidth_bytes_per_second": 1}],
                "network": {"kind": "torus", "shape": [2], "link_bandwidth_bytes_per_second": 1},
            },
            "levels and a network",
        ),
        (
            {
                "devices": 3,
                "network": {"kind": "torus", "shape": [2], "link_bandwidth_bytes_per_second": 1},
            },
            "the network has 2 devices, but devices is 3",
        ),
        (
            {
                "devices": 8192,
                "network": {"kind": "torus", "shape": [8192], "link_bandwidth_bytes_per_second": 1},
            },
            "a network without levels may have 4096",
        ),
        (
            {
                "devices": 2,
                "network": {
                    "kind": "matrix",
                    "latency_seconds": [[0, 1], [1, 0]],
                    "bandwidth_bytes_per_second": [[0, 1], [1]],
                },
            },
            "bandwidth_bytes_per_second has 2 rows, one of 1 entries",
        ),
        (
            {
                "devices": 2,
                "network": {
                    "kind": "matrix",
                    "latency_seconds": [[0, 1], [1, 0]],
                    "bandwidth_bytes_per_second": [[0, 0], [1, 0]],
                },
            },
            r"bandwidth_bytes_per_second\[0\]\[1\] is 0",
        ),
        (
            {"devices": 2, "network": {"kind": "graph", "devices": ["a", "a"], "links": []}},
            "devices must be different",
        ),
        (
            {
                "devices": 1,
                "network": {
                    "kind": "graph",
                    "devices": ["a"],
                    "links": [
                        {"source": "a", "target": f"s{n}", "bandwidth_bytes_per_second": 1}
                        for n in range(8192)
                    ],
                },
            },
            "has 8193 devices and switches; at most 8192",
        ),
    ],
)
def test_clusters_that_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster_with(fields)


def test_bounds_look_only_where_a_wide_stage_fits() -> None:
    # A stage of three on four devices can start at 0 and 1; elsewhere there is no device.
    data = load_problem("worked-example-1000").to_dict()
    for layer in data["model"]["layers"]:
        layer["costs"][0]["template"] = {"tensor": 3}
        layer["costs"][0]["collectives"] = [
            {"kind": "all_reduce", "axis": "tensor", "pass": "forward", "bytes": 100}
        ]
    del data["cluster"]["levels"]
    data["cluster"]["network"] = {
        "kind": "torus", "shape": [4], "link_bandwidth_bytes_per_second": 1e9,
    }  # fmt: skip
    data["training"]["all_reduce"] = "ring"
    data["search"]["tensor"], data["search"]["sequence_parallel"] = [3], [False]
    problem = load_problem(data)
    assert solve(problem).batch_ticks == solve(problem, use_bounds=False).batch_ticks is not None
