"""Parquet footers: fetched by one read of the file's tail, judged, hashed and parsed.

The hash covers the footer as stored (metadata, length, magic): two files with equal footers have the same
schema, row groups, sizes, places and statistics.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.errors import InputError
from mixer.storage.inputs import InputFile, read_range

_GUESS_BYTES = 64 * 1024
_MAGIC = b"PAR1"
_MAGIC_ENCRYPTED = b"PARE"
_END_BYTES = 8  # the footer's length and the magic
_SIGNATURE_BYTES = 28  # of a footer in plain text, in a file whose columns are encrypted
FOOTER_BYTES_MAX = 1 << 28
"""Longest footer that is read; Arrow itself takes no text in it of a third of this."""
_LEAST_BYTES = len(_MAGIC) + _END_BYTES


@dataclass(frozen=True, slots=True)
class Footer:
    """A parsed footer."""

    metadata: pq.FileMetaData
    sha256: str
    bytes: int
    """Length as stored."""

    @property
    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group, as it says."""
        return tuple(self.metadata.row_group(index).num_rows for index in range(self.metadata.num_row_groups))

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of all columns, encoded but not compressed, as it says."""
        return sum(self.metadata.row_group(index).total_byte_size for index in range(self.metadata.num_row_groups))


def read_footer(name: str, file: InputFile) -> Footer:
    """Return the footer of a file of dataset `name`, in one request if it is no longer than 64 KiB.

    Raises:
        InputError: The file is empty, cut short, encrypted, or not Parquet.
        ChangedError: The file is gone, or was replaced since `file` was listed.
    """
    where = f"dataset {name!r}, file {file.url}"
    if file.bytes == 0:
        raise InputError(
            f"{where}: expected a Parquet file, found an empty one (0 bytes); write it again, or leave it out"
        )
    tail = read_range(file, max(0, file.bytes - _GUESS_BYTES), file.bytes)
    if file.bytes < _LEAST_BYTES or tail[-4:] != _MAGIC:
        raise InputError(f"{where}: expected a Parquet file, found {_diagnosis(file, tail)}")
    footer_bytes = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if footer_bytes + len(_MAGIC) > file.bytes:
        raise InputError(
            f"{where}: expected a Parquet file, found a footer said to be {footer_bytes} bytes long in a file of "
            f"{file.bytes} bytes: it is damaged; write it again, or leave it out"
        )
    if footer_bytes > FOOTER_BYTES_MAX:
        raise InputError(
            f"{where}: expected a footer of at most {FOOTER_BYTES_MAX:,} bytes, found one said to be {footer_bytes:,} "
            f"bytes long; write the file with fewer columns or row groups"
        )
    if footer_bytes > len(tail):
        tail = read_range(file, file.bytes - footer_bytes, file.bytes)
    return _parsed(where, tail[-footer_bytes:])


def footer_of(where: str, data: bytes) -> Footer:
    """Return the footer of a whole Parquet file, as `read_footer` does."""
    return _parsed(where, data[-(int.from_bytes(data[-_END_BYTES:-4], "little") + _END_BYTES) :])


def _parsed(where: str, footer: bytes) -> Footer:
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            f"{where}: expected a Parquet file, found a footer that cannot be read ({error}); write the file again, "
            f"or leave it out"
        ) from error
    if metadata.serialized_size + _SIGNATURE_BYTES + _END_BYTES == len(footer):
        # Not left to the decoder: merely looking at such a column's sizes ends the process.
        raise InputError(f"{where}: expected a Parquet file, found one with encrypted columns; decrypt it first")
    return Footer(metadata, hashlib.sha256(footer).hexdigest(), len(footer))


def _diagnosis(file: InputFile, tail: bytes) -> str:
    """Return what a file is that does not end as Parquet does, and what to do about it."""
    if tail[-4:] == _MAGIC_ENCRYPTED:
        return "one with an encrypted footer; decrypt it first"
    head = read_range(file, 0, min(len(_MAGIC), file.bytes))
    if head == _MAGIC:
        return (
            f"one that begins so but is cut short: its last bytes are {tail[-4:]!r}, not {_MAGIC!r}, at "
            f"{file.bytes} bytes; copy or write it again, or leave it out"
        )
    return (
        f"something else: it begins with {head!r} and ends with {tail[-4:]!r}; say its `format` if that is another, or "
        f"name only the Parquet files"
    )
