"""The verb `build`: start or resume a run, write its shards, commit each one, finish.

Put the shard, check it, then create its slot in the log; readers and resume believe only the log. What a run does
once it is open stands in `mixer.opened`; here is how one is opened.
"""

from __future__ import annotations

import logging
import uuid

from mixer import planning
from mixer.checking import check_against_plan, check_commit, check_no_log, refuse_foreign
from mixer.config import MixConfig
from mixer.core import commits
from mixer.errors import CorruptionError, OutputError
from mixer.log import CommitLog, LogWriter, Tail, take_over
from mixer.opened import OnCommit, OpenRun, RunSummary, ShouldStop, summarize
from mixer.planning import Planned
from mixer.publishing import dataset_card
from mixer.records import read_record
from mixer.shards import WriterSettings
from mixer.sources.inventory import check_unchanged
from mixer.storage import RISK, CheckThenPutStore, Store, fit_to_write, open_store

__all__ = [
    "OnCommit",
    "OpenRun",
    "RunSummary",
    "ShouldStop",
    "attach",
    "build",
    "existing",
    "start",
    "status",
]

log = logging.getLogger(__name__)


def start(config: MixConfig, *, allow_repack: bool = False, accept_unsafe_store: bool = False) -> OpenRun:
    """Start the run that `config` describes, or resume it; the newest start owns it.

    Args:
        config: What to mix, and where to.
        allow_repack: Go on although the writer's version or settings have changed: rows stay the same, bytes do not.
        accept_unsafe_store: Go on although the output's store has no create-only writes: then two runs at the very same
            moment could overwrite each other's shards and commits, and only one process at a time may work on it.
            Nothing changes on a store that has them.

    Raises:
        ConfigError, InputError, SchemaError, NotEnoughDataError: A new run cannot be planned.
        ChangedError: The output holds a run of another definition, or an input has changed.
        OutputError: The output holds something else, or its store cannot keep the promises.
        FencedError: Other starts of this run were faster.
    """
    store = open_store(config.output)
    data = read_record(store, commits.RUN_NAME)
    is_new = data is None
    if data is None:
        planned = planning.plan(config)
        refuse_foreign(store)
        store = fit_to_write(store, accept_unsafe=accept_unsafe_store)
        data = planning.run_file(planned)
        if not store.create(commits.RUN_NAME, data):
            # Somebody else started at this very moment; theirs is the run, if it is the same one.
            data = read_record(store, commits.RUN_NAME) or b""
    run = planning.read_run_file(data, config.output, f"{store.url}/{commits.RUN_NAME}")
    planned = planning.check_same(run, config, allow_repack=allow_repack)
    return _open(store, planned, attach_to=None, accept_unsafe=accept_unsafe_store, is_proven=is_new)


def attach(output: str, owner: str, *, accept_unsafe_store: bool = False) -> OpenRun:
    """Reopen a run after a failure, within the same start of it.

    Args:
        output: Where the run is.
        owner: The name of that start.
        accept_unsafe_store: As it was given to `start`.

    Raises:
        FencedError: A start other than `owner` has taken the run over meanwhile.
    """
    store, run = existing(output)
    return _open(store, run, attach_to=owner, accept_unsafe=accept_unsafe_store, is_proven=False)


def _open(store: Store, planned: Planned, *, attach_to: str | None, accept_unsafe: bool, is_proven: bool) -> OpenRun:
    """Take the log over and check that what it says is what the plan says.

    Args:
        store: Where the run is.
        planned: The run.
        attach_to: The start of the run to go on as; None: a new one.
        accept_unsafe: Whether a store without create-only writes will do.
        is_proven: Whether `store` was tried just now.
    """
    owner = uuid.uuid4().hex if attach_to is None else attach_to
    commit_log = CommitLog(store, planned.run)
    tail = commit_log.tail()
    check_against_plan(store, planned.plan, tail)
    if tail.final is not None:
        # A complete run needs no inputs any more, and no owner.
        writer = LogWriter(commit_log, owner, tail.next_slot, tail.next_slot, tail.head)
    else:
        for name, inventory in planned.inventories.items():
            check_unchanged(name, inventory)
        if attach_to is not None and tail.physical is not None:
            # A start that was allowed to write otherwise goes on doing so.
            planned = planning.with_settings(planned, _settings_of(tail, planned))
        if not is_proven:
            # At every start: it may lead to another store than the last one did.
            store = fit_to_write(store, accept_unsafe=accept_unsafe)
            commit_log = CommitLog(store, planned.run)
        if attach_to is None and isinstance(store, CheckThenPutStore):
            log.warning("UNSAFE STORE, AND ITS RISK IS ACCEPTED: %s has no create-only writes; %s", store.url, RISK)
        writer, found = take_over(commit_log, owner, planned.physical, tail=tail, expected_owner=attach_to)
        if found is not tail:
            check_against_plan(store, planned.plan, found)
            tail = found
        store.create(commits.CARD_NAME, dataset_card(planned))
    return OpenRun(store, planned, writer, tail)


def _settings_of(tail: Tail, planned: Planned) -> WriterSettings:
    try:
        return planning.settings_from_json(tail.physical or {}, planned.plan.batches_per_shard)
    except CorruptionError as error:
        raise CorruptionError(f"{tail.commit_where or planned.config.output}: {error}") from error


def existing(output: str) -> tuple[Store, Planned]:
    """Return the store of an output, and the run in it; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: Its definition is damaged, or gone.
    """
    store = open_store(output)
    data = read_record(store, commits.RUN_NAME)
    if data is None:
        check_no_log(store)
        raise OutputError(
            f"{store.url}: no run of mixer here, {commits.RUN_NAME} is missing; is this the right output?"
        )
    return store, planning.read_run_file(data, output, f"{store.url}/{commits.RUN_NAME}")


def build(
    config: MixConfig,
    *,
    on_commit: OnCommit | None = None,
    should_stop: ShouldStop | None = None,
    allow_repack: bool = False,
    accept_unsafe_store: bool = False,
) -> RunSummary:
    """Bring the run that `config` describes to its end, from wherever it is; return how far it is.

    Args:
        config: What to mix, and where to.
        on_commit: Hears of each commit, in order, in this thread.
        should_stop: Asked at each shard's edge; True ends the call there, and another call goes on.
        allow_repack: See `start`.
        accept_unsafe_store: See `start`.

    Raises:
        MixerError: As `start` and `OpenRun.write`; whatever was committed stays.
    """
    with start(config, allow_repack=allow_repack, accept_unsafe_store=accept_unsafe_store) as run:
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
        check_commit(run.plan, tail.commit, tail.commit_where)
    return summarize(store, run, tail.commit, tail.head, finished=tail.final is not None)
