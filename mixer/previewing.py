"""The verb `preview`: what a config gives, and what building it now would do; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mixer import extending, planning
from mixer.building import plan
from mixer.checking import check_against_plan, refuse_foreign
from mixer.config import MixConfig
from mixer.core import commits
from mixer.differing import row_differences
from mixer.errors import ChangedError, MixerError, NotEnoughDataError, NotPreparedError, OutputError
from mixer.extending import Asked
from mixer.log import CommitLog, Tail
from mixer.planning import Planned
from mixer.records import read_record
from mixer.sources.inventory import check_unchanged
from mixer.storage import open_store

Action = Literal["start", "resume", "nothing", "extend", "refuse"]
"""What building would do: begin a run, go on with one, see that it is complete, make it longer if it is told to, or end
with an error at once."""


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
        planned = plan(config)
        try:
            refuse_foreign(store)
        except OutputError as error:
            return Preview(planned, "refuse", 0, error)
        return Preview(planned, "start", planned.done(None)[0])
    started = planning.read_run_file(data, config.output, f"{store.url}/{commits.RUN_NAME}")
    tail = CommitLog(store, started.genesis).tail()
    run = extending.current(started, tail, store.url)
    try:
        planned, amendment = extending.going_on(started, run, Asked(config, extend=True, allow_repack=False), tail)
    except (ChangedError, NotEnoughDataError) as error:
        if not row_differences(run.config, config):
            return Preview(run, "refuse", 0, error)
        try:
            return Preview(plan(config), "refuse", 0, error)
        except NotPreparedError:
            # It is refused anyway: what is there is shown instead.
            return Preview(run, "refuse", 0, error)
    check_against_plan(store, run.plan, tail)
    return _resumed(planned, tail, is_longer=amendment is not None)


def _resumed(run: Planned, tail: Tail, *, is_longer: bool) -> Preview:
    """Return how a run that is there would go on, made longer or not."""
    committed, _ = run.done(tail.commit)
    if tail.final is not None and not is_longer:
        return Preview(run, "nothing", committed)
    try:
        for name, inventory in run.inventories.items():
            check_unchanged(name, inventory)
    except ChangedError as error:
        return Preview(run, "refuse", committed, error)
    return Preview(run, "extend" if is_longer else "resume", committed)
