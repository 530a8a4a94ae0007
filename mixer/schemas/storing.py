"""A schema as JSON: readable columns for people, and Arrow's own form to make it from again."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mixer.errors import CorruptionError


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Return `schema` as plain JSON values, equal for equal schemas in every process with one pyarrow version.

    >>> schema_to_json(pa.schema({"text": pa.string()}))["columns"]
    [{'name': 'text', 'type': 'string', 'nullable': True}]
    """
    columns = [{"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in schema]
    return {"columns": columns, "arrow_ipc_base64": base64.b64encode(schema.serialize()).decode("ascii")}


def schema_from_json(stored: Mapping[str, Any]) -> pa.Schema:
    """Return the schema, metadata included, that `schema_to_json` gave `stored` for.

    >>> schema_from_json(schema_to_json(pa.schema({"n": pa.list_(pa.int8())})))
    n: list<item: int8>
      child 0, item: int8

    Raises:
        CorruptionError: `stored` is not such a schema, or its two forms differ.
    """
    try:
        data = base64.b64decode(stored["arrow_ipc_base64"], validate=True)
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        columns = stored["columns"]
    except (KeyError, TypeError, binascii.Error, pa.ArrowException, OSError) as error:
        raise CorruptionError(f"the stored schema cannot be read: {error!r}; restore run.json from a copy") from error
    if schema_to_json(schema)["columns"] != columns:
        raise CorruptionError(
            "the stored schema's `columns` and `arrow_ipc_base64` differ; restore run.json from a copy"
        )
    return schema
