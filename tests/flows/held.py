"""The flow `premix`, which waits where a test wants to do something to it: what deployments in tests point at.

It waits after the commit of shard `HELD_SHARD`, as long as the file is there that the environment names.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from pathlib import Path

from flows import caller
from flows.caller import Caller
from mixer.core.commits import Commit
from tests.flows.holding import HELD_SHARD, HOLD


def wait(commit: Commit) -> None:
    """Wait while the file is there."""
    while commit.shard == HELD_SHARD and Path(os.environ[HOLD]).exists():
        time.sleep(0.05)


# Where nothing is to be held, this is only looked at for its doctests, in a process in which others have callers.
if HOLD in os.environ:
    # One flow run a process, so nobody shares it.
    caller.current_caller = ContextVar("held_caller", default=Caller(on_commit=wait))  # noqa: B039 -- see above

from flows.premix import premix  # noqa: E402 -- it looks for its caller as soon as it is imported

__all__ = ["premix"]
