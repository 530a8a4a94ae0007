"""Which columns become what, which are refused, and what is said of it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer.errors import SchemaError
from mixer.schemas import LINEAGE_COLUMNS, Merged, merge

UTC, ROME = pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Rome")
NAIVE = pa.timestamp("us")


def of(kind: pa.DataType) -> pa.Schema:
    """Return a schema whose one column `x` has the given type."""
    return pa.schema({"x": kind})


def merged(*schemas: pa.Schema) -> Merged:
    """Merge datasets `d0`, `d1`, ... of one file each."""
    return merge({f"d{index}": [(f"{index}.parquet", schema)] for index, schema in enumerate(schemas)})


def elements(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


BECOMES = [
    # null type
    (pa.null(), pa.string(), pa.string()),
    (pa.null(), pa.int8(), pa.int8()),
    (pa.null(), pa.null(), pa.string()),
    (pa.list_(pa.null()), pa.list_(pa.int32()), elements(pa.int32())),
    (pa.list_(pa.null()), pa.list_(pa.null()), elements(pa.string())),
    (pa.null(), pa.struct({"a": pa.large_string()}), pa.struct({"a": pa.string()})),
    (pa.dictionary(pa.int8(), pa.null()), pa.int8(), pa.int8()),
    # one thing in several forms
    (pa.string(), pa.large_string(), pa.string()),
    (pa.string_view(), pa.large_string(), pa.string()),
    (pa.binary(), pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary(2), pa.binary()),
    (pa.binary(2), pa.binary(2), pa.binary()),
    (pa.uuid(), pa.binary(16), pa.binary()),
    (pa.json_(), pa.string(), pa.string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int64(), pa.large_string()), pa.string()),
    (pa.dictionary(pa.int8(), pa.int16()), pa.int32(), pa.int32()),
    (pa.list_(pa.int8()), pa.large_list(pa.int8()), elements(pa.int8())),
    (pa.list_(pa.int8(), 3), pa.list_(pa.int8()), elements(pa.int8())),
    (pa.list_(pa.int8(), 3), pa.list_(pa.int8(), 2), elements(pa.int8())),
    (pa.list_view(pa.int8()), pa.large_list_view(pa.int8()), elements(pa.int8())),
    (pa.list_(pa.field("x", pa.int8(), nullable=False)), pa.list_(pa.int8()), elements(pa.int8())),
    (pa.date32(), pa.date64(), pa.date32()),
    (pa.date64(), pa.date64(), pa.date32()),
    # widths
    (pa.bool_(), pa.bool_(), pa.bool_()),
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.int64(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint64(), pa.uint64()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint8(), pa.int16(), pa.int16()),
    (pa.uint16(), pa.int8(), pa.int32()),
    (pa.uint32(), pa.int32(), pa.int64()),
    (pa.uint32(), pa.int64(), pa.int64()),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int8(), pa.float16(), pa.float16()),
    (pa.uint8(), pa.float16(), pa.float16()),
    (pa.int16(), pa.float16(), pa.float32()),
    (pa.int16(), pa.float32(), pa.float32()),
    (pa.uint16(), pa.float32(), pa.float32()),
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.uint32(), pa.float64(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(20, 4), pa.decimal128(20, 4)),
    (pa.decimal128(10, 0), pa.decimal128(10, 10), pa.decimal128(20, 10)),
    (pa.decimal32(5, 2), pa.decimal256(30, 2), pa.decimal128(30, 2)),
    (pa.decimal128(38, 0), pa.decimal128(1, 0), pa.decimal128(38, 0)),
    # times
    (pa.timestamp("s"), pa.timestamp("s"), pa.timestamp("ms")),
    (pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ns")),
    (UTC, ROME, UTC),
    (ROME, ROME, ROME),
    (ROME, pa.timestamp("ms", "+02:00"), UTC),
    (pa.time32("s"), pa.time32("s"), pa.time32("ms")),
    (pa.time32("ms"), pa.time64("us"), pa.time64("us")),
    (pa.duration("s"), pa.duration("ms"), pa.duration("ms")),
    # nested
    (
        pa.struct({"a": pa.int8(), "b": pa.large_string()}),
        pa.struct({"b": pa.string(), "a": pa.int16()}),
        pa.struct({"a": pa.int16(), "b": pa.string()}),
    ),
    (
        pa.list_(pa.struct({"k": pa.string(), "v": pa.null()})),
        pa.large_list(pa.struct({"k": pa.string(), "v": pa.list_(pa.uint8())})),
        elements(pa.struct({"k": pa.string(), "v": elements(pa.uint8())})),
    ),
]


@pytest.mark.parametrize(("first", "second", "output"), BECOMES, ids=str)
def test_two_types_become_the_smallest_that_holds_both(
    first: pa.DataType, second: pa.DataType, output: pa.DataType
) -> None:
    for schemas in (of(first), of(second)), (of(second), of(first)):
        found = merged(*schemas).schema
        if not pa.types.is_struct(output):  # fields follow the first dataset, so they depend on the order
            assert found.field("x").equals(pa.field("x", output), check_metadata=True)
    assert merged(of(first), of(second)).schema.field("x").type.equals(output, check_metadata=True)


PAIR = (
    "column 'x': {0} in dataset 'd0' (0.parquet), but {1} in dataset 'd1' (1.parquet): {why}; "
    "store both as one type, or {option}"
)
NO_INTEGER = "no integer type holds every value of both"
NO_FLOAT = "a double holds integers exactly only up to 2**53"
NO_ZONE = "a time without a zone is no instant, and guessing its zone would move it"
TOO_LONG = "a decimal column holds at most 38 digits, none of them rounded"


def to(dataset: int, kind: str) -> str:
    return f"cast one of them: `columns: {{x: {{cast: {kind}}}}}` at dataset 'd{dataset}'"


OUT = "leave it out with `columns`"


@pytest.mark.parametrize(
    ("first", "second", "why", "option"),
    [
        (pa.uint64(), pa.int64(), NO_INTEGER, to(0, "int64")),
        (pa.int8(), pa.uint64(), NO_INTEGER, to(1, "int64")),
        (pa.int64(), pa.float64(), NO_FLOAT, to(0, "float64")),
        (pa.uint64(), pa.float16(), NO_FLOAT, to(0, "float64")),
        (UTC, NAIVE, NO_ZONE, to(1, '"timestamp[us, UTC]"')),
        (NAIVE, ROME, NO_ZONE, to(0, '"timestamp[us, UTC]"')),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), TOO_LONG, to(0, '"decimal128(38, 38)"')),
        (pa.int32(), pa.string(), "number and text are never mixed", to(0, "string")),
        (pa.int32(), pa.bool_(), "number and boolean are never mixed", to(1, "int64")),
        (pa.int32(), pa.decimal128(10, 2), "number and decimal are never mixed", to(0, '"decimal128(10, 2)"')),
        (pa.binary(), pa.string(), "bytes and text are never mixed", to(0, "string")),
        (pa.date32(), NAIVE, "date and unzoned timestamp are never mixed", to(0, '"timestamp[us]"')),
        (pa.string(), pa.list_(pa.string()), "text and list are never mixed", OUT),
        (pa.struct({"a": pa.int8()}), pa.list_(pa.int8()), "struct and list are never mixed", OUT),
        (pa.duration("s"), pa.time32("s"), "duration and time are never mixed", OUT),
    ],
    ids=str,
)
def test_two_types_without_a_common_one_are_refused_with_what_to_do(
    first: pa.DataType, second: pa.DataType, why: str, option: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        merged(of(first), of(second))
    assert str(caught.value) == PAIR.format(first, second, why=why, option=option)


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int8()),
        pa.struct([]),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.month_day_nano_interval(),
        pa.bool8(),
        pa.fixed_shape_tensor(pa.int8(), [2, 2]),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_types_that_not_every_reader_takes_are_refused_wherever_they_stand(kind: pa.DataType) -> None:
    why = "cannot be written so that every reader takes it"
    advice = f"store it as a plain type (a map as a list of structs, a tensor as a list), or {OUT}"
    for outer, path in (kind, "x"), (pa.list_(kind), "x[]"), (pa.struct({"a": kind}), "x.a"):
        with pytest.raises(SchemaError) as caught:
            merged(of(outer))
        assert str(caught.value) == (f"column {path!r}: {kind} in dataset 'd0' (0.parquet) {why}; {advice}")


def test_a_decimal_of_too_many_digits_is_refused_alone() -> None:
    with pytest.raises(SchemaError) as caught:
        merged(of(pa.decimal256(50, 2)))
    assert str(caught.value) == (
        f"column 'x': decimal256(50, 2) in dataset 'd0' (0.parquet): {TOO_LONG}; store it as a smaller type, "
        "or cast it: `columns: {x: {cast: \"decimal128(38, 2)\"}}` at dataset 'd0'"
    )


def test_three_integers_and_floats_are_taken_together_and_not_one_after_the_other() -> None:
    kinds = [pa.float16(), pa.uint8(), pa.int8()]
    assert merged(*map(of, kinds)).schema == merged(*map(of, reversed(kinds))).schema == of(pa.float16())
    assert merged(of(pa.uint32()), of(pa.int32()), of(pa.float32())).schema == of(pa.float64())


def test_columns_stand_in_the_order_of_the_first_file() -> None:
    schema = merged(pa.schema({"b": pa.int8(), "a": pa.int8()}), pa.schema({"a": pa.int8(), "b": pa.int8()})).schema
    assert schema.names == ["b", "a"]


def test_names_differ_in_case_and_may_be_of_any_script() -> None:
    names = ["Text", "text", "テキスト", "a.b", "é", "e\u0301", " "]
    assert merged(pa.schema(dict.fromkeys(names, pa.int8()))).schema.names == names


def test_everything_comes_out_nullable_and_without_metadata() -> None:
    inner = pa.field("a", pa.int8(), nullable=False, metadata={"PARQUET:field_id": "7"})
    stored = pa.schema(
        [
            pa.field("x", pa.struct([inner]), nullable=False, metadata={"a": "b"}),
            pa.field("y", pa.list_(inner), nullable=False),
        ],
        metadata={"pandas": "{}"},
    )
    expected = pa.schema({"x": pa.struct({"a": pa.int8()}), "y": elements(pa.int8())})
    assert merged(stored).schema.equals(expected, check_metadata=True)


def test_a_missing_column_is_refused_whichever_side_lacks_it() -> None:
    two, one = pa.schema({"a": pa.int8(), "b": pa.string()}), pa.schema({"a": pa.int8()})
    with pytest.raises(SchemaError) as caught:
        merged(two, one)
    assert str(caught.value) == (
        "column 'b': string in dataset 'd0' (0.parquet), but missing in dataset 'd1' (1.parquet); "
        "give every dataset the same columns (`columns` selects and renames them), or set `missing: null`"
    )
    with pytest.raises(SchemaError, match=r"'b': string in dataset 'd1' .*, but missing in dataset 'd0'"):
        merged(one, two)


def test_a_missing_column_is_refused_between_files_of_one_dataset() -> None:
    files = [("a.parquet", pa.schema({"a": pa.int8()})), ("b.parquet", pa.schema({"a": pa.int8(), "b": pa.int8()}))]
    with pytest.raises(SchemaError, match=r"int8 in dataset 'web' \(b.parquet\), but missing in .* \(a.parquet\)"):
        merge({"web": files})


def test_a_missing_field_of_a_struct_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        merged(of(pa.struct({"a": pa.int8()})), of(pa.struct({"a": pa.int8(), "b": pa.int8()})))
    assert str(caught.value) == (
        "field 'x.b': int8 in dataset 'd1' (1.parquet), but missing in dataset 'd0' (0.parquet); "
        "give every dataset the same fields, or set `missing: null`"
    )


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_no_reader_can_use_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="has a name that is empty or holds a NUL; rename it"):
        merged(pa.schema({name: pa.int8()}))
    with pytest.raises(SchemaError, match="has a name that is empty or holds a NUL; rename it"):
        merged(of(pa.struct({name: pa.int8()})))


def test_two_columns_of_one_name_are_refused() -> None:
    twice = [pa.field("a", pa.int8()), pa.field("a", pa.string())]
    with pytest.raises(SchemaError) as caught:
        merged(pa.schema(twice))
    assert (
        str(caught.value)
        == "column 'a' of dataset 'd0' (0.parquet) is there 2 times; give each column a name of its own, "
        "or leave it out with `columns`"
    )
    with pytest.raises(SchemaError, match=r"field 'x.a' of dataset 'd0' \(0.parquet\) is there twice"):
        merged(of(pa.struct(twice)))


@pytest.mark.parametrize("name", LINEAGE_COLUMNS)
def test_names_of_lineage_columns_are_taken_only_if_there_is_lineage(name: str) -> None:
    schemas = {"web": [("a.parquet", pa.schema({name: pa.int8()}))]}
    rename = f"rename it: `columns: {{{name}: {name[1:]}}}` at dataset 'web', or set `lineage: false`"
    with pytest.raises(SchemaError) as caught:
        merge(schemas)
    assert (
        str(caught.value) == f"column '{name}' of dataset 'web' (a.parquet) has the name of a lineage column; {rename}"
    )
    assert merge(schemas, lineage=False).schema.names == [name]


def test_a_dataset_without_columns_and_a_run_without_files_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"dataset 'd0' \(0.parquet\) has no columns"):
        merged(pa.schema([]))
    with pytest.raises(SchemaError, match="no dataset has a file"):
        merge({"web": []})


def test_every_problem_is_told_at_once() -> None:
    first = pa.schema({"a": pa.int8(), "b": pa.int8(), "c": pa.map_(pa.string(), pa.int8())})
    second = pa.schema({"a": pa.string(), "c": pa.string()})
    with pytest.raises(SchemaError) as caught:
        merged(first, second)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "column 'a'",
        "column 'c'",
        "column 'b'",
    ]


def test_what_changes_its_type_is_told_once_a_dataset() -> None:
    small, large = of(pa.struct({"n": pa.list_(pa.int8())})), of(pa.struct({"n": pa.large_list(pa.int32())}))
    again = of(pa.struct({"n": pa.large_list_view(pa.int8())}))
    web = [("a", small), ("b", small), ("again", again), ("c", large)]
    found = merge({"web": web, "code": [("d", large), ("e", of(pa.null()))]})
    told = [(p.dataset, p.file, p.column, p.stored, p.output) for p in found.promotions]
    assert told == [
        ("web", "a", "x.n[]", "int8", "int32"),
        ("code", "e", "x", "null", "struct<n: list<element: int32>>"),
    ]


def test_other_forms_of_the_same_thing_are_no_change_of_type() -> None:
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    assert merged(*map(of, kinds)).promotions == ()


def test_a_type_that_says_more_than_its_storage_is_told() -> None:
    (promotion,) = merged(of(pa.uuid())).promotions
    assert (promotion.stored, promotion.output) == ("extension<arrow.uuid>", "binary")


def test_types_written_for_a_null_column_are_told() -> None:
    (promotion,) = merged(of(pa.null())).promotions
    assert (promotion.stored, promotion.output) == ("null", "string")


def test_thousands_of_equal_files_count_as_one_and_a_late_other_one_is_found() -> None:
    files = [(f"{index}.parquet", of(pa.int32())) for index in range(5000)]
    assert merge({"web": [*files, ("late.parquet", of(pa.int64()))]}).schema == of(pa.int64())


def test_more_different_schemas_than_are_told_apart_still_merge() -> None:
    kinds = [pa.struct({"a": pa.field("a", pa.binary(width)).type}) for width in range(1, 100)]
    files = [(f"{index}.parquet", of(kind)) for index, kind in enumerate([*kinds, *kinds])]
    assert merge({"web": files}).schema == of(pa.struct({"a": pa.binary()}))


def test_schemas_as_parquet_stores_them_merge(tmp_path: Any) -> None:
    """What is read back from a file, with ids and child names of its own, is like any other schema."""
    table = pa.table({"x": pa.array([[1]], pa.list_(pa.int16())), "t": pa.array(["a"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    stored = pq.read_schema(tmp_path / "a.parquet")
    expected = pa.schema({"x": elements(pa.int16()), "t": pa.string()})
    assert merged(stored).schema.equals(expected, check_metadata=True)


IMAGE = {"_type": "Image"}
TEXT = {"dtype": "string", "_type": "Value"}


def with_features(**features: Any) -> pa.Schema:
    metadata = {"huggingface": json.dumps({"info": {"features": features, "splits": ["a machine's own"]}})}
    return pa.schema({name: pa.int64() for name in features}, metadata=metadata)


def label(*names: str) -> dict[str, Any]:
    return {"names": list(names), "_type": "ClassLabel"}


def test_features_that_every_file_names_alike_are_kept_and_nothing_else() -> None:
    first = with_features(a=IMAGE, b=TEXT, c=label("no", "yes"))
    second = with_features(c=label("no", "yes"), a=IMAGE, b={**TEXT, "dtype": "large_string"})
    found = merged(first, second)
    assert found.schema.metadata == {
        b"huggingface": b'{"info":{"features":{"a":{"_type":"Image"},"c":{"_type":"ClassLabel","names":["no","yes"]}}}}'
    }
    assert found.promotions == ()


def test_a_feature_that_some_file_does_not_name_is_left_out_and_told() -> None:
    found = merged(with_features(a=IMAGE), pa.schema({"a": pa.int64()}))
    assert found.schema.metadata is None
    assert [(p.dataset, p.column, p.stored, p.output) for p in found.promotions] == [
        ("d0", "a", "huggingface Image", "int64")
    ]


def test_class_labels_with_other_names_are_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        merged(with_features(a=label("no", "yes")), with_features(a=label("yes", "no")))
    assert str(caught.value) == (
        "column 'a': class labels ['no', 'yes'] in dataset 'd0' (0.parquet), but ['yes', 'no'] in dataset 'd1' "
        "(1.parquet), so one number would mean two things; store both with one list of names, or as text"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"info": 3}', '{"info": {"features": ["a"]}}', '{"info": null}'])
def test_features_that_cannot_be_read_say_nothing(text: str) -> None:
    assert merged(of(pa.int8()).with_metadata({"huggingface": text})).schema.equals(of(pa.int8()), check_metadata=True)
