"""From a cluster to link classes: the class of two devices and of a set, the shape of a group.

A *link class* has a latency and a bandwidth; classes are slower as the number grows. In a
hierarchical network the class of two devices is the level of the smallest block that holds both; in
any other one, classes number the different best paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import groupby, pairwise
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nest_opt.errors import InputError
from nest_opt.problem import Cluster, Graph, Matrix, Torus, exact

Ints = npt.NDArray[np.int64]


class LinkClass(NamedTuple):
    """Seconds before the first byte, and seconds per byte, per device and direction.

    ``given_seconds_per_byte`` is that of the level's own links, before costs were made monotone;
    left out, the same.
    """

    latency: Fraction
    seconds_per_byte: Fraction
    given_seconds_per_byte: Fraction | None = None

    @property
    def as_given(self) -> Fraction:
        """Seconds per byte before costs were made monotone."""
        given = self.given_seconds_per_byte
        return self.seconds_per_byte if given is None else given


class GroupShape(NamedTuple):
    """All that the price of a collective needs to know about the group that runs it.

    ``branching[k]`` is the largest number of different level-(k - 1) blocks with members inside one
    level-k block (level -1 blocks are devices).
    """

    size: int
    link_class: int
    branching: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A hierarchical network.

    ``block[k]`` is the number of devices in a level-k block; device x lies in block x // block[k].
    ``classes[k]`` are the costs of class k, already monotone in k.
    """

    block: tuple[int, ...]
    classes: tuple[LinkClass, ...]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.block[-1]

    def class_of(self, devices: Iterable[int]) -> int:
        """Largest class between any two of ``devices``; 0 for a single one."""
        members = list(devices)
        low, high = min(members), max(members)
        # Blocks are intervals, so the two ends are a pair of the largest class.
        return next(k for k, size in enumerate(self.block) if low // size == high // size)

    def shape_of(self, devices: Sequence[int]) -> GroupShape:
        """Shape of a group of different devices. O(size * levels)."""
        branching = []
        below = list(devices)
        for k, size in enumerate(self.block):
            ratio = size if k == 0 else size // self.block[k - 1]
            parts: defaultdict[int, set[int]] = defaultdict(set)
            for member in below:
                parts[member // ratio].add(member)
            branching.append(max(len(part) for part in parts.values()))
            below = list(parts)
        return GroupShape(len(devices), self.class_of(devices), tuple(branching))


@dataclass(frozen=True)
class Loss:
    """What the reduction of a network to link classes adds to the cost of its paths.

    As shares of a path's own cost at the reference size, over pairs of devices; ``worst_pair`` has
    the largest. The mean is rounded: it is there to be read.
    """

    largest: Fraction
    mean: float
    worst_pair: tuple[int, int]


@dataclass(frozen=True)
class GeneralNetwork:
    """Any network, pair by pair.

    ``class_rows[x][y]`` is the link class between devices x and y, 0 on the diagonal; symmetric.
    ``classes[k]`` are the costs of class k, monotone in k.
    """

    class_rows: tuple[tuple[int, ...], ...]
    classes: tuple[LinkClass, ...]
    loss: Loss

    @cached_property
    def matrix(self) -> Ints:
        """``class_rows`` as an array of shape (devices, devices)."""
        return np.array(self.class_rows, dtype=np.int64)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.class_rows)

    def class_of(self, devices: Iterable[int]) -> int:
        """Largest class between any two of ``devices``; 0 for a single one."""
        members = list(devices)
        return int(self.matrix[np.ix_(members, members)].max())

    def shape_of(self, devices: Sequence[int]) -> GroupShape:
        """Shape of a group of different devices; nothing branches. O(size**2)."""
        return GroupShape(len(devices), self.class_of(devices), ())


AnyNetwork = Network | GeneralNetwork


def network_of(cluster: Cluster) -> AnyNetwork:
    """Link classes of a cluster, made monotone.

    Levels are classes as they are. In any other network the classes are the different (latency,
    bandwidth) pairs of the best paths, the best path between two devices being the one that carries
    ``reference_bytes`` in the least time, and the worse direction counting; see
    :func:`_reduced` for what happens when there are too many. Latency and inverse bandwidth are
    then replaced by their running maxima, because a path that climbs to a level crosses every level
    below it.

    Raises :class:`InputError` if two devices are not connected.
    """
    if cluster.network is not None:
        return _general(cluster.name, cluster.network)
    block: list[int] = []
    classes: list[LinkClass] = []
    for level in cluster.levels:
        block.append(level.size * (block[-1] if block else 1))
        latency = exact(level.latency_seconds)
        inverse = exact(level.oversubscription) / exact(level.bandwidth_bytes_per_second)
        classes.append(LinkClass(latency, inverse))
    return Network(tuple(block), _monotone(classes))


def _monotone(costs: Sequence[LinkClass]) -> tuple[LinkClass, ...]:
    """Running maxima of latency and inverse bandwidth; what was given is kept beside."""
    classes: list[LinkClass] = []
    latency = inverse = Fraction(0)
    for cost in costs:
        latency = max(latency, cost.latency)
        inverse = max(inverse, cost.seconds_per_byte)
        given = cost.seconds_per_byte
        classes.append(LinkClass(latency, inverse, None if given == inverse else given))
    return tuple(classes)


# --- networks without levels ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Paths:
    """The best path of each pair: ``pair[x, y]`` numbers ``costs``; -1 where there is none."""

    pair: Ints
    costs: list[LinkClass]


def _general(name: str, network: Torus | Graph | Matrix) -> GeneralNetwork:
    if network.device_count == 1:
        nothing = LinkClass(Fraction(0), Fraction(0))
        return GeneralNetwork(((0,),), (nothing,), Loss(Fraction(0), 0.0, (0, 0)))
    if isinstance(network, Torus):
        paths = _torus_paths(network)
    elif isinstance(network, Graph):
        paths = _graph_paths(name, network)
    else:
        paths = _matrix_paths(network)
    apart = np.argwhere(paths.pair < 0)
    if len(apart):
        first, second = apart[0].tolist()
        raise InputError(
            name, f"no path joins device {first} to device {second}; add the missing link"
        )
    return _reduced(paths, network.reference_bytes, network.max_classes)


def _torus_paths(torus: Torus) -> _Paths:
    """Hops in each dimension add up; every path has the bandwidth of one link."""
    count = torus.device_count
    places = np.stack(np.unravel_index(np.arange(count), torus.shape))
    hops = np.zeros((count, count), dtype=np.int64)
    for size, place, around in zip(torus.shape, places, torus.wraps, strict=True):
        steps = np.abs(place[:, None] - place[None, :])
        hops += np.minimum(steps, size - steps) if around else steps
    latency = exact(torus.link_latency_seconds)
    inverse = 1 / exact(torus.link_bandwidth_bytes_per_second)
    return _Paths(hops, [LinkClass(h * latency, inverse) for h in range(int(hops.max()) + 1)])


def _matrix_paths(matrix: Matrix) -> _Paths:
    """What was measured, as it is."""
    numbers = []
    for rows in (matrix.latency_seconds, matrix.bandwidth_bytes_per_second):
        measured = np.array(rows, dtype=np.float64)
        np.fill_diagonal(measured, measured[0, 1])
        values, which = np.unique(measured, return_inverse=True)
        numbers.append((values.tolist(), which.reshape(measured.shape)))
    (latencies, of_latency), (rates, of_rate) = numbers
    ways, pair = np.unique(of_latency * len(rates) + of_rate, return_inverse=True)
    latency = [exact(value) for value in latencies]
    inverse = [1 / exact(value) for value in rates]
    return _Paths(
        pair.reshape(of_rate.shape).astype(np.int64),
        [LinkClass(latency[w // len(rates)], inverse[w % len(rates)]) for w in ways.tolist()],
    )


def _graph_paths(name: str, graph: Graph) -> _Paths:
    """Of the least-latency paths over links of at least some bandwidth, the cheapest.

    Links are added the fastest first. With each different bandwidth the pairs that came nearer to
    each other choose between the best path so far and the new one, which is no faster; of equally
    good ones they keep the faster. Latencies are scaled to integers, so that sums are exact.
    """
    count = len(graph.devices)
    number = {device: x for x, device in enumerate(graph.devices)}
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    for link in graph.links:
        one, other = (number.setdefault(end, len(number)) for end in (link.source, link.target))
        neighbours[one].add(other)
        neighbours[other].add(one)
    latencies = [exact(link.latency_seconds) for link in graph.links]
    scale = lcm(*(latency.denominator for latency in latencies))
    if sum(latencies, Fraction(0)) * scale >= _FAR:
        raise InputError(
            name,
            "its latencies have too many digits to be added exactly; round them to picoseconds",
        )
    # Where a node has a single neighbour, no path leads through it.
    middles = [node for node, around in neighbours.items() if len(around) > 1]
    far = np.full((len(number), len(number)), _FAR, dtype=np.int64)
    np.fill_diagonal(far, 0)
    devices = far[:count, :count]
    best = np.full((count, count), -1, dtype=np.int64)
    costs: list[LinkClass] = []

    def cost(way: LinkClass) -> Fraction:
        return way.latency + graph.reference_bytes * way.seconds_per_byte

    entries = sorted(
        zip(graph.links, latencies, strict=True),
        key=lambda entry: -entry[0].bandwidth_bytes_per_second,
    )
    for rate, links in groupby(entries, lambda entry: entry[0].bandwidth_bytes_per_second):
        before = devices.copy()
        arcs = []
        for link, latency in links:
            x, y, ticks = number[link.source], number[link.target], int(latency * scale)
            arcs += [(x, y, ticks)] if link.directed else [(x, y, ticks), (y, x, ticks)]
        _add(far, arcs, middles)
        nearer = devices < before
        lengths, which = np.unique(devices[nearer], return_inverse=True)
        news = [LinkClass(Fraction(n, scale), 1 / exact(rate)) for n in lengths.tolist()]
        choices, chosen = np.unique(
            (best[nearer] + 1) * len(news) + which.reshape(-1), return_inverse=True
        )
        picked = []
        for choice in choices.tolist():
            old, new = choice // len(news) - 1, choice % len(news)
            is_better = old < 0 or cost(news[new]) < cost(costs[old])
            picked.append(len(costs) + new if is_better else old)
        best[nearer] = np.array(picked, dtype=np.int64)[chosen.reshape(-1)]
        costs += news
    np.fill_diagonal(best, 0)
    return _Paths(best, costs)


#: Farther than any path, such that three of it do not overflow.
_FAR = 2**60


def _add(far: Ints, arcs: Sequence[tuple[int, int, int]], middles: Sequence[int]) -> None:
    """Add arcs (from, to, length) to ``far[x, y]``, the least sums over all paths, in place.

    Few arcs one by one, many with Floyd and Warshall's algorithm; O(nodes**2) for an arc or node.
    """
    if len(arcs) < len(middles):
        for x, y, length in arcs:
            if length < far[x, y]:
                np.minimum(far, far[:, x, None] + (length + far[None, y, :]), out=far)
        return
    for x, y, length in arcs:
        far[x, y] = min(far[x, y], length)
    for middle in middles:
        np.minimum(far, far[:, middle, None] + far[None, middle, :], out=far)


def _reduced(paths: _Paths, reference_bytes: int, max_classes: int) -> GeneralNetwork:
    """The pairs that occur, in the order of their cost at the reference size, as classes.

    More than ``max_classes`` are merged, neighbours in that order together; a merged class has the
    worst latency and the worst bandwidth of its members, so that no path gets cheaper. The groups
    are those with the least largest share by which merging makes a path dearer.
    """

    def cost(way: LinkClass) -> Fraction:
        return way.latency + reference_bytes * way.seconds_per_byte

    exact_costs = [cost(way) for way in paths.costs]
    rounded = [float(c) for c in exact_costs]
    # Exact comparisons are slow, and few where rounded ones went before.
    order = sorted(
        sorted(range(len(rounded)), key=rounded.__getitem__),
        key=lambda n: (exact_costs[n], paths.costs[n].latency),
    )
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[paths.pair]
    # The worse direction counts.
    ranks = np.maximum(ranks, ranks.T)
    off_diagonal = ~np.eye(len(ranks), dtype=bool)
    used, times = np.unique(ranks[off_diagonal], return_counts=True)
    chosen = [order[r] for r in used.tolist()]
    ways, costs = [paths.costs[n] for n in chosen], np.array([rounded[n] for n in chosen])
    starts = _groups(ways, costs, float(reference_bytes), max_classes)
    bounds = [*starts, len(ways)]
    classes = _monotone(
        [
            LinkClass(
                max(way.latency for way in ways[low:high]),
                max(way.seconds_per_byte for way in ways[low:high]),
            )
            for low, high in pairwise(bounds)
        ]
    )
    rows = np.searchsorted(starts, np.searchsorted(used, ranks), side="right") - 1
    np.fill_diagonal(rows, 0)
    # The cheapest path of a class has the largest loss in it.
    losses = [
        cost(priced) / exact_costs[chosen[first]] - 1
        for priced, first in zip(classes, starts, strict=True)
    ]
    largest = max(losses)
    worst = used[starts[losses.index(largest)]]
    pair = np.argwhere(off_diagonal & (ranks == worst))[0].tolist()
    priced = np.repeat([float(cost(c)) for c in classes], np.diff(bounds))
    mean = float(np.average(priced / costs - 1, weights=times))
    return GeneralNetwork(
        tuple(tuple(row) for row in rows.tolist()),
        classes,
        Loss(largest, mean, (pair[0], pair[1])),
    )


def _groups(
    ways: Sequence[LinkClass], costs: npt.NDArray[np.float64], reference: float, most: int
) -> list[int]:
    """First members of at most ``most`` groups of neighbours, whose largest loss is the least.

    How far a group may reach grows with the loss that is allowed, so the least one is found by
    bisection; floating point decides which groups are made, never what they cost.
    """
    if len(ways) <= most:
        return list(range(len(ways)))
    latencies = np.array([float(way.latency) for way in ways])
    inverses = np.array([float(way.seconds_per_byte) for way in ways])

    def first_members(allowed: float) -> list[int]:
        """More than ``most`` are not looked for."""
        starts = [0]
        while len(starts) <= most:
            start = starts[-1]
            priced = np.maximum.accumulate(latencies[start:])
            priced += reference * np.maximum.accumulate(inverses[start:])
            within = np.searchsorted(priced, costs[start] * (1 + allowed), side="right")
            end = start + max(1, int(within))
            if end == len(ways):
                break
            starts.append(end)
        return starts

    low, high = 0.0, 1.0
    while len(first_members(high)) > most:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        if len(first_members(middle)) > most:
            low = middle
        else:
            high = middle
    return first_members(high)
