"""How far the groups of one replica may reach."""

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
    from nest_opt.estimate.table import Axis

_LinkClass = Annotated[int, Field(ge=0, le=63)]


class GroupLinks(Constraint):
    """No tensor, context or expert group reaches beyond a link class (0: inside a node)."""

    constraint: Literal["group_links"] = "group_links"
    tensor: _LinkClass | None = None
    context: _LinkClass | None = None
    expert: _LinkClass | None = None

    meaning: ClassVar[str] = "no tensor, context or expert group reaches beyond a link class"

    @property
    def _limits(self) -> list[tuple[Axis, int]]:
        given: tuple[tuple[Axis, int | None], ...] = (
            ("tensor", self.tensor), ("context", self.context), ("expert", self.expert),
        )  # fmt: skip
        return [(axis, limit) for axis, limit in given if limit is not None]

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> GroupLinks:
        limit = random.randint(0, max(0, len(compiled.network.classes) - 2))
        if random.random() < 0.5:
            return cls(tensor=limit, context=limit, expert=limit)
        axis = random.choice(("tensor", "tensor", "context", "expert"))
        return cls(**{axis: limit})  # type: ignore[arg-type]

    def relaxations(self, compiled: Compiled) -> Iterator[tuple[str, Sequence[Any]]]:
        for axis, limit in self._limits:
            yield axis, range(limit + 1, len(compiled.network.classes))

    def check(self, placed: Placed) -> Iterator[Breach]:
        for axis, limit in self._limits:
            for j, stage in enumerate(placed.plan.stages):
                for r in range(len(stage.devices)):
                    reach = max(map(placed.compiled.network.class_of, placed.groups(j, r, axis)))
                    if reach > limit:
                        yield Breach(
                            f"stage {j}, replica {r}",
                            f"has a {axis} group over link class {reach}, beyond {limit}; use a "
                            f"smaller {axis} degree, or another layout",
                            reach - limit,
                            whole_cell=True,
                        )

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        return all(places.group_class(axis) <= limit for axis, limit in self._limits)

    def restrict(self, stages: StageModel) -> None:
        network = stages.compiled.network
        for axis, limit in self._limits:
            groups = (
                group
                for j in stages.numbers
                for r in range(stages.cell.replicas)
                for group in stages.groups(j, r, axis)
            )
            if any(network.class_of(group) > limit for group in groups):
                stages.forbid()
