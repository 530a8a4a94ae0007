"""Who runs a flow in this process: what they want to hear, how they stop it, and what is told to them afterwards.

A flow that a worker starts has no such caller. One that `flows.premix.run` starts has: its errors are raised there,
so Prefect need not print them as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler

from mixer.building import OnCommit, RunSummary, ShouldStop
from mixer.errors import MixerError


@dataclass(slots=True)
class Caller:
    """What a caller brings, and what the flow leaves for them."""

    on_commit: OnCommit | None = None
    should_stop: ShouldStop | None = None
    flow_run_id: UUID | None = None
    task_runs: int = 0
    """How many tasks were called."""
    summary: RunSummary | None = None
    error: Exception | None = None


current_caller: ContextVar[Caller | None] = ContextVar("current_caller", default=None)


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Make `caller` the one whom flows find, and the console theirs."""
    token = current_caller.set(caller)
    try:
        with _said_once():
            yield
    finally:
        current_caller.reset(token)


class _SaidElsewhere(logging.Filter):
    """Drops what the caller says: errors that are raised to them, and records that they have a handler for."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is not None and isinstance(record.exc_info[1], MixerError):
            return False
        if record.name.partition(".")[0] != "mixer":
            return True
        return all(isinstance(handler, APILogHandler) for handler in logging.getLogger("mixer").handlers)


@contextmanager
def _said_once() -> Iterator[None]:
    said_elsewhere = _SaidElsewhere()
    consoles = [handler for handler in logging.getLogger().handlers if isinstance(handler, PrefectConsoleHandler)]
    for console in consoles:
        console.addFilter(said_elsewhere)
    try:
        yield
    finally:
        for console in consoles:
            console.removeFilter(said_elsewhere)
