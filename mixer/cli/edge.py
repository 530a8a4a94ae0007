"""The edge: arguments in, one result out, every error an exit code. The only place that catches everything."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer
from typer.main import get_command

from mixer.cli import console
from mixer.cli.console import Failure, Reply
from mixer.errors import MixerError

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended before it could stop by itself."""
USAGE = 2


def run_app(app: typer.Typer, argv: Sequence[str] | None = None) -> int:
    """Run one command line of `app`; return the exit code.

    Args:
        app: Its commands return a `Reply`, or None if they have nothing to say.
        argv: The arguments; the process's own without it.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json, debug = _asked(arguments, "--json"), _asked(arguments, "--debug")
    _tolerate_any_text()
    console.log_to_stderr(debug=debug)
    try:
        result = get_command(app).main(args=arguments, prog_name="mixer", standalone_mode=False)
    except typer.TyperException as error:
        return console.write_failure(_usage_failure(error), as_json=as_json)
    except MixerError as error:
        _trace(error, debug=debug)
        return console.write_failure(console.failure_of(error), as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- whatever it is, its reader is told what to do
        _trace(error, debug=debug)
        return console.write_failure(_bug(error, debug=debug), as_json=as_json)
    if isinstance(result, Reply):
        return console.write_reply(result, as_json=as_json)
    if result == INTERRUPTED:  # typer's own answer to Ctrl-C
        return console.write_failure(Failure("KeyboardInterrupt", "interrupted", INTERRUPTED), as_json=as_json)
    return result if isinstance(result, int) else 0


def _asked(arguments: Sequence[str], flag: str) -> bool:
    """Return whether `flag` stands among the options: it must be known even where parsing fails."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return flag in arguments[:end]


def _tolerate_any_text() -> None:
    """Let no file name or row that the locale cannot spell end a command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _usage_failure(error: typer.TyperException) -> Failure:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None:
        message = f"{message}\n{context.get_usage()}\n'{context.command_path} --help' shows an example."
    return Failure("UsageError", message, USAGE)


def _bug(error: Exception, *, debug: bool) -> Failure:
    if isinstance(error, MemoryError):
        message = f"out of memory ({console.without_secrets(str(error))}); give the process more, then try again"
        return Failure("MemoryError", message, 1)
    hint = "" if debug else "; the same command with --debug shows it"
    message = (
        f"this is a bug in mixer: {type(error).__name__}: {console.without_secrets(str(error))}\n"
        f"Please report it with the traceback{hint}."
    )
    return Failure(type(error).__name__, message, 1)


def _trace(error: BaseException, *, debug: bool) -> None:
    if debug:
        console.say(console.without_secrets("".join(traceback.format_exception(error))).rstrip())
