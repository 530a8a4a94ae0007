"""A dataset that is gone through over and over, and in a shuffled order: what the engine reads from."""

from __future__ import annotations

import pyarrow as pa

from mixer.core.order import BlockOrder
from mixer.core.passes import Passes, Stretch
from mixer.mixing import reordered
from mixer.sources.base import Source


class PassedSource:
    """The rows of a source in the order of `passes`; offsets count on from one pass to the next.

    A shuffled block is read whole and kept, already in its order, until the reader has passed it. If all rows are
    shuffled among each other, the source is a copy that holds one pass after the other, in their orders.
    """

    def __init__(self, source: Source, passes: Passes) -> None:
        """Read `source`: `passes.size` rows, or for a full shuffle as many times that as it holds passes."""
        self._source = source
        self._passes = passes
        self._block: tuple[int, int, pa.Table] | None = None

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def rows(self) -> int:
        """Rows of one pass."""
        return self._passes.size

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the items ``[start, stop)``, counted over all passes."""
        if start == stop:
            return self.schema.empty_table()
        return pa.concat_tables(self._read_stretch(stretch) for stretch in self._passes.stretches(start, stop))

    def close(self) -> None:
        self._block = None
        self._source.close()

    def _read_stretch(self, stretch: Stretch) -> pa.Table:
        if self._passes.full:
            first = stretch.epoch * self._passes.size
            return self._source.read(first + stretch.start, first + stretch.stop)
        order = self._passes.order(stretch.epoch)
        if not isinstance(order, BlockOrder):
            return self._source.read(stretch.start, stretch.stop)
        tables = []
        position = stretch.start
        while position < stretch.stop:
            turn, first, last = order.block_at(position)
            end = min(stretch.stop, last)
            block = self._shuffled(stretch.epoch, turn, order)
            tables.append(block.slice(position - first, end - position))
            if end == last:
                self._block = None
            position = end
        return pa.concat_tables(tables)

    def _shuffled(self, epoch: int, turn: int, order: BlockOrder) -> pa.Table:
        if self._block is None or self._block[:2] != (epoch, turn):
            # Let go of the last one first.
            self._block = None
            start, stop = order.stored_rows(turn)
            table = reordered(self._source.read(start, stop), order.inside(turn))
            self._block = (epoch, turn, table)
        return self._block[2]
