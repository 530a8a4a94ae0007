"""What is left of runs that died, for what looks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mixer.core import commits
from mixer.core.plan import shard_path
from mixer.storage import Store
from mixer.storage.urls import PROBE_FOLDER

Use = Callable[[Store], None]
Act = Callable[[], object]


def probe(letter: str) -> str:
    """Return the name of an object that a start puts to try a store."""
    return PROBE_FOLDER + letter * 32


def dead(whole: Mapping[str, bytes], shards: int) -> dict[str, bytes]:
    """Return what is left of a run that died with `shards` committed shards and one more put, in its probe too."""
    keep = {commits.RUN_NAME, commits.CARD_NAME, *map(commits.slot_name, range(shards + 1))}
    keep |= {shard_path(number) for number in range(shards + 1)}
    left = {name: data for name, data in whole.items() if name in keep}
    return {**left, probe("a"): b"first"}
