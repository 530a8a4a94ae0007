"""A stage that needs no input, for tests of what makes copies of stages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mixer.core.fingerprint import JSON
from mixer.preparation import engine
from mixer.preparation.base import BadLine, Cursor, Part
from mixer.preparation.engine import Link, Place
from mixer.preparation.record import Copy
from mixer.storage import Store
from mixer.storage.inputs import InputFile

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])


def never() -> bool:
    return False


@dataclass
class Numbers:
    """The numbers below `rows`, but for those that are bad: every `bad_every`-th."""

    rows: int = 10
    part_rows: int = 3
    """Numbers in a part, bad ones too."""
    bad_every: int | None = 4
    name: str = "numbers"
    salt: str = ""
    """Goes into the rows and not into the identity: a stage that is not deterministic."""
    on_part: Callable[[], object] = never
    begun: list[Cursor | None] = field(default_factory=list)
    """The cursors that parts were asked for after."""

    @property
    def identity(self) -> Mapping[str, JSON]:
        return {"kind": "numbers", "rows": self.rows, "part_rows": self.part_rows, "bad_every": self.bad_every}

    def schema(self) -> pa.Schema:
        return SCHEMA

    def parts(self, schema: pa.Schema, after: Cursor | None) -> Iterator[Part]:
        assert schema.equals(SCHEMA)
        self.begun.append(after)
        start = 0 if after is None else int(str(after["next"]))
        for first in range(start, self.rows, self.part_rows):
            stop = min(first + self.part_rows, self.rows)
            bad = [n for n in range(first, stop) if self.bad_every and n % self.bad_every == self.bad_every - 1]
            good = [n for n in range(first, stop) if n not in bad]
            self.on_part()
            yield Part(
                [self._table(good[at : at + 2]) for at in range(0, len(good), 2)],
                {"next": stop, "seen": [first, stop]},
                [BadLine("numbers.txt", n + 1, "bad", bytes([200 + n % 50])) for n in bad],
            )

    def _table(self, numbers: Sequence[int]) -> pa.Table:
        return pa.table({"n": list(numbers), "text": [f"{n}{self.salt}" for n in numbers]}, schema=SCHEMA)

    def facts(self, last: Cursor | None) -> Mapping[str, JSON]:
        return {"numbers": 0 if last is None else int(str(last["next"]))}


def link_of(stage: Numbers, watched: Sequence[InputFile] = ()) -> Link:
    """Return `stage` as the engine takes it."""
    return Link(stage, watched, "numbers")


def make(store: Store, stage: Numbers | None = None, should_stop: Callable[[], bool] = never) -> Copy | None:
    """Make the copy of a stage in `store`."""
    return engine.make_copy(Place(store), link_of(stage or Numbers()), should_stop=should_stop)


def make_numbers(store: Store) -> None:
    """Make the copy of `Numbers()`; a function of a module, for child processes."""
    make(store)


def bad_bytes(number: int) -> str:
    """Return what stands in the quarantine for the bytes of a bad number."""
    return base64.b64encode(bytes([200 + number % 50])).decode()
