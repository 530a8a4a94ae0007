"""What a dataset is made of: every file with its size, version, rows and the hash of its footer.

An inventory is taken once, when a run is planned, and kept with the run as plain JSON. Later starts compare
the files with it and never list them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.core.fingerprint import JSON
from mixer.errors import ChangedError, CorruptionError, InputError
from mixer.sources.footers import Footer, read_footer
from mixer.storage.inputs import InputFile, InputListing, difference, find_inputs, stat_input

T = TypeVar("T")
U = TypeVar("U")

ROWS_MAX = 2**63 - 1
"""Rows of one dataset: their positions are 64-bit integers."""
_THREADS = 16
_KEPT_FOOTER_BYTES = 64 * 1024 * 1024
"""Of one dataset; parsed footers take a few times as much. Further files have theirs read again when opened."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a dataset, as it was when the run was planned."""

    url: str
    bytes: int
    version: str
    """As in `InputFile`. Empty for a file of a prepared copy: its place says what is in it, whenever it was written."""
    rows: int
    row_group_rows: tuple[int, ...]
    uncompressed_bytes: int
    """Of all columns, encoded as in the file but not compressed."""
    footer_sha256: str

    @property
    def file(self) -> InputFile:
        """The file without what its footer says."""
        return InputFile(self.url, self.bytes, self.version)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of one dataset in their order, and what was passed over when they were listed.

    >>> Inventory(files=(FileEntry("/a.parquet", 400, "1", 3, (2, 1), 90, "ab"),), ignored=()).rows
    3
    """

    files: tuple[FileEntry, ...]
    ignored: tuple[str, ...]
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """Of a prepared copy: what its record says of it, and under ``prepared`` which one it is. Else nothing."""
    footers: Mapping[str, pq.FileMetaData] = field(default_factory=dict, compare=False, repr=False)
    """Parsed footers by URL, as far as this process has read and kept them. Not part of the value."""

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(entry.rows for entry in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files as stored."""
        return sum(entry.bytes for entry in self.files)

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of all columns of all files, encoded but not compressed."""
        return sum(entry.uncompressed_bytes for entry in self.files)

    @property
    def copy_key(self) -> str | None:
        """The key of the prepared copy that these are the files of; None if they are none's."""
        prepared = self.facts.get("prepared")
        key = prepared.get("key") if isinstance(prepared, Mapping) else None
        return key if isinstance(key, str) else None

    def to_json(self) -> dict[str, Any]:
        """Return the inventory as strings, integers and lists, for `from_json`."""
        files = [{**asdict(entry), "row_group_rows": list(entry.row_group_rows)} for entry in self.files]
        # Left out where there are none, so that records of older versions are those of today.
        return {"files": files, "ignored": list(self.ignored), **({"facts": dict(self.facts)} if self.facts else {})}

    def identity(self) -> dict[str, Any]:
        """Return what tells these inputs from others, as plain values: not where prepared copies lie."""
        value = self.to_json()
        if (key := self.copy_key) is not None:
            for entry in value["files"]:
                entry["url"] = entry["url"].rpartition(f"{key}/")[2]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Inventory:
        """Return the inventory that `to_json` gave `value` for.

        Raises:
            CorruptionError: `value` is something else.
        """
        try:
            files = tuple(_entry_from_json(entry) for entry in value["files"])
            ignored = tuple(value["ignored"])
            facts = dict(value.get("facts", {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(
                f"an inventory of inputs does not have the keys it was written with: {error}"
            ) from error
        if not all(type(name) is str for name in ignored) or sum(entry.rows for entry in files) > ROWS_MAX:
            raise CorruptionError("an inventory of inputs holds impossible values")
        return cls(files, ignored, facts)


def _entry_from_json(value: Mapping[str, Any]) -> FileEntry:
    """Return the file that a part of `Inventory.to_json` stands for.

    Raises:
        CorruptionError: Some value is of another type than was written, or impossible.
        KeyError, TypeError, AttributeError: There are other keys.
    """
    counts = value["row_group_rows"]
    if type(counts) is not list or not all(type(count) is int and count >= 0 for count in counts):
        raise CorruptionError(f"an inventory of inputs: expected rows of row groups, found {counts!r:.100}")
    entry = FileEntry(**{**value, "row_group_rows": tuple(counts)})
    texts = (entry.url, entry.version, entry.footer_sha256)
    numbers = (entry.bytes, entry.rows, entry.uncompressed_bytes)
    if not all(type(text) is str for text in texts) or not all(type(number) is int for number in numbers):
        raise CorruptionError(f"an inventory of inputs: expected texts and whole numbers, found {value!r:.100}")
    if entry.bytes < 0 or entry.rows != sum(counts):
        raise CorruptionError(
            f"an inventory of inputs: expected {entry.rows} rows in all row groups, found {sum(counts)}"
        )
    return entry


def copy_keys(inventories: Mapping[str, Inventory]) -> set[str]:
    """Return the keys of the prepared copies that datasets are read from."""
    return {key for inventory in inventories.values() if (key := inventory.copy_key) is not None}


def take_inventory(
    name: str, path: str | Sequence[str], listing: InputListing | None = None
) -> tuple[Inventory, tuple[pa.Schema, ...]]:
    """Return what dataset `name` at `path` (see `find_inputs`) is made of, and each file's schema as stored.

    Every footer is read, in parallel, once; no rows are. Files without rows are kept. If the files have been listed
    already, `listing` says which they are.

    Raises:
        InputError: Nothing was found, or files are not usable; all of these are named.
        StoreError: A remote store refused, or did not answer.
    """
    try:
        listing = listing or find_inputs(path)
    except InputError as error:
        raise InputError(f"dataset {name!r}: {error}") from error
    results = _in_threads(lambda file: _footer_or_error(name, file), listing.files)
    errors = [result for result in results if isinstance(result, InputError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = "\n".join(f"- {error}" for error in errors)
        raise InputError(f"dataset {name!r}: {len(errors)} of {len(results)} files cannot be used:\n{lines}")
    footers = [result for result in results if isinstance(result, Footer)]
    kept: dict[str, pq.FileMetaData] = {}
    kept_bytes = 0
    for file, footer in zip(listing.files, footers, strict=True):
        kept_bytes += footer.bytes
        if kept_bytes <= _KEPT_FOOTER_BYTES:
            kept[file.url] = footer.metadata
    entries = tuple(_entry(name, file, footer) for file, footer in zip(listing.files, footers, strict=True))
    if (rows := sum(entry.rows for entry in entries)) > ROWS_MAX:
        raise InputError(
            f"dataset {name!r}: expected at most {ROWS_MAX:,} rows, its files' footers say {rows:,} in all"
        )
    return Inventory(entries, listing.ignored, footers=kept), _schemas(name, listing.files, footers)


def check_unchanged(name: str, inventory: Inventory) -> None:
    """Compare every file's size and version with what they were; nothing is read.

    Raises:
        ChangedError: Files differ or are gone; each one is named with what was expected and what was found.
        StoreError: A remote store refused, or did not answer.
    """
    found = _in_threads(lambda entry: stat_input(entry.url), inventory.files)
    changed = [
        f"- {entry.url}: {how}"
        for entry, file in zip(inventory.files, found, strict=True)
        if (how := difference(entry.file, file)) is not None
    ]
    if changed:
        what, remedy = "input files", "put the old files back"
        if "prepared" in inventory.facts:
            what, remedy = (
                "files of its prepared copy",
                "prepare it again (`mixer prepare`) from the inputs as they were",
            )
        raise ChangedError(
            f"dataset {name!r}: {len(changed)} of {len(inventory.files)} {what} have changed since the run was "
            f"planned; {remedy}, or start a new output:\n" + "\n".join(changed)
        )


def damaged_part(where: str, entry: FileEntry, found: str = "") -> CorruptionError:
    """Return the error that a file of a prepared copy is not what the copy's record says.

    Args:
        where: Names dataset and file.
        entry: The file.
        found: What is wrong with its bytes, if it has not another length by now.
    """
    found = difference(entry.file, stat_input(entry.url)) or found or "its footer is not the one that it had"
    return CorruptionError(
        f"{where}: it is a part of a prepared copy, and damaged: {found}; delete this file: `mixer prepare` with the "
        f"same config makes it again, with the same bytes"
    )


def read_planned_footer(name: str, entry: FileEntry) -> pq.FileMetaData:
    """Return the footer of a file again, if it still is the one that the inventory tells of.

    Raises:
        ChangedError: The footer or its row count is another one, or there is none any more.
    """
    try:
        footer = read_footer(name, entry.file)
    except InputError as error:
        raise ChangedError(
            f"{error} (though this was a whole Parquet file when the run was planned; put the old file back, or start "
            f"a new output)"
        ) from error
    if footer.sha256 != entry.footer_sha256 or footer.metadata.num_rows != entry.rows:
        raise ChangedError(
            f"dataset {name!r}, file {entry.url}: its contents have changed since the run was planned: expected "
            f"{entry.rows} rows and footer {entry.footer_sha256[:12]}, found {footer.metadata.num_rows} rows and "
            f"footer {footer.sha256[:12]}; put the old file back, or start a new output"
        )
    return footer.metadata


def _footer_or_error(name: str, file: InputFile) -> Footer | InputError:
    try:
        return read_footer(name, file)
    except InputError as error:
        return error


def _entry(name: str, file: InputFile, footer: Footer) -> FileEntry:
    row_group_rows = footer.row_group_rows
    if sum(row_group_rows) != footer.metadata.num_rows or min(row_group_rows, default=0) < 0:
        raise InputError(
            f"dataset {name!r}, file {file.url}: its footer says {footer.metadata.num_rows} rows in all, but "
            f"{sum(row_group_rows)} in its {len(row_group_rows)} row groups: it is damaged; write it again, or leave "
            f"it out"
        )
    return FileEntry(
        url=file.url,
        bytes=file.bytes,
        version=file.version,
        rows=footer.metadata.num_rows,
        row_group_rows=row_group_rows,
        uncompressed_bytes=footer.uncompressed_bytes,
        footer_sha256=footer.sha256,
    )


def _schemas(name: str, files: Sequence[InputFile], footers: Sequence[Footer]) -> tuple[pa.Schema, ...]:
    """Return each footer's Arrow schema; files that agree share one object, which makes merging them cheap."""
    distinct: list[pa.Schema] = []
    schemas = []
    for file, footer in zip(files, footers, strict=True):
        schema = _schema(name, file, footer)
        known = next((other for other in distinct if other.equals(schema, check_metadata=True)), None)
        if known is None:
            distinct.append(schema)
        schemas.append(schema if known is None else known)
    return tuple(schemas)


def _schema(name: str, file: InputFile, footer: Footer) -> pa.Schema:
    try:
        schema = footer.metadata.schema.to_arrow_schema()
        # Decodes every name, nested ones too.
        str(schema)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            f"dataset {name!r}, file {file.url}: its columns cannot be understood ({error}); write the file in another "
            f"way, or leave it out"
        ) from error
    return schema


def _in_threads(call: Callable[[T], U], values: Sequence[T]) -> list[U]:
    if len(values) <= 1:
        return [call(value) for value in values]
    with ThreadPoolExecutor(min(_THREADS, len(values)), thread_name_prefix="mixer-inputs") as pool:
        return list(pool.map(call, values))
