"""From a run that is there to one that is open: its log is taken over, and held to what was planned.

What the run began as, and what is asked of it, are known by then; see `mixer.building`. What a run does once it is open
stands in `mixer.opened`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mixer import extending, planning
from mixer.ancestry import Opened, Origin, parents, taken
from mixer.checking import check_against_plan
from mixer.core.commits import Amendment
from mixer.errors import CorruptionError
from mixer.extending import Asked
from mixer.log import CommitLog, LogWriter, Tail, take_over
from mixer.opened import OpenRun
from mixer.planning import Planned
from mixer.publishing import publish_card
from mixer.shards import WriterSettings
from mixer.sources.inventory import check_unchanged
from mixer.storage import RISK, CheckThenPutStore, Store

log = logging.getLogger(__name__)


def open_run(  # noqa: PLR0913, PLR0917 -- each is one independent fact of this start
    store: Store, began: Planned, asked: Asked | None, owner: str, opened: Opened, prove: Callable[[], Store] | None
) -> OpenRun:
    """Take the log of a run over, and check that what it says is what the plan says.

    Args:
        store: Where the run is.
        began: What it began as.
        asked: What a start asks of it; None to go on with what `owner` was at.
        owner: The name of the start.
        opened: Finds the runs that a fork goes on from.
        prove: Tries whether the store is fit to be written to, and returns it; None if it was tried just now.

    Raises:
        ChangedError: The run is another one than is asked for, or an input has changed.
        CorruptionError: What is there is damaged.
        FencedError: Another start owns the run.
        OutputError: The store cannot keep the promises.
    """
    commit_log = CommitLog(store, began.genesis)
    before = partial(parents, Origin(store, began, None), opened)
    judged = partial(_judged, store, began, asked)
    tail = commit_log.tail()
    planned, amendment = judged(tail)
    if tail.final is not None and amendment is None:
        # A complete run needs no inputs any more, and no owner.
        writer = LogWriter(commit_log, owner, tail.next_slot, tail.next_slot, tail.head)
        return OpenRun(store, planned, writer, tail, lambda: taken(before()))
    for name, inventory in planned.inventories.items():
        check_unchanged(name, inventory)
    before()
    if prove is not None:
        # At every start: it may lead to another store than the last one did.
        store = prove()
        commit_log, judged = CommitLog(store, began.genesis), partial(_judged, store, began, asked)
    if asked is not None and isinstance(store, CheckThenPutStore):
        log.warning("UNSAFE STORE, AND ITS RISK IS ACCEPTED: %s has no create-only writes; %s", store.url, RISK)
    expected_owner = owner if asked is None else None
    writer, found = take_over(
        commit_log, owner, planned.physical, tail=tail, expected_owner=expected_owner, accept=judged
    )
    if found is not tail:
        planned, amendment = judged(found)
    if amendment is not None:
        found = replace(found, amended=writer.append("amend", amendment.payload()), final=None, head=writer.head)
        log.info("extended number=%d batches=%d", amendment.number, planned.plan.batches)
    publish_card(store, began, planned, commit_log.amendments(found.amended))
    return OpenRun(store, planned, writer, found, lambda: taken(before()))


def _judged(store: Store, began: Planned, asked: Asked | None, tail: Tail) -> tuple[Planned, Amendment | None]:
    """Return what the run is by the end of its log, and how it is to be extended, if that is asked."""
    run = extending.current(began, tail, store.url)
    check_against_plan(store, run.plan, tail)
    if asked is not None:
        return extending.going_on(began, run, asked, tail)
    # A start that was allowed to write otherwise goes on doing so.
    return (planning.with_settings(run, _settings_of(tail, run)) if tail.physical is not None else run), None


def _settings_of(tail: Tail, planned: Planned) -> WriterSettings:
    try:
        return planning.settings_from_json(tail.physical or {}, planned.plan.batches_per_shard)
    except CorruptionError as error:
        raise CorruptionError(f"{tail.commit_where or planned.config.output}: {error}") from error
