"""Holding what the log says to what the plan says: state is a function of the batch number; a difference is damage."""

from __future__ import annotations

from mixer.core.commits import Commit
from mixer.core.plan import Plan
from mixer.errors import CorruptionError
from mixer.log import Tail
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


def check_against_plan(store: Store, plan: Plan, tail: Tail) -> None:
    """Check the newest commit against the plan, and its shard's length against the commit.

    Raises:
        CorruptionError: They differ; the message shows both.
    """
    commit = tail.commit
    if commit is None:
        return
    check_commit(plan, commit, f"{store.url}: commit of shard {commit.shard}")
    check_length(store, commit, remedy="restore it from a copy, or start a new output")


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
