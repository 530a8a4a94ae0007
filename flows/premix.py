"""The run as a Prefect flow: open or resume, write segments, finish. Prefect retries and shows; the commit log decides.

A flow run that failed, crashed, was cancelled, suspended or killed is simply run again, by whatever means. Nothing is
kept from task to task but the name of this start of the run: every attempt asks the log how far the run is.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_type_hints
from uuid import UUID

from flows.settings import apply_defaults

apply_defaults()

# Prefect reads its settings when it is imported, hence the order.
from prefect import flow, get_run_logger, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402
from prefect.runtime import task_run  # noqa: E402
from prefect.states import Cancelled  # noqa: E402

from flows.artifacts import Ending, RunView, report_text, shown_bytes  # noqa: E402
from flows.caller import Caller, current_caller  # noqa: E402
from flows.prepare import prepared_first  # noqa: E402
from flows.reporter import Reporter  # noqa: E402
from flows.running import called, entered, is_worth_a_retry, run_here  # noqa: E402
from flows.segments import next_segment  # noqa: E402
from flows.settling import GivenDate, GivenMixOrPlace, settle  # noqa: E402
from mixer import building  # noqa: E402
from mixer.building import OnCommit, OnPart, OpenRun, RunSummary, ShouldStop  # noqa: E402
from mixer.config import MixConfig  # noqa: E402
from mixer.core.commits import Commit  # noqa: E402
from mixer.errors import StoppedError  # noqa: E402


@dataclass(slots=True)
class _Start:
    """One start of a run, in the process that carries it out."""

    view: RunView
    owner: str
    run: OpenRun | None
    """Kept open from task to task, so that consecutive segments share what is read; None after a failure."""
    last: Commit | None
    """The newest commit that everybody was told of."""
    head: str
    caller: Caller
    accept_unsafe_store: bool
    taken: int
    """Shards that the run has from another one, and does not write."""
    reporter: Reporter | None = None

    def hear(self, commit: Commit) -> None:
        """Tell everybody of a commit."""
        self.last = commit
        if self.reporter is not None:
            self.reporter.commit(commit)
        get_run_logger().info(
            "shard %d is committed: %d rows, %s", commit.shard, commit.rows, shown_bytes(commit.bytes)
        )
        if self.caller.on_commit is not None:
            self.caller.on_commit(commit)

    @contextmanager
    def opened(self) -> Iterator[OpenRun]:
        """Give the run, reopened from what is committed if an earlier attempt failed."""
        if self.run is None:
            self.run = building.attach(self.view.output, self.owner, accept_unsafe_store=self.accept_unsafe_store)
            last = self.run.last_commit
            # A commit may have succeeded although its writer was told that it failed.
            if last is not None and last != self.last:
                self.hear(last)
        try:
            yield self.run
        except Exception:
            self.close()
            raise
        finally:
            if self.run is not None:
                self.head = self.run.head

    def close(self) -> None:
        """Let go of the inputs."""
        if self.run is not None:
            self.head = self.run.head
            self.run.close()
            self.run = None


_starts: dict[str, _Start] = {}
"""By owner. Tasks are given the name, and find here what it stands for."""


def _segment_name() -> str:
    parameters = task_run.parameters
    first, last = parameters["first_shard"], parameters["stop_shard"] - 1
    return f"shard {first}" if first == last else f"shards {first} to {last}"


@task(
    name="open",
    task_run_name="open",
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=is_worth_a_retry,
)
def open_run(config: MixConfig, *, extend: bool, allow_repack: bool, accept_unsafe_store: bool) -> str:
    """Start, resume or extend the run; return the name of this start, its owner."""
    run = building.start(config, extend=extend, allow_repack=allow_repack, accept_unsafe_store=accept_unsafe_store)
    view = RunView(run.output, run.fingerprint, run.plan)
    caller = current_caller.get() or Caller()
    last = run.last_commit
    taken = 0 if last is not None else run.committed
    _starts[run.owner] = _Start(view, run.owner, run, last, run.head, caller, accept_unsafe_store, taken)
    return run.owner


@task(
    name="segment",
    task_run_name=_segment_name,
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=is_worth_a_retry,
)
def write_segment(owner: str, first_shard: int, stop_shard: int) -> int:  # noqa: ARG001 -- the log knows the first one
    """Write and commit the missing shards before `stop_shard`; return how many shards are committed then."""
    start = _starts[owner]
    with start.opened() as run:
        run.write(stop_shard, on_commit=start.hear, should_stop=start.caller.should_stop)
        return run.committed


@task(
    name="finish",
    task_run_name="finish",
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_condition_fn=is_worth_a_retry,
)
def finish_run(owner: str) -> RunSummary:
    """Complete the run if every shard is committed; return how far it is."""
    with _starts[owner].opened() as run:
        return run.finish() if run.committed == run.plan.shard_count else run.summary()


@flow(name="premix", persist_result=False, log_prints=False)
def premix(
    config: GivenMixOrPlace,
    allow_repack: bool = False,  # noqa: FBT001, FBT002 -- a field of a form
    accept_unsafe_store: bool = False,  # noqa: FBT001, FBT002 -- the same
    extend: bool = False,  # noqa: FBT001, FBT002 -- the same
    date: GivenDate | None = None,
) -> RunSummary | State[Any]:
    """Mix datasets into committed shards: start the run that `config` describes, or continue it.

    Args:
        config: What to mix, and where to; or the path or URL of a YAML file that says so, read when a flow run starts.
        allow_repack: Go on although the Parquet writer's version or settings have changed: the same rows, other bytes.
        accept_unsafe_store: Go on although the output's store has no create-only writes: then never let two runs work
            on it at once, or they could overwrite each other's shards and commits.
        extend: Make the run longer if `config` asks for more batches or phases than it has; nothing there is touched.
        date: What {date} in the output stands for. Leave it out: it is the date on which the flow run is to start, in
            the time zone of its schedule, and stays that when it starts late or is tried again.
    """
    # Who serves a flow has it pickled, this function with all that it names: so it names one that is found by import.
    return _premix(config, date, extend=extend, allow_repack=allow_repack, accept_unsafe_store=accept_unsafe_store)


# As types and not as their names: a pickled function has no module around it in which these could be looked up.
premix.fn.__annotations__ = get_type_hints(premix.fn, include_extras=True)


def _premix(
    config: object,
    date: dt.date | None,
    *,
    extend: bool,
    allow_repack: bool,
    accept_unsafe_store: bool,
) -> RunSummary | State[Any]:
    """Carry the flow run out, for whoever called it."""
    caller = current_caller.get() or Caller()
    caller.summary = caller.error = None
    if caller.should_stop is not None:
        # Prefect has just installed a handler of SIGTERM; one who stops runs by signals gets to know of it here.
        caller.should_stop()
    try:
        flow_run, client = entered(caller, without="mixer.build")
        mix = settle(config, date, flow_run, client)
        summary = caller.summary = _carry_out(
            mix, flow_run.id, caller, extend=extend, allow_repack=allow_repack, accept_unsafe_store=accept_unsafe_store
        )
    except StoppedError as error:
        caller.error = error
        return Cancelled(message=str(error))
    except Exception as error:
        caller.error = error
        raise
    if summary.finished:
        return summary
    return Cancelled(
        message=f"Stopped when asked to, with {summary.committed} of {summary.shards} shards committed; "
        f"run it again to go on."
    )


def _carry_out(  # noqa: PLR0913 -- each is one independent choice
    config: MixConfig, flow_run_id: UUID, caller: Caller, *, extend: bool, allow_repack: bool, accept_unsafe_store: bool
) -> RunSummary:
    """Start or continue the run, and show it while it goes on and when it is over."""
    began = time.monotonic()
    prepared_first(config, caller)
    owner = called(open_run, caller)(
        config, extend=extend, allow_repack=allow_repack, accept_unsafe_store=accept_unsafe_store
    )
    start = _starts[owner]
    try:
        with Reporter(start.view, flow_run_id) as reporter:
            start.reporter = reporter
            if start.last is not None:
                reporter.commit(start.last)
            try:
                summary = _write_all(start)
            except Exception as error:
                ending = Ending(start.last, start.head, finished=False, seconds=time.monotonic() - began, error=error)
                reporter.finish(report_text(start.view, ending))
                raise
            seconds = time.monotonic() - began
            ending = Ending(start.last, summary.head, finished=summary.finished, seconds=seconds)
            reporter.finish(report_text(start.view, ending))
            return summary
    finally:
        start.close()
        del _starts[owner]


def _write_all(start: _Start) -> RunSummary:
    """Write segment after segment to the end of the run, or until the caller wants it to stop."""
    shard_count = start.view.plan.shard_count
    committed = start.last.shard + 1 if start.last is not None else start.taken
    segments, shards, seconds = 0, 0, 0.0
    while committed < shard_count:
        segment = next_segment(
            committed, shard_count, previous_shards=shards, previous_seconds=seconds, segments=segments
        )
        began = time.monotonic()
        committed = called(write_segment, start.caller)(start.owner, segment.start, segment.stop)
        segments, shards, seconds = segments + 1, len(segment), time.monotonic() - began
        if committed < segment.stop:
            break
    return called(finish_run, start.caller)(start.owner)


def run(  # noqa: PLR0913 -- each is one independent choice
    config: MixConfig,
    *,
    extend: bool = False,
    allow_repack: bool = False,
    accept_unsafe_store: bool = False,
    on_commit: OnCommit | None = None,
    on_part: OnPart | None = None,
    should_stop: ShouldStop | None = None,
) -> RunSummary:
    """Run the flow in this process, on the Prefect server that is set up or one of its own; return how far the run is.

    Args:
        config: What to mix, and where to.
        extend: See `mixer.building.start`.
        allow_repack: See `mixer.building.start`.
        accept_unsafe_store: See `mixer.building.start`.
        on_commit: Hears of each commit, in order, in this thread.
        on_part: Hears of each part that is prepared, before the run begins.
        should_stop: Asked at the start and at each shard's edge; True ends the flow run there, as cancelled. At a
            part's edge, too, where `StoppedError` is raised.

    Raises:
        MixerError: As from `mixer.building.build`, or that Prefect did not start the flow.
    """
    caller = Caller(on_commit, should_stop, on_part)
    return run_here(
        lambda: premix(config, allow_repack, accept_unsafe_store, extend, return_state=True),
        caller,
        lambda: caller.summary,
        command="mixer run --no-prefect",
    )
