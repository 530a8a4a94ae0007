"""Two files that differ: every way in which they can, planned and built, is right or refused before a row is read."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from mixer import planning
from mixer.errors import ConfigError
from tests.schemas.mixing import config_of, refusal, rows_of, shards_of

US, UTC, ROME = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Rome")
NOON = dt.datetime(2024, 7, 1, 12)  # noqa: DTZ001 - unzoned on purpose
NOON_UTC = NOON.replace(tzinfo=dt.UTC)
UUID = bytes(range(16))


def elements(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


def texts(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode()


PAIR = pa.struct({"a": pa.int8(), "b": pa.large_string()})
RIAP = pa.struct({"b": pa.string(), "a": pa.int16()})

RIGHT: dict[str, tuple[pa.Array, pa.Array, pa.DataType]] = {
    "null type and string": (pa.nulls(3), pa.array(["a", None, "é"]), pa.string()),
    "null type and number": (pa.nulls(3), pa.array([1, None, 2], pa.int8()), pa.int8()),
    "null type in both": (pa.nulls(3), pa.nulls(3), pa.string()),
    "lists of nothing": (pa.array([[], [], None]), pa.array([[1], None, []], pa.list_(pa.int32())),
                         elements(pa.int32())),
    "null type and struct": (pa.nulls(3), pa.array([{"a": 1, "b": None}, None, None], PAIR),
                             pa.struct({"a": pa.int8(), "b": pa.string()})),
    "int32 and int64": (pa.array([1, 2, None], pa.int32()), pa.array([2**40, None, -(2**63)]), pa.int64()),
    "uint8 and int8": (pa.array([255, 0, None], pa.uint8()), pa.array([-128, 127, 0], pa.int8()), pa.int16()),
    "uint32 and int32": (pa.array([2**32 - 1, 0, 1], pa.uint32()), pa.array([-(2**31), 0, 1], pa.int32()), pa.int64()),
    "uint64 alone": (pa.array([2**63, 2**64 - 1, 0], pa.uint64()), pa.array([255, 0, 1], pa.uint8()), pa.uint64()),
    "float and double": (pa.array([0.5, None, -0.0], pa.float32()), pa.array([0.1, 1e300, 5e-324]), pa.float64()),
    "int32 and float": (pa.array([2**31 - 1, 0, 1], pa.int32()), pa.array([0.5, 0, 1], pa.float32()), pa.float64()),
    "dictionary and string": (texts(["a", None, "a"]), pa.array(["b", "", None]), pa.string()),
    "other dictionaries": (texts(["a", "b", "a"]), texts(["b", "a", None]), pa.string()),
    "dictionary of numbers": (pa.array([7, 7, None]).dictionary_encode(), pa.array([1, 2, 3]), pa.int64()),
    "string and large_string": (pa.array(["a", "b", None]), pa.array(["é", "", None], pa.large_string()), pa.string()),
    "string_view": (pa.array(["a", "b" * 99, None], pa.string_view()), pa.array(["c", "d", "e"]), pa.string()),
    "binary forms": (pa.array([b"ab", None, b"cd"], pa.binary(2)), pa.array([b"", b"\xff", b"x"], pa.large_binary()),
                     pa.binary()),
    "list and large_list": (pa.array([[1], None, []], pa.large_list(pa.int8())), pa.array([[2, None], [], None],
                            pa.list_(pa.int16())), elements(pa.int16())),
    "fixed_size_list and list": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
                                 pa.array([[1], [], None], pa.list_(pa.int8())), elements(pa.int8())),
    "child names": (pa.array([[1]] * 3, pa.list_(pa.field("item", pa.int8(), nullable=False))),
                    pa.array([[None]] * 3, pa.list_(pa.field("x", pa.int8()))), elements(pa.int8())),
    "struct in another order": (pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], PAIR),
                                pa.array([{"b": "y", "a": 300}, None, {"b": None, "a": 0}], RIAP),
                                pa.struct({"a": pa.int16(), "b": pa.string()})),
    "lists of structs of lists": (pa.array([[{"a": [1]}], [], None], pa.list_(pa.struct({"a": pa.list_(pa.int8())}))),
                                  pa.array([[{"a": [2**40]}, None], [{"a": None}], []],
                                           pa.large_list(pa.struct({"a": pa.list_(pa.int64())}))),
                                  elements(pa.struct({"a": elements(pa.int64())}))),
    "decimals": (pa.array([Decimal("1.25"), None, Decimal("-99999999.99")], pa.decimal128(10, 2)),
                 pa.array([Decimal("0.0001"), Decimal(0), None], pa.decimal128(20, 4)), pa.decimal128(20, 4)),
    "time zones": (pa.array([NOON_UTC, None, NOON_UTC], ROME), pa.array([NOON_UTC] * 3, UTC), UTC),
    "one time zone": (pa.array([NOON_UTC] * 3, ROME), pa.array([NOON_UTC] * 3, ROME), ROME),
    "units": (pa.array([NOON] * 3, pa.timestamp("ms")), pa.array([NOON.replace(microsecond=1)] * 3, US), US),
    "dates": (pa.array([NOON.date()] * 3, pa.date64()), pa.array([NOON.date(), None, dt.date(1, 1, 1)]), pa.date32()),
    "times": (pa.array([NOON.time()] * 3, pa.time32("ms")), pa.array([dt.time(1, 2, 3, 4)] * 3, pa.time64("us")),
              pa.time64("us")),
    "durations": (pa.array([dt.timedelta(1)] * 3, pa.duration("s")), pa.array([dt.timedelta(0, 0, 1)] * 3),
                  pa.duration("us")),
    "booleans": (pa.array([True, False, None]), pa.array([None, True, True]), pa.bool_()),
    "uuid and its bytes": (pa.array([UUID, None, UUID], pa.uuid()), pa.array([UUID] * 3, pa.binary(16)), pa.binary()),
    "json and text": (pa.array(['{"a": 1}', None, "[]"], pa.json_()), pa.array(["a", "b", "c"]), pa.string()),
}  # fmt: skip


def values_of(array: pa.Array) -> list[Any]:
    stored: list[Any] = (array.storage if isinstance(array, pa.ExtensionArray) else array).to_pylist()
    return stored


@pytest.mark.parametrize("case", RIGHT)
def test_values_of_two_datasets_come_out_as_they_were_in_one_type(case: str, tmp_path: Path) -> None:
    first, second, output = RIGHT[case]
    table = shards_of(config_of(tmp_path, {"d0": [pa.table({"x": first})], "d1": [pa.table({"x": second})]}))
    assert table.schema.field("x").equals(pa.field("x", output), check_metadata=True)
    assert rows_of(table, 2, 0) == [{"x": value} for value in values_of(first)]
    assert rows_of(table, 2, 1) == [{"x": value} for value in values_of(second)]


@pytest.mark.parametrize("case", RIGHT)
def test_values_of_two_files_come_out_as_they_were_in_one_type_in_the_other_order_too(
    case: str, tmp_path: Path
) -> None:
    first, second, output = RIGHT[case]
    table = shards_of(config_of(tmp_path, {"d": [pa.table({"x": second}), pa.table({"x": first})]}))
    if "struct" not in case:  # fields stand in the order of the first
        assert table.schema.field("x").type == output
    assert table.to_pylist() == [{"x": value} for value in [*values_of(second), *values_of(first)]]


def test_columns_in_another_order_and_in_any_script_are_matched_by_name(tmp_path: Path) -> None:
    names = ["b", "a", "B", "テキスト", "é", "e\u0301", "a.b", " ", "x y", "no", '"q"', "a\nb"]
    table = pa.table({name: [f"{name} {row}" for row in range(3)] for name in names})
    found = shards_of(config_of(tmp_path, {"d0": [table], "d1": [table.select(names[::-1])]}))
    assert found.schema.names == names
    assert rows_of(found, 2, 0) == rows_of(found, 2, 1) == table.to_pylist()


def test_files_without_rows_and_without_row_groups_count_for_their_types_only(tmp_path: Path) -> None:
    none, some = pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": pa.array([1, 2], pa.int8())})
    found = shards_of(config_of(tmp_path, {"d": [none, some, none, pa.table({"x": pa.array([], pa.null())})]}))
    assert found.schema.field("x").type == pa.int64()
    assert found["x"].to_pylist() == [1, 2]


@pytest.mark.parametrize("name", ["_dataset", "_row", "_epoch", "_batch"])
def test_a_column_with_the_name_of_a_lineage_column_is_refused_and_can_be_renamed(name: str, tmp_path: Path) -> None:
    table = pa.table({name: [1, 2], "x": ["a", "b"]})
    told = refusal(config_of(tmp_path, {"d0": [table]}, lineage=True))
    assert told == (
        f"column {name!r} of dataset 'd0' ({tmp_path}/d0/0.parquet) has the name of a lineage column; rename it: "
        f"`columns: {{{name}: {name[1:]}}}` at dataset 'd0', or set `lineage: false`"
    )
    columns = {"d0": {"columns": {name: name[1:], "x": "x"}}}
    found = shards_of(config_of(tmp_path, {"d0": [table]}, columns, lineage=True))
    assert found.select([name[1:], "x", "_row"]).to_pylist() == [
        {name[1:]: 1, "x": "a", "_row": 0},
        {name[1:]: 2, "x": "b", "_row": 1},
    ]


ONE, LISTED = pa.array([1, 2]), pa.array([[1], [2]])
MAP = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8()))
CAST = "or cast one of them: `columns: {{x: {{cast: {}}}}}` at dataset {!r}"
PLAIN = "cannot be written so that every reader takes it; store it as a plain type"
WRONG: dict[str, tuple[pa.Array, pa.Array, list[str]]] = {
    "int and string": (ONE, pa.array(["1", "2"]), ["int64 in", "but string in", CAST.format("string", "d0")]),
    "uint64 and int64": (pa.array([2**63, 1], pa.uint64()), ONE,
                         ["uint64 in", "but int64", CAST.format("int64", "d0")]),
    "int64 and double": (ONE, pa.array([0.5, 1]), ["int64 in", "but double in", CAST.format("float64", "d0")]),
    "naive and zoned": (pa.array([NOON] * 2, US), pa.array([NOON_UTC] * 2, UTC),
                        ["a time without a zone is no instant", CAST.format('"timestamp[us, UTC]"', "d0")]),
    "zoned and naive": (pa.array([NOON_UTC] * 2, ROME), pa.array([NOON] * 2, pa.timestamp("ms")),
                        ["a time without a zone is no instant", CAST.format('"timestamp[us, UTC]"', "d1")]),
    "bool and int": (pa.array([True, False]), ONE, ["boolean and number are never mixed", CAST.format("int64", "d0")]),
    "binary and string": (pa.array([b"a", b"b"]), pa.array(["a", "b"]),
                          ["bytes and text", CAST.format("string", "d0")]),
    "date and timestamp": (pa.array([NOON.date()] * 2), pa.array([NOON] * 2, US),
                           ["date and unzoned timestamp", CAST.format('"timestamp[us]"', "d0")]),
    "list and value": (LISTED, ONE, ["list and number are never mixed", "leave it out with `columns`"]),
    "lists of other things": (LISTED, pa.array([["a"], []]),
                              ["column 'x[]'", "cast the whole column: `columns: {x: {cast: ...}}` at dataset 'd0'"]),
    "fields of other types": (pa.array([{"a": 1}] * 2), pa.array([{"a": "b"}] * 2), ["column 'x.a'", "int64 in"]),
    "field missing": (pa.array([{"a": 1, "b": 2}] * 2), pa.array([{"a": 1}] * 2),
                      ["field 'x.b': int64", "but missing in", "set `missing: null`"]),
    "field too many": (pa.array([{"a": 1}] * 2), pa.array([{"a": 1, "b": 2}] * 2),
                       ["field 'x.b': int64", "missing in"]),
    "map": (MAP, MAP, ["map<string, int8", PLAIN, "leave it out with `columns`"]),
    "map in a list": (pa.array([[[("a", 1)]], []], pa.list_(MAP.type)), ONE, ["list and number are never mixed"]),
    "map in a struct": (pa.array([{"m": [("a", 1)]}] * 2, pa.struct({"m": MAP.type})), pa.nulls(2), ["'x.m'", PLAIN]),
    "decimals of too many digits": (pa.array([Decimal(1)] * 2, pa.decimal128(38, 0)),
                                    pa.array([Decimal("0.1")] * 2, pa.decimal128(38, 38)),
                                    ["a decimal column holds at most 38 digits", "or cast one of them"]),
    "one decimal of too many digits": (pa.array([Decimal(1)] * 2, pa.decimal256(50, 2)), pa.nulls(2),
                                       ["decimal256(50, 2)", 'cast it: `columns: {x: {cast: "decimal128(38, 2)"}}`']),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_has_no_common_type_is_refused_when_planned_with_both_places(case: str, tmp_path: Path) -> None:
    first, second, words = WRONG[case]
    told = refusal(config_of(tmp_path, {"d0": [pa.table({"x": first})], "d1": [pa.table({"x": second})]}))
    assert "dataset 'd0'" in told
    for word in words:
        assert word in told


MIDNIGHT = NOON.replace(hour=0)
RESOLVED: dict[str, tuple[list[Any], list[Any]]] = {
    "int and string": (["1", "2"], ["1", "2"]),
    "int64 and double": ([1.0, 2.0], [0.5, 1.0]),
    "naive and zoned": ([NOON_UTC] * 2, [NOON_UTC] * 2),
    # A time without a zone is taken as one in UTC.
    "zoned and naive": ([NOON_UTC] * 2, [NOON_UTC] * 2),
    "bool and int": ([1, 0], [1, 2]),
    "binary and string": (["a", "b"], ["a", "b"]),
    "date and timestamp": ([MIDNIGHT] * 2, [NOON] * 2),
}


@pytest.mark.parametrize("case", RESOLVED)
def test_the_option_that_a_refusal_names_resolves_it(case: str, tmp_path: Path) -> None:
    first, second, words = WRONG[case]
    option = words[-1].split("cast: ")[1].split("}}")[0].strip('"')
    datasets = {words[-1].rsplit("'", 2)[1]: {"columns": {"x": {"cast": option}}}}
    files = {name: [pa.table({"x": array})] for name, array in (("d0", first), ("d1", second))}
    table = shards_of(config_of(tmp_path, files, datasets))
    for place, expected in enumerate(RESOLVED[case]):
        assert [row["x"] for row in rows_of(table, 2, place)] == expected


@pytest.mark.parametrize("others", [0, 2, 4, 5, 9])
def test_the_option_that_a_refusal_names_keeps_the_other_columns(others: int, tmp_path: Path) -> None:
    beside = {f"c{number}": [number] * 2 for number in range(others)}
    files = {name: [pa.table({"x": array, **beside})] for name, array in (("d0", ONE), ("d1", pa.array(["1", "2"])))}
    told = refusal(config_of(tmp_path, files))
    option = yaml.safe_load(told.split("cast one of them: `")[1].split("`")[0])
    if others > 4:
        assert list(option["columns"])[:5] == ["c0", "c1", "c2", "c3", "..."]
        assert told.endswith("at dataset 'd0' with its other columns for the dots")
        with pytest.raises(ConfigError, match=r"column '\.\.\.'"):
            config_of(tmp_path, files, {"d0": option})
        del option["columns"]["..."]
        option["columns"] |= {name: name for name in beside}
    assert set(shards_of(config_of(tmp_path, files, {"d0": option})).column_names) >= {"x", *beside}


def test_an_option_keeps_what_the_config_says_of_the_other_columns(tmp_path: Path) -> None:
    files = {
        "d0": [pa.table({"x": ONE, "a": ONE, "b": ONE, "c": ONE})],
        "d1": [pa.table({"x": ["1"], "m": [1], "a": [1]})],
    }
    columns = {"x": "x", "a": {"cast": "int8"}, "b": {"name": "m", "cast": "timestamp[us]"}}
    told = refusal(config_of(tmp_path, files, {"d0": {"columns": columns}}))
    assert (
        "`columns: {a: {cast: int8}, b: {name: m, cast: \"timestamp[us]\"}, x: {cast: string}}` at dataset 'd0'" in told
    )


def test_every_problem_of_every_dataset_is_told_at_once(tmp_path: Path) -> None:
    web = pa.table({"a": [1], "m": pa.array([[("a", 1)]], MAP.type), "_row": [1], "only": [1], "t": [1]})
    code = pa.table({"a": ["x"], "m": pa.array([[("a", 1)]], MAP.type), "_row": [1], "t": [1]})
    books = pa.table({"a": [1], "z": [1]})
    datasets = {
        "code": {"columns": {"a": "a", "m": "m", "_row": "row", "t": {"cast": "list<int8>"}}},
        "books": {"columns": ["a", "zz"]},
    }
    files = {"web": [web], "code": [code], "books": [books]}
    told = refusal(config_of(tmp_path, files, datasets, lineage=True)).splitlines()
    starts = [
        "column 'zz': in `columns` of dataset 'books', but in none of its files",
        "column '_row' of dataset 'web'",
        f"column 't': int64 in dataset 'code' ({tmp_path}/code/0.parquet), to be cast to list<element: int8>: number",
        "column 'a': int64 in dataset 'web'",
        "column 'm': map<string, int8",
        "column 't': int64 in dataset 'web'",
        "column 'm': map<string, int8",
        "column '_row': int64 in dataset 'web'",
        "column 'only': int64 in dataset 'web'",
        "column 't': int64 in dataset 'web'",
        "column 'row': int64 in dataset 'code'",
    ]
    assert len(told) == len(starts)
    for line, start in zip(told, starts, strict=True):
        assert line.startswith(start)
    assert "; did you mean 'z'? there are 'a', 'z'" in told[0]


def test_doubled_names_are_refused_unless_they_are_left_out(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["t"])], ["a", "a", "text"])
    told = refusal(config_of(tmp_path, {"d": [table]}))
    assert told == (
        f"column 'a' of dataset 'd' ({tmp_path}/d/0.parquet) is there 2 times; give each column a name of its own, or "
        "leave it out with `columns`"
    )
    assert "is there 2 times" in refusal(config_of(tmp_path, {"d": [table]}, {"d": {"columns": ["a"]}}))
    assert shards_of(config_of(tmp_path, {"d": [table]}, {"d": {"columns": ["text"]}})).to_pylist() == [{"text": "t"}]


def test_types_that_cannot_be_written_may_be_left_out(tmp_path: Path) -> None:
    table = pa.table({"x": MAP, "t": ["a", "b"]})
    found = shards_of(config_of(tmp_path, {"d": [table]}, {"d": {"columns": ["t"]}}))
    assert found.to_pylist() == [{"t": "a"}, {"t": "b"}]


def test_class_labels_follow_their_column_to_its_new_name(tmp_path: Path) -> None:
    label = {"names": ["no", "yes"], "_type": "ClassLabel"}
    table = pa.table({"y": [0, 1], "z": [1, 1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": {"y": label}}})})
    renamed = {"d0": {"columns": {"y": "label", "z": "z"}}}
    other = pa.table({"z": [1, 2]})
    planned = planning.plan(config_of(tmp_path, {"d0": [table], "d1": [other]}, renamed, missing="null"))
    assert json.loads(planned.schema.metadata[b"huggingface"]) == {"info": {"features": {"label": label}}}
    cast = {"d0": {"columns": {"y": {"name": "label", "cast": "string"}, "z": "z"}}}
    planned = planning.plan(config_of(tmp_path, {"d0": [table], "d1": [other]}, cast, missing="null"))
    assert planned.schema.metadata is None
