"""The edge: arguments in, one result out, every error an exit code. The only place that catches everything."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer
from typer.main import get_command

from mixer.cli import console
from mixer.cli.console import Failure, Reply, asked
from mixer.errors import MixerError

USAGE = 2
_NO_THREAD = "can't start new thread"
"""What Python says of it; it has no class of its own."""


def run_app(app: typer.Typer, argv: Sequence[str] | None = None) -> int:
    """Run one command line of `app`; return the exit code.

    Args:
        app: Its commands return a `Reply`, or None if they have nothing to say.
        argv: The arguments; the process's own without it.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json, debug = asked(arguments, "--json"), asked(arguments, "--debug")
    _tolerate_any_text()
    console.log_to_stderr(debug=debug)
    try:
        result = get_command(app).main(args=arguments, prog_name="mixer", standalone_mode=False)
        if isinstance(result, Reply):
            return console.write_reply(result, as_json=as_json)
    except typer.TyperException as error:
        failure = _usage_failure(error)
    except MixerError as error:
        _trace(error, debug=debug)
        failure = console.failure_of(error)
    except (KeyboardInterrupt, typer.Abort):
        failure = console.INTERRUPTION
    except Exception as error:  # noqa: BLE001 -- whatever it is, its reader is told what to do
        if isinstance(error, OSError) and (asked(arguments, "--help") or asked(arguments, "--version")):
            # These do nothing but write.
            console.lead_nowhere(sys.stdout)
            failure = console.unwritten(error)
        else:
            _trace(error, debug=debug)
            failure = _bug(error, debug=debug)
    else:
        if result != console.INTERRUPTED:  # typer's own answer to Ctrl-C
            return result if isinstance(result, int) else 0
        failure = console.INTERRUPTION
    return console.write_failure(failure, as_json=as_json)


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
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        message = (
            f"{error}: this process may have no more of them; raise its limits (ulimit -u, ulimit -v), or end"
            " what else runs here, then try again"
        )
        return Failure("RuntimeError", message, 1)
    hint = "" if debug else "; the same command with --debug shows it"
    message = (
        f"this is a bug in mixer: {type(error).__name__}: {console.without_secrets(str(error))}\n"
        f"Please report it with the traceback{hint}."
    )
    return Failure(type(error).__name__, message, 1)


def _trace(error: BaseException, *, debug: bool) -> None:
    if debug:
        console.say(console.without_secrets("".join(traceback.format_exception(error))).rstrip())
