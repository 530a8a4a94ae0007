"""Stopping a run by a signal: the first one at the next shard's edge, a second one at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether SIGTERM or SIGINT has asked the run to stop; call it at each shard's edge.

    Within a ``with`` block the first signal is only noted. From then on signals have their default effect, so that
    the second one ends the process whatever it does: every commit is durable, there is nothing to tidy up.
    """

    def __init__(self, unit: str = "shard") -> None:
        """Stop after what is under way: a `unit`."""
        self.unit = unit
        self.signal: signal.Signals | None = None
        """The first signal, if there was one."""
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._former = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Return whether to stop, and see to it that signals still come here."""
        if self.signal is None and threading.current_thread() is threading.main_thread():
            # Prefect puts its own handler in place when a flow starts: one that would tear the shard off.
            for number in SIGNALS:
                if signal.getsignal(number) != self._note:
                    signal.signal(number, self._note)
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that this signal ended."""
        return 128 + (self.signal or 0)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        # Not through a stream: the interrupted code may be in the middle of writing to it.
        os.write(
            2, f"\n{self.signal.name}: stopping after the {self.unit} under way; once more stops at once\n".encode()
        )
