"""Plain text: a document in each line, in each paragraph, or in each file; one column, `text`.

Lines end in a newline, with or without a carriage return before it; paragraphs are parted by lines that hold nothing
but space. A document is what stands there, byte by byte, without its last line's end; a whole file keeps that, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mixer.errors import InputError
from mixer.formats.base import Piece, Policy, Position, Problem, Reading, RowFormat
from mixer.formats.json_lines import is_blank
from mixer.formats.lines import BOM, Block, LineBlocks, check_encoding
from mixer.formats.options import MAX_VALUE_BYTES
from mixer.formats.reading import BlockReading
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

SCHEMA = pa.schema({"text": pa.string()})


class PlainText(RowFormat):
    """Plain text in UTF-8."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:  # noqa: ARG002 - as all formats have it
        """Return the one column; no file is read."""
        return SCHEMA

    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        policy = Policy(self._dataset, self._options)
        if self._options.document == "file":
            return _WholeFile(policy, file, at)
        kind = _Paragraphs if self._options.document == "paragraph" else _Lines
        return kind(policy, file, schema, at, LineBlocks)


class _Lines(BlockReading[LineBlocks]):
    def rows(self, block: Block) -> tuple[Block, pa.Table]:
        data = block.data.removesuffix(b"\n")
        if b"\r" not in data and isinstance(text := _decoded(data), str):
            lines = pc.split_pattern(pa.array([text], pa.string()), "\n").flatten()
            kept = lines.filter(pc.not_equal(pc.binary_length(lines), 0))
            if empty := len(lines) - len(kept):
                self.policy.counts["empty_lines"] += empty
            return block, pa.table([kept], SCHEMA)
        return block, self.table((block.line + n, line.removesuffix(b"\r")) for n, line in enumerate(data.split(b"\n")))

    def table(self, documents: Iterator[tuple[int, bytes]]) -> pa.Table:
        """Return rows of what stands in the file, given with the numbers of their first lines."""
        texts = []
        for line, data in documents:
            if not data:
                self.policy.counts["empty_lines"] += 1
            elif isinstance(text := _decoded(data), str):
                texts.append(text)
            else:
                self.policy.meet(self.file, line, text, data)
        return pa.table([pa.array(texts, pa.string())], SCHEMA)


class _Paragraphs(_Lines):
    def rows(self, block: Block) -> tuple[Block, pa.Table]:
        block = self._to_the_end(block)
        return block, self.table(self._paragraphs(block))

    def _to_the_end(self, block: Block) -> Block:
        """Return the block with the rest of its last paragraph, and the empty line after it."""
        more: list[Block] = []
        last = block.data.removesuffix(b"\n").rpartition(b"\n")[2]
        size = len(block.data)
        begin = block.line
        while not is_blank(last) and (line := self.blocks.take(1, 1)) is not None:
            more.append(line)
            last = line.data
            size += len(last)
            if size > max(MAX_VALUE_BYTES, 2 * len(block.data)):
                raise InputError(
                    f"input file {self.file.url} line {begin}: expected paragraphs of at most {MAX_VALUE_BYTES:,} "
                    f"bytes, found a longer one; set `document` to `line`"
                )
        return self.longer(block, more)

    def _paragraphs(self, block: Block) -> Iterator[tuple[int, bytes]]:
        lines: list[bytes] = []
        for number, line in enumerate([*block.data.split(b"\n"), b""], start=block.line):
            if not is_blank(line):
                lines.append(line)
            elif lines:
                yield number - len(lines), b"\n".join(lines).removesuffix(b"\r")
                lines = []


class _WholeFile(Reading):
    """A file that is one document."""

    def __init__(self, policy: Policy, file: InputFile, at: Position) -> None:
        self._policy, self._file, self._is_done = policy, file, at.offset > 0 or at.line > 1

    def take(self, most_bytes: int) -> Piece | None:  # noqa: ARG002 - a file is not parted
        if self._is_done:
            return None
        self._is_done = True
        with Stream(self._file) as stream:
            data = stream.read(MAX_VALUE_BYTES + 1)
            if len(data) > MAX_VALUE_BYTES:
                raise InputError(
                    f"input file {self._file.url}: expected at most {MAX_VALUE_BYTES:,} bytes for one document, found "
                    f"more; set `document` to `line` or `paragraph`"
                )
            check_encoding(stream, data[:4])
        size = len(data)
        if data.startswith(BOM):
            self._policy.counts["byte_order_marks"] += 1
            data = data.removeprefix(BOM)
        text = _decoded(data)
        texts = []
        if isinstance(text, Problem):
            self._policy.meet(self._file, 1, text, data)
        elif text:
            texts.append(text)
        else:
            self._policy.counts["empty_files"] += 1
        table = pa.table([pa.array(texts, pa.string())], SCHEMA)
        bad, counts = self._policy.take()
        return Piece(table, max(1, size), Position(size, 2), bad, counts)

    def close(self) -> None:
        """Nothing stays open."""


def _decoded(data: bytes) -> str | Problem:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem("encoding", f"expected UTF-8, found bytes that are not at byte {error.start + 1}")
