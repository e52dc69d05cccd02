"""Reading the fields of a config that anybody may have written."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from nest_opt.errors import Complaint

#: Sizes beyond this are mistakes, not models.
LARGEST_SIZE = 10**7


class Fields:
    """Reads fields of a config, collecting complaints; a bad field yields a harmless stand-in."""

    def __init__(self, config: Mapping[str, Any], path: str = "model.config") -> None:
        self._config = config
        self._path = path
        self.defaults: Mapping[str, Any] = {}
        self.complaints: list[Complaint] = []
        self.notes: list[str] = []

    @property
    def nested(self) -> bool:
        """Whether this config lies inside another one."""
        return self._path != "model.config"

    @property
    def kind(self) -> str:
        """The ``model_type``."""
        return str(self.get("model_type"))

    def complain(self, name: str, message: str, value: Any = None) -> None:
        """Record what is wrong with a field."""
        shown = "" if value is None else reprlib.repr(value)[:60]
        self.complaints.append(Complaint(f"{self._path}.{name}", message, shown))

    def is_bad(self, *names: str) -> bool:
        """Whether there is a complaint about one of these fields."""
        return not {c.field for c in self.complaints}.isdisjoint(f"{self._path}.{n}" for n in names)

    def has(self, name: str) -> bool:
        """Whether the config has the field, be it null."""
        return name in self._config

    def get(self, name: str) -> Any:
        """The field as it stands; None if it is missing."""
        return self._config.get(name)

    def count(
        self, name: str, default: int | None = None, most: int = LARGEST_SIZE, least: int = 1
    ) -> int:
        """A whole number from ``least`` to ``most``; required unless it has a default."""
        value = self.get(name)
        if value is None:
            if default is None:
                self.complain(name, "missing; the estimate needs it")
            return 1 if default is None else default
        if isinstance(value, bool) or not isinstance(value, int):
            self.complain(name, "must be a whole number", value)
        elif value < least:
            self.complain(name, f"must be at least {least}", value)
        elif value > most:
            self.complain(name, f"must be at most {most}", value)
        else:
            return value
        return 1

    def size(self, name: str, most: int = LARGEST_SIZE) -> int:
        """A size without which there is no model: required, unless the config is nested."""
        return self.count(name, self.defaults.get(name) if self.nested else None, most)

    def option(self, name: str, null: int | None = None, least: int = 1) -> int:
        """A size with a default; null means ``null``, or the default as well."""
        default: int = self.defaults[name]
        if null is not None and self.has(name):
            default = null
        return self.count(name, default, least=least)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false; left out, ``default`` or the default of the class."""
        value = self.get(name)
        if default is None:
            default = bool(self.defaults.get(name, False))
        if value is None:
            return default
        if not isinstance(value, bool):
            self.complain(name, "must be true or false", value)
            return default
        return value

    def dropout(self, name: str) -> bool:
        """Whether a dropout probability is above 0."""
        value = self.get(name)
        if value is None:
            return bool(self.defaults.get(name, False))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.complain(name, "must be a probability, at least 0 and below 1", value)
            return False
        return value > 0

    def cap(self, name: str) -> bool:
        """Whether a soft cap is set; null is none."""
        value = self.get(name) if self.has(name) else self.defaults.get(name)
        if value is None:
            return False
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            self.complain(name, "must be a positive number, or null for none", value)
            return False
        return True

    def divides(self, name: str, part: int, whole_name: str, whole: int) -> None:
        """Complain unless field ``name`` divides field ``whole_name``; both read before."""
        if not self.is_bad(name, whole_name) and whole % part:
            self.complain(name, f"must divide {whole_name} = {whole}", part)

    def refuse(self, name: str, message: str) -> None:
        """Complain if a flag is set."""
        if self.flag(name, False):
            self.complain(name, message, True)
