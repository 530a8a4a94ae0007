"""What the formats of lines and of JSON have in common: a stream, its blocks of rows, and the policy over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

from mixer.closing import closed_on_error
from mixer.formats.base import Piece, Policy, Position, Reading
from mixer.formats.json_types import leaves
from mixer.formats.lines import Block, Blocks
from mixer.formats.streams import Stream
from mixer.storage.inputs import InputFile

BlocksT = TypeVar("BlocksT", bound=Blocks)

_LEAF_BYTES = 8
"""About what a value of a row takes that is null, a number or an empty text."""


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes at least, whatever it holds.

    >>> row_bytes(pa.schema({"a": pa.string(), "b": pa.struct({"c": pa.int64()})}))
    16
    """
    return _LEAF_BYTES * sum(1 for _ in leaves(schema))


def most_lines(most_bytes: int, schema: pa.Schema) -> int:
    """Return how many rows take about `most_bytes` if they are as short as can be.

    >>> most_lines(160, pa.schema({"a": pa.string(), "b": pa.int64()}))
    10
    """
    return max(1, most_bytes // max(1, row_bytes(schema)))


class BlockReading(Reading, Generic[BlocksT]):
    """A file that is being read block by block; what the lines of these become is for its children to say.

    Args:
        policy: What becomes of bad lines.
        file: The file.
        schema: Columns of the rows.
        at: Where to begin.
        blocks: Begins the blocks of a stream that is at that position.
    """

    def __init__(
        self,
        policy: Policy,
        file: InputFile,
        schema: pa.Schema,
        at: Position,
        blocks: Callable[[Stream, Position], BlocksT],
    ) -> None:
        self.policy, self.file, self.schema = policy, file, schema
        self._stream = Stream(file, at.offset)
        with closed_on_error(self._stream):
            self.blocks = blocks(self._stream, at)
        if self.blocks.has_bom:
            self.policy.counts["byte_order_marks"] += 1

    def take(self, most_bytes: int) -> Piece | None:
        """Return the next rows, of about `most_bytes` bytes; None at the end of the file."""
        block = self.blocks.take(most_bytes, most_lines(most_bytes, self.schema))
        if block is None:
            return None
        block, table = self.rows(block)
        bad, counts = self.policy.take()
        size = max(len(block.data), block.lines * row_bytes(self.schema))
        return Piece(table, size, self.blocks.position, bad, counts)

    @abstractmethod
    def rows(self, block: Block) -> tuple[Block, pa.Table]:
        """Return the rows of a block, and the block: with more lines, if its last row goes on in these."""

    def longer(self, block: Block, more: list[Block]) -> Block:
        """Return a block with those that came after it."""
        data = b"".join([block.data, *(part.data for part in more)])
        return Block(data, block.offset, block.line, block.lines + sum(part.lines for part in more))

    def close(self) -> None:
        self._stream.close()
