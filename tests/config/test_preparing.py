"""What a config says of inputs that are prepared, and what does not go together there."""

from __future__ import annotations

import pytest

from mixer.config import parse_config, to_yaml
from tests.config.said import GOOD, message

WEB = "  web: {path: web.parquet, weight: 3}\n"
WINDOW = "window: {context_length: 8, tokenizer: t.json}"


def with_web(fields: str) -> str:
    return GOOD.replace(WEB, f"  web: {{path: web.txt, weight: 3, {fields}}}\n")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("format: parquet, on_bad_line: skip", "on_bad_line: Parquet has no lines; leave it out"),
        ("format: jsonl, document: file", "document: only plain text has it, and the format is 'jsonl'; leave it out"),
        (f"{WINDOW}, batches: {{by: n, size: 2}}", "batches: windows are all of one length"),
        (f"{WINDOW}, columns: [text]", "columns: windows are made of the one column that `window.text` names"),
        ("format: yaml", "format: expected 'parquet', 'jsonl', 'json', 'csv', 'tsv', 'text', 'arrow', 'huggingface'"),
        ("window: {context_length: 0}", "window.context_length: expected a positive whole number, found 0"),
        ("window: {context_length: 8, end_of_text: true}", "window.end_of_text: expected a token, or its id, found"),
        ("window: {context_length: 8, end_of_text: -1}", "window.end_of_text: expected a token, or its id from 0"),
        ("window: {context_length: 8, strid: 2}", "window.strid: unknown key; did you mean 'stride'? known keys are"),
        ("window: 8", "window: expected a mapping with context_length, tokenizer and others, found 8"),
        ("batches: {by: n}", "batches.size: missing; expected a positive whole number"),
        ("batches: 4", "batches: expected a mapping with by and size, and maybe sizes"),
        (
            "batches: {by: n, size: 2, sizes: {long: 1}}",
            "batches.sizes: expected lengths as keys, whole numbers",
        ),
        ("batches: {by: n, size: 2, sizes: {512: 0}}", "batches.sizes[512]: expected a positive whole number, found 0"),
        ("batches: {by: n, size: 2, sizes: 3}", "batches.sizes: expected a mapping from lengths to positive whole"),
    ],
)
def test_a_mistake_is_told_with_its_place(fields: str, said: str) -> None:
    assert f"mix.yaml:6: datasets.web.{said}" in message(with_web(fields))


@pytest.mark.parametrize("place", ["out", "out/", "out/data", "out/prepared"])
def test_copies_do_not_lie_where_readers_look_for_shards(place: str) -> None:
    assert "mix.yaml:8: prepared: that is in the output" in message(f"{GOOD}prepared: {place}\n")


@pytest.mark.parametrize("place", ["out2", "out/.mixer/prepared", "s3://bucket/out"])
def test_copies_may_lie_anywhere_else(place: str) -> None:
    assert parse_config(f"{GOOD}prepared: {place}\n", "mix.yaml").prepared == place


def test_sizes_keep_their_lengths_as_numbers_in_yaml_and_json() -> None:
    config = parse_config(with_web("batches: {by: n, size: 4, sizes: {512: 2, 1024: 1}}"), "mix.yaml")
    batches = config.datasets["web"].batches
    assert batches is not None
    assert batches.sizes == {512: 2, 1024: 1}
    assert parse_config(to_yaml(config), "again.yaml") == config
    assert type(config).model_validate(config.model_dump(mode="json")) == config
