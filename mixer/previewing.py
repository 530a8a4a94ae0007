"""The verb `preview`: what a config gives, and what building it now would do; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mixer import planning
from mixer.checking import check_against_plan, refuse_foreign
from mixer.config import MixConfig
from mixer.core import commits
from mixer.errors import ChangedError, MixerError, OutputError
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.records import read_record
from mixer.sources.inventory import check_unchanged
from mixer.storage import Store, open_store

Action = Literal["start", "resume", "nothing", "refuse"]
"""What building would do: begin a run, go on with one, see that it is complete, or end with an error at once."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan, and how it stands to what lies at its output."""

    planned: Planned
    action: Action
    committed: int
    """Shards of this run that are there already."""
    refusal: MixerError | None = None
    """Why building would refuse."""


def preview(config: MixConfig) -> Preview:
    """Return the plan of `config` and what `build` would do; inputs are listed and footers read, and no rows.

    A run that is there already is shown as it was planned when it started, unless `config` asks for another one.

    Raises:
        ConfigError, InputError, SchemaError, NotEnoughDataError: The config cannot be planned.
        CorruptionError: What lies at the output is a damaged run.
        StoreError: The output cannot be read.
    """
    store = open_store(config.output)
    data = read_record(store, commits.RUN_NAME)
    if data is None:
        planned = planning.plan(config)
        try:
            refuse_foreign(store)
        except OutputError as error:
            return Preview(planned, "refuse", 0, error)
        return Preview(planned, "start", 0)
    run = planning.read_run_file(data, config.output, f"{store.url}/{commits.RUN_NAME}")
    try:
        planned = planning.check_same(run, config, allow_repack=False)
    except ChangedError as error:
        rows, _ = planning.differences(run, config)
        return Preview(planning.plan(config) if rows else run, "refuse", 0, error)
    return _resumed(store, planned)


def _resumed(store: Store, run: Planned) -> Preview:
    """Return how a run that is there would go on."""
    tail = CommitLog(store, run.run).tail()
    check_against_plan(store, run.plan, tail)
    committed = tail.commit.shard + 1 if tail.commit else 0
    if tail.final is not None:
        return Preview(run, "nothing", committed)
    try:
        for name, inventory in run.inventories.items():
            check_unchanged(name, inventory)
    except ChangedError as error:
        return Preview(run, "refuse", committed, error)
    return Preview(run, "resume", committed)
