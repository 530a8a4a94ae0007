"""Commits are shown on a real server, and a server that is away costs the run nothing but the mirror."""

from __future__ import annotations

import prefect.settings
import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import temporary_settings

from flows.artifacts import RunView
from flows.reporter import Reporter
from tests.flows.gate import Gate
from tests.flows.reading import eventually, shown_shards, table, versions
from tests.flows.views import commit_of, view_of

pytestmark = pytest.mark.flows

WEIGHTS = {"web": 3, "code": 2, "books": 1}


@pytest.fixture
def view(request: pytest.FixtureRequest) -> RunView:
    """A run of its own for each test: twelve shards."""
    return view_of(WEIGHTS, batches_per_shard=1, output=request.node.name)


def test_every_commit_has_a_version_and_the_end_has_a_report(view: RunView, api: SyncPrefectClient) -> None:
    with Reporter(view, None) as reporter:
        for shard in range(12):
            reporter.commit(commit_of(view, shard))
        reporter.finish("# Finished")
    assert shown_shards(api, view.key) == list(range(12))
    assert [artifact.data for artifact in versions(api, f"{view.key}-report")] == ["# Finished"]
    assert [artifact.data for artifact in versions(api, f"{view.key}-progress")] == [100.0]
    last = table(versions(api, f"{view.key}-state")[-1])
    assert [row["offset"] for row in last] == [48, 24, 16, 8]


def test_a_resumed_run_shows_the_state_it_found_only_if_nobody_did(view: RunView, api: SyncPrefectClient) -> None:
    for first, shown in ((0, 3), (2, 5), (6, 8)):
        with Reporter(view, None) as reporter:
            for shard in range(first, shown):
                reporter.commit(commit_of(view, shard))
            reporter.finish("")
    assert shown_shards(api, view.key) == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.timeout(60)
def test_a_server_that_refuses_is_no_error(view: RunView, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    with Reporter(view, None) as reporter:
        for shard in range(12):
            reporter.commit(commit_of(view, shard))
        reporter.finish("# Finished")
    told = [record.message for record in caplog.records if record.name.startswith("mixer")]
    assert told == ["the Prefect server could not be told of a commit; the run goes on shard=0 error=ConnectError"]


@pytest.mark.timeout(60)
def test_a_server_that_hangs_holds_the_end_of_a_run_for_a_bounded_time(
    view: RunView, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.hang()
    with Reporter(view, None, flush_seconds=1) as reporter:
        reporter.commit(commit_of(view, 0))
        reporter.finish("# Finished")
    assert [record.message for record in caplog.records if record.name.startswith("mixer")] == [
        f"the Prefect server is slow; it was not shown everything output={view.output}"
    ]


def test_what_a_server_missed_is_caught_up_when_it_is_back(
    view: RunView, gate: Gate, api: SyncPrefectClient, caplog: pytest.LogCaptureFixture
) -> None:
    with temporary_settings({prefect.settings.PREFECT_API_URL: gate.api_url}), Reporter(view, None) as reporter:
        gate.open()
        reporter.commit(commit_of(view, 0))
        eventually(lambda: shown_shards(api, view.key), lambda shown: shown == [0])
        gate.shut()
        for shard in range(1, 12):
            reporter.commit(commit_of(view, shard))
        eventually(lambda: "could not be told" in caplog.text, bool)
        gate.open()
        shown = eventually(lambda: shown_shards(api, view.key), lambda shown: len(shown) == 12)
        reporter.finish("# Finished")
    assert shown == list(range(12))


def test_more_than_may_wait_is_coalesced_and_said_so(
    view: RunView, gate: Gate, api: SyncPrefectClient, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        temporary_settings({prefect.settings.PREFECT_API_URL: gate.api_url}),
        Reporter(view, None, backlog_max=5) as reporter,
    ):
        gate.open()
        reporter.commit(commit_of(view, 0))
        eventually(lambda: shown_shards(api, view.key), lambda shown: shown == [0])
        gate.shut()
        reporter.commit(commit_of(view, 1))
        eventually(lambda: "could not be told" in caplog.text, bool)
        for shard in range(2, 12):
            reporter.commit(commit_of(view, shard))
        gate.open()
        reporter.finish("# Finished")
    assert shown_shards(api, view.key) == [0, 7, 8, 9, 10, 11]
    assert "Shards 1 to 6 have no version" in str(versions(api, f"{view.key}-state")[1].description)
