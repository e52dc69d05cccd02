"""Devices that no stage may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places


class ReservedDevices(Constraint):
    """No stage uses these devices: they are reserved, or have failed."""

    constraint: Literal["reserved_devices"] = "reserved_devices"
    devices: Annotated[
        tuple[Annotated[int, Field(ge=0, le=2**20)], ...], Field(min_length=1, max_length=65536)
    ]

    meaning: ClassVar[str] = "no stage uses these devices"

    def complaint(self, compiled: Compiled) -> str | None:
        beyond = [x for x in self.devices if x >= compiled.devices]
        if beyond:
            return f"device {beyond[0]} does not exist; there are 0..{compiled.devices - 1}"
        return None

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> ReservedDevices:
        count = random.randint(1, max(1, compiled.devices // 3))
        return cls(devices=tuple(sorted(random.sample(range(compiled.devices), count))))

    def check(self, placed: Placed) -> Iterator[Breach]:
        reserved = set(self.devices)
        for j, stage in enumerate(placed.plan.stages):
            for r, group in enumerate(stage.devices):
                taken = sorted(reserved & set(group))
                if taken:
                    yield Breach(
                        f"stage {j}, replica {r}",
                        f"uses device {taken[0]}, which is reserved; use fewer devices or another "
                        "layout",
                        whole_cell=True,
                    )

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        starts, width = places.starts, cell.template.width
        return not any(
            bool(((starts <= device) & (device < starts + width)).any()) for device in self.devices
        )

    def restrict(self, stages: StageModel) -> None:
        reserved = set(self.devices)
        for j in stages.numbers:
            for r in range(stages.cell.replicas):
                if not reserved.isdisjoint(stages.devices(j, r)):
                    stages.forbid()
