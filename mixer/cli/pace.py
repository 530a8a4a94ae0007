"""How fast shards go by and how long the rest will take: a value that each shard moves on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mixer.cli import wording

WINDOW_SHARDS = 20
"""Rates are those of this many last shards, so that they follow a changed load."""


@dataclass(frozen=True, slots=True)
class Step:
    """One more shard that is done."""

    done: int
    """Shards of the run that are done, those of earlier processes too."""
    rows: int
    bytes: int
    path: str


@dataclass(slots=True)
class Pace:
    """The shards of this process, and when they were done.

    >>> pace = Pace(start_s=100.0, shards=4)
    >>> pace.describe()
    'no shard yet'
    >>> pace.add(Step(2, rows=500, bytes=2_000_000, path="data/shard-00000001.parquet"), now_s=110.0)
    >>> pace.describe()
    'shard 2 of 4, 50 rows/s, 0.2 MB/s, 20 s left, last data/shard-00000001.parquet'
    """

    start_s: float
    """When the work began, on any clock that only goes forward."""
    shards: int | None = None
    """Shards of the whole run; None as long as nobody has said."""
    unit: str = "shard"
    """What is counted."""
    last: Step | None = None
    _shard_rows: int = 0
    """Rows of a whole shard."""
    _recent: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW_SHARDS + 1))
    """When a shard was done, and the rows and bytes so far."""

    def __post_init__(self) -> None:
        self._recent.append((self.start_s, 0, 0))

    def of(self, unit: str) -> Pace:
        """Return this pace if it counts such units; else a new one, since other work has another pace.

        >>> pace = Pace(start_s=0.0)
        >>> pace.of("shard") is pace, pace.of("part").describe()
        (True, 'no part yet')
        """
        return self if unit == self.unit else Pace(self._recent[-1][0], self.shards, unit)

    def add(self, step: Step, now_s: float) -> None:
        """Count one more shard."""
        _, rows, nbytes = self._recent[-1]
        self._recent.append((now_s, rows + step.rows, nbytes + step.bytes))
        self._shard_rows = max(self._shard_rows, step.rows)
        self.last = step

    def rates(self) -> tuple[float, float]:
        """Return rows and bytes a second; 0 before the first shard."""
        (then_s, rows_then, bytes_then), (now_s, rows, nbytes) = self._recent[0], self._recent[-1]
        span_s = now_s - then_s
        return ((rows - rows_then) / span_s, (nbytes - bytes_then) / span_s) if span_s > 0 else (0.0, 0.0)

    def left_s(self) -> float | None:
        """Return how many seconds the rest will take; None if nothing is known."""
        rows_a_second, _ = self.rates()
        if self.shards is None or self.unit != "shard" or self.last is None or not rows_a_second:
            return None
        return (self.shards - self.last.done) * self._shard_rows / rows_a_second

    def speed(self) -> str:
        """Return the rates, and the time that is left."""
        rows_a_second, bytes_a_second = self.rates()
        left_s = self.left_s()
        eta = f", {wording.duration(left_s)} left" if left_s else ""
        return f"{rows_a_second:,.0f} rows/s, {bytes_a_second / 1e6:,.1f} MB/s{eta}"

    def describe(self) -> str:
        """Return how far and how fast, in one line."""
        if self.last is None:
            return f"no {self.unit} yet"
        of = "" if self.shards is None or self.unit != "shard" else f" of {self.shards:,}"
        return f"{self.unit} {self.last.done:,}{of}, {self.speed()}, last {self.last.path}"
