"""Constraints on plans: one file for each, and the register of all that are known.

Built-in constraints are the modules of this package. Installed packages offer more through entry
points of the group ``nest_opt.constraints`` (name: that of the constraint; object: its class), and
a user's own file is loaded with :func:`load_class`, which runs its code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from nest_opt.constraints.base import MAX_CARRIED, Breach, Constraint, Placed
from nest_opt.errors import InputError
from nest_opt.files import complaints_of, parse_json

if TYPE_CHECKING:
    from nest_opt.compile import Compiled

__all__ = [
    "Breach",
    "Constraint",
    "Placed",
    "built_in",
    "from_spec",
    "known",
    "load_class",
    "parse",
    "register",
    "source_digests",
]

GROUP = "nest_opt.constraints"

_registered: dict[str, type[Constraint]] = {}


def built_in() -> dict[str, type[Constraint]]:
    """The constraints of this package by name: one for each module, named like it."""
    found = {}
    for module in sorted(m.name for m in iter_modules(__path__) if m.name != "base"):
        for value in vars(import_module(f"{__name__}.{module}")).values():
            if inspect.isclass(value) and issubclass(value, Constraint) and value is not Constraint:
                found[value.name()] = value
    return found


def known() -> dict[str, type[Constraint]]:
    """Every constraint that a problem may name: built in, registered, offered by packages."""
    return {**_offered(), **built_in(), **_registered}


def _offered() -> dict[str, type[Constraint]]:
    """Constraints of installed packages; one that cannot be loaded is named."""
    from importlib.metadata import entry_points

    found = {}
    for point in entry_points(group=GROUP):
        try:
            found[point.name] = _checked(point.load(), f"entry point {point.name}")
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"entry point {point.name}", f"cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    return found


def register(constraint: type[Constraint]) -> type[Constraint]:
    """Make a class known by its name, for this process; returns it, so it can decorate a class.

    Raises :class:`InputError` for a class that is no constraint, or whose name is that of a
    built-in one.
    """
    _checked(constraint, getattr(constraint, "__name__", str(constraint)))
    name = constraint.name()
    if name in built_in():
        raise InputError(
            constraint.__name__, f"{name!r} is a built-in constraint; name it otherwise"
        )
    _registered[name] = constraint
    return constraint


def _checked(constraint: Any, source: str) -> type[Constraint]:
    if not (inspect.isclass(constraint) and issubclass(constraint, Constraint)):
        raise InputError(source, "is no subclass of nest_opt.constraints.Constraint")
    default = constraint.model_fields["constraint"].default
    if not isinstance(default, str) or not default.isidentifier():
        raise InputError(
            source, "needs its name: constraint: Literal['my_name'] = 'my_name', an identifier"
        )
    if not constraint.meaning:
        raise InputError(source, "needs its meaning, one sentence: meaning = '...'")
    missing = [
        face
        for face in ("check", "restrict")
        if getattr(constraint, face) is getattr(Constraint, face)
    ]
    if missing:
        raise InputError(source, f"lacks {' and '.join(missing)}; see nest_opt/constraints/base.py")
    return constraint


def load_class(spec: str) -> type[Constraint]:
    """The class of ``path/to/file.py:ClassName``, registered; this runs the file's code.

    Raises :class:`InputError` for a file or class that is not there or is no constraint.
    """
    path, _, wanted = spec.rpartition(":")
    if not path or not wanted:
        raise InputError(spec, "names no class; write FILE.py:CLASS")
    if not Path(path).is_file():
        raise InputError(path, "no such file")
    name = f"nest_opt_constraint_{hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()}"
    description = importlib.util.spec_from_file_location(name, path)
    if description is None or description.loader is None:
        raise InputError(path, "is no Python file; its name ends in .py")
    module = importlib.util.module_from_spec(description)
    sys.modules[name] = module  # where inspect finds the source of its classes
    try:
        description.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(path, f"cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, wanted, None)
    if found is None:
        classes = [
            n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__ == name
        ]
        raise InputError(path, f"has no class {wanted!r}; it has {', '.join(classes) or 'none'}")
    return register(_checked(found, spec))


def from_spec(spec: str) -> dict[str, Any]:
    """The JSON object of a constraint written on a command line.

    ``NAME`` or ``FILE.py:CLASS``, and behind another colon a JSON object of parameters where it
    needs some: ``layers_per_stage:{"at_most": 8}``. A file's code is run, and its class registered.
    Raises :class:`InputError`.

    >>> from_spec('layers_per_stage:{"at_most": 8}')
    {'constraint': 'layers_per_stage', 'at_most': 8}
    """
    head, brace, rest = spec.partition(":{")
    parameters = parse_json(f"{{{rest}".encode(), spec) if brace else {}
    classes = known()
    name = head if head in classes else ""
    if not name and ":" in head:
        name = load_class(head).name()
    if not name:
        from difflib import get_close_matches

        close = get_close_matches(head, classes, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(
            spec,
            f"is no constraint{hint} (write FILE.py:CLASS, or NAME, and parameters as "
            f'NAME:{{"PARAMETER": VALUE}}; known: {", ".join(classes)})',
        )
    return {"constraint": name, **parameters}


def parse(data: Any) -> Constraint:
    """A constraint from the JSON object of a problem file; for use as a pydantic validator."""
    if isinstance(data, Constraint):
        return data
    if not isinstance(data, dict) or not isinstance(data.get("constraint"), str):
        raise PydanticCustomError(
            "constraint", 'must be an object with the name of a constraint: {{"constraint": "..."}}'
        )
    classes = known()
    name = data["constraint"]
    if name not in classes:
        from difflib import get_close_matches

        close = get_close_matches(name, classes, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise PydanticCustomError(
            "constraint",
            "{hint}there is no constraint of that name; known: {names}; one of your own is loaded "
            "with --constraint FILE.py:CLASS",
            {"hint": hint, "names": ", ".join(classes)},
        )
    try:
        return classes[name].model_validate_json(json.dumps(data))
    except ValidationError as error:
        said = "; ".join(str(complaint) for complaint in complaints_of(error, data))
        raise PydanticCustomError(
            "constraint", "{name}: {said}", {"name": name, "said": said}
        ) from None


def complaints(constraints: Iterable[Constraint], compiled: Compiled) -> list[str]:
    """What does not fit the problem, by constraint."""
    found = [(c, c.complaint(compiled)) for c in constraints]
    return [f"{c.constraint}: {said}" for c, said in found if said]


def carried(constraints: Iterable[Constraint], cell: Any) -> int:
    """How many numbers all constraints together carry from stage to stage in a cell.

    Raises :class:`InputError` beyond MAX_CARRIED.
    """
    product = 1
    for constraint in constraints:
        product *= constraint.carried(cell)
    if product > MAX_CARRIED:
        raise InputError(
            "search.constraints",
            f"together carry {product} numbers from stage to stage, more than {MAX_CARRIED}; "
            "leave out one of those that count",
        )
    return product


def source_digests(constraints: Iterable[Constraint]) -> dict[str, str]:
    """By name, the SHA-256 of the source of each constraint that is not built in.

    A certificate records them: whoever checks it with another text of the constraint is told.
    """
    own = built_in()
    found = {}
    for constraint in constraints:
        cls = type(constraint)
        if own.get(constraint.constraint) is cls:
            continue
        try:
            text = inspect.getsource(cls)
        except (OSError, TypeError):
            text = f"{cls.__module__}.{cls.__qualname__}: no source"
        found[constraint.constraint] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return found
