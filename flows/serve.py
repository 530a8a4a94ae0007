"""Serve the flow `premix` on a schedule: ``python -m flows.serve mix.yaml --cron "0 3 * * *"``.

One process on one machine: it makes the deployment, waits for its flow runs, and carries each out in a process of its
own, which is told where the config is and reads it when it starts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HEARTBEAT, HEARTBEAT_SECONDS = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30"
"""How often a flow run tells that it is alive; with Prefect's own 180 s a dead one is noticed late."""


def serve(config: str, *, name: str, cron: str, timezone: str) -> None:
    """Make the deployment, and carry its flow runs out until the process is told to end.

    Args:
        config: Path or URL of a config, which is checked now and read again by each flow run.
        name: Name of the deployment.
        cron: When to run.
        timezone: Where `cron` is meant, and where the dates in outputs are from.

    Raises:
        ConfigError: The config, the schedule or the time zone is none, or no server is set up.
        MixerError: No server answers.
    """
    os.environ.setdefault(HEARTBEAT, HEARTBEAT_SECONDS)
    from flows.serving import serve_premix  # noqa: PLC0415 -- Prefect reads the environment when it is imported

    where = config if "://" in config else str(Path(config).absolute())
    serve_premix(where, name=name, cron=cron, timezone=timezone)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.serve", description="Serve the Prefect flow premix on a schedule, until it is stopped."
    )
    parser.add_argument("config", help="the mix: path or URL of a YAML file, read anew by each flow run")
    parser.add_argument("--name", default="nightly", help="of the deployment (default: %(default)s)")
    parser.add_argument("--cron", default="0 3 * * *", help="when to run (default: %(default)r)")
    parser.add_argument(
        "--timezone", default="UTC", help="of --cron and of {date} in the output (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    from mixer.errors import MixerError  # noqa: PLC0415 -- --help is told without it

    try:
        serve(chosen.config, name=chosen.name, cron=chosen.cron, timezone=chosen.timezone)
    except MixerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
