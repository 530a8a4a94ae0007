"""What the server takes and refuses of a deployment's flow runs, and what those make of it; in this process."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flow_engine import run_flow_sync
from prefect.states import Scheduled

from flows import serving, settling
from flows.caller import Caller, calling
from flows.premix import premix
from mixer import building
from mixer.building import RunSummary
from mixer.config import MixConfig, to_yaml
from mixer.core.commits import Commit
from mixer.errors import ConfigError
from tests.flows.outputs import SHARDS, shard_bytes
from tests.flows.prefect_server import PrefectServer
from tests.mixes import config_values, mix_config

pytestmark = pytest.mark.flows

EVENING = dt.datetime(2026, 3, 1, 22, 30, tzinfo=dt.UTC)
"""In Berlin it is the same day, in Tokyo the next one."""


@pytest.fixture
def deployment(api: SyncPrefectClient, tmp_path: Path) -> Iterator[UUID]:
    """A deployment that nobody serves, of a mix for each date in Tokyo."""
    values = config_values(tmp_path, output=str(tmp_path / "out-{date}"))
    (tmp_path / "mix.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    made = serving.deployment_of(str(tmp_path / "mix.yaml"), name="tried", cron="0 3 * * *", timezone="Asia/Tokyo")
    found = made.apply()
    assert isinstance(found, UUID)
    yield found
    api.delete_deployment(found)


def asked(api: SyncPrefectClient, deployment: UUID, **parameters: Any) -> FlowRun:
    """Return a flow run that was to start in that evening."""
    return api.create_flow_run_from_deployment(
        deployment, parameters=parameters, state=Scheduled(scheduled_time=EVENING)
    )


def asked_for(api: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    """Return the flow runs of a deployment that its schedule did not make."""
    ours = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment]))
    return [run for run in api.read_flow_runs(flow_run_filter=ours) if not run.auto_scheduled]


def carried_out(api: SyncPrefectClient, run: FlowRun, *, retries: int = 0) -> FlowRun:
    """Carry a flow run out as a process of a worker does; return what the server says of it then."""
    flow = premix.with_options(retries=retries, retry_delay_seconds=0)
    run = api.read_flow_run(run.id)
    parameters = flow.validate_parameters(run.parameters) if run.parameters else {}
    run_flow_sync(flow, flow_run=run, parameters=parameters, return_type="state")
    return api.read_flow_run(run.id)


def test_a_wrong_config_is_refused_before_a_flow_run_exists(
    api: SyncPrefectClient, deployment: UUID, tmp_path: Path
) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"batch_size": 0}, "config.batch_size", "less than the minimum of 1"),
        ({"seed": "x"}, "config.seed", "not of type 'integer'"),
        ({"batchsize": 4}, "config", "'batchsize' was unexpected"),
        ({"on_exhausted": "stpo"}, "config.on_exhausted", "is not one of"),
        ({"datasets": {"a": {"path": "p", "weight": 0}}}, "config.datasets.a.weight", "less than the minimum of 1"),
        ({"datasets": {"a": {"path": "p", "wieght": 1}}}, "config.datasets.a", "'wieght' was unexpected"),
    ]
    for changes, field, reason in cases:
        with pytest.raises(PrefectHTTPStatusError) as refused:
            asked(api, deployment, config={**config_values(tmp_path), **changes})
        assert f"Validation failed for field '{field}'" in refused.value.response.text
        assert reason in refused.value.response.text
    assert asked_for(api, deployment) == []


def test_a_wrong_date_is_refused_before_a_flow_run_exists(api: SyncPrefectClient, deployment: UUID) -> None:
    for wrong in ("yesterday", "2026-13-45", "2026-11-31", "2026-11-30T00:00:00", "", 20261130):
        with pytest.raises(PrefectHTTPStatusError) as refused:
            asked(api, deployment, date=wrong)
        assert "Validation failed for field 'date'" in refused.value.response.text
    assert asked_for(api, deployment) == []
    for right in ("2024-02-29", None):
        assert asked(api, deployment, date=right).parameters["date"] == right


def test_the_server_takes_the_days_of_a_leap_year_and_no_others() -> None:
    numbers = [f"{number:02}" for number in range(100)]
    taken = [f"2028-{m}-{d}" for m in numbers for d in numbers if re.search(settling.DATE_PATTERN, f"2028-{m}-{d}")]
    assert taken == [(dt.date(2028, 1, 1) + dt.timedelta(days)).isoformat() for days in range(366)]


def test_what_the_server_takes_and_mixer_does_not_is_told_in_its_words(
    api: SyncPrefectClient, deployment: UUID, tmp_path: Path
) -> None:
    # To JSON Schema these are whole numbers.
    wrong = {**config_values(tmp_path), "batch_size": 16.0, "seed": 1.0}
    failed = carried_out(api, asked(api, deployment, config=wrong))
    assert failed.state is not None
    assert failed.state.message == (
        "Flow run encountered an exception: ConfigError: batch_size: expected a positive whole number, found 16.0\n"
        "seed: expected a whole number from 0, found 1.0"
    )


def test_the_server_knows_every_field_its_default_its_bounds_and_what_it_is(
    api: SyncPrefectClient, deployment: UUID
) -> None:
    schema = api.read_deployment(deployment).parameter_openapi_schema
    assert schema is not None
    fields = schema["definitions"]["MixConfig"]["properties"]
    assert fields.keys() == MixConfig.model_fields.keys()
    assert all(fields[name]["description"] == field.description for name, field in MixConfig.model_fields.items())
    assert (fields["batch_size"]["minimum"], fields["seed"]["default"]) == (1, 0)
    assert all(parameter["description"] for parameter in schema["properties"].values())


def test_a_late_flow_run_is_of_the_date_when_it_was_due_whatever_becomes_of_the_schedule(
    api: SyncPrefectClient, deployment: UUID, tmp_path: Path
) -> None:
    run = asked(api, deployment)
    (tmp_path / "web-is-away").mkdir()
    web = tmp_path / "inputs" / "web"
    web.rename(tmp_path / "web-is-away" / "web")
    failed = carried_out(api, run)
    assert (failed.state_name, failed.parameters["date"]) == ("Failed", "2026-03-02")
    assert failed.name == f"premix {tmp_path}/out-2026-03-02"
    (schedule,) = api.read_deployment(deployment).schedules
    api.update_deployment_schedule(
        deployment, schedule.id, schedule=CronSchedule(cron="0 3 * * *", timezone="Europe/Berlin")
    )
    (tmp_path / "web-is-away" / "web").rename(web)
    api.set_flow_run_state(run.id, Scheduled(), force=True)
    assert carried_out(api, run).state_name == "Completed"
    assert building.status(str(tmp_path / "out-2026-03-02")).finished
    # Another flow run goes by the schedule as it is now.
    assert carried_out(api, asked(api, deployment)).parameters["date"] == "2026-03-01"


def test_a_retry_of_the_flow_goes_on_in_the_output_of_its_date(
    api: SyncPrefectClient, deployment: UUID, config: MixConfig, unbroken: RunSummary, tmp_path: Path
) -> None:
    failures = [4]
    heard: list[int] = []

    def fail_once(commit: Commit) -> None:
        heard.append(commit.shard)
        if commit.shard in failures:
            failures.remove(commit.shard)
            raise OSError("the lights went out")

    (tmp_path / "mix.yaml").write_text(to_yaml(config).replace(config.output, f"{config.output}-{{date}}"))
    with calling(Caller(on_commit=fail_once)):
        done = carried_out(api, asked(api, deployment), retries=1)
    assert (done.state_name, done.run_count) == ("Completed", 2)
    assert heard == list(range(SHARDS))
    assert shard_bytes(f"{config.output}-2026-03-02") == shard_bytes(unbroken.output)


def test_a_past_night_is_made_by_its_date(api: SyncPrefectClient, deployment: UUID, tmp_path: Path) -> None:
    done = carried_out(api, asked(api, deployment, date="2026-02-27"))
    assert (done.state_name, done.name) == ("Completed", f"premix {tmp_path}/out-2026-02-27")
    assert building.status(str(tmp_path / "out-2026-02-27")).finished


def test_a_date_without_a_place_for_it_is_refused(api: SyncPrefectClient, deployment: UUID, tmp_path: Path) -> None:
    failed = carried_out(api, asked(api, deployment, config=config_values(tmp_path), date="2026-02-27"))
    assert failed.state is not None
    assert "date: given, but the output" in str(failed.state.message)
    assert failed.name == f"premix {tmp_path}/out"
    with pytest.raises(ConfigError, match="is the date of a flow run of a deployment, and this one is of none"):
        premix(mix_config(tmp_path, output=str(tmp_path / "{date}")))


def test_a_config_in_parameters_makes_what_its_file_makes(
    api: SyncPrefectClient, deployment: UUID, config: MixConfig, unbroken: RunSummary, prefect_server: PrefectServer
) -> None:
    values = config.model_dump(mode="json", exclude_none=True)
    # Not in the order of the alphabet, nor of the lengths.
    assert list(values["datasets"]) == ["web", "code", "books"]
    turned = {**values, "datasets": dict(reversed(values["datasets"].items()))}
    run = asked(api, deployment, config=turned)
    assert list(api.read_flow_run(run.id).parameters["config"]["datasets"]) == ["books", "code", "web"]
    done = carried_out(api, asked(api, deployment, config=values))
    assert (done.state_name, done.name) == ("Completed", f"premix {config.output} of 2026-03-02")
    assert building.status(config.output).head == unbroken.head
    assert shard_bytes(config.output) == shard_bytes(unbroken.output)


def test_several_datasets_from_a_server_that_sorts_them_are_refused(
    api: SyncPrefectClient, deployment: UUID, tmp_path: Path
) -> None:
    kept = api.read_deployment(deployment)
    schema = kept.parameter_openapi_schema
    assert schema is not None
    assert settling.keeps_order(schema)
    # As PostgreSQL gives it back: by length, then by bytes.
    properties = dict(sorted(schema["properties"].items(), key=lambda item: (len(item[0]), item[0])))
    sorting = kept.model_copy(update={"parameter_openapi_schema": {**schema, "properties": properties}})
    three = mix_config(tmp_path, output=str(tmp_path / "three"))
    with pytest.raises(ConfigError, match="PostgreSQL sorts them"):
        settling._refuse_unsure_order(three, sorting)
    settling._refuse_unsure_order(three, kept)
    settling._refuse_unsure_order(three.model_copy(update={"datasets": {"web": three.datasets["web"]}}), sorting)


def test_a_config_may_lie_in_a_store(s3_url: str, tmp_path: Path) -> None:
    from mixer.storage import open_store  # noqa: PLC0415 -- only this test needs it

    text = yaml.safe_dump(config_values(tmp_path), sort_keys=False)
    open_store(f"{s3_url}/mixes").put("nightly.yaml", text.encode())
    assert settling.read_config(f"{s3_url}/mixes/nightly.yaml") == mix_config(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        settling.read_config(f"{s3_url}/mixes/weekly.yaml")
