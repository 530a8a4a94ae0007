"""Batches of items of one length each, so that nothing is padded: sorting and counting, and no loop over items.

How many batches there are, and what is left over, follows from how often each length occurs, whatever the order; see
`LengthGroups`. An order comes in when the batches themselves are asked for: items are brought into a random order, then
sorted by length, stably, so that those of one length stand together and are still shuffled; each such run is cut into
batches, and the batches are shuffled in turn.

With several ranks, a step is one batch for each, all of one length and one size. Steps are what is shuffled, and what
does not fill a step is left over, so no rank ever waits for another, or has other shapes than it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mixer.core.arguments import whole_number
from mixer.core.order import random_keys, random_order, sorted_places

Int64s = npt.NDArray[np.int64]

_SPARSE = 4
"""Lengths are counted in a table of up to so many entries an item, and sorted beyond that."""
_SMALL_TABLE = 1 << 20


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches one after the other: batch ``b`` is ``order[offsets[b] : offsets[b + 1]]``."""

    order: Int64s
    """Items, batch by batch, shape ``(kept,)``."""
    offsets: Int64s
    """Where each batch begins, and where the last one ends, shape ``(batches + 1,)``."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Dropped:
    """What becomes of the items of one epoch, by number.

    >>> groups = group_by_length([5, 5, 5, 9], 2, maxlen=8)
    >>> groups.dropped()
    Dropped(items=4, kept=2, too_long=1, surplus=1, surplus_by_length={5: 1})
    >>> print(groups.dropped())
    2 of 4 items are in batches; 1 too long, 1 left over
    """

    items: int
    """All that there are."""
    kept: int
    """Those that come in some batch."""
    too_long: int
    """Those that are longer than `maxlen`; the same ones in each epoch."""
    surplus: int
    """Those left over of some length, since they fill no batch; other ones in each epoch."""
    surplus_by_length: dict[int, int]
    """Of how many items of each length that is, for lengths with a surplus."""

    def __str__(self) -> str:
        return f"{self.kept} of {self.items} items are in batches; {self.too_long} too long, {self.surplus} left over"


@dataclass(frozen=True, eq=False)
class LengthGroups:
    """How items fall into batches by length: all that does not depend on an order."""

    codes: npt.NDArray[np.unsignedinteger]
    """The place of each item's length in `lengths`, shape ``(items,)``."""
    lengths: Int64s
    """Each length that occurs once, ascending, shape ``(lengths,)``; so are all that follow."""
    items: Int64s
    """How many items have the length."""
    sizes: Int64s
    """Items of a whole batch; 0 if the length is over the limit."""
    whole_steps: Int64s
    """Steps of whole batches."""
    partial: Int64s
    """Items of each rank in the one step that is filled with what is left over; 0 if there is none."""
    world_size: int
    """Batches of a step."""

    @property
    def steps(self) -> int:
        """Steps of one epoch: batches of each rank."""
        return int(self.whole_steps.sum() + np.count_nonzero(self.partial))

    def dropped(self) -> Dropped:
        """Return how many items are in no batch, and why."""
        kept = (self.whole_steps * self.sizes + self.partial) * self.world_size  # (lengths,)
        allowed = self.sizes > 0
        surplus = np.where(allowed, self.items - kept, 0)
        some = np.flatnonzero(surplus)
        return Dropped(
            items=len(self.codes),
            kept=int(kept.sum()),
            too_long=int(self.items[~allowed].sum()),
            surplus=int(surplus.sum()),
            surplus_by_length=dict(zip(self.lengths[some].tolist(), surplus[some].tolist(), strict=True)),
        )

    def batches(self, *path: str | int) -> Batches:
        """Return the batches of all ranks: those of step ``s`` are ``s * world_size`` and the `world_size - 1` next.

        Args:
            path: Names the order, by the rules of `random_order`; two orders are made of it, one of the items and one
                of the steps. Without any, items come as stored, and lengths from the shortest.
        """
        sizes, starts = self._cut()
        if path:
            steps = random_order(self.steps, *path, "steps")
            turn = (steps[:, None] * self.world_size + np.arange(self.world_size)).ravel()  # (batches,)
            sizes, starts = sizes[turn], starts[turn]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        return Batches(self._by_length(*path)[_ranges(starts, offsets)], offsets)

    def _cut(self) -> tuple[Int64s, Int64s]:
        """Return the size of each batch, and where it begins among the items by length, two of shape ``(batches,)``."""
        # Each length has a stretch of steps with whole batches and one, perhaps empty, with those that are not.
        steps = np.stack([self.whole_steps, np.sign(self.partial)], axis=1).ravel()  # (lengths * 2,)
        size = np.stack([self.sizes, self.partial], axis=1).ravel()
        first = (np.cumsum(self.items) - self.items)[:, None] + np.stack(
            [np.zeros_like(self.sizes), self.whole_steps * self.sizes * self.world_size], axis=1
        )
        batches = steps * self.world_size
        within = np.arange(batches.sum()) - np.repeat(np.cumsum(batches) - batches, batches)
        sizes = np.repeat(size, batches)
        return sizes, np.repeat(first.ravel(), batches) + within * sizes

    def _by_length(self, *path: str | int) -> Int64s:
        """Return all items by length, and those of one length in the named order, shape ``(items,)``."""
        if not path:
            return np.argsort(self.codes, kind="stable").astype(np.int64, copy=False)
        return sorted_places(random_keys(len(self.codes), *path, "items"), self.codes)


def _ranges(starts: Int64s, offsets: Int64s) -> Int64s:
    """Return ``starts[b], starts[b] + 1, ...`` for each batch, as many as it has items, which is at least one."""
    places = np.ones(int(offsets[-1]), dtype=np.int64)
    # One running sum in place: a step of one within a batch, and a jump to where the next begins.
    if len(starts):
        places[0] = starts[0]
        places[offsets[1:-1]] = starts[1:] - starts[:-1] - np.diff(offsets)[:-1] + 1
    return np.cumsum(places, out=places)


def group_by_length(  # noqa: PLR0913 -- the options of the sampler
    lengths: npt.ArrayLike,
    batch_size: int,
    *,
    length_to_size: Mapping[int, int] | None = None,
    include_partial: bool = False,
    maxlen: int | None = None,
    world_size: int = 1,
) -> LengthGroups:
    """Work out how items fall into batches of one length each.

    Args:
        lengths: The length of each item, whole numbers from 0, shape ``(items,)``.
        batch_size: Items of a batch, where `length_to_size` says nothing else.
        length_to_size: Sizes by length: each holds from its length upward, until the next.
        include_partial: Whether what is left of a length becomes a smaller batch. With several ranks it is shared
            out evenly, and only what cannot be is left over.
        maxlen: Leave out items that are longer; None, 0 or less leaves out none.
        world_size: Ranks; each has a batch in every step.

    Raises:
        ValueError: An argument is not what it should be; the message says which.

    >>> groups = group_by_length([3, 7, 3, 3, 7, 3, 3], 2)
    >>> groups.steps, groups.dropped().surplus_by_length
    (3, {3: 1})
    >>> batches = groups.batches(17, "web")
    >>> batches.order.tolist(), batches.offsets.tolist()
    ([0, 3, 5, 2, 4, 1], [0, 2, 4, 6])
    """
    world_size = whole_number("world_size", world_size, least=1)
    limit = 0 if maxlen is None else whole_number("maxlen", maxlen)
    if not isinstance(include_partial, (bool, np.bool_)):
        raise ValueError(  # noqa: TRY004 -- bad arguments are one kind of error
            f"include_partial: expected True or False, found {include_partial!r}"
        )
    thresholds, sizes_from = size_table(batch_size, length_to_size)
    codes, distinct, items = _counted(checked_lengths(lengths))
    sizes = sizes_from[np.searchsorted(thresholds, distinct, side="right")]
    if limit > 0:
        sizes = np.where(distinct > limit, 0, sizes)
    whole_steps = items // np.maximum(sizes * world_size, 1) * (sizes > 0)
    left = np.where(sizes > 0, items - whole_steps * sizes * world_size, 0)
    partial = left // world_size if include_partial else np.zeros_like(left)
    return LengthGroups(codes, distinct, items, sizes, whole_steps, partial, world_size)


def size_table(batch_size: int, length_to_size: Mapping[int, int] | None) -> tuple[Int64s, Int64s]:
    """Return the lengths from which a size holds, ascending, and the sizes: one more, the first for what lies below.

    Raises:
        ValueError: A size is less than 1, a length less than 0, or one of them no whole number.

    >>> [part.tolist() for part in size_table(64, {100: 8, 50: 16})]
    [[50, 100], [64, 16, 8]]
    """
    batch_size = whole_number("batch_size", batch_size, least=1)
    if length_to_size is None:
        length_to_size = {}
    if not isinstance(length_to_size, Mapping):
        raise ValueError(  # noqa: TRY004 -- bad arguments are one kind of error
            f"length_to_size: expected a mapping of lengths to batch sizes, found {length_to_size!r}"
        )
    table = {
        whole_number("length_to_size: a length", length, least=0): whole_number(
            f"length_to_size[{length!r}]", size, least=1
        )
        for length, size in length_to_size.items()
    }
    lengths = sorted(table)
    try:
        return (
            np.array(lengths, dtype=np.int64),
            # A batch of more items than can be counted here is never full; products of it with ranks must fit too.
            np.array([batch_size, *(table[length] for length in lengths)], dtype=np.int32).astype(np.int64),
        )
    except OverflowError:
        raise ValueError(
            f"batch_size, length_to_size: expected sizes below 2**31 and lengths below 2**63, "
            f"found {batch_size} and {dict(length_to_size)}"
        ) from None


def checked_lengths(lengths: npt.ArrayLike) -> Int64s:
    """Return lengths as an array of 64-bit integers, without a copy if they are one.

    Raises:
        ValueError: They are no whole numbers from 0, or have not one dimension.

    >>> checked_lengths([3, -1])
    Traceback (most recent call last):
    ValueError: lengths: expected whole numbers from 0, found -1 for item 1
    """
    array = np.asarray(lengths)
    if array.ndim != 1:
        raise ValueError(f"lengths: expected one dimension, found the shape {array.shape}")
    if not len(array):
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"lengths: expected whole numbers, found {array.dtype}")
    wide = array.astype(np.int64, copy=False)
    least = int(wide.argmin())
    if wide[least] < 0:
        raise ValueError(f"lengths: expected whole numbers from 0, found {int(array[least])} for item {least}")
    return wide


def _counted(lengths: Int64s) -> tuple[npt.NDArray[np.unsignedinteger], Int64s, Int64s]:
    """Return the place of each item's length among those that occur, these lengths, and how often each occurs."""
    top = int(lengths.max(initial=0))
    if top < max(_SMALL_TABLE, _SPARSE * len(lengths)):
        table = np.bincount(lengths)
        distinct = np.flatnonzero(table)
        # Few kinds of lengths fit 16 bits, which NumPy sorts by counting.
        code = np.zeros(len(table), dtype=_code_type(len(distinct)))
        code[distinct] = np.arange(len(distinct))
        return code[lengths], distinct.astype(np.int64), table[distinct].astype(np.int64)
    distinct, inverse, items = np.unique(lengths, return_inverse=True, return_counts=True)
    return inverse.astype(_code_type(len(distinct))), distinct, items.astype(np.int64)


def _code_type(kinds: int) -> type[np.uint16 | np.uint32 | np.uint64]:
    if kinds <= 1 << 16:
        return np.uint16
    return np.uint32 if kinds <= 1 << 32 else np.uint64
