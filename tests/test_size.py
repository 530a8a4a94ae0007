"""No file over 400 lines and no function over 50: what is longer is two things."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for package in ("mixer", "flows") for path in (ROOT / package).rglob("*.py"))
FILE_LINES = 400
FUNCTION_LINES = 50


def oversized(source: str) -> Iterator[str]:
    """Yield a line for the file, and one for each function, that is too long."""
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"{lines} lines; at most {FILE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {lines} lines; at most {FUNCTION_LINES}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_functions_stay_short(path: Path) -> None:
    assert list(oversized(path.read_text())) == []


def test_there_are_files_to_look_at() -> None:
    assert ROOT / "mixer" / "errors.py" in FILES
    assert ROOT / "flows" / "__init__.py" in FILES


def test_what_is_too_long_is_named() -> None:
    long = "def long():\n" + "    pass\n" * 50
    assert list(oversized(long)) == ["line 1: long has 51 lines; at most 50"]
    assert list(oversized("def short():\n" + "    pass\n" * 49)) == []
    assert list(oversized("x = 0\n" * 401)) == ["401 lines; at most 400"]
