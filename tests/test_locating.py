"""Places and rows of real runs, held to what stands in their shards and in their inputs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mixer import building
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.errors import ConfigError, CorruptionError, NotEnoughDataError, OutputError
from mixer.locating import MOST, Location, in_files, where
from mixer.sources.inventory import FileEntry, Inventory
from mixer.storage import LocalStore
from tests import figures as counted
from tests.mixes import ROWS, config_values, mix_config
from tests.profiles import sized

OTHER = {"web": 3, "code": 1}


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows


def assert_is_there(place: Location) -> None:
    """Check every number of a place by reading what is there: the shard, and the input."""
    with pq.ParquetFile(Path(place.output, place.path)) as shard:
        (row,) = shard.read().slice(place.shard_row, 1).to_pylist()
        assert shard.read_row_group(place.row_group).slice(place.row_group_row, 1).to_pylist() == [row]
    assert (row["_dataset"], row["_row"], row["_batch"]) == (place.dataset, place.dataset_row, place.batch)
    assert row.get("_epoch", 0) == place.epoch
    with pq.ParquetFile(place.file) as file:
        (taken,) = file.read().slice(place.file_row, 1).to_pylist()
        assert file.read_row_group(place.file_row_group).slice(place.file_row_group_row, 1).to_pylist() == [taken]
    assert taken == {"text": row["text"], "n": row["n"]}
    assert taken["n"] == place.dataset_row


def mixed(config: MixConfig) -> list[dict[str, Any]]:
    """Return the rows of a finished run in their order, wherever its shards lie."""
    listed = json.loads(Path(config.output, commits.MANIFEST_NAME).read_bytes())["shards"]
    return [row for entry in listed for row in rows_of(Path(entry.get("output", config.output), entry["path"]))]


def assert_all_is_found(config: MixConfig, chosen: Callable[[int], int] = lambda rows: 1) -> None:
    """Check a finished run: every ``chosen(rows)``-th place of it, and every place of the row that is there."""
    rows = mixed(config)
    for number in range(0, len(rows), chosen(len(rows))):
        batch, slot = divmod(number, config.batch_size)
        found = where(config.output, batch=batch, slot=slot)
        (place,) = found.places
        assert (place.batch, place.slot, place.row, place.committed, found.why) == (batch, slot, number, True, None)
        assert_is_there(place)
        same = [
            at for at, row in enumerate(rows) if (row["_dataset"], row["_row"]) == (place.dataset, place.dataset_row)
        ]
        back = where(config.output, dataset=place.dataset, row=place.dataset_row)
        assert [one.row for one in back.places] == same
        assert (back.count, back.why) == (len(same), None)
        assert back.places[place.epoch] == place
        assert where(config.output, dataset=place.dataset, row=place.dataset_row, epoch=place.epoch).places == (place,)


@settings(max_examples=sized(short=12, long=200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(["error", "stop", "repeat", "redistribute"]),
    phases=st.lists(st.tuples(st.lists(st.integers(1, 5), min_size=3, max_size=3), st.integers(1, 9)), max_size=3),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 4)),
    shuffle=st.booleans(),
    data=st.data(),
)
def test_places_and_rows_are_those_of_the_lineage_columns(  # noqa: PLR0913, PLR0917 -- what varies
    tmp_path: Path,
    policy: str,
    phases: list[tuple[list[int], int]],
    sizes: tuple[int, int],
    shuffle: bool,
    data: st.DataObject,
) -> None:
    batch_size, batches_per_shard = sizes
    (tmp_path / "runs").mkdir(exist_ok=True)
    output = tmp_path / "runs" / str(len(list((tmp_path / "runs").iterdir())))
    values = config_values(
        tmp_path,
        output=str(output),
        batch_size=batch_size,
        batches_per_shard=batches_per_shard,
        batches_per_row_group=data.draw(st.integers(1, batches_per_shard)),
        on_exhausted=policy,
        batches=30 if policy == "repeat" else 9 if policy == "error" else None,
    )
    if phases:
        values.pop("batches", None)
        values["phases"] = [
            {"batches": batches, "weights": dict(zip(ROWS, weights, strict=True))} for weights, batches in phases
        ]
    for dataset in values["datasets"].values():
        if shuffle:
            dataset["shuffle"] = "block"
        if phases:
            del dataset["weight"]
    config = config_from(values)
    try:
        building.build(config)
    except NotEnoughDataError:
        assume(False)
    assert_all_is_found(config, lambda rows: max(1, rows // sized(short=6, long=40)))


def test_every_place_of_a_shuffled_mix_that_repeats_is_found(tmp_path: Path) -> None:
    values = config_values(tmp_path, on_exhausted="repeat", batches=20, batches_per_row_group=2)
    for dataset in values["datasets"].values():
        dataset["shuffle"] = "block"
    config = config_from(values)
    building.build(config)
    assert_all_is_found(config)


def test_shards_after_an_extension_are_found_beyond_the_short_one(tmp_path: Path) -> None:
    building.build(mix_config(tmp_path, batches=4))
    config = mix_config(tmp_path, batches=9)
    building.build(config, extend=True)
    assert_all_is_found(config)
    assert [where(config.output, batch=batch, slot=0).places[0].shard for batch in (3, 4, 6, 7)] == [1, 2, 2, 3]


def test_shards_of_a_fork_of_a_fork_are_told_with_the_output_they_lie_in(tmp_path: Path) -> None:
    first = building.build(mix_config(tmp_path, batches_per_row_group=2)).output
    second, third = str(tmp_path / "second"), str(tmp_path / "third")
    building.build(building.fork(first, 2, second, weights=OTHER, batches=6))
    config = building.fork(second, 3, third, weights={"code": 1}, batches=3)
    building.build(config)
    assert_all_is_found(config)
    places = [where(third, batch=batch, slot=0).places[0] for batch in (0, 3, 6, 9)]
    assert [(place.output, place.shard) for place in places] == [(first, 0), (first, 1), (second, 2), (third, 3)]


def test_row_groups_are_those_of_the_start_that_wrote_the_shard(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    for batches_per_row_group, shards in ((3, 1), (1, 2), (3, 3), (2, 4)):
        config = mix_config(tmp_path, batches_per_row_group=batches_per_row_group)
        with building.start(config, allow_repack=True) as run:
            run.write(shards)
            if shards == 4:
                run.finish()
    assert_all_is_found(config)
    assert [where(config.output, batch=batch, slot=0).places[0].row_group for batch in (2, 5, 8, 11)] == [0, 2, 0, 1]


def test_what_is_not_written_yet_is_told_by_the_plan(tmp_path: Path) -> None:
    config = mix_config(tmp_path, batches_per_row_group=3)
    whole = building.build(mix_config(tmp_path, output=str(tmp_path / "whole"), batches_per_row_group=2))
    building.start(config).close()
    assert not where(config.output, batch=0, slot=0).places[0].committed
    with building.start(mix_config(tmp_path, batches_per_row_group=2), allow_repack=True) as run:
        run.write(2)
    for batch in range(12):
        (place,) = where(config.output, batch=batch, slot=3).places
        assert place.committed == (batch < 6)
        assert (place.output, place.shard) == (config.output, batch // 3)
        (there,) = where(whole.output, batch=batch, slot=3).places
        assert_is_there(there)
        # The next start goes on in these row groups, which are the whole run's.
        assert (place.shard_row, place.row_group, place.row_group_row) == (
            there.shard_row,
            there.row_group,
            there.row_group_row,
        )


def test_a_row_that_is_never_taken_is_told_so_and_why(tmp_path: Path) -> None:
    output = building.build(mix_config(tmp_path)).output
    last = where(output, dataset="web", row=23)
    assert (last.count, last.places[0].batch) == (1, 11)
    beyond = where(output, dataset="web", row=24)
    assert (beyond.places, beyond.count) == ((), 0)
    assert beyond.why == (
        "it is beyond what the run takes: in epoch 0 row 24 of dataset 'web' would come at position 24, and the run "
        "takes positions 0 to 23 of the 60 there are"
    )
    never = where(output, dataset="web", row=3, epoch=1)
    assert (never.places, never.why) == ((), "the run begins one pass over dataset 'web', so there is no epoch 1")


def test_a_pass_that_is_not_ended_has_some_rows_and_no_others(tmp_path: Path) -> None:
    output = building.build(mix_config(tmp_path, on_exhausted="repeat", batches=24)).output  # 16 of 12 rows
    assert where(output, dataset="books", row=3).count == 2
    assert where(output, dataset="books", row=4).count == 1
    assert (where(output, dataset="books", row=4, epoch=1).why or "").endswith(
        "takes positions 0 to 3 of the 12 there are"
    )
    assert where(output, dataset="books", row=4, epoch=2).why == (
        "the run begins 2 passes over dataset 'books', so there is no epoch 2"
    )


def test_a_dataset_that_no_batch_takes_from_is_told_so(tmp_path: Path) -> None:
    phases = [{"batches": 4, "weights": {"web": 3}}, {"batches": 4, "weights": {"web": 10**6, "code": 1, "books": 1}}]
    values = config_values(tmp_path, batches=None, phases=phases)
    for dataset in values["datasets"].values():
        del dataset["weight"]
    output = building.build(config_from(values)).output
    assert where(output, dataset="books", row=0).why == "the run takes nothing of dataset 'books'"


def test_of_a_row_that_comes_very_often_the_first_places_are_told_and_how_many_there_are(tmp_path: Path) -> None:
    config = mix_config(tmp_path, on_exhausted="repeat", batches=10**9, batches_per_shard=10**6)
    building.start(config).close()
    found = where(config.output, dataset="books", row=11)
    assert (len(found.places), found.count) == (MOST, 4 * 10**9 // 6 // 12)
    assert [place.epoch for place in found.places] == list(range(MOST))
    (last,) = where(config.output, dataset="books", row=11, epoch=found.count - 1).places
    assert where(config.output, batch=last.batch, slot=last.slot).places == (last,)
    assert last.batch > 10**9 - 40


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch": 12, "slot": 0}, "batch 12: the run has batches 0 to 11"),
        ({"batch": -1, "slot": 0}, "batch -1: the run has batches 0 to 11"),
        ({"batch": 3, "slot": 4}, "slot 4: batch 3 has slots 0 to 3"),
        ({"dataset": "books", "row": 12}, "row 12: dataset 'books' has rows 0 to 11"),
        ({"dataset": "books", "row": -1}, "row -1: dataset 'books' has rows 0 to 11"),
        ({"dataset": "books", "row": 1, "epoch": -1}, "epoch -1: epochs are numbered from 0"),
        ({"dataset": "bosk", "row": 1}, "the run has no dataset 'bosk'; did you mean 'books'?"),
        ({"dataset": "x", "row": 1}, "the run has no dataset 'x'; it has 'web', 'code', 'books'"),
    ],
)
def test_what_the_run_has_not_is_refused_with_what_it_has(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    with pytest.raises(OutputError) as refusal:
        where(config.output, **asked)
    assert str(refusal.value) == f"{config.output}: {message}"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"batch": 1},
        {"slot": 1},
        {"dataset": "web"},
        {"row": 1},
        {"batch": 1, "slot": 1, "dataset": "web", "row": 1},
        {"batch": 1, "slot": 1, "epoch": 0},
        {"dataset": "web", "row": 1, "slot": 1},
    ],
)
def test_half_a_question_or_two_at_once_are_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    with pytest.raises(ValueError, match="expected either a batch and a slot, or a dataset and a row"):
        where(config.output, **asked)


@pytest.mark.parametrize("name", ["batch", "slot", "row", "epoch"])
@pytest.mark.parametrize("value", ["3", 1.5, np.float64(1), [], True])
def test_a_number_that_is_no_whole_one_is_named(name: str, value: Any) -> None:
    other = {"batch": 0, "slot": 0} if name in {"batch", "slot"} else {"dataset": "web", "row": 1}
    with pytest.raises(ConfigError) as refusal:
        where("/no/run", **{**other, name: value})
    assert str(refusal.value) == f"{name}: expected a whole number, found {value!r}"


@pytest.mark.parametrize("dataset", [5, b"web", ["web"], True])
def test_a_dataset_that_is_no_name_is_named(dataset: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        where("/no/run", dataset=dataset, row=1)
    assert str(refusal.value) == f"dataset: expected the name of a dataset of the run, found {dataset!r}"


def test_numbers_of_numpy_are_answered_in_pythons_own(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.start(config).close()
    found = where(config.output, batch=np.int64(3), slot=np.uint8(1))  # type: ignore[arg-type] # numbers all the same
    assert found == where(config.output, batch=3, slot=1)
    (place,) = found.places
    assert type(place.batch) is type(place.slot) is int
    row, epoch = np.int32(place.dataset_row), np.int8(place.epoch)
    again = where(config.output, dataset=place.dataset, row=row, epoch=epoch)  # type: ignore[arg-type] # as above
    assert again.places == (place,)


def test_where_there_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no run of mixer here"):
        where(str(tmp_path), batch=0, slot=0)


def test_a_fork_tells_its_own_shards_also_when_the_run_before_it_is_gone(tmp_path: Path) -> None:
    first = building.build(mix_config(tmp_path)).output
    new = building.build(building.fork(first, 2, str(tmp_path / "new"), weights=OTHER, batches=6)).output
    Path(first).rename(tmp_path / "elsewhere")
    assert where(new, batch=6, slot=0).places[0].output == new
    with pytest.raises(CorruptionError, match=f"its first 2 shards are those of the run in {first}, but"):
        where(new, batch=5, slot=0)


@pytest.mark.parametrize(
    ("number", "damage", "message"),
    [
        (2, lambda data: None, r"000000000002\.json: missing"),
        (2, lambda data: data[:-9], r"000000000002\.json"),
    ],
    ids=["missing", "cut"],
)
def test_a_damaged_slot_is_named(
    tmp_path: Path, number: int, damage: Callable[[bytes], bytes | None], message: str
) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    slot = Path(config.output, commits.slot_name(number))
    data = damage(slot.read_bytes())
    slot.unlink() if data is None else slot.write_bytes(data)
    with pytest.raises(CorruptionError, match=message):
        where(config.output, batch=3, slot=0)


def test_files_and_row_groups_without_rows_hold_none() -> None:
    groups = {"/a.parquet": (), "/b.parquet": (0, 2, 0, 1), "/c.parquet": (0,), "/d.parquet": (1,)}
    files = [FileEntry(url, 400, "1", sum(rows), rows, 90, "ab") for url, rows in groups.items()]
    found = [in_files(Inventory(tuple(files), ignored=()), row) for row in range(4)]
    assert found == [
        ("/b.parquet", 0, 1, 0),
        ("/b.parquet", 1, 1, 1),
        ("/b.parquet", 2, 3, 0),
        ("/d.parquet", 0, 0, 0),
    ]


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of 10**9 batches of 40 datasets that has just begun."""
    folder = tmp_path_factory.mktemp("long")
    datasets = {}
    for number in range(40):
        path = folder / f"{number:02d}.parquet"
        pq.write_table(pa.table({"n": range(100_000 + number)}), path, row_group_size=10_000)
        datasets[path.stem] = {"path": str(path), "weight": 1 + number * 997 % 40_000, "shuffle": "block"}
    config = config_from({
        "output": str(folder / "out"),
        "batch_size": 512,
        "batches": 10**9,
        "batches_per_shard": 128,
        "on_exhausted": "repeat",
        "datasets": datasets,
    })  # fmt: skip
    building.start(config).close()
    return config.output


@pytest.mark.parametrize("batch", [0, 123_456_789, 10**9 - 1])
def test_nothing_but_the_definition_and_the_end_of_the_log_is_read_wherever_the_place_is(
    long_run: str, batch: int, monkeypatch: pytest.MonkeyPatch, figures: counted.Note
) -> None:
    asked: list[str] = []
    for verb in ("get", "get_range", "stat", "list"):
        honest = getattr(LocalStore, verb)

        def noted(store: LocalStore, name: str, *rest: Any, honest: Any = honest, verb: str = verb, **more: Any) -> Any:
            asked.append(f"{verb} {name}")
            return honest(store, name, *rest, **more)

        monkeypatch.setattr(LocalStore, verb, noted)
    began = time.perf_counter()
    (place,) = where(long_run, batch=batch, slot=511).places
    told = time.perf_counter()
    (back,) = where(long_run, dataset=place.dataset, row=place.dataset_row, epoch=place.epoch).places
    ended = time.perf_counter()
    assert back == place
    assert (
        asked[: len(asked) // 2]
        == asked[len(asked) // 2 :]
        == [
            "get_range .mixer/run.json",
            "list .mixer/checkpoints/",
            "list .mixer/log/",
            "stat .mixer/log/000000000001.json",
            "get_range .mixer/log/000000000000.json",
        ]
    )
    milliseconds = {"forwards": round(1e3 * (told - began)), "backwards": round(1e3 * (ended - told))}
    figures(f"where in 10**9 batches of 40 datasets, batch {batch}, ms", milliseconds)
