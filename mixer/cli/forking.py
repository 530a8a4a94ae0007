"""The command `mixer fork`: the config of a run that goes on from another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mixer.building import fork
from mixer.cli import wording
from mixer.cli.console import Reply
from mixer.cli.starting import write_text
from mixer.config import MixConfig, to_yaml
from mixer.errors import ConfigError


def write_fork(  # noqa: PLR0913 -- one for each option
    run: str, path: str, *, shards: int, output: str, weights: Sequence[str], batches: int | None, force: bool
) -> Reply:
    """Answer `mixer fork`."""
    told = dict(map(_weight, weights)) or None
    config = fork(run, shards, output, weights=told, batches=batches)
    write_text(Path(path), _text(config), force=force)
    value = {
        "config": path,
        "run": run,
        "shards": shards,
        "output": output,
        "phases": [phase.model_dump() for phase in config.phases or ()],
    }
    return Reply(value, lambda _width: _lines(value))


def _weight(told: str) -> tuple[str, int]:
    name, sign, weight = told.rpartition("=")
    if not name or not sign or not weight.isascii() or not weight.isdigit():
        raise ConfigError(f"--weight {told!r}: expected a dataset and a positive whole number, such as web=3")
    return name, int(weight)


def _text(config: MixConfig) -> str:
    """Return the config with a word on what may be changed in it."""
    if config.fork is None:
        raise ValueError("expected a fork's config")
    return f"""\
# This mix begins with the first shards of another run ({config.fork.shards:,} of them), which stay where they are. What
# `phases` and `datasets` say of these must stay as it is. What comes after is free: change, add or take out the phases
# that follow, and add datasets after the others.
{to_yaml(config)}"""


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    config, shards = wording.visible(value["config"]), value["shards"]
    taken = "shard 0" if shards == 1 else f"shards 0 to {shards - 1:,}"
    yield f"Takes {taken} of {wording.visible(value['run'])}, which stay there; shard {shards:,} is the first new one"
    yield from (_phase(number, phase) for number, phase in enumerate(value["phases"], 1))
    yield f"Wrote {config}. Set in it what comes now, look at what comes of it: mixer plan {config}"
    yield f"Then start it: mixer run {config}"


def _phase(number: int, phase: Mapping[str, Any]) -> str:
    length = "the rest" if phase["batches"] is None else wording.plural(phase["batches"], "batch")
    weights = ", ".join(f"{wording.visible(name)} {weight}" for name, weight in phase["weights"].items())
    return f"  phase {number}: {length}, {weights}"
