"""The deployment that `python -m flows.serve` makes; `infra/prefect.yaml` makes the same one for workers."""

from __future__ import annotations

import httpx
import prefect
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from flows.premix import premix
from flows.settings import is_embedded
from flows.settling import read_config
from mixer.errors import ConfigError, MixerError

TAGS = ["mixer"]
LIMIT = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
"""A flow run that is due while another one works waits for it: of two at once the newer would end the older."""


def deployment_of(config: str, *, name: str, cron: str, timezone: str) -> RunnerDeployment:
    """Return the deployment, which nobody knows of yet.

    Raises:
        ConfigError: The schedule or the time zone is none.
    """
    try:
        schedule = Cron(cron, timezone=timezone)
        deployment = premix.to_deployment(
            name=name,
            schedule=schedule,
            concurrency_limit=LIMIT,
            tags=TAGS,
            parameters={"config": config},
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    except (ValidationError, ValueError) as error:
        raise ConfigError(
            f"--cron {cron!r}, --timezone {timezone!r}: expected a cron schedule and a time zone"
        ) from error
    if not isinstance(deployment, RunnerDeployment):
        raise TypeError(f"expected a deployment, found {type(deployment).__name__}")
    return deployment


def serve_premix(config: str, *, name: str, cron: str, timezone: str) -> None:
    """Do as `flows.serve.serve` says."""
    read_config(config)
    if is_embedded():
        raise ConfigError("PREFECT_API_URL: not set; start a server with `prefect server start`, and set it to its API")
    # Not paused when this ends: what falls due meanwhile is made up for by the next one.
    deployment = deployment_of(config, name=name, cron=cron, timezone=timezone)
    try:
        prefect.serve(deployment, limit=1, pause_on_shutdown=False)
    except httpx.TransportError as error:
        raise MixerError(
            f"PREFECT_API_URL: no server answers there ({type(error).__name__}); start it, or set its API"
        ) from error
