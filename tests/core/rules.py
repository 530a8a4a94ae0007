"""Random sets of weights, and the rule written out slot by slot: what the arithmetic is held to."""

from __future__ import annotations

from hypothesis import strategies as st

weights = st.one_of(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    st.lists(st.sampled_from([1, 2, 3, 7, 10**9, 10**18, 10**19 + 1]), min_size=1, max_size=4),
).map(tuple)
batch_sizes = st.one_of(st.integers(1, 12), st.integers(1, 5_000))


def by_hand(weights: tuple[int, ...], batch_size: int, batches: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the counts of each batch, and the carries before each batch and after the last."""
    total = sum(weights)
    carries = [0] * len(weights)
    counts, states = [], [list(carries)]
    for _ in range(batches):
        row = [batch_size * weight // total for weight in weights]
        for place, weight in enumerate(weights):
            carries[place] += batch_size * weight % total
        for _ in range(batch_size - sum(row)):
            winner = carries.index(max(carries))
            row[winner] += 1
            carries[winner] -= total
        counts.append(row)
        states.append(list(carries))
    return counts, states
