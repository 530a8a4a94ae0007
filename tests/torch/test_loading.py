from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from mixer.torch import SlidingWindowDataset, make_dataloader
from mixer.torch.loading import EpochSampler
from tests.profiles import sized

DS = SlidingWindowDataset(np.arange(300, dtype=np.uint16), 8, 5)
"""59 windows, told by their first inputs."""


def starts(loader: DataLoader[Any]) -> list[list[int]]:
    """Return where the windows of each batch begin, and look at them whole."""
    found = []
    for inputs, targets in loader:
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (len(inputs), 8)
        begin = inputs[:, :1]
        assert torch.equal(inputs, begin + torch.arange(8))
        assert torch.equal(targets, begin + torch.arange(1, 9))
        found.append((begin[:, 0] // 5).tolist())
    return found


@settings(max_examples=sized(short=25, long=500))
@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(1, 70), st.booleans())
def test_an_order_is_that_of_a_plain_loader_with_a_generator_of_that_seed(
    base_seed: int, epoch: int, batch_size: int, drop_last: bool
) -> None:
    loader = make_dataloader(DS, batch_size, base_seed, epoch, drop_last=drop_last)
    plain = DataLoader(
        DS, batch_size, shuffle=True, generator=torch.Generator().manual_seed(base_seed + epoch), drop_last=drop_last
    )
    found = starts(loader)
    assert found == starts(plain)
    assert len(loader) == len(plain) == len(found)
    assert isinstance(loader.generator, torch.Generator)
    assert loader.generator.initial_seed() == base_seed + epoch
    assert found == starts(make_dataloader(DS, batch_size, base_seed + epoch, 0, drop_last=drop_last))


def test_all_windows_come_once_and_only_a_short_last_batch_may_be_dropped() -> None:
    whole = starts(make_dataloader(DS, 8, 17))
    assert sorted(window for batch in whole for window in batch) == list(range(59))
    assert [len(batch) for batch in whole] == [8] * 7 + [3]
    assert starts(make_dataloader(DS, 8, 17, drop_last=True)) == whole[:-1]


def test_each_pass_is_the_next_epoch() -> None:
    loader = make_dataloader(DS, 16, 17, 3)
    passes = [starts(loader) for _ in range(3)]
    assert passes == [starts(make_dataloader(DS, 16, 17, epoch)) for epoch in (3, 4, 5)]
    assert len({str(found) for found in passes}) == 3
    assert isinstance(loader.sampler, EpochSampler)
    loader.sampler.set_epoch(3)
    assert starts(loader) == passes[0]


@pytest.mark.parametrize(
    ("start", "workers", "persistent"), [("forkserver", 2, True), ("forkserver", 2, False), ("spawn", 1, True)]
)
def test_workers_change_nothing(start: str, workers: int, persistent: bool, tmp_path: Path) -> None:
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "ids.bin")
    ds = SlidingWindowDataset(np.memmap(tmp_path / "ids.bin", dtype=np.uint16, mode="r"), 8, 5)
    loader = make_dataloader(
        ds, 16, 17, num_workers=workers, persistent_workers=persistent, multiprocessing_context=start
    )
    expected = make_dataloader(DS, 16, 17)
    assert [starts(loader), starts(loader)] == [starts(expected), starts(expected)]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 9))
def test_ranks_share_an_epoch_evenly(items: int, world_size: int, epoch: int) -> None:
    whole = list(EpochSampler(items, 17, epoch))
    ranks = [EpochSampler(items, 17, epoch, rank=rank, world_size=world_size) for rank in range(world_size)]
    for rank, sampler in enumerate(ranks):
        assert len(sampler) == items // world_size
        assert list(sampler) == whole[rank : items // world_size * world_size : world_size]


def test_many_items_come_in_the_order_that_is_made_at_once() -> None:
    items = 2 * (1 << 16) + 5
    generator = torch.Generator().manual_seed(20)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    assert list(EpochSampler(items, 17, 3)) == torch.randperm(items, generator=generator).tolist()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ds": iter([])}, "ds: expected a dataset with a length, found list_iterator"),
        ({"ds": torch.tensor(1.5)}, "ds: expected a dataset with a length, found Tensor"),
        ({"drop_last": "no"}, "drop_last: expected True or False, found 'no'"),
        ({"persistent_workers": []}, r"persistent_workers: expected True or False, found \[\]"),
        ({"rank": 0, "world_size": 2**70}, "world_size: expected at most 2147483647, found 1180591620717411303424"),
        ({"batch_size": 0}, "batch_size: expected a whole number from 1, found 0"),
        ({"base_seed": -1}, "base_seed: expected a whole number from 0, found -1"),
        ({"base_seed": 2**63}, r"base_seed \+ epoch: expected less than 2\*\*63, found 9223372036854775808"),
        ({"epoch": -1}, "epoch: expected a whole number from 0, found -1"),
        ({"epoch": 1.5}, "epoch: expected a whole number from 0, found 1.5"),
        ({"num_workers": -1}, "num_workers: expected a whole number from 0, found -1"),
        ({"persistent_workers": True}, "persistent_workers: expected num_workers from 1 with it, found num_workers=0"),
        ({"rank": 3, "world_size": 2}, "rank: expected less than world_size=2, found 3"),
        ({"shuffle": False}, "shuffle: the order follows from base_seed and epoch; .*"),
        ({"generator": None, "sampler": None}, "generator, sampler: the order follows from base_seed and epoch; .*"),
    ],
)
def test_a_bad_argument_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make_dataloader(**{"ds": DS, "batch_size": 4, "base_seed": 1, "epoch": 0, **bad})
