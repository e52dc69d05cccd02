"""The vectorised geometry against sets of devices taken one by one."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from nest_opt.geometry import Geometry, Signature
from nest_opt.network import GeneralNetwork, LinkClass, Loss, Network
from nest_opt.plan import LAYOUTS, Template


def scattered(devices: int, classes: int) -> GeneralNetwork:
    """A network in which no two places are alike."""
    dice = random.Random(devices)
    rows = [[0] * devices for _ in range(devices)]
    for x, y in itertools.combinations(range(devices), 2):
        rows[x][y] = rows[y][x] = dice.randrange(classes)
    return GeneralNetwork(
        tuple(map(tuple, rows)),
        tuple(LinkClass(Fraction(0), Fraction(k + 1)) for k in range(classes)),
        Loss(Fraction(0), 0.0, (0, 1)),
    )


NETWORKS = [
    Network((4,), (LinkClass(0, 1),)),
    Network((2, 4), (LinkClass(0, 1), LinkClass(0, 2))),
    Network((3, 6, 12), (LinkClass(0, 1), LinkClass(0, 2), LinkClass(0, 3))),
    Network((4, 8, 24), (LinkClass(0, 1), LinkClass(0, 2), LinkClass(0, 3))),
    Network((1, 7), (LinkClass(0, 1), LinkClass(0, 2))),
    scattered(7, 3),
    scattered(24, 20),
]
TEMPLATES = [
    Template(),
    Template(tensor=2),
    Template(tensor=3),
    Template(context=2),
    Template(tensor=2, context=2),
    Template(tensor=2, expert=3),
    Template(context=3, expert=2),
]


def name(network) -> str:
    if isinstance(network, GeneralNetwork):
        return f"any-{network.devices}"
    return "x".join(map(str, network.block))


def interval(network, template, d, layout, q, r) -> list[int]:
    """Devices of replica r at position q from the end, straight from the layouts' definition."""
    width = template.width
    offset = q * width
    if layout == "pipeline-inner":
        start = r * (network.devices // d) + offset
    else:
        start = d * offset + r * width
    return list(range(start, start + width))


def groups(template: Template, devices: list[int], axis: str) -> list[list[int]]:
    t, c, e = template.tensor, template.context, template.expert
    at = {
        (i, j, k): devices[i + t * (j + c * k)]
        for i, j, k in itertools.product(range(t), range(c), range(e))
    }
    if axis == "tensor":
        return [[at[i, j, k] for i in range(t)] for j in range(c) for k in range(e)]
    if axis == "context":
        return [[at[i, j, k] for j in range(c)] for i in range(t) for k in range(e)]
    return [[at[i, j, k] for k in range(e)] for i in range(t) for j in range(c)]


@pytest.mark.parametrize("network", NETWORKS, ids=name)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.label)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_positions_are_those_of_the_device_sets(network, template, layout):
    geometry = Geometry(network)
    for d in range(1, network.devices // template.width + 1):
        positions = geometry.positions(template, d, layout)
        assert len(positions) == network.devices // (d * template.width)
        spans = [
            [interval(network, template, d, layout, q, r) for r in range(d)]
            for q in range(len(positions))
        ]
        ring = geometry.ring_classes(template, d, layout)
        for q, position in enumerate(positions):
            first, later = set(), set()
            for r in range(d):
                shapes = [
                    frozenset(network.shape_of(g) for g in groups(template, spans[q][r], axis))
                    for axis in ("tensor", "context", "expert")
                ]
                behind = network.class_of(spans[q][r] + spans[q - 1][r]) if q else -1
                before = (
                    network.class_of(spans[q][r] + spans[q + 1][r])
                    if q + 1 < len(positions)
                    else -1
                )
                first.add(Signature(*shapes, -1, behind))
                later.add(Signature(*shapes, before, behind))
            assert position.as_first == first
            assert position.as_later == later
            w, t, c = template.width, template.tensor, template.context
            members = {(r, i): spans[q][r][i] for r, i in itertools.product(range(d), range(w))}
            dense = {
                network.shape_of([x for (_, i), x in members.items() if i % t == index])
                for index in range(t)
            }
            expert = {
                network.shape_of(
                    [x for (_, i), x in members.items() if i % t == index and i // (t * c) == rank]
                )
                for index in range(t)
                for rank in range(template.expert)
            }
            assert position.dense == dense
            assert position.expert == expert
            assert ring[q] == max(network.class_of(spans[0][r] + spans[q][r]) for r in range(d))


@pytest.mark.parametrize("network", NETWORKS, ids=name)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.label)
def test_axis_shapes_are_those_of_every_place_where_an_interval_can_start(network, template):
    for axis in ("tensor", "context", "expert"):
        found = Geometry(network).axis_shapes(template, axis)
        every = [
            frozenset(
                network.shape_of(group)
                for group in groups(template, list(range(start, start + template.width)), axis)
            )
            for start in range(network.devices - template.width + 1)
        ]
        if isinstance(network, GeneralNetwork):
            assert found == every
        else:
            # A hierarchy repeats itself, and a place may stick out of it; no price is missed.
            assert set(every) <= set(found)
