"""The trade between bottleneck load and synchronisation: the non-dominated pairs of one cell."""

from __future__ import annotations

from dataclasses import dataclass

from nest_opt.dp.recurrence import Pipelines
from nest_opt.dp.tables import INFINITE


@dataclass(frozen=True)
class Corner:
    """A non-dominated pair of bottleneck load and synchronisation, and the batch time it gives."""

    tau: int
    sigma: int
    batch_ticks: int


def best_corners(pipelines: Pipelines, stages: int, slots: int, at_most: int) -> list[Corner]:
    """The corners of one cell with the least batch time, if that is at most ``at_most``.

    Walks the frontier from the least load on: each step forbids the synchronisation just reached,
    so loads grow and synchronisation falls, until no rest can win. Every plan of optimal batch time
    has one of these pairs, because a dominated pair costs more.
    """
    least_sync = pipelines.least_sync(stages, int(INFINITE))
    best, corners = at_most, list[Corner]()
    max_sync = int(INFINITE)
    while least_sync < INFINITE:
        tau = pipelines.least_bottleneck(stages, max_sync)
        if tau >= INFINITE or slots * tau + least_sync > best:
            break
        sigma = pipelines.least_sync(stages, tau)
        batch_ticks = slots * tau + sigma
        if batch_ticks < best or (batch_ticks == best and not corners):
            best, corners = batch_ticks, [Corner(tau, sigma, batch_ticks)]
        elif batch_ticks == best:
            corners.append(Corner(tau, sigma, batch_ticks))
        max_sync = sigma - 1
    return corners
