"""Casts: every pair that is allowed works, and nothing comes out as another value."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.errors import SchemaError
from mixer.schemas.casting import cast_column, never, plain

US, ROME, UTC = pa.timestamp("us"), pa.timestamp("us", "Europe/Rome"), pa.timestamp("us", "UTC")
NOON = dt.datetime(2024, 1, 1, 12)  # noqa: DTZ001 - unzoned on purpose
NOON_UTC = NOON.replace(tzinfo=dt.UTC)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
NUMBERS = [*INTEGERS, *FLOATS]
DECIMALS = [pa.decimal32(5, 1), pa.decimal64(12, 4), pa.decimal128(20, 3), pa.decimal256(50, 2)]
OUT_DECIMALS = [pa.decimal128(1, 0), pa.decimal128(38, 10)]
UNZONED = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
ZONED = [pa.timestamp("s", "UTC"), pa.timestamp("ns", "+02:00"), ROME]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
DURATIONS = [pa.duration("s"), pa.duration("ns")]

PAIRS: list[tuple[list[pa.DataType], Any, list[pa.DataType], Any]] = [
    ([pa.bool_()], True, [pa.bool_()], True),
    ([pa.bool_()], True, NUMBERS, 1),
    ([pa.bool_()], True, [pa.string()], "true"),
    (NUMBERS, 1, NUMBERS, 1),
    (NUMBERS, 1, [pa.bool_()], True),
    (NUMBERS, 1, OUT_DECIMALS, 1),
    (INTEGERS, 5, [pa.string()], "5"),
    (FLOATS, 0.5, [pa.string()], "0.5"),
    (INTEGERS, 5, UNZONED[:1], dt.datetime(1970, 1, 1, 0, 0, 5)),  # noqa: DTZ001 - unzoned
    (INTEGERS, 5, ZONED[:1], dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)),
    (INTEGERS, 5, DURATIONS[:1], dt.timedelta(seconds=5)),
    (DECIMALS, Decimal(2), OUT_DECIMALS, 2),
    (DECIMALS, Decimal(2), NUMBERS, 2),
    ([pa.decimal128(5, 2)], Decimal("1.20"), [pa.string()], "1.20"),
    ([pa.string()], "1", [pa.bool_()], True),
    ([pa.string()], "1", NUMBERS, 1),
    ([pa.string()], "1", OUT_DECIMALS, 1),
    ([pa.string()], "é", [pa.binary()], "é".encode()),
    ([pa.string()], "2024-01-01", [pa.date32()], NOON.date()),
    ([pa.string()], "2024-01-01 12:00:00", UNZONED, NOON),
    ([pa.string()], "2024-01-01T14:00:00+02:00", ZONED, NOON_UTC),
    ([pa.binary()], "é".encode(), [pa.string()], "é"),
    ([pa.date32()], NOON.date(), [pa.string()], "2024-01-01"),
    ([pa.date32()], NOON.date(), UNZONED, NOON.replace(hour=0)),
    ([pa.date32()], NOON.date(), [UTC], NOON_UTC.replace(hour=0)),
    (TIMES, NOON.time(), TIMES, NOON.time()),
    (TIMES[:1], NOON.time(), [pa.string()], "12:00:00"),
    (DURATIONS, dt.timedelta(seconds=5), DURATIONS, dt.timedelta(seconds=5)),
    (ZONED, NOON_UTC, ZONED, NOON_UTC),
    (ZONED[:1], NOON_UTC, UNZONED, NOON),
    (ZONED[:1], NOON_UTC, [pa.string()], "2024-01-01 12:00:00Z"),
    (UNZONED, NOON, UNZONED, NOON),
    (UNZONED, NOON, [UTC], NOON_UTC),
    (UNZONED[:1], NOON, [pa.string()], "2024-01-01 12:00:00"),
    (UNZONED, NOON.replace(hour=0), [pa.date32()], NOON.date()),
    ([pa.null()], None, [pa.int8(), pa.list_(pa.int8()), pa.struct({"a": UTC})], None),
    ([pa.list_(pa.string())], ["1", None], [pa.list_(pa.field("element", pa.int8()))], [1, None]),
    ([pa.struct({"a": pa.string(), "b": pa.int8()})], {"a": "1", "b": 2},
     [pa.struct({"b": pa.string(), "a": pa.int8()})], {"b": "2", "a": 1}),
]  # fmt: skip


def scalar(value: Any, kind: pa.DataType) -> Any:
    """Return `value` as Arrow takes it for `kind`."""
    if pa.types.is_float16(kind):
        return struct.unpack("e", struct.pack("e", value))[0]
    return value


def cast(values: list[Any], stored: pa.DataType, target: pa.DataType) -> pa.ChunkedArray:
    assert never(stored, target) is None
    array = pa.array(values, stored)
    # In chunks and slices, as readers have them.
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    found = cast_column("x", chunked, target, 0)
    found.validate(full=True)
    assert found.type.equals(target, check_metadata=True)
    return found


@pytest.mark.parametrize(
    ("stored", "value", "target", "expected"),
    [(have, value, want, expected) for haves, value, wants, expected in PAIRS for have in haves for want in wants],
    ids=str,
)
def test_a_pair_that_is_allowed_works(stored: pa.DataType, value: Any, target: pa.DataType, expected: Any) -> None:
    assert cast([value, None, value], stored, target).to_pylist() == [expected, None, expected]


DOUBLE, LOST = pa.float64(), r"column 'x', row 2: a value of type .* cannot be cast to .*; repair the data, or choose"


@pytest.mark.parametrize(
    ("stored", "good", "bad", "target"),
    [
        (pa.int64(), 1, 300, pa.int8()),
        (pa.int64(), 1, -1, pa.uint64()),
        (pa.uint64(), 1, 2**63, pa.int64()),
        (pa.int64(), 1, 2**53 + 1, DOUBLE),
        (pa.int32(), 1, 2**24 + 1, pa.float32()),
        (pa.int32(), 1, 2049, pa.float16()),
        (pa.uint64(), 1, 2**63, pa.timestamp("s")),
        (DOUBLE, 1.0, 1.5, pa.int8()),
        (DOUBLE, 1.0, math.nan, pa.int8()),
        (DOUBLE, 1.0, 1e300, pa.float32()),
        (DOUBLE, 1.0, 1e6, pa.float16()),
        (pa.float16(), 1.0, 1.5, pa.int8()),
        (pa.int8(), 1, 2, pa.bool_()),
        (DOUBLE, 0.0, 0.5, pa.bool_()),
        (pa.float16(), 1.0, 0.5, pa.bool_()),
        (DOUBLE, 0.1, 0.123, pa.decimal128(5, 2)),
        (pa.float32(), scalar(0.5, pa.float16()), 0.123, pa.decimal128(5, 2)),
        (pa.float16(), 0.5, 0.125, pa.decimal128(5, 2)),
        (DOUBLE, 0.1, math.inf, pa.decimal128(5, 2)),
        (pa.int64(), 9, 10, pa.decimal128(1, 0)),
        (pa.decimal128(5, 3), Decimal("1.230"), Decimal("1.234"), pa.decimal128(5, 2)),
        (pa.decimal128(5, 3), Decimal(1), Decimal("1.234"), pa.int64()),
        (pa.decimal128(5, 0), Decimal(1), Decimal(99_999), pa.float16()),
        (pa.string(), "7", " 7", pa.int64()),
        (pa.string(), "7", "", pa.int64()),
        (pa.string(), "7", "7.0", pa.int64()),
        (pa.string(), "inf", "1e999", DOUBLE),
        (pa.string(), "1.25", "1.234", pa.decimal128(5, 2)),
        (pa.string(), "true", "yes", pa.bool_()),
        (pa.string(), "2024-01-01", "2024-01-01T10:00", pa.date32()),
        (pa.string(), "2024-01-01 00:00:00", "2024-01-01 00:00:00.5", pa.timestamp("s")),
        (pa.string(), "2024-01-01", "2024-01-01T00:00:00Z", US),
        (pa.string(), "2024-01-01T00:00:00Z", "2024-01-01", UTC),
        (pa.binary(), b"a", b"\xff", pa.string()),
        (US, NOON.replace(hour=0), NOON, pa.date32()),
        (US, NOON, NOON.replace(microsecond=5), pa.timestamp("ms")),
        (pa.date32(), dt.date(2024, 1, 1), dt.date(9024, 1, 1), pa.timestamp("ns")),
        (pa.list_(pa.int64()), [1, None], [1, 300], pa.list_(pa.field("element", pa.int8()))),
        (pa.struct({"a": pa.string()}), {"a": "1"}, {"a": "b"}, pa.struct({"a": pa.int8()})),
    ],
    ids=str,
)
def test_a_value_without_a_counterpart_is_refused_with_its_row(
    stored: pa.DataType, good: Any, bad: Any, target: pa.DataType
) -> None:
    good, bad = scalar(good, stored), scalar(bad, stored)
    assert len(cast([good, None, good], stored, target)) == 3
    with pytest.raises(SchemaError, match=LOST):
        cast([good, None, bad, good, bad], stored, target)


@pytest.mark.parametrize(
    ("values", "target", "row", "quoted"),
    [
        (["1", "3", "5", "2024-02-30"], US, 0, "'1'"),
        (["2024-01-01", "x", "2024-01-02", "y", "z"], US, 1, "'x'"),
        (["1", "2", "3", "x", "y"], pa.int8(), 3, "'x'"),
        (["1", "x"], pa.int8(), 1, "'x'"),
        (["x", "y"], pa.int8(), 0, "'x'"),
        ([["1"], ["2", "x"], ["y"]], pa.list_(pa.field("element", US)), 0, "'1'"),
    ],
)
def test_the_value_that_an_error_quotes_is_that_of_the_row_that_it_names(
    values: list[Any], target: pa.DataType, row: int, quoted: str
) -> None:
    stored = pa.list_(pa.string()) if isinstance(values[0], list) else pa.string()
    with pytest.raises(SchemaError, match=rf"column 'x', row {row + 7}: .*{quoted}"):
        cast_column("x", pa.chunked_array([pa.array(values, stored)]), target, 7)


@pytest.mark.parametrize(
    ("stored", "target", "why"),
    [
        (pa.map_(pa.string(), pa.int8()), pa.string(), "is never cast to anything"),
        (pa.struct([]), pa.string(), "is never cast to anything"),
        (pa.list_(pa.int8()), pa.string(), "list is never cast to text"),
        (pa.int8(), pa.list_(pa.int8()), "number is never cast to list"),
        (pa.list_(pa.bool_()), pa.list_(UTC), "boolean is never cast to zoned timestamp"),
        (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8()}), "a struct keeps its fields"),
        (pa.struct({"a": pa.bool_()}), pa.struct({"a": UTC}), "boolean is never cast to zoned timestamp"),
        (pa.duration("s"), pa.string(), "duration is never cast to text"),
        (pa.int8(), pa.binary(), "number is never cast to bytes"),
        (pa.bool_(), pa.decimal128(5, 2), "boolean is never cast to decimal"),
        (pa.string(), pa.time32("s"), "text is never cast to time"),
        (US, pa.int64(), "unzoned timestamp is never cast to number"),
        (DOUBLE, US, "only whole numbers are cast to unzoned timestamp"),
        (US, ROME, "unzoned timestamp is cast to a time in UTC only, as which it is taken"),
        (pa.date32(), ROME, "date is cast to a time in UTC only, as which it is taken"),
        (ROME, US, "only a time in UTC is cast to an unzoned timestamp"),
    ],
    ids=str,
)
def test_a_pair_that_no_value_allows_is_told_from_the_types_alone(
    stored: pa.DataType, target: pa.DataType, why: str
) -> None:
    assert why in (never(stored, target) or "")


def test_what_becomes_a_float_becomes_the_nearest() -> None:
    assert cast([0.1], DOUBLE, pa.float32()).to_pylist() == [struct.unpack("f", struct.pack("f", 0.1))[0]]
    assert cast([Decimal("1.2")], pa.decimal128(5, 1), DOUBLE).to_pylist() == [1.2]
    assert cast([math.inf, -math.inf], DOUBLE, pa.float32()).to_pylist() == [math.inf, -math.inf]


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=8),
    st.sampled_from([*NUMBERS, pa.decimal128(3, 0), pa.decimal128(21, 2), pa.string(), pa.bool_()]),
)
@settings(deadline=None)
def test_whole_numbers_come_out_equal_or_not_at_all(values: list[int | None], target: pa.DataType) -> None:
    try:
        found = cast(values, pa.int64(), target).to_pylist()
    except SchemaError:
        return
    assert [value if value is None else int(value) for value in found] == values


@given(
    st.lists(st.none() | st.floats() | st.integers(-10, 10).map(float), max_size=8),
    st.sampled_from([*INTEGERS, pa.decimal128(9, 2), pa.string(), pa.bool_()]),
)
@settings(deadline=None)
def test_floats_come_out_equal_or_not_at_all(values: list[float | None], target: pa.DataType) -> None:
    try:
        found = cast(values, DOUBLE, target).to_pylist()
    except SchemaError:
        return
    for value, got in zip(values, found, strict=True):
        back = None if got is None else float(got)
        assert back == value or (math.isnan(value or 0) and math.isnan(back or 0))


def test_the_row_is_counted_over_chunks_and_from_where_the_table_begins() -> None:
    column = pa.chunked_array([["1", "2"], [None], ["3", "x", "y"]])
    with pytest.raises(SchemaError, match=r"row 104: a value of type string cannot be cast to int64 \(Failed to parse"):
        cast_column("x", column, pa.int64(), 100)


def test_there_is_one_form_to_cast_from() -> None:
    assert plain(pa.dictionary(pa.int8(), pa.large_string())) == pa.string()
    assert plain(pa.struct({"a": pa.list_view(pa.date64())})) == pa.struct(
        {"a": pa.list_(pa.field("element", pa.date32()))}
    )
    assert plain(pa.decimal256(50, 2)) == pa.decimal256(50, 2)
