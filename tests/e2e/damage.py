"""Damage to a run as a bad disk, a bad copy or a bad hand does it, and what each reader of the run says of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from mixer import building
from mixer.config import MixConfig
from mixer.core import commits
from mixer.errors import CorruptionError, MixerError
from mixer.heading import head
from mixer.verifying import verify
from tests.e2e.runs import many_shards

SHARDS = 8
COMMITTED = 5
"""Shards of the unfinished run."""
SHARD_SLOTS = (1, 2, 3, 5, 6, 8, 9, 10)
"""Slot of each shard: the run was started three times, in the slots 0, 4 and 7."""
FINAL = 11


@dataclass(frozen=True, slots=True)
class Runs:
    """A run as it was when it was stopped, as it is now, and another one of the same shape."""

    config: MixConfig
    unfinished: Path
    finished: Path
    other: Path
    """A finished run of other rows in as many shards."""


def make_runs(folder: Path) -> Runs:
    """Make them below `folder`."""
    config = many_shards(folder, str(folder / "finished"), shards=SHARDS)
    for shards in (3, COMMITTED):
        with building.start(config) as run:
            run.write(shards)
    unfinished = Path(shutil.copytree(folder / "finished", folder / "unfinished"))
    building.build(config)
    weights = {name: {**d.model_dump(), "weight": 1} for name, d in config.datasets.items()}
    other = many_shards(folder, str(folder / "other"), shards=SHARDS, batch_size=3, datasets=weights)
    for shards in (3, COMMITTED, SHARDS):
        with building.start(other) as run:
            run.write(shards)
            if shards == SHARDS:
                run.finish()
    return Runs(config, unfinished, folder / "finished", folder / "other")


def slot(number: int) -> str:
    """Return the name of a slot."""
    return commits.slot_name(number)


def shard(number: int) -> str:
    """Return the name of a shard."""
    return f"data/shard-{number:08d}.parquet"


def everything(output: Path) -> dict[str, bytes]:
    """Return all files below `output`, of whatever kind."""
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def flips(data: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield `data` with one bit flipped: in its first byte, its last one, and at `count` places in between."""
    chance = random.Random(seed)  # noqa: S311 -- places, not secrets
    places = [0, len(data) - 1, *(chance.randrange(len(data)) for _ in range(count))]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        yield bytes(changed)


def body_bytes(path: Path) -> int:
    """Return where the rows end: behind them lie indices, which are not read, and the footer."""
    metadata = pq.read_metadata(path)
    last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
    start: int = last.dictionary_page_offset or last.data_page_offset
    return start + int(last.total_compressed_size)


def verified(output: Path) -> set[str]:
    """Return the objects that `verify` names, relative to `output`; the one that ends it in an error included."""
    try:
        return {problem.object.removeprefix(f"{output}/") for problem in verify(str(output)).problems}
    except CorruptionError as error:
        return {str(error).partition(": ")[0].removeprefix(f"{output}/")}


def refusal(call: Callable[[], object]) -> MixerError | None:
    """Return what `call` is refused with; None if it is not."""
    try:
        call()
    except MixerError as error:
        return error
    return None


def readers(config: MixConfig, output: Path) -> dict[str, Callable[[], object]]:
    """Return everything that reads a run, by name."""
    there = config.model_copy(update={"output": str(output)})
    return {
        "resume": lambda: building.start(there).close(),
        "status": lambda: building.status(str(output)),
        "head": lambda: head(str(output), SHARDS * there.batch_size),
    }
