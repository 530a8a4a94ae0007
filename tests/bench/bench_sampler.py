"""What batches of one length cost for 10 million items, beside a sampler that keeps a list of items for each length.

Run ``python tests/bench/bench_sampler.py``. Each is measured in a process of its own, which begins to count when it
holds the lengths: seconds until there is a sampler, and until it has given its first batch; seconds for the rest of the
epoch; and by how much the greatest memory of the process has grown by then.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from mixer.torch import FixedLengthBatchSampler

ITEMS = 10_000_000
SIZES = {512: 16}
BATCH_SIZE = 64


class ListSampler:
    """The same batches by the plainest means: a list of items for each length."""

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        self._items: dict[int, list[int]] = defaultdict(list)
        for item, length in enumerate(lengths.tolist()):
            self._items[length].append(item)
        self._chance = random.Random(17)  # noqa: S311 -- repeatable on purpose

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for length, items in self._items.items():
            size = SIZES[512] if length >= min(SIZES) else BATCH_SIZE
            self._chance.shuffle(items)
            batches += [items[start : start + size] for start in range(0, len(items) - size + 1, size)]
        self._chance.shuffle(batches)
        yield from batches


def made(kind: str, lengths: npt.NDArray[np.int64]) -> Any:
    if kind == "lists":
        return ListSampler(lengths)
    return FixedLengthBatchSampler(None, BATCH_SIZE, lengths=lengths, length_to_size=SIZES, rng=17)


def drawn(longest: int) -> npt.NDArray[np.int64]:
    """Return lengths as of texts, many short ones and few long, and leave the greatest memory at what they take."""
    lengths = np.empty(ITEMS, dtype=np.int64)
    chance = np.random.default_rng(1)
    for start in range(0, ITEMS, 100_000):
        lengths[start : start + 100_000] = np.minimum(chance.geometric(8 / longest, 100_000), longest)
    return lengths


def measure(kind: str, longest: int) -> tuple[float, float, float, float, int, int]:
    """Return seconds to build, to the first batch, of these of the processor, and for the rest; MB; and batches."""
    lengths = drawn(longest)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.perf_counter(), time.process_time()
    sampler = made(kind, lengths)
    built = time.perf_counter()
    batches = iter(sampler)
    next(batches)
    first, used = time.perf_counter(), time.process_time()
    memory_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    count = 1 + sum(1 for _ in batches)
    return built - began, first - began, used - worked, time.perf_counter() - first, memory_mb, count


def main() -> None:
    for longest in (1_000, 200_000):
        for kind in ("mixer", "lists"):
            with get_context("spawn").Pool(1) as process:
                built, first, used, rest, memory_mb, count = process.apply(measure, (kind, longest))
            print(
                f"lengths to {longest:>7,}, {kind:<6} built {built:5.2f} s, first batch {first:6.2f} s "
                f"({used:5.2f} s of the processor), the other {count - 1:,} {rest:5.2f} s, {memory_mb:>5} MB"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
