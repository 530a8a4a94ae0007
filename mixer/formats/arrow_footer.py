"""What follows the end mark of an Arrow IPC file: a footer that lists its record batches.

Layout (Arrow columnar format, "IPC File Format"; `File.fbs` for the footer): the footer, a FlatBuffers table, then its
length in 4 bytes, little-endian, then ``ARROW1``. Field 3 of the table is a vector of blocks of 24 bytes, one for each
record batch; a block begins with the offset of its message in the file, in 8 bytes.
"""

from __future__ import annotations

import struct

import pyarrow as pa

MAGIC = b"ARROW1"
MOST_TAIL_BYTES = 1 << 27
"""Above this it is no footer: it would list five million batches."""
_HEAD = MAGIC + b"\0\0"
_LENGTH_BYTES = 4
_MOST_PADDING = 64
_BATCHES_FIELD = 3
_BLOCK_BYTES = 24


class FooterError(Exception):
    """What follows the end mark is no footer; says why."""


def batch_offsets(tail: bytes) -> list[int]:
    """Return the offsets of the messages of all record batches that a footer lists.

    Args:
        tail: All that follows the end mark of a file; it ends with the magic.

    Raises:
        FooterError: It is not one footer and nothing else.
    """
    length_at = len(tail) - len(MAGIC) - _LENGTH_BYTES
    if length_at < 0:
        raise FooterError("there is no footer")
    (length,) = struct.unpack_from("<i", tail, length_at)
    padding = length_at - length
    if length <= 0 or not 0 <= padding < _MOST_PADDING or tail[:padding].strip(b"\0"):
        raise FooterError(f"{length_at} bytes are there for a footer of {length}")
    try:
        # This checks all of the table, so that what is read of it below lies within it.
        count = pa.ipc.open_file(pa.BufferReader(_HEAD + tail)).num_record_batches
    except (pa.ArrowException, OSError) as error:
        raise FooterError(f"its footer cannot be read: {error}") from error
    return _offsets(tail[padding:length_at]) if count else []


def _offsets(footer: bytes) -> list[int]:
    (table,) = struct.unpack_from("<I", footer)
    (back,) = struct.unpack_from("<i", footer, table)
    (field,) = struct.unpack_from("<H", footer, table - back + 2 * (2 + _BATCHES_FIELD))
    at = table + field
    at += struct.unpack_from("<I", footer, at)[0]
    (count,) = struct.unpack_from("<I", footer, at)
    return [struct.unpack_from("<q", footer, at + 4 + _BLOCK_BYTES * place)[0] for place in range(count)]
