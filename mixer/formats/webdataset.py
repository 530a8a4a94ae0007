"""WebDataset tars: members whose names are equal up to the first dot of the base name make a row.

The columns are `__key__` and one for each ending, bytes as they are stored, but text for endings that say so. Names are
only names: nothing is unpacked, followed or executed, whatever they say.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mixer.closing import Closable, closed_on_error
from mixer.errors import InputError, SchemaError
from mixer.formats.base import Piece, Policy, Position, Problem, Reading, RowFormat
from mixer.formats.json_types import MAX_FIELDS
from mixer.formats.options import MAX_VALUE_BYTES
from mixer.formats.streams import READ_BYTES, Stream
from mixer.storage.inputs import InputFile

KEY = "__key__"
TEXT_ENDINGS = frozenset({"txt", "text", "transcript", "cls", "json"})
"""Members of these endings are text in UTF-8; all others are bytes."""
_BLOCK_BYTES = 512


class WebDataset(RowFormat):
    """Tars of samples."""

    def schema(self, files: Sequence[InputFile]) -> pa.Schema:
        """Return the columns: the endings of all members of all files, in the order in which they are first seen."""
        endings: dict[str, None] = {}
        for file in files:
            with _Members(file, Position()) as members:
                while (member := members.next()) is not None:
                    if member.ending is not None:
                        endings.setdefault(member.ending)
                    if len(endings) > MAX_FIELDS:
                        raise SchemaError(
                            f"dataset {self._dataset!r}: {file.url}: expected at most {MAX_FIELDS} endings, found "
                            f"more; an ending begins at the first dot of a name, so take the others out"
                        )
        if not endings:
            raise SchemaError(f"dataset {self._dataset!r}: expected members named as in 000.jpg, found none")
        kinds = {ending: pa.string() if ending in TEXT_ENDINGS else pa.binary() for ending in endings}
        return pa.schema({KEY: pa.string(), **kinds})

    def begin(self, file: InputFile, schema: pa.Schema, at: Position) -> Reading:
        return _Reading(Policy(self._dataset, self._options), file, schema, at)


class _Member:
    """A member, and what its name says."""

    __slots__ = ("begin", "ending", "info", "key")

    def __init__(self, info: tarfile.TarInfo, begin: int) -> None:
        self.info, self.begin = info, begin
        folder, slash, base = info.name.rpartition("/")
        key, dot, ending = base.partition(".")
        is_part = info.isreg() and not info.issparse() and key and dot and ending and ending != KEY
        self.key = f"{folder}{slash}{key}" if is_part else None
        self.ending = ending if is_part else None


class _Reading(Reading):
    def __init__(self, policy: Policy, file: InputFile, schema: pa.Schema, at: Position) -> None:
        self._policy, self._file, self._schema = policy, file, schema
        self._members = _Members(file, at)
        self._at = at
        with closed_on_error(self._members):
            self._waiting = self._members.next()

    def take(self, most_bytes: int) -> Piece | None:
        rows: list[dict[str, Any]] = []
        size = 0
        while size < most_bytes and self._waiting is not None:
            size += self._sample(rows)
        if not size:
            return None
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in self._schema]
        bad, counts = self._policy.take()
        return Piece(pa.table(columns, self._schema), size, self._at, bad, counts)

    def _sample(self, rows: list[dict[str, Any]]) -> int:
        """Take the next sample, or a member that is no part of one; return how much was read."""
        first = self._waiting
        assert first is not None  # noqa: S101 - the caller has looked
        row: dict[str, Any] = {KEY: first.key}
        problem: Problem | None = None
        data = b""
        size = _BLOCK_BYTES
        while self._waiting is not None and self._waiting.key == first.key:
            member = self._waiting
            if member.key is None or member.ending is None:
                self._policy.counts["members_passed_over"] += not member.info.isdir()
                self._waiting = self._members.next()
                break
            content = self._members.read(member, MAX_VALUE_BYTES - size)
            size += len(content) + _BLOCK_BYTES
            found, value = _judged(member, content, row)
            if found is not None and problem is None:
                problem, data = found, content
            row[member.ending] = value
            self._waiting = self._members.next()
        if first.key is not None:
            if problem is not None:
                self._policy.meet(self._file, self._at.line, problem, data)
            else:
                rows.append(row)
        begin = self._members.end if self._waiting is None else self._waiting.begin
        self._at = Position(begin, self._at.line + (first.key is not None))
        return size

    def close(self) -> None:
        self._members.close()


def _judged(member: _Member, content: bytes, row: dict[str, Any]) -> tuple[Problem | None, Any]:
    """Return what is wrong with a member of a sample, if anything is, and its value."""
    name = member.info.name
    try:
        name.encode()
    except UnicodeEncodeError:
        return Problem("encoding", f"expected a member's name in UTF-8, found {name!r}"), None
    if member.ending in row:
        return Problem("duplicate_key", f"expected one member of each ending, found {name!r} twice"), None
    if member.ending not in TEXT_ENDINGS:
        return None, content
    try:
        return None, content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem("encoding", f"member {name!r}: expected UTF-8, found other bytes at {error.start + 1}"), None


class _Members(Closable):
    """The members of a tar from the header of one of them on."""

    def __init__(self, file: InputFile, at: Position) -> None:
        self._file = file
        self._stream = Stream(file, at.offset)
        self._bytes = _Forward(self._stream)
        self.end = at.offset
        """Where the archive's end was found."""
        with closed_on_error(self._stream):
            self._tar: tarfile.TarFile = self._call(lambda: tarfile.TarFile(fileobj=self._bytes, mode="r"))  # type: ignore[arg-type]  # it is enough of a file
        # The constructor has read the first header; asked for the next one, `tarfile` would read an end once more.
        self._is_over = self._tar.firstmember is None
        self._begin = at.offset

    def next(self) -> _Member | None:
        """Return the next member; None at the end of the archive.

        Raises:
            InputError: The archive is damaged or cut short, or a member is too long.
        """
        info = None if self._is_over else self._call(self._tar.next)
        begin, self._begin = self._begin, self._tar.offset
        if info is None:
            self._is_over, self.end = True, begin
            self._check_end()
            return None
        # Otherwise they pile up.
        self._tar.members = []  # type: ignore[attr-defined]  # left out of the types
        if self._tar.pax_headers.keys() - {"comment"}:
            raise self._damaged("a global header changes all members, which cannot be gone on with from the middle")
        if info.isreg() and not info.issparse() and info.size > MAX_VALUE_BYTES:
            raise self._damaged(
                f"member {info.name!r} has {info.size:,} bytes, and at most {MAX_VALUE_BYTES:,} are read"
            )
        return _Member(info, begin)

    def read(self, member: _Member, most_bytes: int) -> bytes:
        """Return what a member holds, which was returned last.

        Raises:
            InputError: It is cut short, or longer than `most_bytes`, which its sample may still have.
        """
        info = member.info
        if info.size > most_bytes:
            raise self._damaged(f"the sample {member.key!r} has more than {MAX_VALUE_BYTES:,} bytes")
        self._bytes.seek(info.offset_data)
        data = self._bytes.read(info.size)
        if len(data) < info.size:
            raise self._damaged(f"member {info.name!r} is cut short")
        return data

    def close(self) -> None:
        self._stream.close()

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise self._damaged(str(error)) from error

    def _check_end(self) -> None:
        """Refuse an archive that just ends, and one that another follows: `tarfile` is silent about both."""
        if self._bytes.last != bytes(_BLOCK_BYTES):
            raise self._damaged("it has no end where one is expected: it was cut short, or a header is broken")
        while piece := self._stream.read(READ_BYTES):
            if piece.strip(b"\0"):
                raise self._damaged("more data follows its end; are these several archives in one file?")

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"input file {self._file.url}, at byte {self._bytes.tell()}: expected a tar that is whole, found a fault: "
            f"{what}; mend or restore it"
        )


class _Forward:
    """A stream as `tarfile` reads it: forward, and a little way back."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._again = b""
        self._tail = b""
        self.last = b""
        """What the last read of one block gave: in the end, the header that ended the archive."""

    def tell(self) -> int:
        return self._stream.position - len(self._again)

    def seek(self, place: int) -> int:
        ahead = place - self.tell()
        if ahead < 0:
            self._again = (self._tail + self._again)[ahead - len(self._again) :]
            self._tail = b""
            if self.tell() != place:
                raise tarfile.ReadError("a header points back into the archive")
            return place
        dropped = min(ahead, len(self._again))
        self._again = self._again[dropped:]
        if ahead > dropped:
            # Beyond the end there is nothing to read, which the next read will find.
            self._stream.skip(ahead - dropped)
            self._tail = b""
        return self.tell()

    def read(self, size: int) -> bytes:
        if size > MAX_VALUE_BYTES + _BLOCK_BYTES:
            raise tarfile.ReadError(f"a header asks for {size} bytes")
        data, self._again = self._again[:size], self._again[size:]
        if len(data) < size:
            data += self._stream.read(size - len(data))
        self._tail = data[-_BLOCK_BYTES:]
        if size == _BLOCK_BYTES:
            self.last = data
        return data
