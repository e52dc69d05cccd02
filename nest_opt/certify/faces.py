"""Mutants of a constraint's faces: small errors, which the comparison of the faces must notice.

A mutant is a subclass with one face made wrong; ``check`` and the other faces stay. Parameters that
are whole numbers give the errors "off by one": the face is asked with the parameter next to it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nest_opt.constraints import Constraint

#: Faces of the dynamic program, by what a mutant of them may do.
_CELLS, _STAGES, _CARRY, _ACCEPTS = "allows_cell", "allows_stage", "carry", "accepts"


@dataclass(frozen=True)
class FaceMutant:
    """A wrong constraint: ``engine`` is whose face is wrong, ``makes`` make the class.

    There are several where an error can be made in several places, one of which may not matter:
    noticing one is enough.
    """

    name: str
    engine: str
    makes: tuple[Callable[[type[Constraint]], type[Constraint]], ...]


def face_mutants(cls: type[Constraint]) -> list[FaceMutant]:
    """Every mutant of the faces that a class has."""
    found = [*_cell_mutants(cls), *_stage_mutants(cls), *_carry_mutants(cls)]
    for field, info in cls.model_fields.items():
        if info.annotation is int:
            for by in (1, -1):
                found += _neighbours(cls, field, by)
    rows = tuple(lambda cls, n=n: _without_rows(cls, n) for n in (0, 1))
    found.append(_mutant("restrict dropped", "milp", restrict=lambda self, stages: None))
    found.append(FaceMutant("restrict inverted", "milp", (_opposite,)))
    found.append(FaceMutant("every second row dropped", "milp", rows))
    return found


def _mutant(name: str, engine: str, **faces: Any) -> FaceMutant:
    return FaceMutant(name, engine, (_with(**faces),))


def _with(**faces: Any) -> Callable[[type[Constraint]], type[Constraint]]:
    """A subclass with other methods, under the same name and with the same parameters."""
    return lambda cls: type(cls.__name__, (cls,), {"__module__": cls.__module__, **faces})


def _has(cls: type[Constraint], face: str) -> bool:
    return getattr(cls, face) is not getattr(Constraint, face)


def _cell_mutants(cls: type[Constraint]) -> Iterator[FaceMutant]:
    if _has(cls, _CELLS):
        original = cls.allows_cell
        yield _mutant("allows_cell dropped", "dp", allows_cell=lambda *_: True)
        yield _mutant(
            "allows_cell inverted",
            "dp",
            allows_cell=lambda self, cell, places: not original(self, cell, places),
        )


def _stage_mutants(cls: type[Constraint]) -> Iterator[FaceMutant]:
    if not _has(cls, _STAGES):
        return
    original = cls.allows_stage

    def inverted(self: Constraint, stages: Any) -> Any:
        allowed = original(self, stages)
        return (not allowed) if isinstance(allowed, bool) else ~allowed

    def shifted(self: Constraint, stages: Any) -> Any:
        """As if each stage held a layer more at its end."""
        longer = copy.copy(stages)
        object.__setattr__(longer, "stop", stages.stop + 1)
        for known in ("memory", "sync", "load"):
            vars(longer).pop(known, None)
        return original(self, longer)

    yield _mutant("allows_stage dropped", "dp", allows_stage=lambda *_: True)
    yield _mutant("allows_stage inverted", "dp", allows_stage=inverted)
    yield _mutant("allows_stage one layer off", "dp", allows_stage=shifted)


def _carry_mutants(cls: type[Constraint]) -> Iterator[FaceMutant]:
    if _has(cls, _CARRY):
        original = cls.carry
        yield _mutant("carry dropped", "dp", carry=lambda *_: 0)
        # Every stage is laid as if nothing had been carried into it.
        yield _mutant(
            "carry forgets", "dp", carry=lambda self, value, stages: original(self, 0, stages)
        )
    if _has(cls, _ACCEPTS):
        accepts = cls.accepts
        yield _mutant("accepts dropped", "dp", accepts=lambda *_: True)
        yield _mutant(
            "accepts inverted",
            "dp",
            accepts=lambda self, value, cell: not accepts(self, value, cell),
        )


def _neighbours(cls: type[Constraint], field: str, by: int) -> Iterator[FaceMutant]:
    """One face asked with a parameter one off; the check keeps the parameter."""

    def off(self: Constraint) -> Constraint:
        return self.model_copy(update={field: getattr(self, field) + by})

    faces = [face for face in (_CELLS, _STAGES, _CARRY, _ACCEPTS) if _has(cls, face)]
    originals = {face: getattr(cls, face) for face in faces}

    def asked(face: str) -> Any:
        return lambda self, *args: originals[face](off(self), *args)

    name = f"{field} {by:+d}"
    if faces:
        made: dict[str, Any] = {face: asked(face) for face in faces}
        if _has(cls, _CARRY):
            carried = cls.carried
            made["carried"] = lambda self, cell: max(carried(self, cell), carried(off(self), cell))
        yield _mutant(f"{name} in the DP", "dp", **made)
    restrict = cls.restrict
    yield _mutant(
        f"{name} in restrict", "milp", restrict=lambda self, stages: restrict(off(self), stages)
    )


class _Recorder:
    """Stands in front of a model's stages and keeps rows for itself."""

    def __init__(self, stages: Any) -> None:
        self._stages = stages
        self.kept: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stages, name)
        if name not in ("require", "forbid", "memory_at_most", "sync_at_most"):
            return value
        return lambda *args: self.kept.append(lambda: value(*args))


def _without_rows(cls: type[Constraint], of_two: int) -> type[Constraint]:
    """A subclass that leaves out every second row."""
    original = cls.restrict

    def restrict(self: Constraint, stages: Any) -> None:
        recorder = _Recorder(stages)
        original(self, recorder)  # type: ignore[arg-type]
        for n, add in enumerate(recorder.kept):
            if n % 2 != of_two:
                add()

    return _with(restrict=restrict)(cls)


def _opposite(cls: type[Constraint]) -> type[Constraint]:
    """Cells that are forbidden become free, and those without a row are forbidden."""
    original = cls.restrict

    def restrict(self: Constraint, stages: Any) -> None:
        recorder = _Recorder(stages)
        original(self, recorder)  # type: ignore[arg-type]
        if not recorder.kept:
            stages.forbid()

    return _with(restrict=restrict)(cls)
