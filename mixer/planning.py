"""The verb `plan`: a config and its inputs' footers into everything that is known before a row is read.

What a run is made from is frozen in ``run.json`` when it starts, in three parts. The *definition* decides the rows
of every shard, and its hash, the run's id, stands in each shard's footer; it names no path. The *inputs* say where
those rows lie and how to tell that they have not changed. The *physical* settings decide the bytes that the rows
become. A resumed run is planned from ``run.json`` alone, and its inputs are never listed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mixer.asking import limits_of, passes_of, phases_of
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.exhaustion import Phase, resolve, unfold
from mixer.core.fingerprint import fingerprint
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.errors import ChangedError, ConfigError, CorruptionError
from mixer.mixing import LINEAGE_SCHEMA
from mixer.schemas import Promotion, merge, schema_from_json, schema_to_json
from mixer.shards import DEFAULT_LEVELS, WriterSettings, batches_per_row_group
from mixer.sources.inventory import Inventory, take_inventory

ALGORITHM = "largest-remainder-1"
"""Name of the rule and of the order inside a batch; another name would mean other rows."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Everything about a run that is known before a row is read."""

    config: MixConfig
    plan: Plan
    inventories: Mapping[str, Inventory]
    schema: pa.Schema
    """Columns of the data, without the lineage columns."""
    promotions: tuple[Promotion, ...]
    """Columns whose type in some file is not the one that is written; empty when read back from a run."""
    definition: Mapping[str, Any]
    settings: WriterSettings

    @property
    def run(self) -> str:
        """The run's id: the hash of its definition, in 64 hexadecimal digits."""
        return fingerprint(self.definition)

    @property
    def physical(self) -> dict[str, Any]:
        """The writer settings as plain values."""
        return self.settings.to_json()

    @property
    def inputs(self) -> dict[str, Any]:
        """The inventories as plain values."""
        return {name: inventory.to_json() for name, inventory in self.inventories.items()}

    @property
    def fingerprint(self) -> str:
        """The hash of definition and inputs."""
        return fingerprint({"definition": self.definition, "inputs": self.inputs})

    @property
    def shard_schema(self) -> pa.Schema:
        """Columns of the shards."""
        if not self.definition["lineage"]:
            return self.schema
        repeats = self.definition["on_exhausted"] == "repeat"
        lineage = [field for field in LINEAGE_SCHEMA if repeats or field.name != "_epoch"]
        return pa.schema([*self.schema, *lineage], metadata=self.schema.metadata)


def plan(config: MixConfig) -> Planned:
    """Return the plan of a new run: inputs are listed and their footers read, and no rows.

    Raises:
        ConfigError, InputError, SchemaError, NotEnoughDataError: Why the config cannot be run, and what to do.
    """
    inventories = {}
    schemas = {}
    for name, dataset in config.datasets.items():
        inventories[name], found = take_inventory(name, dataset.path)
        schemas[name] = list(zip([entry.url for entry in inventories[name].files], found, strict=True))
    merged = merge(schemas, lineage=config.lineage)
    phases, limits = phases_of(config, inventories), limits_of(config, inventories)
    names = tuple(config.datasets)
    schedule = resolve(names, phases, limits, config.batch_size, policy=config.on_exhausted)
    passes = passes_of(config, inventories)
    definition = {
        "algorithm": ALGORITHM,
        "datasets": [
            {"name": one.name, "rows": one.size, "limit": limit, **_order(one)}
            for one, limit in zip(passes, limits, strict=True)
        ],
        "phases": [{"weights": phase.weights, "batches": phase.batches} for phase in phases],
        "on_exhausted": config.on_exhausted,
        "batch_size": config.batch_size,
        "batches": schedule.batches,
        "batches_per_shard": config.batches_per_shard,
        "lineage": config.lineage,
        "schema": schema_to_json(merged.schema),
    }
    settings = _settings(config, phases[0], [inventories[name] for name in names])
    plan_ = Plan(
        names=names,
        passes=passes,
        phases=phases,
        limits=limits,
        batch_size=config.batch_size,
        batches_per_shard=config.batches_per_shard,
        batches_per_row_group=settings.batches_per_row_group,
        schedule=schedule,
    )
    return Planned(config, plan_, inventories, merged.schema, merged.promotions, definition, settings)


def _order(passes: Passes) -> dict[str, Any]:
    """Return what the definition says of the order of a dataset's rows: nothing, if it is as stored."""
    if passes.blocks is None:
        return {}
    return {"order": {"shuffle": "block", "seed": passes.seed, "blocks": fingerprint(list(passes.blocks))}}


def _settings(config: MixConfig, phase: Phase, inventories: list[Inventory]) -> WriterSettings:
    total = sum(phase.weights)
    batch_bytes = sum(
        config.batch_size * weight * inventory.uncompressed_bytes // (total * max(1, inventory.rows))
        for weight, inventory in zip(phase.weights, inventories, strict=True)
    )
    return _wanted(config, batches_per_row_group(batch_bytes, config.batches_per_shard))


def _wanted(config: MixConfig, default_batches_per_row_group: int) -> WriterSettings:
    """Return the writer settings that `config` asks for, with this process's versions."""
    level = config.compression_level
    return WriterSettings(
        compression=config.compression,
        compression_level=DEFAULT_LEVELS.get(config.compression) if level is None else level,
        batches_per_row_group=config.batches_per_row_group or default_batches_per_row_group,
    )


def _plan(
    config: MixConfig, definition: Mapping[str, Any], inventories: Mapping[str, Inventory], settings: WriterSettings
) -> Plan:
    """Return the plan that a run's definition stands for.

    Raises:
        ValueError: The definition says otherwise than the inventory, or asks for what does not come out.
    """
    passes = passes_of(config, inventories)
    for one, told in zip(passes, definition["datasets"], strict=True):
        if {"name": one.name, "rows": one.size, **_order(one)} != {key: told[key] for key in told if key != "limit"}:
            raise ValueError(f"dataset {one.name!r} is not as the definition says")
    phases = tuple(Phase(tuple(phase["weights"]), phase["batches"]) for phase in definition["phases"])
    limits = tuple(dataset["limit"] for dataset in definition["datasets"])
    schedule = unfold(
        phases, limits, definition["batch_size"], redistribute=definition["on_exhausted"] == "redistribute"
    )
    if schedule.batches != definition["batches"]:
        raise ValueError(f"expected {definition['batches']} batches, its datasets give {schedule.batches}")
    return Plan(
        names=tuple(one.name for one in passes),
        passes=passes,
        phases=phases,
        limits=limits,
        batch_size=definition["batch_size"],
        batches_per_shard=definition["batches_per_shard"],
        batches_per_row_group=settings.batches_per_row_group,
        schedule=schedule,
    )


def run_file(planned: Planned) -> bytes:
    """Return the bytes of ``run.json``; equal for equal configs over equal inputs."""
    asked = planned.config.model_dump(mode="json", exclude={"output"})
    # Canonical JSON sorts keys, and the order of datasets matters: it is kept as a list.
    asked["datasets"] = [{"name": name, **dataset} for name, dataset in asked["datasets"].items()]
    return commits.sealed(
        {
            "format": commits.FORMAT,
            "run": planned.run,
            "fingerprint": planned.fingerprint,
            "asked": asked,
            "definition": planned.definition,
            "inputs": planned.inputs,
            "physical": planned.physical,
        }
    )


def read_run_file(data: bytes, output: str, where: str) -> Planned:
    """Return the plan of the run that ``run.json`` holds `data` for; nothing else is read.

    Raises:
        CorruptionError: The object is damaged, or does not say what a run is.
    """
    content = commits.unsealed(data, where)
    try:
        asked = dict(content["asked"])
        asked["datasets"] = {entry.pop("name"): entry for entry in map(dict, asked["datasets"])}
        settings = WriterSettings(**content["physical"])
        config = MixConfig.model_validate({**asked, "output": output})
        # Canonical JSON sorts keys; the order of datasets is the definition's.
        inventories = {name: Inventory.from_json(content["inputs"][name]) for name in config.datasets}
        planned = Planned(
            config=config,
            plan=_plan(config, content["definition"], inventories, settings),
            inventories=inventories,
            schema=schema_from_json(content["definition"]["schema"]),
            promotions=(),
            definition=content["definition"],
            settings=settings,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"{where}: not a run's definition: {type(error).__name__}: {error}") from error
    if planned.run != content["run"] or planned.fingerprint != content["fingerprint"]:
        raise CorruptionError(f"{where}: its hashes are not those of its content; restore it from a copy")
    return planned


_COMPARED_OTHERWISE = {"output", "datasets", "compression", "compression_level", "batches_per_row_group"}
"""Fields of a config that decide no rows, or that are compared one by one."""


def differences(run: Planned, config: MixConfig) -> tuple[list[str], list[str]]:
    """Return how `config` differs from the one that `run` was started with: in what decides rows, and in bytes only."""
    was, now = run.config.model_dump(mode="json"), config.model_dump(mode="json")
    rows = [
        f"{key}: the run has {was[key]!r}, the config has {now[key]!r}"
        for key in was
        if key not in _COMPARED_OTHERWISE and was[key] != now[key]
    ]
    rows += _dataset_differences(was["datasets"], now["datasets"])
    had = run.settings.to_json()
    wanted = _wanted(config, run.settings.batches_per_row_group).to_json()
    return rows, [
        f"{key}: the run has {had[key]!r}, now it is {wanted[key]!r}" for key in had if had[key] != wanted[key]
    ]


def _dataset_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return how datasets differ, each with its name."""
    found = [f"datasets.{name}: in the run, not in the config" for name in was if name not in now]
    found += [f"datasets.{name}: in the config, not in the run" for name in now if name not in was]
    found += [
        f"datasets.{name}.{key}: the run has {was[name].get(key)!r}, the config has {now[name].get(key)!r}"
        for name in was
        if name in now
        for key in {**was[name], **now[name]}
        if was[name].get(key) != now[name].get(key)
    ]
    if not found and list(was) != list(now):
        found.append(f"order of datasets: the run has {list(was)}, the config has {list(now)}")
    return found


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
    settings = _wanted(config, run.settings.batches_per_row_group)
    if settings.batches_per_row_group > run.plan.batches_per_shard:
        raise ConfigError(
            f"batches_per_row_group: expected at most batches_per_shard ({run.plan.batches_per_shard}), "
            f"found {settings.batches_per_row_group}"
        )
    return with_settings(run, settings)


def with_settings(run: Planned, settings: WriterSettings) -> Planned:
    """Return `run`, written under other settings."""
    plan_ = replace(run.plan, batches_per_row_group=settings.batches_per_row_group)
    return replace(run, plan=plan_, settings=settings)
