"""Artifacts beside the work: a thread shows each commit on the Prefect server, and can neither slow nor fail a run.

The commit log is the truth and this its mirror. Handing a commit over takes a lock and an append. A server that does
not answer is left alone for a while, longer each time, and costs the run nothing; what piles up meanwhile is caught up
or, past `BACKLOG_MAX`, left out, and the newest state says which shards have no version of their own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.context import SettingsContext, get_settings_context
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES

from flows.artifacts import RunView, state_table, state_text
from mixer.core.commits import Commit

log = logging.getLogger(f"mixer.{__name__}")

BACKLOG_MAX = 256
"""Commits that may wait to be shown; of more, the oldest get no version of their own."""
FLUSH_SECONDS = 10.0
_RESERVE = 0.3
"""Of the time for the end, what is kept for the last state and the report."""
_ABORT_SECONDS = 2.0
_CALL_SECONDS = 5.0
_PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
_PROGRESS_SECONDS = 2.0
_FAILURES_AT_END_MAX = 2


@dataclass(frozen=True, slots=True)
class _Ending:
    """What is still to be shown when the run is over."""

    report: str
    hurry_at: float
    """When to leave all but the last state out, by the monotonic clock."""


class Reporter:
    """Shows a run's commits as artifacts of a flow run; a context manager, for one thread to hand commits to.

    Args:
        view: The run.
        flow_run_id: The flow run that the artifacts belong to.
        backlog_max: How many commits may wait to be shown.
        flush_seconds: How long the end of the run waits for the mirror at most.
    """

    def __init__(
        self,
        view: RunView,
        flow_run_id: UUID | None,
        *,
        backlog_max: int = BACKLOG_MAX,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self._flush_seconds = flush_seconds
        self._view = view
        self._mirror = _Mirror(view, flow_run_id)
        self._waiting: deque[Commit] = deque(maxlen=backlog_max)
        self._changed = threading.Condition()
        self._ending: _Ending | None = None
        self._is_trouble_said = False
        self._settings = get_settings_context()
        self._thread = threading.Thread(target=self._work, name="mixer-reporter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread, if `finish` did not: something ends the process, and only the last state has still time."""
        with self._changed:
            if self._ending is not None:
                return
            self._ending = _Ending("", time.monotonic())
            self._changed.notify()
        self._thread.join(_ABORT_SECONDS)

    def commit(self, commit: Commit) -> None:
        """Show `commit` soon."""
        with self._changed:
            self._waiting.append(commit)
            self._changed.notify()

    def finish(self, report: str) -> None:
        """Show what is waiting and `report`, a Markdown text; return when it is done or time is up."""
        with self._changed:
            self._ending = _Ending(report, time.monotonic() + (1 - _RESERVE) * self._flush_seconds)
            self._changed.notify()
        self._thread.join(self._flush_seconds)
        if self._thread.is_alive():
            log.warning("the Prefect server is slow; it was not shown everything output=%s", self._view.output)

    def _work(self) -> None:
        settings = self._settings.settings.copy_with_update(updates={PREFECT_CLIENT_MAX_RETRIES: 0})
        # A thread begins without the settings of the one that started it.
        with SettingsContext(profile=self._settings.profile, settings=settings), self._mirror:
            self._show_commits()
            if self._ending is not None:
                self._show_end(self._ending)

    def _show_commits(self) -> None:
        """Show commits as they come, until the run is over."""
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending is not None or self._waiting)
                if self._ending is not None:
                    return
                commit = self._waiting[0]
            if self._try_to_show(commit):
                failures = 0
                continue
            pause = _PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]
            failures += 1
            with self._changed:
                self._changed.wait_for(lambda: self._ending is not None, timeout=pause)

    def _show_end(self, ending: _Ending) -> None:
        """Show what is still waiting as far as time allows, but always try to show the last state and the report."""
        failures = 0
        while self._waiting and failures < _FAILURES_AT_END_MAX:
            if time.monotonic() > ending.hurry_at or failures:
                while len(self._waiting) > 1:
                    self._waiting.popleft()
            failures += not self._try_to_show(self._waiting[0])
        if ending.report and failures < _FAILURES_AT_END_MAX:
            self._mirror.try_to_end(ending.report)

    def _try_to_show(self, commit: Commit) -> bool:
        """Show `commit` and take it off those that wait; return whether that went well."""
        try:
            self._mirror.show(commit, is_newest=len(self._waiting) == 1)
        except Exception as error:  # noqa: BLE001 -- whatever the mirror's trouble is, it is not the run's
            self._mirror.disconnect()
            if not self._is_trouble_said:
                self._is_trouble_said = True
                log.warning(
                    "the Prefect server could not be told of a commit; the run goes on shard=%d error=%s",
                    commit.shard,
                    type(error).__name__,
                )
            return False
        self._is_trouble_said = False
        with self._changed:
            # Unless more came than may wait, and it was pushed out meanwhile.
            if self._waiting and self._waiting[0] is commit:
                self._waiting.popleft()
        return True


class _Mirror:
    """The artifacts of one run on the server; every call may raise whatever a client raises."""

    def __init__(self, view: RunView, flow_run_id: UUID | None) -> None:
        self._view = view
        self._flow_run_id = flow_run_id
        self._connection = ExitStack()
        self._client: SyncPrefectClient | None = None
        self._shown_shard: int | None = None
        self._progress: UUID | None = None
        self._progress_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Forget the connection; the next call makes a new one."""
        self._client = None
        self._connection.close()

    def show(self, commit: Commit, *, is_newest: bool) -> None:
        """Show the state after `commit`, once."""
        if self._shown_shard is None:
            newest = self._newest_on_server()
            # The start of a resumed run shows the state that it found, unless its forerunner did.
            if newest is not None and newest == commit.shard:
                self._shown_shard = newest
        if self._shown_shard != commit.shard:
            first_unseen = commit.shard if self._shown_shard is None else self._shown_shard + 1
            self._create(
                "state",
                "table",
                json.dumps(state_table(self._view, commit)),
                state_text(self._view, commit, unseen_shards=range(first_unseen, commit.shard)),
            )
            self._shown_shard = commit.shard
        now = time.monotonic()
        is_last = commit.shard + 1 == self._view.plan.shard_count
        if is_last or (is_newest and now - self._progress_at >= _PROGRESS_SECONDS):
            self._progress_at = now
            self._show_progress(commit)

    def try_to_end(self, report: str) -> None:
        """Show the report, if the server can be reached."""
        try:
            headline = report.partition("\n")[0].removeprefix("# ")
            self._create("report", "markdown", report, f"{headline}: `{self._view.output}`")
        except Exception as error:  # noqa: BLE001 -- as above
            log.warning("the Prefect server could not be shown the report error=%s", type(error).__name__)

    def _show_progress(self, commit: Commit) -> None:
        done = commit.shard + 1
        percent = 100 * done / self._view.plan.shard_count
        description = f"{done:,} of {self._view.plan.shard_count:,} shards of `{self._view.output}`"
        if self._progress is None:
            self._progress = self._create("progress", "progress", percent, description)
        else:
            self._connected().update_artifact(self._progress, ArtifactUpdate(data=percent, description=description))

    def _create(self, name: str, kind: str, data: str | float, description: str) -> UUID:
        artifact = ArtifactCreate(
            key=f"{self._view.key}-{name}", type=kind, description=description, data=data, flow_run_id=self._flow_run_id
        )
        return self._connected().create_artifact(artifact).id

    def _newest_on_server(self) -> int | None:
        """Return the shard that the newest state on the server is of."""
        key = ArtifactCollectionFilterKey(any_=[f"{self._view.key}-state"])
        found = self._connected().read_latest_artifacts(artifact_filter=ArtifactCollectionFilter(key=key))
        try:
            return int(json.loads(str(found[0].data))[0]["shard"]) if found else None
        except (ValueError, LookupError, TypeError):
            return None

    def _connected(self) -> SyncPrefectClient:
        if self._client is None:
            # With settings of its own it is a client of its own, which no other thread uses.
            client = get_client(sync_client=True, httpx_settings={"timeout": _CALL_SECONDS})
            self._client = self._connection.enter_context(client)
        return self._client
