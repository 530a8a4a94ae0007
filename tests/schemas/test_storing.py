"""Schemas as JSON and back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from mixer.errors import CorruptionError
from mixer.schemas import schema_from_json, schema_to_json

SCHEMA = pa.schema(
    [
        pa.field("テキスト", pa.string()),
        pa.field("n", pa.list_(pa.field("element", pa.struct({"a": pa.timestamp("us", "Europe/Rome")})))),
        pa.field("d", pa.decimal128(38, 9), nullable=False),
    ],
    metadata={"huggingface": '{"info":{}}'},
)


def test_a_schema_comes_back_whole() -> None:
    text = json.dumps(schema_to_json(SCHEMA), sort_keys=True)
    assert schema_from_json(json.loads(text)).equals(SCHEMA, check_metadata=True)


def test_a_schema_is_readable() -> None:
    assert schema_to_json(SCHEMA)["columns"] == [
        {"name": "テキスト", "type": "string", "nullable": True},
        {"name": "n", "type": "list<element: struct<a: timestamp[us, tz=Europe/Rome]>>", "nullable": True},
        {"name": "d", "type": "decimal128(38, 9)", "nullable": False},
    ]


def test_another_process_says_the_same() -> None:
    program = (
        "import json, pyarrow as pa; from mixer.schemas import merge, schema_to_json; "
        "names = ['b', 'a', 'c']; schema = pa.schema({n: pa.list_(pa.large_string()) for n in names}); "
        "print(json.dumps(schema_to_json(merge({'web': [('f', schema)]}).schema)))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != b""


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"columns": []},
        {"columns": [], "arrow_ipc_base64": "%%%"},
        {"columns": [], "arrow_ipc_base64": ""},
        {"columns": [], "arrow_ipc_base64": "AAAA"},
        {"columns": [], "arrow_ipc_base64": 3},
        {**schema_to_json(SCHEMA), "arrow_ipc_base64": "%" + schema_to_json(SCHEMA)["arrow_ipc_base64"]},
        {"columns": [], "arrow_ipc_base64": schema_to_json(SCHEMA)["arrow_ipc_base64"][:200]},
    ],
)
def test_what_is_no_schema_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(CorruptionError, match=r"the stored schema cannot be read: .*; restore run.json from a copy"):
        schema_from_json(stored)


def test_two_forms_that_differ_are_refused() -> None:
    stored = schema_to_json(SCHEMA)
    stored["columns"][0]["type"] = "binary"
    with pytest.raises(CorruptionError, match="`columns` and `arrow_ipc_base64` differ"):
        schema_from_json(stored)
