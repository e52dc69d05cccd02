"""The search space as cells.

A *cell* fixes everything but the stage boundaries and the per-stage choices of recomputation and
ZeRO stage. The search space is the union of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nest_opt.compile import Compiled
from nest_opt.plan import LAYOUTS, Layout, Template


@dataclass(frozen=True)
class Cell:
    """(b, d, template, s, layout); the expert degree is the template's.

    ``microbatches`` is m, implied by the others and the problem's batch.
    """

    microbatch: int
    replicas: int
    template: Template
    stages: int
    layout: Layout
    microbatches: int

    @property
    def slots(self) -> int:
        """m + s - 1, how often the slowest stage's load is paid per batch."""
        return self.microbatches + self.stages - 1

    @property
    def label(self) -> str:
        """Short name, unique within a problem: ``b2 d8 t4s s3 pipeline-inner``."""
        return (
            f"b{self.microbatch} d{self.replicas} {self.template.label} "
            f"s{self.stages} {self.layout}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "microbatch": self.microbatch,
            "replicas": self.replicas,
            "template": {
                "tensor": self.template.tensor,
                "context": self.template.context,
                "expert": self.template.expert,
                "sequence_parallel": self.template.sequence_parallel,
            },
            "stages": self.stages,
            "layout": self.layout,
            "microbatches": self.microbatches,
        }


def replica_counts(compiled: Compiled, microbatch: int, expert: int) -> list[int]:
    """The data-parallel degrees that the search space allows, ascending, at most one per device."""
    choice, batch = compiled.search.data_parallel, compiled.global_batch
    if choice == "any":
        return list(range(1, min(compiled.devices, -(-batch // (microbatch * expert))) + 1))
    if choice == "even":
        each = batch // (microbatch * expert)
        if batch % (microbatch * expert):
            return []
        return [d for d in range(1, min(compiled.devices, each) + 1) if each % d == 0]
    return sorted(d for d in choice if d <= compiled.devices)


def stage_counts(compiled: Compiled, replicas: int, width: int) -> list[int]:
    """The stage counts that fit: at most one stage per layer, and all replicas on the devices.

    Both layouts fit when replicas * stages * width <= devices (for ``pipeline-inner`` because the
    left side is an integer).
    """
    most = min(compiled.layer_count, compiled.devices // (replicas * width))
    choice = compiled.search.stages
    return [s for s in range(1, most + 1) if choice == "any" or s in choice]


def list_cells(compiled: Compiled) -> Iterator[Cell]:
    """Every cell, once, in a fixed order."""
    for b in compiled.microbatch_sizes:
        for template in compiled.templates:
            for d in replica_counts(compiled, b, template.expert):
                m = compiled.microbatches(b, d, template.expert)
                for layout in LAYOUTS:
                    if layout in compiled.search.layouts:
                        for s in stage_counts(compiled, d, template.width):
                            yield Cell(b, d, template, s, layout, m)
