"""No object is written through an open handle.

Closing a handle publishes what was written so far: an exception, a dropped handle or a garbage collection would
put a truncated object under its final name. So bytes are made first and put in one call, and nothing in the
package opens anything for writing but the local store, which does it under a temporary name (and opens what it
replaces to lock it), what sorts rows, which lays them in a folder that goes when it is done, and the console, which
sends to the null device what a reader who has left, or was never there, would have got.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    ROOT / "mixer" / "storage" / "local.py",
    ROOT / "mixer" / "storage" / "regular.py",
    ROOT / "mixer" / "preparation" / "scratch.py",
    ROOT / "mixer" / "cli" / "console.py",
    ROOT / "mixer" / "cli" / "__init__.py",
}
FILES = sorted(path for package in ("mixer", "flows") for path in (ROOT / package).rglob("*.py"))

READ_BY_DEFAULT = {"open", "fdopen", "open_async", "OSFile"}
"""Calls that give a handle, which writes only if a mode says so."""
WRITE_BY_DEFAULT = {"NamedTemporaryFile", "TemporaryFile", "open_output_stream", "open_append_stream"}
"""Calls that give a handle, which writes unless a mode says otherwise."""


def _mode(call: ast.Call) -> str | None:
    """Return the mode that a call opens with: '' if it names none, None if the source does not tell."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    if not given and len(call.args) > 1:
        given = [call.args[1]]
    if not given and isinstance(call.func, ast.Attribute):
        # `path.open("w")` has its mode where `fs.open("data")` has its path.
        given = [arg for arg in call.args if isinstance(arg, ast.Constant) and set(str(arg.value)) <= set("rwxabt+")]
    if not given:
        return ""
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def write_handles(source: str) -> Iterator[str]:
    """Yield a line for each call that opens something for writing, or may."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in READ_BY_DEFAULT | WRITE_BY_DEFAULT:
            mode = _mode(node)
            writes = name in WRITE_BY_DEFAULT if mode == "" else mode is None or bool(set(mode) & set("wax+"))
            if writes:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", [p for p in FILES if p not in ALLOWED], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_nothing_is_opened_for_writing(path: Path) -> None:
    assert list(write_handles(path.read_text())) == []


def test_there_are_files_to_look_at() -> None:
    assert ROOT / "mixer" / "errors.py" in FILES


@pytest.mark.parametrize(
    "call",
    [
        "open(path, 'w')",
        "open(path, mode='xb')",
        "open('a', 'a')",
        "path.open('wb')",
        "fs.open(path, 'ab')",
        "fs.open(path, mode='r+b')",
        "fs.open(path, mode=mode)",
        "fs.open(path, mode)",
        "fsspec.open(f'{url}/{name}', 'wt')",
        "os.fdopen(fd, 'wb')",
        "filesystem.open_output_stream(path)",
        "pa.OSFile(path, 'wb')",
        "pa.OSFile(path, mode='w')",
        "tempfile.NamedTemporaryFile(dir=folder)",
    ],
)
def test_a_write_handle_is_found(call: str) -> None:
    assert list(write_handles(f"with {call} as file:\n    file.write(data)\n")) == [f"line 1: {call}"]


@pytest.mark.parametrize(
    "call",
    [
        "open(path)",
        "open('w')",
        "open(path, 'rb')",
        "path.open()",
        "path.open('rb')",
        "fs.open(path, 'rb', cache_type='none')",
        "fs.open(path, mode='rb')",
        "pa.OSFile(path)",
        "pa.OSFile(path, 'rb')",
        "store.put(name, data)",
    ],
)
def test_reading_is_let_through(call: str) -> None:
    assert list(write_handles(f"{call}\n")) == []
