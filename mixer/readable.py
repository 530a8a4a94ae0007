"""A run that is there, and its wanted rows by row group: which shards they lie in, read ahead in a bound of memory.

The commits are read one by one as they are needed, from the wanted one on. A run that is followed is asked for its
next slot, and for nothing else, until there is one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pyarrow as pa

from mixer import building
from mixer.ancestry import Origin, holding
from mixer.core import commits, serving
from mixer.core.commits import Commit
from mixer.core.serving import GroupRead, Part, Turn
from mixer.errors import CorruptionError, OutputError
from mixer.log import Tail
from mixer.planning import Planned
from mixer.prefetching import Task, ahead
from mixer.shard_reading import Expected, OpenShard, open_shard

PREFETCH_BYTES = 128 << 20
"""Most memory for rows that wait to be taken."""
THREADS = 2
"""Row groups that are decoded at once."""
POLL_S = 2.0
"""How long to wait before a run that is followed is looked at again; one request each time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a run."""

    batches: range
    """Numbers of the batches, rising; the last ones need not be there yet if the run is followed."""
    part: Part = Part()  # noqa: RUF009 -- a frozen value
    """The rows of each."""
    columns: tuple[str, ...] | None = None
    """None: all."""
    turn: Turn = Turn()  # noqa: RUF009 -- a frozen value
    """Of the row groups that hold these, which ones."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How much is done ahead."""

    bytes_max: int = PREFETCH_BYTES
    threads: int = THREADS


@dataclass(frozen=True, slots=True)
class Following:
    """How a run that is under way is waited for."""

    timeout_s: float | None = None
    """Most time without a new commit; None waits for ever."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The wanted rows of one row group."""

    batches: range
    """Numbers of its batches."""
    table: pa.Table
    """Their rows, one batch after the other."""
    edges: list[int]
    """Where each batch begins in the table, and where the last one ends."""

    def tables(self) -> Iterator[pa.Table]:
        """Yield the batches."""
        for start, stop in pairwise(self.edges):
            yield self.table.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class Readable:
    """A run that is there, as it was when it was looked at; holds no connection, and may be used after a fork."""

    itself: Origin
    run: Planned
    """What it is by now."""
    committed: int
    """Batches that are there."""
    finished: bool
    """Whether there will be no more, unless it is extended."""

    @property
    def fingerprint(self) -> str:
        """The hash of what the run is made from; extending it does not change this."""
        return self.itself.began.fingerprint

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self.run.plan.batch_size

    @property
    def batches(self) -> int:
        """Batches that the run has, or will have."""
        return self.run.plan.batches

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.run.shard_schema

    def schema_of(self, wanted: Wanted) -> pa.Schema:
        """Return the columns that are wanted."""
        if wanted.columns is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in wanted.columns], self.schema.metadata)

    def pieces(
        self,
        wanted: Wanted,
        ahead_of: Ahead = Ahead(),
        following: Following | None = None,
    ) -> Generator[Piece, None, None]:
        """Yield the wanted rows, a row group at a time.

        Args:
            wanted: What is read.
            ahead_of: How much is read ahead.
            following: Given: batches that are not there yet are waited for until the run is complete.

        Raises:
            CorruptionError: Something that was read is damaged.
            OutputError: Nothing came for too long.
            StoreError: The store refused, or did not answer.
        """
        stopping = threading.Event()
        work = _Work(self, wanted, tuple(self.schema_of(wanted).names), following, stopping)
        results = ahead(work.tasks(), bytes_max=ahead_of.bytes_max, threads=ahead_of.threads, stopping=stopping)
        with closing(results):
            yield from results

    def stop_batch(self, stop_batch: int | None, *, follow: bool) -> int:
        """Return before which batch reading ends: as asked, or where what is there ends, or, if followed, nowhere."""
        if stop_batch is not None:
            return stop_batch
        return sys.maxsize if follow else self.committed


def look(output: str) -> Readable:
    """Return the run at `output`; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: What is there is damaged.
    """
    found = building.look(output).checked()
    run, tail = found.run, found.tail
    return Readable(Origin(found.store, found.began, None), run, run.done(tail.commit)[1], tail.final is not None)


@dataclass(slots=True)
class _Work:
    """The tasks of one iteration; they are asked for one at a time."""

    readable: Readable
    wanted: Wanted
    columns: tuple[str, ...]
    following: Following | None
    stopping: threading.Event
    ratio: float = 1.0
    """Decoded bytes for each stored one, the most that was seen."""
    runs: dict[str, set[str]] = field(default_factory=dict)
    """Ids that shards of each output may name."""

    def tasks(self) -> Iterator[Task[Piece]]:
        """Yield a task for each row group."""
        readable, turn, batches = self.readable, self.wanted.turn, self.wanted.batches
        number, reached = 0, batches.start
        for origin, commit in self._shards():
            stop = commit.first_batch + commit.batches
            if commit.first_batch > reached:
                raise CorruptionError(
                    f"{origin.store.url}/{commits.LOG_PREFIX}: expected the shard with batch {reached}, found shard "
                    f"{commit.shard}, which begins at batch {commit.first_batch}; restore the log from a copy"
                )
            reached = max(reached, stop)
            wanted = serving.within(batches, commit.first_batch, stop)
            if wanted:
                whole = turn.workers == 1 and (wanted.start, len(wanted)) == (commit.first_batch, commit.batches)
                expected = Expected(readable.schema, readable.batch_size, partial(self._is_run, origin))
                shard = open_shard(
                    origin.store, commit, expected, whole=whole and len(self.columns) == len(readable.schema)
                )
                for read in serving.group_reads(shard.group_rows, commit.first_batch, readable.batch_size, wanted):
                    if turn.has(number):
                        yield self._task(shard, read)
                    number += 1
            if stop >= batches.stop:
                return

    def _task(self, shard: OpenShard, read: GroupRead) -> Task[Piece]:
        stored = shard.stored_bytes(read.group)
        held = len(shard.data or b"") // len(shard.group_rows)

        def run() -> tuple[Piece, int]:
            piece = _piece(shard, read, self.readable.batch_size, self.wanted.part, self.columns)
            size = piece.table.nbytes
            self.ratio = max(self.ratio, size / max(1, stored))
            return piece, size + held

        return Task(int(stored * self.ratio) + held, run)

    def _shards(self) -> Iterator[tuple[Origin, Commit]]:
        """Yield the shards up from the one with the first wanted batch, in order, and where each lies."""
        readable, plan, itself = self.readable, self.readable.run.plan, self.readable.itself
        # How shards that are not committed yet will be cut may still change: a run may be extended before they are.
        first = min(self.wanted.batches.start, readable.committed)
        shard = plan.shard_at(first) if first < plan.batches else plan.shard_count
        for origin in holding(itself, shard, building.started):
            for commit in self._own(shard) if origin is itself else origin.commits(shard):
                if commit.shard != shard:
                    raise CorruptionError(
                        f"{origin.store.url}/{commits.LOG_PREFIX}: expected shard {shard} next, found shard "
                        f"{commit.shard}; restore the log from a copy"
                    )
                yield origin, commit
                shard += 1

    def _own(self, shard: int) -> Iterator[Commit]:
        """Yield the run's own commits from `shard` on; if it is followed, until it is complete."""
        itself, patience = self.readable.itself, self.following
        if patience is None:
            yield from itself.commits(shard)
            return
        heard = time.monotonic()
        while True:
            # Looked at first: whatever was committed before it is found below.
            tail = itself.log.tail()
            for commit in itself.commits(shard):
                yield commit
                shard, heard = commit.shard + 1, time.monotonic()
            if tail.final is not None or not self._slot_comes(tail, heard, patience):
                return

    def _slot_comes(self, tail: Tail, heard: float, patience: Following) -> bool:
        """Wait for the slot after `tail`; return False if the iteration ends before it comes.

        Raises:
            OutputError: It does not come in time.
        """
        store = self.readable.itself.store
        while store.stat(commits.slot_name(tail.next_slot)) is None:
            if self.stopping.wait(POLL_S):
                return False
            if patience.timeout_s is not None and time.monotonic() - heard > patience.timeout_s:
                raise OutputError(
                    f"{store.url}: nothing was committed for {patience.timeout_s:g} s, and the run is not finished; "
                    f"see with `mixer status` how far it is, and go on with `mixer run`"
                )
        return True

    def _is_run(self, origin: Origin, run: str) -> bool:
        """Return whether `run` is the id of the run in `origin`, or was before or after it was extended."""
        began = origin.began
        known = self.runs.setdefault(origin.store.url, {began.run})
        if run not in known:
            newest = origin.log.tail().amended
            for slot in origin.log.amendments(newest):
                where = f"{origin.store.url}/{commits.slot_name(slot.number)}"
                known.add(commits.amendment_from(slot.payload, where).run)
        return run in known


def _piece(shard: OpenShard, read: GroupRead, batch_size: int, part: Part, columns: Sequence[str]) -> Piece:
    table = shard.read(read.group, columns)
    rows = serving.indices(read, batch_size, part)
    taken = table.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else table.take(rows)
    return Piece(read.batches, taken, serving.edges(read, batch_size, part))
