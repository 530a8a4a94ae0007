"""What is damaged is found and named, by those who look at it, and nothing is changed then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.core import commits
from mixer.errors import ChangedError, CorruptionError, MixerError
from mixer.heading import head
from tests.e2e.damage import (
    FINAL,
    SHARD_SLOTS,
    SHARDS,
    Runs,
    body_bytes,
    everything,
    flips,
    make_runs,
    readers,
    refusal,
    shard,
    slot,
    verified,
)
from tests.profiles import sized

RUN = commits.RUN_NAME
MANIFEST = commits.MANIFEST_NAME
FLIPS = sized(short=30, long=400)

Damage = Callable[[Path, Runs], object]


def flipped(name: str) -> Damage:
    def damage(out: Path, _: Runs) -> None:
        data = bytearray((out / name).read_bytes())
        place = len(data) // 2
        if name.endswith(".parquet"):
            # Among the rows: readers of some rows do not look at all that a footer says of them.
            column = pq.read_metadata(out / name).row_group(0).column(0)
            place = column.dictionary_page_offset + column.total_compressed_size - 1
        data[place] ^= 1
        (out / name).write_bytes(data)

    return damage


def gone(name: str) -> Damage:
    return lambda out, _: (out / name).unlink()


def cut(name: str) -> Damage:
    return lambda out, _: (out / name).write_bytes((out / name).read_bytes()[:-1])


def empty(name: str) -> Damage:
    return lambda out, _: (out / name).write_bytes((out / name).read_bytes()[:0])


def foreign(name: str) -> Damage:
    """The object of that name in another run."""
    return lambda out, runs: (out / name).write_bytes((runs.other / name).read_bytes())


def added(name: str, data: bytes = b"hello") -> Damage:
    def damage(out: Path, _: Runs) -> None:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(data)

    return damage


def swapped(one: str, two: str) -> Damage:
    def damage(out: Path, _: Runs) -> None:
        first, second = (out / one).read_bytes(), (out / two).read_bytes()
        (out / one).write_bytes(second)
        (out / two).write_bytes(first)

    return damage


def doubled(number: int) -> Damage:
    """A slot once more in the place behind it."""
    return lambda out, _: (out / slot(number + 1)).write_bytes((out / slot(number)).read_bytes())


def doubled_payload(number: int) -> Damage:
    """A slot once more in the place behind it, and numbered as that one."""
    return lambda out, _: (out / slot(number + 1)).write_bytes(resealed(out / slot(number), slot=number + 1))


def said(name: str, **changes: Any) -> Damage:
    """Something else in an object that is whole in itself."""
    return lambda out, _: (out / name).write_bytes(resealed(out / name, **changes))


def resealed(path: Path, **changes: Any) -> bytes:
    content = json.loads(path.read_bytes())
    content.pop("sha256")
    return commits.sealed({**content, **changes})


def foreign_folder(name: str) -> Damage:
    def damage(out: Path, runs: Runs) -> None:
        shutil.rmtree(out / name)
        shutil.copytree(runs.other / name, out / name)

    return damage


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of damage, and the objects that each reader must name: nothing if it does not look there."""

    damage: Damage
    verify: Sequence[str]
    resume: str | None = None
    status: str | None = None
    head: str | None = None
    error: type[MixerError] = CorruptionError
    """What resuming ends with."""


def everywhere(damage: Damage, name: str) -> Case:
    return Case(damage, [name], name, name, name)


LAST_OF = {"unfinished": 6, "finished": FINAL}
LAST_SHARD_OF = {"unfinished": 4, "finished": SHARDS - 1}
ANYWHERE = {"flipped": flipped, "cut": cut, "empty": empty}


def runs_mixed_up(kind: str) -> dict[str, Case]:
    """Return what a bad copy does to a run that is `kind`: objects of another run, or in another's place."""
    last = LAST_OF[kind]
    end, end_in_head = slot(last), slot(last) if kind == "unfinished" else None
    return {
        "definition of another run": Case(
            foreign(RUN), [RUN, *map(slot, range(last + 1))], "", "opens run", slot(1), ChangedError
        ),
        "first slot of another run": Case(foreign(slot(0)), [slot(0)]),
        "middle commit of another run": Case(foreign(slot(2)), [slot(2)], head=slot(2)),
        "last slot of another run": Case(foreign(end), [end], end, end, end_in_head),
        "log of another run": Case(
            foreign_folder(".mixer/log"),
            [RUN, *map(slot, range(FINAL + 1)), *([MANIFEST] if kind == "unfinished" else [])],
            "opens run",
            "opens run",
            slot(1),
        ),
        "log and definition of another run": Case(
            foreign_folder(".mixer"), [*map(shard, range(SHARDS)), MANIFEST], "", None, shard(0), ChangedError
        ),
        "shard of another run": Case(foreign(shard(2)), [shard(2)], head=shard(2)),
        "shards swapped": Case(swapped(shard(1), shard(2)), [shard(1), shard(2)], head=shard(1)),
        "commits swapped": Case(swapped(slot(2), slot(3)), [slot(2), slot(3)], head=slot(2)),
        "last slot twice": Case(
            doubled(last), [slot(last + 1)], slot(last + 1), slot(last + 1), end_in_head and slot(last + 1)
        ),
        "last payload twice": Case(doubled_payload(last), [slot(last + 1)]),
    }


def cases(kind: str) -> dict[str, Case]:
    """Return the kinds of damage to a run that is `kind`, by name."""
    last, last_shard = LAST_OF[kind], LAST_SHARD_OF[kind]
    manifest = [MANIFEST] if kind == "finished" else []
    end, end_in_head = slot(last), slot(last) if kind == "unfinished" else None
    found: dict[str, Case] = {}
    for what, damage in ANYWHERE.items():
        found[f"definition {what}"] = everywhere(damage(RUN), RUN)
        # A resume reads the end of the log, so that it costs the same after thousands of slots.
        found[f"first slot {what}"] = Case(damage(slot(0)), [slot(0)])
        found[f"middle slot {what}"] = Case(damage(slot(2)), [slot(2)], head=slot(2))
        found[f"last slot {what}"] = Case(damage(end), [end, *manifest], end, end, end_in_head)
        found[f"first shard {what}"] = Case(damage(shard(0)), [shard(0)], head=shard(0))
        found[f"middle shard {what}"] = Case(damage(shard(2)), [shard(2)], head=shard(2))
        seen = None if what == "flipped" else shard(last_shard)
        found[f"last shard {what}"] = Case(damage(shard(last_shard)), [shard(last_shard)], seen, head=shard(last_shard))
    found |= runs_mixed_up(kind)
    found |= {
        "definition gone": everywhere(gone(RUN), RUN),
        "definition of a newer mixer": everywhere(said(RUN, format=2), RUN),
        "first slot gone": everywhere(gone(slot(0)), slot(0)),
        "first commit gone": everywhere(gone(slot(1)), slot(1)),
        "middle commit gone": everywhere(gone(slot(3)), slot(3)),
        "open in the middle gone": everywhere(gone(slot(4)), slot(4)),
        "middle slot of a newer mixer": Case(said(slot(2), format=2), [slot(2)], head=slot(2)),
        "last slot of a newer mixer": Case(said(end, format=2), [end, *manifest], end, end, end_in_head),
        "last slot of an unknown kind": Case(said(end, kind="merge"), [end, *manifest], end, end, end_in_head),
        "middle shard gone": Case(gone(shard(2)), [shard(2)], head=shard(2)),
        "last shard gone": Case(
            gone(shard(last_shard)), [shard(last_shard)], shard(last_shard), head=shard(last_shard)
        ),
        "file among the slots": everywhere(added(".mixer/log/notes.txt"), ".mixer/log/notes.txt"),
        "file among the checkpoints": everywhere(added(".mixer/checkpoints/notes.txt"), ".mixer/checkpoints/notes.txt"),
        "slot at the end of time": Case(
            added(slot(10**12 - 1)), [slot(last + 1), slot(10**12 - 1)], slot(last + 1), slot(last + 1), slot(last + 1)
        ),
        "checkpoint without its slots": Case(
            added(commits.checkpoint_name(1000)), [commits.checkpoint_name(1000)], slot(999), slot(999), slot(999)
        ),
    }
    return found


CASES = [(kind, name) for kind in LAST_OF for name in cases(kind)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("runs"))


def copied(runs: Runs, kind: str, folder: Path) -> Path:
    return Path(shutil.copytree({"unfinished": runs.unfinished, "finished": runs.finished}[kind], folder / "out"))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_damage_is_named_by_all_who_look_at_it_and_nothing_is_changed(
    runs: Runs, tmp_path: Path, kind: str, name: str
) -> None:
    case, out = cases(kind)[name], copied(runs, kind, tmp_path)
    case.damage(out, runs)
    damaged = everything(out)
    assert verified(out) == set(case.verify)
    for reader, call in readers(runs.config, out).items():
        error, named = refusal(call), getattr(case, reader)
        if reader == "resume" and error is not None:
            assert (type(error), error.exit_code) == (case.error, case.error.exit_code)
        elif error is not None:
            assert isinstance(error, CorruptionError)
        assert (error is None) == (named is None), f"{reader}: {error}"
        assert error is None or (named or str(out)) in str(error), f"{reader}: {error}"
        if reader != "resume" or error is not None:
            assert everything(out) == damaged, reader
            continue
        # Went on, as it does not look there; the readers that follow see the damaged run again.
        shutil.rmtree(out)
        copied(runs, kind, tmp_path)
        case.damage(out, runs)
        damaged = everything(out)


@pytest.mark.parametrize("kind", LAST_OF)
@pytest.mark.parametrize("what", ["definition", "first slot", "middle slot", "last slot", "first shard", "last shard"])
def test_a_flipped_bit_is_found_wherever_it_is(runs: Runs, tmp_path: Path, kind: str, what: str) -> None:
    name = {
        "definition": RUN,
        "first slot": slot(0),
        "middle slot": slot(5),
        "last slot": slot(LAST_OF[kind]),
        "first shard": shard(0),
        "last shard": shard(LAST_SHARD_OF[kind]),
    }[what]
    out = copied(runs, kind, tmp_path)
    whole = (out / name).read_bytes()
    for damaged in flips(whole, FLIPS, seed=sum(name.encode())):
        (out / name).write_bytes(damaged)
        assert name in verified(out)


def test_rows_that_are_shown_are_those_that_were_committed_or_none_are(runs: Runs, tmp_path: Path) -> None:
    out = copied(runs, "finished", tmp_path)
    rows = head(str(out), 6).table
    whole, body = (out / shard(0)).read_bytes(), body_bytes(out / shard(0))
    named = 0
    for damaged in flips(whole[:body], 4 * FLIPS):
        (out / shard(0)).write_bytes(damaged + whole[body:])
        error = refusal(lambda: head(str(out), 6))
        if error is not None:
            named += 1
            assert isinstance(error, CorruptionError)
            assert shard(0) in str(error)
        else:
            assert head(str(out), 6).table == rows
    assert named > FLIPS


def test_a_flipped_bit_in_the_manifest_or_in_a_checkpoint_is_found(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixer.log.CHECKPOINT_SLOTS", 4)
    config = runs.config.model_copy(update={"output": str(tmp_path / "out")})
    building.build(config)
    out = tmp_path / "out"
    assert verified(out) == set()
    for name in (MANIFEST, commits.checkpoint_name(4), commits.checkpoint_name(8)):
        whole = (out / name).read_bytes()
        for damaged in flips(whole, FLIPS):
            (out / name).write_bytes(damaged)
            assert verified(out) == {name}
        (out / name).write_bytes(whole)
    # Derived, and people may write into it: nobody holds it to anything, and a start puts a missing one back.
    (out / commits.CARD_NAME).write_text("mine")
    assert verified(out) == set()


@pytest.mark.parametrize("damage", [flipped(slot(2)), foreign(slot(2)), swapped(slot(2), slot(3))])
def test_what_a_resume_does_not_look_at_is_found_before_the_manifest_is_written(
    runs: Runs, tmp_path: Path, damage: Damage
) -> None:
    out = copied(runs, "unfinished", tmp_path)
    whole = everything(out)
    damage(out, runs)
    config = runs.config.model_copy(update={"output": str(out)})
    with pytest.raises(CorruptionError, match=slot(2)):
        building.build(config)
    assert not (out / MANIFEST).exists()
    for number in (2, 3):
        (out / slot(number)).write_bytes(whole[slot(number)])
    building.build(config)
    assert verified(out) == set()
    assert (out / MANIFEST).read_bytes() == (runs.finished / MANIFEST).read_bytes()


def test_a_log_that_lost_its_end_is_a_run_that_is_less_far(runs: Runs, tmp_path: Path) -> None:
    """Nothing tells that a commit was there; it is made again, to the same bytes."""
    out = copied(runs, "unfinished", tmp_path)
    (out / slot(SHARD_SLOTS[4])).unlink()
    assert verified(out) == set()
    assert building.status(str(out)).committed == 4
    building.build(runs.config.model_copy(update={"output": str(out)}))
    assert everything(out / "data") == everything(runs.finished / "data")


def test_a_lost_end_of_a_finished_run_is_seen_by_its_manifest(runs: Runs, tmp_path: Path) -> None:
    out = copied(runs, "finished", tmp_path)
    (out / slot(FINAL)).unlink()
    assert verified(out) == {MANIFEST}
    building.build(runs.config.model_copy(update={"output": str(out)}))
    assert verified(out) == set()


@pytest.mark.parametrize("damage", [gone, empty, flipped, foreign])
def test_a_damaged_manifest_hinders_nobody_and_is_named(
    runs: Runs, tmp_path: Path, damage: Callable[[str], Damage]
) -> None:
    out = copied(runs, "finished", tmp_path)
    damage(MANIFEST)(out, runs)
    assert verified(out) == {MANIFEST}
    assert [refusal(call) for call in readers(runs.config, out).values()] == [None] * 3
