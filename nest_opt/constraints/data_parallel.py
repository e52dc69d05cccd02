"""Which numbers of replicas are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places


class DataParallel(Constraint):
    """The number of replicas divides the batch or the devices, or is a power of two."""

    constraint: Literal["data_parallel"] = "data_parallel"
    divides_batch: bool = False
    divides_devices: bool = False
    power_of_two: bool = False

    meaning: ClassVar[str] = (
        "the number of replicas divides the global batch or the devices, or is a power of two"
    )

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> DataParallel:
        wanted = random.sample(("batch", "devices", "power"), random.randint(1, 2))
        return cls(
            divides_batch="batch" in wanted,
            divides_devices="devices" in wanted,
            power_of_two="power" in wanted,
        )

    def check(self, placed: Placed) -> Iterator[Breach]:
        d, compiled = placed.plan.replicas, placed.compiled
        if self.divides_batch and compiled.global_batch % d:
            yield self._breach(d, f"do not divide the batch of {compiled.global_batch}")
        if self.divides_devices and compiled.devices % d:
            yield self._breach(d, f"do not divide the {compiled.devices} devices")
        if self.power_of_two and bin(d).count("1") != 1:
            yield self._breach(d, "are no power of two")

    @staticmethod
    def _breach(replicas: int, what: str) -> Breach:
        return Breach("plan", f"{replicas} replicas {what}; choose another number", whole_cell=True)

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        d, compiled = cell.replicas, places.compiled
        return not (
            (self.divides_batch and compiled.global_batch % d != 0)
            or (self.divides_devices and compiled.devices % d != 0)
            or (self.power_of_two and d & (d - 1) != 0)
        )

    def restrict(self, stages: StageModel) -> None:
        d = stages.cell.replicas
        powers = {2**n for n in range(32)}
        if (
            self.divides_batch
            and stages.compiled.global_batch // d * d < stages.compiled.global_batch
        ):
            stages.forbid()
        if self.divides_devices and stages.compiled.devices // d * d < stages.compiled.devices:
            stages.forbid()
        if self.power_of_two and d not in powers:
            stages.forbid()
