"""The verb `gc`: find what killed processes have left in an output, and delete it if asked to.

What can be left, and when it goes:

- Objects of probes, below ``.mixer/probe/``: a start tries its store there, and removes the object. In a run under way
  they stay, as a start may be at it just now. When the run is finished nobody needs to try the store any more.
- Files of local writers that are not whole yet: they go if no process holds their lock (`mixer.storage.leftovers`).
- Checkpoints that do not say what the log says. They are copies; a reader who finds none takes the log.

Shards that no commit names stay. A shard's name is its number, so one whose number is committed is the shard itself.
One that is not committed yet may be another process's that is about to commit it, or will be found by the next start,
which takes it over or replaces it. That is so in a finished run, too: it may be extended at any moment, and a store has
no way to delete an object only if it is still the one that was looked at.

Prepared copies stay, too: those that the run reads are part of it, and the others are shown, a folder each
(`mixer.preparation.leftovers`).

All else is either the run's own, or foreign; foreign objects are shown and never deleted, also in the folders above
if they have names that mixer does not give.

Why this harms no run, whether it is under way, starting or asleep: each of these rules, once it is true of an object,
stays true for as long as the run is there, or harms nobody where it does not. A log only grows, a dead process writes
nothing, and no reader needs a checkpoint. So it does not matter how much time goes by between looking and deleting, and
no clock is asked. A start that is at its probe, to extend the run or since before it was finished, and finds the object
gone, tries again under another name, which no list that was made before can hold. All is looked at once more before
each object is deleted nevertheless, since people may have put another run, or another object of that name, where the
old one was.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mixer import extending
from mixer.building import started
from mixer.checking import check_against_plan, checkpoint_problem
from mixer.core import commits
from mixer.core.commits import Slot
from mixer.core.plan import shard_path
from mixer.errors import ChangedError, CorruptionError, StoreError
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.preparation.leftovers import copy_key, other_copies
from mixer.sources.inventory import copy_keys
from mixer.storage import LocalStore, Store
from mixer.storage.urls import PROBE_FOLDER, is_drawn

log = logging.getLogger(__name__)

_OWN = frozenset({commits.RUN_NAME, commits.MANIFEST_NAME, commits.CARD_NAME})
_SHARD = re.compile(r"data/shard-([0-9]{8,18})\.parquet")
_GONE, _REPLACED = "gone meanwhile", "replaced meanwhile"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an object may go, and why, or why not."""

    collect: bool
    reason: str


_FOREIGN = Verdict(collect=False, reason="not made by mixer")


@dataclass(frozen=True, slots=True)
class Item:
    """An object that is not part of the run."""

    name: str
    """Name relative to the output."""
    bytes: int
    """Length in bytes."""
    reason: str
    """Why it may go, or why it is kept."""
    version: str = field(default="", repr=False)
    """Which object of this name it was, as the store tells."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that could not be deleted."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Garbage:
    """What an output holds beside its run, and what became of it."""

    output: str
    run: str
    """Short id of the run."""
    committed: int
    """Shards that are part of the run."""
    finished: bool
    found: tuple[Item, ...]
    """What may go."""
    kept: tuple[Item, ...]
    """What is not part of the run, and stays."""
    deleted: tuple[Item, ...] = ()
    """What was deleted: nothing unless that was asked for."""
    spared: tuple[Item, ...] = ()
    """What was to go and was gone, or another object, when its turn came."""
    refused: tuple[Refusal, ...] = ()
    """What could not be deleted."""


def judge(
    name: str, *, committed: int, finished: bool, stale: Mapping[str, str] | None = None, taken: int = 0
) -> Verdict | None:
    """Return whether the object `name` may go; None if it is part of the run.

    Args:
        name: Name relative to the output.
        committed: Shards that are part of the run.
        finished: Whether the run is complete, so that a start has nothing to do unless it extends it.
        stale: Checkpoints that do not say what the log says, and how so.
        taken: How many of these shards lie in the output of another run.

    >>> judge("data/shard-00000003.parquet", committed=4, finished=True)
    >>> judge("data/shard-00000004.parquet", committed=4, finished=True).collect
    False
    >>> judge(".mixer/probe/" + 32 * "a", committed=4, finished=True).collect
    True
    >>> judge("data/notes.txt", committed=4, finished=True)
    Verdict(collect=False, reason='not made by mixer')
    """
    number = shard_number(name)
    if name in _OWN or name.startswith(commits.LOG_PREFIX) or (number is not None and taken <= number < committed):
        return None
    if commits.checkpoint_stop(name) is not None:
        found = (stale or {}).get(name)
        return Verdict(collect=True, reason=found) if found is not None else None
    if name.startswith(PROBE_FOLDER) and is_drawn(name.removeprefix(PROBE_FOLDER)):
        reason = "left by a probe of the store" if finished else "a start may be at its probe of the store"
        return Verdict(collect=finished, reason=reason)
    if number is not None and number < taken:
        reason = "not made by this run: its shard of this number lies in the output that it was forked from"
    elif number is not None and finished:
        reason = "a shard beyond the last one: an extension would use or replace it"
    elif number is not None:
        reason = "not committed yet: by a writer at work, or by the next start"
    else:
        return _FOREIGN
    return Verdict(collect=False, reason=reason)


def judge_unfinished(*, held: bool | None, foreign: bool = False) -> Verdict:
    """Return whether a file that is not whole may go; `held`, `foreign`: as in `mixer.storage.leftovers.Leftover`.

    >>> [judge_unfinished(held=held).collect for held in (False, True, None)]
    [True, False, False]
    """
    if foreign:
        return _FOREIGN
    if held is None:
        reason = (
            "this file system has no locks to tell by whether it is being written; remove it when no run is at work"
        )
        return Verdict(collect=False, reason=reason)
    if held:
        return Verdict(collect=False, reason="being written")
    return Verdict(collect=True, reason="unfinished: its writer was killed")


def shard_number(name: str) -> int | None:
    """Return the number of the shard that is called `name`; None if no shard is.

    >>> shard_number("data/shard-00000041.parquet"), shard_number("data/shard-41.parquet")
    (41, None)
    """
    match = _SHARD.fullmatch(name)
    number = int(match[1]) if match else -1
    return number if match and shard_path(number) == name else None


def gc(output: str, *, delete: bool = False, on_delete: Callable[[Item], None] | None = None) -> Garbage:
    """Return what lies in `output` beside its run; with `delete`, delete what may go, one object at a time.

    Safe at any time, whoever is at work on the run or starts it: see the top of this module. An object that cannot be
    deleted does not keep the others from it. Deleting is not undone by anything.

    Args:
        output: Where the run is.
        delete: Delete; without it nothing is written or removed.
        on_delete: Hears of each object when it is deleted, in this thread.

    Raises:
        OutputError: There is no run there.
        CorruptionError: Its definition or the end of its log is damaged, so what it names is not known.
        ChangedError: Another run has taken its place meanwhile.
        StoreUnavailableError: The store does not answer; what was deleted is deleted, the same call goes on.
    """
    survey = _Survey(*started(output))
    found, kept = survey.look()
    deleted: list[Item] = []
    spared: list[Item] = []
    refused: list[Refusal] = []
    for item in found if delete else ():
        try:
            why_not = survey.delete(item)
        except StoreError as error:
            if error.transient:
                raise
            refused.append(Refusal(item.name, str(error)))
            continue
        if why_not is not None:
            spared.append(Item(item.name, item.bytes, why_not, item.version))
            continue
        log.info("deleted name=%s bytes=%d reason=%s", item.name, item.bytes, item.reason)
        deleted.append(item)
        if on_delete is not None:
            on_delete(item)
    return Garbage(
        output=output,
        run=survey.run[:12],
        committed=survey.committed,
        finished=survey.finished,
        found=tuple(found),
        kept=tuple(kept),
        deleted=tuple(deleted),
        spared=tuple(spared),
        refused=tuple(refused),
    )


class _Survey:
    """One output, looked at as often as needed."""

    def __init__(self, store: Store, started: Planned) -> None:
        self.store = store
        self.run = started.run
        """The run's id by now."""
        self.committed = 0
        self.finished = False
        self._stop = 0
        self._started = started
        self._taken, _ = started.done(None)
        self._copies = copy_keys(started.inventories)
        self._log = CommitLog(store, started.genesis)
        self._definition = self._definition_version()

    def look(self) -> tuple[list[Item], list[Item]]:
        """Return what may go, and what is not part of the run and stays."""
        # Before the log, which only grows: what was put after it was read could not be told from garbage.
        listed = self.store.list("")
        self._read_log()
        names = [info.name for info in listed if commits.checkpoint_stop(info.name) is not None]
        stale = {name: wrong for name in names if (wrong := self._checkpoint_problem(name)) is not None}
        judged = [
            (info.name, info.bytes, info.version, self._judge(info.name, stale))
            for info in listed
            if copy_key(info.name) is None
        ]
        judged += [
            (copy.name, copy.bytes, "", Verdict(collect=False, reason=copy.reason))
            for copy in other_copies(listed, self._copies)
        ]
        if isinstance(self.store, LocalStore):
            judged += [
                (lost.name, lost.bytes, "", judge_unfinished(held=lost.held, foreign=lost.foreign))
                for lost in self.store.leftovers()
            ]
        found: list[Item] = []
        kept: list[Item] = []
        for name, size_bytes, version, verdict in judged:
            if verdict is not None:
                (found if verdict.collect else kept).append(Item(name, size_bytes, verdict.reason, version))
        return found, kept

    def delete(self, item: Item) -> str | None:
        """Delete `item` if it is still there and still garbage; return why not, None if it is deleted."""
        if not item.version and isinstance(self.store, LocalStore):
            return None if self.store.remove_leftover(item.name) else judge_unfinished(held=True).reason
        if self._definition_version() != self._definition:
            raise ChangedError(
                f"{self.store.url}: {commits.RUN_NAME} is not the one that was there when this began; nothing more was "
                "deleted, look again what is there"
            )
        info = self.store.stat(item.name)
        if info is None:
            return _GONE
        if info.version != item.version:
            return _REPLACED
        self._read_log()
        stale = {}
        if commits.checkpoint_stop(item.name) is not None and (wrong := self._checkpoint_problem(item.name)):
            stale[item.name] = wrong
        verdict = self._judge(item.name, stale)
        if verdict is None or not verdict.collect:
            return verdict.reason if verdict else "part of the run"
        self.store.delete(item.name)
        return None

    def _judge(self, name: str, stale: Mapping[str, str]) -> Verdict | None:
        return judge(name, committed=self.committed, finished=self.finished, stale=stale, taken=self._taken)

    def _definition_version(self) -> str | None:
        info = self.store.stat(commits.RUN_NAME)
        return info.version if info else None

    def _read_log(self) -> None:
        """Find out how far the run is, and check that it is what the plan says."""
        tail = self._log.tail()
        planned = extending.current(self._started, tail, self.store.url)
        check_against_plan(self.store, planned.plan, tail)
        self.run = planned.run
        self.committed, _ = planned.done(tail.commit)
        self.finished = tail.final is not None
        self._stop = tail.next_slot

    def _checkpoint_problem(self, name: str) -> str | None:
        return checkpoint_problem(self.store, name, self._slot, stop=self._stop, every=False)

    def _slot(self, number: int) -> Slot | None:
        """Return a slot; None if it is damaged or missing: then a checkpoint may be the only copy of what it said."""
        try:
            return self._log.slot(number)
        except CorruptionError:
            return None
