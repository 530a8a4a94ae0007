"""What `gc` deletes is never missed: not by the run, nor by one at work, starting, asleep or in a race."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer import building, log
from mixer.collecting import Item, gc, judge, shard_number
from mixer.config import MixConfig
from mixer.core import commits
from mixer.core.plan import shard_path
from mixer.errors import CorruptionError, OutputError, StoreError, StoreUnavailableError
from mixer.storage import LocalStore
from mixer.storage.urls import PROBE_FOLDER, TEMPORARY_FOLDER, is_drawn
from mixer.testing import Crash, CrashingStore, MemoryStore
from mixer.verifying import verify
from tests.e2e.runs import objects
from tests.garbage import Use, dead, probe
from tests.mixes import SHARDS, mix_config

PROBE = probe("a")
DEAD, NOTES = TEMPORARY_FOLDER + "d" * 32, f"{TEMPORARY_FOLDER}notes.txt"


@pytest.fixture
def config(tmp_path: Path) -> MixConfig:
    return mix_config(tmp_path)


def names(items: tuple[Item, ...]) -> list[str]:
    return [item.name for item in items]


# The decision


CHECKPOINTS = (".mixer/checkpoints/000000001000.json", ".mixer/checkpoints/notes.txt")
NAMES = st.one_of(
    st.integers(0, 12).map(shard_path),
    st.integers(0, 12).map(commits.slot_name),
    st.sampled_from([commits.RUN_NAME, commits.MANIFEST_NAME, commits.CARD_NAME]),
    st.sampled_from(["data/notes.txt", "data/shard-1.parquet", "data/sub/shard-00000001.parquet", "x", ".mixer/other"]),
    st.sampled_from([*CHECKPOINTS, PROBE, ".mixer/probe/abc", ".mixer/probe"]),
    st.text(max_size=20),
)
STALE: Mapping[str, str] = dict.fromkeys(CHECKPOINTS, "other")


@given(NAMES, st.integers(0, 9), st.booleans())
def test_nothing_of_the_run_and_nothing_foreign_may_go(name: str, committed: int, finished: bool) -> None:
    verdict = judge(name, committed=committed, finished=finished, stale=STALE)
    own = {commits.RUN_NAME, commits.MANIFEST_NAME, commits.CARD_NAME, *map(shard_path, range(committed))}
    if name in own or name.startswith(commits.LOG_PREFIX):
        assert verdict is None
    if verdict is not None and verdict.collect:
        is_probe = name.startswith(PROBE_FOLDER) and is_drawn(name.rpartition("/")[2])
        assert is_probe or commits.checkpoint_stop(name) is not None or shard_number(name) is not None


@given(NAMES, st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_what_may_go_once_may_go_for_ever(name: str, committed: int, more: int, finished: bool, ends: bool) -> None:
    """So it does not matter what a run does between a look and a deletion."""
    before = judge(name, committed=committed, finished=finished, stale=STALE)
    later = committed if finished else committed + more
    after = judge(name, committed=later, finished=finished or ends, stale=STALE)
    if before is not None and before.collect:
        assert after is not None
        assert after.collect
    if before is None:
        assert after is None


@given(st.integers(0, 10**17))
def test_a_shards_name_gives_its_number_and_no_other_name_does(number: int) -> None:
    assert shard_number(shard_path(number)) == number
    assert shard_number(f"data/shard-{number:09d}.parquet") in {None, number}
    assert shard_number(f"data/shard-{number:09d}.parquet") is None or number >= 10**8
    assert shard_number(shard_path(number) + "\n") is None


# What there is


def test_a_look_finds_what_is_left_says_why_and_touches_nothing(
    config: MixConfig, whole: dict[str, bytes], use: Use
) -> None:
    store = MemoryStore({**dead(whole, 2), "data/notes.txt": b"1"})
    before = dict(store.objects)
    use(CrashingStore(store, at=0, verbs={"put", "create", "replace", "delete"}))
    found = gc(config.output)
    assert (found.committed, found.finished, found.deleted, found.spared, found.refused) == (2, False, (), (), ())
    assert found.found == ()
    assert {item.name: item.reason for item in found.kept} == {
        PROBE: "a start may be at its probe of the store",
        shard_path(2): "not committed yet: by a writer at work, or by the next start",
        "data/notes.txt": "not made by mixer",
    }
    assert store.objects == before


def test_deleting_deletes_what_a_look_finds_and_nothing_else(
    config: MixConfig, whole: dict[str, bytes], use: Use
) -> None:
    beyond = {shard_path(SHARDS): b"1", shard_path(SHARDS + 70): b"22"}
    foreign = {"data/shard-4.parquet": b"1", "notes.txt": b"2"}
    store = MemoryStore({**whole, **beyond, **foreign, PROBE: b"3"})
    use(store)
    told: list[Item] = []
    found = gc(config.output, delete=True, on_delete=told.append)
    assert names(found.deleted) == names(found.found) == [PROBE]
    assert names(tuple(told)) == names(found.deleted)
    assert sorted(names(found.kept)) == sorted([*beyond, *foreign])
    assert store.objects == {**whole, **beyond, **foreign}
    assert gc(config.output, delete=True).found == ()


def test_a_shard_that_an_extension_has_put_and_commits_while_gc_is_at_work_is_never_deleted(
    config: MixConfig, whole: dict[str, bytes], use: Use
) -> None:
    """Between the last look at an object and its deletion anything may happen, however short that is."""
    longer = config.model_copy(update={"batches": 15})

    class Sleeping(MemoryStore):
        def delete(self, name: str) -> None:
            use(inner)
            building.build(longer, extend=True)
            use(self)
            super().delete(name)

    inner = MemoryStore({**whole, shard_path(SHARDS): b"1", PROBE: b"3"})
    sleeping = Sleeping()
    sleeping.objects = inner.objects
    use(sleeping)
    assert names(gc(config.output, delete=True).deleted) == [PROBE]
    assert verify(config.output).problems == ()
    assert building.status(config.output).committed == SHARDS + 1
    found = gc(config.output, delete=True)
    assert (found.found, found.kept, found.committed, found.finished) == ((), (), SHARDS + 1, True)


def test_a_start_that_is_killed_in_its_probe_leaves_what_is_found(config: MixConfig, use: Use) -> None:
    store = MemoryStore()
    use(CrashingStore(store, at=1, moment="before", verbs={"create"}))
    with pytest.raises(Crash):
        building.build(config)
    (left,) = store.objects
    use(store)
    with pytest.raises(OutputError, match="no run of mixer here"):
        gc(config.output, delete=True)
    building.build(config)
    assert names(gc(config.output, delete=True).deleted) == [left]
    assert left not in store.objects


def test_what_a_killed_local_writer_left_goes_and_what_is_being_written_stays(config: MixConfig) -> None:
    building.build(config)
    store = LocalStore(config.output)
    before = objects(store)
    folder = store.root / TEMPORARY_FOLDER
    (store.root / DEAD).write_bytes(b"12345")
    with store._temporary(b"123") as alive:
        found = gc(config.output, delete=True)
        assert alive.exists()
    assert [(item.name, item.bytes) for item in found.deleted] == [(DEAD, 5)]
    assert [(item.name, item.reason) for item in found.kept] == [(f"{TEMPORARY_FOLDER}{alive.name}", "being written")]
    assert list(folder.iterdir()) == []
    assert objects(store) == before


FOREIGN = (NOTES, TEMPORARY_FOLDER + "D" * 32, f"{PROBE_FOLDER}notes.txt", f"{PROBE_FOLDER}{'a' * 31}")


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_in_mixers_own_folders_stay_and_are_shown(config: MixConfig, name: str) -> None:
    building.build(config)
    path = Path(config.output) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"mine")
    found = gc(config.output, delete=True)
    assert (names(found.found), names(found.deleted)) == ([], [])
    assert [(item.name, item.bytes, item.reason) for item in found.kept] == [(name, 4, "not made by mixer")]
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("folder", [".mixer", ".mixer/probe", ".mixer/tmp", ".mixer/checkpoints", ".mixer/log", "data"])
def test_nothing_is_deleted_behind_a_link_in_the_output(config: MixConfig, tmp_path: Path, folder: str) -> None:
    building.build(config)
    link, elsewhere = Path(config.output) / folder, tmp_path / "elsewhere"
    if link.exists():
        link.rename(elsewhere)
    elsewhere.mkdir(exist_ok=True)
    for letter in "abc":
        (elsewhere / (letter * 32)).write_bytes(b"mine")
    (elsewhere / shard_path(SHARDS).rpartition("/")[2]).write_bytes(b"mine")
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    link.symlink_to(elsewhere)
    with pytest.raises(StoreError, match=f"{link}: expected a folder, found a symbolic link"):
        gc(config.output, delete=True)
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


def test_an_output_that_is_a_link_itself_is_tidied_up(config: MixConfig, tmp_path: Path) -> None:
    building.build(config)
    link = tmp_path / "link"
    link.symlink_to(config.output)
    (Path(config.output) / DEAD).write_bytes(b"12345")
    assert names(gc(str(link), delete=True).deleted) == [DEAD]


# Checkpoints


@pytest.fixture
def checkpoints(config: MixConfig, monkeypatch: pytest.MonkeyPatch, use: Use) -> MemoryStore:
    """A finished run whose log of seven slots is copied in two checkpoints."""
    monkeypatch.setattr(log, "CHECKPOINT_SLOTS", 3)
    store = MemoryStore()
    use(store)
    with building.start(config) as run:
        run.write(3)
    with building.start(config) as run:
        run.write(SHARDS)
        run.finish()
    assert [info.name[-6:] for info in store.list(commits.CHECKPOINT_PREFIX)] == ["3.json", "6.json"]
    return store


def checkpoint(store: MemoryStore, number: int) -> tuple[str, dict[str, object]]:
    name = f"{commits.CHECKPOINT_PREFIX}{number:012d}.json"
    return name, commits.unsealed(store.objects[name], name)


def test_true_copies_stay(config: MixConfig, checkpoints: MemoryStore) -> None:
    found = gc(config.output, delete=True)
    assert (found.found, found.kept) == ((), ())


@pytest.mark.parametrize("number", [3, 6])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_copy_of_which_any_payload_differs_goes(
    config: MixConfig, checkpoints: MemoryStore, number: int, place: int
) -> None:
    name, content = checkpoint(checkpoints, number)
    slots = content["slots"]
    assert isinstance(slots, list)
    if slots[place]["kind"] == "open":
        # Readers skip it.
        return
    slots[place]["payload"]["rows"] += 1
    checkpoints.objects[name] = commits.sealed(content)
    found = gc(config.output, delete=True)
    assert names(found.deleted) == [name]
    assert name not in checkpoints.objects
    assert verify(config.output).ok


@pytest.mark.parametrize("data", [b"", b"{}", b'{"a": 1}', commits.sealed({"format": 1}), commits.sealed({"slots": 1})])
def test_what_is_no_checkpoint_goes(config: MixConfig, checkpoints: MemoryStore, data: bytes) -> None:
    name, _ = checkpoint(checkpoints, 6)
    checkpoints.objects[name] = data
    (item,) = gc(config.output, delete=True).deleted
    assert item.name == name
    assert item.reason.startswith("not a checkpoint of this log")


def test_what_lies_among_the_checkpoints_under_a_name_that_none_has_stays() -> None:
    """It would be in the way of a run, which names it; that it may go is for its owner to say."""
    name = f"{commits.CHECKPOINT_PREFIX}notes.txt"
    verdict = judge(name, committed=4, finished=True, stale={name: "other"})
    assert verdict is not None
    assert (verdict.collect, verdict.reason) == (False, "not made by mixer")


def test_a_checkpoint_under_anothers_name_goes(config: MixConfig, checkpoints: MemoryStore) -> None:
    (name, _), (other, _) = checkpoint(checkpoints, 3), checkpoint(checkpoints, 6)
    checkpoints.objects[name] = checkpoints.objects[other]
    (item,) = gc(config.output).found
    assert item.name == name
    assert item.reason == "not a checkpoint of this log (found 3 slots from 3, and the log has 7)"


def test_a_copy_of_a_slot_that_is_damaged_stays_as_it_may_be_the_only_one(
    config: MixConfig, checkpoints: MemoryStore
) -> None:
    del checkpoints.objects[commits.slot_name(2)]
    found = gc(config.output, delete=True)
    assert (found.found, found.kept) == ((), ())
    name, content = checkpoint(checkpoints, 3)
    slots = content["slots"]
    assert isinstance(slots, list)
    slots[1]["payload"]["rows"] += 1
    checkpoints.objects[name] = commits.sealed(content)
    assert names(gc(config.output, delete=True).deleted) == [name]


# Refusals


def test_an_output_without_a_run_is_refused(config: MixConfig, use: Use) -> None:
    use(MemoryStore({shard_path(0): b"1"}))
    with pytest.raises(OutputError, match="no run of mixer here"):
        gc(config.output, delete=True)


@pytest.mark.parametrize("slot", [0, 2, SHARDS, SHARDS + 1])
@pytest.mark.parametrize("damage", ["lost", "flipped"])
def test_a_damaged_log_is_refused_where_it_decides(
    config: MixConfig, whole: dict[str, bytes], use: Use, slot: int, damage: str
) -> None:
    store = MemoryStore({**whole, shard_path(SHARDS): b"1"})
    name = commits.slot_name(slot)
    if damage == "lost":
        del store.objects[name]
    else:
        store.objects[name] = store.objects[name].replace(b'"payload"', b'"Payload"')
    use(store)
    before = dict(store.objects)
    decides = slot in {0, SHARDS, SHARDS + 1} if damage == "flipped" else slot != SHARDS + 1
    if decides:
        with pytest.raises(CorruptionError):
            gc(config.output, delete=True)
        assert store.objects == before
    else:
        # Without its last slot a run is not finished; the slots between are not read.
        gc(config.output, delete=True)
        assert set(before) - set(store.objects) <= {shard_path(SHARDS)}


def test_a_definition_that_is_damaged_is_refused(config: MixConfig, whole: dict[str, bytes], use: Use) -> None:
    use(MemoryStore({**whole, commits.RUN_NAME: whole[commits.RUN_NAME][:-9]}))
    with pytest.raises(CorruptionError):
        gc(config.output, delete=True)


class Stubborn(MemoryStore):
    """A store that refuses to delete some objects, and others for a while only."""

    def __init__(self, there: Mapping[str, bytes], refused: Mapping[str, StoreError]) -> None:
        super().__init__(there)
        self.refused = refused

    def delete(self, name: str) -> None:
        if name in self.refused:
            raise self.refused[name]
        super().delete(name)


def test_what_cannot_be_deleted_is_told_and_the_rest_goes(config: MixConfig, whole: dict[str, bytes], use: Use) -> None:
    probes = {probe(letter): b"1" for letter in "abc"}
    store = Stubborn({**whole, **probes}, {probe("b"): StoreError("access denied")})
    use(store)
    found = gc(config.output, delete=True)
    assert names(found.deleted) == [probe("a"), probe("c")]
    assert [(refusal.name, refusal.error) for refusal in found.refused] == [(probe("b"), "access denied")]
    store.refused = {probe("b"): StoreUnavailableError("no answer")}
    with pytest.raises(StoreUnavailableError):
        gc(config.output, delete=True)


def test_an_object_that_was_replaced_meanwhile_is_spared(
    config: MixConfig, whole: dict[str, bytes], use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore({**whole, probe("a"): b"1", probe("b"): b"1", probe("c"): b"1"})
    use(store)

    def others_come(item: Item) -> None:
        if item.name.endswith("a"):
            store.put(probe("b"), b"2")
            store.delete(probe("c"))

    found = gc(config.output, delete=True, on_delete=others_come)
    assert names(found.deleted) == [probe("a")]
    assert [(item.name[-1], item.reason) for item in found.spared] == [
        ("b", "replaced meanwhile"),
        ("c", "gone meanwhile"),
    ]
    assert store.objects[probe("b")] == b"2"


@pytest.mark.parametrize("now_s", [0.0, 4e9])
@pytest.mark.parametrize("written_s", [0.0, 4e9])
def test_neither_a_clock_nor_an_age_decides(
    config: MixConfig, monkeypatch: pytest.MonkeyPatch, now_s: float, written_s: float
) -> None:
    building.build(config)
    store = LocalStore(config.output)
    for name in (shard_path(SHARDS), PROBE, "notes.txt"):
        store.put(name, b"1")
    (store.root / DEAD).write_bytes(b"12345")
    before = gc(config.output)
    for path in store.root.rglob("*"):
        os.utime(path, (written_s, written_s))
    monkeypatch.setattr("time.time", lambda: now_s)
    found = gc(config.output)
    told = [(item.name, item.reason) for item in (*found.found, *found.kept)]
    assert told == [(item.name, item.reason) for item in (*before.found, *before.kept)]
    assert sorted(names(found.found)) == sorted([DEAD, PROBE])
    assert names(found.kept) == [shard_path(SHARDS), "notes.txt"]
