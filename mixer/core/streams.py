"""Windows as the items of a dataset: from a config's context length and stride to windows of a stream, by number.

A stream of N ids has the whole windows that `mixer.core.windows` counts and, if it is padded, one more at its end for
what they leave over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixer.core.windows import tail_start, window_count, window_range

BLOCK_BYTES = 64 << 20
"""About how many bytes of decoded windows make a block to shuffle."""
_SHORT = 1 << 16


def id_type(vocabulary: int) -> type[np.uint16 | np.uint32]:
    """Return the type that holds the ids below `vocabulary`.

    >>> id_type(65_536), id_type(65_537)
    (<class 'numpy.uint16'>, <class 'numpy.uint32'>)
    """
    return np.uint16 if vocabulary <= _SHORT else np.uint32


@dataclass(frozen=True, slots=True)
class Windows:
    """Which windows of a stream are the items of a dataset.

    >>> windows = Windows(context_length=4, stride=4, padded=True)
    >>> windows.count(10), windows.ids(2, 3, 10)
    (3, (8, 10))
    """

    context_length: int
    """T; a window holds T + 1 ids."""
    stride: int
    """Ids from the beginning of one window to that of the next."""
    padded: bool = False
    """Whether what is left over at the end makes a window, filled up."""

    @property
    def length(self) -> int:
        """Ids in a window."""
        return self.context_length + 1

    def count(self, ids: int) -> int:
        """Return how many windows a stream of so many ids has."""
        has_tail = self.padded and tail_start(ids, self.context_length, self.stride) is not None
        return window_count(ids, self.context_length, self.stride) + has_tail

    def ids(self, start: int, stop: int, ids: int) -> tuple[int, int]:
        """Return the ids ``[first, end)`` of a stream of so many that the windows ``[start, stop)`` cover."""
        first, end = window_range(start, stop, self.context_length, self.stride)
        return first, min(end, ids)

    def blocks(self, ids: int, id_bytes: int) -> tuple[int, ...]:
        """Return how many windows make each block to shuffle: as many as take `BLOCK_BYTES`, the last may be smaller.

        Args:
            ids: Length of the stream.
            id_bytes: What an id takes in a window, with all that is said of it.

        >>> Windows(context_length=(1 << 22) - 1, stride=1).blocks((1 << 22) + 8, 4)
        (4, 4, 1)
        """
        size = max(1, BLOCK_BYTES // (self.length * id_bytes))
        whole, rest = divmod(self.count(ids), size)
        return (size,) * whole + ((rest,) if rest else ())
