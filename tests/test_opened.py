"""What an open run does before it commits a shard, where a store or another start is not what it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer import building, verify
from mixer.core import commits
from mixer.core.plan import shard_path
from mixer.errors import CorruptionError, FencedError, OutputError, StoreError
from mixer.log import CommitLog
from mixer.publishing import manifest, publish_manifest
from mixer.storage import LocalStore
from mixer.testing import MemoryStore, OverwritingStore
from tests.mixes import SHARDS, mix_config


class LosingStore(MemoryStore):
    """A store that says that all went well, and keeps less of a shard than it was given."""

    def __init__(self, kept: slice | None) -> None:
        super().__init__()
        self.kept = kept

    def create(self, name: str, data: bytes) -> bool:
        if not name.startswith("data/"):
            return super().create(name, data)
        if self.kept is not None:
            super().create(name, data[self.kept])
        return True


@pytest.mark.parametrize(("kept", "found"), [(slice(-1), r"found \d+"), (None, "found nothing")])
def test_a_shard_that_the_store_does_not_keep_whole_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: slice | None, found: str
) -> None:
    store = LosingStore(kept)
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    expected = rf"{shard_path(0)}: \d+ bytes were put, {found}; the store loses data, check it"
    with building.start(mix_config(tmp_path)) as run:
        with pytest.raises(StoreError, match=expected):
            run.write(1)
        assert run.committed == 0
    assert commits.slot_name(1) not in store.objects


def test_a_start_that_was_taken_over_touches_no_shard_whatever_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are not looked at: they are committed, and what they are is for `verify` to say."""
    store = MemoryStore()
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    config = mix_config(tmp_path)
    with building.start(config) as old:
        with building.start(config) as new:
            new.write(1)
        store.objects[shard_path(0)] = b"not alike"
        before = dict(store.objects)
        with pytest.raises(FencedError, match="taken it over; nothing is harmed"):
            old.write(1)
    assert store.objects == before


def test_a_store_is_proven_also_where_a_start_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may lead to another store by now than it did when the run was started."""
    store = MemoryStore()
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    config = mix_config(tmp_path)
    with building.start(config) as run:
        owner = run.owner
    monkeypatch.setattr("mixer.building.open_store", lambda url: OverwritingStore(store))
    before = dict(store.objects)
    with pytest.raises(OutputError, match="refuse a second create"):
        building.attach(config.output, owner)
    assert store.objects == before
    with building.attach(config.output, owner, accept_unsafe_store=True) as run:
        run.write(1)
    assert shard_path(0) in store.objects


@pytest.mark.parametrize("kept", [None, slice(-1)], ids=["gone", "cut short"])
def test_a_run_is_not_finished_while_a_committed_shard_is_gone_or_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: slice | None
) -> None:
    store = MemoryStore()
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(3)
    whole = {name: store.objects.pop(name) for name in (shard_path(0), shard_path(1))}
    if kept is not None:
        store.objects.update({name: data[kept] for name, data in whole.items()})
    with building.start(config) as run:
        run.write(4)
        before = dict(store.objects)
        with pytest.raises(CorruptionError, match=rf"{shard_path(0)}: the commit says .* with 2 of 4 committed shards"):
            run.finish()
        assert store.objects == before
    assert not building.status(config.output).finished
    store.objects.update(whole)
    assert building.build(config).finished
    assert verify(config.output).ok


def test_a_manifest_that_is_missing_is_not_written_over_a_shard_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a process that died between the end of the log and the manifest."""
    store = MemoryStore()
    monkeypatch.setattr("mixer.building.open_store", lambda url: store)
    config = mix_config(tmp_path)
    building.build(config)
    data, shown = store.objects.pop(shard_path(1)), store.objects.pop(commits.MANIFEST_NAME)
    with pytest.raises(CorruptionError, match=f"{shard_path(1)}: the commit says .* found no such object"):
        building.build(config)
    assert commits.MANIFEST_NAME not in store.objects
    store.objects[shard_path(1)] = data
    building.build(config)
    assert store.objects[commits.MANIFEST_NAME] == shown


@pytest.mark.parametrize("wrong", [b"{}", None], ids=["foreign", "as long"])
def test_a_wrong_manifest_that_lies_there_is_replaced_when_the_run_is_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: bytes | None
) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    place = tmp_path / "out" / commits.MANIFEST_NAME
    whole = place.read_bytes()
    (tmp_path / "out" / commits.slot_name(SHARDS + 1)).unlink()
    place.write_bytes(whole.swapcase() if wrong is None else wrong)
    building.build(config)
    assert place.read_bytes() == whole
    assert "replaced a manifest that says otherwise than the log" in caplog.text
    assert verify(config.output).ok
    place.write_bytes(b"{}")
    building.build(config)
    assert place.read_bytes() == b"{}", "a complete run is quick: `verify` is for this"


def test_a_manifest_that_keeps_changing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = mix_config(tmp_path)
    head = building.build(config).head
    store, run = building.existing(config.output)
    (tmp_path / "out" / commits.MANIFEST_NAME).write_bytes(b"{}")
    monkeypatch.setattr(LocalStore, "replace", lambda self, name, data, version: False)
    log = CommitLog(store, run.genesis)
    with pytest.raises(StoreError, match=r"manifest\.json: changed 5 times"):
        publish_manifest(store, run, log, manifest(run, log.commits(), head), head)


def test_files_of_others_among_the_shards_are_not_counted(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(2)
        own = run.summary().bytes
        for name in ("0-notes.txt", "shard-00000000.parquet.bak", "shard-00000002.parquet"):
            (tmp_path / "out/data" / name).write_bytes(bytes(1000))
        assert run.summary().bytes == own
    assert building.status(config.output).bytes == own
