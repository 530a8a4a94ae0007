"""Forks: a new run that begins with the first shards of another one, taken by reference, and goes on in its own way.

A fork's config is that of the whole mix, with its beginning: the other run's phases up to where it is left, then those
that come now. So what a fork gives is what one run of this config would give: datasets go on where they were, new ones
may join, and no batch is special. It is checked that the beginning is the other run's, rule by rule, before anything is
written. The inputs that both have are those that the other run has frozen: files that came later are not seen.

Nothing is written to the other run, and nothing of it is copied; readers of the fork find its shards (see
`mixer.ancestry`). Committed shards never change, so it may be forked while it is written, extended, or a fork itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mixer import extending, planning
from mixer.ancestry import Opened, Origin, parents
from mixer.asking import item_schemas, views_of
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.core.commits import Commit, Parent
from mixer.core.plan import Plan, first_difference
from mixer.differing import setting_differences
from mixer.errors import ConfigError, SchemaError
from mixer.planning import Planned
from mixer.preparing import Inputs, find_inputs_of
from mixer.schemas import View, merge
from mixer.sources.inventory import Inventory

_SAME = ("batch_size", "batches_per_shard", "seed", "missing", "lineage")
_SAME_OF_DATASETS = ("path", "format", "on_bad_line", "document", "window", "batches", "shuffle", "columns")
"""Fields that decide rows of the beginning; all others only have to give the same batches."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a run is left."""

    origin: Origin
    """The run that the last shard before it was written by: the one that is forked, or one that it was forked from."""
    was: Planned
    """What that run is by now."""
    last: Commit
    """The commit of that shard."""

    @property
    def batches(self) -> int:
        """Batches before it."""
        return self.last.first_batch + self.last.batches

    @property
    def cuts(self) -> tuple[int, ...]:
        """Batches up to it before which a shard ends short, see `mixer.core.plan.Plan.cuts`."""
        before = tuple(batch for batch in self.was.plan.cuts if batch < self.batches)
        is_short = (self.batches - (before[-1] if before else 0)) % self.was.plan.batches_per_shard
        return (*before, self.batches) if is_short else before


def cut(run: Origin, shards: int, opened: Opened) -> Cut:
    """Return where `run` is left after its first `shards` shards.

    Args:
        run: The run that is forked.
        shards: How many of its shards are taken, at least 1.
        opened: How another run is found.

    Raises:
        ConfigError: It has not so many.
        CorruptionError: What is there is damaged, or a run that it was forked from is gone.
    """
    committed, _ = run.began.done(run.log.tail().commit)
    if not 1 <= shards <= committed:
        raise ConfigError(
            f"fork: expected 1 to {committed} shards, as many as are committed in {run.store.url}, found {shards}"
            if committed
            else f"fork: no shard is committed in {run.store.url} yet, so none can be taken"
        )
    chain = [*parents(run, opened), run]
    origin = next(one for one in chain if one.stop is None or shards <= one.stop)
    last = next(origin.commits(shards - 1))
    return Cut(origin, extending.current(origin.began, origin.log.tail(), origin.store.url), last)


def plan(config: MixConfig, run: Origin, opened: Opened, inputs: Inputs | None = None) -> Planned:
    """Return the plan of the new run that `config` forks from `run`; footers of new datasets are read, and no rows.

    Raises:
        ConfigError: The config does not begin as the run does; the message lists what differs.
        InputError, SchemaError, NotEnoughDataError: It cannot be run from there on.
        CorruptionError: What is there of the run is damaged.
    """
    if config.fork is None:
        raise ValueError("expected a config with `fork`")
    left = cut(run, config.fork.shards, opened)
    was = left.was
    parent = Parent(
        output=left.origin.store.url,
        genesis=left.origin.began.genesis,
        head=commits.chain_hash(left.last.payload()),
        shards=config.fork.shards,
        batches=left.batches,
    )
    if found := list(_differences(was.config, config)):
        raise _refusal(parent, found)
    inventories = _inventories(was, config, inputs)
    planned = planning.forked(config, parent, was, inventories, left.cuts)
    changed = first_difference(was.plan, planned.plan, parent.batches)
    if changed is not None:
        raise _refusal(
            parent, [f"phases: batch {changed} would be another one; {_phases_told(was.plan, left.batches)}"]
        )
    if not planned.shard_schema.equals(was.shard_schema, check_metadata=True):
        policies = f"the run has {was.config.on_exhausted!r}, the config has {config.on_exhausted!r}"
        raise _refusal(parent, [f"on_exhausted: {policies}, which makes other columns"])
    if planned.plan.batches <= parent.batches:
        raise ConfigError(
            f"fork: the {parent.shards} shards that are taken hold {parent.batches} batches, and the config gives "
            f"{planned.plan.batches} in all; add what comes after them to `phases`"
        )
    return planned


def _differences(was: MixConfig, config: MixConfig) -> Iterator[str]:
    """Yield how `config` differs from `was` in what decides the rows that are taken."""
    before, now = was.model_dump(mode="json"), config.model_dump(mode="json")
    for key in _SAME:
        if before[key] != now[key]:
            yield f"{key}: the run has {before[key]!r}, the config has {now[key]!r}"
    names, others = list(was.datasets), list(config.datasets)
    if others[: len(names)] != names:
        yield (
            f"datasets: the run has {', '.join(names)}, the config has {', '.join(others)}; keep them in their order, "
            f"also those that take no further part, and put new ones after them"
        )
        return
    for name, dataset in before["datasets"].items():
        for key in _SAME_OF_DATASETS:
            where = f"datasets.{name}.{key}"
            for difference in setting_differences(where, dataset[key], now["datasets"][name][key]):
                yield f"{difference}; give it another name if it is another dataset"


def _refusal(parent: Parent, found: list[str]) -> ConfigError:
    listed = "\n  ".join(found)
    return ConfigError(
        f"fork: the first {parent.shards} shards of {parent.output} are no beginning of this mix:\n  {listed}\n"
        f"`mixer fork` writes a config that begins as that run does."
    )


def _phases_told(plan_: Plan, batches: int) -> str:
    told = "; ".join(
        f"{phase['batches']} batches of " + ", ".join(f"{name} {weight}" for name, weight in phase["weights"].items())
        for phase in _phases_before(plan_, batches)
    )
    return f"the mix must begin with the phases of the run: {told}"


def _inventories(was: Planned, config: MixConfig, inputs: Inputs | None) -> dict[str, Inventory]:
    """Return the inputs: those of the run as it has frozen them, new ones as they are, in the columns of the run.

    Raises:
        SchemaError: The new ones have other columns.
        InputError: They are not there, or not usable; NotPreparedError, if they must be prepared first.
    """
    found = inputs or find_inputs_of(config, was.inventories)
    inventories = {**found.inventories, **was.inventories}
    new = {name: one.schemas for name, one in found.datasets.items() if name not in was.inventories}
    schemas = item_schemas(config, inventories, new)
    if schemas:
        # What the run has stands for the datasets that it has it from, columns chosen, renamed and cast.
        first = next(iter(was.config.datasets))
        views = views_of(config)
        seen = {first: View(fill=config.missing == "null"), **{name: views[name] for name in schemas}}
        stored = {first: [(f"{was.config.output}, the run that is forked", was.schema)], **schemas}
        merged = merge(stored, lineage=config.lineage, views=seen)
        if not merged.schema.equals(was.schema, check_metadata=True):
            raise SchemaError(
                f"fork: with {', '.join(map(repr, schemas))} the columns would be {_columns(merged.schema)}, and the "
                f"shards that are taken have {_columns(was.schema)}; choose and cast them with `columns`"
            )
    return inventories


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def config_for(  # noqa: PLR0913 -- each is one independent choice
    run: Origin,
    shards: int,
    output: str,
    opened: Opened,
    *,
    weights: Mapping[str, int] | None = None,
    batches: int | None = None,
) -> MixConfig:
    """Return a config of a fork.

    Args:
        run: The run to fork.
        shards: How many of its shards to take.
        output: Where the fork is to be.
        opened: How another run is found.
        weights: What comes after them; as it would have come in the run if left out.
        batches: How many batches come after them; as many as would have come if left out.

    Raises:
        ConfigError: The run has not so many shards, or what comes makes no config.
        CorruptionError: What is there of the run is damaged.
    """
    left = cut(run, shards, opened)
    now = extending.current(run.began, run.log.tail(), run.store.url)
    values = now.config.model_dump(mode="json")
    for dataset in values["datasets"].values():
        dataset["weight"] = dataset["share"] = None
    rest = now.plan.batches - left.batches
    after = _phases_after(now.plan, left.batches)
    if weights is not None or batches is not None or not after:
        last = weights or (after or _phases_before(now.plan, left.batches))[0 if after else -1]["weights"]
        after = [{"batches": batches or rest or now.plan.batches_per_shard, "weights": dict(last)}]
    values |= {
        "output": output,
        "batches": None,
        "rows": None,
        "weights_by": None,
        "phases": [*_phases_before(now.plan, left.batches), *after],
        "fork": {"run": run.store.url, "shards": shards},
    }
    return config_from(values)


def _phases_before(plan_: Plan, batches: int) -> list[dict[str, Any]]:
    """Return the phases of a run up to batch `batches`."""
    found, first = [], 0
    for phase in plan_.phases:
        stop = batches if phase.batches is None else min(batches, first + phase.batches)
        if stop > first:
            found.append({"batches": stop - first, "weights": _weights(plan_, phase.weights)})
        first = stop
    return found


def _phases_after(plan_: Plan, batches: int) -> list[dict[str, Any]]:
    """Return the phases of a run from batch `batches` on."""
    if batches == plan_.batches:
        return []
    found, first = [], 0
    for phase in plan_.phases:
        stop = None if phase.batches is None else first + phase.batches
        if stop is None or stop > batches:
            left = None if stop is None else stop - max(first, batches)
            found.append({"batches": left, "weights": _weights(plan_, phase.weights)})
        first = plan_.batches if stop is None else stop
    return found


def _weights(plan_: Plan, weights: tuple[int, ...]) -> dict[str, int]:
    return {name: weight for name, weight in zip(plan_.names, weights, strict=True) if weight}
