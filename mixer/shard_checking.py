"""Whether a committed shard is what its commit and its run say, which is found out by reading all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.core.commits import Commit
from mixer.core.fingerprint import sha256_hex
from mixer.planning import Planned
from mixer.shards import footer
from mixer.storage import Store
from mixer.storage.reading import ObjectFile

RANGE_BYTES = 64 << 20
"""Most of a shard that is read and held at once by a reader."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    object: str
    """Where: the object's full address."""
    problem: str
    """What was expected, what was found, and what to do."""


def shard_problems(store: Store, commit: Commit, run: Planned | None) -> list[Problem]:
    """Return what is wrong with the shard of `commit`; it is read whole."""
    where = f"{store.url}/{commit.path}"
    info = store.stat(commit.path)
    # Before it is read: what lies there may be of any size.
    if info is not None and info.bytes != commit.bytes:
        return [Problem(where, f"expected {commit.bytes} bytes, found {info.bytes}; restore it from a copy")]
    is_short = commit.bytes <= RANGE_BYTES
    data = store.get(commit.path) if info is not None and is_short else None
    if info is None or (is_short and data is None):
        return [Problem(where, "missing, though the log names it; restore it from a copy")]
    if (found := _sha256(store, commit) if data is None else sha256_hex(data)) != commit.sha256:
        return [Problem(where, f"expected sha256 {commit.sha256}, found {found}; restore it from a copy")]
    file = ObjectFile(store, commit.path, commit.bytes) if data is None else pa.BufferReader(data)
    return [Problem(where, problem) for problem in (_parquet_problems(run, commit, file) if run is not None else ())]


def _sha256(store: Store, commit: Commit) -> str:
    """Return the hash of a shard that is too long to be held, read in ranges.

    A range has no checksum on its way from S3, where a whole object has one: so before it is called damaged, it is read
    once more.
    """
    found = ""
    for _ in range(2):
        digest = hashlib.sha256()
        for start in range(0, commit.bytes, RANGE_BYTES):
            digest.update(store.get_range(commit.path, start, min(commit.bytes, start + RANGE_BYTES)))
        found = digest.hexdigest()
        if found == commit.sha256:
            break
    return found


def _parquet_problems(run: Planned, commit: Commit, readable: Any) -> Iterator[str]:
    """Yield what a shard says of itself that is not so, though its bytes are those that were committed."""
    try:
        with pq.ParquetFile(readable) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        yield f"not readable as Parquet, though its bytes are those that were committed: {error}"
        return
    if metadata.num_rows != commit.rows:
        yield f"expected {commit.rows} rows, found {metadata.num_rows}"
    if not schema.equals(run.shard_schema):
        yield f"expected the columns {_columns(run.shard_schema)}, found {_columns(schema)}"
    said = metadata.metadata or {}
    for key, expected in footer(run.plan, run.plan.shard(commit.shard), run.run).items():
        found = said.get(key.encode(), b"").decode(errors="replace")
        if found != expected:
            yield f"expected the footer to say {expected}, found {found or 'nothing'}"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
