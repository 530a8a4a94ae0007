"""A process that runs the flow: ``python -m tests.flows.child CONFIG [PROCESS SHARD]``.

It writes a line for each commit, then what `run` returned. With a process, it kills that one, or its whole group if
the number is negative, or itself if it is 0, at the commit of that shard.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from flows.premix import run
from mixer.config import config_from
from mixer.core.commits import Commit


def say(line: str) -> None:
    """Tell the parent at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(config_path: str, process: str = "0", shard: str = "-1") -> None:
    def on_commit(commit: Commit) -> None:
        say(str(commit.shard))
        if commit.shard == int(shard):
            victim = int(process) or os.getpid()
            (os.killpg if victim < 0 else os.kill)(abs(victim), signal.SIGKILL)

    summary = run(config_from(json.loads(Path(config_path).read_text())), on_commit=on_commit)
    say(json.dumps({"finished": summary.finished, "head": summary.head, "committed": summary.committed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
