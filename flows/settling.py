"""What a flow run is asked for, settled once: the config, wherever it is, and the date in its output."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from flows.naming import UTC, date_at, run_name, with_date, zone_of
from mixer.building import DATE
from mixer.config import MixConfig, load_config, parse_config
from mixer.errors import ConfigError
from mixer.storage import open_store


@dataclass(frozen=True, slots=True)
class _Due:
    """When a flow run of a deployment was to start."""

    date: dt.date
    is_sure: bool
    """Whether only one date could be meant."""


def settle(config: MixConfig | str, date: dt.date | None, flow_run: FlowRun, client: SyncPrefectClient) -> MixConfig:
    """Return what a flow run is to make, and let the server know: its name, and the date that it has from now on.

    Args:
        config: The mix, or the path or URL of its YAML file.
        date: What `{date}` in its output stands for; the date on which the flow run was to start, if left out.
        flow_run: The flow run.
        client: Leads to its server.

    Raises:
        ConfigError: The config cannot be read, or is none, or it is not clear which date or order it means.
        StoreError: The store of the config did not answer.
    """
    # What follows may fail, and then a person should know which mix it was.
    client.update_flow_run(flow_run.id, name=run_name(config if isinstance(config, str) else config.output, None))
    deployment = client.read_deployment(flow_run.deployment_id) if flow_run.deployment_id else None
    if isinstance(config, str):
        config = read_config(config)
    elif deployment is not None:
        _refuse_unsure_order(config, deployment)
    due = _due(flow_run, deployment) if deployment is not None else None
    if DATE in config.output:
        date = date or _only_date(due)
    elif date is not None:
        raise ConfigError(f"date: given, but the output {config.output!r} has no {DATE} that it could stand for")
    shown = date or (due.date if due else None)
    if date is None:
        client.update_flow_run(flow_run.id, name=run_name(config.output, shown))
        return config
    output = with_date(config.output, date)
    # Whatever becomes of the schedule, a retry of this flow run is given the same date.
    parameters = {**flow_run.parameters, "date": date.isoformat()}
    client.update_flow_run(flow_run.id, name=run_name(output, date), parameters=parameters)
    return config.model_copy(update={"output": output})


def read_config(where: str) -> MixConfig:
    """Return the config in a YAML file, on a local disk or in a store that outputs may be in, too.

    Raises:
        ConfigError: The file is not there, cannot be read, or is no config; names every line in the way.
        StoreError: The store did not answer.
    """
    folder, slash, name = where.rpartition("/")
    if "://" not in where or not slash:
        return load_config(where)
    data = open_store(folder).get(name)
    if data is None:
        raise ConfigError(f"{where}: no such file")
    try:
        return parse_config(data.decode("utf-8"), where)
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: not UTF-8; save the file as UTF-8") from None


def _due(flow_run: FlowRun, deployment: DeploymentResponse) -> _Due:
    """Return when a flow run was to start; that stays what it is when the flow run is late, waits or is tried again."""
    if flow_run.expected_start_time is None:
        raise RuntimeError("expected a flow run that was to start at some time, found none")
    zones = {schedule.id: getattr(schedule.schedule, "timezone", None) for schedule in deployment.schedules}
    zone = zone_of(flow_run.created_by.id if flow_run.created_by else None, zones)
    return _Due(date_at(flow_run.expected_start_time, zone or UTC), zone is not None)


def _only_date(due: _Due | None) -> dt.date:
    """Return the date that `{date}` must mean."""
    if due is None:
        raise ConfigError(
            f"output: {DATE} is the date of a flow run of a deployment, and this one is of none; write the date, "
            f"or give `date`"
        )
    if not due.is_sure:
        raise ConfigError(
            f"output: it is not clear which date {DATE} means, as this deployment has schedules in several time zones, "
            f"and none of them made this flow run; give `date`, such as {due.date}"
        )
    return due.date


def _refuse_unsure_order(config: MixConfig, deployment: DeploymentResponse) -> None:
    """Refuse several datasets whose order the server may have changed.

    PostgreSQL keeps the keys of a JSON object in an order of its own, which would be another mix.
    """
    if len(config.datasets) > 1 and not keeps_order(deployment.parameter_openapi_schema or {}):
        raise ConfigError(
            "datasets: their order matters, and this server does not keep it in parameters (PostgreSQL sorts them); "
            "give as `config` the path or URL of a YAML file"
        )


def keeps_order(schema: Mapping[str, Any]) -> bool:
    """Return whether a server that gave `schema`, of parameters, back has kept the order of its keys.

    >>> keeps_order({"properties": {"config": {"position": 0}, "allow_repack": {"position": 1}}})
    True
    >>> keeps_order({"properties": {"extend": {"position": 3}, "allow_repack": {"position": 1}}})
    False
    """
    positions = [entry.get("position", 0) for entry in schema.get("properties", {}).values()]
    return positions == sorted(positions)
