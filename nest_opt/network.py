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
from itertools import pairwise
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

    As shares of a path's own cost at the reference size, over pairs of devices; ``worst_pair`` is
    the first pair with the largest.
    """

    largest: Fraction
    mean: Fraction
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
    for size, place in zip(torus.shape, places, strict=True):
        steps = np.abs(place[:, None] - place[None, :])
        hops += np.minimum(steps, size - steps) if torus.wraparound else steps
    latency = exact(torus.link_latency_seconds)
    inverse = 1 / exact(torus.link_bandwidth_bytes_per_second)
    most = int(hops.max())
    costs = [LinkClass(max(h, 1) * latency, inverse) for h in range(most + 1)]
    return _Paths(hops, costs)


def _matrix_paths(matrix: Matrix) -> _Paths:
    """What was measured, as it is."""
    numbers: dict[tuple[float, float], int] = {}
    count = matrix.device_count
    pair = np.zeros((count, count), dtype=np.int64)
    for x in range(count):
        for y in range(count):
            if x != y:
                measured = (
                    matrix.latency_seconds[x][y],
                    matrix.bandwidth_bytes_per_second[x][y],
                )
                pair[x, y] = numbers.setdefault(measured, len(numbers))
    costs = [LinkClass(exact(latency), 1 / exact(rate)) for latency, rate in numbers]
    return _Paths(pair, costs or [LinkClass(Fraction(0), Fraction(0))])


def _graph_paths(name: str, graph: Graph) -> _Paths:
    """Of the least-latency paths over links of at least some bandwidth, the cheapest.

    One search over all pairs for each different bandwidth of a link; latencies are scaled to
    integers, so that sums are exact.
    """
    count = len(graph.devices)
    number = {device: x for x, device in enumerate(graph.devices)}
    for link in graph.links:
        for end in (link.source, link.target):
            number.setdefault(end, len(number))
    latencies = [exact(link.latency_seconds) for link in graph.links]
    scale = lcm(*(latency.denominator for latency in latencies))
    if sum(latencies, Fraction(0)) * scale * 2 >= _FAR:
        raise InputError(
            name,
            "its latencies have too many digits to be added exactly; round them to picoseconds",
        )
    # The fastest first: among equally good paths the one of more bandwidth.
    rates = sorted({link.bandwidth_bytes_per_second for link in graph.links}, reverse=True)
    ways: dict[tuple[int, int], int] = {}
    choices = []
    for n, rate in enumerate(rates):
        far = np.full((len(number), len(number)), _FAR, dtype=np.int64)
        np.fill_diagonal(far, 0)
        for link, latency in zip(graph.links, latencies, strict=True):
            if link.bandwidth_bytes_per_second >= rate:
                x, y, ticks = number[link.source], number[link.target], int(latency * scale)
                far[x, y] = min(far[x, y], ticks)
                if not link.directed:
                    far[y, x] = min(far[y, x], ticks)
        choices.append(_shortest(far)[:count, :count])
        for ticks in np.unique(choices[-1]).tolist():
            if ticks < _FAR:
                ways.setdefault((ticks, n), len(ways))
    ranked = sorted(
        ways,
        key=lambda way: (
            Fraction(way[0], scale) + graph.reference_bytes / exact(rates[way[1]]),
            way[1],
        ),
    )
    rank = {way: r for r, way in enumerate(ranked)}
    none = len(ranked)
    best = np.full((count, count), none, dtype=np.int64)
    for n, far in enumerate(choices):
        lengths, which = np.unique(far, return_inverse=True)
        of_length = np.array([rank.get((ticks, n), none) for ticks in lengths.tolist()])
        np.minimum(best, of_length[which.reshape(far.shape)], out=best)
    best[best == none] = -1
    np.fill_diagonal(best, 0)
    costs = [LinkClass(Fraction(ticks, scale), 1 / exact(rates[n])) for ticks, n in ranked]
    return _Paths(best, costs or [LinkClass(Fraction(0), Fraction(0))])


#: Farther than any path, such that two of it do not overflow.
_FAR = 2**61


def _shortest(far: Ints) -> Ints:
    """Floyd and Warshall's least sums over all paths, in place; O(nodes**3)."""
    for middle in range(len(far)):
        np.minimum(far, far[:, middle, None] + far[None, middle, :], out=far)
    np.minimum(far, _FAR, out=far)
    return far


def _reduced(paths: _Paths, reference_bytes: int, max_classes: int) -> GeneralNetwork:
    """The pairs that occur, in the order of their cost at the reference size, as classes.

    More than ``max_classes`` are merged, neighbours in that order together; a merged class has the
    worst latency and the worst bandwidth of its members, so that no path gets cheaper. The groups
    are those with the least largest share by which a path gets dearer.
    """

    def cost(way: LinkClass) -> Fraction:
        return way.latency + reference_bytes * way.seconds_per_byte

    count = len(paths.pair)
    order = sorted(
        range(len(paths.costs)), key=lambda n: (cost(paths.costs[n]), paths.costs[n].latency)
    )
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[paths.pair]
    # The worse direction counts.
    ranks = np.maximum(ranks, ranks.T)
    off_diagonal = ~np.eye(count, dtype=bool)
    used, times = np.unique(ranks[off_diagonal], return_counts=True)
    ways = [paths.costs[order[r]] for r in used.tolist()] or [LinkClass(Fraction(0), Fraction(0))]
    starts = _groups(ways, [float(cost(way)) for way in ways], float(reference_bytes), max_classes)
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
    class_of_way = np.searchsorted(starts, np.arange(len(ways)), side="right") - 1
    if count == 1:
        return GeneralNetwork(((0,),), classes, Loss(Fraction(0), Fraction(0), (0, 0)))
    way_of_pair = np.searchsorted(used, np.where(off_diagonal, ranks, used[0]))
    rows = class_of_way[way_of_pair]
    np.fill_diagonal(rows, 0)
    shares = [
        cost(classes[k]) / cost(way) - 1 if cost(way) else Fraction(0)
        for way, k in zip(ways, class_of_way.tolist(), strict=True)
    ]
    worst = max(range(len(ways)), key=shares.__getitem__)
    pair = np.argwhere(off_diagonal & (way_of_pair == worst))[0].tolist()
    mean = sum((n * share for n, share in zip(times.tolist(), shares, strict=True)), Fraction(0))
    return GeneralNetwork(
        tuple(tuple(row) for row in rows.tolist()),
        classes,
        Loss(shares[worst], mean / int(times.sum()), (pair[0], pair[1])),
    )


def _groups(
    ways: Sequence[LinkClass], costs: Sequence[float], reference: float, most: int
) -> list[int]:
    """First members of at most ``most`` groups of neighbours, whose largest loss is the least.

    How far a group may reach grows with the loss that is allowed, so the least one is found by
    bisection; floating point decides which groups are made, never what they cost.
    """
    if len(ways) <= most:
        return list(range(len(ways)))
    latencies = [float(way.latency) for way in ways]
    inverses = [float(way.seconds_per_byte) for way in ways]

    def first_members(allowed: float) -> list[int]:
        starts = [0]
        latency = inverse = 0.0
        for n in range(len(ways)):
            latency, inverse = max(latency, latencies[n]), max(inverse, inverses[n])
            if latency + reference * inverse > costs[starts[-1]] * (1 + allowed):
                starts.append(n)
                latency, inverse = latencies[n], inverses[n]
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
