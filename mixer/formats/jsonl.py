"""JSON lines: blocks by the fast way where it is sure to be right, and what is in doubt line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from mixer.errors import ChangedError
from mixer.formats.base import Piece, Policy, Position, Problem, Reading
from mixer.formats.json_fast import fast_table
from mixer.formats.json_lines import BadLineError, fitted, is_blank, parse
from mixer.formats.json_types import Learner, leaves
from mixer.formats.lines import Block, LineBlocks
from mixer.formats.options import RowsOptions
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

LEARN_BYTES = 4 << 20
_DOUBT_BYTES = 128 << 10
"""A block that is in doubt is cut into pieces of about this size, most of which are in no doubt."""
_LEAF_BYTES = 8
"""About what a value of a row takes that is null or a number."""


class JsonLines:
    """JSON lines, NDJSON: an object in each line.

    Args:
        dataset: The dataset's name, for errors.
        options: What becomes of bad lines.
    """

    def __init__(self, dataset: str, options: RowsOptions) -> None:
        self._dataset, self._options = dataset, options

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns of all lines of all files, which are read to their ends."""
        learner = Learner(self._dataset)
        for file in files:
            with Stream(file) as stream:
                blocks = LineBlocks(stream, Position())
                rows = RowMaker(Policy(self._dataset, self._options), file)
                while block := blocks.take(LEARN_BYTES, most_lines(LEARN_BYTES, learner.schema())):
                    rows.learn(block, learner)
        return learner.finished()

    def open(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        return _Reading(self._dataset, self._options, file, schema, at)


class _Reading:
    def __init__(self, dataset: str, options: RowsOptions, file: InputFile, schema: pa.Schema, at: Position) -> None:
        self._policy = Policy(dataset, options)
        self._rows, self._schema = RowMaker(self._policy, file), schema
        self._stream = Stream(file, at.offset)
        try:
            self._blocks = LineBlocks(self._stream, at)
        except BaseException:
            self._stream.close()
            raise
        if self._blocks.has_bom:
            self._policy.counts["byte_order_marks"] += 1

    def take(self, most_bytes: int) -> Piece | None:
        block = self._blocks.take(most_bytes, most_lines(most_bytes, self._schema))
        if block is None:
            return None
        table = self._rows.table(block, self._schema)
        bad, counts = self._policy.take()
        size = max(len(block.data), block.lines * row_bytes(self._schema))
        return Piece(table, size, block.after, bad, counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes at least, whatever it holds."""
    return _LEAF_BYTES * sum(1 for _ in leaves(schema))


def most_lines(most_bytes: int, schema: pa.Schema) -> int:
    """Return how many rows take about `most_bytes` if they are as short as can be."""
    return max(1, most_bytes // max(1, row_bytes(schema)))


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
            self._policy.take()

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
            raise ChangedError(
                f"input file {self._file.url}, lines {block.line} to {block.line + block.lines - 1}: {error}; the "
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
