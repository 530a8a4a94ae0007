"""Holding what the log says to what the plan says: state is a function of the batch number; a difference is damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mixer.core import commits
from mixer.core.commits import Amendment, Commit, Slot
from mixer.core.plan import Plan
from mixer.errors import CorruptionError, OutputError
from mixer.log import Tail
from mixer.records import read_record
from mixer.storage import Store


def check_commit(plan: Plan, commit: Commit, where: str) -> None:
    """Check everything in a commit that the plan knows.

    Raises:
        CorruptionError: They differ; the message shows both.
    """
    if not 0 <= commit.shard < plan.shard_count:
        raise CorruptionError(f"{where}: names shard {commit.shard}, and the plan has {plan.shard_count} shards")
    shard = plan.shard(commit.shard)
    for what, expected, found in (
        ("path", shard.path, commit.path),
        ("rows", shard.rows, commit.rows),
        ("first_batch", shard.first_batch, commit.first_batch),
        ("batches", shard.batches, commit.batches),
        ("counts", {part.dataset: part.rows for part in shard.ranges}, commit.counts),
        ("state", plan.state_at(shard.stop_batch), commit.state),
    ):
        if expected != found:
            raise CorruptionError(f"{where}: the plan says {what} {expected}, the commit says {found}")


def check_final(plan: Plan, payload: Mapping[str, Any], where: str) -> None:
    """Check everything in the payload of a ``final`` slot that the plan knows.

    Raises:
        CorruptionError: It is not what the plan ends with.
    """
    expected = commits.final_payload(
        prev=payload.get("prev", ""),
        shards=plan.shard_count,
        batches=plan.batches,
        rows=plan.rows,
        state=plan.state_at(plan.batches),
    )
    if payload != expected:
        raise CorruptionError(f"{where}: the plan ends with {expected}, the log with {dict(payload)}")


def check_complete(plan: Plan, last: Commit | None, where: str) -> None:
    """Check that `last`, the newest commit before the end of a finished log, is that of the plan's last shard.

    Raises:
        CorruptionError: It is not.
    """
    if last is None or last.shard != plan.shard_count - 1:
        after = "none" if last is None else f"shard {last.shard}"
        raise CorruptionError(f"{where}: finishes the run of {plan.shard_count} shards after {after}")


def check_amendment(amendment: Amendment, done: tuple[int, int], earlier: int, where: str) -> None:
    """Check that an amendment follows what is before it.

    Args:
        amendment: The amendment.
        done: How many shards and batches of the mix were there before it.
        earlier: How many amendments are before it.
        where: Where it is, for messages.

    Raises:
        CorruptionError: It does not.
    """
    shards, batches = done
    for what, expected, found in (
        ("number", earlier + 1, amendment.number),
        ("shards", shards, amendment.shards),
        ("batches", batches, amendment.batches),
    ):
        if expected != found:
            raise CorruptionError(f"{where}: the log before it says {what} {expected}, the amendment says {found}")


def check_against_plan(store: Store, plan: Plan, tail: Tail) -> None:
    """Check the newest commit and the end against the plan, and the newest shard's length against its commit.

    Raises:
        CorruptionError: They differ; the message shows both.
    """
    commit = tail.commit
    if tail.final is not None:
        where = f"{store.url}/{commits.slot_name(tail.next_slot - 1)}"
        check_final(plan, tail.final, where)
        check_complete(plan, commit, where)
    if commit is None:
        return
    check_commit(plan, commit, tail.commit_where)
    check_length(store, commit, remedy="restore it from a copy, or start a new output")


def checkpoint_problem(
    store: Store, name: str, slot_of: Callable[[int], Slot | None], *, stop: int, every: bool
) -> str | None:
    """Return what the checkpoint `name` says otherwise than the log; None if it is a true copy, or gone.

    Args:
        store: Where it lies.
        name: Its name.
        slot_of: The slot of a number; None if it cannot be read: that is no fault of the checkpoint's.
        stop: One past the log's last slot.
        every: Ask for every slot. Else for the last one that is no ``open``: each such payload holds the hash of the
            one before it, so if the last one is the log's, and each is what the next one holds the hash of, all are
            the log's. No reader takes an ``open`` from a checkpoint.
    """
    try:
        data = read_record(store, name)
        if data is None:
            return None
        first, copies = commits.decode_checkpoint(data, "checkpoint")
    except CorruptionError as error:
        return f"not a checkpoint of this log ({error})"
    if first < 0 or name != commits.checkpoint_name(first + len(copies)) or first + len(copies) > stop:
        return f"not a checkpoint of this log (found {len(copies)} slots from {first}, and the log has {stop})"
    return next(_differences(first, copies, slot_of, every=every), None)


def _differences(
    first: int, copies: Sequence[tuple[str, Mapping[str, Any]]], slot_of: Callable[[int], Slot | None], *, every: bool
) -> Iterator[str]:
    """Yield where `copies` of the slots from `first` on differ from the log, from the last one on."""
    anchored = False
    after: Mapping[str, Any] | None = None
    for number, copy in reversed(list(enumerate(copies, first))):
        kind, payload = copy
        if every or (kind != "open" and not anchored):
            slot = slot_of(number)
            anchored = anchored or slot is not None
            if slot is not None and (slot.kind, slot.payload) != copy:
                yield f"says otherwise than the log of slot {number}"
        if kind == "open" or every:
            continue
        if after is not None and commits.chain_hash(payload) != after.get("prev"):
            yield f"its chain is broken after slot {number}"
        after = payload


def check_no_log(store: Store) -> None:
    """Check that a location without a run's definition has no commit log either: the definition comes before it.

    Raises:
        CorruptionError: It has one.
    """
    # A start may have made both since the definition was looked for.
    if store.list(commits.LOG_PREFIX) and store.stat(commits.RUN_NAME) is None:
        raise CorruptionError(
            f"{store.url}/{commits.RUN_NAME}: missing, though a commit log lies there; restore it from a copy"
        )


def refuse_foreign(store: Store) -> None:
    """Check that a new run may begin in `store`.

    Raises:
        OutputError: Something else lies there.
        CorruptionError: A run lies there whose definition is gone.
    """
    names = [info.name for info in store.list("")]
    foreign = [name for name in names if not name.startswith(".mixer/")]
    # Another start may have made the run since it was looked for; its definition comes before all else.
    if not names or store.stat(commits.RUN_NAME) is not None:
        return
    check_no_log(store)
    if foreign:
        raise OutputError(
            f"{store.url}: expected an empty location or a run of mixer, found {len(foreign)} other objects, "
            f"such as {foreign[0]!r}; nothing was touched, choose another output or empty this one"
        )


def check_length(store: Store, commit: Commit, *, remedy: str) -> None:
    """Check that the object of a committed shard is there, and as long as the commit says.

    Raises:
        CorruptionError: It is not; the message ends in `remedy`.
    """
    info = store.stat(commit.path)
    if info is None or info.bytes != commit.bytes:
        raise CorruptionError(
            f"{store.url}/{commit.path}: the commit says {commit.bytes} bytes, found "
            f"{info.bytes if info else 'no such object'}; {remedy}"
        )


def check_shards_there(store: Store, shards: Sequence[Commit]) -> None:
    """Check that the object of every committed shard is there, and as long as its commit says.

    Nothing is read: the objects are listed, and only of those that the listing does not show so each is asked for.

    Raises:
        CorruptionError: Some are not; the message names the first, and how many there are.
    """
    listed = {info.name: info.bytes for info in store.list("data/")}
    wrong: list[tuple[Commit, int | None]] = []
    for commit in shards:
        if listed.get(commit.path) != commit.bytes:
            info = store.stat(commit.path)
            if info is None or info.bytes != commit.bytes:
                wrong.append((commit, info.bytes if info else None))
    if wrong:
        commit, found_bytes = wrong[0]
        found = "no such object" if found_bytes is None else str(found_bytes)
        raise CorruptionError(
            f"{store.url}/{commit.path}: the commit says {commit.bytes} bytes, found {found}; so it is"
            f" with {len(wrong):,} of {len(shards):,} committed shards, and the run is not finished. Restore them from"
            f" a copy, or make the same run at another output, which gives the same bytes, and copy them from there;"
            f" then run again"
        )
