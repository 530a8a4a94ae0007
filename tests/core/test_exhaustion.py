from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mixer.core.allocation import Allocation
from mixer.core.exhaustion import Phase, Policy, batches_that_fit, largest, resolve, shortfall, unfold
from mixer.core.schedule import Closing
from mixer.errors import NotEnoughDataError

Asked = list[tuple[tuple[int, ...], int | None]]


def one_batch(weights: dict[int, int], carries: dict[int, int], size: int) -> dict[int, int]:
    """Give `size` slots to datasets by the rule, slot by slot, and move `carries` on."""
    total = sum(weights.values())
    counts = {}
    for place, weight in weights.items():
        counts[place], rest = divmod(size * weight, total)
        carries[place] += rest
    for _ in range(size - sum(counts.values())):
        winner = max(weights, key=lambda place: (carries[place], -place))
        counts[winner] += 1
        carries[winner] -= total
    return counts


def by_hand(phases: Asked, limits: Sequence[int | None], size: int, policy: Policy) -> list[list[int]]:
    """Return what each batch takes of each dataset, by the words of the policies, item by item."""
    left = [10**9 if limit is None else limit for limit in limits]
    retired: set[int] = set()
    batches: list[list[int]] = []
    for number, (weights, asked) in enumerate(phases):
        carries = dict.fromkeys(range(len(weights)), 0)
        done = 0
        while asked is None or done < asked:
            live = {place: weight for place, weight in enumerate(weights) if weight and place not in retired}
            if not live:
                break
            quotas = one_batch(live, carries, size)
            if any(quota > left[place] for place, quota in quotas.items()):
                if policy != "redistribute":
                    return batches
                taken = fill_up(phases[number:], left, retired, size, quotas)
                if sum(taken) == 0:
                    break
                carries = dict.fromkeys(range(len(weights)), 0)
            else:
                taken = [quotas.get(place, 0) for place in range(len(weights))]
            left[:] = [items - gone for items, gone in zip(left, taken, strict=True)]
            batches.append(taken)
            done += 1
    return batches


def fill_up(phases: Asked, left: list[int], retired: set[int], size: int, quotas: dict[int, int]) -> list[int]:
    taken = [0] * len(left)
    while True:
        for place, quota in quotas.items():
            for _ in range(quota):
                if taken[place] == left[place]:
                    retired.add(place)
                    break
                taken[place] += 1
        missing = size - sum(taken)
        if not missing:
            return taken
        for weights, _ in phases:
            live = {place: weight for place, weight in enumerate(weights) if weight and place not in retired}
            if live:
                break
        else:
            return taken
        quotas = one_batch(live, dict.fromkeys(live, 0), missing)


@st.composite
def runs(draw: st.DrawFn, *, open_end: bool | None = None) -> tuple[Asked, list[int], int]:
    """Draw phases, sizes of datasets and a batch size."""
    datasets = draw(st.integers(1, 4))
    size = draw(st.integers(1, 9))
    phases: Asked = []
    for _ in range(draw(st.integers(1, 3))):
        weights = draw(st.lists(st.integers(0, 7), min_size=datasets, max_size=datasets).filter(any))
        phases.append((tuple(weights), draw(st.integers(1, 12))))
    if draw(st.booleans()) if open_end is None else open_end:
        phases[-1] = (phases[-1][0], None)
    items = st.one_of(st.integers(0, 80), st.integers(0, size), st.integers(0, 6).map(lambda n: n * size))
    return phases, draw(st.lists(items, min_size=datasets, max_size=datasets)), size


def as_phases(asked: Asked) -> list[Phase]:
    return [Phase(weights, batches) for weights, batches in asked]


@given(runs())
@example(([((1, 1), None)], [5, 2], 4))
@example(([((100, 1), None)], [300, 0], 1))
def test_redistribute_is_what_its_words_say(run: tuple[Asked, list[int], int]) -> None:
    phases, sizes, size = run
    schedule = unfold(as_phases(phases), sizes, size, redistribute=True)
    assert schedule.counts(0, schedule.batches).tolist() == by_hand(phases, sizes, size, "redistribute")


@given(runs())
def test_stop_ends_before_the_first_batch_that_does_not_fit(run: tuple[Asked, list[int], int]) -> None:
    phases, sizes, size = run
    expected = by_hand(phases, sizes, size, "stop")
    names = [f"d{place}" for place in range(len(sizes))]
    if not expected:
        with pytest.raises(NotEnoughDataError, match="not one batch"):
            resolve(names, as_phases(phases), sizes, size, policy="stop")
        return
    schedule = resolve(names, as_phases(phases), sizes, size, policy="stop")
    assert schedule.counts(0, schedule.batches).tolist() == expected


@given(runs(open_end=False))
def test_error_refuses_just_what_stop_would_cut_short(run: tuple[Asked, list[int], int]) -> None:
    phases, sizes, size = run
    fit = len(by_hand(phases, sizes, size, "stop"))
    asked = sum(batches or 0 for _, batches in phases)
    names = [f"d{place}" for place in range(len(sizes))]
    if fit == asked:
        assert resolve(names, as_phases(phases), sizes, size, policy="error").batches == asked
    else:
        with pytest.raises(NotEnoughDataError, match=f"Asked: {asked} batches; the largest number that fits is {fit}"):
            resolve(names, as_phases(phases), sizes, size, policy="error")


@given(runs(open_end=False), st.data())
def test_repeat_takes_as_much_as_the_epochs_allow(run: tuple[Asked, list[int], int], data: st.DataObject) -> None:
    phases, sizes, size = run
    epochs = data.draw(st.lists(st.none() | st.integers(1, 4), min_size=len(sizes), max_size=len(sizes)))
    limits = [
        0 if not items else None if most is None else items * most for items, most in zip(sizes, epochs, strict=True)
    ]
    expected = by_hand(phases, limits, size, "repeat")
    names = [f"d{place}" for place in range(len(sizes))]
    if len(expected) < sum(batches or 0 for _, batches in phases):
        with pytest.raises(NotEnoughDataError, match=f"the largest number that fits is {len(expected)}"):
            resolve(names, as_phases(phases), limits, size, policy="repeat")
    else:
        schedule = resolve(names, as_phases(phases), limits, size, policy="repeat")
        assert schedule.counts(0, schedule.batches).tolist() == expected


@given(runs(open_end=True))
def test_redistribute_gives_out_every_item_once_and_only_the_last_batch_is_short(
    run: tuple[Asked, list[int], int],
) -> None:
    phases, sizes, size = run
    # Whoever is in the last phase, which has no end, is used up.
    phases[-1] = (tuple(max(1, weight) for weight in phases[-1][0]), None)
    schedule = unfold(as_phases(phases), sizes, size, redistribute=True)
    counts = schedule.counts(0, schedule.batches)
    assert counts.sum(axis=0).tolist() == sizes if schedule.batches else not any(sizes)
    rows = counts.sum(axis=1).tolist()
    assert all(row == size for row in rows[:-1])
    assert all(0 < row <= size for row in rows)
    assert schedule.items == sum(sizes)


@given(runs(), st.data())
def test_the_state_at_any_batch_is_that_of_the_batches_before_it(
    run: tuple[Asked, list[int], int], data: st.DataObject
) -> None:
    phases, sizes, size = run
    schedule = unfold(as_phases(phases), sizes, size, redistribute=True)
    if not schedule.batches:
        return
    batch = data.draw(st.integers(0, schedule.batches))
    counts = schedule.counts(0, schedule.batches)
    assert schedule.offsets_at(batch) == tuple(counts[:batch].sum(axis=0).tolist())
    assert sum(schedule.carries_at(batch)) == 0
    middle = data.draw(st.integers(0, batch))
    assert schedule.counts(middle, batch).tolist() == counts[middle:batch].tolist()
    for segment in schedule.segments:
        if isinstance(segment.rule, Closing):
            assert not any(schedule.carries_at(segment.stop_batch))


@given(runs(open_end=False), st.integers(1, 5))
def test_what_is_appended_to_a_run_changes_no_state_of_its_past(run: tuple[Asked, list[int], int], more: int) -> None:
    phases, sizes, size = run
    limits = [None] * len(sizes)
    before = unfold(as_phases(phases), limits, size, redistribute=False)
    longer = [*as_phases(phases), Phase((1,) * len(sizes), more)]
    after = unfold(longer, limits, size, redistribute=False)
    for batch in range(before.batches + 1):
        assert after.carries_at(batch) == before.carries_at(batch)
        assert after.offsets_at(batch) == before.offsets_at(batch)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(1, 30), st.data())
def test_the_largest_number_of_batches_fits_and_one_more_does_not(
    weights: list[int], batch_size: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.none() | st.integers(0, 200), min_size=len(weights), max_size=len(weights)))
    rule = Allocation(tuple(weights), batch_size)
    fit = batches_that_fit(rule, sizes)
    if fit is None:
        assert sizes == [None] * len(sizes)
        return
    limits = [10**9 if items is None else items for items in sizes]
    assert all(taken <= items for taken, items in zip(rule.offsets_at(fit), limits, strict=True))
    assert any(taken > items for taken, items in zip(rule.offsets_at(fit + 1), limits, strict=True))


def test_a_run_without_any_end_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a number of batches"):
        unfold([Phase((1,))], [None], 3, redistribute=False)


def test_a_phase_without_datasets_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a dataset"):
        Phase((0, 0), 3)


def test_redistribute_over_nothing_at_all_is_refused() -> None:
    with pytest.raises(NotEnoughDataError, match="not one batch"):
        resolve(["a"], [Phase((1,))], [0], 3, policy="redistribute")


def test_what_is_short_is_told_with_numbers_and_ways_out() -> None:
    text = shortfall(["web", "code"], [Phase((1, 1), 5)], [10, 3], 2, fit=3)
    for part in (
        "dataset 'code' runs out first",
        "batch 3 needs its items up to 4",
        "it has 3",
        "fits is 3",
        "1.7 times",
    ):
        assert part in text


def test_an_empty_dataset_is_told_as_empty() -> None:
    assert "and it is empty" in shortfall(["a"], [Phase((1,), 1)], [0], 2, fit=0)


@given(runs(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_the_end_that_the_data_sets_is_one_batch_before_someone_is_short(
    run: tuple[Asked, list[int], int], endless: list[bool]
) -> None:
    phases, sizes, size = run
    limits = [None if off else items for items, off in zip(sizes, endless, strict=False)]
    found = largest(as_phases(phases), limits, size)
    unbounded = [*phases[:-1], (phases[-1][0], None if found is not None else 20)]
    made = by_hand(unbounded, limits, size, "stop")
    if found is None:
        assert len(made) == sum(batches or 0 for _, batches in unbounded)
        return
    fit, short = found
    assert fit == len(made)
    longer = [10**9 if place == short else limit for place, limit in enumerate(limits)]
    assert limits[short] is not None
    assert len(by_hand([*unbounded[:-1], (phases[-1][0], fit + 1)], longer, size, "stop")) >= fit


def test_a_dataset_that_is_held_back_is_told_with_what_it_holds_and_what_holds_it_back() -> None:
    phases = [Phase((1, 1), 120)]
    with pytest.raises(NotEnoughDataError) as caught:
        resolve(["web", "code"], phases, [120, 1000], 4, policy="repeat", sizes=[60, 1000])
    for part in (
        "it may give 120, by its `max_rows`, its `max_epochs`, or the epochs that its prepared copy holds",
        "(a pass over it has 60)",
        "'web' would have to be gone through 4.0 times (240 of 60 items)",
        "raise its `max_rows` or `max_epochs`",
        "set `on_exhausted` to `stop` or `redistribute`",
    ):
        assert part in str(caught.value)
