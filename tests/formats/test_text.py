"""Plain text: documents by line, paragraph or file, each byte by byte what stands in the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import InputError
from mixer.formats import text
from tests.formats.making import read, written
from tests.profiles import sized

_TEXT = st.text(st.sampled_from(list("ab é\t\r\n\n\n\0\u2028")), max_size=60)


@given(data=_TEXT)
@settings(max_examples=sized(short=150, long=5000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_documents_are_what_stands_between_line_ends(tmp_path: Path, data: str) -> None:
    # Zeros at the very beginning would be taken for UTF-16.
    data = data and f"abcd{data}"
    path = written(tmp_path, "a.txt", data.encode())
    sizes: dict[str, Any] = {"part_bytes": 30, "row_group_bytes": 10}
    lines = [line.removesuffix("\r") for line in data.split("\n")]
    assert [row["text"] for row in read(path, document="line", **sizes).rows] == [line for line in lines if line]
    # Written another way than the code: paragraphs are what is left between lines of nothing but space.
    split = re.split(r"(?:^|(?<=\n))[ \t\r]*(?:\n|$)", data)
    paragraphs = [part.removesuffix("\n").removesuffix("\r") for part in split if part]
    assert [row["text"] for row in read(path, document="paragraph", **sizes).rows] == paragraphs
    assert [row["text"] for row in read(path, document="file", **sizes).rows] == ([data] if data else [])


def test_what_is_no_document_is_counted(tmp_path: Path) -> None:
    paths = [written(tmp_path, "a.txt", b"\xef\xbb\xbfx\n\n\r\n \ny"), written(tmp_path, "b.txt", b"")]
    lines = read(paths)
    assert [row["text"] for row in lines.rows] == ["x", " ", "y"]
    assert lines.facts["passed"] == {"byte_order_marks": 1, "empty_lines": 2}
    files = read(paths, document="file")
    assert [row["text"] for row in files.rows] == ["x\n\n\r\n \ny"]
    assert files.facts["passed"] == {"byte_order_marks": 1, "empty_files": 1}


@pytest.mark.parametrize(
    ("document", "bad_line", "data", "left"),
    [
        ("line", 2, b"\xffb", ["a", "c", "d"]),
        ("paragraph", 1, b"a\n\xffb", ["c\nd"]),
        ("file", 1, b"a\n\xffb\n\nc\nd\n", ["other"]),
    ],
)
def test_a_document_that_is_not_utf_8_is_for_the_policy(
    tmp_path: Path, document: str, bad_line: int, data: bytes, left: list[str]
) -> None:
    paths = [written(tmp_path, "a.txt", b"a\n\xffb\n\nc\nd\n"), written(tmp_path, "b.txt", b"other")]
    with pytest.raises(InputError, match=rf"a\.txt line {bad_line}: expected UTF-8, found bytes that are not at byte"):
        read(paths, document=document)
    found = read(paths, document=document, on_bad_line="quarantine")
    assert [row["text"] for row in found.rows] == [*left, *(["other"] if document != "file" else [])]
    assert [(line.line, line.data) for line in found.bad] == [(bad_line, data)]
    assert found.facts["bad_lines"] == {"encoding": 1}


@pytest.mark.parametrize(
    ("document", "hint"), [("paragraph", "set `document` to `line`"), ("file", "to `line` or `paragraph`")]
)
def test_a_document_longer_than_the_limit_is_an_error_under_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, hint: str
) -> None:
    monkeypatch.setattr(text, "MAX_VALUE_BYTES", 1500)
    path = written(tmp_path, "a.txt", b"line\n" * 1000)
    with pytest.raises(InputError, match=f"at most 1,500 bytes.*{hint}"):
        read(path, document=document, on_bad_line="skip")


def test_a_value_of_more_than_256_mib_is_refused_before_it_takes_a_multiple_of_that(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(InputError, match="expected at most 268,435,456 bytes for one document"):
        read(str(path), document="file")
