"""How a run is cut into segments: consecutive shards that are written by one task.

A task costs the server a few records, so it should be some work; it is also what a person sees move, and where a
suspended flow run stops, so it should not be much. The cut is made while the run goes on, from the time that shards
really take, and does not show in the output: every shard is committed by itself.
"""

from __future__ import annotations

TARGET_SECONDS = 20.0
"""Of work in a segment."""
SEGMENTS_MAX = 1_500
"""In a flow run: Prefect's UI and queues are good for some thousands of task runs, and retries are none of these."""
GROWTH_MAX = 8
"""How many times longer than the one before it a segment may be: one quick shard promises nothing of the others."""


def next_segment(
    first_shard: int, shard_count: int, *, previous_shards: int, previous_seconds: float, segments: int
) -> range:
    """Return the shards of the next segment; never none while there are any left.

    Args:
        first_shard: The first one that is not written.
        shard_count: How many the run has.
        previous_shards: How many shards the segment before this one had; 0 if there is none.
        previous_seconds: How long it took.
        segments: How many segments this flow run has had.

    >>> next_segment(0, 40, previous_shards=0, previous_seconds=0.0, segments=0)  # one, to see how long it takes
    range(0, 1)
    >>> next_segment(1, 40, previous_shards=1, previous_seconds=4.0, segments=1)
    range(1, 6)
    >>> next_segment(6, 40, previous_shards=5, previous_seconds=0.1, segments=2)
    range(6, 40)
    """
    left = shard_count - first_shard
    if previous_shards == 0:
        wanted = 1
    else:
        most = previous_shards * GROWTH_MAX
        seconds_a_shard = previous_seconds / previous_shards
        wanted = most if seconds_a_shard * most <= TARGET_SECONDS else int(TARGET_SECONDS / seconds_a_shard)
    # So many that no more than the allowed number of segments follow, this one included.
    least = -(-left // max(1, SEGMENTS_MAX - segments))
    return range(first_shard, first_shard + min(left, max(1, wanted, least)))
