"""What Prefect is told before it is imported, so that a flow runs well where nobody has set anything up.

Whatever the user chose, in the environment, in a profile or in a ``prefect.toml``, is left alone.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from mixer.errors import ConfigError

if TYPE_CHECKING:
    from prefect.task_runners import TaskRunner

DEFAULTS = {
    # The first server on an empty home migrates its database, which takes longer than Prefect's 20 s on a busy machine.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Without internet the server would log an ERROR at its start and every ten minutes.
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # One by one, which is Prefect's default, task runs are recorded far more slowly than they end.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "0.5",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "mixer",
    # The engine's own threads have no run to log to.
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}
"""Prefect settings by the names of their environment variables."""

CONSOLE_LEVEL = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"
"""Not a setting, but an override of Prefect's logging configuration: what stderr shows; the server gets all."""

RETRY_DELAYS = "MIXER_RETRY_DELAYS_SECONDS"
"""Environment variable: seconds to wait before each retry of a task, such as ``10,60,300``; empty for no retries."""
DEFAULT_RETRY_DELAYS_SECONDS = (10.0, 60.0, 300.0)


def apply_defaults() -> None:
    """Set the environment for Prefect and its child processes; best called before the first import of prefect."""
    # Read by the import itself.
    os.environ.setdefault("DO_NOT_TRACK", "1")
    is_logging_set_up = "prefect.main" in sys.modules
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415 -- see above
    from prefect.settings import get_current_settings  # noqa: PLC0415 -- see above

    chosen = get_current_settings().to_environment_variables(exclude_unset=True)
    for name, value in DEFAULTS.items():
        if name not in chosen:
            os.environ.setdefault(name, value)
    if "PREFECT_LOGGING_LEVEL" not in chosen:
        os.environ.setdefault(CONSOLE_LEVEL, "WARNING")
    if not {"PREFECT_API_URL", "PREFECT_SERVER_EPHEMERAL_ENABLED"} & chosen.keys():
        os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_ENABLED", "true")
    refresh_global_settings_context()
    if is_logging_set_up and "PREFECT_LOGGING_EXTRA_LOGGERS" not in chosen:
        _log_as_extra_logger("mixer")


def retry_delays() -> list[float]:
    """Return how many seconds to wait before each retry of a task that failed for a while only.

    Raises:
        ConfigError: The environment asks for something else.
    """
    text = os.environ.get(RETRY_DELAYS)
    if text is None:
        return list(DEFAULT_RETRY_DELAYS_SECONDS)
    try:
        delays = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        delays = [-1.0]
    if not all(0 <= delay <= threading.TIMEOUT_MAX for delay in delays):
        raise ConfigError(f"{RETRY_DELAYS}: expected seconds such as '10,60,300', or nothing, found {text!r}")
    return delays


def is_embedded() -> bool:
    """Return whether this process starts a Prefect server of its own, because no other is known."""
    from prefect.settings import get_current_settings  # noqa: PLC0415 -- only where Prefect is wanted

    return not get_current_settings().api.url


def refuse_process_pool(runner: TaskRunner[Any]) -> None:
    """Refuse a pool of processes where each of them would start a Prefect server.

    Raises:
        ConfigError: `runner` is one, and there is no server to share.
    """
    from prefect.task_runners import ProcessPoolTaskRunner  # noqa: PLC0415 -- only where Prefect is wanted

    if isinstance(runner, ProcessPoolTaskRunner) and is_embedded():
        raise ConfigError(
            "task_runner: a ProcessPoolTaskRunner without a server would start one Prefect server in each of its "
            "processes; start one with `prefect server start` and set PREFECT_API_URL, or use another task runner"
        )


def _log_as_extra_logger(name: str) -> None:
    """Send a logger's records to the API, where Prefect had set up logging before it could be told to."""
    logger = logging.getLogger(name)
    for handler in logging.getLogger("prefect.extra").handlers:
        if handler not in logger.handlers:
            logger.addHandler(handler)
