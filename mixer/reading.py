"""The verb `read`: the batches of a run in order, or a trainer's part of each, from any batch on.

A run that is under way is read up to its last commit, or followed. Only row groups that hold wanted batches are read,
a few of them ahead (`mixer.readable`); what is read is checked (`mixer.shard_reading`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Self

import pyarrow as pa

from mixer.closing import Closable
from mixer.core import serving
from mixer.core.arguments import rank_of, whole_number
from mixer.core.serving import Part
from mixer.errors import ConfigError, OutputError
from mixer.readable import Following, Readable, Wanted, look


class Batches(Closable, Iterator[pa.Table]):
    """The batches of a run, in order; see `read`. Close it, or use it in a ``with``, to give threads and memory back.

    Attributes:
        next_batch: The number of the batch that comes next; with the run's fingerprint, all there is to know to go on.
        fingerprint: The hash of what the run is made from.
        schema: The columns.
    """

    def __init__(self, readable: Readable, wanted: Wanted, following: Following | None) -> None:
        """Read `wanted`; nothing is read before the first batch is asked for."""
        self.next_batch = wanted.batches.start
        self.fingerprint = readable.fingerprint
        self.schema: pa.Schema = readable.schema_of(wanted)
        self._tables = (
            numbered
            for piece in readable.pieces(wanted, following=following)
            for numbered in zip(piece.batches, piece.tables(), strict=True)
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.Table:
        number, table = next(self._tables)
        self.next_batch = number + 1
        return table

    def close(self) -> None:
        """End the iteration."""
        self._tables.close()


def read(  # noqa: PLR0913 -- each is one independent choice
    output: str,
    *,
    start_batch: int = 0,
    stop_batch: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    columns: Sequence[str] | None = None,
    follow: bool = False,
    timeout_s: float | None = None,
) -> Batches:
    """Return the batches of the run at `output` in order, an Arrow table each, or one trainer's part of each.

    Rank `r` of `R` takes the rows ``r, r + R, r + 2R, ...`` of every batch: all ranks take part in every batch, and
    together have all of its rows. Every rank gets as many batches as any other.

    Args:
        output: Where the run is: a folder or URL prefix.
        start_batch: The first batch; all there is to know to go on is this number.
        stop_batch: End before this batch. Without it a run that is under way ends at its last commit at this moment,
            which may be another for each of several trainers: so they should agree on one.
        rank: Which trainer this is, from 0.
        world_size: How many trainers there are.
        columns: Columns to read, in this order; all if left out.
        follow: Wait for batches that are not committed yet, until the run is complete.
        timeout_s: When following: most time without a commit, after which it is an `OutputError`; for ever if left out.

    Raises:
        ConfigError: An argument is impossible for this run.
        OutputError: There is no run there, or it has not come to `start_batch` or `stop_batch` yet.
        CorruptionError: What is there is damaged; also while batches are taken.
        StoreError: The store refused, or did not answer; also while batches are taken.

    Warns:
        UserWarning: Trainers get differently many rows of a batch, or may see different ends of the run.
    """
    readable = look(output)
    wanted = checked(
        readable, start_batch, stop_batch, Part(rank, world_size), columns=columns, follow=follow, stacklevel=3
    )
    return Batches(readable, wanted, following(timeout_s, follow=follow))


def checked(  # noqa: PLR0913 -- each is one independent choice
    readable: Readable,
    start_batch: int,
    stop_batch: int | None,
    part: Part,
    *,
    columns: Sequence[str] | None,
    follow: bool,
    stacklevel: int,
) -> Wanted:
    """Return what is wanted of a run; warn of what trainers must know beforehand.

    Raises:
        ConfigError, OutputError: It cannot be had; the message says why.
    """
    try:
        start = whole_number("start_batch", start_batch, least=0)
        stop = readable.stop_batch(stop_batch, follow=follow)
        stop = whole_number("stop_batch", stop, least=start if stop_batch is not None else 0)
        part = Part(*rank_of(part.rank, part.world_size))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    _check_there(readable, start, stop_batch, follow=follow)
    names = None if columns is None else _checked_columns(readable, columns)
    for remark in _remarks(readable, part, stop, is_agreed=stop_batch is not None or follow):
        warnings.warn(f"{readable.itself.store.url}: {remark}", UserWarning, stacklevel=stacklevel)
    return Wanted(range(start, max(start, stop)), part, names)


def following(timeout_s: float | None, *, follow: bool) -> Following | None:
    """Return how the run is waited for; None if it is not.

    Raises:
        ConfigError: `timeout_s` is no time.
    """
    # Not a number is not from 0 either.
    if timeout_s is not None and (not isinstance(timeout_s, Real) or not timeout_s >= 0):
        raise ConfigError(f"timeout_s: expected seconds from 0, found {timeout_s!r}")
    return Following(timeout_s) if follow else None


def _check_there(readable: Readable, start: int, stop_batch: int | None, *, follow: bool) -> None:
    """Check that what is to be read is there, or will be.

    Raises:
        OutputError: It is not.
    """
    url, last = readable.itself.store.url, readable.batches
    most = max(start, stop_batch or 0)
    if most > last:
        raise OutputError(f"{url}: batch {most}: the run has batches 0 to {last - 1}; was it to be extended first?")
    if follow or readable.finished or start == stop_batch:
        return
    if most > readable.committed or start == readable.committed:
        raise OutputError(
            f"{url}: batch {start if start >= readable.committed else most - 1} is not committed yet, so far there are "
            f"{readable.committed}; go on with `mixer run`, wait for it with follow=True, or ask for earlier ones"
        )


def _checked_columns(readable: Readable, columns: object) -> tuple[str, ...]:
    names = readable.schema.names
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise ConfigError(f"columns: expected a list of names, found {columns!r}; the run has {', '.join(names)}")
    for column in columns:
        if column not in names:
            raise ConfigError(f"columns: expected columns of the run, found {column!r}; it has {', '.join(names)}")
    if len(set(columns)) != len(columns):
        raise ConfigError(f"columns: expected each one once, found {list(columns)}")
    return tuple(columns)


def _remarks(readable: Readable, part: Part, stop: int, *, is_agreed: bool) -> Iterator[str]:
    """Yield what several trainers must know beforehand."""
    if part.world_size == 1:
        return
    size, plan = readable.batch_size, readable.run.plan
    if uneven := serving.uneven(size, part.world_size):
        yield (
            f"{uneven}; all take as many batches, but a mean over ranks must be weighed by rows, or take a batch_size "
            f"that {part.world_size} divides"
        )
    elif (last := plan.rows - (plan.batches - 1) * size) % part.world_size and stop >= plan.batches:
        yield f"the last batch has {last} rows, which {part.world_size} ranks cannot share evenly"
    if not readable.finished and not is_agreed:
        yield (
            f"the run is under way, so ranks that look at different moments may end at different batches; give all of "
            f"them the same stop_batch (here {stop}), or follow=True"
        )
