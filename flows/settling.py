"""What a flow run is asked for, settled once: the config, wherever it is, and the date in its output."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from pydantic import Field, PlainValidator

from flows.naming import UTC, date_at, run_name, with_date, zone_of
from mixer.building import DATE
from mixer.config import MixConfig, config_from, load_config, parse_config
from mixer.errors import ConfigError
from mixer.storage import open_store

DATE_PATTERN = "^[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|[12][0-9])|(0[13-9]|1[0-2])-30|(0[13578]|1[02])-31)$"
"""A date as ISO 8601 writes it, day by day of each month; it lets February have 29 days in every year."""


def _as_given(value: object) -> object:
    return value


GivenMix: TypeAlias = Annotated[MixConfig, PlainValidator(_as_given, json_schema_input_type=MixConfig)]
"""A mix as a parameter of a flow: the server knows its schema, and `mix_of` checks it when a flow run has begun.

Prefect itself would check it before, and tell a mistake in pydantic's words, once for each type that could be meant.
"""
GivenMixOrPlace: TypeAlias = Annotated[
    MixConfig | str,
    PlainValidator(_as_given, json_schema_input_type=MixConfig | Annotated[str, Field(title="path or URL")]),
]
"""The same, or where its YAML file is."""
GivenDate: TypeAlias = Annotated[dt.date, Field(json_schema_extra={"pattern": DATE_PATTERN})]
"""A date as a parameter of a flow; the server goes by patterns, and not by the format that the schema names as well."""


@dataclass(frozen=True, slots=True)
class _Due:
    """When a flow run of a deployment was to start."""

    date: dt.date
    is_sure: bool
    """Whether only one date could be meant."""


def mix_of(config: object) -> MixConfig:
    """Return the mix that a flow was given: as it is, or as the server keeps it, a mapping that is checked now.

    Raises:
        ConfigError: It is none; names every key in the way.

    >>> datasets = {"web": {"path": "web/", "weight": 1}}
    >>> mix_of({"output": "out", "batch_size": 4.0, "batches": 9, "batches_per_shard": 3, "datasets": datasets})
    Traceback (most recent call last):
    mixer.errors.ConfigError: batch_size: expected a positive whole number, found 4.0
    """
    if isinstance(config, MixConfig):
        return config
    if not isinstance(config, Mapping):
        raise ConfigError(f"config: expected a mapping that describes a mix, found {type(config).__name__}")
    return config_from(config)


def settle(config: object, date: dt.date | None, flow_run: FlowRun, client: SyncPrefectClient) -> MixConfig:
    """Return what a flow run is to make, and let the server know: its name, and the date that it has from now on.

    Args:
        config: The mix, as `mix_of` takes it, or the path or URL of its YAML file.
        date: What `{date}` in its output stands for; the date on which the flow run was to start, if left out.
        flow_run: The flow run.
        client: Leads to its server.

    Raises:
        ConfigError: The config cannot be read, or is none, or it is not clear which date or order it means.
        StoreError: The store of the config did not answer.
    """
    asked = config if isinstance(config, str) else mix_of(config)
    # What follows may fail, and then a person should know which mix it was.
    client.update_flow_run(flow_run.id, name=run_name(asked if isinstance(asked, str) else asked.output, None))
    deployment = client.read_deployment(flow_run.deployment_id) if flow_run.deployment_id else None
    mix = read_config(asked) if isinstance(asked, str) else asked
    if deployment is not None and not isinstance(asked, str):
        _refuse_unsure_order(mix, deployment)
    due = _due(flow_run, deployment) if deployment is not None else None
    if DATE in mix.output:
        date = date or _only_date(due)
    elif date is not None:
        raise ConfigError(f"date: given, but the output {mix.output!r} has no {DATE} that it could stand for")
    shown = date or (due.date if due else None)
    if date is None:
        client.update_flow_run(flow_run.id, name=run_name(mix.output, shown))
        return mix
    output = with_date(mix.output, date)
    # Whatever becomes of the schedule, a retry of this flow run is given the same date.
    parameters = {**flow_run.parameters, "date": date.isoformat()}
    client.update_flow_run(flow_run.id, name=run_name(output, date), parameters=parameters)
    return mix.model_copy(update={"output": output})


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
