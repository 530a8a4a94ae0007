"""What a run will cost, as far as footers tell: reads, memory, bytes; and what to know before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mixer.asking import epochs_in, item_bytes
from mixer.core.forecast import Memory, Ranks, common_ranks, ending_batches, memory_of, phase_stops
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.core.reads import NOTHING, Layout, Reads, WindowLayout, reads_of
from mixer.planning import Planned
from mixer.sources.groups import Limits
from mixer.sources.inventory import FileEntry, Inventory
from mixer.sources.windows import windows_in, windows_to_make
from mixer.storage.inputs import is_remote

_SHARDS_LOOKED_AT = 32
_RANGES_LOOKED_AT = 10_000
"""Ranges of datasets by shards, for what shards cost that are made alone."""
_MERGED_READ_BYTES = 32 << 20
"""Arrow fetches neighbouring columns of a remote file together, up to so many bytes."""
_REMOTE_BUFFER_BYTES = 4 << 20
_LOCAL_BUFFER_BYTES = 256 << 10
"""See `mixer.sources.files`: the buffer of each column of a row group that is decoded in pieces."""
_ORDER_BYTES = 16
"""Of each row, while the order of all rows is made: random numbers, places, and what sorting them takes."""


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """What comes of a phase."""

    batches: int
    rows: tuple[int, ...]
    """Items of each dataset."""


@dataclass(frozen=True, slots=True)
class DatasetForecast:
    """What comes of a dataset."""

    items: int
    """Items that the run takes, over all passes."""
    exact_items: Fraction
    """What its weights would give it if items could be cut."""
    ending_batch: int | None
    """The batch that takes the last of its items; None if some are left, or it has no end."""
    used_bytes: int
    """The bytes of files that its items take, each as many as the others of its file; once for each time."""
    output_bytes: int
    """The bytes that they take in shards, if these compress as well: windows that overlap take shared ids anew."""
    reads: Reads
    """What is read of it in one go."""


@dataclass(frozen=True, slots=True)
class SameFile:
    """Files that are, or seem to be, one file under several names."""

    files: tuple[tuple[str, str], ...]
    """Dataset and URL of each."""
    certain: bool
    """Whether it is one path; if not, size and footer are equal."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What follows from a plan and the footers of its inputs."""

    datasets: tuple[DatasetForecast, ...]
    phases: tuple[PhaseForecast, ...]
    ranks: tuple[Ranks, ...]
    reads: Reads
    """All datasets' `reads`, and the footers."""
    used_bytes: int
    alone_amplification: float
    """If each shard were made by a process of its own: bytes read by bytes used."""
    alone_bytes: int
    """What such a shard reads on average."""
    alone_shards: int
    """How many shards this was looked up for; fewer than there are in a long run."""
    memory: Memory
    output_bytes: int
    duplicates: tuple[SameFile, ...]
    warnings: tuple[str, ...]


def forecast(planned: Planned) -> Forecast:
    """Return what `planned` will cost and what to know of it; nothing is read."""
    plan = planned.plan
    layouts = [_layout_of(planned, name) for name in plan.names]
    datasets = tuple(_datasets(planned, layouts))
    amplification, alone_bytes, looked_at = _alone(planned, layouts)
    used_bytes = sum(dataset.used_bytes for dataset in datasets)
    output_bytes = sum(dataset.output_bytes for dataset in datasets)
    footers = sum(len(inventory.files) for inventory in planned.inventories.values())
    stops = phase_stops(plan)
    ranks = common_ranks(plan)
    return Forecast(
        datasets=datasets,
        phases=tuple(_phases(plan, stops)),
        ranks=ranks,
        reads=sum((dataset.reads for dataset in datasets), Reads(0, 0, 0, footers)),
        used_bytes=used_bytes,
        alone_amplification=amplification,
        alone_bytes=alone_bytes,
        alone_shards=looked_at,
        memory=_memory(planned, output_bytes),
        output_bytes=output_bytes,
        duplicates=duplicates(planned.inventories),
        warnings=tuple(_warnings(planned, stops, output_bytes, alone_bytes if amplification >= _MUCH else 0)),
    )


def _datasets(planned: Planned, layouts: list[Layout | WindowLayout]) -> Iterator[DatasetForecast]:
    plan = planned.plan
    ends, taken = ending_batches(plan), plan.schedule.offsets_at(plan.batches)
    exact = plan.schedule.exact_at(plan.batches)
    for place, passes in enumerate(plan.passes):
        used = _stored_bytes(planned, passes, taken[place])
        reads = reads_of(layouts[place], passes, 0, taken[place])
        output = int(used * _repeated(planned, passes))
        yield DatasetForecast(taken[place], exact[place], ends[place], used, output, reads)


def _stored_bytes(planned: Planned, passes: Passes, items: int) -> int:
    """Return the bytes of files that so many items of a dataset take."""
    inventory = planned.inventories[passes.name]
    size = passes.size * epochs_in(inventory)
    return inventory.bytes * items // size if size else 0


def _repeated(planned: Planned, passes: Passes) -> Fraction:
    """Return how often the windows of a stream, taken once, hold each of its ids on average; 1 for rows."""
    inventory = planned.inventories[passes.name]
    window = windows_to_make(planned.config.datasets[passes.name].window, inventory)
    if window is None:
        return Fraction(1)
    return Fraction(passes.size * windows_in(window).length, max(1, inventory.rows))


def _layout_of(planned: Planned, name: str) -> Layout | WindowLayout:
    inventory = planned.inventories[name]
    window = windows_to_make(planned.config.datasets[name].window, inventory)
    if window is None:
        return _layout(inventory, len(planned.schema))
    return WindowLayout(_layout(inventory, 2 if window.documents else 1), windows_in(window))


def _layout(inventory: Inventory, columns: int) -> Layout:
    """Return how a dataset lies; a row group takes its rows' part of the file, as the inventory knows no more."""
    groups = [(entry, rows) for entry in inventory.files for rows in entry.row_group_rows]
    sizes = [entry.bytes * rows // max(1, entry.rows) for entry, rows in groups]
    in_pieces = [_in_pieces(entry, rows) for entry, rows in groups]
    parts = zip(groups, sizes, in_pieces, strict=True)
    requests = [
        _requests(size, columns, remote=is_remote(entry.url), pieces=large) for (entry, _), size, large in parts
    ]
    return Layout(
        np.array([rows for _, rows in groups], dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        np.array(requests, dtype=np.int64),
        np.array(in_pieces, dtype=np.bool_),
    )


def _in_pieces(entry: FileEntry, rows: int) -> bool:
    row_bytes = entry.uncompressed_bytes / max(1, entry.rows)
    return Limits().piece_rows(rows, round(row_bytes * rows), row_bytes) is not None


def _requests(size: int, columns: int, *, remote: bool, pieces: bool) -> int:
    """Return the ranged reads that get a row group of `size` bytes."""
    if pieces:
        buffer = _REMOTE_BUFFER_BYTES if remote else _LOCAL_BUFFER_BYTES
        return max(1, columns) * max(1, -(-size // max(1, columns) // buffer))
    return max(1, -(-size // _MERGED_READ_BYTES)) if remote else max(1, columns)


def _alone(planned: Planned, layouts: list[Layout | WindowLayout]) -> tuple[float, int, int]:
    """Return for shards that are each made from nothing what they read by what they use, and what one reads.

    And how many shards were looked at for it.
    """
    plan = planned.plan
    most = max(1, min(_SHARDS_LOOKED_AT, _RANGES_LOOKED_AT // len(plan.names)))
    step = -(-plan.shard_count // most)
    used, read, shards = 0, NOTHING, range(0, plan.shard_count, step)
    for shard in map(plan.shard, shards):
        for part, layout, passes in zip(shard.ranges, layouts, plan.passes, strict=True):
            if part.rows:
                used += _stored_bytes(planned, passes, part.rows)
                read += reads_of(layout, passes, part.start, part.stop)
    return (read.bytes / used if used else 1.0), read.bytes // len(shards), len(shards)


def _phases(plan: Plan, stops: tuple[int, ...]) -> Iterator[PhaseForecast]:
    start, before = 0, (0,) * len(plan.names)
    for stop in stops:
        after = plan.schedule.offsets_at(stop)
        yield PhaseForecast(stop - start, tuple(more - less for more, less in zip(after, before, strict=True)))
        start, before = stop, after


def _memory(planned: Planned, output_bytes: int) -> Memory:
    plan, limits = planned.plan, Limits()
    decoded, shuffled, row_bytes = [], [], []
    taken = plan.schedule.offsets_at(plan.batches)
    for passes, items in zip(plan.passes, taken, strict=True):
        inventory = planned.inventories[passes.name]
        if not items:
            continue
        row = item_bytes(planned.config.datasets[passes.name], inventory)
        row_bytes.append(row * items)
        decoded.append(max(_decoded(entry, limits, len(planned.schema)) for entry in inventory.files))
        shuffled.append(_shuffled_bytes(passes, row, lineage=planned.config.lineage))
    row = Fraction(sum(row_bytes)) / plan.rows
    return memory_of(
        decoded_bytes=decoded,
        shuffled_bytes=shuffled,
        block=round(min(plan.batches_per_row_group * plan.batch_size, plan.rows) * row),
        shard=output_bytes * plan.shard(0).rows // plan.rows,
    )


def _shuffled_bytes(passes: Passes, row: Fraction, *, lineage: bool) -> int:
    """Return half of what shuffling takes: blocks are there twice; of all rows the order is made in 16 bytes each."""
    if passes.full:
        return _ORDER_BYTES * passes.size // 2 if lineage else 0
    return round(max(passes.blocks) * row) if passes.blocks else 0


def _decoded(entry: FileEntry, limits: Limits, columns: int) -> int:
    """Return the bytes that are decoded of a file at once, with the buffers of what is decoded in pieces."""
    largest = max(entry.row_group_rows, default=0)
    if not _in_pieces(entry, largest):
        return entry.uncompressed_bytes * largest // max(1, entry.rows)
    buffer = _REMOTE_BUFFER_BYTES if is_remote(entry.url) else _LOCAL_BUFFER_BYTES
    return limits.piece_bytes + min(buffer * columns, _MERGED_READ_BYTES)


def duplicates(inventories: Mapping[str, Inventory]) -> tuple[SameFile, ...]:
    """Return files that are listed more than once: under one path, or under several with equal sizes and footers.

    A footer tells where each column lies, how long it is, and as a rule its least and greatest value. Files without
    rows are all alike, and are left out.
    """
    by_path: dict[str, list[tuple[str, str]]] = {}
    by_footer: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for name, inventory in inventories.items():
        for entry in inventory.files:
            if entry.rows:
                by_path.setdefault(entry.url, []).append((name, entry.url))
                by_footer.setdefault((entry.bytes, entry.footer_sha256), []).append((name, entry.url))
    same = [SameFile(tuple(files), certain=True) for files in by_path.values() if len(files) > 1]
    return (
        *same,
        *(SameFile(tuple(files), certain=False) for files in by_footer.values() if len({url for _, url in files}) > 1),
    )


_LARGEST_OBJECT_BYTES = 5 << 30
_MANY_SHARDS = 1000
_SMALL_SHARD_BYTES = 1 << 20
_MUCH = 2
_MUCH_BYTES = 256 << 20
"""Reading this takes seconds; less is not worth a word."""


def _warnings(planned: Planned, stops: tuple[int, ...], output_bytes: int, wasteful_bytes: int) -> Iterator[str]:
    """Yield what a user would rather know before the run than after it."""
    plan = planned.plan
    taken = plan.schedule.offsets_at(plan.batches)
    few = [name for name, items in zip(plan.names, taken, strict=True) if items < plan.shard_count]
    for name in few[:_SHOWN]:
        items = taken[plan.names.index(name)]
        what = "nothing" if not items else f"less than one row a shard ({items:,} in {plan.shard_count:,} shards)"
        yield f"dataset {name!r} gives {what}"
    if len(few) > _SHOWN:
        yield f"{len(few) - _SHOWN:,} more datasets give less than one row a shard"
    most = max(len(phase.members) for phase in plan.phases)
    if plan.batch_size < most:
        yield f"batches of {plan.batch_size:,} are mixed of {most:,} datasets, so not every batch has rows of all"
    cut = [number for number, stop in enumerate(stops) if stop == (stops[number - 1] if number else 0)]
    for number in cut[:_SHOWN]:
        yield f"phase {number + 1} has no batch, as the data ends before it"
    if plan.rows % plan.batch_size:
        yield f"the last batch has only {plan.rows % plan.batch_size:,} of {plan.batch_size:,} rows"
    yield from _layout_warnings(plan, output_bytes, wasteful_bytes)


_SHOWN = 5


def _layout_warnings(plan: Plan, output_bytes: int, wasteful_bytes: int) -> Iterator[str]:
    """Yield what sizes are worth a word; `wasteful_bytes` is what a shard reads alone, if it uses little of that."""
    if plan.batch_size > 1 and plan.batch_size % 2:
        yield f"a batch of {plan.batch_size:,} rows cannot be divided evenly among 2, 4, 8, ... trainers"
    shard_bytes = output_bytes * plan.shard(0).rows // plan.rows
    if shard_bytes > _LARGEST_OBJECT_BYTES:
        yield "a shard is likely to be over 5 GiB, more than one upload to S3 takes; lower batches_per_shard"
    if plan.shard_count >= _MANY_SHARDS and shard_bytes < _SMALL_SHARD_BYTES:
        yield f"{plan.shard_count:,} shards of less than 1 MiB are slow to list and to read; raise batches_per_shard"
    if wasteful_bytes >= _MUCH_BYTES and plan.shard_count > 1:
        yield (
            f"row groups (or shuffled blocks) of the inputs hold more than a shard takes of them: each restart reads "
            f"about {wasteful_bytes >> 20:,} MiB for its first shard, most of it a second time"
        )
