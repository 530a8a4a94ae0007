"""Objects of JSON as rows: blocks by the fast way where it is sure to be right, what is in doubt line by line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from mixer.errors import ChangedError
from mixer.formats.base import Policy, Position, Problem, Reading, RowFormat
from mixer.formats.json_fast import fast_table
from mixer.formats.json_lines import BadLineError, fitted, is_blank, parse
from mixer.formats.json_types import Learner
from mixer.formats.lines import Block, Blocks, LineBlocks
from mixer.formats.reading import BlockReading, most_lines
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

_LEARN_BYTES = 4 << 20
_DOUBT_BYTES = 128 << 10
"""A block that is in doubt is cut into pieces of about this size, most of which are in no doubt."""


class JsonRows(RowFormat):
    """Files of JSON in which each row is an object; where one ends is for its children to say."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns of all rows of all files, which are read to their ends."""
        learner = Learner(self._dataset, self._options.unit)
        for file in files:
            with Stream(file) as stream:
                blocks = self.blocks(stream, Position())
                rows = RowMaker(Policy(self._dataset, self._options), file)
                while block := blocks.take(_LEARN_BYTES, most_lines(_LEARN_BYTES, learner.schema())):
                    rows.learn(block, learner)
        return learner.finished()

    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        return _Reading(Policy(self._dataset, self._options), file, schema, at, self.blocks)

    @abstractmethod
    def blocks(self, stream: Stream, at: Position) -> Blocks:
        """Return the rows of a stream that is at a position, each in a line of its own."""


class JsonLines(JsonRows):
    """JSON lines, NDJSON: an object in each line."""

    def blocks(self, stream: Stream, at: Position) -> Blocks:
        return LineBlocks(stream, at)


class _Reading(BlockReading[Blocks]):
    def rows(self, block: Block) -> tuple[Block, pa.Table]:
        return block, RowMaker(self.policy, self.file).table(block, self.schema)


class RowMaker:
    """Makes rows of the lines of one file.

    Args:
        policy: What becomes of bad lines.
        file: The file, for errors.
    """

    def __init__(self, policy: Policy, file: InputFile) -> None:
        self._policy, self._file = policy, file

    def learn(self, block: Block, learner: Learner) -> None:
        """Let `learner` see the rows of a block.

        Raises:
            InputError: A line is bad, and the policy is `error`.
            SchemaError: Values of one column are of different kinds.
        """
        if fast_table(block.data, block.lines, learner.schema()) is not None:
            return
        for piece in _cut(block, _DOUBT_BYTES):
            if fast_table(piece.data, piece.lines, learner.schema()) is None:
                for line, row in self._parsed(piece, parse):
                    learner.learn(row, (self._file.url, line))
            _, counts = self._policy.take()
            learner.note(counts)

    def table(self, block: Block, schema: pa.Schema) -> pa.Table:
        """Return the rows of a block.

        Raises:
            InputError: A line is bad, and the policy is `error`.
            ChangedError: A line has other columns than the first pass has found.
        """
        table = fast_table(block.data, block.lines, schema)
        if table is not None:
            return table
        pieces = []
        for piece in _cut(block, _DOUBT_BYTES):
            table = fast_table(piece.data, piece.lines, schema)
            pieces.append(self.slow_table(piece, schema) if table is None else table)
        return pa.concat_tables(pieces)

    def slow_table(self, block: Block, schema: pa.Schema) -> pa.Table:
        """Return what `table` does, line by line."""
        whole = pa.struct(schema)

        def row_of(line: bytes) -> dict[str, Any]:
            return fitted(parse(line), whole, "")  # type: ignore[no-any-return]  # an object stays one

        try:
            rows = [row for _, row in self._parsed(block, row_of)]
        except TypeError as error:
            last = block.line + block.lines - 1
            raise ChangedError(
                f"input file {self._file.url}, {self._policy.unit}s {block.line} to {last}: {error}; the "
                f"file has changed since its columns were found: remove the prepared copy and prepare again"
            ) from error
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, whole))], schema)

    def _parsed(self, block: Block, parsed: Callable[[bytes], dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        lines = block.data.split(b"\n")
        is_cut_off = bool(lines[-1])
        if not is_cut_off:
            lines.pop()
        for number, line in enumerate(lines, start=block.line):
            if is_blank(line):
                self._policy.counts["empty_lines"] += 1
                continue
            try:
                row = parsed(line)
            except BadLineError as error:
                problem = error.problem
                if problem.kind == "broken" and is_cut_off and number == block.line + len(lines) - 1:
                    problem = Problem("truncated", f"the last line of the file is cut short: {problem.what}")
                self._policy.meet(self._file, number, problem, line)
                continue
            yield number, row


def _cut(block: Block, size: int) -> Iterator[Block]:
    """Yield a block in pieces of whole lines of about `size` bytes."""
    begin, line = 0, block.line
    while begin < len(block.data):
        end = block.data.find(b"\n", begin + size) + 1 or len(block.data)
        data = block.data[begin:end]
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        yield Block(data, block.offset + begin, line, lines)
        begin, line = end, line + lines
