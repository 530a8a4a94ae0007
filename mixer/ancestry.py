"""Where the shards of a run lie: its own in its output, those that a fork has taken in the outputs that they are from.

A fork keeps the address of its parent, the run's id there, and the chain head after the last shard that it takes. So
what lies at that address is either just these shards, or it is found out that it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from mixer import extending
from mixer.checking import check_commit
from mixer.core import commits
from mixer.core.commits import Commit, Parent, Slot
from mixer.core.plan import Plan
from mixer.errors import CorruptionError, OutputError
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.storage import Store

Opened = Callable[[str], tuple[Store, Planned]]
"""What `mixer.building.started` does: the store of an output, and the run in it as it began."""
Place = tuple[str, Commit]
"""The address of an output of another run, and the commit of a shard in it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A run, and which of its shards are part of a mix: those from its own first one on, up to where it was forked."""

    store: Store
    began: Planned
    stop: int | None
    """One past the last shard that is taken; None of the mix itself."""

    @property
    def start(self) -> int:
        """The first shard that lies in this output."""
        return self.began.parent.shards if self.began.parent else 0

    @property
    def log(self) -> CommitLog:
        """The run's log."""
        return CommitLog(self.store, self.began.genesis)

    def commits(self, shard: int) -> Iterator[Commit]:
        """Yield the commits of `shard` and those after it, each checked against what the run was when it was written.

        Raises:
            CorruptionError: A slot is missing or damaged.
        """
        return (commit for _, commit in self.slots(count(max(shard, self.start))))

    def slots(self, shards: Iterable[int]) -> Iterator[tuple[Slot, Commit]]:
        """Yield slot and commit of each of `shards` that lies here, each checked as `commits` does.

        The slot of a shard lies as many slots after its number in this output as there are other slots before it, of
        starts of the run above all. So a step from a commit to where the wanted one would be, were there only commits
        in between, never goes too far.

        Args:
            shards: Numbers of shards from `start` on, rising; the first one that is not there, or not part of the mix,
                ends it.

        Raises:
            CorruptionError: A slot is missing or damaged.
        """
        log = self.log
        stop = log.next_slot()
        plans: dict[int | None, Plan] = {None: self.began.plan}
        number, at = 0, self.start - 1
        for shard in shards:
            number += max(1, shard - at)
            while True:
                if number >= stop:
                    return
                slot = log.slot(number)
                if slot.kind != "shard":
                    number += 1
                    continue
                commit = self._checked(slot, plans)
                if commit.shard >= shard:
                    break
                number += shard - commit.shard
            if self.stop is not None and commit.shard >= self.stop:
                return
            yield slot, commit
            at = commit.shard

    def _checked(self, slot: Slot, plans: dict[int | None, Plan]) -> Commit:
        """Return the commit in `slot`, checked against what the run was then; what it was is kept in `plans`."""
        log = self.log
        where = f"{self.store.url}/{commits.slot_name(slot.number)}"
        commit = commits.commit_from(slot.payload, where)
        at = log.amended_number(slot)
        if at not in plans and (amended := log.amended_at(slot)):
            name = commits.slot_name(amended.number)
            plans[at] = extending.amended(self.began, amended, f"{self.store.url}/{name}").plan
        check_commit(plans[at], commit, where)
        return commit


def parent_of(run: Origin, opened: Opened) -> Origin | None:
    """Return the run whose shards come before those of `run`; None if there is none. Its commits are not looked at.

    Raises:
        CorruptionError: It is gone, damaged, or another one lies in its place.
    """
    parent = run.began.parent
    if parent is None:
        return None
    try:
        store, began = opened(parent.output)
    except (OutputError, CorruptionError) as error:
        raise _lost(run, parent, str(error)) from error
    if began.genesis != parent.genesis:
        raise _lost(run, parent, f"run {began.genesis[:12]} lies there, expected run {parent.genesis[:12]}")
    return Origin(store, began, parent.shards)


def check_taken(run: Origin, last: Commit | None) -> None:
    """Check that `last` is the last shard that `run` has taken of its parent, at the end of the very same history.

    Raises:
        CorruptionError: It is not.
    """
    parent = run.began.parent
    if parent is None:
        return
    if last is None or last.shard != parent.shards - 1:
        raise _lost(run, parent, f"shard {parent.shards - 1} is not committed there")
    if (head := commits.chain_hash(last.payload())) != parent.head:
        raise _lost(run, parent, f"expected the chain head {parent.head} after shard {last.shard}, found {head}")


def _lost(run: Origin, parent: Parent, why: str) -> CorruptionError:
    return CorruptionError(
        f"{run.store.url}: its first {parent.shards} shards are those of the run in {parent.output}, but: {why}; put "
        f"that run back there as it was"
    )


def parents(run: Origin, opened: Opened) -> list[Origin]:
    """Return the runs that a mix has shards from besides `run`, in the order of these shards, each checked.

    Raises:
        CorruptionError: One of them is gone, damaged, or not the one that was forked.
    """
    found: list[Origin] = []
    while (parent := parent_of(run, opened)) is not None:
        check_taken(run, next(parent.commits(run.start - 1), None))
        found.append(parent)
        run = parent
    return found[::-1]


def holding(run: Origin, shard: int, opened: Opened) -> list[Origin]:
    """Return the runs that hold the shards of the mix of `run` from `shard` on, in the order of these shards.

    What lies in `run` itself can be read whatever has become of the runs before it, so they are looked at only for what
    lies there.

    Raises:
        CorruptionError: As `parents`.
    """
    return [*(parents(run, opened) if shard < run.start else []), run]


def taken(origins: Sequence[Origin]) -> list[Place]:
    """Return the shards that a mix has from the runs that `parents` gave, in order."""
    return [(origin.store.url, commit) for origin in origins for commit in origin.commits(origin.start)]
