from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mixer import log
from mixer.core import commits
from mixer.core.commits import Commit, Slot
from mixer.errors import CorruptionError, FencedError, StoreError
from mixer.log import CommitLog, LogWriter, take_over
from mixer.testing import CrashingStore, MemoryStore

GENESIS = "a" * 64
PHYSICAL = {"compression": "zstd"}
STATE = {"offsets": {"web": 1}, "remainder_carry": {"web": 0}}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def commit_log(store: MemoryStore) -> CommitLog:
    return CommitLog(store, GENESIS)


@pytest.fixture
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> int:
    """A checkpoint every five slots."""
    monkeypatch.setattr(log, "CHECKPOINT_SLOTS", 5)
    return 5


def opened(commit_log: CommitLog, owner: str, **options: Any) -> LogWriter:
    return take_over(commit_log, owner, PHYSICAL, **options)[0]


def commit(shard: int, prev: str) -> Commit:
    return Commit(
        shard=shard,
        path=f"data/shard-{shard:08d}.parquet",
        rows=4,
        bytes=100,
        sha256="b" * 64,
        first_batch=shard,
        batches=1,
        counts={"web": 4},
        state={"offsets": {"web": 4 * shard + 4}, "remainder_carry": {"web": 0}},
        prev=prev,
    )


def add_shards(writer: LogWriter, start: int, stop: int) -> None:
    for shard in range(start, stop):
        writer.append("shard", commit(shard, writer.head).payload())


def add_final(writer: LogWriter, shards: int) -> None:
    payload = commits.final_payload(prev=writer.head, shards=shards, batches=shards, rows=4 * shards, state=STATE)
    writer.append("final", payload)


def test_an_empty_log_has_no_end(commit_log: CommitLog) -> None:
    assert commit_log.tail() == log.Tail(0, None, None, None, GENESIS, None)
    assert list(commit_log.slots()) == []
    assert commit_log.commits() == []


def test_what_was_added_is_there_in_order(commit_log: CommitLog) -> None:
    writer = opened(commit_log, "one")
    add_shards(writer, 0, 3)
    assert [(slot.number, slot.kind) for slot in commit_log.slots()] == [
        (0, "open"),
        (1, "shard"),
        (2, "shard"),
        (3, "shard"),
    ]
    assert [found.shard for found in commit_log.commits()] == [0, 1, 2]
    tail = commit_log.tail()
    assert (tail.next_slot, tail.owner, tail.head, tail.physical) == (4, "one", writer.head, PHYSICAL)
    assert tail.commit == commit_log.commits()[-1]
    add_final(writer, 3)
    tail = commit_log.tail()
    assert tail.final is not None
    assert (tail.final["shards"], tail.head) == (3, writer.head)
    assert tail.commit == commit_log.commits()[-1]


def test_opens_are_no_part_of_the_chain(commit_log: CommitLog) -> None:
    unbroken = opened(CommitLog(MemoryStore(), GENESIS), "alone")
    add_shards(unbroken, 0, 4)
    for shard in range(4):
        writer = opened(commit_log, f"owner {shard}")
        add_shards(writer, shard, shard + 1)
    assert commit_log.tail().head == unbroken.head


def test_an_older_writer_is_fenced_and_changes_nothing(store: MemoryStore, commit_log: CommitLog) -> None:
    older = opened(commit_log, "older")
    add_shards(older, 0, 1)
    newer = opened(commit_log, "newer")
    before = dict(store.objects)
    for _ in range(2):
        with pytest.raises(FencedError, match=r"slot 2 of the commit log was taken by another start of this run \(on "):
            add_shards(older, 1, 2)
    assert store.objects == before
    add_shards(newer, 1, 2)
    assert [found.shard for found in commit_log.commits()] == [0, 1]


def test_a_start_that_loses_the_slot_reads_on_and_opens_the_next_one(
    store: MemoryStore, commit_log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = store.create
    rivals = iter(["first rival", "second rival"])

    def create_after_a_rival(name: str, data: bytes) -> bool:
        rival = next(rivals, None)
        if rival is not None:
            number = int(name.rpartition("/")[2].removesuffix(".json"))
            slot = Slot(number, "open", log.envelope(rival, number), {"genesis": GENESIS, "head": "", "physical": {}})
            assert create(name, commits.encode_slot(slot))
        return create(name, data)

    monkeypatch.setattr(store, "create", create_after_a_rival)
    writer = opened(commit_log, "late")
    assert (writer.open_slot, writer.next_slot) == (2, 3)
    assert [slot.writer["owner"] for slot in commit_log.slots()] == ["first rival", "second rival", "late"]


def test_a_start_that_always_loses_gives_up(
    store: MemoryStore, commit_log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "create", lambda name, data: False)
    with pytest.raises(FencedError, match="20 times another start was faster"):
        opened(commit_log, "late")


def test_the_same_start_may_come_back_and_a_stranger_may_not(store: MemoryStore, commit_log: CommitLog) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    again = opened(commit_log, "one", expected_owner="one")
    assert (again.open_slot, again.owner) == (3, "one")
    opened(commit_log, "two")
    before = dict(store.objects)
    with pytest.raises(FencedError, match=r"taken it over \(two\)"):
        opened(commit_log, "one", expected_owner="one")
    assert store.objects == before


def test_an_append_whose_answer_was_lost_counts_as_made(store: MemoryStore, commit_log: CommitLog) -> None:
    """The process saw no answer and died; who comes next finds the commit and goes on behind it."""
    writer = opened(commit_log, "one")
    add_shards(writer, 0, 1)
    dying = CrashingStore(store, at=0, moment="after")
    lost = LogWriter(CommitLog(dying, GENESIS), "one", 0, writer.next_slot, writer.head)
    with pytest.raises(BaseException, match="died after"):
        add_shards(lost, 1, 2)
    add_shards(opened(commit_log, "two"), 2, 3)
    assert [found.shard for found in commit_log.commits()] == [0, 1, 2]


def test_an_append_that_the_store_refuses_leaves_the_writer_as_it_was(
    store: MemoryStore, commit_log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(commit_log, "one")
    with monkeypatch.context() as patch:

        def full(name: str, data: bytes) -> bool:
            raise StoreError("the disk is full")

        patch.setattr(store, "create", full)
        with pytest.raises(StoreError, match="full"):
            add_shards(writer, 0, 1)
    add_shards(writer, 0, 1)
    assert [found.shard for found in commit_log.commits()] == [0]


def test_a_missing_slot_in_the_middle_is_damage(store: MemoryStore, commit_log: CommitLog) -> None:
    add_shards(opened(commit_log, "one"), 0, 5)
    store.delete(commits.slot_name(3))
    with pytest.raises(CorruptionError, match=rf"{commits.slot_name(3)}: missing, though {commits.slot_name(4)}"):
        commit_log.tail()
    with pytest.raises(CorruptionError, match=rf"{commits.slot_name(3)}: missing"):
        opened(commit_log, "two")


def test_a_foreign_object_among_the_slots_is_damage(store: MemoryStore, commit_log: CommitLog) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    store.put(".mixer/log/notes.txt", b"mine")
    with pytest.raises(CorruptionError, match=r"\.mixer/log/notes\.txt: expected slots only"):
        commit_log.tail()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"open": 0, "owner": "two"}, r"written by two, but slot 0, which it names, is of one"),
        ({"open": 1}, r"slot 1, which it names, is of one"),
        ({"open": 3}, r"expected the slot of its owner's `open`, found 3"),
        ({"open": -1}, "found -1"),
        ({"open": True}, "found True"),
        ({"open": None}, "found None"),
        ({"owner": 7}, "no slot of this log"),
    ],
)
def test_a_last_slot_by_one_who_does_not_own_the_log_is_damage(
    store: MemoryStore, commit_log: CommitLog, changes: dict[str, Any], expected: str
) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    slot = commit_log.slot(2)
    store.put(commits.slot_name(2), commits.encode_slot(replace(slot, writer={**slot.writer, **changes})))
    with pytest.raises(CorruptionError, match=expected):
        commit_log.tail()


def test_a_last_slot_of_another_run_is_damage(store: MemoryStore, commit_log: CommitLog) -> None:
    other = CommitLog(MemoryStore(), "c" * 64)
    add_shards(opened(other, "other"), 0, 3)
    add_shards(opened(commit_log, "one"), 0, 2)
    store.put(commits.slot_name(3), other.store.get(commits.slot_name(3)) or b"")
    with pytest.raises(CorruptionError, match="it belongs to another run"):
        commit_log.tail()
    with pytest.raises(CorruptionError, match=f"opens run {'c' * 64}, but this is run {GENESIS}; it belongs"):
        CommitLog(other.store, GENESIS).tail()


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff"])
def test_a_damaged_last_slot_is_named(store: MemoryStore, commit_log: CommitLog, damage: bytes) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    store.put(commits.slot_name(2), damage)
    with pytest.raises(CorruptionError, match=r"memory:///\.mixer/log/000000000002\.json: "):
        commit_log.tail()


def test_a_replaced_commit_breaks_the_chain(store: MemoryStore, commit_log: CommitLog) -> None:
    add_shards(opened(commit_log, "one"), 0, 3)
    slot = commit_log.slot(2)
    store.put(commits.slot_name(2), commits.encode_slot(replace(slot, payload={**slot.payload, "rows": 5})))
    with pytest.raises(CorruptionError, match=r"000000000003\.json: expected the chain head"):
        commit_log.commits()


def test_a_checkpoint_is_written_every_so_many_slots_and_says_what_they_say(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int
) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    # Its first checkpoint begins with slots that another start wrote.
    writer = opened(commit_log, "two")
    add_shards(writer, 2, 10)
    assert [info.name for info in store.list(commits.CHECKPOINT_PREFIX)] == [
        f"{commits.CHECKPOINT_PREFIX}{stop:012d}.json" for stop in (5, 10)
    ]
    from_checkpoints = list(commit_log.payloads())
    for info in store.list(commits.CHECKPOINT_PREFIX):
        store.delete(info.name)
    assert list(commit_log.payloads()) == from_checkpoints
    assert len(from_checkpoints) == 12


def test_readers_of_everything_read_checkpoints_and_only_the_slots_behind_them(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int
) -> None:
    add_shards(opened(commit_log, "one"), 0, 11)
    counting = CrashingStore(store, verbs={"get", "get_range"})
    expected = commit_log.commits()
    assert CommitLog(counting, GENESIS).commits() == expected
    assert [operation.name.split("/")[1] for operation in counting.operations] == ["checkpoints"] * 2 + ["log"] * 2


def test_a_log_whose_slots_are_gone_behind_a_checkpoint_is_damage(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int
) -> None:
    add_shards(opened(commit_log, "one"), 0, 6)
    for number in range(7):
        store.delete(commits.slot_name(number))
    with pytest.raises(CorruptionError, match=r"000000000004\.json: missing, though the checkpoint"):
        commit_log.tail()


def test_a_damaged_checkpoint_is_named_to_those_who_read_it_and_hinders_no_writer(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int
) -> None:
    add_shards(opened(commit_log, "one"), 0, 6)
    name = f"{commits.CHECKPOINT_PREFIX}{5:012d}.json"
    store.put(name, (store.get(name) or b"")[:-9])
    add_shards(opened(commit_log, "two"), 6, 7)
    with pytest.raises(CorruptionError, match=name):
        commit_log.commits()


def test_a_checkpoint_that_cannot_be_written_hinders_nothing(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, data: bytes) -> None:
        raise StoreError(f"cannot write {name}")

    monkeypatch.setattr(store, "put", refuse)
    add_shards(opened(commit_log, "one"), 0, 11)
    assert [found.shard for found in commit_log.commits()] == list(range(11))
    assert commit_log.tail().next_slot == 12


def operations_of_a_start(shards: int) -> list[str]:
    """Return the verbs of taking over a log of one open slot and `shards` commits."""
    store = MemoryStore()
    add_shards(opened(CommitLog(store, GENESIS), "one"), 0, shards)
    counting = CrashingStore(store)
    writer = opened(CommitLog(counting, GENESIS), "two")
    assert writer.next_slot == shards + 2
    return [operation.verb for operation in counting.operations]


def test_a_start_costs_the_same_however_long_the_run_is() -> None:
    short = operations_of_a_start(10)
    assert len(short) <= 8
    assert operations_of_a_start(2_500) == short


def test_a_start_lists_no_more_than_what_follows_the_checkpoint(
    store: MemoryStore, commit_log: CommitLog, small_checkpoints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_shards(opened(commit_log, "one"), 0, 21)
    listed: list[str] = []
    real = store.list

    def recorded(prefix: str, *, after: str = "") -> Any:
        found = real(prefix, after=after)
        listed.extend(info.name for info in found if prefix == commits.LOG_PREFIX)
        return found

    monkeypatch.setattr(store, "list", recorded)
    assert commit_log.next_slot() == 22
    assert listed == [commits.slot_name(number) for number in (19, 20, 21)]


def test_a_listing_that_is_behind_hides_no_slot(
    store: MemoryStore, commit_log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_shards(opened(commit_log, "one"), 0, 3)
    stale = store.list(commits.LOG_PREFIX)[:2]
    monkeypatch.setattr(store, "list", lambda prefix, *, after="": stale if prefix == commits.LOG_PREFIX else [])
    assert commit_log.next_slot() == 4


def test_many_starts_that_committed_nothing_are_looked_through(commit_log: CommitLog) -> None:
    add_shards(opened(commit_log, "one"), 0, 2)
    head = commit_log.tail().head
    for start in range(30):
        opened(commit_log, f"start {start}")
    tail = commit_log.tail()
    assert tail.commit is not None
    assert (tail.next_slot, tail.commit.shard, tail.head, tail.owner) == (33, 1, head, "start 29")
    add_shards(opened(commit_log, "last"), 2, 3)
    assert [found.shard for found in commit_log.commits()] == [0, 1, 2]


def test_the_nonce_makes_equal_slots_differ() -> None:
    one, other = (log.envelope("same", 0) for _ in range(2))
    assert one["nonce"] != other["nonce"]
    assert {**one, "nonce": "", "time": ""} == {**other, "nonce": "", "time": ""}
