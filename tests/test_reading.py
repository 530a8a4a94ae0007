from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixer
from mixer import building, readable, shard_reading
from mixer.errors import ConfigError, CorruptionError, OutputError
from mixer.reading import read
from mixer.storage import LocalStore
from tests.mixes import mix_config
from tests.profiles import sized
from tests.test_heading import expected_rows

BATCHES, BATCH_SIZE = 12, 4


def batches_of(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [rows[start : start + BATCH_SIZE] for start in range(0, len(rows), BATCH_SIZE)]


EXPECTED = batches_of(expected_rows())


def listed(tables: Iterator[pa.Table]) -> list[list[dict[str, Any]]]:
    return [table.to_pylist() for table in tables]


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run of shards of five batches in row groups of two, which was started several times."""
    config = mix_config(tmp_path_factory.mktemp("restless"), batches_per_shard=5, batches_per_row_group=2)
    for shards in (0, 1, 1):
        with building.start(config) as run:
            run.write(shards)
    building.build(config)
    return config.output


@settings(max_examples=40, deadline=None)
@given(start=st.integers(0, BATCHES), stop=st.none() | st.integers(0, BATCHES), world_size=st.integers(1, 6))
def test_ranks_together_read_each_batch_from_any_one_on(
    restless: str, start: int, stop: int | None, world_size: int
) -> None:
    stop = stop if stop is None else max(start, stop)
    expected = EXPECTED[start:stop]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for rank in range(world_size):
            found = listed(read(restless, start_batch=start, stop_batch=stop, rank=rank, world_size=world_size))
            assert found == [batch[rank::world_size] for batch in expected]


def test_it_is_a_verb_of_the_package_and_says_which_batch_comes_next(restless: str) -> None:
    with mixer.read(restless, start_batch=3, columns=["n", "text"]) as batches:
        assert batches.schema.names == ["n", "text"]
        assert next(batches).column_names == ["n", "text"]
        assert batches.next_batch == 4
        assert batches.fingerprint == readable.look(restless).fingerprint
    assert list(batches) == []


def test_where_ranks_cannot_share_evenly_it_is_said_before_anything_is_read(restless: str) -> None:
    with pytest.warns(UserWarning, match="every batch of 4 rows, ranks 0 to 0 take 2 and ranks 1 to 2 take 1"):
        read(restless, rank=1, world_size=3)
    with pytest.warns(UserWarning, match="ranks 0 to 3 take 1 and ranks 4 to 4 take 0"):
        read(restless, rank=4, world_size=5)
    # Warnings are errors here.
    read(restless, rank=1, world_size=2)


def test_a_short_last_batch_that_cannot_be_shared_is_said_too(tmp_path: Path) -> None:
    config = mix_config(tmp_path, on_exhausted="redistribute", batches=None, batch_size=20)
    assert building.build(config).rows == 102
    with pytest.warns(UserWarning, match="the last batch has 2 rows, which 4 ranks cannot share evenly"):
        found = [table.num_rows for table in read(config.output, rank=3, world_size=4)]
    assert found == [5, 5, 5, 5, 5, 0]
    read(config.output, rank=0, world_size=4, stop_batch=5)
    read(config.output, rank=0, world_size=2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start_batch": -1}, "start_batch: expected a whole number from 0, found -1"),
        ({"start_batch": 3, "stop_batch": 2}, "stop_batch: expected a whole number from 3, found 2"),
        ({"rank": 2, "world_size": 2}, "rank: expected less than world_size=2, found 2"),
        ({"world_size": 0}, "world_size: expected a whole number from 1, found 0"),
        ({"columns": "text"}, "columns: expected a list of names, found 'text'"),
        ({"columns": []}, "columns: expected a list of names"),
        ({"columns": 5}, "columns: expected a list of names, found 5"),
        ({"timeout_s": -1, "follow": True}, "timeout_s: expected seconds from 0, found -1"),
        ({"timeout_s": float("nan"), "follow": True}, "timeout_s: expected seconds from 0, found nan"),
        ({"timeout_s": "x", "follow": True}, "timeout_s: expected seconds from 0, found 'x'"),
        ({"columns": ["txt"]}, "found 'txt'; it has text, n, _dataset, _row, _batch"),
        ({"columns": ["n", "n"]}, "expected each one once"),
    ],
)
def test_impossible_arguments_are_refused_at_once(restless: str, arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(restless, **arguments)


def test_a_batch_that_the_run_will_never_have_is_refused(restless: str) -> None:
    assert list(read(restless, start_batch=BATCHES)) == []
    with pytest.raises(OutputError, match="batch 13: the run has batches 0 to 11"):
        read(restless, start_batch=13)
    with pytest.raises(OutputError, match="batch 13: the run has batches 0 to 11"):
        read(restless, stop_batch=13)


def test_only_row_groups_and_columns_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large.parquet"
    rows = [hashlib.shake_256(bytes([row])).digest(100_000) for row in range(12)]
    pq.write_table(pa.table({"data": rows, "other": rows[::-1]}), large)
    datasets = {"large": {"path": str(large), "weight": 1}}
    config = mix_config(tmp_path, batch_size=1, batches_per_shard=6, batches_per_row_group=1, datasets=datasets)
    building.build(config)
    reads: list[tuple[str, int]] = []
    honest_range, honest_get = LocalStore.get_range, LocalStore.get

    def counted_range(store: LocalStore, name: str, start: int, stop: int) -> bytes:
        data = honest_range(store, name, start, stop)
        reads.append((name, len(data)))
        return data

    def counted_get(store: LocalStore, name: str) -> bytes | None:
        data = honest_get(store, name)
        reads.append((name, len(data or b"")))
        return data

    monkeypatch.setattr(LocalStore, "get_range", counted_range)
    monkeypatch.setattr(LocalStore, "get", counted_get)

    def read_bytes(**arguments: Any) -> int:
        reads.clear()
        assert list(read(config.output, **arguments)) != []
        return sum(size for name, size in reads if name.startswith("data/"))

    # Reading a footer takes 64 KiB.
    assert 400_000 <= read_bytes(start_batch=10) < 500_000
    assert 200_000 <= read_bytes(start_batch=10, columns=["data"]) < 300_000
    assert 200_000 <= read_bytes(start_batch=7, stop_batch=8) < 300_000
    assert read_bytes(start_batch=7, stop_batch=9, columns=["_row"]) < 100_000
    # Whole shards: each by one request, and no byte twice.
    assert read_bytes() == sum(path.stat().st_size for path in (tmp_path / "out/data").iterdir())
    assert len([name for name, _ in reads if name.startswith("data/")]) == 2


def test_no_more_shards_are_begun_than_there_is_room_for(restless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    honest = shard_reading.OpenShard.read

    def counted(shard: shard_reading.OpenShard, group: int, columns: Any) -> pa.Table:
        begun.append(group)
        return honest(shard, group, columns)

    monkeypatch.setattr(shard_reading.OpenShard, "read", counted)
    pieces = readable.look(restless).pieces(readable.Wanted(range(12)), readable.Ahead(bytes_max=1, threads=2))
    next(pieces)
    assert len(begun) == 1
    next(pieces)
    assert len(begun) == 2
    assert len(list(pieces)) == 5


def test_an_unfinished_run_is_read_up_to_its_last_commit(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    with pytest.raises(OutputError, match=r"batch 0 is not committed yet, so far there are 0; .* follow=True"):
        read(config.output)
    with building.start(config) as run:
        run.write(2)
        assert listed(read(config.output)) == EXPECTED[:6]
        assert listed(read(config.output, stop_batch=5, start_batch=4)) == EXPECTED[4:5]
        batches = read(config.output, start_batch=4)
        run.write(3)
        assert listed(batches) == EXPECTED[4:6]
    with pytest.raises(OutputError, match="batch 9 is not committed yet, so far there are 9"):
        read(config.output, start_batch=9)
    with pytest.raises(OutputError, match="batch 9 is not committed yet, so far there are 9"):
        read(config.output, stop_batch=10)


def test_ranks_that_may_see_different_ends_are_told_so(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(2)
    with pytest.warns(UserWarning, match=r"give all of them the same stop_batch \(here 6\), or follow=True"):
        read(config.output, world_size=2)
    read(config.output, world_size=2, stop_batch=6)
    read(config.output, world_size=2, follow=True)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable, "POLL_S", 0.02)


def test_a_run_is_followed_to_its_end(tmp_path: Path, hasty: None) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
        batches = read(config.output, start_batch=2, follow=True)
        assert next(batches).to_pylist() == EXPECTED[2]
        timer = threading.Timer(0.2, run.write, [3])
        timer.start()
        assert next(batches).to_pylist() == EXPECTED[3]
        timer.join()
        assert [next(batches).to_pylist() for _ in range(5)] == EXPECTED[4:9]
    # Another start of it, from whatever process, and an extension before it is complete.
    longer = mix_config(tmp_path, batches=14)
    timer = threading.Timer(0.2, building.build, [longer], {"extend": True})
    timer.start()
    rest = listed(batches)
    timer.join()
    assert rest[:3] == EXPECTED[9:]
    assert len(rest) == 5
    assert listed(read(config.output, start_batch=13, follow=True)) == rest[-1:]
    assert listed(read(config.output, start_batch=14, follow=True)) == []


def test_batches_that_an_extension_brings_into_a_shard_that_was_to_be_shorter_are_followed(tmp_path: Path) -> None:
    with building.start(mix_config(tmp_path, batches=7)) as run:
        run.write(1)
    output = str(tmp_path / "out")
    batches, there = read(output, start_batch=7, follow=True), read(output, start_batch=1, follow=True)
    building.build(mix_config(tmp_path, batches=12), extend=True)
    assert listed(batches) == EXPECTED[7:]
    assert batches.next_batch == 12
    assert listed(there) == EXPECTED[1:]


def test_a_run_that_nobody_goes_on_with_is_not_followed_for_ever(tmp_path: Path, hasty: None) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
    batches = read(config.output, follow=True, timeout_s=0.2)
    assert [next(batches).to_pylist() for _ in range(3)] == EXPECTED[:3]
    with pytest.raises(OutputError, match=r"nothing was committed for 0\.2 s, and the run is not finished; see with"):
        next(batches)


def test_who_stops_following_leaves_no_thread(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
    with read(config.output, follow=True) as batches:
        next(batches)
    for thread in threading.enumerate():
        if thread.name.startswith("mixer-read"):
            thread.join(120)
            assert not thread.is_alive()


def test_an_extended_run_and_a_fork_of_it_are_read_over_their_seams(tmp_path: Path) -> None:
    config = mix_config(tmp_path, batches=7)
    building.build(config)
    building.build(mix_config(tmp_path, batches=10), extend=True)
    assert listed(read(config.output)) == EXPECTED[:10]
    assert listed(read(config.output, start_batch=6)) == EXPECTED[6:10]
    fork = building.fork(config.output, 4, str(tmp_path / "fork"), weights={"web": 1}, batches=2)
    building.build(fork)
    building.build(building.fork(fork.output, 5, str(tmp_path / "again"), weights={"code": 1}, batches=2))
    for output, batches in (("fork", 12), ("again", 14)):
        for start in (0, 2, 8, 9, 10, 11):
            found = listed(read(str(tmp_path / output), start_batch=start))
            common = EXPECTED[start:10]
            assert found[: len(common)] == common
            assert len(found) == batches - start
    shutil.rmtree(tmp_path / "out")
    assert len(listed(read(str(tmp_path / "fork"), start_batch=10))) == 2
    with pytest.raises(CorruptionError, match="its first 4 shards are those of the run in"):
        list(read(str(tmp_path / "fork"), start_batch=9))


def test_what_is_no_run_is_refused(tmp_path: Path, out: Path) -> None:
    with pytest.raises(OutputError, match="no run of mixer here"):
        read(str(tmp_path / "nothing"))
    with pytest.raises(OutputError, match="no run of mixer here"):
        read(str(out / "data"))
    (out / ".mixer/run.json").write_text("{}")
    with pytest.raises(CorruptionError, match=r"run\.json"):
        read(str(out))


@pytest.mark.parametrize("start", [0, 1], ids=["whole", "row groups"])
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda data, other: data[:-1], "the commit says"),
        (lambda data, other: b"", "the commit says"),
        (lambda data, other: data[:-4] + b"XXXX", "sha256|not readable as Parquet"),
        (lambda data, other: data[:8] + b"\xff" * 60 + data[68:], "sha256|not readable as Parquet"),
    ],
    ids=["truncated", "empty", "no footer", "bad page"],
)
def test_a_damaged_shard_is_named(out: Path, damage: Callable[..., bytes], expected: str, start: int) -> None:
    shard = out / "data/shard-00000000.parquet"
    shard.write_bytes(damage(shard.read_bytes(), out))
    with pytest.raises(CorruptionError, match=rf"shard-00000000\.parquet: .*{expected}"):
        list(read(str(out), start_batch=start))


@pytest.mark.parametrize("start", [3, 4], ids=["whole", "row groups"])
def test_a_shard_in_the_place_of_another_one_of_its_length_is_named(
    out: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(out / "data/shard-00000002.parquet", out / "data/shard-00000001.parquet")
    # Lengths differ a little; what is tried here is what comes after they were compared.
    monkeypatch.setattr(shard_reading, "check_length", lambda *arguments, **more: None)
    monkeypatch.setattr(
        "mixer.storage.reading.ObjectFile.size", lambda file: (out / "data/shard-00000001.parquet").stat().st_size
    )
    expected = "sha256" if start == 3 else "the commit says shard 1, its footer says 2"
    with pytest.raises(CorruptionError, match=rf"shard-00000001\.parquet: .*{expected}"):
        list(read(str(out), start_batch=start))


def test_a_slot_that_is_gone_is_named(out: Path) -> None:
    (out / ".mixer/log/000000000002.json").unlink()
    with pytest.raises(CorruptionError, match=r"000000000002\.json: missing"):
        read(str(out))


@pytest.mark.parametrize("start", [0, 1], ids=["whole", "row groups"])
def test_any_flipped_bit_of_a_shard_is_found_or_changes_nothing(tmp_path: Path, start: int) -> None:
    rows = 12
    columns = {
        "ids": pa.array([list(range(row, row + 9)) for row in range(rows)], pa.list_(pa.int32())),
        "x": [row / 7 for row in range(rows)],
        "text": [f"text {row % 5}" for row in range(rows)],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    datasets = {"a": {"path": str(tmp_path / "a.parquet"), "weight": 1}}
    config = mix_config(
        tmp_path, batch_size=2, batches=6, batches_per_shard=6, batches_per_row_group=3, datasets=datasets
    )
    building.build(config)
    shard = tmp_path / "out/data/shard-00000000.parquet"
    data = shard.read_bytes()
    expected = listed(read(config.output, start_batch=start))
    chance = random.Random(7)  # noqa: S311 -- places, not secrets
    places = [(place, chance.randrange(8)) for place in range(len(data))]
    found = harmless = 0
    for place, bit in chance.sample(places, sized(short=250, long=len(places))):
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        shard.write_bytes(changed)
        try:
            assert listed(read(config.output, start_batch=start)) == expected, (place, bit)
            harmless += 1
        except CorruptionError:
            found += 1
    assert found > harmless
    assert start or not harmless


def test_a_process_that_leaves_in_the_middle_comes_to_its_end(tmp_path: Path) -> None:
    config = mix_config(tmp_path, batches_per_shard=1)
    building.build(config)
    code = "import sys, mixer; batches = mixer.read(sys.argv[1]); print(next(batches).num_rows)"
    # A thread that is caught with a lock keeps such a process in about every other try.
    for _ in range(sized(short=4, long=20)):
        command = [sys.executable, "-c", code, config.output]
        done = subprocess.run(command, timeout=180, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("4\n", "")
