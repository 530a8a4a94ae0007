from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from mixer.core.lengths import group_by_length
from mixer.torch import FixedLengthBatchSampler
from tests.profiles import sized
from tests.torch.sequences import Sequences

SOME = [3, 7, 3, 3, 7, 3, 3, 9, 7, 3, 12, 9, 7, 3, 3]


def sampler_of(lengths: Any = SOME, batch_size: int = 2, **options: Any) -> FixedLengthBatchSampler:
    return FixedLengthBatchSampler(None, batch_size, lengths=lengths, **options)


def used(loader: DataLoader[torch.Tensor]) -> list[list[int]]:
    """Return the items of each batch; that they could be stacked says that they are of one length."""
    return [batch[:, 0].tolist() for batch in loader]


options = st.fixed_dictionaries(
    {},
    optional={
        "include_partial": st.booleans(),
        "maxlen": st.integers(0, 8),
        "length_to_size": st.dictionaries(st.integers(0, 9), st.integers(1, 4)),
    },
)
few = st.lists(st.integers(0, 9), max_size=30)


@given(few, st.integers(1, 4), options, st.integers(1, 3), st.integers(0, 9))
def test_epochs_are_the_batches_of_base_seed_and_epoch_and_len_is_always_right(
    lengths: list[int], batch_size: int, chosen: dict[str, Any], world_size: int, seed: int
) -> None:
    groups = group_by_length(lengths, batch_size, world_size=world_size, **chosen)
    ranks = [
        sampler_of(lengths, batch_size, rng=seed, rank=rank, world_size=world_size, **chosen)
        for rank in range(world_size)
    ]
    for epoch in range(3):
        whole = groups.batches(seed + epoch, "lengths")
        expected = [whole.order[start:stop].tolist() for start, stop in itertools.pairwise(whole.offsets.tolist())]
        for rank, sampler in enumerate(ranks):
            assert len(sampler) == groups.steps
            assert list(sampler) == expected[rank::world_size]
            assert len(sampler) == groups.steps
    assert ranks[0].report == groups.dropped()


@given(few, options, st.lists(st.integers(0, 12), max_size=6), st.integers(1, 2))
def test_a_sampler_that_is_stopped_again_and_again_goes_on_as_if_it_never_was(
    lengths: list[int], chosen: dict[str, Any], stops: list[int], world_size: int
) -> None:
    def make() -> FixedLengthBatchSampler:
        return sampler_of(lengths, 2, rng=3, rank=world_size - 1, world_size=world_size, **chosen)

    whole = make()
    expected = [list(whole) for _ in range(8)]
    here, sampler, epoch, found = make(), None, 0, [[] for _ in range(8)]  # type: ignore[var-annotated] # of lists
    for stop in stops:
        sampler = here
        taken = list(itertools.islice(iter(sampler), stop))
        found[epoch] += taken
        epoch += len(taken) < stop
        state = json.loads(json.dumps(sampler.state_dict()))
        assert state["epoch"] == epoch
        here = make()
        here.load_state_dict(state)
    while epoch < 8:
        found[epoch] += list(here)
        epoch += 1
    assert found == expected


def test_a_state_is_the_same_at_once_after_it_was_loaded_and_on_every_rank() -> None:
    sampler = sampler_of(rank=0, world_size=2)
    next(iter(sampler))
    state = sampler.state_dict()
    assert (state["epoch"], state["batches_done"]) == (0, 1)
    other = sampler_of(rank=1, world_size=2)
    other.load_state_dict(state)
    assert other.state_dict() == state
    rest = list(other)
    whole = sampler_of(rank=1, world_size=2)
    assert rest == list(whole)[1:]


def test_the_last_batch_of_an_epoch_and_the_end_of_it_are_two_states() -> None:
    sampler = sampler_of()
    batches = iter(sampler)
    for _ in range(len(sampler)):
        next(batches)
    after_last = sampler.state_dict()
    assert next(batches, None) is None
    after_end = sampler.state_dict()
    second = list(sampler)
    for state, expected in ((after_last, [[], second]), (after_end, [second])):
        resumed = sampler_of()
        resumed.load_state_dict(state)
        assert [list(resumed) for _ in expected] == expected


def test_an_epoch_that_is_left_early_is_not_finished_by_the_next_iteration() -> None:
    sampler, other = sampler_of(), sampler_of()
    for _ in sampler:
        break
    list(other)
    assert list(sampler) == list(other)


def test_iterators_that_are_never_used_cost_no_epoch() -> None:
    sampler = sampler_of()
    first, _, third = iter(sampler), iter(sampler), iter(sampler)
    fresh = sampler_of()
    assert list(first) == list(fresh)
    assert list(third) == list(fresh)


def test_set_epoch_makes_an_epoch_without_those_before_it() -> None:
    sampler, other = sampler_of(rng=5), sampler_of(rng=5)
    epochs = [list(sampler) for _ in range(4)]
    assert len({str(epoch) for epoch in epochs}) == 4
    other.set_epoch(3)
    assert other.epoch == 3
    assert list(other) == epochs[3]
    other.set_epoch(1)
    assert [list(other), list(other)] == epochs[1:3]
    next(iter(other))
    other.set_epoch(other.epoch + 1)
    assert (other.state_dict()["epoch"], other.state_dict()["batches_done"]) == (4, 0)
    later = sampler_of(rng=7)
    later.set_epoch(1)
    assert list(later) == epochs[3]


def test_set_epoch_for_the_epoch_of_a_state_keeps_the_place_in_it() -> None:
    sampler = sampler_of()
    list(sampler)
    epoch = list(sampler)
    again = sampler_of()
    again.set_epoch(1)
    list(itertools.islice(iter(again), 2))
    state = again.state_dict()
    for chosen, expected in ((1, epoch[2:]), (0, list(sampler_of()))):
        resumed = sampler_of()
        resumed.load_state_dict(state)
        resumed.set_epoch(chosen)
        assert list(resumed) == expected
    # Who begins an epoch again without a state gets all of it.
    again.set_epoch(1)
    assert list(again) == epoch


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"lengths": [*SOME[:-1], 4]}, "lengths_sha256 was "),
        ({"lengths": [*SOME, 3]}, "lengths was 15 and is 16; lengths_sha256 was "),
        ({"batch_size": 3}, "batch_size was 2 and is 3"),
        ({"include_partial": True}, "include_partial was False and is True"),
        ({"maxlen": 9}, "maxlen was 0 and is 9"),
        ({"length_to_size": {9: 1}}, r"length_to_size was \[\] and is \[\[9, 1\]\]"),
        ({"world_size": 2, "rank": 0}, "world_size was 1 and is 2"),
        ({"rng": 4}, "base_seed was 0 and is 4"),
    ],
)
def test_the_state_of_another_sampler_is_refused(other: dict[str, Any], what: str) -> None:
    state = sampler_of().state_dict()
    sampler = sampler_of(**{"lengths": SOME, **other})
    expected = list(copy.deepcopy(sampler))
    with pytest.raises(ValueError, match=f"it is the state of another sampler; .*{what}"):
        sampler.load_state_dict(state)
    assert list(sampler) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {},
        lambda state: None,
        lambda state: {**state, "more": 1},
        lambda state: {**state, "format": 2},
        lambda state: {**state, "sampler": None},
        lambda state: {**state, "epoch": -1},
        lambda state: {**state, "epoch": "0"},
        lambda state: {**state, "batches_done": 1000},
    ],
)
def test_what_is_no_state_is_refused(change: Callable[[Any], Any]) -> None:
    sampler = sampler_of()
    with pytest.raises(ValueError, match=r"^state_dict"):
        sampler.load_state_dict(change(sampler.state_dict()))
    assert list(sampler) == list(sampler_of())


GENERATORS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.random.default_rng(5),
    "numpy of old": lambda: np.random.RandomState(5),
    "random": lambda: random.Random(5),  # noqa: S311 -- repeatable on purpose
    "torch": lambda: torch.Generator().manual_seed(5),
}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_a_generator_gives_a_base_seed(make: Callable[[], Any]) -> None:
    rng = make()
    sampler = sampler_of(rng=rng)
    assert sampler.base_seed == sampler_of(rng=make()).base_seed != sampler_of(rng=rng).base_seed
    # The same program, begun again with a generator that nobody seeded.
    list(itertools.islice(iter(sampler), 2))
    resumed = sampler_of(rng=np.random.default_rng())
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == list(sampler_of(rng=sampler.base_seed))[2:]


def test_without_a_seed_the_order_is_that_of_seed_zero() -> None:
    assert list(sampler_of()) == list(sampler_of(rng=0)) != list(sampler_of(rng=1))


def test_a_report_says_what_is_dropped_and_why() -> None:
    report = sampler_of(maxlen=9).report
    assert (report.items, report.kept, report.too_long, report.surplus) == (15, 14, 1, 0)
    report = sampler_of([5] * 7 + [6], 4, rank=1, world_size=2, include_partial=True).report
    assert report.surplus_by_length == {5: 1, 6: 1}
    assert str(report) == "6 of 8 items are in batches; 0 too long, 2 left over"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_stacks_whole_epochs_and_goes_on_in_the_middle_of_one(workers: int) -> None:
    def loader(sampler: FixedLengthBatchSampler) -> DataLoader[torch.Tensor]:
        return DataLoader(
            Sequences(SOME),
            batch_sampler=sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
            multiprocessing_context="forkserver" if workers else None,
        )

    plain = sampler_of(include_partial=True)
    epochs = [list(plain) for _ in range(3)]
    sampler = sampler_of(include_partial=True)
    whole = loader(sampler)
    assert len(whole) == len(epochs[0])
    assert [used(whole), used(whole)] == epochs[:2]

    began = iter(whole)
    for _ in range(4):
        next(began)
    # Workers are ahead of the loop, which knows how far it is.
    assert sampler.state_dict()["batches_done"] == (4 if workers == 0 else 8)
    state = sampler.state_dict(batches_done=4)
    assert (state["epoch"], state["batches_done"]) == (2, 4)
    resumed = sampler_of(include_partial=True)
    resumed.load_state_dict(state)
    assert (
        used(loader(resumed) if workers == 0 else DataLoader(Sequences(SOME), batch_sampler=resumed)) == epochs[2][4:]
    )


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_goes_on_anywhere_in_an_epoch_and_at_its_end(workers: int) -> None:
    def loader() -> StatefulDataLoader[torch.Tensor]:
        return StatefulDataLoader(
            Sequences(SOME),
            batch_sampler=sampler_of(),
            num_workers=workers,
            multiprocessing_context="forkserver" if workers else None,
        )

    plain = sampler_of()
    epochs = [list(plain) for _ in range(3)]
    for stop in sized(short=[3, len(plain)], long=range(len(plain) + 1)):
        began = loader()
        assert used(began) == epochs[0]
        taken = list(itertools.islice(began, stop))
        resumed = loader()
        resumed.load_state_dict(began.state_dict())
        assert [batch[:, 0].tolist() for batch in taken] + used(resumed) == epochs[1]
        assert used(resumed) == epochs[2]


def test_the_loop_may_still_be_in_an_epoch_that_workers_have_finished() -> None:
    sampler = sampler_of()
    epoch = list(sampler)
    assert sampler.state_dict()["epoch"] == 1
    state = sampler.state_dict(batches_done=2)
    assert (state["epoch"], state["batches_done"]) == (0, 2)
    sampler.load_state_dict(state)
    assert list(sampler) == epoch[2:]
    with pytest.raises(ValueError, match=r"^batches_done: expected at most \d+, the batches of an epoch, found 99$"):
        sampler.state_dict(batches_done=99)


def test_ranks_are_those_of_the_process_group() -> None:
    # A group that no other process has to join.
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    try:
        sampler = sampler_of()
        assert (sampler.rank, sampler.world_size) == (1, 3)
        assert list(sampler) == list(sampler_of(rank=1, world_size=3)) != list(sampler_of(rank=0, world_size=3))
        assert sampler_of(rank=0, world_size=2).rank == 0
    finally:
        distributed.destroy_process_group()
    assert sampler_of().world_size == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected a whole number from 1, found 0"),
        ({"include_partial": "yes"}, "include_partial: expected True or False, found 'yes'"),
        ({"rng": -1}, "rng: expected None, a seed from 0, or a generator .*, found -1"),
        ({"rng": "seed"}, "rng: expected None, a seed from 0, or a generator .*, found 'seed'"),
        ({"rng": True}, "rng: expected None, a seed from 0, or a generator .*, found True"),
        ({"maxlen": "9"}, "maxlen: expected a whole number, found '9'"),
        ({"length_to_size": {5: 0}}, r"length_to_size\[5\]: expected a whole number from 1, found 0"),
        ({"lengths": [3, -1]}, "lengths: expected whole numbers from 0, found -1 for item 1"),
        ({"lengths": pa.array(["a"])}, "lengths: expected an Arrow array of integers or of lists, found string"),
        ({"rank": 0}, "rank, world_size: expected both or neither, found rank=0, world_size=None"),
        ({"rank": 2, "world_size": 2}, "rank: expected less than world_size=2, found 2"),
        ({"rank": -1, "world_size": 2}, "rank: expected a whole number from 0, found -1"),
        ({"rank": 0, "world_size": 0}, "world_size: expected a whole number from 1, found 0"),
        ({"rank": 0, "world_size": 2**70}, "world_size: expected at most 2147483647, found 1180591620717411303424"),
    ],
)
def test_a_bad_argument_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        sampler_of(**{"lengths": SOME, **bad})


@pytest.mark.parametrize("epoch", [-1, 1.0, None])
def test_a_bad_epoch_is_named(epoch: Any) -> None:
    with pytest.raises(ValueError, match=r"^epoch: expected a whole number from 0, found "):
        sampler_of().set_epoch(epoch)
