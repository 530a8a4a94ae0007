"""How a config differs from the one that a run was started with: in what decides its rows, and in bytes only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mixer.config import MixConfig
from mixer.errors import ChangedError, ConfigError
from mixer.planning import Planned, wanted_settings, with_settings

_COMPARED_OTHERWISE = {
    "output",
    "prepared",
    "datasets",
    "compression",
    "compression_level",
    "batches_per_row_group",
    "length_column",
}
"""Fields of a config that decide no rows, or that are compared one by one."""


def differences(run: Planned, config: MixConfig) -> tuple[list[str], list[str]]:
    """Return how `config` differs from the one that `run` was started with: in what decides rows, and in bytes only."""
    rows = row_differences(run.config, config)
    had = run.settings.to_json()
    wanted = wanted_settings(config, run.settings.batches_per_row_group).to_json()
    return rows, [
        f"{key}: the run has {had[key]!r}, now it is {wanted[key]!r}" for key in had if had[key] != wanted[key]
    ]


def row_differences(run: MixConfig, config: MixConfig) -> list[str]:
    """Return how `config` differs in what decides rows from `run`, which a run was started with."""
    was, now = run.model_dump(mode="json"), config.model_dump(mode="json")
    found = [
        f"{key}: the run has {was[key]!r}, the config has {now[key]!r}"
        for key in was
        if key not in _COMPARED_OTHERWISE and was[key] != now[key]
    ]
    return found + _dataset_differences(was["datasets"], now["datasets"])


def _dataset_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return how datasets differ, each with its name."""
    found = [f"datasets.{name}: in the run, not in the config" for name in was if name not in now]
    found += [f"datasets.{name}: in the config, not in the run" for name in now if name not in was]
    found += [
        difference
        for name in was
        if name in now
        for key in {**was[name], **now[name]}
        for difference in setting_differences(f"datasets.{name}.{key}", was[name].get(key), now[name].get(key))
    ]
    if not found and list(was) != list(now):
        found.append(f"order of datasets: the run has {list(was)}, the config has {list(now)}")
    return found


def setting_differences(where: str, was: object, now: object) -> Iterator[str]:
    """Yield how a setting differs: one that both have with settings of its own, by these; one of columns as a whole.

    >>> list(setting_differences("datasets.a.window", {"length": 8, "stride": 1}, {"length": 9, "stride": 1}))
    ['datasets.a.window.length: the run has 8, the config has 9']
    >>> list(setting_differences("datasets.a.window", None, {"length": 9}))
    ["datasets.a.window: the run has None, the config has {'length': 9}"]
    """
    if was == now:
        return
    if isinstance(was, Mapping) and isinstance(now, Mapping) and not where.endswith(".columns"):
        for key in {**was, **now}:
            yield from setting_differences(f"{where}.{key}", was.get(key), now.get(key))
    else:
        yield f"{where}: the run has {was!r}, the config has {now!r}"


def check_same(run: Planned, config: MixConfig, *, allow_repack: bool) -> Planned:
    """Return `run` as this process goes on with it, under the writer settings that `config` asks for.

    Raises:
        ChangedError: `config` is not what the run was started with; the message lists what differs.
    """
    rows, bytes_only = differences(run, config)
    if rows:
        raise ChangedError(
            f"{config.output}: holds a run of another definition, which is never changed:\n  "
            + "\n  ".join(rows)
            + "\nGo back to the config it was started with, or choose another output."
        )
    if not bytes_only:
        return run
    if not allow_repack:
        raise ChangedError(
            f"{config.output}: its run writes Parquet otherwise, so further shards would hold the same rows in other "
            f"bytes than an unbroken run's:\n  "
            + "\n  ".join(bytes_only)
            + "\nUse the former settings and versions, or allow it with `--allow-repack`."
        )
    settings = wanted_settings(config, run.settings.batches_per_row_group)
    if settings.batches_per_row_group > run.plan.batches_per_shard:
        raise ConfigError(
            f"batches_per_row_group: expected at most batches_per_shard ({run.plan.batches_per_shard}), "
            f"found {settings.batches_per_row_group}"
        )
    return with_settings(run, settings)
