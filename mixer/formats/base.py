"""What every format gives: rows piece by piece, and after each piece the place to go on from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mixer.closing import Closable
from mixer.errors import InputError
from mixer.formats.options import RowsOptions
from mixer.preparation.base import BadLine
from mixer.storage.inputs import InputFile

BAD = "bad:"
"""What the kinds of bad lines begin with among the counts."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two rows of a file."""

    offset: int = 0
    """Decompressed bytes before it."""
    line: int = 1
    """The number that the next line, record or member has, counted from 1."""
    rows: int = 0
    """Rows after it that are taken already: of an Arrow batch that begins here."""


@dataclass(slots=True)
class Piece:
    """Some rows of a file that stand together."""

    table: pa.Table
    """Rows of the schema of the stage; maybe none."""
    bytes: int
    """What it counts for in a row group."""
    after: Position
    bad: list[BadLine] = field(default_factory=list)
    """What is to be put aside."""
    counts: Counter[str] = field(default_factory=Counter)
    """How much was passed over or taken in another way than usual, by kind."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a piece of a file is no row."""

    kind: str
    """One of a few words for the counts: `broken`, `ragged`, `encoding` and so on."""
    what: str
    """For people."""


class Policy:
    """What becomes of bad lines: decides, counts, and keeps what is to be put aside."""

    def __init__(self, dataset: str, options: RowsOptions) -> None:
        self._dataset, self._on_bad_line, self.unit = dataset, options.on_bad_line, options.unit
        self.bad: list[BadLine] = []
        self.counts: Counter[str] = Counter()

    def meet(self, file: InputFile, line: int, problem: Problem, data: bytes) -> None:
        """Take note of a bad line, or of another unit that the format is counted in.

        Raises:
            InputError: The policy is `error`.
        """
        if self._on_bad_line == "error":
            raise InputError(
                f"dataset {self._dataset!r}: {file.url} {self.unit} {line}: {problem.what}; mend the file, or set "
                f"`on_bad_line` to `skip` or `quarantine`"
            )
        self.counts[BAD + problem.kind] += 1
        if self._on_bad_line == "quarantine":
            self.bad.append(BadLine(file.url, line, problem.what, data))

    def take(self) -> tuple[list[BadLine], Counter[str]]:
        """Return what was noted since the last call."""
        noted = self.bad, self.counts
        self.bad, self.counts = [], Counter()
        return noted


class Reading(Closable):
    """A file that is being read. Used by one thread."""

    @abstractmethod
    def take(self, most_bytes: int) -> Piece | None:
        """Return the next rows, of at least one and about `most_bytes` bytes; None at the end of the file.

        Raises:
            InputError: The file is not what its format says, and the policy does not put that aside.
            ChangedError: The file was changed meanwhile.
        """


class RowFormat(ABC):
    """One format, for the files of one dataset.

    Args:
        dataset: The dataset's name, for errors.
        options: How the files are read, and what becomes of what is no row.
    """

    def __init__(self, dataset: str, options: RowsOptions) -> None:
        self._dataset, self._options = dataset, options

    @abstractmethod
    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns of the rows; may read all of the files.

        Raises:
            InputError: A file is not what its format says.
            SchemaError: The files have no columns in common.
        """

    @abstractmethod
    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        """Return the rows of a file from a position on, which an earlier piece of the same file ended in."""
