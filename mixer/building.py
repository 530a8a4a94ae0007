"""The verb `build`: start or resume a run, write its shards, commit each one, finish.

Put the shard, check it, then create its slot in the log; readers and resume believe only the log. How the log
of a run is taken over stands in `mixer.opening`, and what the run does once it is open in `mixer.opened`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mixer import extending, forking, planning, preparing
from mixer.ancestry import Origin
from mixer.checking import check_commit, check_no_log, refuse_foreign
from mixer.config import MixConfig
from mixer.core import commits
from mixer.errors import ConfigError, OutputError
from mixer.extending import Asked
from mixer.log import CommitLog, Tail
from mixer.opened import OnCommit, OpenRun, RunSummary, ShouldStop, summarize
from mixer.opening import open_run
from mixer.planning import Planned
from mixer.preparation.engine import OnPart
from mixer.preparing import DATE, Inputs, Preparation
from mixer.records import read_record
from mixer.sources.inventory import Inventory
from mixer.storage import Store, fit_to_write, open_store

__all__ = [
    "DATE",
    "Existing",
    "OnCommit",
    "OnPart",
    "OpenRun",
    "RunSummary",
    "ShouldStop",
    "attach",
    "build",
    "check_prepared_place",
    "existing",
    "fork",
    "is_to_prepare",
    "look",
    "plan",
    "prepare",
    "refuse_date",
    "start",
    "started",
    "status",
]


def prepare(config: MixConfig, *, on_part: OnPart | None = None, should_stop: ShouldStop | None = None) -> Preparation:
    """Prepare those inputs of `config` that cannot be read from anywhere, and are not prepared yet.

    `build` does so by itself before it begins a run. Done before, it can be done elsewhere or at another time, and for
    several runs that share the place `prepared`. It may be killed at any moment, and called again: it goes on after the
    last part that was done. When all is prepared it does nothing.

    Args:
        config: What is to be mixed. Inputs that a fork has from the run that it goes on from are not prepared again.
        on_part: Hears of each part that is done, in this thread.
        should_stop: Asked after each part; True ends the call there, with `StoppedError`.

    Raises:
        ConfigError, InputError, SchemaError: What is asked of an input cannot be done, or it is broken.
        NotEnoughDataError: The run could not be planned, so it is not known how often to shuffle a dataset.
        ChangedError: An input was changed while it was being prepared.
        CorruptionError: What is there of a copy is damaged.
        OutputError: Copies would lie in the output, which holds something else.
        StoppedError: It was asked to stop; the same call goes on.
    """
    frozen = _frozen(config)
    files = preparing.find_files_of(config, frozen)
    if config.prepared is None and preparing.is_needed(config, files):
        refuse_date(config)
        refuse_foreign(open_store(config.output))
    return preparing.prepare(config, frozen, files, on_part=on_part, should_stop=should_stop)


def check_prepared_place(config: MixConfig) -> None:
    """Find out whether it is known where prepared copies are to lie, before anything is begun.

    Raises:
        ConfigError: They are to lie in an output that still has `{date}` in it.
        MixerError: What is to be prepared cannot be told; only of such an output.
    """
    if DATE not in config.output or config.prepared is not None:
        return
    if preparing.is_needed(config, preparing.find_files_of(config, _frozen(config))):
        refuse_date(config)


def refuse_date(config: MixConfig) -> None:
    """Refuse an output whose date is not known yet.

    Raises:
        ConfigError: It still has `{date}` in it.
    """
    if DATE in config.output:
        raise ConfigError(
            f"output: {DATE} stands for the date of a scheduled flow run; to make the run of one date, write that date"
        )


def is_to_prepare(config: MixConfig) -> bool:
    """Return whether building `config` would begin with preparing inputs, or with looking whether that is done.

    Raises:
        MixerError: That cannot be told.
    """
    # Mostly not, and then the output is not looked at.
    is_needed = preparing.is_needed(config, preparing.find_files_of(config, _frozen(config)))
    return is_needed and open_store(config.output).stat(commits.RUN_NAME) is None


def _frozen(config: MixConfig) -> Mapping[str, Inventory]:
    """Return the inputs that a fork has from the run that it goes on from; none of what is no fork."""
    if config.fork is None:
        return {}
    store, began = started(config.fork.run)
    return forking.cut(Origin(store, began, None), config.fork.shards, started).was.inventories


def plan(config: MixConfig) -> Planned:
    """Return the plan of a new run: inputs are listed and their footers read, and no rows.

    Of a fork the run that it goes on from is read, too; see `mixer.forking`.

    Raises:
        NotPreparedError: Some inputs must be prepared first; `prepare` does it, and so does `build`.
        ConfigError, InputError, SchemaError, NotEnoughDataError: Why the config cannot be run, and what to do.
        OutputError, ChangedError, CorruptionError: The same of the run that is to be forked.
    """
    return _planned(config, None)


def _planned(config: MixConfig, inputs: Inputs | None) -> Planned:
    """Return the plan of a new run over `inputs`; over those that are found, if that is None."""
    if config.fork is None:
        return planning.plan(config, inputs)
    store, began = started(config.fork.run)
    return forking.plan(config, Origin(store, began, None), started, inputs)


def fork(
    output: str, shards: int, to: str, *, weights: Mapping[str, int] | None = None, batches: int | None = None
) -> MixConfig:
    """Return the config of a run that begins with shards of another one, and goes on in its own way.

    It says what would have come in that run, or what `weights` and `batches` say, and may be changed further in all
    that comes after the shards that are taken, before it is given to `build`. Nothing is written.

    Args:
        output: Where the other run is.
        shards: How many of its shards to take: those before the first one that is to be another.
        to: Where the new run is to be.
        weights: What comes after them; as it would have come if left out.
        batches: How many batches come after them; as many as would have come if left out.

    Raises:
        ConfigError: The run has not so many shards, or what comes makes no config.
        OutputError, CorruptionError: There is no run, or what is there is damaged.
    """
    store, began = started(output)
    return forking.config_for(Origin(store, began, None), shards, to, started, weights=weights, batches=batches)


def start(  # noqa: PLR0913 -- each is one independent choice
    config: MixConfig,
    *,
    extend: bool = False,
    allow_repack: bool = False,
    accept_unsafe_store: bool = False,
    on_part: OnPart | None = None,
    should_stop: ShouldStop | None = None,
) -> OpenRun:
    """Start the run that `config` describes, or resume it; the newest start owns it.

    Before a run is started, what it needs is prepared (see `prepare`). One that is there is resumed from what it was
    started with: nothing is prepared, and no tokenizer asked for.

    Args:
        config: What to mix, and where to.
        extend: If `config` makes the run longer, extend it (see `mixer.extending`); else this changes nothing.
        allow_repack: Go on although the writer's version or settings have changed: rows stay the same, bytes do not.
        accept_unsafe_store: Go on although the output's store has no create-only writes: then two runs at the very same
            moment could overwrite each other's shards and commits, and only one process at a time may work on it.
            Nothing changes on a store that has them.
        on_part: See `prepare`.
        should_stop: See `prepare`.

    Raises:
        ConfigError: The output still has `{date}` in it.
        ConfigError, InputError, SchemaError, NotEnoughDataError: A new run cannot be planned.
        StoppedError: It was asked to stop while inputs were prepared.
        ChangedError: The output holds a run of another definition, or an input has changed.
        OutputError: The output holds something else, or its store cannot keep the promises.
        FencedError: Other starts of this run were faster.
    """
    refuse_date(config)
    store = open_store(config.output)
    data = read_record(store, commits.RUN_NAME)
    is_new = data is None
    if data is None:
        planned = _planned(config, _inputs(config, store, accept_unsafe_store, on_part, should_stop))
        refuse_foreign(store)
        store = fit_to_write(store, accept_unsafe=accept_unsafe_store)
        data = planning.run_file(planned)
        if not store.create(commits.RUN_NAME, data):
            # Somebody else started at this very moment; theirs is the run, if it is the same one.
            data = read_record(store, commits.RUN_NAME) or b""
    run = planning.read_run_file(data, config.output, f"{store.url}/{commits.RUN_NAME}")
    # Before the log is looked at, which may be of any length, or another run's.
    extending.check_only_longer(run, config)
    asked = Asked(config, extend=extend, allow_repack=allow_repack)
    prove = None if is_new else partial(fit_to_write, store, accept_unsafe=accept_unsafe_store)
    return open_run(store, run, asked, uuid.uuid4().hex, started, prove)


def _inputs(
    config: MixConfig,
    store: Store,
    accept_unsafe: bool,  # noqa: FBT001 -- private, and called once
    on_part: OnPart | None,
    should_stop: ShouldStop | None,
) -> Inputs:
    """Return what a new run reads, prepared if that is needed."""
    frozen = _frozen(config)
    files = preparing.find_files_of(config, frozen)
    if not preparing.is_needed(config, files):
        return preparing.find_inputs_of(config, frozen, files)
    # Preparing may take hours, so what the run would be refused for is looked at before.
    refuse_foreign(store)
    fit_to_write(store, accept_unsafe=accept_unsafe)
    return preparing.make_inputs(config, frozen, files, on_part=on_part, should_stop=should_stop)


def attach(output: str, owner: str, *, accept_unsafe_store: bool = False) -> OpenRun:
    """Reopen a run after a failure, within the same start of it.

    Args:
        output: Where the run is.
        owner: The name of that start.
        accept_unsafe_store: As it was given to `start`.

    Raises:
        FencedError: A start other than `owner` has taken the run over meanwhile.
    """
    store, run = started(output)
    return open_run(store, run, None, owner, started, partial(fit_to_write, store, accept_unsafe=accept_unsafe_store))


@dataclass(frozen=True, slots=True)
class Existing:
    """A run that is there."""

    store: Store
    began: Planned
    """What it began as."""
    run: Planned
    """What it is by now."""
    tail: Tail
    """The end of its log."""

    def checked(self) -> Existing:
        """Return it, having held its newest commit to the plan.

        Raises:
            CorruptionError: They differ.
        """
        if self.tail.commit is not None:
            check_commit(self.run.plan, self.tail.commit, self.tail.commit_where)
        return self


def look(output: str) -> Existing:
    """Return the run at an output and the end of its log; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: Its definition, or the end of its log, is damaged, or gone.
    """
    store, began = started(output)
    tail = CommitLog(store, began.genesis).tail()
    return Existing(store, began, extending.current(began, tail, store.url), tail)


def existing(output: str) -> tuple[Store, Planned]:
    """Return the store of an output, and the run in it as it is by now; nothing is written.

    Raises:
        OutputError, CorruptionError: As `look`.
    """
    found = look(output)
    return found.store, found.run


def started(output: str) -> tuple[Store, Planned]:
    """Return the store of an output, and the run in it as it began; nothing is written, and the log is not read.

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


def build(  # noqa: PLR0913 -- each is one independent choice
    config: MixConfig,
    *,
    on_commit: OnCommit | None = None,
    on_part: OnPart | None = None,
    should_stop: ShouldStop | None = None,
    extend: bool = False,
    allow_repack: bool = False,
    accept_unsafe_store: bool = False,
) -> RunSummary:
    """Bring the run that `config` describes to its end, from wherever it is; return how far it is.

    Args:
        config: What to mix, and where to.
        on_commit: Hears of each commit, in order, in this thread.
        on_part: Hears of each part that is prepared, before the run begins.
        should_stop: Asked at each shard's edge; True ends the call there, and another call goes on. Asked at each
            part's edge, too, where the call ends with `StoppedError`, as there is no run yet.
        extend: See `start`.
        allow_repack: See `start`.
        accept_unsafe_store: See `start`.

    Raises:
        MixerError: As `start` and `OpenRun.write`; whatever was committed stays.
    """
    with start(
        config,
        extend=extend,
        allow_repack=allow_repack,
        accept_unsafe_store=accept_unsafe_store,
        on_part=on_part,
        should_stop=should_stop,
    ) as run:
        run.write(run.plan.shard_count, on_commit=on_commit, should_stop=should_stop)
        return run.finish() if run.committed == run.plan.shard_count else run.summary()


def status(output: str) -> RunSummary:
    """Return how far the run at `output` is; nothing is written.

    Raises:
        OutputError: There is no run there.
        CorruptionError: What is there is damaged.
    """
    found = look(output).checked()
    tail = found.tail
    return summarize(found.store, found.run, tail.commit, tail.head, finished=tail.final is not None)
