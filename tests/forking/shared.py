"""Forks on disk, and what is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.building import build
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.storage import open_store
from mixer.verifying import verify
from tests.e2e.runs import objects

OTHER = {"web": 3, "code": 1}


def all_of(output: str) -> dict[str, bytes]:
    return objects(open_store(output))


def shards_of(output: str) -> dict[str, bytes]:
    return objects(open_store(output), "data/")


def listed(output: str) -> list[bytes]:
    """Return the shards of a finished run as its manifest names them, wherever they lie."""
    content = json.loads(Path(output, commits.MANIFEST_NAME).read_bytes())
    return [Path(entry.get("output", output), entry["path"]).read_bytes() for entry in content["shards"]]


def rows_in(shards: list[bytes]) -> list[dict[str, Any]]:
    tables = [pq.read_table(pa.BufferReader(data)) for data in shards]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return found


def said(shard: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(pq.read_metadata(pa.BufferReader(shard)).metadata[b"mixer"])
    return content


def changed(config: MixConfig, **changes: Any) -> MixConfig:
    return config_from({**config.model_dump(mode="json"), **changes})


def whole(config: MixConfig, output: Path) -> list[dict[str, Any]]:
    """Return the rows of one run of the whole mix, without another run before it."""
    build(changed(config, fork=None, output=str(output)))
    return rows_in(list(shards_of(str(output)).values()))


def nothing_wrong(output: str, *, parents: tuple[str, ...]) -> None:
    report = verify(output)
    assert (report.problems, report.orphans, report.finished, report.parents) == ((), (), True, parents)
