"""The verb `prepare`: copies of what cannot be read from anywhere, made once, in Parquet.

Each dataset passes through the stages that it needs (`mixer.preparation.chain`), and each stage leaves a copy whose
name is the hash of all that decides its bytes. A copy that is there is taken; one that is half there is completed. So
preparing again does nothing, changed inputs lead to other copies, and the mix reads nothing but Parquet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial

from mixer import asking
from mixer.config import MixConfig
from mixer.core.fingerprint import JSON
from mixer.errors import NotPreparedError, OutputError, StoppedError
from mixer.preparation import chain
from mixer.preparation.chain import Files, Parquet, find_files
from mixer.preparation.engine import Link, OnPart, Place, ShouldStop, find_copy, make_copy
from mixer.preparation.record import FOLDER, Copy
from mixer.preparation.scratch import remove_left
from mixer.sources.inventory import Inventory
from mixer.storage import open_store

log = logging.getLogger(__name__)

DATE = "{date}"
"""In the output of a config that flow runs of a deployment make, each with its own date in this place."""


@dataclass(frozen=True, slots=True)
class Made:
    """One stage of one dataset, and the copy that it has left."""

    dataset: str
    kind: str
    """``rows``, ``tokens``, ``batches`` or ``order``."""
    where: str
    """The folder of the copy."""
    key: str
    parts: int
    rows: int
    bytes: int
    bad: int
    """How many pieces of the inputs were put aside in its folder ``quarantine/``."""
    facts: Mapping[str, JSON]
    """What the stage counted."""
    is_new: bool
    """Whether this call has made it, or completed it."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What there is after preparing."""

    place: str
    """Where the copies lie; empty if there are none."""
    stages: tuple[Made, ...]
    """Stage by stage, in the order of the datasets; none of a dataset that needs none."""

    @property
    def made(self) -> int:
        """How many copies this call has made, or completed."""
        return sum(stage.is_new for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run reads: its datasets as Parquet files, their own or prepared ones."""

    datasets: Mapping[str, Parquet]
    preparation: Preparation

    @property
    def inventories(self) -> dict[str, Inventory]:
        """The files of each dataset."""
        return {name: found.inventory for name, found in self.datasets.items()}


def place_of(config: MixConfig) -> Place:
    """Return where the prepared copies of a config's datasets lie.

    Raises:
        OutputError: No store can be opened there.
    """
    if config.prepared is not None:
        try:
            return Place(open_store(config.prepared))
        except OutputError as error:
            raise OutputError(f"prepared: {error}") from error
    return Place(open_store(config.output), FOLDER)


Known = Mapping[str, Inventory]
"""Datasets that are frozen already, with their inventories: nobody looks for their files, or prepares them."""


def find_files_of(config: MixConfig, known: Known) -> dict[str, Files]:
    """Return the files of each dataset that is not known; they are listed where their names do not say the format.

    Raises:
        ConfigError, InputError, StoreError: As `find_files`.
    """
    return {name: find_files(name, dataset) for name, dataset in config.datasets.items() if name not in known}


def is_needed(config: MixConfig, files: Mapping[str, Files]) -> bool:
    """Return whether some dataset of `files` has to be prepared, be it that it is by now."""
    return any(
        not found.is_parquet or config.datasets[name].shuffle == "full" or chain.has_items_link(config.datasets[name])
        for name, found in files.items()
    )


def prepare(
    config: MixConfig,
    known: Known,
    files: Mapping[str, Files],
    *,
    on_part: OnPart | None = None,
    should_stop: ShouldStop | None = None,
) -> Preparation:
    """Prepare what `config` needs and what is not prepared yet; see `mixer.building.prepare`."""
    take = _maker(config, known, on_part, should_stop)
    return _Walk(config, known, take, with_all=False, files=files).inputs().preparation


def make_inputs(
    config: MixConfig,
    known: Known,
    files: Mapping[str, Files],
    *,
    on_part: OnPart | None = None,
    should_stop: ShouldStop | None = None,
) -> Inputs:
    """Prepare as `prepare` does, and return what a run of `config` reads; `files`: see `find_files_of`."""
    return _Walk(config, known, _maker(config, known, on_part, should_stop), with_all=True, files=files).inputs()


def find(config: MixConfig, known: Known, files: Mapping[str, Files] | None = None) -> Preparation:
    """Return what is prepared for `config`; nothing is made, and only what is needed to tell is read.

    The rest is as of `find_inputs_of`.
    """
    return _Walk(config, known, _finder(), with_all=False, files=files or {}).inputs().preparation


def find_inputs_of(config: MixConfig, known: Known, files: Mapping[str, Files] | None = None) -> Inputs:
    """Return what a run of `config` reads; nothing is prepared. `files`: if they have been found already.

    Raises:
        NotPreparedError: Some of it is not prepared yet.
        ConfigError, InputError, SchemaError, NotEnoughDataError, CorruptionError, StoreError: As `prepare`.
    """
    return _Walk(config, known, _finder(), with_all=True, files=files or {}).inputs()


def _try_tokenizers(config: MixConfig, known: Known) -> None:
    """Find out whether each tokenizer can be used, before hours go into the stages before it.

    Raises:
        ConfigError, StoreError: As `mixer.tokenizing.open_tokenizer`.
    """
    windows = {name: asked.window for name, asked in config.datasets.items() if asked.window and name not in known}
    for name, window in windows.items():
        if window.tokenizer is not None:
            from mixer.tokenizing import open_tokenizer  # noqa: PLC0415 -- most runs need none

            open_tokenizer(name, window)


Take = Callable[[Place, Link], tuple[Copy | None, bool]]
"""Return the copy of a stage, and whether it was made just now; None if there is none."""


def _finder() -> Take:
    return lambda place, link: (find_copy(place, link.key), False)


def _maker(config: MixConfig, known: Known, on_part: OnPart | None, should_stop: ShouldStop | None) -> Take:
    # If there is something to make, once, before the first of it.
    try_tokenizers = cache(partial(_try_tokenizers, config, known))

    def take(place: Place, link: Link) -> tuple[Copy | None, bool]:
        if place.scratch is not None:
            # Whatever is to be done now: what a killed sort has left may be large.
            remove_left(place.scratch)
        found = find_copy(place, link.key)
        if found is not None:
            return found, False
        try_tokenizers()
        log.info("preparing dataset=%s stage=%s key=%s", link.stage.name, link.kind, link.key)
        copy = make_copy(place, link, on_part=on_part, should_stop=should_stop or _never)
        if copy is None:
            raise StoppedError(
                f"dataset {link.stage.name!r}: stopped while it was being prepared, at a part's edge; what is done "
                f"stays, and the same call goes on from there"
            )
        left_out = copy.facts.get("bad_lines")
        if isinstance(left_out, Mapping) and left_out:
            # A run that prepares by itself tells of it nowhere else.
            counts = " ".join(f"{kind}={count}" for kind, count in sorted(left_out.items()))
            log.warning("left out bad lines dataset=%s %s where=%s", link.stage.name, counts, place.where(copy.key))
        return copy, True

    return take


def _who_prepares(config: MixConfig) -> str:
    """Return what prepares the inputs of `config`; of a dated output neither command takes what is below it."""
    if DATE not in config.output:
        return "`mixer prepare` with this config does it, and so does `mixer run` by itself"
    if config.prepared is not None:
        return "`mixer prepare` with this config does it, and so does a scheduled flow run by itself"
    return (
        f"a scheduled flow run does it by itself, below the output of its date; to do it before, once for all dates, "
        f"set `prepared` to a place of its own and use `mixer prepare`, or write a date in place of {DATE}"
    )


def _never() -> bool:
    return False


@dataclass(slots=True)
class _Walk:
    """The datasets of a config on their way through the stages that they need."""

    config: MixConfig
    known: Known
    take: Take
    with_all: bool
    """Whether also datasets that need no stage are looked at."""
    files: Mapping[str, Files] = field(default_factory=dict)
    """Files that have been found already."""
    made: list[Made] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What is not prepared, in words."""
    _place: Place | None = None

    @property
    def place(self) -> Place:
        """Where copies lie; opened only if one is asked for."""
        if self._place is None:
            self._place = place_of(self.config)
        return self._place

    def inputs(self) -> Inputs:
        """Return the datasets at the end of their ways."""
        config = self.config
        known = {name: Parquet(name, inventory, []) for name, inventory in self.known.items()}
        full = [name for name, asked in config.datasets.items() if asked.shuffle == "full" and name not in known]
        datasets = {}
        for name in config.datasets:
            if name in known:
                datasets[name] = known[name]
            elif (found := self._with_items(name, with_all=self.with_all or bool(full))) is not None:
                datasets[name] = found
        if full and not self.missing:
            epochs = asking.epochs_needed(config, {name: found.inventory for name, found in datasets.items()})
            for name in full:
                link = chain.order_link(
                    config.datasets[name],
                    datasets[name],
                    self.place,
                    seed=config.seed,
                    epochs=epochs[name],
                    fill=self._fill,
                )
                if (found := self._through(datasets[name], link)) is not None:
                    datasets[name] = found
        elif full:
            self.missing += [_lacking(name, "order") for name in full]
        if self.missing:
            _try_tokenizers(config, self.known)
            raise NotPreparedError(
                f"{self.place.url}: not prepared yet: {', '.join(dict.fromkeys(self.missing))}; {_who_prepares(config)}"
            )
        order = {name: number for number, name in enumerate(config.datasets)}
        stages = tuple(sorted(self.made, key=lambda stage: order[stage.dataset]))
        return Inputs(datasets, Preparation(self.place.url if stages else "", stages))

    @property
    def _fill(self) -> bool:
        return self.config.missing == "null"

    def _with_items(self, name: str, *, with_all: bool) -> Parquet | None:
        """Return a dataset after all stages but that of order; None if one is missing, or nobody asks for it."""
        dataset = self.config.datasets[name]
        files = self.files.get(name) or find_files(name, dataset)
        rows = chain.rows_link(name, dataset, files)
        now: Parquet | None
        if rows is not None:
            now = self._taken(Parquet(name, Inventory((), ()), []), rows)
        elif with_all or chain.has_items_link(dataset):
            now = chain.as_stored(name, dataset, files)
        else:
            return None
        if now is None or not chain.has_items_link(dataset):
            return now
        return self._through(now, chain.items_link(dataset, now, self.place, seed=self.config.seed, fill=self._fill))

    def _through(self, now: Parquet, stage: AbstractContextManager[Link]) -> Parquet | None:
        with stage as link:
            return self._taken(now, link)

    def _taken(self, now: Parquet, link: Link) -> Parquet | None:
        """Return a dataset after one more stage; None if its copy is missing."""
        copy, is_new = self.take(self.place, link)
        if copy is None:
            self.missing.append(_lacking(now.name, link.kind))
            return None
        self.made.append(
            Made(
                dataset=now.name,
                kind=link.kind,
                where=self.place.where(copy.key),
                key=copy.key,
                parts=len(copy.files),
                rows=copy.rows,
                bytes=copy.size_bytes,
                bad=copy.bad,
                facts=copy.facts,
                is_new=is_new,
            )
        )
        return now.after(self.place, copy)


def _lacking(name: str, kind: str) -> str:
    return f"{name!r} ({_WORDS[kind]})"


_WORDS = {
    "rows": "rows of files that are not Parquet",
    "tokens": "text into tokens",
    "batches": "batches of equally long rows",
    "order": "all rows in random order",
}
