"""Proofs: engines, processes to run them in, certificates and verdicts.

``verify`` is always the function; its module is reached with ``from nest_opt.certify.verify import
...``. Everything is loaded when it is first used, because a solver is heavy.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nest_opt.certify.certificate import Certificate
    from nest_opt.certify.harness import certify
    from nest_opt.certify.verify import Verification, verify

__all__ = ["Certificate", "Verification", "certify", "verify"]

#: Where each public name lives.
_HOMES = {
    "Certificate": "certificate",
    "Verification": "verify",
    "certify": "harness",
    "verify": "verify",
}


class _Package(ModuleType):
    """This package as an object: public names on demand, and never hidden by a module."""

    def __getattr__(self, name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value: object = getattr(import_module(f"{self.__name__}.{_HOMES[name]}"), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds a loaded sub-module to its name; the function of that name stays.
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
