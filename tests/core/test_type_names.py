"""Names of types: what is read, what is refused, and that a type says its own name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.core.type_names import TypeName, parse_type

EXPECTED = (
    "expected the name of an Arrow type, such as int32, string, timestamp[us, UTC], decimal128(10, 2) or list<int32>, "
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("int8", "int8"),
        (" uint64 ", "uint64"),
        ("float", "float32"),
        ("double", "float64"),
        ("halffloat", "float16"),
        ("date32[day]", "date32"),
        ("timestamp[us]", "timestamp[us]"),
        ("timestamp[us,UTC]", "timestamp[us, UTC]"),
        ("timestamp[ns, tz=America/Argentina/Buenos_Aires]", "timestamp[ns, America/Argentina/Buenos_Aires]"),
        ("timestamp[s, +05:30]", "timestamp[s, +05:30]"),
        ("time32[ms]", "time32[ms]"),
        ("duration[ s ]", "duration[s]"),
        ("decimal128(38,0)", "decimal128(38, 0)"),
        ("list<item: list<element: double>>", "list<list<float64>>"),
        ("struct<a: int8, b c: list<string>>", "struct<a: int8, b c: list<string>>"),
        ('struct<"a:b": int8, テ: bool>', 'struct<"a:b": int8, テ: bool>'),
    ],
)
def test_a_name_is_read_with_or_without_what_may_be_left_out(text: str, name: str) -> None:
    assert str(parse_type(text)) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("itn32", EXPECTED + "found 'itn32'; did you mean 'int32'?"),
        ("str", EXPECTED + "found 'str'; did you mean 'string'?"),
        ("large_string", EXPECTED + "found 'large_string'; did you mean 'string'?"),
        ("", EXPECTED + "found ''"),
        ("INT8", EXPECTED + "found 'INT8'"),
        ("int8 int8", EXPECTED + "found 'int8 int8'; did you mean"),
        ("int8\n", EXPECTED + "found 'int8\\n'; did you mean"),
        ("list", EXPECTED + "found 'list'; did you mean 'list<int32>'?"),
        ("list<>", EXPECTED + "found 'list<>'; did you mean 'list<int32>'?"),
        ("list<int32", EXPECTED + "found 'list<int32'; did you mean 'list<int32>'?"),
        ("struct<>", EXPECTED + "found 'struct<>'"),
        ("struct<a int8>", EXPECTED + "found 'struct<a int8>'"),
        ("struct<a: int8, a: int8>", "a struct has field 'a' twice"),
        ("timestamp", EXPECTED + "found 'timestamp'; did you mean 'timestamp[us]'?"),
        ("timestamp[min]", "timestamp has a unit, one of s, ms, us, ns, found 'timestamp[min]'"),
        ("time32[us]", "time32 has a unit, one of s, ms, found 'time32[us]'"),
        (
            "timestamp[us, Europe/Rom]",
            "there is no time zone 'Europe/Rom' on this machine; did you mean 'Europe/Rome'?",
        ),
        ("timestamp[us, ../etc]", EXPECTED + "found 'timestamp[us, ../etc]'"),
        ("decimal128(39, 2)", "decimal128(digits, scale) has 1 to 38 digits and a scale from 0 to as many, found"),
        ("decimal128(5, 6)", "decimal128(digits, scale) has 1 to 38 digits and a scale from 0 to as many, found"),
        ("decimal128(5)", EXPECTED + "found 'decimal128(5)'"),
        ("decimal128(5, -1)", EXPECTED + "found 'decimal128(5, -1)'"),
        ("list<" * 20 + "int8" + ">" * 20, "expected a type at most 16 deep, found a deeper one"),
        ("x" * 1001, "expected the name of a type of at most 1000 characters, found 1001"),
        ("map<string, int8>", EXPECTED + "found 'map<string, int8>'"),
        ("__import__('os')", EXPECTED + "found \"__import__('os')\""),
    ],
)
def test_what_names_no_type_is_refused_with_what_is_near(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        parse_type(text)
    if told.endswith("?"):
        assert str(caught.value) == told
    assert str(caught.value).startswith(told)


LEAVES = st.sampled_from(
    [
        TypeName("int8"),
        TypeName("float64"),
        TypeName("date32"),
        TypeName("timestamp", ("us", "UTC")),
        TypeName("time64", ("ns",)),
        TypeName("decimal128", (10, 2)),
    ]
)


def nested(inner: st.SearchStrategy[TypeName]) -> st.SearchStrategy[TypeName]:
    fields = st.dictionaries(st.text(min_size=1, max_size=6), inner, min_size=1, max_size=3)
    return inner.map(lambda kind: TypeName("list", inner=(("element", kind),))) | fields.map(
        lambda named: TypeName("struct", inner=tuple(named.items()))
    )


@given(st.recursive(LEAVES, nested, max_leaves=5))
@settings(deadline=None)
def test_every_type_is_read_from_what_it_says(kind: TypeName) -> None:
    assert parse_type(str(kind)) == kind


@given(st.text('intlsruc<>[](),: "\\8a\n', max_size=30) | st.text(max_size=20))
@settings(deadline=None)
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        kind = parse_type(text)
    except ValueError:
        return
    assert parse_type(str(kind)) == kind
