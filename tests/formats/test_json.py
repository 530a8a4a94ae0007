"""What is JSON, line by line: what is taken, what is bad and why, and what can be no column; never another value."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import ChangedError, InputError, SchemaError
from mixer.formats import json_types, lines
from mixer.formats.base import Policy
from mixer.formats.json_fast import fast_table
from mixer.formats.json_types import Learner
from mixer.formats.jsonl import RowMaker
from mixer.formats.lines import Block
from mixer.formats.options import MAX_DEPTH, RowsOptions
from mixer.storage.inputs import InputFile
from tests.formats.making import json_lines, read, written
from tests.profiles import sized

GOOD = b'{"a":"first"}\n'
BAD: dict[str, tuple[bytes, str]] = {
    "invalid UTF-8": (b'{"a":"\xff"}', "encoding"),
    "UTF-8 of half a character": (b'{"a":"\xed\xa0\x80"}', "encoding"),
    "Latin-1": ('{"a":"é"}'.encode("latin-1"), "encoding"),
    "a byte order mark in the middle": (b'\xef\xbb\xbf{"a":"x"}', "encoding"),
    "half of a line": (b'{"a":"x', "broken"),
    "no quotes": (b"{a:1}", "broken"),
    "single quotes": (b"{'a':'x'}", "broken"),
    "a trailing comma": (b'{"a":"x",}', "broken"),
    "a comma between lines": (b'{"a":"x"},', "trailing"),
    "a comment": (b'{"a":"x"} // no', "trailing"),
    "two objects": (b'{"a":"x"} {"a":"y"}', "trailing"),
    "two objects side by side": (b'{"a":"x"}{"a":"y"}', "trailing"),
    "one brace too many": (b'{"a":"x"}}', "trailing"),
    "a raw tab in a text": (b'{"a":"x\ty"}', "broken"),
    "a NUL": (b'{"a":"x\0"}', "broken"),
    "NULs after it": (b'{"a":"x"}\0\0', "trailing"),
    "an unknown escape": (b'{"a":"\\x41"}', "broken"),
    "a leading zero": (b'{"n":007}', "broken"),
    "a plus": (b'{"n":+1}', "broken"),
    "hexadecimal": (b'{"n":0x10}', "broken"),
    "a number without fraction": (b'{"n":1.}', "broken"),
    "a key twice": (b'{"a":"x","a":"y"}', "duplicate_key"),
    "a key twice, once escaped": (b'{"a":"x","\\u0061":"y"}', "duplicate_key"),
    "a key twice, with equal values": (b'{"a":"x","a":"x"}', "duplicate_key"),
    "a key twice, below": (b'{"o":[{"b":1,"b":2}]}', "duplicate_key"),
    "NaN": (b'{"f":NaN}', "not_a_number"),
    "Infinity": (b'{"f":Infinity}', "not_a_number"),
    "-Infinity": (b'{"f":-Infinity}', "not_a_number"),
    "an integer beyond 64 bits": (b'{"n":18446744073709551616}', "integer"),
    "a negative integer beyond 64 bits": (b'{"n":-9223372036854775809}', "integer"),
    "an integer of 5000 digits": (b'{"n":%s}' % (b"1" * 5000), "integer"),
    "a float beyond doubles": (b'{"f":1e999}', "number"),
    "a lone first half": (b'{"a":"\\ud83d"}', "surrogate"),
    "a lone second half": (b'{"a":"\\ude00"}', "surrogate"),
    "halves the wrong way round": (b'{"a":"\\ude00\\ud83d"}', "surrogate"),
    "a lone half in a key": (b'{"\\ud83d":1}', "surrogate"),
    "a list": (b"[1]", "not_an_object"),
    "a text": (b'"x"', "not_an_object"),
    "null": (b"null", "not_an_object"),
    "lists too deep": (b'{"a":' + b"[" * (MAX_DEPTH // 2) + b"]" * (MAX_DEPTH // 2) + b"}", "depth"),
    "objects too deep": (b'{"a":' * MAX_DEPTH + b"{}" + b"}" * MAX_DEPTH, "depth"),
    "lists and objects too deep": (b'{"a":[' * 20 + b'{"a":1}' + b"]}" * 20, "depth"),
    "very deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "depth"),
    "deeper than any stack": (b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}", "depth"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_an_error_that_names_it_or_is_counted_or_put_aside(tmp_path: Path, case: str) -> None:
    line, kind = BAD[case]
    path = written(tmp_path, "a.jsonl", GOOD + line + b"\n" + b'{"a":"last"}\n')
    with pytest.raises(InputError, match=r"dataset 'd': .*a\.jsonl line 2: expected .*found .*`on_bad_line`"):
        read(path)
    skipped = read(path, on_bad_line="skip")
    assert skipped.rows == [{"a": "first"}, {"a": "last"}]
    assert skipped.facts == {"rows": 2, "bad_lines": {kind: 1}, "passed": {}}
    assert skipped.bad == []
    put_aside = read(path, on_bad_line="quarantine")
    assert (put_aside.rows, put_aside.facts) == (skipped.rows, skipped.facts)
    ((found),) = put_aside.bad
    assert (found.file, found.line, found.data) == (path, 2, line)
    assert "found" in found.problem


TAKEN: dict[str, tuple[bytes, list[dict[str, Any]], dict[str, int]]] = {
    "a last line without newline": (b'{"a":1}\n{"a":2}', [{"a": 1}, {"a": 2}], {}),
    "CRLF": (b'{"a":1}\r\n{"a":2}\r\n', [{"a": 1}, {"a": 2}], {}),
    "CRLF and LF": (b'{"a":1}\r\n{"a":2}\n', [{"a": 1}, {"a": 2}], {}),
    "empty lines": (b'\n{"a":1}\n\n \t\r\n{"a":2}\n\n', [{"a": 1}, {"a": 2}], {"empty_lines": 4}),
    "space around": (b' {"a" : 1 } \n\t{"a":2}\n', [{"a": 1}, {"a": 2}], {}),
    "a byte order mark": (b'\xef\xbb\xbf{"a":1}\n', [{"a": 1}], {"byte_order_marks": 1}),
    "a key that is absent": (
        b'{"a":1}\n{"b":2}\n{}\n', [{"a": 1, "b": None}, {"a": None, "b": 2}, {"a": None, "b": None}], {},
    ),
    "a text like a time": (
        b'{"a":"2024-01-01"}\n{"a":"2024-01-01T00:00:00Z"}\n', [{"a": "2024-01-01"}, {"a": "2024-01-01T00:00:00Z"}], {},
    ),
    "a text like a number": (b'{"a":"007"}\n{"a":"1e3"}\n', [{"a": "007"}, {"a": "1e3"}], {}),
    "64-bit integers": (
        b'{"a":9223372036854775807}\n{"a":-9223372036854775808}\n', [{"a": 2**63 - 1}, {"a": -(2**63)}], {},
    ),
    "unsigned integers": (b'{"a":18446744073709551615}\n{"a":0}\n', [{"a": 2**64 - 1}, {"a": 0}], {}),
    "integers beyond 2**53": (b'{"a":9007199254740993}\n{"a":1}\n', [{"a": 2**53 + 1}, {"a": 1}], {}),
    "too many digits: the nearest double": (b'{"a":0.1000000000000000055511151231257827}\n', [{"a": 0.1}], {}),
    "a number too small: zero": (b'{"a":1e-400}\n', [{"a": 0.0}], {}),
    "an exponent makes a double": (b'{"a":1e2}\n', [{"a": 100.0}], {}),
    "integers among doubles": (
        b'{"a":1}\n{"a":2.5}\n{"a":-9007199254740992}\n', [{"a": 1.0}, {"a": 2.5}, {"a": -(2.0**53)}], {},
    ),
    "a whole character of two halves": (b'{"a":"\\ud83d\\ude00"}\n', [{"a": "\U0001f600"}], {}),
    "an escaped backslash": (b'{"a":"\\\\ud83d"}\n', [{"a": "\\ud83d"}], {}),
    "a NUL that is escaped": (b'{"a":"x\\u0000y"}\n', [{"a": "x\0y"}], {}),
    "line separators of Unicode": ('{"a":"x\u2028y\u0085"}\n'.encode(), [{"a": "x\u2028y\u0085"}], {}),
    "only null": (b'{"a":null,"b":1}\n', [{"a": None, "b": 1}], {}),
    "lists of nothing": (b'{"a":[]}\n{"a":[null]}\n', [{"a": []}, {"a": [None]}], {}),
    "objects of differing keys": (b'{"a":{"x":1}}\n{"a":{"y":[{}]}}\n{"a":{"y":[{"z":1}]}}\n{"a":null}\n', [
        {"a": {"x": 1, "y": None}}, {"a": {"x": None, "y": [{"z": None}]}},
        {"a": {"x": None, "y": [{"z": 1}]}}, {"a": None},
    ], {}),
    "an empty object among others": (b'{"a":{}}\n{"a":{"x":1}}\n', [{"a": {"x": None}}, {"a": {"x": 1}}], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_json_is_taken_as_it_is(tmp_path: Path, case: str) -> None:
    data, rows, passed = TAKEN[case]
    found = read(written(tmp_path, "a.jsonl", data))
    assert [repr(row) for row in found.rows] == [repr(row) for row in rows]
    assert found.facts == {"rows": len(rows), "bad_lines": {}, "passed": passed}


def test_a_column_without_any_value_has_the_null_type_so_that_the_mix_gives_it_that_of_others(tmp_path: Path) -> None:
    found = read(written(tmp_path, "a.jsonl", b'{"a":null,"b":[],"c":{"d":null}}\n'))
    assert found.schema.types[0] == pa.null()
    assert found.schema.types[1].value_type == pa.null()


REFUSED: dict[str, tuple[bytes, str]] = {
    "an integer and a text": (b'{"a":1}\n{"a":1}\n{"a":"x"}\n',
        r"column 'a': .*an integer in .* line 1 and a text in .* line 3"),
    "a number and true": (b'{"a":1.5}\n{"a":true}\n', r"a number in .* line 1 and true or false in .* line 2"),
    "a list of both": (b'{"a":[1,"x"]}\n', r"column 'a\[\]': .*an integer in .* line 1 and a text in .* line 1"),
    "an object and a list": (b'{"a":{"b":{}}}\n{"a":{"b":[]}}\n', r"column 'a.b': .*an object in .* line 1 and a list"),
    "only empty objects": (b'{"b":1}\n{"a":{}}\n', r"column 'a': .*only empty ones .*line 2"),
    "an empty key": (b'{"":1}\n', r"line 1: expected a key that can name a column, found ''"),
    "a NUL in a key": (b'{"x":{"a\\u0000":1}}\n', r"line 1: expected a key .* in 'x'"),
    "no row": (b"\n", "expected rows with columns, found none"),
    "rows of nothing": (b"{}\n{}\n", "expected rows with columns, found none"),
}  # fmt: skip


@pytest.mark.parametrize("on_bad_line", ["error", "skip", "quarantine"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_no_column_is_an_error_under_every_policy(tmp_path: Path, case: str, on_bad_line: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(SchemaError, match=message):
        read(written(tmp_path, "a.jsonl", data), on_bad_line=on_bad_line)


def test_values_of_two_kinds_are_told_by_the_files_that_hold_them(tmp_path: Path) -> None:
    paths = [
        written(tmp_path, "a.jsonl", b'{"a":1}\n' * 2000),
        written(tmp_path, "b.jsonl", b'{"a":2}\n' * 9 + b'{"a":[]}\n'),
    ]
    with pytest.raises(SchemaError, match=r"an integer in .*a\.jsonl line 1 and a list in .*b\.jsonl line 10"):
        read(paths)


@pytest.mark.parametrize(
    ("objects", "lists"), [(MAX_DEPTH, 0), (MAX_DEPTH - 1, 0), (2, MAX_DEPTH // 2 - 1), (1, MAX_DEPTH // 2 - 1)]
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_the_deepest_rows_that_are_taken_can_be_read_from_parquet_again(
    tmp_path: Path, objects: int, lists: int, name: str
) -> None:
    row = b'{"a":' * objects + b"[" * lists + b'"x"' + b"]" * lists + b"}" * objects
    # The first row is learnt from, the others go the fast way.
    data = b"\n".join([row] * 9) if name == "a.jsonl" else b"[" + b",".join([row] * 9) + b"]"
    found = read(written(tmp_path, name, data))
    assert found.rows == [json.loads(row)] * 9
    pq.write_table(pa.Table.from_pylist(found.rows, found.schema), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert pa.RecordBatchReader.from_stream(table.to_reader()).read_all().to_pylist() == found.rows


def test_a_last_line_that_is_cut_short_is_called_so(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", b'{"a":1}\n{"a":2')
    with pytest.raises(InputError, match="line 2: the last line of the file is cut short"):
        read(path)
    assert read(path, on_bad_line="skip").facts["bad_lines"] == {"truncated": 1}


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        (b'{"a":9007199254740993}\n{"a":0.5}\n', "inexact", "line 1: column 'a': other values have fractions"),
        (b'{"a":-1}\n{"a":18446744073709551615}\n', "integer", "line 1: column 'a': expected an integer of 0 to"),
    ],
)
def test_an_integer_that_the_column_cannot_hold_is_a_bad_line(
    tmp_path: Path, rows: bytes, kind: str, message: str
) -> None:
    path = written(tmp_path, "a.jsonl", rows)
    with pytest.raises(InputError, match=message):
        read(path)
    found = read(path, on_bad_line="skip")
    assert len(found.rows) == 1
    assert found.facts["bad_lines"] == {kind: 1}


@pytest.mark.parametrize(
    "data",
    [
        '{"a":1}\n'.encode("utf-16"),
        '{"a":1}\n'.encode("utf-16-le"),
        '{"a":1}\n'.encode("utf-16-be"),
        '{"a":1}\n'.encode("utf-32"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.txt"])
def test_utf_16_is_an_error_under_every_policy_that_says_how_to_convert_it(
    tmp_path: Path, name: str, data: bytes
) -> None:
    with pytest.raises(InputError, match=r"expected UTF-8, found UTF-(16|32).*iconv"):
        read(written(tmp_path, name, data), on_bad_line="skip")


def test_a_line_longer_than_the_limit_is_an_error_under_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_VALUE_BYTES", 1 << 20)
    path = written(tmp_path, "a.jsonl", b'{"a":"y"}\n' + b'{"a":"' + b"x" * (3 << 20) + b'"}\n')
    with pytest.raises(InputError, match=r"line 2: expected at most 1,048,576 bytes, found more without a newline"):
        read(path, on_bad_line="skip")


def test_a_line_longer_than_a_row_group_and_a_part_is_a_row(tmp_path: Path) -> None:
    rows = [{"a": "x" * 200_000}, {"a": "y"}]
    assert read(written(tmp_path, "a.jsonl", json_lines(rows))).rows == rows


def test_keys_that_are_data_are_refused_before_they_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_types, "MAX_FIELDS", 50)
    path = written(tmp_path, "a.jsonl", json_lines([{"users": {f"id{n}": 1}} for n in range(60)]))
    with pytest.raises(SchemaError, match="line 50: expected at most 50 different keys"):
        read(path)


def test_a_key_that_comes_twice_is_found_among_very_many(tmp_path: Path) -> None:
    # By looking through all keys for each of them this takes minutes.
    keys = ",".join(f'"k{number}":1' for number in range(150_000))
    path = written(tmp_path, "a.jsonl", GOOD + b'{%s,"k149999":1}\n' % keys.encode())
    with pytest.raises(InputError, match="line 2: expected each key once, found 'k149999' several times"):
        read(path)


# Both ways to read a block give the same rows, whatever is done to it.

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "t": st.none() | st.text(max_size=8),
    "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**64 - 1),
    "f": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    "b": st.none() | st.booleans(),
    "l": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
    "o": st.none()
    | st.fixed_dictionaries({}, optional={"t": st.text(max_size=3), "f": st.floats(0, 1), "o": st.just({})}),
}
_ROW = st.fixed_dictionaries({}, optional=_KINDS)
_DAMAGE = st.sampled_from([
    b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"\r\n", b"\r", b" ", b"\t", b"\0", b"\xff",
    b"\xef\xbb\xbf", b"}\n{", b"} {", b"}{", b"NaN", b"Infinity", b"-Infinity", b"Inf", b"-0", b"-0.0",
    b"9007199254740993", b"18446744073709551616", b"1e999",
    b"e308", b"1" * 320, b"1" * 320 + b".5", b"\\ud83d", b"\\ude00",
    b"\\ud83d\\ude00", b"\\\\ud83d\\ude00", b"\\u0000", b'"t":"again",', b"null", b"true", b"1.0", b"01",
    b"\xed\xa0\x80", b"//",
])  # fmt: skip


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"a":"1"} {"a":"2"}\n{"a":\n"3"}\n', pa.string()),
        (b'{"a":"1"}{"a":"2"}\n\n', pa.string()),
        (b'\xef\xbb\xbf{"a":"1"}\n', pa.string()),
        (b'{"a":"\xff"}\n', pa.string()),
        (b'{"a":9007199254740993}\n', pa.float64()),
        (b'{"a":-0}\n', pa.float64()),
        (b'{"a":NaN}\n', pa.float64()),
        (b'{"a":17976931347313718e+308}\n', pa.float64()),
        (b'{"a":[null,null]}\n', pa.list_(pa.field("element", pa.null()))),
    ],
)
def test_what_pyarrow_takes_in_another_way_is_left_to_the_slow_way(data: bytes, kind: pa.DataType) -> None:
    assert fast_table(data, data.count(b"\n"), pa.schema({"a": kind})) is None


@pytest.mark.parametrize("row", [b'{"a":"\xc3\xa9"}', b'{"a":null}\r', b'{"a":"NaN","f":0.12345678901234567}', b"{}"])
def test_what_is_in_no_doubt_goes_the_fast_way(row: bytes) -> None:
    for data in (row + b"\n", row + b"\n" + row + b"\n", row + b"\n" + row.strip()):
        schema = pa.schema({"a": pa.string(), "f": pa.float64()})
        assert fast_table(data, data.count(b"\n") + (not data.endswith(b"\n")), schema) is not None


def slow(data: bytes, schema: pa.Schema) -> tuple[list[str], Counter[str]] | None:
    policy = Policy("d", RowsOptions("jsonl", "skip"))
    try:
        table = RowMaker(policy, InputFile("/a", 0, "")).slow_table(Block(data, 0, 1, 0), schema)
    except ChangedError:
        return None
    return [repr(row) for row in table.to_pylist()], policy.counts


@given(
    rows=st.lists(_ROW, min_size=1, max_size=6),
    is_ascii=st.booleans(),
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), _DAMAGE), max_size=3),
)
@settings(max_examples=sized(short=400, long=6000))
def test_the_fast_way_gives_what_the_slow_way_gives_or_leaves_it_alone(
    rows: list[dict[str, Any]], is_ascii: bool, damage: list[tuple[int, int, bytes]]
) -> None:
    learner = Learner("d")
    for number, row in enumerate(rows, start=1):
        learner.learn(json.loads(json.dumps(row)), ("a", number))
    data = json_lines(rows, ascii_only=is_ascii)
    for place, dropped, added in damage:
        begin = place % (len(data) + 1)
        data = data[:begin] + added + data[begin + dropped :]
    if not data:
        return
    lines_of_it = data.count(b"\n") + (not data.endswith(b"\n"))
    fast = fast_table(data, lines_of_it, learner.schema())
    if fast is not None:
        assert slow(data, learner.schema()) == ([repr(row) for row in fast.to_pylist()], Counter())


@given(
    value=st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.recursive(
            _LEAVES,
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)
            ),
        ),
    )
)
@settings(max_examples=sized(short=150, long=2000), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_object_comes_back_as_it_was_or_is_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    path = written(tmp_path, "a.jsonl", json_lines([value]))
    try:
        (row,) = read(path).rows
    except (SchemaError, InputError):
        return
    assert equal(row, value)


def equal(found: Any, value: Any) -> bool:
    """Say whether a value came back: null for what is absent, and a whole number as a double if that is exact."""
    if isinstance(found, dict) and isinstance(value, dict):
        return value.keys() <= found.keys() and all(equal(found[key], value.get(key)) for key in found)
    if isinstance(found, list) and isinstance(value, list):
        return len(found) == len(value) and all(map(equal, found, value))
    if isinstance(found, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return found == value and (isinstance(value, int) or math.copysign(1, found) == math.copysign(1, value))
    return type(found) is type(value) and bool(found == value)


@pytest.mark.parametrize("on_bad_line", ["skip", "quarantine"])
@pytest.mark.parametrize(
    ("name", "data", "unit"), [("a.jsonl", b"1\n{]\n[]\n", "lines"), ("a.json", b"[1, NaN, []]", "elements")]
)
def test_files_of_bad_lines_alone_are_not_called_empty(
    tmp_path: Path, name: str, data: bytes, unit: str, on_bad_line: str
) -> None:
    with pytest.raises(SchemaError, match=rf"found none; 3 bad {unit} were passed over \(.*not_an_object 2"):
        read(written(tmp_path, name, data), on_bad_line=on_bad_line)
    with pytest.raises(SchemaError, match="found none; is it empty"):
        read(written(tmp_path, "empty.jsonl", b"\n\n"), on_bad_line=on_bad_line)
