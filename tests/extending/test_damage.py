"""Amendments that are damaged, lost, forged or out of place are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mixer import building
from mixer.building import build, status
from mixer.config import config_from
from mixer.core import commits
from mixer.core.commits import Slot
from mixer.errors import CorruptionError, MixerError
from mixer.heading import head
from mixer.log import envelope
from mixer.planning import replanned
from mixer.testing import MemoryStore
from mixer.verifying import verify
from tests.e2e.runs import objects
from tests.extending.shared import STORES, payloads
from tests.mixes import mix_config

# Damage


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """Where a run was extended twice, and its objects."""
    folder = tmp_path_factory.mktemp("twice")
    for batches in (10, 14, 17):
        build(mix_config(folder, batches=batches), extend=True)
    return folder, objects(STORES[str(folder / "out")])


@dataclass(frozen=True)
class Extended:
    """A run that was extended twice, and may be damaged."""

    folder: Path
    output: str
    store: MemoryStore
    amendments: tuple[int, int]
    """Its ``amend`` slots."""


@pytest.fixture
def extended(twice: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Extended:
    folder, whole = twice
    store = MemoryStore(whole)
    monkeypatch.setitem(STORES, str(folder / "out"), store)
    first, second = (n for n, (kind, _) in enumerate(payloads(folder / "out")) if kind == "amend")
    return Extended(folder, str(folder / "out"), store, (first, second))


def forged(store: MemoryStore, at: int, changes: Mapping[str, Any]) -> None:
    """Put another slot in the place of one, with the fields of its payload that are given."""
    name = commits.slot_name(at)
    slot = commits.decode_slot(store.objects[name], at, name)
    store.put(name, commits.encode_slot(Slot(at, slot.kind, slot.writer, {**slot.payload, **changes})))


def test_a_damaged_newest_amendment_is_named_by_all(extended: Extended) -> None:
    store, (_, newest) = extended.store, extended.amendments
    name = commits.slot_name(newest)
    store.put(name, (store.objects[name]).replace(b'"number":2', b'"number":3'))
    with pytest.raises(CorruptionError, match=name):
        status(extended.output)
    with pytest.raises(CorruptionError, match=name):
        head(extended.output, batch=15)
    # What was made before it can be read without it.
    assert len(head(extended.output, batch=5).table) == 10
    with pytest.raises(CorruptionError, match=name):
        build(mix_config(extended.folder, batches=18), extend=True)
    report = verify(extended.output)
    assert [problem.object.rpartition("/")[2] for problem in report.problems] == [name.rpartition("/")[2]]


@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_amendment_is_the_only_thing_that_verify_names(extended: Extended, which: int) -> None:
    store, numbers = extended.store, extended.amendments
    store.delete(commits.slot_name(numbers[which]))
    report = verify(extended.output)
    assert [(problem.object.rpartition("/")[2], problem.problem) for problem in report.problems] == [
        (
            commits.slot_name(numbers[which]).rpartition("/")[2],
            "missing, though later slots exist; restore it from a copy",
        )
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"asked": {"batches": 16}}, "its hash is not that of what it makes of"),
        ({"asked": {"batch_size": 8}}, "not an amendment: ValueError: it changes what no extension does"),
        ({"asked": {"batches": -1}}, "not an amendment: ValidationError"),
        ({"asked": {"datasets": {"none": {"weight": 1}}}}, "not an amendment: KeyError"),
        ({"asked": {"datasets": 7}}, "not an amendment: AttributeError"),
        ({"cuts": [11]}, "its hash is not that of"),
        ({"cuts": ["10"]}, "expected cuts to be whole numbers"),
        ({"number": True}, "expected number to be int, found bool"),
        ({"extra": 1}, "not an amendment: expected the fields"),
    ],
)
def test_an_amendment_that_nobody_wrote_is_refused(extended: Extended, changes: dict[str, Any], message: str) -> None:
    store, (_, newest) = extended.store, extended.amendments
    forged(store, newest, changes)
    with pytest.raises(CorruptionError, match=message) as refused:
        status(extended.output)
    assert commits.slot_name(newest) in str(refused.value)
    assert any(message in problem.problem for problem in verify(extended.output).problems)


@pytest.mark.parametrize(
    ("asked", "cuts", "message"),
    [
        ({"batches": 9}, [], "it changes what was planned before it"),
        ({"batches": 10}, [], "it changes what was planned before it"),
        ({"batches": 17, "datasets": {"web": {"weight": 5, "share": None}}}, [], "it changes what was planned before"),
        ({"batches": 17}, [10, 10], r"no shards end at \[10, 10\] before it"),
        ({"batches": 17}, [10, 4], r"no shards end at \[10, 4\] before it"),
        ({"batches": 17}, [0], r"no shards end at \[0\] before it"),
        ({"batches": 17}, [15], r"no shards end at \[15\] before it"),
    ],
)
def test_an_amendment_that_no_extension_gives_is_refused_though_its_hash_is_right(
    extended: Extended, asked: dict[str, Any], cuts: list[int], message: str
) -> None:
    _, began = building.started(extended.output)
    values = mix_config(extended.folder).model_dump(mode="json")
    for name, fields in asked.get("datasets", {}).items():
        values["datasets"][name].update(fields)
    config = config_from({**values, **asked, "datasets": values["datasets"]})
    run = replanned(began, config, cuts=tuple(cuts), extensions=2).run
    forged(extended.store, extended.amendments[1], {"asked": asked, "cuts": cuts, "run": run})
    with pytest.raises(CorruptionError, match=message):
        status(extended.output)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"number": 3}, "the log before it says number 2, the amendment says 3"),
        ({"shards": 4}, "the log before it says shards 6, the amendment says 4"),
        ({"batches": 15}, "the log before it says batches 14, the amendment says 15"),
    ],
)
def test_an_amendment_that_does_not_follow_the_log_is_found(
    extended: Extended, changes: dict[str, Any], message: str
) -> None:
    store, (_, newest) = extended.store, extended.amendments
    forged(store, newest, changes)
    assert message in [problem.problem for problem in verify(extended.output).problems]


def test_a_slot_that_names_another_amendment_is_found(extended: Extended) -> None:
    store, (first, newest) = extended.store, extended.amendments
    last = max(commits.slot_number(info.name) or 0 for info in store.list(commits.LOG_PREFIX))
    name = commits.slot_name(last)
    slot = commits.decode_slot(store.objects[name], last, name)
    for wrong, refused in (
        (first, "the plan ends with"),
        (1, "of kind 'shard'"),
        (None, "the plan ends with"),
        ("x", "found 'x'"),
    ):
        writer = {**slot.writer, "amend": wrong}
        store.put(name, commits.encode_slot(Slot(last, slot.kind, writer, slot.payload)))
        with pytest.raises(MixerError, match=refused):
            build(mix_config(extended.folder, batches=17))
        assert f"expected slot {newest} as the newest amendment, found {wrong!r}" in [
            problem.problem for problem in verify(extended.output).problems
        ]


def test_an_open_slot_that_knows_of_no_amendment_is_found(extended: Extended) -> None:
    store = extended.store
    found = building.look(extended.output)
    number = found.tail.next_slot
    payload = {"genesis": found.run.genesis, "head": found.tail.head, "physical": found.run.physical}
    store.put(commits.slot_name(number), commits.encode_slot(Slot(number, "open", envelope("older", number), payload)))
    with pytest.raises(CorruptionError, match="names another amendment than the `open` after it"):
        status(extended.output)
