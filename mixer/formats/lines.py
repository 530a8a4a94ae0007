"""Blocks of whole lines out of a stream: each begins where the last one ended, and is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mixer.errors import InputError
from mixer.formats.base import Position
from mixer.formats.options import MAX_VALUE_BYTES
from mixer.formats.streams import Stream

_GROW_BYTES = 1 << 16
BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\0\0\xfe\xff": "UTF-32"}
_ZEROS = {
    (True, False, True, False),
    (False, True, False, True),
    (True, False, False, False),
    (False, False, False, True),
}


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines."""

    data: bytes
    """Their bytes; only the last line of a file may have no newline at its end."""
    offset: int
    line: int
    """Number of the first of them in the file."""
    lines: int

    @property
    def after(self) -> Position:
        """Where the next block begins."""
        return Position(self.offset + len(self.data), self.line + self.lines)


class Blocks(Protocol):
    """What stands in a file from a position on, block by block."""

    has_bom: bool
    """Whether a byte order mark of UTF-8 was found where they begin, which no block holds."""
    position: Position
    """Where the next block begins."""

    def take(self, most_bytes: int, most_lines: int) -> Block | None:
        """Return the next lines: about `most_bytes`, and at most `most_lines`; None at the end.

        Raises:
            InputError: The file is not what its format says.
        """
        ...


class LineBlocks:
    """The lines of a file from a position on.

    Args:
        stream: The file, at the position.
        at: The position.
    """

    def __init__(self, stream: Stream, at: Position) -> None:
        self._stream = stream
        self._buffer, self._begin = b"", 0
        self.position = at
        self.has_bom = False
        if at.offset == 0:
            self._buffer = stream.read(_GROW_BYTES)
            check_encoding(stream, self._buffer)
            self.has_bom = self._buffer.startswith(BOM)
            if self.has_bom:
                self._begin = len(BOM)
                self.position = Position(len(BOM), at.line)

    def take(self, most_bytes: int, most_lines: int) -> Block | None:
        """Return the next lines: as many as fill `most_bytes`, the last of them whole, but at most `most_lines`.

        Raises:
            InputError: A line is longer than `MAX_VALUE_BYTES`.
        """
        self._fill(most_bytes)
        if self._begin == len(self._buffer):
            return None
        end = self._buffer.find(b"\n", self._begin + most_bytes - 1) + 1 or self._next_newline()
        lines = self._buffer.count(b"\n", self._begin, end)
        if lines > most_lines:
            end = self._begin
            for _ in range(most_lines):
                end = self._buffer.index(b"\n", end) + 1
            lines = most_lines
        data = self._buffer[self._begin : end]
        block = Block(data, self.position.offset, self.position.line, lines + (not data.endswith(b"\n")))
        self._begin, self.position = end, block.after
        return block

    def give_back(self, block: Block, kept_bytes: int, kept_lines: int) -> Block:
        """Return the beginning of `block`, which was the last one taken; the lines after it are taken again."""
        self._begin -= len(block.data) - kept_bytes
        kept = Block(block.data[:kept_bytes], block.offset, block.line, kept_lines)
        self.position = kept.after
        return kept

    def _fill(self, size: int) -> None:
        """Let the buffer hold `size` bytes that were not taken yet, if there are as many."""
        missing = size - (len(self._buffer) - self._begin)
        if missing > 0:
            self._buffer = self._buffer[self._begin :] + self._stream.read(missing)
            self._begin = 0

    def _next_newline(self) -> int:
        """Read on to the end of the line that the buffer ends in; return where that is in the buffer."""
        pieces, size = [self._buffer[self._begin :]], len(self._buffer) - self._begin
        whole = pieces[0].rfind(b"\n") + 1
        end = 0
        while not end and (piece := self._stream.read(max(_GROW_BYTES, size // 4))):
            newline = piece.find(b"\n") + 1
            end = size + newline if newline else 0
            pieces.append(piece)
            size += len(piece)
            if (end or size) - whole > MAX_VALUE_BYTES:
                line = self.position.line + pieces[0].count(b"\n")
                raise InputError(
                    f"input file {self._stream.file.url} line {line}: expected at most {MAX_VALUE_BYTES:,} bytes, "
                    f"found more without a newline; is this a file of lines? Set `format` if it is not"
                )
        self._buffer, self._begin = b"".join(pieces), 0
        return end or size


def check_encoding(stream: Stream, head: bytes) -> None:
    """Refuse what begins as UTF-16 or UTF-32 does, with a mark or without.

    Raises:
        InputError: It does.
    """
    found = next((name for mark, name in _OTHER_ENCODINGS.items() if head.startswith(mark)), None)
    # Text that begins with ASCII characters has zeros between them in UTF-16 and UTF-32.
    if found is None and tuple(map(bool, head[:4])) in _ZEROS:
        found = "UTF-16 or UTF-32"
    if found is not None:
        raise InputError(
            f"input file {stream.file.url}: expected UTF-8, found {found}; convert it, as in `iconv -f UTF-16 -t UTF-8`"
        )


def is_utf8(data: bytes) -> bool:
    r"""Return whether all of `data` is UTF-8.

    >>> is_utf8("é".encode()), is_utf8(b"\xff")
    (True, False)
    """
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
