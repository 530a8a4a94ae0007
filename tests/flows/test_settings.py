"""Prefect is told what it needs before it is imported, and nothing that the user said otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import prefect.settings
import pytest
from prefect.settings import temporary_settings
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from flows.settings import refuse_process_pool, retry_delays
from mixer.errors import ConfigError
from tests.flows.prefect_server import bare_environment

ASK = """
import json, logging, os, sys
{before}
from flows.settings import apply_defaults
apply_defaults()
from prefect.settings import get_current_settings
import prefect.main
settings = get_current_settings()
print(json.dumps({{
    "startup": settings.server.ephemeral.startup_timeout_seconds,
    "embedded": settings.server.ephemeral.enabled,
    "analytics": settings.server.analytics_enabled,
    "batch": settings.server.services.task_run_recorder.batch_size,
    "level": settings.logging.level,
    "console": [handler.level for handler in logging.getLogger().handlers],
    "to api": [type(handler).__name__ for handler in logging.getLogger("mixer").handlers],
    "track": os.environ["DO_NOT_TRACK"],
}}))
"""
WARNING = 30


def settings_in_a_new_process(home: Path, *, before: str = "", **environment: str) -> dict[str, object]:
    """Return what Prefect goes by in a process that has applied the defaults."""
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(before=before)],
        env=bare_environment(home) | environment,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_bare_machine_gets_the_defaults(tmp_path: Path) -> None:
    assert settings_in_a_new_process(tmp_path) == {
        "startup": 120,
        "embedded": True,
        "analytics": False,
        "batch": 100,
        "level": "INFO",
        "console": [WARNING],
        "to api": ["APILogHandler"],
        "track": "1",
    }


def test_what_the_user_chose_by_environment_or_profile_is_left_alone(tmp_path: Path) -> None:
    profiles = tmp_path / ".prefect" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text(
        'active = "mine"\n[profiles.mine]\n'
        'PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS = "7"\n'
        'PREFECT_API_SERVICES_TASK_RUN_RECORDER_ENABLED = "true"\n'
        'PREFECT_LOGGING_EXTRA_LOGGERS = "other"\n'
        'PREFECT_SERVER_ALLOW_EPHEMERAL_MODE = "false"\n'
    )
    chosen = {"DO_NOT_TRACK": "0", "PREFECT_SERVER_ANALYTICS_ENABLED": "true", "PREFECT_LOGGING_LEVEL": "ERROR"}
    assert settings_in_a_new_process(tmp_path, **chosen) == {
        "startup": 7,
        "embedded": False,
        "analytics": True,
        "batch": 100,
        "level": "ERROR",
        "console": [0],
        "to api": [],
        "track": "0",
    }


def test_a_process_that_had_imported_prefect_gets_them_too(tmp_path: Path) -> None:
    answer = settings_in_a_new_process(tmp_path, before="import prefect.main")
    assert (answer["startup"], answer["batch"], answer["to api"]) == (120, 100, ["APILogHandler"])


def test_a_pool_of_processes_is_refused_where_there_is_no_server_to_share() -> None:
    with temporary_settings(restore_defaults={prefect.settings.PREFECT_API_URL}):
        refuse_process_pool(ThreadPoolTaskRunner())
        with pytest.raises(ConfigError, match="ProcessPoolTaskRunner without a server"):
            refuse_process_pool(ProcessPoolTaskRunner())
    with temporary_settings({prefect.settings.PREFECT_API_URL: "http://127.0.0.1:4200/api"}):
        refuse_process_pool(ProcessPoolTaskRunner())


@pytest.mark.parametrize(
    ("text", "delays"), [(None, [10.0, 60.0, 300.0]), ("", []), ("0", [0.0]), ("1, 2.5,", [1.0, 2.5])]
)
def test_retries_are_paused_as_the_environment_says(
    text: str | None, delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIXER_RETRY_DELAYS_SECONDS", raising=False)
    if text is not None:
        monkeypatch.setenv("MIXER_RETRY_DELAYS_SECONDS", text)
    assert retry_delays() == delays


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", "1;2"])
def test_pauses_that_are_no_seconds_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXER_RETRY_DELAYS_SECONDS", text)
    with pytest.raises(ConfigError, match="MIXER_RETRY_DELAYS_SECONDS: expected seconds"):
        retry_delays()
