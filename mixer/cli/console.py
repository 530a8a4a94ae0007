"""Where words go: results to stdout, everything else to stderr, and neither reader's leaving ends a run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from mixer.cli import wording
from mixer.errors import MixerError


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command ends with another exit code than 0."""

    type: str
    """Name of the error, for programs."""
    message: str
    exit_code: int

    def value(self) -> dict[str, Any]:
        """Return what ``--json`` says of it.

        >>> Failure("StoreError", "no such bucket", 1).value()
        {'error': {'type': 'StoreError', 'message': 'no such bucket', 'exit_code': 1}}
        """
        return {"error": {"type": self.type, "message": self.message, "exit_code": self.exit_code}}


INTERRUPTED = 130
INTERRUPTION = Failure("KeyboardInterrupt", "interrupted", INTERRUPTED)
"""Of a command that Ctrl-C ended before it could stop by itself."""


def failure_of(error: MixerError) -> Failure:
    """Return the failure that `error` is, with the notes that were added to it and without secrets."""
    message = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return Failure(type(error).__name__, without_secrets(message), error.exit_code)


def without_secrets(text: str) -> str:
    """Return `text` without what may be secret in it."""
    from mixer.storage.urls import redact  # noqa: PLC0415 -- `--help` need not wait for it

    return redact(text)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command answers; the edge prints it."""

    value: Mapping[str, Any]
    """The whole result as plain values, for ``--json``."""
    lines: Callable[[int | None], Iterable[str]]
    """The result for people, for a window of so many cells; None means any width."""
    failure: Failure | None = None
    """Why the command ends with another exit code than 0, although it has a result."""


def asked(arguments: Sequence[str], flag: str) -> bool:
    """Return whether `flag` stands among the options: it must be known even where parsing fails.

    >>> asked(["plan", "--json"], "--json"), asked(["plan", "--", "--json"], "--json")
    (True, False)
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return flag in arguments[:end]


def write_reply(reply: Reply, *, as_json: bool) -> int:
    """Print a result to stdout, and why it is not all well to stderr; return the exit code."""
    if as_json:
        text = _json(reply.value if reply.failure is None else {**reply.value, **reply.failure.value()})
    else:
        text = wording.visible_lines("\n".join(reply.lines(window_width(sys.stdout)))) + "\n"
    code = _write_result(text)
    return code if reply.failure is None else _say_failure(reply.failure)


def write_failure(failure: Failure, *, as_json: bool) -> int:
    """Print why there is no result; return the exit code."""
    if as_json:
        _write_result(_json(failure.value()))
    return _say_failure(failure)


def unwritten(error: OSError) -> Failure:
    """Return the failure that a stdout is which takes no more.

    >>> unwritten(OSError(28, "No space left on device")).message
    'the result cannot be written to stdout: No space left on device; whatever the command has done stays done'
    """
    found = error.strerror or str(error)
    message = f"the result cannot be written to stdout: {found}; whatever the command has done stays done"
    return Failure(type(error).__name__, message, 1)


def _say_failure(failure: Failure) -> int:
    say(f"mixer: {failure.message}")
    return failure.exit_code


def _json(value: Mapping[str, Any]) -> str:
    """Return one JSON object, in ASCII, so that no locale can spoil it."""
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def _write_result(text: str) -> int:
    """Write `text` to stdout; return the exit code: not 0 if a disk that it leads to is full."""
    error = _write(sys.stdout, text)
    return 0 if error is None else _say_failure(unwritten(error))


def say(text: str) -> None:
    """Print lines to stderr: progress, a warning, a hint. A stderr that is gone is no reason to stop.

    Names of files and texts of other programs are in them, and must not steer the terminal.
    """
    _write(sys.stderr, wording.visible_lines(text) + "\n")


def _write(stream: IO[str] | None, text: str) -> OSError | None:
    """Write all of `text` now; if that cannot be, what is written from now on goes nowhere.

    Returns:
        What is wrong with the stream; None if all is well, and if its reader has left, as readers may.
    """
    if stream is None:
        return None
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        lead_nowhere(stream)
        return None if isinstance(error, BrokenPipeError) else error
    return None


def lead_nowhere(stream: IO[str]) -> None:
    """Let all that is written to `stream` vanish: what is in its buffer, too, which is flushed once more at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def window_width(stream: IO[str] | None) -> int | None:
    """Return the cells of a line where `stream` is shown; None if it is no terminal, so that nothing is folded."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def shows_bars(stream: IO[str] | None, environment: Mapping[str, str]) -> bool:
    """Return whether a bar that repaints itself may be drawn on `stream`."""
    if stream is None or not stream.isatty():
        return False
    return environment.get("TERM") != "dumb" and not environment.get("CI")


class StderrHandler(logging.Handler):
    """Log records to whatever stderr is when they come, so that a bar can stay below them."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def log_to_stderr(*, debug: bool) -> None:
    """Show the library's log on stderr: warnings, and with `debug` everything."""
    logger = logging.getLogger("mixer")
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        handler = StderrHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
