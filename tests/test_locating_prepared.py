"""Places and rows of datasets that are prepared: windows, batches, other formats and full shuffles, read back."""

from __future__ import annotations

import json
import uuid
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer import building
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.errors import OutputError
from mixer.formats import stage
from mixer.locating import MOST, Location, where
from mixer.preparation import batching, sorting
from mixer.preparation.cutting import Cuts
from mixer.preparation.tokens import Sizes
from tests.profiles import sized

NAMES = ("web", "code", "books")
ROWS = {"web": 26, "code": 17, "books": 11}
SHUFFLES = (None, "block", "full")
KINDS = ("lines", "windows", "padded", "batches")
SMALL = Cuts(row_group_bytes=60, part_bytes=400)
PAD = 0
LINEAGE = ("_dataset", "_row", "_epoch", "_batch")

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut copies so small that there are several files, and row groups in each; blocks, too."""
    monkeypatch.setattr("mixer.preparation.tokens.SIZES", Sizes(row_group_ids=6, part_row_groups=2))
    monkeypatch.setattr("mixer.core.streams.BLOCK_BYTES", 100)
    monkeypatch.setattr("mixer.asking.BLOCK_ROWS", 5)
    for module, name in ((sorting, "FullShuffleStage"), (batching, "BatchesStage")):
        monkeypatch.setattr(module, name, partial(getattr(module, name), cuts=SMALL))
    monkeypatch.setattr(stage, "RowsStage", partial(stage.RowsStage, part_bytes=600, row_group_bytes=150))
    for cached in (read, read_all, stage_rows):
        cached.cache_clear()


def ids_of(row: int) -> list[int]:
    """Return the ids in a row: together they count up from 1, and a length occurs often."""
    start = 1 + sum(1 + before % 3 for before in range(row))
    return list(range(start, start + 1 + row % 3))


def stream_of(name: str) -> list[int]:
    return [identity for row in range(ROWS[name]) for identity in ids_of(row)]


def config_of(folder: Path, kind: str, shuffles: tuple[str | None, ...], **changes: Any) -> MixConfig:
    """Return a config of datasets of a kind, each with its shuffle, and with its inputs made."""
    folder.mkdir(exist_ok=True)
    datasets: dict[str, Row] = {}
    for weight, (name, shuffle) in enumerate(zip(NAMES, shuffles, strict=True), 1):
        rows = [{"ids": ids_of(row), "n": row} for row in range(ROWS[name])]
        if kind == "lines":
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            datasets[name] = {"path": str(folder / f"{name}.jsonl")}
        else:
            schema = pa.schema({"ids": pa.list_(pa.int32()), "n": pa.int64()})
            pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet", row_group_size=4)
            datasets[name] = {"path": str(folder / f"{name}.parquet")}
        if kind in {"windows", "padded"}:
            datasets[name]["window"] = {"text": "ids", "context_length": 3, "stride": 2, "vocabulary": 99}
            if kind == "padded":
                datasets[name]["window"] |= {"pad_id": PAD, "context_length": 7, "stride": 7}
        if kind == "batches":
            datasets[name]["batches"] = {"by": "ids", "size": 2, "include_partial": True}
        datasets[name] |= {"weight": weight, **({"shuffle": shuffle} if shuffle else {})}
    values = {"output": str(folder / "out"), "batch_size": 5, "batches_per_shard": 2, "batches_per_row_group": 1}
    return config_from({**values, "on_exhausted": "redistribute", **changes, "datasets": datasets})


@cache
def read(path: str, row_group: int) -> list[Row]:
    """Return the rows of a row group."""
    with pq.ParquetFile(path) as file:
        rows: list[Row] = file.read_row_group(row_group).to_pylist()
    return rows


@cache
def read_all(path: str) -> list[Row]:
    """Return the rows of a file."""
    with pq.ParquetFile(path) as file:
        rows: list[Row] = file.read().to_pylist()
    return rows


@cache
def stage_rows(folder: str) -> list[Row]:
    """Return the rows of a prepared copy."""
    return [row for path in sorted(Path(folder, "data").iterdir()) for row in read_all(str(path))]


def mixed(config: MixConfig) -> list[Row]:
    """Return the rows of a finished run in their order, wherever its shards lie."""
    listed = json.loads(Path(config.output, commits.MANIFEST_NAME).read_bytes())["shards"]
    return [row for entry in listed for row in read_all(f"{entry.get('output', config.output)}/{entry['path']}")]


def expected(config: MixConfig, kind: str, name: str, number: int) -> Row:
    """Return what an item of a dataset holds, by its number: from the input alone, or from the copy of all batches."""
    window = config.datasets[name].window
    if window is not None:
        first = number * (window.stride or 0)
        ids = stream_of(name)[first : first + window.context_length + 1]
        return {"input_ids": ids + [PAD] * (window.context_length + 1 - len(ids))}
    if kind == "batches":
        (made,) = [one for one in building.prepare(config).stages if (one.dataset, one.kind) == (name, "batches")]
        return stage_rows(made.where)[number]
    return {"ids": ids_of(number), "n": number}


def assert_is_there(config: MixConfig, kind: str, place: Location) -> None:
    """Check every number of a place by reading what is there: the shard, and the files that the mix has read."""
    row = read_all(f"{place.output}/{place.path}")[place.shard_row]
    assert read(f"{place.output}/{place.path}", place.row_group)[place.row_group_row] == row
    told = (place.dataset, place.dataset_row, place.epoch, place.batch)
    assert tuple(row.get(column, 0) for column in LINEAGE) == told
    content = {column: value for column, value in row.items() if column not in LINEAGE}
    assert content == expected(config, kind, place.dataset, place.dataset_row)
    pieces = [read_all(piece.file)[piece.start : piece.stop] for piece in place.pieces]
    first, rows = pieces[0][0], [one for piece in pieces for one in piece]
    assert (place.pieces[0].file, place.pieces[0].start) == (place.file, place.file_row)
    assert read(place.file, place.file_row_group)[place.file_row_group_row] == first
    assert (place.copy or "no copy") == (Path(place.file).parent.parent.name if place.copy else "no copy")
    if kind not in {"windows", "padded"}:
        assert (rows, place.ids) == ([content], None)
        return
    assert place.ids is not None
    ids = stream_of(place.dataset)[slice(*place.ids)]
    assert len(ids) == place.ids[1] - place.ids[0] > 0
    assert content["input_ids"][: len(ids)] == ids
    assert set(content["input_ids"][len(ids) :]) <= {PAD}
    if config.datasets[place.dataset].shuffle == "full":
        assert rows == [content]
    else:
        assert [one["token"] for one in rows] == ids


def assert_all_is_found(config: MixConfig, kind: str, step: int = 1) -> list[Location]:
    """Check every `step`-th place of a finished run, and every place of the item that is there; return the places."""
    rows = mixed(config)
    found = []
    for number in range(0, len(rows), step):
        batch, slot = divmod(number, config.batch_size)
        (place,) = where(config.output, batch=batch, slot=slot).places
        assert (place.batch, place.slot, place.row) == (batch, slot, number)
        assert place.item == {"lines": "row", "batches": "batch"}.get(kind, "window")
        assert_is_there(config, kind, place)
        found.append(place)
        item = (place.dataset, place.dataset_row)
        back = where(config.output, dataset=place.dataset, row=place.dataset_row)
        there = [at for at, row in enumerate(rows) if (row["_dataset"], row["_row"]) == item]
        assert (back.count, [one.row for one in back.places]) == (len(there), there[:MOST])
        assert back.places[place.epoch : place.epoch + 1] == ((place,) if place.epoch < MOST else ())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_slot_is_told_what_is_there_and_where_it_is_read(tmp_path: Path, kind: str) -> None:
    config = config_of(tmp_path, kind, SHUFFLES)
    building.build(config)
    found = assert_all_is_found(config, kind)
    keys = {made.dataset: made.key for made in building.prepare(config).stages}
    assert {place.dataset: place.copy for place in found} == {name: keys.get(name) for name in NAMES}
    # All that is special has been seen.
    assert len({place.file for place in found if place.dataset == "web"}) > 1
    assert len({len(place.pieces) for place in found}) == 1 + (kind in {"windows", "padded"})
    assert len({place.file_row_group for place in found if place.dataset == "web"}) > 1
    filled = [place.ids for place in found if place.ids is not None and place.ids[1] - place.ids[0] < 8]
    assert kind != "padded" or filled


@settings(max_examples=sized(short=6, long=150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    shuffles=st.tuples(*[st.sampled_from(SHUFFLES)] * 3),
    batches=st.integers(1, 30),
    seed=st.integers(0, 2**62),
)
def test_of_datasets_that_are_repeated_every_epoch_is_told(
    tmp_path: Path, kind: str, shuffles: tuple[str | None, ...], batches: int, seed: int
) -> None:
    config = config_of(tmp_path / uuid.uuid4().hex, kind, shuffles, on_exhausted="repeat", batches=batches, seed=seed)
    building.build(config)
    assert_all_is_found(config, kind, step=max(1, batches * 5 // sized(short=6, long=40)))


@pytest.mark.parametrize("kind", ["lines", "windows"])
def test_runs_that_are_longer_or_forked_are_told_by_the_copies_they_keep(tmp_path: Path, kind: str) -> None:
    config = config_of(tmp_path, kind, SHUFFLES, on_exhausted="repeat", batches=11)
    building.build(config)
    longer = config.model_copy(update={"batches": 13})
    building.build(longer, extend=True)
    assert_all_is_found(longer, kind, step=4)
    # It goes on in the middle of an epoch.
    fork = building.fork(config.output, 3, str(tmp_path / "fork"), weights={"web": 1, "books": 1}, batches=6)
    building.build(fork)
    found = assert_all_is_found(fork, kind, step=4)
    assert len({place.output for place in found}) == 2


def test_windows_lie_in_the_ids_that_they_share(tmp_path: Path) -> None:
    config = config_of(tmp_path, "windows", (None, None, None))
    building.start(config).close()
    windows = [where(config.output, dataset="web", row=row).places[0] for row in range(20)]
    assert [place.ids for place in windows] == [(2 * row, 2 * row + 4) for row in range(20)]
    for one, next_ in pairwise(windows):
        assert (next_.file, next_.file_row) >= (one.file, one.file_row)
    (over,) = {place for place in windows if place.ids == (10, 14)}
    # Files hold 12 ids each.
    assert [(Path(piece.file).name, piece.start, piece.stop) for piece in over.pieces] == [
        ("part-00000000.parquet", 10, 12),
        ("part-00000001.parquet", 0, 2),
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("lines", "row 900: dataset 'books' has rows 0 to 10"),
        ("windows", "window 900: dataset 'books' has windows 0 to 8"),
        ("batches", "batch 900: dataset 'books' has batches 0 to 5"),
    ],
)
def test_what_a_dataset_has_not_is_told_by_what_it_is_made_of(tmp_path: Path, kind: str, said: str) -> None:
    config = config_of(tmp_path, kind, (None, None, "full"))
    building.start(config).close()
    with pytest.raises(OutputError) as refusal:
        where(config.output, dataset="books", row=900)
    assert str(refusal.value) == f"{config.output}: {said}"


def test_a_row_of_a_full_shuffle_that_is_not_taken_is_told_its_position(tmp_path: Path) -> None:
    config = config_of(tmp_path, "lines", ("full", None, None), on_exhausted="error", batches=4)
    building.build(config)
    taken = [row["_row"] for row in mixed(config) if row["_dataset"] == "web"]
    assert 0 < len(taken) < ROWS["web"]
    positions = set()
    for row in set(range(ROWS["web"])) - set(taken):
        found = where(config.output, dataset="web", row=row)
        assert found.places == ()
        before, _, after = (found.why or "").partition(f"in epoch 0 row {row} of dataset 'web' would come at position ")
        assert before == "it is beyond what the run takes: "
        positions.add(int(after.partition(",")[0]))
    assert positions == set(range(len(taken), ROWS["web"]))
