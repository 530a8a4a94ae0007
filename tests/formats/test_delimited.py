"""CSV and TSV: every field is the text that stands there, both ways to read one agree, and ragged records are bad."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mixer.errors import InputError, SchemaError
from mixer.formats import delimited
from mixer.formats.base import Policy, Position
from mixer.formats.delimited import Delimited
from mixer.formats.lines import Block, LineBlocks
from mixer.formats.options import RowsOptions
from mixer.storage.inputs import find_inputs
from tests.formats.making import read, written
from tests.profiles import sized

_FIELD = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(list(',"\t\r\n ')), max_size=6)
_FUNCTION_SCOPED = [HealthCheck.function_scoped_fixture]


@given(
    rows=st.lists(st.tuples(_FIELD, _FIELD), max_size=20),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    name=st.sampled_from(["csv", "tsv"]),
)
@settings(max_examples=sized(short=80, long=2000), suppress_health_check=_FUNCTION_SCOPED)
def test_every_field_that_python_writes_comes_back(
    tmp_path: Path, rows: list[tuple[str, str]], end: str, quoting: int, name: str
) -> None:
    # Python leaves a carriage return without quotes, unless it is one of the line's end.
    assume(end == "\r\n" or quoting == csv.QUOTE_ALL or not any("\r" in field for row in rows for field in row))
    out = io.StringIO()
    writer = csv.writer(out, "excel" if name == "csv" else "excel-tab", lineterminator=end, quoting=quoting)  # type: ignore[arg-type]  # constants
    writer.writerows([("a", "b"), *rows])
    found = read(written(tmp_path, f"a.{name}", out.getvalue().encode()), part_bytes=60, row_group_bytes=20)
    assert found.rows == [{"a": a, "b": b} for a, b in rows]
    assert found.facts["passed"] == {}


_PIECES = st.lists(
    st.sampled_from(
        [
            b"a",
            b",",
            b"\n",
            b"\r\n",
            b"\r",
            b" ",
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
            "é".encode(),
            b"\t",
            b"7",
            b"'",
            b"\\",
        ]
    ),
    max_size=30,
)


@given(pieces=_PIECES)
@settings(max_examples=sized(short=300, long=20_000), suppress_health_check=_FUNCTION_SCOPED)
def test_the_fast_way_gives_what_the_slow_way_gives_or_leaves_it_alone(tmp_path: Path, pieces: list[bytes]) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n" + b"".join(pieces))
    (file,) = find_inputs(str(tmp_path / "a.csv"), (".csv",)).files
    schema = pa.schema({"a": pa.string(), "b": pa.string()})
    policy = Policy("d", RowsOptions("csv", "skip"))
    with Delimited("d", RowsOptions("csv", "skip")).begin(file, schema, Position()) as reading:
        assert isinstance(reading, delimited._Reading)
        reading.policy = policy
        data = b"".join(pieces)
        if not data:
            return
        block = Block(data, 4, 2, data.count(b"\n") + (not data.endswith(b"\n")))
        fast = reading._fast(block)
        if fast is not None:
            assert reading.slow(block)[1].to_pylist() == fast.to_pylist()
            assert policy.counts == {}


BAD: dict[str, tuple[bytes, str]] = {
    "too few fields": (b"1\n", "ragged"),
    "too many fields": (b"1,2,3\n", "ragged"),
    "a space that is a field": (b" \n", "ragged"),
    "something after a quote": (b'"1"x,2\n', "broken"),
    "a carriage return in a field": (b"1\r1,2\n", "broken"),
    "invalid UTF-8": (b"\xff,2\n", "encoding"),
    "invalid UTF-8 in quotes": (b'"\xff\n",2\n', "encoding"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_record_is_an_error_that_names_it_or_is_counted_or_put_aside(tmp_path: Path, case: str) -> None:
    record, kind = BAD[case]
    path = written(tmp_path, "a.csv", b'a,b\n"x\ny",1\n' + record + b"z,2\n")
    with pytest.raises(InputError, match=r"dataset 'd': .*a\.csv line 4: expected .*found"):
        read(path)
    found = read(path, on_bad_line="quarantine")
    assert found.rows == [{"a": "x\ny", "b": "1"}, {"a": "z", "b": "2"}]
    assert found.facts == {"rows": 2, "bad_lines": {kind: 1}, "passed": {}}
    assert [(line.line, line.data) for line in found.bad] == [(4, record)]
    assert read(path, on_bad_line="skip").bad == []


def test_nothing_is_guessed_from_what_a_field_looks_like(tmp_path: Path) -> None:
    fields = [
        "007",
        "1e3",
        "NaN",
        "null",
        "",
        "NA",
        "true",
        "2024-01-01",
        " x ",
        "1.10",
        "'q'",
        "a\\nb",
        'say "hi" twice',
    ]
    data = "a,b\n" + "".join(f"{field},{number}\n" for number, field in enumerate(fields))
    found = read(written(tmp_path, "a.csv", data.encode()))
    assert [row["a"] for row in found.rows] == fields
    assert set(found.schema.types) == {pa.string()}


@pytest.mark.parametrize(
    ("data", "passed"),
    [
        (b"a,b\n\n1,2\n\r\n", {"empty_lines": 2}),
        (b"\xef\xbb\xbfa,b\n1,2", {"byte_order_marks": 1}),
        (b'"a","b"\r\n"1",2\r\n', {}),
        (b'a,b\n1,"2"', {}),
    ],
)
def test_what_is_passed_over_is_counted(tmp_path: Path, data: bytes, passed: dict[str, int]) -> None:
    found = read(written(tmp_path, "a.csv", data))
    assert found.rows == [{"a": "1", "b": "2"}]
    assert found.facts["passed"] == passed


def test_a_byte_order_mark_in_the_middle_is_a_character(tmp_path: Path) -> None:
    found = read(written(tmp_path, "a.csv", b"a,b\n\xef\xbb\xbf1,2\n"))
    assert found.rows == [{"a": "\ufeff1", "b": "2"}]
    assert found.facts["passed"] == {}


def test_a_quote_that_is_never_closed_takes_the_rest_of_the_file_with_it_and_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", b'a,b\n1,2\n3,"4\n5,6\n')
    with pytest.raises(
        InputError, match="line 3: expected a record of CSV, found something else: unexpected end of data"
    ):
        read(path)
    found = read(path, on_bad_line="quarantine")
    assert found.rows == [{"a": "1", "b": "2"}]
    assert [(line.line, line.data) for line in found.bad] == [(3, b'3,"4\n5,6\n')]
    assert found.facts["bad_lines"] == {"truncated": 1}


def test_a_record_longer_than_the_limit_is_an_error_under_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_VALUE_BYTES", 1000)
    path = written(tmp_path, "a.csv", b'a,b\n1,"' + b"x\n" * 900)
    with pytest.raises(InputError, match=r"a\.csv.*longer than 1,000 bytes; is a quote never closed"):
        read(path, on_bad_line="skip")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", InputError, "expected a header with the columns' names, found an empty file"),
        (b"a,b,a\n", SchemaError, "found several times 'a'"),
        (b"a,\n1,2\n", SchemaError, "found an empty name"),
        (b"\na,b\n", SchemaError, "found an empty name"),
        (b"a,\xff\n", InputError, "the header cannot be read: expected UTF-8"),
        (b'a,"b\n', InputError, "the header cannot be read: .*unexpected end of data"),
        (b"a,b\r1,2\r", InputError, "the header cannot be read: .*carriage return outside of quotes .*mend it"),
    ],
)
def test_a_header_must_name_every_column(tmp_path: Path, data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(written(tmp_path, "a.csv", data))


def test_a_header_of_very_many_names_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", ",".join(f"c{number}" for number in range(300_000)).encode() + b"\n")
    with pytest.raises(SchemaError, match="expected a header of at most 10000 names, found 300000; is this a header"):
        read(path)


def test_files_may_have_their_columns_in_any_order_but_the_same_ones(tmp_path: Path) -> None:
    first, second = written(tmp_path, "1.csv", b"a,b\n1,2\n"), written(tmp_path, "2.csv", b'b,"a"\n"4",3\n6,5\n')
    assert read([first, second]).rows == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}, {"a": "5", "b": "6"}]
    third = written(tmp_path, "3.csv", b"a,c\n")
    with pytest.raises(
        SchemaError, match=r"expected the columns of .*1\.csv in .*3\.csv, found others: 'b', 'c' are in one"
    ):
        read([first, third])


def test_a_header_over_several_lines_and_rows_over_row_groups_are_read(tmp_path: Path) -> None:
    rows = [{"a\nb": "x\n" * (n % 40), "c": str(n)} for n in range(200)]
    out = io.StringIO()
    writer = csv.DictWriter(out, ["a\nb", "c"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    assert read(written(tmp_path, "a.csv", out.getvalue().encode()), row_group_bytes=50).rows == rows


@pytest.mark.parametrize("line", [b"x\n", b'x""y\n'], ids=["without quotes", "with quotes"])
def test_a_quote_that_is_never_closed_is_read_on_in_large_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    taken: list[int] = []
    take = LineBlocks.take

    def counting(blocks: LineBlocks, most_bytes: int, most_lines: int) -> Block | None:
        block = take(blocks, most_bytes, most_lines)
        taken.append(block.lines if block is not None else 0)
        return block

    monkeypatch.setattr(LineBlocks, "take", counting)
    path = written(tmp_path, "a.csv", b'a,b\n1,2\n3,"' + line * 100_000)
    found = read(path, on_bad_line="quarantine")
    assert found.rows == [{"a": "1", "b": "2"}]
    assert [(bad.line, len(bad.data)) for bad in found.bad] == [(3, 3 + 100_000 * len(line))]
    assert len(taken) < 100


@given(
    records=st.lists(
        st.tuples(
            st.sampled_from("ab\n"), st.lists(st.sampled_from(['"', "x\n", "\n", "é", ",", "y" * 30]), max_size=200)
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(suppress_health_check=_FUNCTION_SCOPED, deadline=None, max_examples=sized(short=30, long=1000))
def test_what_comes_after_a_very_long_record_is_read_from_where_it_ended(
    tmp_path: Path, records: list[tuple[str, list[str]]]
) -> None:
    out = io.StringIO()
    rows = [(first, "".join(pieces)) for first, pieces in records]
    csv.writer(out, lineterminator="\n").writerows([("a", "b"), *rows])
    lines = out.getvalue().count("\n") + 1
    found = read(written(tmp_path, "a.csv", out.getvalue().encode() + b"only one\n"), on_bad_line="quarantine")
    assert [(row["a"], row["b"]) for row in found.rows] == rows
    assert [(bad.line, bad.data) for bad in found.bad] == [(lines, b"only one\n")]
