"""Credentials are no part of what Prefect records: parameters, names, logs, states, artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

from flows.premix import run
from mixer.errors import MixerError
from mixer.storage import open_store
from tests.flows.reading import eventually, flow_runs, task_runs
from tests.mixes import make_inputs, mix_config
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY

pytestmark = [pytest.mark.flows, pytest.mark.s3]

WRONG = "hunter2hunter2hunter2"


def recorded(api: SyncPrefectClient, output: str) -> Iterator[str]:
    """Yield all that the server holds of the runs that wrote to `output`, as text."""
    for flow_run in flow_runs(api, output):
        yield flow_run.model_dump_json()
        for task_run in task_runs(api, flow_run.id, count=1):
            yield task_run.model_dump_json()
        wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run.id]))
        for log in eventually(lambda wanted=wanted: api.read_logs(log_filter=wanted, limit=200), bool):  # type: ignore[misc]
            yield log.model_dump_json()
    for artifact in api.read_artifacts(limit=200):
        yield artifact.model_dump_json()


@pytest.mark.parametrize("refused", [False, True], ids=["a run", "a run that is refused"])
def test_prefect_records_no_credentials(
    api: SyncPrefectClient, tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    make_inputs(tmp_path / "inputs")
    store = open_store(s3_url)
    for file in (tmp_path / "inputs").rglob("*.parquet"):
        store.put(f"in/{file.relative_to(tmp_path / 'inputs').as_posix()}", file.read_bytes())
    datasets = {name: {"path": f"{s3_url}/in/{name}/", "weight": 1} for name in ("web", "code", "books")}
    config = mix_config(tmp_path, output=f"{s3_url}/out", datasets=datasets, batches=6)
    if refused:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
        with pytest.raises(MixerError, match="check AWS_SECRET_ACCESS_KEY"):
            run(config)
    else:
        assert run(config).finished
    text = "\n".join(recorded(api, config.output))
    assert json.dumps(config.output)[1:-1] in text
    assert ("check AWS_SECRET_ACCESS_KEY" in text) == refused
    for secret in (ACCESS_KEY_ID, SECRET_ACCESS_KEY, WRONG):
        assert secret not in text
