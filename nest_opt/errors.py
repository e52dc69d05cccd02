"""One exception tree. Every message says what is wrong, where, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def _short(text: str, width: int = 120) -> str:
    """A name for a message: its two ends if it is very long."""
    return text if len(text) <= width else f"{text[: width - 23]}...{text[-20:]}"


class NestOptError(Exception):
    """Base of every error that nest-opt raises on purpose.

    ``exit_status`` is what the command line returns for it: 2 for bad input.
    """

    exit_status = 2


@dataclass(frozen=True)
class Complaint:
    """One thing wrong with an input: where, what was found, what to do."""

    field: str
    message: str
    value: str = ""

    def __str__(self) -> str:
        found = f" (found {self.value})" if self.value else ""
        return f"{_short(self.field) or '(top level)'}: {self.message}{found}"


class InputError(NestOptError):
    """A file or argument that cannot be used; lists every complaint at once."""

    #: More complaints than this are counted, not shown: one screen is enough to start mending.
    SHOWN = 20

    def __init__(self, source: str, complaints: Sequence[Complaint] | str) -> None:
        if isinstance(complaints, str):
            complaints = (Complaint("", complaints),)
        self.source = source
        self.complaints = tuple(complaints)
        super().__init__(self._render())

    def _render(self) -> str:
        source = _short(self.source)
        if len(self.complaints) == 1 and not self.complaints[0].field:
            return f"{source}: {self.complaints[0].message}"
        count = len(self.complaints)
        lines = [f"{source}: {count} problem{'s' if count > 1 else ''}"]
        lines += [f"  {c}" for c in self.complaints[: self.SHOWN]]
        if count > self.SHOWN:
            lines.append(f"  ... and {count - self.SHOWN} more")
        return "\n".join(lines)


class CompileError(NestOptError):
    """A well-formed problem that cannot be turned into integers that are safe to compute with."""


class PlanError(NestOptError):
    """A plan that does not describe a placement of this problem at all, so it has no price."""


class OverflowGuardError(NestOptError):
    """A sum could leave the 64-bit range; nothing was computed with it."""


class CertificateError(NestOptError):
    """A certificate that is malformed; a well-formed one that fails is a verdict, not an error."""


class EngineError(NestOptError):
    """The solver or its interface is missing or not the one that was checked."""
