"""Runs in memory that are extended, and what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mixer import building
from mixer.config import MixConfig, config_from
from mixer.log import CommitLog
from mixer.testing import MemoryStore
from mixer.verifying import verify
from tests.e2e.runs import objects
from tests.mixes import WEIGHTS, config_values

Edit = Callable[[dict[str, Any]], None]


STORES: dict[str, MemoryStore] = {}
"""Outputs by where they are: in memory, where a run takes no time."""


def shards_of(output: Path) -> dict[str, bytes]:
    return objects(STORES[str(output)], "data/")


def rows_of(output: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(pa.BufferReader(data)) for data in shards_of(output).values()]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return found


def said(shard: bytes) -> dict[str, Any]:
    metadata = pq.read_metadata(pa.BufferReader(shard)).metadata
    content: dict[str, Any] = json.loads(metadata[b"mixer"])
    return content


def nothing_wrong(output: Path) -> None:
    report = verify(str(output))
    assert (report.problems, report.orphans, report.finished) == ((), (), True)


def phases(*lengths: int, last: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Return phases of the usual weights, the last one of others if they are given."""
    told: list[dict[str, Any]] = [{"batches": length, "weights": WEIGHTS} for length in lengths]
    if last is not None:
        told[-1] = {"batches": lengths[-1], "weights": last}
    return told


def phased(folder: Path, *lengths: int, last: Mapping[str, int] | None = None, **changes: Any) -> MixConfig:
    values = config_values(folder, batches=None, phases=phases(*lengths, last=last), **changes)
    for dataset in values["datasets"].values():
        del dataset["weight"]
    return config_from(values)


def payloads(output: Path) -> list[tuple[str, Mapping[str, Any]]]:
    found = building.look(str(output))
    return list(CommitLog(found.store, found.run.genesis).payloads())
