"""What the engine asks of a dataset: a fixed order of rows that can be read from anywhere."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Source(Protocol):
    """Rows in a fixed order, in the columns and types of the run's output.

    One source is used by one thread at a time; different sources may be used in different threads.
    """

    @property
    def name(self) -> str:
        """The dataset's name."""
        ...

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The schema of every table that `read` returns."""
        ...

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the rows ``[start, stop)``, in any number of chunks.

        Equal calls return equal tables, in this process and in any other. Reading on from where the last call
        stopped decodes nothing twice; reading elsewhere costs what is needed to get there.

        Raises:
            ValueError: Not ``0 <= start <= stop <= rows``.
        """
        ...

    def close(self) -> None:
        """Give files and memory back; closing twice is no error."""
        ...


def check_range(source: Source, start: int, stop: int) -> None:
    """Check that `source` has the rows ``[start, stop)``.

    Raises:
        ValueError: Not ``0 <= start <= stop <= rows``.
    """
    if not 0 <= start <= stop <= source.rows:
        raise ValueError(
            f"dataset {source.name!r}: expected 0 <= start <= stop <= {source.rows}, found start={start}, stop={stop}"
        )
