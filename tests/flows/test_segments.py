"""A run is cut into segments that cover it, in order, neither too many nor too long."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from flows.segments import GROWTH_MAX, SEGMENTS_MAX, TARGET_SECONDS, next_segment


def cut(first_shard: int, shard_count: int, seconds: Callable[[range], float]) -> list[range]:
    """Return all segments of a run whose segments take so long."""
    segments: list[range] = []
    took = 0.0
    while first_shard < shard_count:
        assert len(segments) <= SEGMENTS_MAX, "this does not end soon"
        previous = len(segments[-1]) if segments else 0
        segment = next_segment(
            first_shard, shard_count, previous_shards=previous, previous_seconds=took, segments=len(segments)
        )
        took = seconds(segment)
        first_shard = segment.stop
        segments.append(segment)
    return segments


@given(st.integers(0, 50), st.integers(1, 10**5), st.data())
def test_segments_cover_the_missing_shards_once_and_in_order(first: int, count: int, data: st.DataObject) -> None:
    times = st.floats(0, 10**6)
    segments = cut(first, first + count, lambda _: data.draw(times))
    assert [segment.start for segment in segments] == [first, *(segment.stop for segment in segments[:-1])]
    assert segments[-1].stop == first + count
    assert all(segments)


@given(st.integers(1, 10**12), st.floats(0, 10**9))
def test_a_run_of_any_length_has_a_bounded_number_of_segments(count: int, seconds_a_shard: float) -> None:
    assert len(cut(0, count, lambda segment: len(segment) * seconds_a_shard)) <= SEGMENTS_MAX


@given(st.integers(1, 1000), st.floats(0.01, 100))
def test_segments_of_steady_shards_are_no_longer_than_wanted(count: int, seconds_a_shard: float) -> None:
    segments = cut(0, count, lambda segment: len(segment) * seconds_a_shard)
    assert all(len(segment) == 1 or len(segment) * seconds_a_shard <= TARGET_SECONDS for segment in segments)


@given(st.floats(0.01, 5))
def test_segments_of_steady_shards_soon_reach_half_of_the_wanted_length(seconds_a_shard: float) -> None:
    segments = cut(0, 10**5, lambda segment: len(segment) * seconds_a_shard)
    assert len(segments[5]) * seconds_a_shard > TARGET_SECONDS / 2


@given(st.integers(1, 10**4), st.floats(0, 10**3))
def test_one_quick_segment_is_not_trusted_too_far(previous_shards: int, seconds: float) -> None:
    segment = next_segment(0, 10**5, previous_shards=previous_shards, previous_seconds=seconds, segments=1)
    assert len(segment) <= max(previous_shards * GROWTH_MAX, -(-(10**5) // (SEGMENTS_MAX - 1)))
