"""From a config and what its inputs hold to what is asked: phases of integer weights, limits, orders, columns."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from mixer.config import DatasetConfig, MixConfig, WeightsBy
from mixer.core.exhaustion import Phase, resolve
from mixer.core.fingerprint import JSON
from mixer.core.order import blocks_of
from mixer.core.passes import Passes
from mixer.core.weights import parse_share, tempered, weights_of_shares
from mixer.errors import ConfigError, CorruptionError, NotEnoughDataError
from mixer.schemas import Column, Schemas, View
from mixer.sources.inventory import Inventory
from mixer.sources.windows import (
    check_stored,
    id_bytes,
    ids_in,
    stream_facts,
    window_schema,
    windows_in,
    windows_json,
    windows_to_make,
)

BLOCK_ROWS = 65_536
"""A block to shuffle is as many whole row groups as hold so many rows."""

FULL_EPOCHS_MAX = 1_000
"""Most passes that a copy in random order holds: each one is sorted and stored."""
FULL_ITEMS_MAX = 1 << 40


def items_of(dataset: DatasetConfig, inventory: Inventory) -> int:
    """Return how many items one pass over a dataset has: its rows, or its windows.

    Args:
        dataset: What the config says of it.
        inventory: Its files; of a dataset that is prepared, those of the last prepared copy.
    """
    window = windows_to_make(dataset.window, inventory)
    if window is not None:
        return windows_in(window).count(inventory.rows)
    return inventory.rows // epochs_in(inventory)


def item_bytes(dataset: DatasetConfig, inventory: Inventory) -> Fraction:
    """Return what an item of a dataset takes before compression: a row as it is encoded, a window as it is decoded."""
    if dataset.window is not None:
        return Fraction(windows_in(dataset.window).length * id_bytes(dataset.window))
    return Fraction(inventory.uncompressed_bytes, max(1, inventory.rows))


def item_schemas(
    config: MixConfig, inventories: Mapping[str, Inventory], stored: Mapping[str, Schemas]
) -> dict[str, Schemas]:
    """Return the columns of the items of the datasets in `stored`: as their files have them, or those of windows.

    Raises:
        SchemaError: Windows cannot be stored as the config asks.
    """
    found = dict(stored)
    for name in stored:
        if (window := config.datasets[name].window) is not None:
            check_stored(name, window, inventories[name].facts)
            found[name] = [(f"windows of {url}", window_schema(window)) for url, _ in stored[name]]
    return found


def window_definition(dataset: DatasetConfig, inventory: Inventory) -> dict[str, JSON]:
    """Return what decides the windows of a stream, as plain values; nothing for a dataset of rows."""
    if dataset.window is None:
        return {}
    end_of_text = stream_facts(inventory.facts).get("end_of_text")
    return {"window": {**windows_json(dataset.window), "end_of_text": end_of_text, "ids": ids_in(inventory)}}


def epochs_in(inventory: Inventory) -> int:
    """Return how many passes lie one after the other in a dataset's files: one, if no record says more."""
    epochs = inventory.facts.get("epochs", 1)
    if type(epochs) is not int or epochs < 1:
        raise CorruptionError(f"an inventory of inputs: expected a number of epochs, found {epochs!r:.100}")
    return epochs


def phases_of(config: MixConfig, inventories: Mapping[str, Inventory]) -> tuple[Phase, ...]:
    """Return the phases that `config` asks for; whatever way weights are told in, they are integers here.

    Raises:
        NotEnoughDataError: Weights go by sizes, and a dataset is empty.
    """
    if config.phases is not None:
        return tuple(
            Phase(tuple(phase.weights.get(name, 0) for name in config.datasets), phase.batches)
            for phase in config.phases
        )
    batches = config.rows // config.batch_size if config.rows is not None else config.batches
    return (Phase(tuple(_weights(config, inventories)), batches),)


def _weights(config: MixConfig, inventories: Mapping[str, Inventory]) -> list[int]:
    if config.weights_by is not None:
        return _weights_by(config, config.weights_by, inventories)
    shares = {name: dataset.share for name, dataset in config.datasets.items() if dataset.share is not None}
    if shares:
        return list(weights_of_shares({name: parse_share(share) for name, share in shares.items()}).values())
    return [dataset.weight or 0 for dataset in config.datasets.values()]


def _weights_by(config: MixConfig, asked: WeightsBy, inventories: Mapping[str, Inventory]) -> list[int]:
    given = asked.sizes
    items = {name: items_of(config.datasets[name], inventory) for name, inventory in inventories.items()}
    if isinstance(given, dict):
        sizes = {name: given[name] for name in inventories}
    else:
        sizes = {
            name: items[name] if given == "rows" else _bytes_before_shuffled(inventory)
            for name, inventory in inventories.items()
        }
    empty = next((name for name, count in items.items() if not count), None)
    if empty is not None:
        raise NotEnoughDataError(f"dataset {empty!r} has no rows, so no weight follows from its size; leave it out")
    most = None if asked.max_share is None else parse_share(asked.max_share)
    return tempered(list(sizes.values()), Fraction(asked.temperature), most)


def _bytes_before_shuffled(inventory: Inventory) -> int:
    """Return the bytes of a dataset's files, as they were before a copy held its rows in random orders.

    Weights may not depend on such a copy, which may hold several passes, or what windows share several times: how many
    passes it holds depends on them.
    """
    if "epochs" not in inventory.facts:
        return inventory.bytes
    found = inventory.facts.get("source_bytes")
    if type(found) is not int or found < 0:
        raise CorruptionError(f"an inventory of inputs: expected a number of bytes, found {found!r:.100}")
    return found


def limits_of(config: MixConfig, inventories: Mapping[str, Inventory]) -> tuple[int | None, ...]:
    """Return how many items may be taken of each dataset; None for one that is repeated without end."""
    limits = []
    for name, dataset in config.datasets.items():
        rows = items_of(dataset, inventories[name])
        limit: int | None = rows
        if config.on_exhausted == "repeat":
            # Nothing comes of an empty dataset, however often it is gone through.
            limit = rows * dataset.max_epochs if dataset.max_epochs is not None else None if rows else 0
            if "epochs" in inventories[name].facts:
                # A copy holds so many passes, and a run that is made longer keeps its copy.
                there = rows * epochs_in(inventories[name])
                limit = there if limit is None else min(limit, there)
        if dataset.max_rows is not None:
            limit = dataset.max_rows if limit is None else min(limit, dataset.max_rows)
        limits.append(limit)
    return tuple(limits)


def epochs_needed(config: MixConfig, inventories: Mapping[str, Inventory]) -> dict[str, int]:
    """Return how many passes over each dataset a copy of all its rows in random orders is to hold.

    Those that the run begins, whatever `max_epochs` allows: each one takes as much room as the dataset.

    Args:
        config: What is asked for.
        inventories: The datasets before they are shuffled, one pass of each.

    Raises:
        NotEnoughDataError: The datasets have too few items for the run, so that no copy need be made.
        ConfigError: A copy would hold more than `FULL_EPOCHS_MAX` passes, or more than `FULL_ITEMS_MAX` items.
    """
    names = tuple(config.datasets)
    sizes = [items_of(dataset, inventories[name]) for name, dataset in config.datasets.items()]
    phases, limits = phases_of(config, inventories), limits_of(config, inventories)
    schedule = resolve(names, phases, limits, config.batch_size, policy=config.on_exhausted, sizes=sizes)
    taken = schedule.offsets_at(schedule.batches)
    found = {name: max(1, -(-items // max(1, size))) for name, size, items in zip(names, sizes, taken, strict=True)}
    for (name, epochs), size in zip(found.items(), sizes, strict=True):
        is_long = epochs > FULL_EPOCHS_MAX or epochs * size > FULL_ITEMS_MAX
        if config.datasets[name].shuffle == "full" and is_long:
            raise ConfigError(
                f"datasets.{name}.shuffle: `full` makes a copy of all the passes that the run takes over a dataset: "
                f"expected at most {FULL_EPOCHS_MAX:,} passes and {FULL_ITEMS_MAX:,} items in all, found {epochs:,} "
                f"passes over {size:,} items; set `shuffle: block`, which copies nothing (and of less than "
                f"{BLOCK_ROWS:,} rows puts all into random order as well), or ask for fewer `batches`, a smaller "
                f"weight or a larger dataset"
            )
    return found


def passes_of(config: MixConfig, inventories: Mapping[str, Inventory]) -> tuple[Passes, ...]:
    """Return how each dataset is gone through."""
    return tuple(
        Passes(
            name,
            items_of(dataset, inventories[name]),
            blocks=_blocks(dataset, inventories[name]) if dataset.shuffle == "block" else None,
            seed=config.seed,
            full=dataset.shuffle == "full",
        )
        for name, dataset in config.datasets.items()
    )


def _blocks(dataset: DatasetConfig, inventory: Inventory) -> tuple[int, ...]:
    if dataset.window is not None:
        return windows_in(dataset.window).blocks(inventory.rows, id_bytes(dataset.window))
    row_groups = [rows for entry in inventory.files for rows in entry.row_group_rows]
    return tuple(blocks_of(row_groups, BLOCK_ROWS).tolist())


def views_of(config: MixConfig) -> dict[str, View]:
    """Return how `config` asks for each dataset to be seen."""
    return {name: _view(dataset, fill=config.missing == "null") for name, dataset in config.datasets.items()}


def _view(dataset: DatasetConfig, *, fill: bool) -> View:
    asked = dataset.columns
    if asked is None:
        return View(fill=fill)
    if isinstance(asked, list):
        return View(tuple(Column(name, name) for name in asked), fill=fill)
    # A mapping has no order: JSON may have changed it.
    columns = [
        Column(stored, one) if isinstance(one, str) else Column(stored, one.name or stored, one.cast)
        for stored, one in sorted(asked.items())
    ]
    return View(tuple(columns), ordered=False, fill=fill)
