"""A run that is open for writing: build a shard, put it, check it, create its slot in the log, finish.

While one shard is put and committed, the rows of the next are read and encoded, but slots are written strictly in
order and by one thread, and `on_commit` hears of a shard only when its slot is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from mixer.ancestry import Place
from mixer.checking import check_shards_there
from mixer.closing import Closable
from mixer.core import commits
from mixer.core.commits import Commit, Parent
from mixer.core.fingerprint import sha256_hex
from mixer.core.plan import Plan, ShardSpec, State, shard_path
from mixer.errors import FencedError, StoreError
from mixer.log import LogWriter, Tail
from mixer.planning import Planned
from mixer.publishing import has_manifest, manifest, publish_manifest
from mixer.shards import alike_bytes_max, is_alike
from mixer.sources.base import Source
from mixer.storage import Store
from mixer.writing import encoded_shards, open_sources

log = logging.getLogger(__name__)

_LEFTOVER_TRIES = 5

OnCommit = Callable[[Commit], None]
ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How far a run is."""

    output: str
    run: str
    """Short id of the run."""
    shards: int
    """Shards that the plan has."""
    committed: int
    """Shards that are part of the run."""
    rows: int
    """Rows of the committed shards."""
    batches: int
    """Batches of the committed shards."""
    bytes: int
    """Bytes of the committed shards that lie in the output."""
    head: str
    """The chain head: equal for any two runs of one definition over the same data that are equally far."""
    finished: bool
    state: State
    """The state after the last committed batch."""
    last_commit: Commit | None
    extensions: int = 0
    """How often the run was extended."""
    parent: Parent | None = None
    """The run whose shards the first ones are, and where they lie, if this one was forked from it."""


class OpenRun(Closable):
    """A run that this process may add to, until a newer start takes it over. Not for several threads at once."""

    def __init__(
        self,
        store: Store,
        planned: Planned,
        writer: LogWriter,
        tail: Tail,
        taken: Callable[[], list[Place]] = list,
    ) -> None:
        """Go on after `tail`, with the right to write that `writer` is.

        Args:
            store: Where the run is.
            planned: What it is.
            writer: The right to add to its log.
            tail: The end of the log.
            taken: Finds the shards that the run has from others, if it was forked.
        """
        self._taken = taken
        self._store = store
        self._planned = planned
        self._writer = writer
        self._last = tail.commit
        self._finished = tail.final is not None
        self._sources: dict[str, Source] = {}

    @property
    def output(self) -> str:
        """Where the run is."""
        return self._planned.config.output

    @property
    def owner(self) -> str:
        """The name of this start of the run."""
        return self._writer.owner

    @property
    def plan(self) -> Plan:
        """What the run is to become."""
        return self._planned.plan

    @property
    def fingerprint(self) -> str:
        """The hash of what the run is made from."""
        return self._planned.fingerprint

    @property
    def committed(self) -> int:
        """How many shards are part of the run."""
        return self._planned.done(self._last)[0]

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self._finished

    @property
    def head(self) -> str:
        """The chain head."""
        return self._writer.head

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit."""
        return self._last

    def close(self) -> None:
        """Close the inputs; the run stays as far as it is committed."""
        for source in self._sources.values():
            source.close()
        self._sources = {}

    def write(
        self, stop_shard: int, *, on_commit: OnCommit | None = None, should_stop: ShouldStop | None = None
    ) -> None:
        """Build, put and commit the shards from the first missing one to before `stop_shard`.

        Args:
            stop_shard: One past the last shard to write.
            on_commit: Hears of each commit, in order, in this thread.
            should_stop: Asked at each shard's edge; True ends the call there.

        Raises:
            FencedError: A newer start has taken the run over.
            ChangedError, CorruptionError, StoreError: What went wrong; the run can be resumed.
        """
        encoded = encoded_shards(self._planned, self._open_sources(), range(self.committed, stop_shard))
        pending: Future[Commit] | None = None

        def settle() -> None:
            nonlocal pending
            if pending is not None:
                future, pending = pending, None
                self._last = future.result()
                log.info("committed shard=%d rows=%d bytes=%d", self._last.shard, self._last.rows, self._last.bytes)
                if on_commit is not None:
                    on_commit(self._last)

        with ThreadPoolExecutor(1, thread_name_prefix="mixer-commit") as committer, closing(encoded):
            try:
                while should_stop is None or not should_stop():
                    shard_and_data = next(encoded, None)
                    settle()
                    if shard_and_data is None:
                        break
                    pending = committer.submit(self._commit, *shard_and_data)
            finally:
                settle()  # also when something failed: what is under way may become part of the run, and is heard of

    def _open_sources(self) -> dict[str, Source]:
        if not self._sources:
            self._sources = open_sources(self._planned)
        return self._sources

    def _commit(self, shard: ShardSpec, data: bytes) -> Commit:
        """Put the shard, check it, create its slot."""
        data = self._put(shard, data)
        plan = self.plan
        commit = Commit(
            shard=shard.index,
            path=shard.path,
            rows=shard.rows,
            bytes=len(data),
            sha256=sha256_hex(data),
            first_batch=shard.first_batch,
            batches=shard.batches,
            counts={part.dataset: part.rows for part in shard.ranges},
            state=plan.state_at(shard.stop_batch),
            prev=self._writer.head,
        )
        self._writer.append("shard", commit.payload())
        return commit

    def _put(self, shard: ShardSpec, data: bytes) -> bytes:
        """Put the shard and check it; return the bytes that are there now."""
        store, name = self._store, shard.path
        if len(data) > commits.SHARD_BYTES_MAX:
            raise StoreError(
                f"{store.url}/{name}: expected a shard of at most {commits.SHARD_BYTES_MAX:,} bytes, found "
                f"{len(data):,}; make the shards smaller (batches_per_shard)"
            )
        if not store.create(name, data):
            data = self._put_over_leftover(name, data)
        found = store.stat(name)
        if found is None or found.bytes != len(data):
            raise StoreError(
                f"{store.url}/{name}: {len(data)} bytes were put, found {found.bytes if found else 'nothing'}; "
                f"the store loses data, check it before going on"
            )
        return data

    def _put_over_leftover(self, name: str, data: bytes) -> bytes:
        """Settle what becomes of other bytes under the shard's name; return the bytes that are there then.

        No commit names them, or this shard would not be written. If they are the same rows as another start of the
        run has encoded them, under other settings, they are taken as they are: that start, or a newer one with those
        settings, may be about to commit them. What is no such shard nobody will ever commit, so it may be replaced,
        however long this process sleeps before it does so: the store sees to it that nothing else is. And nobody who
        finds a shard of these rows replaces it. So what has been committed stays, whoever sleeps wherever.
        """
        store = self._store
        for _ in range(_LEFTOVER_TRIES):
            # Before the slot is looked at, so that it is not what a newer start has put since.
            leftover = store.stat(name)
            if store.stat(commits.slot_name(self._writer.next_slot)) is not None:
                raise FencedError(f"{store.url}: another start of this run has taken it over; nothing is harmed")
            if leftover is None:
                if store.create(name, data):
                    return data
                continue
            if leftover.bytes <= alike_bytes_max(data):
                found = store.get(name)
                if found is not None and is_alike(found, data):
                    log.warning("took a shard as another start has encoded it path=%s/%s", store.url, name)
                    return found
            if store.replace(name, data, leftover.version):
                log.warning("replaced other bytes that no commit names path=%s/%s", store.url, name)
                return data
        raise StoreError(
            f"{store.url}/{name}: changed {_LEFTOVER_TRIES} times while it was to be replaced; see what else writes"
            f" to this output, end it, then run again"
        )

    def finish(self) -> RunSummary:
        """Complete the run, once every shard is committed; doing it again does nothing.

        Before anything is written it is looked whether every committed shard is still there. A run that was complete
        before is not looked at again while it has a manifest, whatever that says: `mixer verify` tells.

        Raises:
            CorruptionError: A committed shard is gone or of another length, or the log is damaged; nothing is written.
        """
        plan = self.plan
        if self.committed != plan.shard_count:
            raise ValueError(f"expected {plan.shard_count} committed shards, found {self.committed}; write them first")
        if self._finished and has_manifest(self._store, self._planned, self._writer.head):
            return self.summary()
        taken = self._taken()
        # Others may have extended the run, and added to the log, since it was finished.
        shards = self._writer.log.commits()[: plan.shard_count - len(taken)]
        check_shards_there(self._store, shards)
        if not self._finished:
            payload = commits.final_payload(
                prev=self._writer.head,
                shards=plan.shard_count,
                batches=plan.batches,
                rows=plan.rows,
                state=plan.state_at(plan.batches),
            )
            self._writer.append("final", payload)
            self._finished = True
        data = manifest(self._planned, shards, self._writer.head, taken)
        publish_manifest(self._store, self._planned, self._writer.log, data, self._writer.head)
        return self.summary()

    def summary(self) -> RunSummary:
        """Return how far the run is."""
        return summarize(self._store, self._planned, self._last, self.head, finished=self._finished)


def summarize(store: Store, planned: Planned, last: Commit | None, head: str, *, finished: bool) -> RunSummary:
    """Return how far a run is whose newest commit is `last`."""
    plan = planned.plan
    committed, batches = planned.done(last)
    parent = planned.parent
    names = {shard_path(index) for index in range(parent.shards if parent else 0, committed)}
    shard_bytes = sum(info.bytes for info in store.list("data/") if info.name in names) if names else 0
    return RunSummary(
        output=planned.config.output,
        run=planned.run[:12],
        shards=plan.shard_count,
        committed=committed,
        rows=sum(plan.schedule.offsets_at(batches)),
        batches=batches,
        bytes=shard_bytes,
        head=head,
        finished=finished,
        state=plan.state_at(batches),
        last_commit=last,
        extensions=planned.extensions,
        parent=parent,
    )
