"""The verb `where`: which row of which dataset and file stands at a place of the mix, and where a row stands in it.

The answer is the plan's, so the log's end and, of each shard that is named, one slot is all that is read: no shard,
no input and no prepared copy. It costs the same at the end of a run as at its beginning.

A dataset that is prepared is read from its last copy, and it is this copy's file and row that are told.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from mixer import building, planning
from mixer.ancestry import Origin, holding
from mixer.core import commits
from mixer.core.arguments import whole_number
from mixer.core.commits import Slot
from mixer.core.locating import Spot, spot_at, spot_of, times_taken
from mixer.core.plan import Plan, shard_path
from mixer.errors import ConfigError, CorruptionError, OutputError
from mixer.log import Tail
from mixer.planning import Planned
from mixer.shards import WriterSettings
from mixer.sources.inventory import Inventory
from mixer.sources.windows import ids_in, windows_in, windows_to_make

MOST = 20
"""Places of one row that are told at the most; a dataset may be gone through without end."""


Item = Literal["row", "window", "batch"]
"""What a dataset is made of: rows, windows of a stream of token ids, or batches of equally long rows."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows ``[start, stop)`` of one file."""

    file: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Location:
    """One row of the mix: its place there, its shard, its dataset and its input file. All numbers are from 0."""

    batch: int
    slot: int
    """Its place in the batch."""
    row: int
    """Its place in the whole mix."""
    committed: bool
    """Whether its shard is part of the run by now."""
    output: str
    """The output in which its shard lies, or is to lie: another one where a fork has the shard from there."""
    shard: int
    path: str
    """Name of the shard's object, relative to `output`."""
    shard_row: int
    """Its place in the shard."""
    row_group: int
    """Its row group in the shard, by the settings of the start that committed it. Only where that start found the shard
    there, written under other settings by a start that was killed before it committed it, the file is cut otherwise."""
    row_group_row: int
    """Its place in that row group."""
    dataset: str
    item: Item
    dataset_row: int
    """Its position in the dataset as stored, over all files, or the number of the window or batch that it is: what the
    column `_row` says. Rows in random order, all among each other, have the numbers that they had before."""
    epoch: int
    """In which pass over the dataset it is taken."""
    offset: int
    """Which item of the dataset it is, counted over all passes."""
    ids: tuple[int, int] | None
    """Of a window: from which id of the stream to before which one. They are fewer than others have where a last
    window is filled up. None of another item."""
    copy: str | None
    """Key of the prepared copy that it is read from; None if that is the input itself."""
    file: str
    """Address of the file that it is read from: an input file, or one of the copy. Of a window of a stream the one in
    which its first id lies, which is the row there."""
    file_row: int
    file_row_group: int
    file_row_group_row: int
    pieces: tuple[Piece, ...]
    """All that is read for it: one row of `file`, or a row for each id of a window, which may lie in several files."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What was asked for, found in the plan of a run."""

    output: str
    run: str
    """Short id of the run."""
    places: tuple[Location, ...]
    """In the order of the mix; the first `MOST` of them."""
    count: int
    """How many places there are."""
    why: str | None
    """Why there is none; None if there is one."""


def where(  # noqa: PLR0913 -- two questions, each by its own names
    output: str,
    *,
    batch: int | None = None,
    slot: int | None = None,
    dataset: str | None = None,
    row: int | None = None,
    epoch: int | None = None,
) -> Whereabouts:
    """Return what stands at a place of a mix, or where a row of a dataset stands in it; nothing is written.

    Args:
        output: Where the run is.
        batch: A batch of the run; with `slot`.
        slot: A place in that batch, from 0.
        dataset: A dataset of the run; with `row`.
        row: A row of it by its position as stored, from 0.
        epoch: Only the pass over the dataset with this number, from 0. Without it, all passes.

    Raises:
        ConfigError: A number is no whole one, or `dataset` is no name.
        OutputError: There is no run at `output`, or the run, as it is planned, has no such batch, slot, dataset or row.
        CorruptionError: What is there is damaged.
        ValueError: Neither batch and slot nor dataset and row are given, or both.
    """
    batch, slot, row, epoch = _whole("batch", batch), _whole("slot", slot), _whole("row", row), _whole("epoch", epoch)
    if dataset is not None and not isinstance(dataset, str):
        raise ConfigError(f"dataset: expected the name of a dataset of the run, found {dataset!r}")
    found = building.look(output).checked()
    run, url = found.run, found.store.url
    why: str | None = None
    if batch is not None and slot is not None and (dataset, row, epoch) == (None, None, None):
        spots, count = [_spot_at(run.plan, batch, slot, url)], 1
    elif dataset is not None and row is not None and (batch, slot) == (None, None):
        place = _place(run, dataset, row, epoch, url)
        times = times_taken(run.plan, place, row)
        epochs = range(times) if epoch is None else range(epoch, epoch + (epoch < times))
        offsets = (run.plan.passes[place].offset(number, row) for number in epochs[:MOST])
        spots, count = [spot_of(run.plan, place, offset, row) for offset in offsets], len(epochs)
        why = None if count else _why_nowhere(run, place, row, epoch or 0)
    else:
        raise ValueError("expected either a batch and a slot, or a dataset and a row of it (and perhaps an epoch)")
    places = _located(spots, run, Origin(found.store, found.began, None), found.tail)
    return Whereabouts(output, run.run[:12], tuple(places), count, why)


def _whole(name: str, value: int | None) -> int | None:
    try:
        return None if value is None else whole_number(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _spot_at(plan: Plan, batch: int, slot: int, url: str) -> Spot:
    try:
        return spot_at(plan, batch, slot)
    except IndexError as error:
        raise OutputError(f"{url}: {error}") from error


def _item(run: Planned, dataset: str) -> Item:
    asked = run.config.datasets[dataset]
    if asked.window is not None:
        return "window"
    return "row" if asked.batches is None else "batch"


def _place(run: Planned, dataset: str, row: int, epoch: int | None, url: str) -> int:
    """Return which of the run's datasets is meant, having checked that it has such a row.

    Raises:
        OutputError: The run has no such dataset, or the dataset no such row; the message says what there is.
    """
    plan = run.plan
    if dataset not in plan.names:
        close = difflib.get_close_matches(dataset, plan.names, n=1)
        said = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(map(repr, plan.names[:20]))}"
        raise OutputError(f"{url}: the run has no dataset {dataset!r}; {said}")
    place = plan.names.index(dataset)
    rows, item = plan.sizes[place], _item(run, dataset)
    if not 0 <= row < rows:
        has = f"has {_MANY[item]} 0 to {rows - 1}" if rows else "is empty"
        raise OutputError(f"{url}: {item} {row}: dataset {dataset!r} {has}")
    if epoch is not None and epoch < 0:
        raise OutputError(f"{url}: epoch {epoch}: epochs are numbered from 0")
    return place


_MANY: dict[Item, str] = {"row": "rows", "window": "windows", "batch": "batches"}


def _why_nowhere(run: Planned, place: int, row: int, epoch: int) -> str:
    """Return why a row is not taken in a pass."""
    plan = run.plan
    name, size = plan.names[place], plan.sizes[place]
    taken = plan.schedule.offsets_at(plan.batches)[place]
    if not taken:
        return f"the run takes nothing of dataset {name!r}"
    begun = -(-taken // size)
    if epoch >= begun:
        passes = "one pass" if begun == 1 else f"{begun} passes"
        return f"the run begins {passes} over dataset {name!r}, so there is no epoch {epoch}"
    position = plan.passes[place].offset(epoch, row) - epoch * size
    return (
        f"it is beyond what the run takes: in epoch {epoch} {_item(run, name)} {row} of dataset {name!r} would come "
        f"at position {position}, and the run takes positions 0 to {taken - epoch * size - 1} of the {size} there are"
    )


def _located(spots: Sequence[Spot], run: Planned, itself: Origin, tail: Tail) -> Iterator[Location]:
    """Yield where each of `spots`, which are in the order of the mix, lies."""
    plan = run.plan
    done, _ = run.done(tail.commit)
    written = sorted({spot.shard for spot in spots if spot.shard < done})
    lies_in, batches = _shards(written, itself)
    # A start goes on under the settings of the one before it, unless it is asked to do otherwise.
    next_ = run.settings if tail.physical is None else _settings(tail.physical, plan, itself.store.url)
    for spot in spots:
        rows = plan.batch_size * batches.get(spot.shard, next_.batches_per_row_group)
        row_group, row_group_row = divmod(spot.shard_row, rows)
        inventory = run.inventories[spot.dataset]
        ids, start, stop = _read(run, spot)
        file, file_row, file_row_group, file_row_group_row = in_files(inventory, start)
        yield Location(
            batch=spot.batch,
            slot=spot.slot,
            row=spot.batch * plan.batch_size + spot.slot,
            committed=spot.shard < done,
            output=lies_in.get(spot.shard, itself.store.url),
            shard=spot.shard,
            path=shard_path(spot.shard),
            shard_row=spot.shard_row,
            row_group=row_group,
            row_group_row=row_group_row,
            dataset=spot.dataset,
            item=_item(run, spot.dataset),
            dataset_row=spot.dataset_row,
            epoch=spot.epoch,
            offset=spot.offset,
            ids=ids,
            copy=inventory.copy_key,
            file=file,
            file_row=file_row,
            file_row_group=file_row_group,
            file_row_group_row=file_row_group_row,
            pieces=tuple(pieces_of(inventory, start, stop)),
        )


def _read(run: Planned, spot: Spot) -> tuple[tuple[int, int] | None, int, int]:
    """Return the ids that an item has if it is a window, and which rows of the dataset's files are read for it."""
    inventory, window = run.inventories[spot.dataset], run.config.datasets[spot.dataset].window
    ids = None
    if window is not None:
        there = ids_in(inventory)
        if type(there) is not int:
            raise CorruptionError(f"dataset {spot.dataset!r}: its prepared copy does not say how many ids there are")
        ids = windows_in(window).ids(spot.dataset_row, spot.dataset_row + 1, there)
        if windows_to_make(window, inventory) is not None:
            return ids, *ids
    # All rows in random order lie in a copy as they come, one pass after the other.
    row = spot.offset if run.plan.passes[run.plan.names.index(spot.dataset)].full else spot.dataset_row
    return ids, row, row + 1


def _shards(shards: Sequence[int], itself: Origin) -> tuple[dict[int, str], dict[int, int]]:
    """Return of each of `shards`, which are committed, the output in which it lies, and its batches in a row group.

    Raises:
        CorruptionError: A run that a fork has them from is gone or another one, or a slot is missing or damaged.
    """
    outputs: dict[int, str] = {}
    batches: dict[int, int] = {}
    for origin in holding(itself, min(shards, default=itself.start), building.started):
        here = [number for number in shards if number >= origin.start and (origin.stop is None or number < origin.stop)]
        found = zip(here, origin.slots(here), strict=False)
        for number, (slot, commit) in found:
            if commit.shard != number:
                break
            outputs[number] = origin.store.url
            batches[number] = _batches_per_row_group(origin, slot)
        missing = next((number for number in here if number not in outputs), None)
        if missing is not None:
            raise CorruptionError(
                f"{origin.store.url}: shard {missing} is committed, but no slot says so; restore {commits.LOG_PREFIX} "
                f"from a copy"
            )
    return outputs, batches


def _batches_per_row_group(origin: Origin, slot: Slot) -> int:
    """Return how many batches make a row group in the shard that `slot` commits."""
    opening = origin.log.opening(slot)
    where = f"{origin.store.url}/{commits.slot_name(opening.number)}"
    return _settings(opening.payload.get("physical") or {}, origin.began.plan, where).batches_per_row_group


def _settings(physical: Mapping[str, Any], plan: Plan, where: str) -> WriterSettings:
    try:
        return planning.settings_from_json(physical, plan.batches_per_shard)
    except CorruptionError as error:
        raise CorruptionError(f"{where}: {error}") from error


def in_files(inventory: Inventory, row: int) -> tuple[str, int, int, int]:
    """Return in which file a row of a dataset lies: its address, the row there, its row group, and the row in that.

    >>> from mixer.sources.inventory import FileEntry
    >>> files = [FileEntry("/a.parquet", 400, "1", 2, (2,), 90, "ab")]
    >>> files += [FileEntry("/b.parquet", 400, "1", 5, (3, 2), 90, "cd")]
    >>> in_files(Inventory(tuple(files), ignored=()), 6)
    ('/b.parquet', 4, 1, 1)
    """
    number, file_row = _part([file.rows for file in inventory.files], row)
    file = inventory.files[number]
    return file.url, file_row, *_part(file.row_group_rows, file_row)


def pieces_of(inventory: Inventory, start: int, stop: int) -> Iterator[Piece]:
    """Yield where the rows ``[start, stop)`` of a dataset lie, file by file; files without any are left out.

    >>> from mixer.sources.inventory import FileEntry
    >>> files = [FileEntry("/a.parquet", 400, "1", 2, (2,), 90, "ab")]
    >>> files += [FileEntry("/b.parquet", 400, "1", 5, (3, 2), 90, "cd")]
    >>> list(pieces_of(Inventory(tuple(files), ignored=()), 1, 4))
    [Piece(file='/a.parquet', start=1, stop=2), Piece(file='/b.parquet', start=0, stop=2)]
    """
    before = 0
    for file in inventory.files:
        first, last = max(start, before), min(stop, before + file.rows)
        if first < last:
            yield Piece(file.url, first - before, last - before)
        before += file.rows


def _part(sizes: Sequence[int], row: int) -> tuple[int, int]:
    """Return in which of consecutive parts a row lies, and where in it."""
    ends = list(accumulate(sizes))
    number = bisect_right(ends, row)
    return number, row - (ends[number] - sizes[number])
