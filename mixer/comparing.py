"""How a config differs from an older one, or from a run: what a resume refuses, what it may be allowed, the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mixer import preparing
from mixer.building import Existing, look
from mixer.config import MixConfig, load_config
from mixer.differing import differences, row_differences
from mixer.errors import ChangedError, InputError, NotEnoughDataError
from mixer.extending import Asked, going_on
from mixer.planning import Planned
from mixer.shards import DEFAULT_LEVELS
from mixer.sources.inventory import Inventory, check_unchanged
from mixer.storage.inputs import InputListing, find_inputs


@dataclass(frozen=True, slots=True)
class Difference:
    """How a config stands to what a run was, or would have been, started with."""

    old: str
    """Where the older one is."""
    is_run: bool
    """Whether that is the output of a run, and not a config."""
    refused: tuple[str, ...]
    """What a resume is refused for: it decides which rows come out, or is an input that has changed."""
    why: str | None
    """More on that, if `old` is a run that the config could almost make longer."""
    extends: tuple[str, ...]
    """What only makes a run longer, and is allowed by `--extend`."""
    repack: tuple[str, ...]
    """What `--allow-repack` allows: it decides bytes only."""
    harmless: tuple[str, ...]
    """What makes no difference to a run that has begun."""

    @property
    def verdict(self) -> str:
        """The worst of it: ``refused``, ``extend``, ``allow-repack``, ``harmless`` or ``same``.

        >>> Difference("old.yaml", False, (), None, (), repack=("compression: ...",), harmless=()).verdict
        'allow-repack'
        """
        found = {
            "refused": self.refused,
            "extend": self.extends,
            "allow-repack": self.repack,
            "harmless": self.harmless,
        }
        return next((verdict for verdict, lines in found.items() if lines), "same")


def is_config(old: str) -> bool:
    """Return whether `old` names a config file, and not an output: a file, or what is called as one."""
    return old == "-" or Path(old).is_file() or ("://" not in old and old.endswith((".yaml", ".yml")))


def compare(config: MixConfig, old: str) -> Difference:
    """Return how `config` differs from the config, or from the run in the output, that `old` names.

    Raises:
        ConfigError, OutputError, CorruptionError, StoreError: There is neither at `old`, or it cannot be read.
    """
    if is_config(old):
        was = load_config(old)
        return Difference(
            old,
            is_run=False,
            refused=tuple(row_differences(was, config)),
            why=None,
            extends=(),
            repack=tuple(_physical(was, config)),
            harmless=tuple(_harmless(was, config)),
        )
    there = look(old)
    run, (rows, bytes_only) = there.run, differences(there.run, config)
    why = _why_not_longer(there, config) if rows else None
    longer = bool(rows) and why is None
    changed, more = _inputs(run, config) if longer or there.tail.final is None else ([], [])
    return Difference(
        old,
        is_run=True,
        refused=(*(() if longer else rows), *changed),
        why=why,
        extends=tuple(rows) if longer else (),
        repack=tuple(bytes_only),
        harmless=(*_harmless(run.config, config), *more),
    )


def _why_not_longer(there: Existing, config: MixConfig) -> str | None:
    """Return why `config` does not just make a run longer; None if that is all it does."""
    try:
        going_on(there.began, there.run, Asked(config, extend=True, allow_repack=True), there.tail)
    except (ChangedError, NotEnoughDataError) as error:
        # Before the last line stands what differs, which is told anyway.
        return str(error).rpartition("\n")[2]
    return None


def _physical(was: MixConfig, now: MixConfig) -> Iterator[str]:
    for key in ("compression", "compression_level", "batches_per_row_group"):
        old, new = getattr(was, key), getattr(now, key)
        if key == "compression_level":
            old, new = (each.compression_level or DEFAULT_LEVELS.get(each.compression) for each in (was, now))
        if old != new:
            yield f"{key}: {_told(old)} before, {_told(new)} now"


def _told(value: object) -> str:
    return "chosen by size or codec" if value is None else repr(value)


def _place(value: str | None) -> str:
    return "below the output" if value is None else repr(value)


def _harmless(was: MixConfig, now: MixConfig) -> Iterator[str]:
    for key in ("output", "prepared"):
        old, new = getattr(was, key), getattr(now, key)
        if old != new:
            yield f"{key}: {_place(old)} before, {_place(new)} now"
    # A run does not keep it.
    if now.length_column is not None and was.length_column != now.length_column:
        yield f"length_column: {now.length_column!r} now; only `mixer plan` looks at it"


def _inputs(run: Planned, config: MixConfig) -> tuple[list[str], list[str]]:
    """Return which inputs of `run` have changed, and what is there now that the run does not know."""
    changed: list[str] = []
    more: list[str] = []
    for name, inventory in run.inventories.items():
        try:
            check_unchanged(name, inventory)
        except ChangedError as error:
            changed.append(str(error))
            continue
        dataset = config.datasets.get(name)
        if dataset is not None and inventory.copy_key is None and dataset.path == run.config.datasets[name].path:
            more += _new_files(name, inventory, find_inputs(dataset.path))
    return changed, [*more, *_prepared_otherwise(run, config)]


def _prepared_otherwise(run: Planned, config: MixConfig) -> Iterator[str]:
    """Yield of which datasets another copy would be made now; the run goes on with the one that it has."""
    names = [
        name
        for name, inventory in run.inventories.items()
        if inventory.copy_key is not None and config.datasets.get(name) == run.config.datasets[name]
    ]
    if not names:
        return
    there = config.model_copy(update={"output": run.config.output, "prepared": run.config.prepared, "fork": None})
    try:
        keys = {stage.dataset: stage.key for stage in preparing.find(there, {}).stages}
    except InputError:
        # They are gone, or not prepared as they are now.
        keys = {}
    for name in names:
        if keys.get(name) != run.inventories[name].copy_key:
            yield (
                f"datasets.{name}: what it was prepared from is not there any more, or not as it was; the run goes on "
                f"with the copy"
            )


def _new_files(name: str, was: Inventory, now: InputListing) -> Iterator[str]:
    known = {entry.url for entry in was.files}
    if new := [file.url for file in now.files if file.url not in known]:
        yield (
            f"datasets.{name}: {len(new):,} file{'s' if len(new) > 1 else ''} that the run does not know, and will not "
            f"read: {new[0]}{', ...' if len(new) > 1 else ''}"
        )
