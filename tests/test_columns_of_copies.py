"""What is wrong with the columns of prepared datasets is told by dataset and column, not by the name of a copy."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mixer
from mixer.errors import SchemaError
from tests.preparing import config_of


def code_of(folder: Path, table: pa.Table) -> None:
    """Write the dataset `code`, and `web` of JSON lines with a text `text` and a number `n` beside it."""
    inputs = folder / "inputs"
    inputs.mkdir()
    (inputs / "web.jsonl").write_text("".join(json.dumps({"text": "a", "n": n}) + "\n" for n in range(60)))
    pq.write_table(table, inputs / "code.parquet")


def test_a_clash_of_types_names_the_dataset_and_says_that_it_is_its_copy(tmp_path: Path) -> None:
    code_of(tmp_path, pa.table({"text": ["b"] * 30, "n": ["1"] * 30}))
    config = config_of(tmp_path)
    mixer.prepare(config)
    with pytest.raises(
        SchemaError, match=r"column 'n': int64 in dataset 'web' \(the prepared copy of its files\), but string in "
    ):
        mixer.plan(config)


def test_a_column_that_is_missing_in_a_copy_is_named_with_its_dataset(tmp_path: Path) -> None:
    code_of(tmp_path, pa.table({"text": ["b"] * 30, "n": [1] * 30, "more": [1] * 30}))
    config = config_of(tmp_path)
    with pytest.raises(SchemaError, match=r"missing in dataset 'web' \(the prepared copy of its files\); give "):
        mixer.build(config)
