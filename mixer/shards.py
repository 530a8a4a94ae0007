"""A shard's table into Parquet bytes, the same bytes each time.

Every option of the writer is spelled out, row groups are cut at fixed row numbers and each written by one call,
and the footer holds no time, host or path. What is left to decide the bytes are the rows, the schema, these
settings and the version of pyarrow, which are all part of a run's definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.core.fingerprint import canonical_json
from mixer.core.plan import Plan, ShardSpec

FOOTER_KEY = b"mixer"
"""Footer key under which a shard says, in canonical JSON, which part of which run it is."""

DEFAULT_LEVELS = {"zstd": 1}
"""Compression levels that are set when the config names none; level 1 costs what snappy does and is a third smaller."""

ROW_GROUP_BYTES = 16 << 20
"""Uncompressed bytes that a row group aims at: it is gathered and encoded while it lies in the cache."""
MAX_ROW_GROUPS = 32_767
"""Row groups of a file at the most: the format numbers them in 16 bits."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What decides a shard's bytes beside its rows and schema."""

    compression: str
    compression_level: int | None
    batches_per_row_group: int
    pyarrow: str = pa.__version__
    """Parquet files name their writer's version, so bytes differ between versions."""
    layout: int = 1
    """Number of the page and encoding choices in this module; raised when they change."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)


def batches_per_row_group(batch_bytes: int, batches_per_shard: int) -> int:
    """Return how many batches make a row group of about `ROW_GROUP_BYTES`: a power of two, or the whole shard.

    A power of two changes only where the estimate of `batch_bytes` doubles, so inputs that hold the same rows in
    other files and row groups nearly always give the same.

    >>> batches_per_row_group(1 << 18, 256), batches_per_row_group(1 << 30, 256), batches_per_row_group(10, 256)
    (64, 1, 256)
    """
    wanted = max(1, ROW_GROUP_BYTES // max(1, batch_bytes))
    least = -(-batches_per_shard // MAX_ROW_GROUPS)
    return min(batches_per_shard, max(least, 1 << (wanted.bit_length() - 1)))


def footer(plan: Plan, shard: ShardSpec, run: str) -> dict[str, str]:
    """Return what a shard's footer says of it."""
    return {
        FOOTER_KEY.decode(): canonical_json(
            {
                "format": 1,
                "run": run,
                "shard": shard.index,
                "first_batch": shard.first_batch,
                "batches": shard.batches,
                "batch_size": plan.batch_size,
                "state_before": plan.state_at(shard.first_batch),
                "state_after": plan.state_at(shard.stop_batch),
            }
        ).decode()
    }


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that try a dictionary first: text, and whatever often repeats; never floats or token lists."""
    return [
        field.name
        for field in schema
        if field.name != "_row" and not pa.types.is_floating(field.type) and not pa.types.is_nested(field.type)
    ]


def encode(blocks: Iterable[pa.Table], schema: pa.Schema, settings: WriterSettings, extra: Mapping[str, str]) -> bytes:
    """Return one Parquet file with a row group for each of `blocks`.

    Args:
        blocks: Tables of `schema`, none empty, each column in one chunk.
        schema: The columns of every shard of the run.
        settings: The run's writer settings.
        extra: Key-values for the footer.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression=settings.compression,
        compression_level=settings.compression_level,
        use_dictionary=_dictionary_columns(schema),
        # Positions grow by one most of the time: deltas take next to nothing, where a dictionary would overflow.
        column_encoding={"_row": "DELTA_BINARY_PACKED"} if "_row" in schema.names else None,
        use_byte_stream_split=False,
        write_statistics=True,
        write_page_index=True,
        write_page_checksum=True,
        write_batch_size=1024,
        data_page_size=1 << 20,
        dictionary_pagesize_limit=1 << 20,
        store_schema=True,
        use_compliant_nested_type=True,
        use_deprecated_int96_timestamps=False,
        store_decimal_as_integer=False,
        use_content_defined_chunking=False,
        sorting_columns=None,
    ) as writer:
        for block in blocks:
            writer.write_table(block, row_group_size=len(block))
        writer.add_key_value_metadata(extra)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def is_alike(found: bytes, shard: bytes) -> bool:
    """Return whether `found` is `shard` in other bytes: the same rows and footer, written under other settings.

    Floats are compared bit by bit, so that a NaN is one.
    """
    try:
        with (
            pq.ParquetFile(pa.BufferReader(found), page_checksum_verification=True) as one,
            pq.ParquetFile(pa.BufferReader(shard)) as other,
        ):
            return (
                _said(one) == _said(other)
                and _uncompressed_bytes(one) <= alike_bytes_max(shard)
                and _plain(one) == _plain(other)
            )
    except (pa.ArrowException, OSError):
        return False


def alike_bytes_max(shard: bytes) -> int:
    """Return what the bytes of a file that `is_alike` do not exceed, whatever its codec and row groups."""
    with pq.ParquetFile(pa.BufferReader(shard)) as file:
        rows: int = file.metadata.num_rows
        columns: int = file.metadata.num_columns
        # A value may stand in its page, and as the least and the greatest one in two headers, the index and the footer;
        # and it may have all these to itself.
        return 10 * int(file.read().nbytes) + 1024 * columns * min(rows, MAX_ROW_GROUPS) + (1 << 20)


def _said(file: pq.ParquetFile) -> dict[bytes, bytes]:
    """Return what the footer says, without the schema, which other versions of pyarrow may spell in another way."""
    return {key: value for key, value in (file.metadata.metadata or {}).items() if key != b"ARROW:schema"}


def _uncompressed_bytes(file: pq.ParquetFile) -> int:
    return sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))


def _plain(file: pq.ParquetFile) -> bytes:
    """Return the rows and the columns of a file, written under settings that are always the same."""
    settings = WriterSettings(compression="none", compression_level=None, batches_per_row_group=1)
    return encode([file.read().combine_chunks()], file.schema_arrow, settings, {})
