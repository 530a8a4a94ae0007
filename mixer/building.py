"""The verb `build`: start or resume a run, write its shards, commit each one, finish.

Put the shard, check it, then create its slot in the log; readers and resume believe only the log. While one shard
is put and committed, the rows of the next are read and encoded, but slots are written strictly in order and by one
thread, and `on_commit` hears of a shard only when its slot is durable.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from mixer import planning
from mixer.checking import check_against_plan, check_commit
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.commits import Commit
from mixer.core.fingerprint import sha256_hex
from mixer.core.plan import Plan, ShardSpec, State
from mixer.errors import FencedError, OutputError, StoreError
from mixer.log import CommitLog, LogWriter, Tail, take_over
from mixer.planning import Planned
from mixer.publishing import dataset_card, manifest
from mixer.records import read_record
from mixer.shards import WriterSettings
from mixer.sources.base import Source
from mixer.sources.files import OpenFiles
from mixer.sources.inventory import check_unchanged
from mixer.sources.parquet import ParquetSource
from mixer.storage import Store, open_store, probe_create_only
from mixer.writing import encoded_shards

log = logging.getLogger(__name__)

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
    """Bytes of the committed shards."""
    head: str
    """The chain head: equal for any two runs of one definition over the same data that are equally far."""
    finished: bool
    state: State
    """The state after the last committed batch."""
    last_commit: Commit | None


class OpenRun:
    """A run that this process may add to, until a newer start takes it over. Not for several threads at once."""

    def __init__(self, store: Store, planned: Planned, writer: LogWriter, tail: Tail) -> None:
        """Go on after `tail`, with the right to write that `writer` is."""
        self._store = store
        self._planned = planned
        self._writer = writer
        self._last = tail.commit
        self._finished = tail.final is not None
        self._sources: dict[str, Source] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        return self._last.shard + 1 if self._last else 0

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
            # Together, so that very many datasets do not keep a file open each.
            files = OpenFiles()
            self._sources = {
                name: ParquetSource(name, inventory, self._planned.schema, files=files)
                for name, inventory in self._planned.inventories.items()
            }
        return self._sources

    def _commit(self, shard: ShardSpec, data: bytes) -> Commit:
        """Put the shard, check it, create its slot."""
        self._put(shard, data)
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

    def _put(self, shard: ShardSpec, data: bytes) -> None:
        store, name = self._store, shard.path
        if not store.create(name, data):
            # The log does not name it, or this shard would not be written: a leftover of other versions or settings.
            # Only the owner of the log may replace it.
            if store.stat(commits.slot_name(self._writer.next_slot)) is not None:
                raise FencedError(f"{store.url}: another start of this run has taken it over; nothing is harmed")
            log.warning("replaced a shard of other bytes that no commit names path=%s/%s", store.url, name)
            store.put(name, data)
        found = store.stat(name)
        if found is None or found.bytes != len(data):
            raise StoreError(
                f"{store.url}/{name}: {len(data)} bytes were put, found {found.bytes if found else 'nothing'}; "
                f"the store loses data, check it before going on"
            )

    def finish(self) -> RunSummary:
        """Complete the run, once every shard is committed; doing it again does nothing."""
        plan = self.plan
        if self.committed != plan.shard_count:
            raise ValueError(f"expected {plan.shard_count} committed shards, found {self.committed}; write them first")
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
        _publish_manifest(self._store, self._planned, self._writer.log, self._writer.head)
        return self.summary()

    def summary(self) -> RunSummary:
        """Return how far the run is."""
        return _summary(self._store, self._planned, self._last, self.head, finished=self._finished)


def start(config: MixConfig, *, allow_repack: bool = False) -> OpenRun:
    """Start the run that `config` describes, or resume it; the newest start owns it.

    Args:
        config: What to mix, and where to.
        allow_repack: Go on although the writer's version or settings have changed: rows stay the same, bytes do not.

    Raises:
        ConfigError, InputError, SchemaError, NotEnoughDataError: A new run cannot be planned.
        ChangedError: The output holds a run of another definition, or an input has changed.
        OutputError: The output holds something else, or its store cannot keep the promises.
        FencedError: Other starts of this run were faster.
    """
    store = open_store(config.output)
    data = read_record(store, commits.RUN_NAME)
    if data is None:
        planned = planning.plan(config)
        refuse_foreign(store)
        _probe(store)
        data = planning.run_file(planned)
        if not store.create(commits.RUN_NAME, data):
            # Somebody else started at this very moment; theirs is the run, if it is the same one.
            data = read_record(store, commits.RUN_NAME) or b""
    run = planning.read_run_file(data, config.output, f"{store.url}/{commits.RUN_NAME}")
    planned = planning.check_same(run, config, allow_repack=allow_repack)
    return _open(store, planned, uuid.uuid4().hex, expected_owner=None)


def attach(output: str, owner: str) -> OpenRun:
    """Reopen a run after a failure, within the same start of it.

    Raises:
        FencedError: A start other than `owner` has taken the run over meanwhile.
    """
    store, run = existing(output)
    return _open(store, run, owner, expected_owner=owner)


def _open(store: Store, planned: Planned, owner: str, *, expected_owner: str | None) -> OpenRun:
    """Take the log over and check that what it says is what the plan says."""
    commit_log = CommitLog(store, planned.run)
    tail = commit_log.tail()
    check_against_plan(store, planned.plan, tail)
    if tail.final is not None:
        # A complete run needs no inputs any more, and no owner.
        writer = LogWriter(commit_log, owner, tail.next_slot, tail.next_slot, tail.head)
    else:
        for name, inventory in planned.inventories.items():
            check_unchanged(name, inventory)
        if expected_owner is not None and tail.physical is not None:
            # A start that was allowed to write otherwise goes on doing so.
            planned = planning.with_settings(planned, WriterSettings(**tail.physical))
        writer, found = take_over(commit_log, owner, planned.physical, tail=tail, expected_owner=expected_owner)
        if found is not tail:
            check_against_plan(store, planned.plan, found)
            tail = found
        store.create(commits.CARD_NAME, dataset_card(planned))
    return OpenRun(store, planned, writer, tail)


def _probe(store: Store) -> None:
    try:
        probe_create_only(store)
    except OutputError:
        # Who made a run meanwhile has proved the store, and `gc` may have removed the probe's object.
        if store.stat(commits.RUN_NAME) is None:
            raise


def refuse_foreign(store: Store) -> None:
    """Check that a new run may begin in `store`.

    Raises:
        OutputError: Something else lies there.
    """
    foreign = [info.name for info in store.list("") if not info.name.startswith(".mixer/")]
    # Another start may have made the run since it was looked for; its definition comes before all else.
    if foreign and store.stat(commits.RUN_NAME) is None:
        raise OutputError(
            f"{store.url}: expected an empty location or a run of mixer, found {len(foreign)} other objects, "
            f"such as {foreign[0]!r}; nothing was touched, choose another output or empty this one"
        )


def existing(output: str) -> tuple[Store, Planned]:
    """Return the store of an output, and the run in it; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: Its definition is damaged.
    """
    store = open_store(output)
    data = read_record(store, commits.RUN_NAME)
    if data is None:
        raise OutputError(
            f"{store.url}: no run of mixer here, {commits.RUN_NAME} is missing; is this the right output?"
        )
    return store, planning.read_run_file(data, output, f"{store.url}/{commits.RUN_NAME}")


def _publish_manifest(store: Store, planned: Planned, commit_log: CommitLog, head: str) -> None:
    if store.stat(commits.MANIFEST_NAME) is None:
        store.put(commits.MANIFEST_NAME, manifest(planned, commit_log.commits(), head))


def _summary(store: Store, planned: Planned, last: Commit | None, head: str, *, finished: bool) -> RunSummary:
    plan = planned.plan
    committed = last.shard + 1 if last else 0
    batches = last.first_batch + last.batches if last else 0
    shard_bytes = sum(info.bytes for info in store.list("data/")[:committed]) if committed else 0
    return RunSummary(
        output=planned.config.output,
        run=planned.run[:12],
        shards=plan.shard_count,
        committed=committed,
        rows=batches * plan.batch_size,
        batches=batches,
        bytes=shard_bytes,
        head=head,
        finished=finished,
        state=plan.state_at(batches),
        last_commit=last,
    )


def build(
    config: MixConfig,
    *,
    on_commit: OnCommit | None = None,
    should_stop: ShouldStop | None = None,
    allow_repack: bool = False,
) -> RunSummary:
    """Bring the run that `config` describes to its end, from wherever it is; return how far it is.

    Args:
        config: What to mix, and where to.
        on_commit: Hears of each commit, in order, in this thread.
        should_stop: Asked at each shard's edge; True ends the call there, and another call goes on.
        allow_repack: See `start`.

    Raises:
        MixerError: As `start` and `OpenRun.write`; whatever was committed stays.
    """
    with start(config, allow_repack=allow_repack) as run:
        run.write(run.plan.shard_count, on_commit=on_commit, should_stop=should_stop)
        return run.finish() if run.committed == run.plan.shard_count else run.summary()


def status(output: str) -> RunSummary:
    """Return how far the run at `output` is; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: What is there is damaged.
    """
    store, run = existing(output)
    tail = CommitLog(store, run.run).tail()
    if tail.commit is not None:
        check_commit(run.plan, tail.commit, f"{store.url}: commit of shard {tail.commit.shard}")
    return _summary(store, run, tail.commit, tail.head, finished=tail.final is not None)
