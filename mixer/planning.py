"""The verb `plan`: a config and its inputs' footers into everything that is known before a row is read.

What a run is made from is frozen in ``run.json`` when it starts, in three parts. The *definition* decides the rows
of every shard, and its hash, the run's id, stands in each shard's footer; it names no path. The *inputs* say where
those rows lie and how to tell that they have not changed. The *physical* settings decide the bytes that the rows
become. A resumed run is planned from ``run.json`` alone, and its inputs are never listed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from mixer.asking import (
    item_bytes,
    item_schemas,
    limits_of,
    passes_of,
    phases_of,
    views_of,
    window_definition,
)
from mixer.config import DatasetConfig, MixConfig
from mixer.core import commits
from mixer.core.commits import Commit, Parent
from mixer.core.exhaustion import Phase, resolve
from mixer.core.fingerprint import fingerprint
from mixer.core.passes import Passes
from mixer.core.plan import Plan
from mixer.errors import CorruptionError
from mixer.mixing import LINEAGE_SCHEMA
from mixer.preparing import Inputs, find_inputs_of
from mixer.schemas import Promotion, merge, schema_from_json, schema_to_json
from mixer.shards import DEFAULT_LEVELS, WriterSettings, batches_per_row_group
from mixer.sources.inventory import Inventory

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
    extensions: int = 0
    """How often the run was extended; what is said here is what it has become by the last time."""
    first_run: str | None = None
    """The run's id before it was extended."""
    parent: Parent | None = None
    """The run whose first shards are the first ones of this mix, if it was forked."""

    @property
    def run(self) -> str:
        """The run's id: the hash of its definition, in 64 hexadecimal digits."""
        return fingerprint(self.definition)

    @property
    def genesis(self) -> str:
        """The run's id when it began, with which the chain of its log begins."""
        return self.first_run or self.run

    def done(self, last: Commit | None) -> tuple[int, int]:
        """Return how many shards and batches of the mix are there if `last` is the newest commit of this run."""
        if last is not None:
            return last.shard + 1, last.first_batch + last.batches
        return (self.parent.shards, self.parent.batches) if self.parent else (0, 0)

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
        """The hash of definition and inputs: the same wherever prepared copies of these lie."""
        inputs = {name: inventory.identity() for name, inventory in self.inventories.items()}
        return fingerprint({"definition": self.definition, "inputs": inputs})

    @property
    def shard_schema(self) -> pa.Schema:
        """Columns of the shards."""
        if not self.definition["lineage"]:
            return self.schema
        repeats = self.config.on_exhausted == "repeat"
        lineage = [field for field in LINEAGE_SCHEMA if repeats or field.name != "_epoch"]
        return pa.schema([*self.schema, *lineage], metadata=self.schema.metadata)


def plan(config: MixConfig, inputs: Inputs | None = None) -> Planned:
    """Return the plan of a new run that is no fork: inputs are listed and their footers read, and no rows.

    Args:
        config: What is to be mixed.
        inputs: What the run reads, where that has been looked for already.

    Raises:
        NotPreparedError: Some inputs must be prepared first.
        ConfigError, InputError, SchemaError, NotEnoughDataError: Why the config cannot be run, and what to do.
        ValueError: It is a fork's, whose plan `mixer.building.plan` returns.
    """
    if config.fork is not None:
        raise ValueError("expected a config without `fork`; mixer.plan takes either")
    found = find_inputs_of(config, {}) if inputs is None else inputs
    inventories = found.inventories
    schemas = item_schemas(config, inventories, {name: one.schemas for name, one in found.datasets.items()})
    merged = merge(schemas, lineage=config.lineage, views=views_of(config))
    plan_ = _plan(config, inventories)
    settings = _settings(config, plan_.phases[0], inventories)
    plan_ = replace(plan_, batches_per_row_group=settings.batches_per_row_group)
    definition = _definition(config, plan_, inventories, schema_to_json(merged.schema), None)
    return Planned(config, plan_, inventories, merged.schema, merged.promotions, definition, settings)


def _plan(
    config: MixConfig,
    inventories: Mapping[str, Inventory],
    batches_per_row_group: int = 1,
    cuts: tuple[int, ...] = (),
) -> Plan:
    """Return the plan that `config` gives over its inputs.

    Raises:
        NotEnoughDataError: The datasets have too few rows.
    """
    names = tuple(config.datasets)
    passes = passes_of(config, inventories)
    phases, limits = phases_of(config, inventories), limits_of(config, inventories)
    sizes = [one.size for one in passes]
    return Plan(
        names=names,
        passes=passes,
        phases=phases,
        limits=limits,
        batch_size=config.batch_size,
        batches_per_shard=config.batches_per_shard,
        batches_per_row_group=batches_per_row_group,
        schedule=resolve(names, phases, limits, config.batch_size, policy=config.on_exhausted, sizes=sizes),
        cuts=cuts,
    )


def forked(
    config: MixConfig, parent: Parent, like: Planned, inventories: Mapping[str, Inventory], cuts: tuple[int, ...]
) -> Planned:
    """Return the plan of a new run that goes on from `parent`, with the columns and the writer settings of `like`.

    Raises:
        NotEnoughDataError: The datasets have too few rows.
    """
    settings = wanted_settings(config, like.settings.batches_per_row_group)
    plan_ = _plan(config, inventories, settings.batches_per_row_group, cuts)
    definition = _definition(config, plan_, inventories, like.definition["schema"], parent)
    return Planned(config, plan_, inventories, like.schema, (), definition, settings, parent=parent)


def _definition(
    config: MixConfig,
    plan: Plan,
    inventories: Mapping[str, Inventory],
    schema: Mapping[str, Any],
    parent: Parent | None,
) -> dict[str, Any]:
    """Return the definition of the run that `config` has `plan` for."""
    views = views_of(config)
    return {
        "algorithm": ALGORITHM,
        "datasets": [
            {
                "name": one.name,
                "rows": one.size,
                "limit": limit,
                **_items(config.datasets[one.name], inventories[one.name]),
                **_order(one),
                **views[one.name].to_json(),
            }
            for one, limit in zip(plan.passes, plan.limits, strict=True)
        ],
        "phases": [{"weights": phase.weights, "batches": phase.batches} for phase in plan.phases],
        "on_exhausted": config.on_exhausted,
        "batch_size": config.batch_size,
        "batches": plan.batches,
        "batches_per_shard": config.batches_per_shard,
        **({"cuts": plan.cuts} if plan.cuts else {}),
        **({"parent": parent.definition()} if parent else {}),
        **({"missing": config.missing} if config.missing != "error" else {}),
        "lineage": config.lineage,
        "schema": schema,
    }


def _items(dataset: DatasetConfig, inventory: Inventory) -> dict[str, Any]:
    """Return what the definition says of where a dataset's items come from: nothing, if they are rows as stored.

    A copy is told by its content and not by its key, which names the files that it was made from.
    """
    prepared = inventory.facts.get("prepared")
    told = {"copy": prepared["content"]} if isinstance(prepared, Mapping) else {}
    return {**told, **window_definition(dataset, inventory)}


def _order(passes: Passes) -> dict[str, Any]:
    """Return what the definition says of the order of a dataset's rows: nothing, if it is as stored."""
    if passes.full:
        return {"order": {"shuffle": "full", "seed": passes.seed}}
    if passes.blocks is None:
        return {}
    return {"order": {"shuffle": "block", "seed": passes.seed, "blocks": fingerprint(list(passes.blocks))}}


def _settings(config: MixConfig, phase: Phase, inventories: Mapping[str, Inventory]) -> WriterSettings:
    total = sum(phase.weights)
    batch_bytes = sum(
        int(config.batch_size * weight * item_bytes(dataset, inventories[name]) / total)
        for weight, (name, dataset) in zip(phase.weights, config.datasets.items(), strict=True)
    )
    return wanted_settings(config, batches_per_row_group(batch_bytes, config.batches_per_shard))


def wanted_settings(config: MixConfig, default_batches_per_row_group: int) -> WriterSettings:
    """Return the writer settings that `config` asks for, with this process's versions."""
    level = config.compression_level
    return WriterSettings(
        compression=config.compression,
        compression_level=DEFAULT_LEVELS.get(config.compression) if level is None else level,
        batches_per_row_group=config.batches_per_row_group or default_batches_per_row_group,
    )


def run_file(planned: Planned) -> bytes:
    """Return the bytes of ``run.json``; equal for equal configs over equal inputs."""
    asked = planned.config.model_dump(mode="json", exclude={"output", "length_column"})
    # Canonical JSON sorts keys, and the order of datasets matters: it is kept as a list.
    asked["datasets"] = [{"name": name, **dataset} for name, dataset in asked["datasets"].items()]
    return commits.sealed(
        {
            "format": commits.FORMAT,
            "run": planned.run,
            "fingerprint": planned.fingerprint,
            "asked": asked,
            **({"parent": asdict(planned.parent)} if planned.parent else {}),
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
        parent = _parent(content, config, where)
        planned = Planned(
            config=config,
            plan=_planned_before(definition, config, inventories, settings, parent),
            inventories=inventories,
            schema=schema_from_json(definition["schema"]),
            promotions=(),
            definition=definition,
            settings=settings,
            parent=parent,
        )
        hashes_agree = (planned.run, planned.fingerprint) == (content["run"], content["fingerprint"])
    except (KeyError, TypeError, ValueError, AttributeError, CorruptionError) as error:
        raise CorruptionError(f"{where}: not a run's definition: {type(error).__name__}: {error}") from error
    if not hashes_agree or set(content["inputs"]) != set(inventories):
        raise CorruptionError(f"{where}: its hashes are not those of its content; restore it from a copy")
    return planned


def _parent(content: Mapping[str, Any], config: MixConfig, where: str) -> Parent | None:
    """Return the parent that ``run.json`` names, if the config has one.

    Raises:
        CorruptionError: They do not go together.
    """
    if "parent" not in content and config.fork is None:
        return None
    parent = commits.parent_from(content["parent"], where)
    cuts = content["definition"].get("cuts", ())
    edges = (0, *cuts)
    if (
        config.fork is None
        or parent.shards != config.fork.shards
        or not all(start < stop for start, stop in pairwise(edges))
        or edges[-1] > parent.batches
    ):
        raise CorruptionError("`parent` is not what `asked` says of it; restore it from a copy")
    return parent


def _planned_before(
    definition: Mapping[str, Any],
    config: MixConfig,
    inventories: Mapping[str, Inventory],
    settings: WriterSettings,
    parent: Parent | None,
) -> Plan:
    """Return the plan that `config` gives, having checked that it is that of `definition`: any other is nobody's.

    Raises:
        CorruptionError: It is not.
        NotEnoughDataError: The datasets have too few rows.
    """
    if definition["algorithm"] != ALGORITHM:
        raise CorruptionError(
            f"its rows are mixed by the rule {definition['algorithm']!r}, this mixer has {ALGORITHM!r}; use the mixer "
            f"that the run was started with, or start a new output"
        )
    # A run begins without cuts, unless it takes shards that another one has cut.
    cuts = tuple(definition.get("cuts", ())) if parent else ()
    plan_ = _plan(config, inventories, settings.batches_per_row_group, cuts)
    # By their hashes: to Python True is 1.
    if fingerprint(_definition(config, plan_, inventories, definition["schema"], parent)) != fingerprint(definition):
        raise CorruptionError("`definition` is not what `asked` gives over `inputs`; restore it from a copy")
    return plan_


def replanned(started: Planned, config: MixConfig, *, cuts: tuple[int, ...], extensions: int) -> Planned:
    """Return the run `started` as `config` has extended it, planned over the inputs that were frozen at its start.

    Raises:
        NotEnoughDataError: They have too few rows.
    """
    plan_ = _plan(config, started.inventories, started.settings.batches_per_row_group, cuts)
    definition = _definition(config, plan_, started.inventories, started.definition["schema"], started.parent)
    return replace(
        started, config=config, plan=plan_, definition=definition, extensions=extensions, first_run=started.run
    )


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


def with_settings(run: Planned, settings: WriterSettings) -> Planned:
    """Return `run`, written under other settings."""
    plan_ = replace(run.plan, batches_per_row_group=settings.batches_per_row_group)
    return replace(run, plan=plan_, settings=settings)
