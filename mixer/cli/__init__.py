"""The command `mixer`: arguments into one call of a verb, and its result onto stdout.

Here is its beginning only, which loads nothing itself: Ctrl-C may come while all else is loaded.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line that this process was started with, and exit."""
    _open_closed_streams()
    try:
        from mixer.cli.app import app  # noqa: PLC0415 -- see the top
        from mixer.cli.edge import run_app  # noqa: PLC0415 -- see the top

        code = run_app(app)
    except KeyboardInterrupt:
        from mixer.cli.console import INTERRUPTION, asked, write_failure  # noqa: PLC0415 -- as above

        code = write_failure(INTERRUPTION, as_json=asked(sys.argv[1:], "--json"))
    sys.exit(code)


def _open_closed_streams() -> None:
    """Let a stream that whoever started this process has closed lead nowhere.

    Else the next file that is opened, maybe a shard, gets its number, and what is said to stderr by number goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, so this one. Child processes get it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 -- it has no other way
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- open to the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- open to the end
