"""Reading and writing files so that bad ones are refused and good ones are never lost."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from nest_opt.errors import Complaint, InputError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Larger files are refused unread: the largest sensible problem is a few megabytes.
MAX_BYTES = 64 * 2**20


def read_json(path: Path) -> Any:
    """The JSON value in a file.

    Refuses, with :class:`InputError`: missing, unreadable or too large files, text that is not
    UTF-8 JSON, duplicate keys, NaN and infinities, and nesting too deep to be meant.
    """
    return parse_json(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """What is in a file; refuses missing, unreadable and too large ones (:class:`InputError`)."""
    source = str(path)
    try:
        if path.is_dir():
            raise InputError(source, "is a folder; name a file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                source,
                f"is {size / 2**20:.0f} MiB; files above {MAX_BYTES // 2**20} MiB are refused "
                "(write runs of equal layers once, with 'count')",
            )
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(source, "no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(source, f"cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(source, f"is larger than {MAX_BYTES // 2**20} MiB")
    return raw


def parse_json(raw: bytes, source: str) -> Any:
    """The JSON value in ``raw``; ``source`` names it in complaints. Raises :class:`InputError`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(source, f"is not UTF-8 text (byte {error.start})") from None

    def refuse_constant(name: str) -> float:
        raise InputError(source, f"contains {name}; every number must be finite")

    def finite(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise InputError(source, f"the number {literal[:40]} is too large")
        return value

    def whole(literal: str) -> int:
        if len(literal) > 40:
            raise InputError(source, f"the number {literal[:20]}... has {len(literal)} digits")
        return int(literal)

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
            raise InputError(source, f"the field {twice!r} stands twice in one object")
        return result

    try:
        return json.loads(
            text,
            parse_constant=refuse_constant,
            parse_float=finite,
            parse_int=whole,
            object_pairs_hook=no_duplicates,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(source, f"is not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise InputError(source, "is nested too deeply to be a problem or a plan") from None


def canonical_json(value: Any) -> str:
    """The one text of a JSON value that digests are taken of: sorted keys, no spaces, ASCII.

    Raises :class:`InputError` for what JSON cannot hold.
    """
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except RecursionError:
        raise InputError("input", "is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise InputError("input", f"cannot be written as JSON: {error}") from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` whole or not at all: to a temporary name in the same folder, then renamed.

    A link is followed, and stays. What is not a regular file (``/dev/stdout``, a pipe) is written
    to directly. Raises :class:`InputError` if the place cannot be written; what was there before is
    untouched.
    """
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("w", encoding="utf-8") as stream:
                stream.write(text)
            return
        path = Path(os.path.realpath(path))
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
        temporary = None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(str(path), f"cannot be written: {reason}") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, readable, with :func:`write_text`."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def complaints_of(error: ValidationError, data: Any = None) -> list[Complaint]:
    """What pydantic found, as complaints with a path, the value shortened to fit a line.

    ``data`` is what was validated. With it, paths hold the fields of the file and nothing else: the
    branches of a union that pydantic names on the way are left out, and what the branches say of
    one field becomes one complaint.
    """
    items = error.errors(include_url=False)
    paths = [_path_of(item, data) for item in items]
    unions = {path for _, entered in paths for path in entered}
    found: dict[str, list[ErrorDetails]] = {}
    for item, (path, _) in zip(items, paths, strict=True):
        found.setdefault(path, []).append(item)
    complaints = []
    for path, details in found.items():
        deeper = any(p.startswith((f"{path}.", f"{path}[")) for p in found)
        if deeper:
            # A list whose entries were refused is not also too short.
            details = [d for d in details if d["type"] != "too_short"]
        if path in unions:
            # What a value is not says nothing, if another branch of the union got further.
            closer = [d for d in details if not _is_mismatch(d)]
            details = closer or ([] if deeper else details)
        if details:
            texts = dict.fromkeys(_text_of(d) for d in details)
            complaints.append(Complaint(path, "; or: ".join(texts), _value_of(details[0])))
    return complaints


def _is_mismatch(item: ErrorDetails) -> bool:
    return item["type"].endswith("_type") or item["type"] == "literal_error"


def _text_of(item: ErrorDetails) -> str:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown field; remove it or check its spelling"
    if kind in ("missing", "union_tag_not_found"):
        return "is missing"
    if kind == "union_tag_invalid":
        return f"must be one of {context.get('expected_tags')}"
    if kind == "too_short":
        return "must not be empty" if context.get("min_length") == 1 else item["msg"]
    return item["msg"].removeprefix("Value error, ")


def _value_of(item: ErrorDetails) -> str:
    if item["type"] in ("missing", "value_error", "too_short", "union_tag_not_found"):
        return ""
    value = item.get("ctx", {}).get("tag", item["input"])
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _path_of(item: ErrorDetails, data: Any) -> tuple[str, list[str]]:
    """A path as people write it, and the paths at which it enters a branch of a union."""
    location = item["loc"]
    path, unions, here, tagged = "", [], data, False
    for n, step in enumerate(location):
        if isinstance(step, int):
            path += f"[{step}]"
            here = here[step] if isinstance(here, list) and step < len(here) else None
            tagged = False
            continue
        if isinstance(here, dict) and here.get("kind") == step and not tagged:
            tagged = True  # the branch that ``kind`` chose; the same object is still at hand
            continue
        known = isinstance(here, dict) and step in here
        named = n == len(location) - 1 and item["type"] in ("missing", "extra_forbidden")
        if data is None or known or named:
            path += f".{step}" if path else str(step)
            here, tagged = here[step] if known else None, False
        else:
            unions.append(path)
    if item["type"].startswith("union_tag"):
        path += ".kind" if path else "kind"
    return path, unions


# --- CSV ------------------------------------------------------------------------------------------


def read_rows(path: Path, columns: Mapping[str, tuple[type, bool]]) -> list[dict[str, Any]]:
    """Typed rows of a CSV file whose first line names its columns.

    ``columns`` gives the type of each and whether it may be missing; an empty cell counts as
    missing. Raises :class:`InputError`, listing every cell that is wrong.
    """
    source = str(path)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    except csv.Error as error:
        raise InputError(source, f"is not CSV: line {reader.line_num}: {error}") from None
    if not lines:
        raise InputError(source, "is empty; the first line names the columns")
    (_, first), *rest = lines
    header = [name.strip() for name in first]
    complaints = [
        Complaint(f"column {name}", "unknown; known are " + ", ".join(columns))
        for name in dict.fromkeys(header)
        if name not in columns
    ]
    complaints += [
        Complaint(f"column {name}", "stands twice") for name, n in Counter(header).items() if n > 1
    ]
    complaints += [
        Complaint(f"column {name}", "is missing")
        for name, (_, optional) in columns.items()
        if not optional and name not in header
    ]
    if complaints:
        raise InputError(source, complaints)
    rows = []
    for number, line in rest:
        where = f"line {number}"
        if len(line) != len(header):
            complaints.append(Complaint(where, f"has {len(line)} cells, not {len(header)}"))
            continue
        row = {}
        for name, cell in zip(header, map(str.strip, line), strict=True):
            kind, optional = columns[name]
            if not cell and optional:
                continue
            try:
                row[name] = _value(cell, kind)
            except ValueError:
                word = {int: "a whole number", float: "a number", bool: "true or false"}
                complaints.append(
                    Complaint(f"{where}, {name}", f"must be {word.get(kind, 'text')}", cell[:40])
                )
        rows.append(row)
    if complaints:
        raise InputError(source, complaints)
    return rows


def read_numbers(path: Path) -> list[list[float]]:
    """The rows of a CSV file of numbers, without a header. Raises :class:`InputError`."""
    source = str(path)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    complaints, rows = [], []
    try:
        for line in reader:
            if not any(map(str.strip, line)):
                continue
            row = []
            for column, cell in enumerate(map(str.strip, line), 1):
                try:
                    row.append(float(_value(cell, float)))
                except ValueError:
                    where = f"line {reader.line_num}, column {column}"
                    complaints.append(Complaint(where, "must be a number", cell[:40]))
            rows.append(row)
    except csv.Error as error:
        raise InputError(source, f"is not CSV: line {reader.line_num}: {error}") from None
    if complaints:
        raise InputError(source, complaints)
    if not rows:
        raise InputError(source, "has no rows")
    return rows


def read_text(path: Path) -> str:
    """A file as UTF-8 text, with or without a byte-order mark. Raises :class:`InputError`."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})") from None


def _value(cell: str, kind: type) -> str | int | float | bool:
    """A cell as JSON would say it. Raises ValueError."""
    patterns = {
        str: r".+",
        bool: r"(?i:true|false|0|1)",
        int: r"[0-9]{1,18}",
        float: r"[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?",
    }
    if not re.fullmatch(patterns[kind], cell, re.ASCII if kind is not str else 0):
        raise ValueError(cell)
    if kind is bool:
        return cell.lower() in ("true", "1")
    value: str | int | float = kind(cell)
    if value == float("inf"):
        raise ValueError(cell)
    return value
