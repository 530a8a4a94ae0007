"""What planning costs: seconds and memory of plans that are asked for their last shard and a state in the middle.

Run ``python tests/bench/bench_plan.py``. Each plan is made in a process of its own.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from multiprocessing import get_context

from mixer.core.allocation import Allocation
from mixer.core.exhaustion import Phase, Policy, resolve

CASES: dict[str, tuple[int, int, int, int | None, int, Policy]] = {
    # datasets, greatest weight, batch size, batches, items of each dataset, policy
    "10**9 batches, 40 datasets, period under 10**6": (40, 40_000, 512, 10**9, 10**15, "error"),
    "10**6 batches, 40 datasets, period over 10**7": (40, 2_000_000, 512, 10**6, 10**15, "error"),
    "the same, until a dataset ends": (40, 2_000_000, 512, None, 17_000_000, "stop"),
    "40 datasets, until all are used up": (40, 1_000, 512, None, 10**8, "redistribute"),
    "10**4 batches, 10,000 datasets": (10_000, 1_000, 20_000, 10**4, 10**9, "error"),
}


def measure(case: str) -> tuple[int, float, int]:
    """Return the period of a plan, the seconds that it took, and the memory of the process in MB."""
    datasets, greatest, batch_size, batches, items, policy = CASES[case]
    chance = random.Random(1)  # noqa: S311 -- repeatable on purpose
    weights = tuple(chance.randrange(1, greatest) for _ in range(datasets))
    limits = [chance.randrange(items // 2, items) for _ in weights]
    began = time.perf_counter()
    schedule = resolve(
        [str(place) for place in range(datasets)], [Phase(weights, batches)], limits, batch_size, policy=policy
    )
    last = schedule.batches
    schedule.offsets_at(max(0, last - 128))
    schedule.carries_at(last // 2 + 77 if last > 200 else 0)
    seconds = time.perf_counter() - began
    return Allocation(weights, batch_size).period, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    for case in CASES:
        with get_context("spawn").Pool(1) as process:
            period, seconds, memory_mb = process.apply(measure, (case,))
        print(f"{case:<50} period {period:>12,}  {seconds:6.2f} s  {memory_mb:>4} MB")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
