"""An explicit placement, as data: who computes what, where, and how.

A plan needs no knowledge of how it was found. It names the devices of every stage and replica, so
plans of other planners can be written down, priced and compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nest_opt.errors import InputError
from nest_opt.files import complaints_of, read_json

Recomputation = Literal["none", "selective", "layer", "stage"]
Layout = Literal["pipeline-inner", "data-inner"]

#: An integer, not a literal: JSON's ``true`` must not pass for 1.
ZeroStage = Annotated[int, Field(ge=0, le=3)]

#: Weakest first; the order of the tie-break.
RECOMPUTATIONS: tuple[Recomputation, ...] = ("none", "selective", "layer", "stage")
#: In the order of the tie-break.
LAYOUTS: tuple[Layout, ...] = ("pipeline-inner", "data-inner")

_Positive = Annotated[int, Field(ge=1, le=2**31)]
_Natural = Annotated[int, Field(ge=0, le=2**62)]


@dataclass(frozen=True, order=True)
class Template:
    """How one stage is sharded: tensor, context and expert degrees, sequence parallelism or not.

    >>> Template(tensor=4, sequence_parallel=True).width
    4
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    tensor: _Positive = 1
    context: _Positive = 1
    expert: _Positive = 1
    sequence_parallel: bool = False

    @property
    def width(self) -> int:
        """Devices of one stage of one replica."""
        return self.tensor * self.context * self.expert

    @property
    def label(self) -> str:
        """Short name for tables: ``t4s.c2`` is t = 4 with sequence parallelism, c = 2, e = 1."""
        parts = [f"t{self.tensor}{'s' if self.sequence_parallel else ''}"]
        if self.context > 1:
            parts.append(f"c{self.context}")
        if self.expert > 1:
            parts.append(f"e{self.expert}")
        return ".".join(parts)


class StagePlan(BaseModel):
    """One pipeline stage of a plan.

    ``layers`` is the half-open run [first, last + 1]. ``devices[r]`` lists the devices of replica
    r, tensor index fastest, then context, then expert. ``load_ticks`` (per microbatch, largest over
    the replicas) and ``memory_bytes`` (per device) are what the plan's author claims; ``evaluate``
    computes them anew.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    layers: tuple[_Natural, _Natural]
    recomputation: Recomputation = "none"
    zero: ZeroStage = 0
    load_ticks: _Natural | None = None
    memory_bytes: _Natural | None = None
    devices: tuple[tuple[_Natural, ...], ...]


class Plan(BaseModel):
    """An explicit placement of a problem.

    ``digest`` is that of the compiled problem the plan was made for; a plan whose digest differs
    from the problem's is stale and its claims are worth nothing until it is priced again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    digest: Annotated[str, Field(max_length=200)] = ""
    microbatch: _Positive
    replicas: _Positive
    microbatches: _Positive
    layout: Literal["pipeline-inner", "data-inner", "explicit"] = "explicit"
    template: Template
    stages: Annotated[tuple[StagePlan, ...], Field(min_length=1)]

    @property
    def devices_used(self) -> int:
        """Number of different devices that the plan names."""
        return len({x for stage in self.stages for group in stage.devices for x in group})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; :meth:`from_dict` reads it back."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: Any, source: str = "plan") -> Plan:
        """Validate ``data``; raises :class:`InputError` listing everything wrong with it.

        A ``solve --json`` object is accepted as well; its ``plan`` is taken.
        """
        if isinstance(data, dict) and "stages" not in data and isinstance(data.get("plan"), dict):
            data = data["plan"]
        try:
            # JSON mode, so that strictness means JSON types: arrays become tuples, 1.0 is no int.
            from nest_opt.files import canonical_json

            return cls.model_validate_json(canonical_json(data))
        except ValidationError as error:
            raise InputError(source, complaints_of(error, data)) from None

    @classmethod
    def from_file(cls, path: str | Path) -> Plan:
        """Read a plan file; raises :class:`InputError`."""
        return cls.from_dict(read_json(Path(path)), str(path))
