"""No node holds all replicas of a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places


class FailureDomains(Constraint):
    """The replicas of a stage do not all lie in one failure domain.

    A failure domain is a block of devices that reach each other within ``link_class``; 0 is a node.
    So no stage is lost with one domain. A stage that has one replica, inside one domain, breaks
    this too, unless ``one_replica`` lets pipelines of one replica pass.
    """

    constraint: Literal["failure_domains"] = "failure_domains"
    link_class: Annotated[int, Field(ge=0, le=63)] = 0
    one_replica: bool = False

    meaning: ClassVar[str] = "the replicas of a stage do not all lie in one node"

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> FailureDomains:
        return cls(
            link_class=random.randint(0, max(0, len(compiled.network.classes) - 2)),
            one_replica=random.random() < 0.5,
        )

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        yield "link_class", range(self.link_class - 1, -1, -1)

    def check(self, placed: Placed) -> Iterator[Breach]:
        if self.one_replica and placed.plan.replicas == 1:
            return
        for j, stage in enumerate(placed.plan.stages):
            devices = [x for group in stage.devices for x in group]
            reach = placed.compiled.network.class_of(devices)
            if reach <= self.link_class:
                yield Breach(
                    f"stage {j}",
                    f"has all {placed.plan.replicas} replicas within link class {reach}; spread "
                    "them over domains: another layout, more replicas, or wider ones",
                    whole_cell=True,
                )

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        if self.one_replica and cell.replicas == 1:
            return True
        return bool((places.stage_classes > self.link_class).all())

    def restrict(self, stages: StageModel) -> None:
        replicas = range(stages.cell.replicas)
        if self.one_replica and len(replicas) == 1:
            return
        for j in stages.numbers:
            together = [x for r in replicas for x in stages.devices(j, r)]
            if stages.compiled.network.class_of(together) <= self.link_class:
                stages.forbid()
