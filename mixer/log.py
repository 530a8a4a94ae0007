"""The commit log on a store: find its end, take it over, add to it.

Readers and resume believe only this log. Its end is found by listing what follows the newest checkpoint and then
asking for the next slot until there is none, so a stale listing cannot hide a slot. Whoever creates an ``open``
slot at the end owns the log from there on; the process before it finds its next slot taken by a stranger and stops.
No clock decides anything.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from mixer.core import commits
from mixer.core.commits import Commit, Slot
from mixer.errors import CorruptionError, FencedError, StoreError
from mixer.records import RECORD_BYTES_MAX, read_record
from mixer.storage import Store

log = logging.getLogger(__name__)

CHECKPOINT_SLOTS = 1000
"""A checkpoint holds this many consecutive slots."""
_OPEN_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log."""

    next_slot: int
    """The first slot that nobody has taken."""
    owner: str | None
    """Which start of the run wrote last; None if the log is empty."""
    commit: Commit | None
    """The newest commit."""
    final: Mapping[str, Any] | None
    """Payload of the ``final`` slot, if the run is complete and was not extended since."""
    head: str
    """The chain head."""
    physical: Mapping[str, Any] | None
    """Writer settings of the last start; None if the log is empty."""
    commit_where: str = ""
    """Where the newest commit is, for messages."""
    amended: Slot | None = None
    """The newest ``amend`` slot; None if the run was never extended."""


@dataclass(frozen=True, slots=True)
class CommitLog:
    """The log below one output."""

    store: Store
    genesis: str
    """The chain head before the first commit: it ties the chain to the run's definition."""

    def slot(self, number: int) -> Slot:
        """Return slot `number`.

        Raises:
            CorruptionError: It is missing or damaged.
        """
        name = commits.slot_name(number)
        data = read_record(self.store, name)
        if data is None:
            raise CorruptionError(f"{self.store.url}/{name}: missing, though later slots exist; restore it from a copy")
        return commits.decode_slot(data, number, f"{self.store.url}/{name}")

    def slots(self, start: int = 0, stop: int | None = None) -> Iterator[Slot]:
        """Yield the slots ``[start, stop)``, to the end of the log without `stop`; each is checked."""
        for number in range(start, self.next_slot() if stop is None else stop):
            yield self.slot(number)

    def payloads(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield kind and payload of every slot in order, read through the checkpoints where there are any."""
        stop = self.next_slot()
        number = 0
        while number < stop:
            name = commits.checkpoint_name(number + CHECKPOINT_SLOTS)
            data = read_record(self.store, name) if number + CHECKPOINT_SLOTS <= stop else None
            if data is None:
                block = [(slot.kind, slot.payload) for slot in self.slots(number, min(stop, number + CHECKPOINT_SLOTS))]
            else:
                first, block = commits.decode_checkpoint(data, f"{self.store.url}/{name}")
                if (first, len(block)) != (number, CHECKPOINT_SLOTS):
                    raise CorruptionError(
                        f"{self.store.url}/{name}: expected {CHECKPOINT_SLOTS} slots from slot {number}, found "
                        f"{len(block)} from slot {first}; delete it, readers then take the log itself"
                    )
            yield from block
            number += CHECKPOINT_SLOTS

    def commits(self) -> list[Commit]:
        """Return every commit in order, the chain checked from its beginning.

        Raises:
            CorruptionError: A link of the chain is broken.
        """
        found = []
        head = self.genesis
        for number, (kind, payload) in enumerate(self.payloads()):
            if kind == "open":
                continue
            where = f"{self.store.url}/{commits.slot_name(number)}"
            if payload.get("prev") != head:
                raise CorruptionError(
                    f"{where}: expected the chain head {head} before it, found {payload.get('prev')}; a slot before it "
                    f"was replaced, restore the log from a copy"
                )
            head = commits.chain_hash(payload)
            if kind == "shard":
                found.append(commits.commit_from(payload, where))
        return found

    def next_slot(self) -> int:
        """Return the number of the first slot that nobody has taken.

        Raises:
            CorruptionError: A slot is missing, or something else than slots lies in the log.
        """
        checkpoints = self.store.list(commits.CHECKPOINT_PREFIX)
        known = commits.checkpoint_stop(checkpoints[-1].name) if checkpoints else 0
        if known is None:
            raise CorruptionError(
                f"{self.store.url}/{checkpoints[-1].name}: expected checkpoints only beside it; remove what does not "
                f"belong there"
            )
        # The last slot that the checkpoint names is listed again: a checkpoint without its log is no log.
        start = max(0, known - 1)
        listed = self.store.list(commits.LOG_PREFIX, after=commits.slot_name(start - 1) if start else "")
        for number, info in enumerate(listed, start):
            if commits.slot_number(info.name) is None:
                raise CorruptionError(
                    f"{self.store.url}/{info.name}: expected slots only in the commit log; remove what does not belong "
                    f"there"
                )
            if info.name != commits.slot_name(number):
                raise CorruptionError(
                    f"{self._where(number)}: missing, though {info.name} exists; restore the commit log from a copy"
                )
        if known and not listed:
            raise CorruptionError(
                f"{self.store.url}/{commits.slot_name(start)}: missing, though the checkpoint "
                f"{checkpoints[-1].name} names it; restore the log from a copy"
            )
        number = start + len(listed)
        while self.store.stat(commits.slot_name(number)) is not None:
            number += 1
        return number

    def tail(self) -> Tail:
        """Return the end of the log, its last slots checked.

        Raises:
            CorruptionError: A slot is missing, damaged, or was written by a process that did not own the log.
        """
        next_slot = self.next_slot()
        if not next_slot:
            return Tail(0, None, None, None, self.genesis, None)
        slot = self.slot(next_slot - 1)
        opening = self.opening(slot)
        owner, physical = opening.writer["owner"], opening.payload.get("physical")
        amended = self.amended_at(slot)
        while slot.kind == "open":
            if not slot.number:
                return Tail(next_slot, owner, None, None, self.genesis, physical)
            slot = self.slot(slot.number - 1)
        if slot.number < next_slot - 1:
            self.opening(slot)
        if self.amended_number(slot) != (amended.number if amended else None):
            raise CorruptionError(f"{self._where(slot.number)}: names another amendment than the `open` after it")
        head = commits.chain_hash(slot.payload)
        final = slot.payload if slot.kind == "final" else None
        if slot.kind == "shard":
            where = self._where(slot.number)
            commit: Commit | None = commits.commit_from(slot.payload, where)
        else:
            commit, where = self._commit_before(slot.number)
        return Tail(next_slot, owner, commit, final, head, physical, where, amended)

    def amended_number(self, slot: Slot) -> int | None:
        """Return the slot that `slot` names as the newest amendment's; None if the run had not been extended there.

        Raises:
            CorruptionError: That can be no slot before it.
        """
        number = slot.writer.get("amend")
        if number is not None and (type(number) is not int or not 0 <= number <= slot.number):
            raise CorruptionError(
                f"{self._where(slot.number)}: expected the slot of the newest amendment, found {number!r}; it is no "
                f"slot of this log"
            )
        return number

    def amended_at(self, slot: Slot) -> Slot | None:
        """Return the ``amend`` slot that is in force at `slot`; None if the run had not been extended there.

        Raises:
            CorruptionError: `slot` names none, or it is missing or damaged.
        """
        number = self.amended_number(slot)
        if number is None:
            return None
        amended = slot if number == slot.number else self.slot(number)
        if amended.kind != "amend":
            raise CorruptionError(
                f"{self._where(slot.number)}: names slot {number} as the newest amendment, which is of kind "
                f"{amended.kind!r}; restore the log from a copy"
            )
        return amended

    def amendments(self, newest: Slot | None) -> list[Slot]:
        """Return the ``amend`` slots up to `newest`, in order; each names its start of the run, which names another.

        Raises:
            CorruptionError: A slot is missing or damaged.
        """
        found: list[Slot] = []
        while newest is not None:
            found.append(newest)
            opening = self.opening(newest)
            earlier = self.amended_at(opening)
            if earlier is not None and earlier.number >= newest.number:
                raise CorruptionError(f"{self._where(opening.number)}: names a later amendment; restore it from a copy")
            newest = earlier
        return found[::-1]

    def _where(self, number: int) -> str:
        return f"{self.store.url}/{commits.slot_name(number)}"

    def _commit_before(self, number: int) -> tuple[Commit | None, str]:
        """Return the newest commit before slot `number`, and where it is."""
        for before in range(number - 1, -1, -1):
            slot = self.slot(before)
            if slot.kind == "shard":
                where = self._where(before)
                return commits.commit_from(slot.payload, where), where
        return None, ""

    def opening(self, slot: Slot) -> Slot:
        """Return the ``open`` slot that `slot` names as its owner's, which must be of the same owner and run."""
        opened = slot.writer.get("open")
        owner = slot.writer.get("owner")
        where = self._where(slot.number)
        if type(opened) is not int or not 0 <= opened <= slot.number or not isinstance(owner, str):
            raise CorruptionError(
                f"{where}: expected the slot of its owner's `open`, found {opened!r}; it is no slot of this log"
            )
        opening = slot if opened == slot.number else self.slot(opened)
        if opening.kind != "open" or opening.writer.get("owner") != owner:
            raise CorruptionError(
                f"{where}: written by {owner}, but slot {opened}, which it names, is of "
                f"{opening.writer.get('owner')} and of kind {opening.kind!r}; it belongs to another run"
            )
        if opening.payload.get("genesis") != self.genesis:
            raise CorruptionError(
                f"{self._where(opened)}: opens run {opening.payload.get('genesis')}, but this is run {self.genesis}; "
                f"it belongs to another run, restore the log from a copy"
            )
        return opening


@dataclass(slots=True)
class LogWriter:
    """The right to add to a log, until somebody else takes it over."""

    log: CommitLog
    owner: str
    open_slot: int
    next_slot: int
    head: str
    recent: list[Slot] = field(default_factory=list)
    """Slots written since the last checkpoint, by this writer."""
    amended: int | None = None
    """The slot of the newest amendment."""

    def append(self, kind: str, payload: Mapping[str, Any]) -> Slot:
        """Create the next slot, and return it; when this returns, it is durable.

        Raises:
            FencedError: Somebody else has taken the run over.
        """
        amended = self.next_slot if kind == "amend" else self.amended
        slot = Slot(self.next_slot, kind, envelope(self.owner, self.open_slot, amended), payload)
        name = commits.slot_name(slot.number)
        if not self.log.store.create(name, commits.encode_slot(slot)):
            raise self._fenced(slot.number)
        self.next_slot += 1
        self.amended = amended
        self.head = commits.chain_hash(payload)
        self.recent.append(slot)
        if self.next_slot % CHECKPOINT_SLOTS == 0:
            self._checkpoint()
        return slot

    def _fenced(self, number: int) -> FencedError:
        writer = self.log.slot(number).writer
        return FencedError(
            f"{self.log.store.url}: slot {number} of the commit log was taken by another start of this run "
            f"(on {writer.get('host')}, at {writer.get('time')}); this process stops, and nothing is harmed. "
            f"See how far the other one is with `mixer status`."
        )

    def _checkpoint(self) -> None:
        """Write the checkpoint of the last `CHECKPOINT_SLOTS` slots: a copy for readers of long runs."""
        stop = self.next_slot
        start = stop - CHECKPOINT_SLOTS
        known = {slot.number: slot for slot in self.recent}
        name = commits.checkpoint_name(stop)
        try:
            slots = [known.get(number) or self.log.slot(number) for number in range(start, stop)]
            entries = [{"kind": slot.kind, "payload": slot.payload} for slot in slots]
            data = commits.sealed({"format": commits.FORMAT, "first_slot": start, "head": self.head, "slots": entries})
            if len(data) <= RECORD_BYTES_MAX:
                self.log.store.put(name, data)
        except StoreError as error:
            # Derived, and never believed without the log: the run is whole without it.
            log.warning("checkpoint not written name=%s error=%s", name, error)
        self.recent.clear()


def take_over(  # noqa: PLR0913 -- each is one independent condition
    log_: CommitLog,
    owner: str,
    physical: Mapping[str, Any],
    *,
    tail: Tail | None = None,
    expected_owner: str | None = None,
    accept: Callable[[Tail], object] | None = None,
) -> tuple[LogWriter, Tail]:
    """Create an ``open`` slot at the end of the log; return the right to write, and the end before it.

    Args:
        log_: The log.
        owner: A name of this start of the run that no other start has.
        physical: The writer settings of this start, for the record.
        tail: The end of the log as it was a moment ago, if it is known; read again if it is there no more.
        expected_owner: If given, the log must still be this start's.
        accept: Looks at an end of the log that is not `tail`; an error that it raises leaves the log to its owner.

    Raises:
        FencedError: The log is no longer `expected_owner`'s, or others were faster too many times.
    """
    for _ in range(_OPEN_ATTEMPTS):
        if tail is None:
            tail = log_.tail()
            if accept is not None:
                accept(tail)
        if expected_owner is not None and tail.owner != expected_owner:
            raise FencedError(
                f"{log_.store.url}: another start of this run has taken it over ({tail.owner}); this process stops, "
                f"and nothing is harmed. See how far the other one is with `mixer status`."
            )
        number = tail.next_slot
        payload = {"genesis": log_.genesis, "head": tail.head, "physical": physical}
        amended = tail.amended.number if tail.amended else None
        slot = Slot(number, "open", envelope(owner, number, amended), payload)
        if log_.store.create(commits.slot_name(number), commits.encode_slot(slot)):
            return LogWriter(log_, owner, number, number + 1, tail.head, [slot], amended), tail
        log.info("slot %d was taken by another start, reading on", number)
        tail = None
    raise FencedError(
        f"{log_.store.url}: {_OPEN_ATTEMPTS} times another start was faster; let one of them run and try again later"
    )


def envelope(owner: str, open_slot: int, amended: int | None = None) -> dict[str, Any]:
    """Return who writes a slot now; the nonce makes every slot's bytes unique."""
    return {
        "owner": owner,
        "open": open_slot,
        **({} if amended is None else {"amend": amended}),
        "nonce": secrets.token_hex(16),
        "host": socket.gethostname(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"pyarrow": pa.__version__},
    }
