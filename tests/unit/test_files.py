"""JSON files: bad ones are refused with a reason, good ones are never lost."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nest_opt.errors import InputError
from nest_opt.files import MAX_BYTES, canonical_json, parse_json, read_json, write_json, write_text


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"a": 1,}', "is not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[NaN]", "contains NaN"),
        (b"[Infinity]", "contains Infinity"),
        (b"[-Infinity]", "contains -Infinity"),
        (b"[1e400]", "too large"),
        (b"[" + b"9" * 41 + b"]", "has 41 digits"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'["a\x00b"]', "is not JSON"),
    ],
)
def test_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse_json(raw, "here.json")
    assert str(caught.value).startswith("here.json: ")


def test_accepted() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [1, 2.5, "x", null, true]}', "x") == {
        "a": [1, 2.5, "x", None, True]
    }


def test_read_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        read_json(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_json(Path("a\0b"))
    with pytest.raises(InputError, match="cannot be read"):
        read_json(tmp_path / ("a" * 5000))
    big = tmp_path / "big.json"
    with big.open("wb") as handle:
        handle.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="refused"):
        read_json(big)


def test_canonical_json_is_one_text() -> None:
    assert canonical_json({"b": 1, "a": [1.5, "é"]}) == '{"a":[1.5,"\\u00e9"],"b":1}'
    with pytest.raises(InputError):
        canonical_json(float("nan"))
    with pytest.raises(InputError):
        canonical_json({1, 2})
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match="nested"):
        canonical_json(deep)
    while deep:  # taken apart gently: destroying it at once may overflow the stack
        deep = deep.pop()  # type: ignore[assignment]


def test_write_keeps_the_old_file_if_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, float("nan"))
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_write_keeps_mode_and_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_write_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path / "no" / "x", "text")
    with pytest.raises(InputError, match="cannot be written"):
        write_text(tmp_path, "text")
    with pytest.raises(InputError, match="cannot be written"):
        write_text(Path("a\0b"), "text")


def test_write_to_what_is_not_a_file() -> None:
    code = (
        "from pathlib import Path; from nest_opt.files import write_text;"
        "write_text(Path('/dev/stdout'), 'hello'); write_text(Path('/dev/null'), 'x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "hello"
    assert Path("/dev/null").is_char_device()
