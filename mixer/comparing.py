"""How a config differs from an older one, or from a run: what a resume refuses, what it may be allowed, the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mixer.building import existing, status
from mixer.config import MixConfig, load_config
from mixer.errors import ChangedError
from mixer.planning import Planned, differences, plan, row_differences
from mixer.shards import DEFAULT_LEVELS
from mixer.sources.inventory import Inventory, check_unchanged


@dataclass(frozen=True, slots=True)
class Difference:
    """How a config stands to what a run was, or would have been, started with."""

    old: str
    """Where the older one is."""
    is_run: bool
    """Whether that is the output of a run, and not a config."""
    refused: tuple[str, ...]
    """What a resume is refused for: it decides which rows come out, or is an input that has changed."""
    repack: tuple[str, ...]
    """What `--allow-repack` allows: it decides bytes only."""
    harmless: tuple[str, ...]
    """What makes no difference to a run that has begun."""

    @property
    def verdict(self) -> str:
        """The worst of it: ``refused``, ``allow-repack``, ``harmless`` or ``same``.

        >>> Difference("old.yaml", is_run=False, refused=(), repack=("compression: ...",), harmless=()).verdict
        'allow-repack'
        """
        for verdict, found in (("refused", self.refused), ("allow-repack", self.repack), ("harmless", self.harmless)):
            if found:
                return verdict
        return "same"


def is_config(old: str) -> bool:
    """Return whether `old` names a config file, and not an output: a file, or what is called as one."""
    return old == "-" or Path(old).is_file() or ("://" not in old and old.endswith((".yaml", ".yml")))


def compare(config: MixConfig, old: str) -> Difference:
    """Return how `config` differs from the config, or from the run in the output, that `old` names.

    Raises:
        ConfigError, OutputError, CorruptionError, StoreError: There is neither at `old`, or it cannot be read.
        InputError, SchemaError, NotEnoughDataError: `old` is a run, and `config` cannot be planned.
    """
    if is_config(old):
        was = load_config(old)
        return Difference(
            old,
            is_run=False,
            refused=tuple(row_differences(was, config)),
            repack=tuple(_physical(was, config)),
            harmless=tuple(_harmless(was, config)),
        )
    _, run = existing(old)
    rows, bytes_only = differences(run, config)
    changed, more = _inputs(run, config, finished=status(old).finished)
    harmless = [*_harmless(run.config, config), *more]
    return Difference(old, is_run=True, refused=(*rows, *changed), repack=tuple(bytes_only), harmless=tuple(harmless))


def _physical(was: MixConfig, now: MixConfig) -> Iterator[str]:
    for key in ("compression", "compression_level", "batches_per_row_group"):
        old, new = getattr(was, key), getattr(now, key)
        if key == "compression_level":
            old, new = (each.compression_level or DEFAULT_LEVELS.get(each.compression) for each in (was, now))
        if old != new:
            yield f"{key}: {_told(old)} before, {_told(new)} now"


def _told(value: object) -> str:
    return "chosen by size or codec" if value is None else repr(value)


def _harmless(was: MixConfig, now: MixConfig) -> Iterator[str]:
    if was.output != now.output:
        yield f"output: {was.output!r} before, {now.output!r} now"
    # A run does not keep it.
    if now.length_column is not None and was.length_column != now.length_column:
        yield f"length_column: {now.length_column!r} now; only `mixer plan` looks at it"


def _inputs(run: Planned, config: MixConfig, *, finished: bool) -> tuple[list[str], list[str]]:
    """Return which inputs of `run` have changed, and what a new inventory would find that the run does not know."""
    changed: list[str] = []
    more: list[str] = []
    if not finished:
        for name, inventory in run.inventories.items():
            try:
                check_unchanged(name, inventory)
            except ChangedError as error:
                changed.append(str(error))
    if changed or list(run.config.datasets) != list(config.datasets):
        return changed, more
    for name, inventory in plan(config).inventories.items():
        if run.config.datasets[name].path == config.datasets[name].path:
            more += _new_files(name, run.inventories[name], inventory)
    return changed, more


def _new_files(name: str, was: Inventory, now: Inventory) -> Iterator[str]:
    known = {entry.url for entry in was.files}
    if new := [entry.url for entry in now.files if entry.url not in known]:
        yield (
            f"datasets.{name}: {len(new):,} file{'s' if len(new) > 1 else ''} that the run does not know, and will not "
            f"read: {new[0]}{', ...' if len(new) > 1 else ''}"
        )
