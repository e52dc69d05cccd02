"""From a cluster to link classes: the class of two devices and of a set, the shape of a group.

A *link class* has a latency and a bandwidth; classes are slower as the number grows. In a
hierarchical network the class of two devices is the level of the smallest block that holds both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nest_opt.problem import Cluster, exact


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


def network_of(cluster: Cluster) -> Network:
    """Link classes of a cluster, made monotone.

    Latency and inverse bandwidth are replaced by their running maxima, because a path that climbs
    to a level crosses every level below it.
    """
    block: list[int] = []
    classes: list[LinkClass] = []
    for level in cluster.levels:
        block.append(level.size * (block[-1] if block else 1))
        latency = exact(level.latency_seconds)
        inverse = given = 1 / exact(level.bandwidth_bytes_per_second)
        if classes:
            latency = max(latency, classes[-1].latency)
            inverse = max(inverse, classes[-1].seconds_per_byte)
        classes.append(LinkClass(latency, inverse, given))
    return Network(tuple(block), tuple(classes))
