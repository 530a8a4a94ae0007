"""What a prepared copy says of itself: a record for each of its parts, and one for the whole, written last.

    KEY/begun.json                  what the copy is of, and its columns; written first
    KEY/data/part-00000000.parquet  the rows
    KEY/log/00000000.json           that this part is done, what it is, and where the stage stood after it
    KEY/quarantine/00000000.jsonl   what the stage put aside meanwhile, if it did
    KEY/prepared.json               that all parts are done, which they are, and what is known of them

All of it follows from what the key is the hash of, but for who made it and when: so nothing says that. Each record
holds the hash of the one before it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from mixer.core.commits import sealed, unsealed
from mixer.core.fingerprint import JSON, canonical_json, fingerprint
from mixer.errors import CorruptionError
from mixer.preparation.base import BadLine, Cursor, Stage
from mixer.schemas import schema_from_json, schema_to_json
from mixer.shards import WriterSettings

FORMAT = 1
"""Of the records. A reader refuses a greater one."""

FOLDER = ".mixer/prepared/"
"""Where copies lie in an output, unless the config names another place."""
BEGUN_NAME = "begun.json"
PREPARED_NAME = "prepared.json"
LOG_FOLDER = "log/"
DATA_FOLDER = "data/"
KEY_DIGITS = 64

SETTINGS = WriterSettings(compression="zstd", compression_level=1, batches_per_row_group=1)
"""Of every part; row groups are cut by the stages."""


def key_of(stage: Stage) -> str:
    """Return the name of the copy that `stage` makes: the hash of all that decides its bytes."""
    return fingerprint({"format": FORMAT, "stage": stage.identity, "physical": SETTINGS.to_json()})


def part_name(number: int) -> str:
    """Return the name of a part's file within its copy.

    >>> part_name(3)
    'data/part-00000003.parquet'
    """
    return f"{DATA_FOLDER}part-{number:08d}.parquet"


def log_name(number: int) -> str:
    """Return the name of a part's record within its copy.

    >>> log_name(3)
    'log/00000003.json'
    """
    return f"{LOG_FOLDER}{number:08d}.json"


def quarantine_name(number: int) -> str:
    """Return the name of what was put aside with a part.

    >>> quarantine_name(3)
    'quarantine/00000003.jsonl'
    """
    return f"quarantine/{number:08d}.jsonl"


@dataclass(frozen=True, slots=True)
class PartFile:
    """The file of a part, as its footer and its bytes say."""

    path: str
    """Name within the copy."""
    bytes: int
    sha256: str
    rows: int
    row_group_rows: tuple[int, ...]
    uncompressed_bytes: int
    footer_sha256: str

    def to_json(self) -> dict[str, JSON]:
        """Return it as plain values."""
        return {**asdict(self), "row_group_rows": list(self.row_group_rows)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PartFile:
        """Return the file that `to_json` gave `value` for.

        Raises:
            KeyError, TypeError, ValueError: `value` is something else.
        """
        part = cls(**{**value, "row_group_rows": tuple(value["row_group_rows"])})
        numbers = (part.bytes, part.rows, part.uncompressed_bytes, *part.row_group_rows)
        texts = (part.path, part.sha256, part.footer_sha256)
        if not all(type(number) is int and number >= 0 for number in numbers) or not all(
            type(text) is str for text in texts
        ):
            raise ValueError(f"expected texts and whole numbers, found {value!r:.100}")
        if sum(part.row_group_rows) != part.rows:
            raise ValueError(f"expected {part.rows} rows in all row groups, found {sum(part.row_group_rows)}")
        return part


@dataclass(frozen=True, slots=True)
class PartRecord:
    """That a part is done."""

    number: int
    file: PartFile | None
    """None for a part without rows: only bad lines were left."""
    bad: int
    """How many pieces were put aside with it."""
    cursor: Cursor
    """Where the stage stood after it."""
    prev: str
    """Hash of the record before it, or the copy's key."""

    def encoded(self) -> bytes:
        """Return the bytes of the record."""
        return sealed({"format": FORMAT, **self._content()})

    @property
    def sha256(self) -> str:
        """What the next record calls this one."""
        return fingerprint(self._content())

    def _content(self) -> dict[str, JSON]:
        return {
            "number": self.number,
            "file": self.file.to_json() if self.file else None,
            "bad": self.bad,
            "cursor": dict(self.cursor),
            "prev": self.prev,
        }


def part_record(data: bytes, number: int, prev: str, where: str) -> PartRecord:
    """Return the record of part `number` that `data` holds.

    Raises:
        CorruptionError: It is damaged, or does not follow the one that `prev` is the hash of.
    """
    content = _unsealed(data, where)
    try:
        file = content["file"]
        record = PartRecord(
            number=content["number"],
            file=None if file is None else PartFile.from_json(file),
            bad=content["bad"],
            cursor=dict(content["cursor"]),
            prev=content["prev"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"{where}: not the record of a part: {error!r}; {_REMEDY}") from error
    if (record.number, record.prev) != (number, prev):
        raise CorruptionError(f"{where}: does not follow the record before it; {_REMEDY}")
    return record


def _unsealed(data: bytes, where: str) -> dict[str, Any]:
    try:
        return unsealed(data, where)
    except CorruptionError as error:
        # Of all damaged objects these alone can be made again.
        raise CorruptionError(f"{error}; or {_REMEDY}") from error


_REMEDY = "delete this prepared copy, and prepare it again"


@dataclass(frozen=True, slots=True)
class Copy:
    """A prepared copy that is complete."""

    key: str
    identity: Mapping[str, JSON]
    schema: pa.Schema
    files: tuple[PartFile, ...]
    """Its files, in their order."""
    bad: int
    """How many pieces of the inputs were put aside."""
    facts: Mapping[str, JSON]
    """What the stage knows of it."""

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def content(self) -> str:
        """What stands for the rows in their order, wherever the copy and what it was made from lie."""
        return fingerprint([file.sha256 for file in self.files])

    def encoded(self) -> bytes:
        """Return the bytes of ``prepared.json``."""
        return sealed(
            {
                "format": FORMAT,
                "key": self.key,
                "identity": self.identity,
                "physical": SETTINGS.to_json(),
                "schema": schema_to_json(self.schema),
                "files": [file.to_json() for file in self.files],
                "rows": self.rows,
                "bad": self.bad,
                "facts": self.facts,
            }
        )


def copy_from(data: bytes, key: str, where: str) -> Copy:
    """Return the copy that ``prepared.json`` of `key` holds `data` for.

    Raises:
        CorruptionError: It is damaged, or another copy's.
    """
    content = _unsealed(data, where)
    try:
        copy = Copy(
            key=content["key"],
            identity=dict(content["identity"]),
            schema=schema_from_json(content["schema"]),
            files=tuple(PartFile.from_json(file) for file in content["files"]),
            bad=content["bad"],
            facts=dict(content["facts"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(f"{where}: not the record of a prepared copy: {error!r}; {_REMEDY}") from error
    if copy.key != key:
        raise CorruptionError(f"{where}: expected the copy {key}, found the record of {copy.key}; {_REMEDY}")
    return copy


def begun(key: str, identity: Mapping[str, JSON], schema: pa.Schema) -> bytes:
    """Return the bytes of ``begun.json``."""
    return sealed({"format": FORMAT, "key": key, "identity": identity, "schema": schema_to_json(schema)})


def begun_schema(data: bytes, key: str, where: str) -> pa.Schema:
    """Return the columns that ``begun.json`` of `key` says.

    Raises:
        CorruptionError: It is damaged, or another copy's.
    """
    content = _unsealed(data, where)
    if content.get("key") != key or "schema" not in content:
        raise CorruptionError(f"{where}: not the beginning of the copy {key}; {_REMEDY}")
    return schema_from_json(content["schema"])


def quarantined(lines: Sequence[BadLine]) -> bytes:
    r"""Return what was put aside, a line of JSON for each piece; bytes that are no UTF-8 stand in base64.

    >>> quarantined([BadLine("a.jsonl", 7, "not JSON", b"{")])
    b'{"data":"{","file":"a.jsonl","line":7,"problem":"not JSON"}\n'
    """
    return b"".join(canonical_json(_told(line)) + b"\n" for line in lines)


def _told(line: BadLine) -> dict[str, JSON]:
    told: dict[str, JSON] = {"file": line.file, "line": line.line, "problem": line.problem}
    try:
        return {**told, "data": line.data.decode("utf-8")}
    except UnicodeDecodeError:
        return {**told, "data_base64": base64.b64encode(line.data).decode("ascii")}
