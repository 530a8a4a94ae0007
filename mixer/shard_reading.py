"""Rows of a committed shard, read by row group and checked: nothing is served that is not what was committed.

A shard that is needed from its first row to its last, in all columns, and is not too long to be held, is read by one
request, and its sha256 compared with its commit's. Of any other only the needed column chunks are read. What guards
them: the checksum that each page has; the footer, which must tell the run, the shard, its batches and the states that
the commit tells; the schema; and row groups that are whole batches. Tests flip bits all over a shard, and hold that
none is served in silence. Only its hash, so only reading it whole or `mixer verify`, tells a sound shard of a run that
is defined alike but mixes other rows, if somebody has put it in the place of this one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.checking import check_length
from mixer.core.commits import Commit
from mixer.core.fingerprint import sha256_hex
from mixer.core.serving import whole_batches
from mixer.errors import CorruptionError, MixerError
from mixer.shards import FOOTER_KEY
from mixer.storage import Store
from mixer.storage.reading import ObjectFile

log = logging.getLogger(__name__)

WHOLE_BYTES_MAX = 64 << 20
"""Longest shard that is read by one request and held."""
_REMEDY = "`mixer verify` checks the whole run; restore it from a copy"
# Names and texts in a damaged footer need not be UTF-8.
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)

T = TypeVar("T")


class _FooterError(Exception):
    """A footer says otherwise than the commit."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What every shard of a run has in common."""

    schema: pa.Schema
    batch_size: int
    is_run: Callable[[str], bool]
    """Whether an id that a footer names is the run's, or was before it was extended."""


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard whose footer has been read and checked."""

    store: Store
    commit: Commit
    footer: pq.FileMetaData
    data: bytes | None
    """All of it, if it was read whole; its hash was checked."""

    @property
    def where(self) -> str:
        """Its address."""
        return f"{self.store.url}/{self.commit.path}"

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        return _group_rows(self.footer)

    def stored_bytes(self, group: int) -> int:
        """Return what a row group takes before compression, as the footer has it."""
        # Not column by column: to look at one in a damaged footer ends the process.
        return max(0, int(self.footer.row_group(group).total_byte_size))

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Return a row group's rows, decoded in this thread.

        Raises:
            CorruptionError: It is damaged.
            StoreError: It cannot be read.
        """
        return _read(
            lambda: self._decoded(group, columns), self.where, f"row group {group}", is_whole=self.data is not None
        )

    def _decoded(self, group: int, columns: Sequence[str]) -> pa.Table:
        # A reader of its own for each: one keeps the place where it is.
        with pq.ParquetFile(
            _source(self.store, self.commit, self.data), metadata=self.footer, page_checksum_verification=True
        ) as file:
            table = file.read_row_group(group, columns=list(columns), use_threads=False)
        rows = self.group_rows[group]
        if table.num_rows != rows:
            raise CorruptionError(f"{self.where}: expected {rows} rows in row group {group}, decoded {table.num_rows}")
        return table


def open_shard(store: Store, commit: Commit, expected: Expected, *, whole: bool) -> OpenShard:
    """Return the shard of `commit`, its length and its footer checked; read and hashed whole if it is so wanted.

    Args:
        store: Where it lies.
        commit: What it is.
        expected: What its run is.
        whole: Whether all of it will be needed.

    Raises:
        CorruptionError: It is not there, or not what the commit says.
        StoreError: It cannot be read.
    """
    # Before it is read: what lies there may be of any size.
    check_length(store, commit, remedy=_REMEDY)
    where = f"{store.url}/{commit.path}"
    data = _whole(store, commit, where) if whole and commit.bytes <= WHOLE_BYTES_MAX else None

    def opened() -> OpenShard:
        footer, schema = _footer(store, commit, data)
        if problem := _problem(footer, schema, commit, expected):
            raise _FooterError(problem)
        return OpenShard(store, commit, footer, data)

    return _read(opened, where, "footer", is_whole=data is not None)


def _read(read: Callable[[], T], where: str, what: str, *, is_whole: bool) -> T:
    """Return what `read` gives; if that is damaged, once more, unless all of the shard was read and hashed.

    A range has no checksum on its way from S3.

    Raises:
        CorruptionError: It is damaged.
    """
    for is_last in (is_whole, True):
        try:
            return read()
        except MixerError:
            raise
        except (_FooterError, *_UNREADABLE) as error:
            problem = str(error) if isinstance(error, _FooterError) else f"not readable as Parquet: {error}"
            if is_last:
                raise CorruptionError(f"{where}: {problem}; {_REMEDY}") from error
            log.warning("reading once more path=%s part=%s error=%s", where, what, problem)
    raise AssertionError("the last try ends otherwise")


def _whole(store: Store, commit: Commit, where: str) -> bytes:
    data = store.get(commit.path)
    found = None if data is None else sha256_hex(data)
    if data is None or found != commit.sha256:
        told = f"sha256 {found}" if found else "no such object"
        raise CorruptionError(f"{where}: the commit says sha256 {commit.sha256}, found {told}; {_REMEDY}")
    return data


def _source(store: Store, commit: Commit, data: bytes | None) -> Any:
    return ObjectFile(store, commit.path, commit.bytes) if data is None else pa.BufferReader(data)


def _footer(store: Store, commit: Commit, data: bytes | None) -> tuple[pq.FileMetaData, pa.Schema]:
    with pq.ParquetFile(_source(store, commit, data)) as file:
        return file.metadata, file.schema_arrow


def _group_rows(footer: pq.FileMetaData) -> list[int]:
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def _problem(footer: pq.FileMetaData, schema: pa.Schema, commit: Commit, expected: Expected) -> str | None:
    """Return what a footer says otherwise than the commit; None if it says the same."""
    if footer.num_rows != commit.rows:
        return f"the commit says {commit.rows} rows, found {footer.num_rows}"
    if not schema.equals(expected.schema):
        return f"expected the columns {expected.schema.names}, found {schema.names}, or others of their types"
    if not whole_batches(_group_rows(footer), expected.batch_size, commit.rows):
        return f"expected row groups of whole batches of {expected.batch_size} rows, found {_group_rows(footer)}"
    said = _said(footer)
    for key, value in (
        ("shard", commit.shard),
        ("first_batch", commit.first_batch),
        ("batches", commit.batches),
        ("batch_size", expected.batch_size),
        ("state_after", commit.state),
    ):
        if said.get(key) != value:
            return f"the commit says {key} {value}, its footer says {said.get(key)}"
    run = said.get("run")
    if not isinstance(run, str) or not expected.is_run(run):
        return f"its footer says that it is of another run, {run}"
    return None


def _said(footer: pq.FileMetaData) -> Mapping[str, Any]:
    """Return what a footer says of its shard; nothing if that is not readable."""
    try:
        said = json.loads((footer.metadata or {}).get(FOOTER_KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
