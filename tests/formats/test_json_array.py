"""Arrays of JSON, element by element: the same rows as lines, and no trust in what follows a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import InputError, SchemaError
from mixer.formats import json_array
from tests.formats.making import json_lines, read, written
from tests.profiles import sized

_ROWS = st.lists(
    st.fixed_dictionaries(
        {"t": st.text(max_size=9)}, optional={"n": st.integers(0, 9), "l": st.lists(st.floats(0, 1), max_size=3)}
    ),
    min_size=1,
    max_size=12,
)


_LAYOUT = st.tuples(st.sampled_from([None, 0, 2, "\t"]), st.booleans(), st.sampled_from(["\n", "\r\n"]))


@given(rows=_ROWS, layout=_LAYOUT, window=st.integers(1, 40))
@settings(max_examples=sized(short=60, long=1000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_gives_the_rows_that_its_lines_would_whatever_window_they_are_found_in(
    tmp_path: Path, rows: list[dict[str, Any]], layout: tuple[int | str | None, bool, str], window: int
) -> None:
    indent, is_ascii, end = layout
    text = json.dumps(rows, indent=indent, ensure_ascii=is_ascii)
    data = text.replace("\n", end).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_WINDOW_BYTES", window)
        found = read(written(tmp_path, "a.json", data), part_bytes=90, row_group_bytes=30)
    expected = read(written(tmp_path, "a.jsonl", json_lines(rows)), part_bytes=90, row_group_bytes=30)
    assert (found.rows, found.schema) == (expected.rows, expected.schema)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an array of objects, found nothing"),
        (b" \n", "expected an array of objects, found nothing"),
        (b'{"a":1}', "found an object; if this is an object in each line, set `format: jsonl`"),
        (b"7", "expected an array of objects, found '7'"),
        (b'[{"a":1},{"a":2}', "element 3, after byte 16: expected ']' at the end, found none: the file is cut short"),
        (b'[{"a":1},', "element 2, after byte 8: expected ']' at the end"),
        (b'[{"a":1},{"a":', "element 2, after byte 8: .*cut short"),
        (b'[{"a":1},{"a":"x', "element 2, after byte 8: .*cut short"),
        (b'[{"a":1}{"a":2}]', "element 2, after byte 8: expected ',' or ']', found '{'"),
        (b'[{"a":1},]', "expected an element after ',', found ']'"),
        (b'[,{"a":1}]', "element 1, after byte 1: expected JSON"),
        (b'[{"a":1}] x', "element 2, after byte 9: expected nothing after the array, found more"),
        (b'[{"a":1}][{"a":2}]', "expected nothing after the array"),
        (
            b'[{"a":1},{a:2},' + b'{"a":3},' * 50 + b'{"a":4}]',
            "element 2, after byte 8: expected JSON, .*Expecting property name",
        ),
        (b"[" + b"[" * 100_000 + b"]" * 100_001, "expected JSON of few levels, found very many"),
    ],
)
@pytest.mark.parametrize("on_bad_line", ["error", "skip"])
def test_an_array_that_is_broken_is_an_error_under_every_policy(
    tmp_path: Path, data: bytes, message: str, on_bad_line: str
) -> None:
    with pytest.raises(InputError, match=r"a\.json[:,] .*" + message):
        read(written(tmp_path, "a.json", data), on_bad_line=on_bad_line)


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        (b'{"a":"x","a":"y"}', "duplicate_key"),
        (b'{"f":NaN}', "not_a_number"),
        (b'{"n":18446744073709551616}', "integer"),
        (b'{"a":"\\ud83d"}', "surrogate"),
        (b'{"a":"\xff"}', "encoding"),
        (b"5", "not_an_object"),
        (b"null", "not_an_object"),
        (b"[]", "not_an_object"),
        (b'"x]"', "not_an_object"),
    ],
)
def test_an_element_that_is_no_row_is_for_the_policy(tmp_path: Path, element: bytes, kind: str) -> None:
    path = written(tmp_path, "a.json", b'[\n {"a":"first"},\n ' + element + b',\n {"a":"last"}\n]\n')
    with pytest.raises(InputError, match=r"a\.json element 2: expected .*found"):
        read(path)
    found = read(path, on_bad_line="quarantine")
    assert found.rows == [{"a": "first"}, {"a": "last"}]
    assert found.facts["bad_lines"] == {kind: 1}
    assert [(line.line, line.data) for line in found.bad] == [(2, element)]


def test_values_of_two_kinds_are_told_by_the_numbers_of_their_elements(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", b'[{"a":1},{"a":2},{"a":"x"}]')
    with pytest.raises(SchemaError, match=r"an integer in .*a\.json element 1 and a text in .*a\.json element 3"):
        read(path)


def test_a_byte_order_mark_is_no_part_of_the_array_and_one_may_go_on_behind_it(tmp_path: Path) -> None:
    rows = [{"a": "é" * n} for n in range(100)]
    found = read(written(tmp_path, "a.json", b"\xef\xbb\xbf" + json.dumps(rows, ensure_ascii=False).encode()))
    assert found.rows == rows
    assert found.facts["passed"] == {"byte_order_marks": 1}


def test_an_array_without_elements_gives_no_rows(tmp_path: Path) -> None:
    paths = [written(tmp_path, "a.json", b" [ ] "), written(tmp_path, "b.json", b'[{"a":1}]')]
    assert read(paths).rows == [{"a": 1}]


def test_an_element_longer_than_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "MAX_VALUE_BYTES", 1 << 20)
    path = written(tmp_path, "a.json", b'[{"a":"' + b"x" * (4 << 20) + b'"}]')
    with pytest.raises(InputError, match="element 1, after byte 1: expected at most 1,048,576 bytes"):
        read(path, on_bad_line="skip")
