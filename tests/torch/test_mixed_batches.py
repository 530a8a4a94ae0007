from __future__ import annotations

import itertools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from mixer import building
from mixer.errors import ChangedError, ConfigError, CorruptionError
from mixer.torch import MixedBatches
from mixer.torch.batch_tensors import Ragged
from tests.mixes import mix_config
from tests.torch.numbered import ALL, BATCHES, numbers

BATCH_SIZE = 4
FAR = 3
"""Batches after which shard and row group both end: shards of six batches, row groups of three."""


def test_batches_are_tensors_and_lists(output: str) -> None:
    batch = next(iter(MixedBatches(output)))
    assert batch["text"] == ["web 0", "web 1", "code 0", "books 0"]
    assert batch["_dataset"] == ["web", "web", "code", "books"]
    assert batch["n"].equal(torch.tensor([0, 1, 0, 0]))
    assert list(next(iter(MixedBatches(output, columns=["n", "_batch"])))) == ["n", "_batch"]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_order_is_that_of_the_run_with_any_number_of_workers(output: str, workers: int) -> None:
    dataset = MixedBatches(output, start_batch=1, columns=["_batch", "n"])
    plain = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert numbers(plain) == ALL[1:]
    assert numbers(plain) == ALL[1:]
    loader = dataset.loader(num_workers=workers)
    assert len(loader) == 11
    assert numbers(loader) == ALL[1:]
    assert numbers(loader) == ALL[1:]


@pytest.mark.parametrize("stop", [0, 1, 5, FAR, 6, 11, BATCHES])
def test_a_state_of_four_ranks_and_two_workers_goes_on_with_three_ranks_and_none(output: str, stop: int) -> None:
    whole = numbers(MixedBatches(output))
    saved = MixedBatches(output, rank=3, world_size=4, columns=["_batch"]).loader(
        num_workers=2 if stop in {5, 6} else 0
    )
    assert numbers(itertools.islice(saved, stop)) == whole[:stop]
    state = saved.state_dict()
    assert set(state) == {"run", "next_batch"}
    # Twice in a row.
    with pytest.warns(UserWarning, match="every batch of 4 rows"):
        first, second, rest = (MixedBatches(output, rank=rank, world_size=3).loader() for rank in (0, 2, 1))
    first.load_state_dict(state)
    middle = numbers(itertools.islice(first, 2))
    again = pickle.loads(pickle.dumps(first.state_dict()))  # noqa: S301 -- as a checkpoint is
    second.load_state_dict(again)
    assert second.state_dict() == again
    last = numbers(itertools.islice(second, 1))
    rest.load_state_dict(second.state_dict())
    assert len(rest) == len(whole) - stop - len(middle) - len(last)
    assert whole[:stop] + middle + last + numbers(rest) == whole
    # The next pass begins at the beginning.
    assert numbers(rest) == whole


@settings(max_examples=25, deadline=None)
@given(start=st.integers(0, BATCHES), stops=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_any_cut_of_the_sequence_goes_on_exactly(output: str, start: int, stops: list[int]) -> None:
    found: list[int] = []
    loader = MixedBatches(output, start_batch=start, columns=["_batch"]).loader()
    for stop in stops:
        found += numbers(itertools.islice(loader, stop))
        state = loader.state_dict()
        loader = MixedBatches(output, start_batch=start, columns=["_batch"]).loader()
        loader.load_state_dict(state)
    assert found + numbers(loader) == ALL[start:]


def test_the_dataset_itself_has_a_state_where_it_is_iterated_over_here(output: str) -> None:
    dataset = MixedBatches(output)
    assert dataset.state_dict()["next_batch"] == 0
    assert numbers(itertools.islice(DataLoader(dataset, batch_size=None), 5)) == ALL[:5]
    state = dataset.state_dict()
    assert state == {"run": dataset.fingerprint, "next_batch": 5}
    other = MixedBatches(output)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert numbers(other) == ALL[5:]
    assert other.state_dict()["next_batch"] == BATCHES
    assert numbers(other) == ALL


def test_a_plain_loader_with_workers_goes_on_from_a_state_once(output: str) -> None:
    dataset = MixedBatches(output)
    dataset.load_state_dict(dataset.state_dict(next_batch=7))
    plain = DataLoader(dataset, batch_size=None, num_workers=2)
    assert numbers(plain) == ALL[7:]
    assert numbers(plain) == ALL
    dataset.load_state_dict(dataset.state_dict(next_batch=11))
    assert numbers(plain) == ALL[11:]


def test_a_state_that_the_dataset_cannot_know_is_refused(output: str) -> None:
    dataset = MixedBatches(output)
    assert numbers(itertools.islice(DataLoader(dataset, batch_size=None, num_workers=1), 2)) == ALL[:2]
    with pytest.raises(RuntimeError, match=r"iterate over dataset\.loader\(num_workers=\.\.\.\)"):
        dataset.state_dict()
    assert dataset.state_dict(next_batch=2)["next_batch"] == 2
    other = MixedBatches(output)
    next(iter(other.loader()))
    with pytest.raises(RuntimeError, match="others have read ahead"):
        other.state_dict()


def test_a_worker_of_a_stateful_loader_goes_on_where_it_was(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `torchdata`'s `StatefulDataLoader` does in each of its workers."""

    class Info:
        id, num_workers, seed = 1, 2, 1001

    monkeypatch.setattr("mixer.torch.mixed_batches.get_worker_info", lambda: Info)
    dataset = MixedBatches(output)
    assert numbers(itertools.islice(dataset, 2)) == [1, 3]
    state = dataset.state_dict()
    other = MixedBatches(output)
    other.load_state_dict(state)
    assert numbers(other) == [5, 7, 9, 11]
    monkeypatch.setattr(Info, "num_workers", 3)
    other.load_state_dict(state)
    with pytest.raises(ConfigError, match="saved by worker 1 of 2, loaded in worker 1 of 3"):
        next(iter(other))
    with pytest.raises(ConfigError, match="one worker of several"):
        dataset.loader().load_state_dict(state)


def test_a_state_of_another_run_is_refused(output: str, tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    state = MixedBatches(config.output).loader().state_dict()
    for one in (MixedBatches(output), MixedBatches(output).loader()):
        with pytest.raises(ChangedError, match=r"expected the run with the fingerprint .*, found .*; a state goes on"):
            one.load_state_dict(state)
        damages: tuple[Any, ...] = ({}, None, {"run": 3, "next_batch": 1}, {**one.state_dict(), "more": 1})
        for damaged in damages:
            with pytest.raises(ConfigError, match="state: expected `run` and `next_batch`"):
                one.load_state_dict(damaged)
        with pytest.raises(ConfigError, match="state: next_batch: expected a whole number from 0, found -1"):
            one.load_state_dict({**one.state_dict(), "next_batch": -1})
        with pytest.raises(ConfigError, match="state: next_batch 13: the run has batches 0 to 11"):
            one.load_state_dict({**one.state_dict(), "next_batch": 13})


def test_a_state_outlives_an_extension_of_the_run(tmp_path: Path) -> None:
    building.build(mix_config(tmp_path, batches=7))
    output = str(tmp_path / "out")
    loader = MixedBatches(output).loader()
    list(loader)
    building.build(mix_config(tmp_path, batches=10), extend=True)
    longer = MixedBatches(output).loader()
    longer.load_state_dict(loader.state_dict())
    assert numbers(longer) == [7, 8, 9]


def test_what_a_loader_of_batches_cannot_have_is_refused(output: str) -> None:
    dataset = MixedBatches(output)
    for option in ({"batch_size": 3}, {"shuffle": True}, {"collate_fn": list}):
        with pytest.raises(ValueError, match="batches are those of the run"):
            dataset.loader(**option)
    for option in ({"persistent_workers": True}, {"in_order": False}):
        with pytest.raises(ValueError, match="persistent_workers, in_order"):
            dataset.loader(num_workers=1, **option)


def test_damage_that_a_worker_finds_ends_the_training(out: Path) -> None:
    shard = out / "data/shard-00000002.parquet"
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    batches = iter(MixedBatches(str(out)).loader(num_workers=1))
    assert numbers(itertools.islice(batches, 6)) == ALL[:6]
    with pytest.raises(CorruptionError, match=r"shard-00000002\.parquet"):
        next(batches)


LENGTHS = [3, 3, 5, 5, 2, 2, 7, 7]


def rich_run(folder: Path, **more: pa.Array) -> str:
    """Make a run of four batches of two rows that have one length each; return its output."""
    ids = [list(range(row, row + length)) for row, length in enumerate(LENGTHS)]
    columns = {
        "ids": pa.array(ids, pa.list_(pa.int32())),
        "mixed": pa.array([list(range(row)) for row in range(8)], pa.list_(pa.uint16())),
        "windows": pa.array([np.array(row, "<u2").tobytes() for row in ids], pa.binary()),
        "items": pa.array([[row] * 3 for row in ids], pa.list_(pa.list_(pa.int64()))),
        "uneven": pa.array([[[row]] * row for row in range(8)], pa.list_(pa.list_(pa.int64()))),
        "x": pa.array(np.arange(8) / 2, pa.float32()),
        "half": pa.array(np.arange(8).astype(np.float16)),
        "flag": pa.array([row % 3 == 0 for row in range(8)]),
        "day": pa.array(range(8), pa.int32()).cast(pa.date32()),
        **more,
    }
    pq.write_table(pa.table(columns), folder / "rich.parquet")
    datasets = {"rich": {"path": str(folder / "rich.parquet"), "weight": 1}}
    config = mix_config(
        folder, batch_size=2, batches=4, batches_per_shard=4, datasets=datasets, batches_per_row_group=2
    )
    building.build(config)
    return config.output


@pytest.mark.parametrize("world_size", [1, 2])
def test_lists_of_one_length_in_a_batch_are_a_tensor_and_others_what_was_asked(tmp_path: Path, world_size: int) -> None:
    output = rich_run(tmp_path)
    dataset = MixedBatches(
        output,
        rank=world_size - 1,
        world_size=world_size,
        binary={"windows": "uint16"},
        ragged=["mixed", "uneven"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = list(dataset)
    assert len(batches) == 4
    for number, batch in enumerate(batches):
        rows = list(range(2 * number, 2 * number + 2))[world_size - 1 :]
        length = LENGTHS[rows[0]]
        ids = torch.tensor([list(range(row, row + length)) for row in rows])
        assert batch["ids"].dtype == torch.int32
        assert batch["ids"].equal(ids.int())
        assert batch["windows"].dtype == torch.uint16
        assert batch["windows"].long().equal(ids)
        assert batch["items"].equal(ids[:, None, :].expand(-1, 3, -1))
        assert batch["x"].equal(torch.tensor(rows).float() / 2)
        assert batch["half"].equal(torch.tensor(rows).half())
        assert batch["flag"].tolist() == [row % 3 == 0 for row in rows]
        assert [day.toordinal() for day in batch["day"]] == [719163 + row for row in rows]
        ragged = batch["mixed"]
        assert isinstance(ragged, Ragged)
        nested = [ragged.values[a:b].long().tolist() for a, b in itertools.pairwise(ragged.offsets.tolist())]
        assert nested == [list(range(row)) for row in rows]
        assert [row_.tolist() for row_ in batch["uneven"]] == [[[row]] * row for row in rows]


def test_tensors_may_be_written_to_and_share_nothing_with_each_other(tmp_path: Path) -> None:
    output = rich_run(tmp_path)
    columns = ["ids", "x", "items", "_batch"]
    untouched = list(MixedBatches(output, columns=columns))
    batches = MixedBatches(output, columns=columns)
    for batch, expected in zip(batches, untouched, strict=True):
        for name in columns:
            assert batch[name].equal(expected[name])
            batch[name].fill_(-1)
    assert [batch["x"].tolist() for batch in untouched] == [[0, 0.5], [1, 1.5], [2, 2.5], [3, 3.5]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ragged": ["x"]}, "ragged: expected columns of lists that are read, found 'x'; there are ids"),
        ({"ragged": ["idz"]}, "found 'idz'"),
        ({"binary": {"ids": "uint16"}}, "binary: expected binary columns that are read, found 'ids'"),
        ({"binary": {"windows": "int7"}}, "binary: column 'windows': expected one of int8, int16"),
        ({"binary": {"windows": "uint16"}, "columns": ["x"]}, "found 'windows'"),
    ],
)
def test_options_for_columns_that_cannot_have_them_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    output = rich_run(tmp_path)
    with pytest.raises(ConfigError, match=expected):
        MixedBatches(output, **options)


def test_what_no_tensor_can_hold_is_refused_with_its_column(tmp_path: Path) -> None:
    output = rich_run(tmp_path, gap=pa.array([1, None] * 4), gaps=pa.array([[1], [None]] * 4))
    refusals: dict[str, tuple[dict[str, str], str]] = {
        "mixed": ({}, "column 'mixed': its lists have from 0 to 1 elements within a batch"),
        "gap": ({}, "column 'gap': has nulls, which a tensor cannot hold"),
        "gaps": ({}, "column 'gaps': has nulls"),
        "windows": ({"windows": "uint64"}, "column 'windows': expected numbers of 8 bytes"),
    }
    for column, (binary, expected) in refusals.items():
        with pytest.raises(ConfigError, match=expected):
            next(iter(MixedBatches(output, columns=[column], binary=binary)))
