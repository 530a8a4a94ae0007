"""States that are loaded: which pass goes on from them, what counts for the next one, and which are refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from mixer import building
from mixer.errors import ConfigError, OutputError
from mixer.torch import MixedBatches
from tests.mixes import mix_config
from tests.torch.numbered import ALL, numbers


@pytest.mark.parametrize("workers", [0, 2])
def test_one_pass_goes_on_from_a_state_and_all_others_begin_at_the_start(output: str, workers: int) -> None:
    dataset = MixedBatches(output, start_batch=2)
    dataset.load_state_dict(dataset.state_dict(next_batch=9))
    assert [numbers(dataset.loader(num_workers=workers)) for _ in range(2)] == [ALL[9:], ALL[2:]]
    assert numbers(dataset) == ALL[2:]
    loader = dataset.loader(num_workers=workers)
    loader.load_state_dict(dataset.state_dict(next_batch=7))
    assert [(len(loader), numbers(loader)) for _ in range(2)] == [(5, ALL[7:]), (10, ALL[2:])]


def test_a_state_that_is_loaded_while_a_loader_waits_is_for_the_next_loader(output: str) -> None:
    dataset = MixedBatches(output)
    dataset.load_state_dict(dataset.state_dict(next_batch=9))
    loader = dataset.loader()
    dataset.load_state_dict(dataset.state_dict(next_batch=4))
    assert numbers(loader) == ALL[9:]
    assert numbers(dataset.loader()) == ALL[4:]


def test_only_the_newest_pass_counts_for_the_state(output: str) -> None:
    loader = MixedBatches(output).loader()
    old = iter(loader)
    assert numbers(itertools.islice(old, 3)) == ALL[:3]
    new = iter(loader)
    assert loader.state_dict()["next_batch"] == 0
    assert numbers(itertools.islice(new, 1)) == ALL[:1]
    assert numbers(itertools.islice(old, 1)) == ALL[3:4]
    assert loader.state_dict()["next_batch"] == 1
    loader.load_state_dict({**loader.state_dict(), "next_batch": 6})
    assert numbers(itertools.islice(new, 1)) == ALL[1:2]
    assert loader.state_dict()["next_batch"] == 6


def test_a_state_from_beyond_what_is_committed_is_refused_unless_it_is_waited_for(tmp_path: Path) -> None:
    with building.start(mix_config(tmp_path)) as run:
        run.write(2)
    dataset = MixedBatches(str(tmp_path / "out"))
    dataset.load_state_dict(dataset.state_dict(next_batch=5))
    assert numbers(dataset.loader()) == [5]
    for one in (dataset, dataset.loader()):
        for next_batch in (6, 12):
            with pytest.raises(OutputError, match=f"batch {next_batch} was not committed yet .* so far there were 6"):
                one.load_state_dict(dataset.state_dict(next_batch=next_batch))
    followed = MixedBatches(str(tmp_path / "out"), follow=True)
    followed.load_state_dict(dataset.state_dict(next_batch=8))
    agreed = MixedBatches(str(tmp_path / "out"), stop_batch=6)
    agreed.load_state_dict(dataset.state_dict(next_batch=6))
    assert numbers(agreed) == []
    building.build(mix_config(tmp_path))
    assert numbers(followed.loader()) == ALL[8:]


@pytest.mark.parametrize("worker", [5, [1], ["a", "b"], [2, 2], "ab"])
def test_a_worker_that_cannot_be_is_refused(output: str, worker: object) -> None:
    dataset = MixedBatches(output)
    with pytest.raises(ConfigError, match="state: worker: expected a worker's number and how many there are, found"):
        dataset.load_state_dict({**dataset.state_dict(), "worker": worker})
