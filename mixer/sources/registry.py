"""Sources as iterators of rows, for `DataBatcher`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mixer.errors import InputError
from mixer.sources.base import Source

_BLOCK_ROWS = 256


class RowRegistry:
    """Named datasets whose items are rows, each a dict of Python values by column.

    Iterators are independent: each one keeps its own place. They share their source, though, so of one dataset
    all iterators belong to one thread, and taking turns between far-apart ones decodes row groups again.
    """

    def __init__(self, sources: Mapping[str, Source], *, block_rows: int = _BLOCK_ROWS) -> None:
        """Give rows of `sources`, reading `block_rows` of them at a time."""
        self._sources = dict(sources)
        self._block_rows = block_rows

    def get_iterator(self, name: str, offset: int = 0) -> Iterator[dict[str, Any]]:
        """Return an iterator over the rows of dataset `name` from its zero-based row `offset`.

        It is opened there directly. At the dataset's end, or beyond it, it has no rows.

        Raises:
            InputError: There is no dataset of that name.
            ValueError: `offset` is negative.
        """
        if name not in self._sources:
            raise InputError(f"dataset {name!r}: expected one of {sorted(self._sources)}")
        if offset < 0:
            raise ValueError(f"dataset {name!r}: expected an offset from 0, found {offset}")
        return self._rows(self._sources[name], offset)

    def _rows(self, source: Source, offset: int) -> Iterator[dict[str, Any]]:
        for start in range(offset, source.rows, self._block_rows):
            yield from source.read(start, min(start + self._block_rows, source.rows)).to_pylist()
