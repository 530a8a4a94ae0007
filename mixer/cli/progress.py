"""Showing a run while it goes: a bar on a terminal, else a line now and then; nothing if asked for quiet."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from mixer.cli import console
from mixer.cli.pace import Pace, Step

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 30.0


class Display(Protocol):
    """What is told of a run, within a ``with`` block that the run lasts for."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def shards(self, number: int) -> None:
        """Say how many shards the whole run has."""
        ...

    def step(self, step: Step) -> None:
        """Say that one more shard is done."""
        ...

    def prepared(self, step: Step, what: str) -> None:
        """Say that one more part of a prepared copy is done; `what` says of which."""
        ...


def display(*, quiet: bool, before: str = "starting", unit: str = "shard") -> Display:
    """Return what fits where stderr leads to; `before` is what is done before the first `unit`."""
    if quiet:
        return Silence()
    return Bar(before) if console.shows_bars(sys.stderr, os.environ) else Lines(unit=unit)


class Silence:
    """No display."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def shards(self, number: int) -> None:
        pass

    def step(self, step: Step) -> None:
        pass

    def prepared(self, step: Step, what: str) -> None:
        pass


class Lines:
    """A line every `seconds`, and one at the end; also while a shard takes long, so that a silent run is a dead one."""

    def __init__(self, seconds: float = LINE_SECONDS, unit: str = "shard") -> None:
        self._seconds = seconds
        self._pace = Pace(time.monotonic(), unit=unit)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="mixer-progress", daemon=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._ticker.join()
        if self._pace.last is not None:
            self._say()

    def shards(self, number: int) -> None:
        with self._lock:
            self._pace.shards = number

    def step(self, step: Step) -> None:
        with self._lock:
            self._pace = self._pace.of("shard")
            self._pace.add(step, time.monotonic())

    def prepared(self, step: Step, what: str) -> None:
        with self._lock:
            self._pace = self._pace.of(f"{what}: part")
            self._pace.add(step, time.monotonic())

    def _tick(self) -> None:
        while not self._over.wait(self._seconds):
            self._say()

    def _say(self) -> None:
        with self._lock:
            line = self._pace.describe()
        console.say(line)


class Bar:
    """A bar at the bottom of the terminal; what else is written to stderr appears above it."""

    def __init__(self, before: str) -> None:
        self._pace = Pace(time.monotonic())
        self._progress = _bar()
        # A total makes it stand still: a bar that moves while nothing is known would promise something.
        self._task: TaskID = self._progress.add_task(before, total=1)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def shards(self, number: int) -> None:
        self._pace.shards = number

    def prepared(self, step: Step, what: str) -> None:
        self._pace = self._pace.of(f"{what}: part")
        self._pace.add(step, time.monotonic())
        # How many parts there will be nobody knows: the bar stands still.
        self._progress.update(self._task, description=self._pace.describe())

    def step(self, step: Step) -> None:
        self._pace = self._pace.of("shard")
        self._pace.add(step, time.monotonic())
        end = ", finishing" if step.done == self._pace.shards else ""
        self._progress.update(
            self._task, total=self._pace.shards or 1, completed=step.done, description=self._pace.describe() + end
        )


def _bar() -> Progress:
    from rich.console import Console  # noqa: PLC0415 -- only where a bar is drawn
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 -- as above

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=Console(stderr=True), redirect_stdout=False, refresh_per_second=4)
