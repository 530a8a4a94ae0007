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

import httpx
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler

from mixer.building import OnCommit, OnPart, RunSummary, ShouldStop
from mixer.errors import MixerError
from mixer.preparing import Preparation


@dataclass(slots=True)
class Caller:
    """What a caller brings, and what the flow leaves for them."""

    on_commit: OnCommit | None = None
    should_stop: ShouldStop | None = None
    on_part: OnPart | None = None
    flow_run_id: UUID | None = None
    task_runs: int = 0
    """How many tasks were called."""
    summary: RunSummary | None = None
    prepared: Preparation | None = None
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
    """Drops what the caller is told anyway, and what says once more that the server is away."""

    def __init__(self) -> None:
        super().__init__()
        self._is_connection_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info is not None and isinstance(record.exc_info[1], MixerError | httpx.TransportError):
            return False
        if record.name == "prefect._internal.concurrency":
            # One for each event that is lost, with the whole event in it.
            return "failed to process" not in record.msg
        if record.name == "prefect.events.clients":
            said, self._is_connection_said = self._is_connection_said, True
            return not said
        if record.name.partition(".")[0] == "mixer":
            return all(isinstance(handler, APILogHandler) for handler in logging.getLogger("mixer").handlers)
        return True


@contextmanager
def _said_once() -> Iterator[None]:
    said_elsewhere = _SaidElsewhere()
    handlers = [
        *(handler for handler in logging.getLogger().handlers if isinstance(handler, PrefectConsoleHandler)),
        *logging.getLogger("prefect._internal").handlers,
    ]
    for handler in handlers:
        handler.addFilter(said_elsewhere)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(said_elsewhere)
