"""CSV and TSV: every column is text, for nothing in such a file says that 007 is a number.

The first record names the columns. Quotes are double quotes, doubled inside of them, and newlines may stand between
them (RFC 4180), in TSV alike. A block without quotes goes through pyarrow, all columns told to be text; one with quotes
through the `csv` module in its strict mode.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import csv as arrow_csv

from mixer.errors import InputError, SchemaError
from mixer.formats.base import Policy, Position, Problem, Reading, RowFormat
from mixer.formats.json_types import MAX_FIELDS
from mixer.formats.lines import BOM, Block, LineBlocks, is_utf8
from mixer.formats.options import MAX_VALUE_BYTES
from mixer.formats.reading import BlockReading
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_HEADER_BYTES = 1 << 16
_MORE_BYTES, _MOST_MORE_BYTES = 1 << 12, 1 << 20
"""How much is read at first for a record that goes on beyond its block, and how much at a time for a very long one."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What a file's first record says of the others."""

    names: list[str]
    """Of the columns, in the file's order."""
    delimiter: str
    rows: Position
    """Where the rows begin."""
    has_bom: bool
    """Whether a byte order mark comes before it."""


class Delimited(RowFormat):
    """CSV or TSV in UTF-8."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns, all of them text: those of the first file, in its order. Only headers are read."""
        first: list[str] = []
        for file in files:
            names = self._header(file).names
            if not first:
                first = names
            if sorted(names) != sorted(first):
                differing = sorted(set(names) ^ set(first))
                raise SchemaError(
                    f"dataset {self._dataset!r}: expected the columns of {files[0].url} in {file.url}, found others: "
                    f"{', '.join(map(repr, differing[:8]))} {'are' if len(differing) > 1 else 'is'} in one of them only"
                )
        if not first:
            raise SchemaError(f"dataset {self._dataset!r}: expected files with a header, found no file")
        return pa.schema([pa.field(name, pa.string()) for name in first])

    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        return _Reading(Policy(self._dataset, self._options), file, schema, at, self._header(file))

    def _header(self, file: InputFile) -> _Header:
        delimiter = _DELIMITERS[self._options.format]
        with Stream(file) as stream:
            blocks = LineBlocks(stream, Position())
            records = _Records(blocks, blocks.take(1, 1), delimiter)
            record = next(records.read(), None)
            if record is None:
                raise InputError(
                    f"input file {file.url}: expected a header with the columns' names, found an empty file"
                )
            if isinstance(record.fields, Problem):
                raise InputError(
                    f"input file {file.url} line 1: the header cannot be read: {record.fields.what}; mend it"
                )
            names = record.fields
            if len(names) > MAX_FIELDS:
                raise SchemaError(
                    f"dataset {self._dataset!r}: {file.url} line 1: expected a header of at most {MAX_FIELDS} names, "
                    f"found {len(names)}; is this a header, and one of {self._options.format.upper()}?"
                )
            twice = sorted(name for name, count in Counter(names).items() if count > 1)
            if not names or "" in names or twice:
                found = f"several times {', '.join(map(repr, twice[:8]))}" if twice else "an empty name"
                raise SchemaError(
                    f"dataset {self._dataset!r}: {file.url} line 1: expected a header with a different name for each "
                    f"column, found {found}; put names into the first line"
                )
            return _Header(names, delimiter, records.position, blocks.has_bom)


class _Record:
    """A record, or why it is none."""

    __slots__ = ("data", "fields", "line")

    def __init__(self, line: int, data: bytes, fields: list[str] | Problem) -> None:
        self.line, self.data, self.fields = line, data, fields


class _Records:
    """The records of a block, as the `csv` module tells them apart; the last may need more lines than the block has."""

    def __init__(self, blocks: LineBlocks, block: Block | None, delimiter: str) -> None:
        self._blocks, self._block = blocks, block
        self._reader = csv.reader(self._lines(), strict=True, delimiter=delimiter)
        self._record, self._record_lines = bytearray(), 0
        self.more: list[Block] = []
        """Lines that were needed beyond the block; whole when all records have been read."""
        self.position = block.after if block is not None else Position()
        """After the last line that was needed."""

    def read(self) -> Iterator[_Record]:
        """Yield the records."""
        # The module's own limit is for the whole process; ours is told by `_lines`.
        csv.field_size_limit(MAX_VALUE_BYTES)
        line = self._block.line if self._block is not None else 1
        while True:
            self._record, self._record_lines = bytearray(), 0
            fields: list[str] | Problem
            try:
                fields = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields = _problem(error)
            data = bytes(self._record)
            if not is_utf8(data):
                fields = Problem("encoding", "expected UTF-8, found bytes that are not")
            yield _Record(line, data, fields)
            line += self._record_lines

    def _lines(self) -> Iterator[str]:
        if self._block is None:
            return
        lines = (
            self._block.data.splitlines(keepends=True) if b"\r" not in self._block.data else _split(self._block.data)
        )
        for line in lines:
            yield self._noted(line, 1)
        # Only a record that is not complete asks for a line beyond the last.
        size = _MORE_BYTES
        while self._record and (more := self._blocks.take(size, size)) is not None:
            kept_bytes = kept_lines = 0
            for data in _in_quotes(more.data):
                kept_bytes += len(data)
                lines_there = data.count(b"\n") + (not data.endswith(b"\n"))
                kept_lines += lines_there
                self.position = Position(more.offset + kept_bytes, more.line + kept_lines)
                yield self._noted(data, lines_there)
                if not self._record:
                    break
            self.more.append(self._blocks.give_back(more, kept_bytes, kept_lines))
            size = min(2 * size, _MOST_MORE_BYTES)

    def _noted(self, data: bytes, lines: int) -> str:
        self._record += data
        self._record_lines += lines
        if len(self._record) > MAX_VALUE_BYTES:
            raise InputError(
                f"a record of CSV is longer than {MAX_VALUE_BYTES:,} bytes; is a quote never closed? It begins with "
                f"{bytes(self._record[:60])!r}"
            )
        return data.decode("utf-8", "surrogateescape")


class _Reading(BlockReading[LineBlocks]):
    def __init__(self, policy: Policy, file: InputFile, schema: pa.Schema, at: Position, header: _Header) -> None:
        super().__init__(policy, file, schema, at if at.offset else header.rows, LineBlocks)
        self._header = header
        if header.has_bom and not at.offset:
            policy.counts["byte_order_marks"] += 1

    def rows(self, block: Block) -> tuple[Block, pa.Table]:
        table = self._fast(block)
        if table is not None:
            return block, table
        return self.slow(block)

    def slow(self, block: Block) -> tuple[Block, pa.Table]:
        """Return what `rows` does, record by record."""
        records = _Records(self.blocks, block, self._header.delimiter)
        rows = []
        width = len(self._header.names)
        try:
            for record in records.read():
                fields = record.fields
                if isinstance(fields, Problem):
                    self.policy.meet(self.file, record.line, fields, record.data)
                elif len(fields) == width:
                    rows.append(fields)
                elif not fields:
                    self.policy.counts["empty_lines"] += 1
                else:
                    problem = Problem("ragged", f"expected {width} fields as in the header, found {len(fields)}")
                    self.policy.meet(self.file, record.line, problem, record.data)
        except InputError as error:
            if self.file.url in str(error):
                raise
            raise InputError(f"input file {self.file.url}, after line {block.line}: {error}") from error
        columns = zip(*rows, strict=True) if rows else [()] * width
        arrays = dict(zip(self._header.names, (pa.array(column, pa.string()) for column in columns), strict=True))
        return self.longer(block, records.more), pa.table([arrays[name] for name in self.schema.names], self.schema)

    def _fast(self, block: Block) -> pa.Table | None:
        data = block.data
        # At the beginning of what it reads, pyarrow takes U+FEFF for a mark, and a block may begin with it.
        if b'"' in data or data.startswith(BOM) or data.count(b"\r") != data.count(b"\r\n"):
            return None
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, block_size=max(len(data) + 1, _HEADER_BYTES), column_names=self._header.names
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._header.delimiter, quote_char=False, double_quote=False, escape_char=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=self.schema, strings_can_be_null=False, check_utf8=True
                ),
            )
        except pa.ArrowInvalid:
            return None
        return table.select(self.schema.names) if table.num_rows == block.lines else None


def _problem(error: csv.Error) -> Problem:
    """Return what the module's error means for a file."""
    if "new-line character" in str(error):
        # It speaks of how a file is opened in Python.
        what = "a carriage return outside of quotes that no newline follows; lines end in a newline"
        return Problem("broken", f"expected a record of CSV, found {what}")
    kind = "truncated" if "unexpected end of data" in str(error) else "broken"
    return Problem(kind, f"expected a record of CSV, found something else: {error}")


def _split(data: bytes) -> Iterator[bytes]:
    """Yield lines with their ends, where a carriage return alone ends none."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin) + 1 or len(data)
        yield data[begin:end]
        begin = end


def _in_quotes(data: bytes) -> Iterator[bytes]:
    r"""Yield lines that begin between quotes: together those without any quote, and alone those with some.

    >>> list(_in_quotes(b'a\nb\nc",d\ne\n'))
    [b'a\nb\n', b'c",d\n', b'e\n']
    """
    begin = 0
    while begin < len(data):
        quote = data.find(b'"', begin)
        end = len(data) if quote < 0 else data.rfind(b"\n", begin, quote) + 1
        if end <= begin:
            end = data.find(b"\n", quote) + 1 or len(data)
        yield data[begin:end]
        begin = end
