"""`infra/prefect.yaml` and `python -m flows.serve` make the same deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.utilities.importtools import import_object

from flows import serve, serving
from flows.premix import premix

INFRA = Path(__file__).parents[2] / "infra"


def deployment() -> dict[str, Any]:
    """Return the one deployment of the file."""
    (found,) = yaml.safe_load((INFRA / "prefect.yaml").read_text())["deployments"]
    assert isinstance(found, dict)
    return found


def test_the_file_makes_the_deployment_that_serving_makes() -> None:
    asked = deployment()
    (schedule,) = asked["schedules"]
    served = serving.deployment_of("mix.yaml", name="nightly", **schedule)
    assert asked["name"] == served.name
    assert asked["tags"] == served.tags
    assert asked["parameters"] == served.parameters
    assert asked["entrypoint"] == served.entrypoint
    assert import_object(asked["entrypoint"]) is premix
    assert asked["concurrency_limit"] == serving.LIMIT.model_dump(mode="json", exclude_none=True)
    (made,) = served.schedules or []
    assert isinstance(made.schedule, CronSchedule)
    assert made.schedule.model_dump(include=set(schedule)) == schedule
    environment = asked["work_pool"]["job_variables"]["env"]
    assert environment == {serve.HEARTBEAT: serve.HEARTBEAT_SECONDS}


def test_a_dead_run_is_found_before_its_slot_is_free_and_a_living_one_is_not_found() -> None:
    rule = AutomationCore.model_validate(yaml.safe_load((INFRA / "dead-runs.yaml").read_text()))
    trigger = rule.trigger
    assert isinstance(trigger, EventTrigger)
    assert trigger.posture == Posture.Proactive
    # A run gives a sign every 30 s; Prefect frees the slot of one that does not renew its lease after 300 s.
    assert 3 * int(serve.HEARTBEAT_SECONDS) <= trigger.within.total_seconds() <= 300 / 2
    assert isinstance(trigger.match_related, ResourceSpecification)
    assert trigger.match_related.root["prefect.resource.id"] in {f"prefect.tag.{tag}" for tag in serving.TAGS}
