"""What must hold between the fields of a config, each by itself being right."""

from __future__ import annotations

from collections.abc import Iterator

from mixer.config.fields import DatasetConfig, MixFields
from mixer.config.values import MAX_RUN_ROWS, MAX_SHARD_ROWS
from mixer.core.weights import parse_share, weights_of_shares

MAX_ROW_GROUPS_PER_SHARD = 32_767
"""A Parquet file numbers its row groups in 16 bits."""

Place = tuple[str | int, ...]


def between_fields(config: MixFields) -> Iterator[tuple[Place, str]]:
    """Yield the place of each field that does not go with another one, and why."""
    yield from _length(config)
    yield from _weights(config)
    yield from _at_most(config)
    yield from _phases(config)
    for name, dataset in config.datasets.items():
        if dataset.max_epochs is not None and config.on_exhausted != "repeat":
            yield (
                ("datasets", name, "max_epochs"),
                "only `on_exhausted: repeat` goes through a dataset again; leave it out",
            )
    if config.fork is not None and config.fork.run == config.output:
        yield ("fork", "run"), "that is the output of this mix; a run goes on elsewhere, or is extended where it is"
    yield from _shape(config)
    yield from _prepared(config)
    for name, dataset in config.datasets.items():
        for field, text in _items(dataset):
            yield ("datasets", name, field), text


def _prepared(config: MixFields) -> Iterator[tuple[Place, str]]:
    """Yield that copies would lie among the shards."""
    if config.prepared is None:
        return
    output, prepared = config.output.rstrip("/"), config.prepared.rstrip("/")
    if prepared == output or (prepared.startswith(f"{output}/") and not prepared.startswith(f"{output}/.mixer/")):
        yield ("prepared",), "that is in the output, where readers look for shards; leave it out, or name another place"


def _items(dataset: DatasetConfig) -> Iterator[tuple[str, str]]:
    """Yield each field of a dataset that does not go with how its files are read, or items are made, and why."""
    if dataset.format is not None:
        if dataset.on_bad_line is not None and dataset.format == "parquet":
            yield "on_bad_line", "Parquet has no lines; leave it out"
        if dataset.document is not None and dataset.format != "text":
            yield "document", f"only plain text has it, and the format is {dataset.format!r}; leave it out"
    if dataset.window is not None:
        if dataset.batches is not None:
            yield "batches", "windows are all of one length, so none need be kept apart; leave out this or `window`"
        if dataset.columns is not None:
            yield "columns", "windows are made of the one column that `window.text` names; leave it out"


def _length(config: MixFields) -> Iterator[tuple[Place, str]]:
    ends = config.on_exhausted in {"stop", "redistribute"}
    if config.phases is not None:
        for field in ("batches", "rows"):
            if getattr(config, field) is not None:
                yield (field,), "with `phases`, each of them says its own `batches`; leave it out"
        return
    if config.batches is not None and config.rows is not None:
        yield ("rows",), "says with other words what `batches` says; leave one of them out"
    elif config.batches is None and config.rows is None and not ends:
        yield (
            ("batches",),
            "missing; say how many batches to make, or set `on_exhausted: stop` to make as many as the data fills",
        )
    if config.rows is not None and config.rows % config.batch_size:
        below = config.rows - config.rows % config.batch_size
        near = f"{below:,} or {below + config.batch_size:,}" if below else f"{config.batch_size:,}"
        yield (
            ("rows",),
            f"expected a multiple of batch_size ({config.batch_size:,}), found {config.rows:,}; {near} is one",
        )
    if config.batches is not None and config.batch_size * config.batches > MAX_RUN_ROWS:
        yield ("batches",), f"expected at most {MAX_RUN_ROWS:,} rows in all (batch_size x batches), found more"


def _weights(config: MixFields) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with the way in which weights are told: exactly one of four."""
    datasets = config.datasets
    elsewhere = "phases" if config.phases is not None else "weights_by" if config.weights_by is not None else None
    if config.phases is not None and config.weights_by is not None:
        yield ("weights_by",), "each of `phases` has its own weights; leave one of them out"
    for name, dataset in datasets.items():
        told = [field for field in ("weight", "share") if getattr(dataset, field) is not None]
        if elsewhere and told:
            yield ("datasets", name, told[0]), f"`{elsewhere}` gives the weights; leave one of them out"
        elif len(told) > 1:
            yield ("datasets", name, "share"), "says with other words what `weight` says; leave one of them out"
        elif not elsewhere and not told:
            yield ("datasets", name, "weight"), "missing; expected a positive whole number (or `share`: a percentage)"
    shares = {name: dataset.share for name, dataset in datasets.items() if dataset.share is not None}
    if shares and not elsewhere:
        if other := next((name for name, dataset in datasets.items() if dataset.share is None), None):
            yield (
                ("datasets", other),
                "expected `share`, as other datasets have it; a mix has shares or weights, not both",
            )
        else:
            try:
                weights_of_shares({name: parse_share(share) for name, share in shares.items()})
            except ValueError as error:
                yield ("datasets",), str(error)
    if config.weights_by is not None and isinstance(config.weights_by.sizes, dict):
        yield from _names(config, ("weights_by", "sizes"), set(config.weights_by.sizes), every=True)


def _at_most(config: MixFields) -> Iterator[tuple[Place, str]]:
    """Yield that so few datasets cannot make the whole, if none may have more than that share."""
    by = config.weights_by
    if by is not None and by.max_share is not None and parse_share(by.max_share) * len(config.datasets) < 1:
        count = len(config.datasets)
        yield (
            ("weights_by", "max_share"),
            f"expected at least 1/{count} with {count} datasets, which make 100 % together",
        )


def _names(config: MixFields, place: Place, names: set[str], *, every: bool) -> Iterator[tuple[Place, str]]:
    for name in sorted(names - set(config.datasets)):
        yield (*place, name), f"there is no such dataset; there are {', '.join(map(repr, list(config.datasets)[:10]))}"
    for name in config.datasets if every else ():
        if name not in names:
            yield place, f"expected a number for each dataset, found none for {name!r}"


def _phases(config: MixFields) -> Iterator[tuple[Place, str]]:
    if config.phases is None:
        return
    for number, phase in enumerate(config.phases):
        yield from _names(config, ("phases", number, "weights"), set(phase.weights), every=False)
        last = number == len(config.phases) - 1
        if phase.batches is None and not last:
            yield ("phases", number, "batches"), "missing; only the last phase may go on as long as the data lasts"
        elif phase.batches is None and config.on_exhausted not in {"stop", "redistribute"}:
            yield ("phases", number, "batches"), "missing; say how many, or set `on_exhausted: stop`"
    if sum(phase.batches or 0 for phase in config.phases) * config.batch_size > MAX_RUN_ROWS:
        yield ("phases",), f"expected at most {MAX_RUN_ROWS:,} rows in all, found more"
    used = {name for phase in config.phases for name in phase.weights}
    for name in config.datasets:
        if name not in used:
            yield ("datasets", name), "no phase takes anything from it; give it a weight in one, or leave it out"


def _shape(config: MixFields) -> Iterator[tuple[Place, str]]:
    if config.compression_level is not None and config.compression != "zstd":
        yield ("compression_level",), f"only zstd has levels, and compression is {config.compression!r}; leave it out"
    shard_rows = config.batch_size * config.batches_per_shard
    if shard_rows > MAX_SHARD_ROWS:
        yield (
            ("batches_per_shard",),
            f"expected at most {MAX_SHARD_ROWS:,} rows a shard (batch_size x batches_per_shard), found {shard_rows:,}",
        )
    group = config.batches_per_row_group
    if group is not None and group > config.batches_per_shard:
        yield (
            ("batches_per_row_group",),
            f"expected at most batches_per_shard ({config.batches_per_shard:,}), found {group:,}",
        )
    elif group is not None and (groups := -(-config.batches_per_shard // group)) > MAX_ROW_GROUPS_PER_SHARD:
        yield (
            ("batches_per_row_group",),
            f"expected at most {MAX_ROW_GROUPS_PER_SHARD:,} row groups a shard, found {groups:,}; raise it",
        )
