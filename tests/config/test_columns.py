"""`columns` and `missing` as people write them: one form of each, and a clear answer to the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.config import ColumnConfig, MixConfig, config_from, json_schema, parse_config, to_yaml
from mixer.config.columns import EXPECTED, normal_columns
from tests.config.said import GOOD, message

WEB = "  web: {path: web.parquet, weight: 3}\n"


def with_columns(text: str) -> str:
    return GOOD.replace(WEB, f"  web:\n    path: web.parquet\n    weight: 3\n    columns: {text}\n")


def columns_of(text: str) -> Any:
    return parse_config(with_columns(text), "mix.yaml").datasets["web"].columns


@pytest.mark.parametrize(
    ("written", "columns"),
    [
        ("[b, a]", ["b", "a"]),
        ("[null, no, '']", None),
        ("[text, no, 'a b', テ]", ["text", "no", "a b", "テ"]),
        ("{content: text}", {"content": "text"}),
        ("{content: {name: text}}", {"content": "text"}),
        ("{content: {}}", {"content": "content"}),
        ("{n: {cast: double}}", {"n": ColumnConfig(name="n", cast="float64")}),
        ("{n: {name: m, cast: 'timestamp[us,UTC]'}}", {"n": ColumnConfig(name="m", cast="timestamp[us, UTC]")}),
        ("{a: b, b: a}", {"a": "b", "b": "a"}),
        ("{_row: row, 1: one}", {"_row": "row", "1": "one"}),
    ],
)
def test_columns_have_one_form(written: str, columns: Any) -> None:
    if columns is None:
        assert "entry 1 of the list: expected the name of a column, found nothing" in message(with_columns(written))
        return
    found = columns_of(written)
    assert found == columns
    config = parse_config(with_columns(written), "mix.yaml")
    for again in (
        parse_config(to_yaml(config), "mix.yaml"),
        config_from(json.loads(config.model_dump_json())),
        config_from(config.model_dump()),
        MixConfig.model_validate_json(config.model_dump_json()),
        config.model_copy(update={}),
    ):
        assert again == config


def test_columns_may_be_written_in_python() -> None:
    values = parse_config(GOOD, "mix.yaml").model_dump()
    values["datasets"]["web"]["columns"] = {"n": ColumnConfig(cast="double"), "text": "body"}
    assert config_from(values).datasets["web"].columns == {"n": ColumnConfig(name="n", cast="float64"), "text": "body"}


TYPE = "expected the name of an Arrow type, such as int32, string, timestamp[us, UTC], decimal128(10, 2) or list<int32>"
NAME = "expected the name of a column, found"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("text", f"expected {EXPECTED}; found a text"),
        ("3", f"expected {EXPECTED}; found a number"),
        ("[]", f"expected {EXPECTED}; found an empty list"),
        ("{}", f"expected {EXPECTED}; found an empty mapping"),
        ("[a, 3]", f"entry 2 of the list: {NAME} a number"),
        ("[a, {b: c}]", f"entry 2 of the list: {NAME} a mapping"),
        ("[a, b, a]", "two columns would be called 'a'; give each column a name of its own"),
        ("{a: x, b: {name: x}}", "two columns would be called 'x'; give each column a name of its own"),
        ("{a: ''}", f"column 'a': {NAME} an empty text"),
        ("{'': a}", f"a key: {NAME} an empty text"),
        (
            "{a: }",
            "column 'a': expected its new name (the same one to keep it) or {name: NEW, cast: TYPE}, found nothing",
        ),
        ("{a: {nmae: b}}", "column 'a': unknown key 'nmae'; did you mean 'name'? known keys are name, cast"),
        ("{a: {cast: 3}}", "column 'a', cast: expected the name of an Arrow type, found a number"),
        ("{a: {name: [b]}}", f"column 'a', name: {NAME} a list"),
        (
            "{a: {cast: itn32}}",
            f"column 'a', cast: {TYPE}, found 'itn32'; did you mean 'int32'?",
        ),
    ],
)
def test_what_are_no_columns_is_answered_with_its_line(written: str, told: str) -> None:
    assert message(with_columns(written)) == f"mix.yaml:9: datasets.web.columns: {told}"


@pytest.mark.parametrize(
    ("written", "missing"), [("null", "null"), ("~", "null"), ("'null'", "null"), ("error", "error")]
)
def test_null_is_a_word(written: str, missing: str) -> None:
    config = parse_config(f"missing: {written}\n{GOOD}", "mix.yaml")
    assert config.missing == missing
    assert parse_config(to_yaml(config), "mix.yaml") == config


def test_other_words_are_refused() -> None:
    told = message(f"missing: drop\n{GOOD}")
    assert told == "mix.yaml:1: missing: expected 'error' or null, found the text 'drop'"


def test_missing_columns_are_an_error_unless_it_is_said() -> None:
    assert parse_config(GOOD, "mix.yaml").missing == "error"


def test_a_form_can_be_made_of_it() -> None:
    schema = json_schema()
    assert schema["properties"]["missing"]["enum"] == ["error", "null"]
    kinds = schema["$defs"]["DatasetConfig"]["properties"]["columns"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["array", "object", "null"]
    assert set(schema["$defs"]["ColumnConfig"]["properties"]) == {"name", "cast"}


NAMES = st.text(min_size=1, max_size=5).filter(lambda name: "\0" not in name)
ENTRIES = NAMES | st.fixed_dictionaries({}, optional={"name": NAMES, "cast": st.sampled_from(["int8", "float"])})


@given(st.lists(NAMES, max_size=4) | st.dictionaries(NAMES, ENTRIES, max_size=4))
@settings(deadline=None)
def test_the_one_form_is_its_own(value: Any) -> None:
    try:
        normal = normal_columns(value)
    except ValueError:
        return
    assert normal_columns(normal) == normal
    assert list(normal) == list(value)
