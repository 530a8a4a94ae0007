"""The verb `doctor`: look at everything that a run depends on, and say what is wrong before a run does.

Looked at are the versions that are installed, the machine, the Prefect server, and of an output its address,
credentials, clock, store and run; of a config its inputs, too, and whether the run that is there would go on by it.
The store is tried, not believed: see `mixer.checkup.stores` for what is written, and removed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mixer.checkup.base import Check, Checks, Checkup
from mixer.checkup.inputs import input_checks
from mixer.checkup.machine import machine_checks
from mixer.checkup.outputs import output_checks
from mixer.checkup.prefect_server import prefect_checks
from mixer.checkup.versions import version_checks
from mixer.config import MixConfig, load_config
from mixer.storage.urls import redact_url, split_protocol

__all__ = ["Check", "Checks", "Checkup", "checkup"]

_CONFIG_SUFFIXES = {".yaml", ".yml"}


def checkup(target: str | None = None) -> Checkup:
    """Return what is well and what is not.

    Args:
        target: A config file (by its ending, or because it is a file), or an output; None looks at neither.

    Raises:
        ConfigError: `target` is a config that cannot be read, or is none.
    """
    config = load_config(target) if target is not None and _is_config(target) else None
    output = config.output if config is not None else target
    return Checkup(None if output is None else redact_url(output), tuple(_checks(config, output)))


def _checks(config: MixConfig | None, output: str | None) -> Iterator[Check]:
    yield from version_checks()
    yield from machine_checks()
    yield from prefect_checks()
    if config is not None:
        yield from input_checks(config)
    if output is not None:
        yield from output_checks(output, config)


def _is_config(target: str) -> bool:
    protocol, path = split_protocol(target)
    return protocol == "file" and (Path(path).suffix in _CONFIG_SUFFIXES or Path(path).is_file())
