"""The verb `plan`: a config and its inputs' footers into everything that is known before a row is read.

What a run is made from is frozen in ``run.json`` when it starts, in three parts. The *definition* decides the rows
of every shard, and its hash, the run's id, stands in each shard's footer; it names no path. The *inputs* say where
those rows lie and how to tell that they have not changed. The *physical* settings decide the bytes that the rows
become. A resumed run is planned from ``run.json`` alone, and its inputs are never listed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.allocation import Allocation
from mixer.core.fingerprint import fingerprint
from mixer.core.plan import Plan
from mixer.core.schedule import resolve, single
from mixer.errors import ChangedError, ConfigError, CorruptionError
from mixer.mixing import LINEAGE_SCHEMA
from mixer.schemas import Promotion, merge, schema_from_json, schema_to_json
from mixer.shards import DEFAULT_LEVELS, WriterSettings, batches_per_row_group
from mixer.sources.inventory import Inventory, take_inventory

ALGORITHM = "largest-remainder-1"
"""Name of the rule and of the order inside a batch; another name would mean other rows."""


_CODECS = ("zstd", "snappy", "lz4", "none")
MAX_LEVEL = 22
"""Of zstd, the only codec that has levels."""


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
        return pa.schema([*self.schema, *LINEAGE_SCHEMA], metadata=self.schema.metadata)


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
    names = tuple(config.datasets)
    weights = tuple(dataset.weight for dataset in config.datasets.values())
    allocation = Allocation(weights, config.batch_size)
    sizes = [inventories[name].rows for name in names]
    schedule = resolve(names, allocation, sizes, batches=config.batches, on_exhausted=config.on_exhausted)
    definition = _definition(config, sizes, schedule.batches, schema_to_json(merged.schema))
    settings = _settings(config, allocation, [inventories[name] for name in names])
    return Planned(
        config, _plan(definition, settings), inventories, merged.schema, merged.promotions, definition, settings
    )


def _definition(config: MixConfig, sizes: Sequence[int], batches: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a run of `config` over datasets of `sizes` rows."""
    return {
        "algorithm": ALGORITHM,
        "datasets": [
            {"name": name, "weight": dataset.weight, "rows": rows}
            for (name, dataset), rows in zip(config.datasets.items(), sizes, strict=True)
        ],
        "batch_size": config.batch_size,
        "batches": batches,
        "batches_per_shard": config.batches_per_shard,
        "lineage": config.lineage,
        "schema": schema,
    }


def _settings(config: MixConfig, allocation: Allocation, inventories: list[Inventory]) -> WriterSettings:
    batch_bytes = sum(
        config.batch_size * weight * inventory.uncompressed_bytes // (allocation.total * max(1, inventory.rows))
        for weight, inventory in zip(allocation.weights, inventories, strict=True)
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


def _plan(definition: Mapping[str, Any], settings: WriterSettings) -> Plan:
    """Return the plan that a definition stands for."""
    datasets = definition["datasets"]
    weights = tuple(dataset["weight"] for dataset in datasets)
    return Plan(
        names=tuple(dataset["name"] for dataset in datasets),
        weights=weights,
        sizes=tuple(dataset["rows"] for dataset in datasets),
        batch_size=definition["batch_size"],
        batches_per_shard=definition["batches_per_shard"],
        batches_per_row_group=settings.batches_per_row_group,
        schedule=single(Allocation(weights, definition["batch_size"]), batches=definition["batches"]),
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
        config = MixConfig.model_validate({**asked, "output": output})
        inventories = {name: Inventory.from_json(content["inputs"][name]) for name in config.datasets}
        definition = content["definition"]
        settings = settings_from_json(content["physical"], definition["batches_per_shard"])
        _check_definition(definition, config, [inventory.rows for inventory in inventories.values()])
        planned = Planned(
            config=config,
            plan=_plan(definition, settings),
            inventories=inventories,
            schema=schema_from_json(definition["schema"]),
            promotions=(),
            definition=definition,
            settings=settings,
        )
        hashes_agree = (planned.run, planned.fingerprint) == (content["run"], content["fingerprint"])
    except (KeyError, TypeError, ValueError, AttributeError, CorruptionError) as error:
        raise CorruptionError(f"{where}: not a run's definition: {type(error).__name__}: {error}") from error
    if not hashes_agree or set(content["inputs"]) != set(inventories):
        raise CorruptionError(f"{where}: its hashes are not those of its content; restore it from a copy")
    return planned


def _check_definition(definition: Mapping[str, Any], config: MixConfig, sizes: Sequence[int]) -> None:
    """Check that `definition` is what `config` gives over datasets of `sizes` rows: any other plan is nobody's.

    Raises:
        CorruptionError: It is not.
        NotEnoughDataError: The datasets have too few rows.
    """
    if definition["algorithm"] != ALGORITHM:
        raise CorruptionError(
            f"its rows are mixed by the rule {definition['algorithm']!r}, this mixer has {ALGORITHM!r}; use the mixer "
            f"that the run was started with, or start a new output"
        )
    allocation = Allocation(tuple(dataset.weight for dataset in config.datasets.values()), config.batch_size)
    schedule = resolve(
        tuple(config.datasets), allocation, sizes, batches=config.batches, on_exhausted=config.on_exhausted
    )
    # By their hashes: to Python True is 1.
    if fingerprint(_definition(config, sizes, schedule.batches, definition["schema"])) != fingerprint(definition):
        raise CorruptionError("`definition` is not what `asked` gives over `inputs`; restore it from a copy")


def settings_from_json(value: Mapping[str, Any], batches_per_shard: int) -> WriterSettings:
    """Return the writer settings that `WriterSettings.to_json` gave `value` for.

    Raises:
        CorruptionError: `value` is something else, or no writer could follow it.
    """
    try:
        settings = WriterSettings(**value)
    except TypeError as error:
        raise CorruptionError(f"no writer settings: {error}; restore it from a copy") from error
    level = settings.compression_level
    if (
        settings.compression not in _CODECS
        or not (level is None or (type(level) is int and 1 <= level <= MAX_LEVEL))
        or type(settings.batches_per_row_group) is not int
        or not 1 <= settings.batches_per_row_group <= batches_per_shard
        or type(settings.pyarrow) is not str
        or type(settings.layout) is not int
    ):
        raise CorruptionError("no writer settings: some value is impossible; restore it from a copy")
    return settings


def differences(run: Planned, config: MixConfig) -> tuple[list[str], list[str]]:
    """Return how `config` differs from the one that `run` was started with: in what decides rows, and in bytes only."""
    was, now = run.config.model_dump(mode="json"), config.model_dump(mode="json")
    rows = [
        f"{key}: the run has {was[key]!r}, the config has {now[key]!r}"
        for key in ("batch_size", "batches", "batches_per_shard", "on_exhausted", "lineage")
        if was[key] != now[key]
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
    return replace(run, plan=_plan(run.definition, settings), settings=settings)
