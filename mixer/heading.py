"""The verb `head`: some rows of a run from any batch on, reading no more than the row groups they lie in."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from mixer import extending
from mixer.ancestry import Origin, holding
from mixer.building import started
from mixer.checking import check_length
from mixer.core.commits import Commit
from mixer.errors import CorruptionError, MixerError, OutputError
from mixer.log import CommitLog
from mixer.storage import Store
from mixer.storage.reading import ObjectFile


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a run."""

    output: str
    run: str
    """Short id of the run."""
    batch_size: int
    first_row: int
    """Position of the first row in the whole mix."""
    table: pa.Table


def head(output: str, rows: int = 10, *, batch: int = 0) -> Rows:
    """Return `rows` rows from the beginning of batch `batch` on; fewer where the committed part ends.

    Raises:
        OutputError: There is no run at `output`, or it has not come to `batch` yet.
        CorruptionError: Something that was read is damaged.
    """
    store, began = started(output)
    log, run = CommitLog(store, began.genesis), began
    if batch >= began.plan.batches:
        run = extending.current(began, log.tail(), store.url)
    plan = run.plan
    if batch >= plan.batches:
        raise OutputError(f"{store.url}: batch {batch}: the run has batches 0 to {plan.batches - 1}")
    shard, first = plan.shard_at(batch), batch * plan.batch_size
    tables: list[pa.Table] = []
    origins = holding(Origin(store, began, None), shard, started)
    for at, commit in ((origin.store, commit) for origin in origins for commit in origin.commits(shard)):
        start = max(0, first - commit.first_batch * plan.batch_size)
        stop = min(commit.rows, start + rows - sum(map(len, tables)))
        tables.append(_read(at, commit, start, stop, run.shard_schema))
        if sum(map(len, tables)) >= rows:
            break
    if not tables and shard:
        _, done = began.done(log.tail().commit)
        raise OutputError(
            f"{store.url}: batch {batch} is not committed yet, so far there are {done}; "
            f"go on with `mixer run`, or ask for an earlier one"
        )
    table = pa.concat_tables(tables) if tables else run.shard_schema.empty_table()
    return Rows(output, run.run[:12], plan.batch_size, first, table)


def _read(store: Store, commit: Commit, start: int, stop: int, schema: pa.Schema) -> pa.Table:
    """Return the rows ``[start, stop)`` of a shard."""
    where = f"{store.url}/{commit.path}"
    check_length(store, commit, remedy="`mixer verify` checks the whole run")
    try:
        raw = ObjectFile(store, commit.path, commit.bytes)
        with pq.ParquetFile(raw, page_checksum_verification=True) as file:
            if file.metadata.num_rows != commit.rows:
                raise CorruptionError(f"{where}: the commit says {commit.rows} rows, found {file.metadata.num_rows}")
            if not file.schema_arrow.equals(schema):
                raise CorruptionError(f"{where}: its columns are not the run's; `mixer verify` checks the run")
            groups, before = _groups(file.metadata, start, stop)
            return file.read_row_groups(groups).slice(start - before, stop - start)
    except MixerError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(f"{where}: not readable as Parquet: {error}; `mixer verify` checks the run") from error


def _groups(metadata: pq.FileMetaData, start: int, stop: int) -> tuple[list[int], int]:
    """Return the row groups that hold the rows ``[start, stop)``, and how many rows lie before them."""
    groups: list[int] = []
    first_row, before = 0, 0
    for group in range(metadata.num_row_groups):
        stop_row = first_row + metadata.row_group(group).num_rows
        if first_row < stop and stop_row > start:
            before = before if groups else first_row
            groups.append(group)
        first_row = stop_row
    return groups, before
