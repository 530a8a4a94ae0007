"""Making one prepared copy: the parts of a stage onto a store, one by one, from wherever an earlier process stopped.

A part is put under its number, then what was put aside with it, then its record; and when there are no more parts, the
record of the copy. Whoever finds records goes on after the last of them. What was put without a record is put again.

Why there is no owner, no lock and no conditional write: everything that is put follows from the key, so whoever puts
an object puts the same bytes. Two processes at once do the same work twice, and neither harms the other. That it is so
is not taken for granted: what is there already is compared, and other bytes are an error.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from mixer.core.fingerprint import sha256_hex
from mixer.errors import ChangedError, CorruptionError
from mixer.preparation import record
from mixer.preparation.base import Part, Stage
from mixer.preparation.record import Copy, PartFile, PartRecord
from mixer.records import read_record
from mixer.shards import encode
from mixer.sources.footers import footer_of
from mixer.sources.inventory import FileEntry, Inventory
from mixer.storage import Store
from mixer.storage.inputs import InputFile, difference, is_remote, stat_input
from mixer.storage.urls import TEMPORARY_FOLDER

log = logging.getLogger(__name__)

_THREADS = 16
_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where prepared copies lie."""

    store: Store
    prefix: str = ""
    """Of the names of all objects there; a folder, with its closing slash."""

    @property
    def url(self) -> str:
        """Where that is, without a closing slash."""
        return f"{self.store.url.rstrip('/')}/{self.prefix}".rstrip("/")

    @property
    def scratch(self) -> Path | None:
        """Folder beside the copies for what is of no use once a process has ended; None if they are on no local disk.

        The store neither lists what lies there nor takes it for anything else.
        """
        return None if is_remote(self.store.url) else Path(self.store.url) / TEMPORARY_FOLDER

    def name(self, key: str, name: str) -> str:
        """Return what an object of a copy is called in the store."""
        return f"{self.prefix}{key}/{name}"

    def where(self, key: str, name: str = "") -> str:
        """Return where an object of a copy is, or the copy itself."""
        return f"{self.url}/{key}/{name}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Link:
    """A stage of a dataset's preparation, and what it reads."""

    stage: Stage
    watched: Sequence[InputFile]
    """The files that it reads, as they are to stay."""
    kind: str
    """``rows``, ``tokens``, ``order`` or ``batches``: for people."""
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", record.key_of(self.stage))


@dataclass(frozen=True, slots=True)
class Progress:
    """One more part that is done."""

    dataset: str
    kind: str
    """Of the stage."""
    number: int
    """Of the part, from 0."""
    rows: int
    bytes: int
    path: str
    """Of the part's file, below the place of all copies."""


OnPart = Callable[[Progress], None]
ShouldStop = Callable[[], bool]


def find_copy(place: Place, key: str) -> Copy | None:
    """Return the copy `key` if it is there and complete; only its record is read, and its files are listed.

    Raises:
        CorruptionError: Its record is damaged.
    """
    data = read_record(place.store, place.name(key, record.PREPARED_NAME))
    if data is None:
        return None
    copy = record.copy_from(data, key, place.where(key, record.PREPARED_NAME))
    is_whole = _lost(place, key, copy.files) is None
    if not is_whole:
        log.warning("files are missing from a prepared copy where=%s", place.where(key))
    return copy if is_whole else None


def _lost(place: Place, key: str, files: Sequence[PartFile | None]) -> int | None:
    """Return the place of the first of `files` that is not there in its length; None if all are."""
    listed = {info.name: info.bytes for info in place.store.list(place.name(key, record.DATA_FOLDER))}
    return next(
        (
            number
            for number, file in enumerate(files)
            if file is not None and listed.get(place.name(key, file.path)) != file.bytes
        ),
        None,
    )


def damaged_parts(place: Place, key: str) -> list[str]:
    """Return where the files of the copy `key` are whose bytes are not those of its record; all of them are read.

    Raises:
        CorruptionError: The record is damaged.
        StoreError: The store refused, or did not answer.
    """
    copy = find_copy(place, key)
    files = () if copy is None else copy.files

    def is_damaged(file: PartFile) -> bool:
        found = hashlib.sha256()
        for start in range(0, file.bytes, _READ_BYTES):
            stop = min(start + _READ_BYTES, file.bytes)
            found.update(place.store.get_range(place.name(key, file.path), start, stop))
        return found.hexdigest() != file.sha256

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="mixer-prepared") as pool:
        verdicts = list(pool.map(is_damaged, files))
    return [place.where(key, file.path) for file, damaged in zip(files, verdicts, strict=True) if damaged]


def make_copy(place: Place, link: Link, *, on_part: OnPart | None = None, should_stop: ShouldStop) -> Copy | None:
    """Make the copy of `link`, or what of it is missing; None if it was stopped at a part's edge.

    Args:
        place: Where copies lie.
        link: The stage, and what it reads.
        on_part: Hears of each part, in this thread.
        should_stop: Asked after each part.

    Raises:
        InputError, SchemaError: The inputs are not what they should be.
        ChangedError: They were changed meanwhile; nothing was written of what has changed.
        CorruptionError: What is there is not what comes of them.
    """
    schema = _begun(place, link)
    done = _records(place, link.key)
    last = done[-1] if done else None
    if done:
        log.info("going on dataset=%s key=%s parts=%d", link.stage.name, link.key, len(done))
    for part in link.stage.parts(schema, last.cursor if last else None):
        last = _put_part(place, link, schema, part, last)
        done.append(last)
        if on_part is not None:
            on_part(_progress(link, last))
        if should_stop():
            return None
    _check_unchanged(link, every=True)
    copy = Copy(
        key=link.key,
        identity=link.stage.identity,
        schema=schema,
        files=tuple(each.file for each in done if each.file is not None),
        bad=sum(each.bad for each in done),
        facts=link.stage.facts(last.cursor if last else None),
    )
    _keep(place, link.key, record.PREPARED_NAME, copy.encoded())
    return copy


def _progress(link: Link, done: PartRecord) -> Progress:
    rows, size_bytes = (done.file.rows, done.file.bytes) if done.file else (0, 0)
    path = f"{link.key}/{record.part_name(done.number)}"
    return Progress(link.stage.name, link.kind, done.number, rows, size_bytes, path)


def _begun(place: Place, link: Link) -> pa.Schema:
    """Return the columns of the copy: by its first record or, which may read all of the inputs, by the stage."""
    data = read_record(place.store, place.name(link.key, record.BEGUN_NAME))
    if data is None:
        schema = link.stage.schema()
        _check_unchanged(link, every=True)
        data = record.begun(link.key, link.stage.identity, schema)
        _keep(place, link.key, record.BEGUN_NAME, data)
    return record.begun_schema(data, link.key, place.where(link.key, record.BEGUN_NAME))


def _records(place: Place, key: str) -> list[PartRecord]:
    """Return the records of the parts that are done, in their order.

    Raises:
        CorruptionError: Some are damaged.
    """
    names = {info.name for info in place.store.list(place.name(key, record.LOG_FOLDER))}
    numbers = range(len(names))
    # Two processes at once may be at different parts, but none leaves one out.
    if names != {place.name(key, record.log_name(number)) for number in numbers}:
        raise CorruptionError(
            f"{place.where(key, record.LOG_FOLDER)}: expected records without a gap; delete this prepared copy, and "
            f"prepare it again"
        )

    def read(number: int) -> bytes:
        return place.store.get(place.name(key, record.log_name(number))) or b""

    found: list[PartRecord] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="mixer-prepared") as pool:
        for number, data in enumerate(pool.map(read, numbers)):
            prev = found[-1].sha256 if found else key
            found.append(record.part_record(data, number, prev, place.where(key, record.log_name(number))))
    # If somebody has deleted a part, all from there on are made again: what is there of them is compared.
    return found[: _lost(place, key, [each.file for each in found])]


def _put_part(place: Place, link: Link, schema: pa.Schema, part: Part, before: PartRecord | None) -> PartRecord:
    """Put a part, what was put aside with it, and its record."""
    number = before.number + 1 if before else 0
    file = None
    # Before anything is put: what was read of a file that has changed is nothing that the key stands for.
    _check_unchanged(link, every=False)
    if part.row_groups:
        data = _encoded(link.stage.name, part.row_groups, schema)
        file = _file(record.part_name(number), data)
        _keep(place, link.key, file.path, data)
    if part.bad:
        _keep(place, link.key, record.quarantine_name(number), record.quarantined(part.bad))
    done = PartRecord(
        number=number,
        file=file,
        bad=len(part.bad),
        cursor=part.cursor,
        prev=before.sha256 if before else link.key,
    )
    _keep(place, link.key, record.log_name(number), done.encoded())
    return done


def _encoded(name: str, row_groups: Sequence[pa.Table], schema: pa.Schema) -> bytes:
    def checked() -> Iterator[pa.Table]:
        for table in row_groups:
            if not len(table) or not table.schema.equals(schema):
                raise ValueError(f"dataset {name!r}: expected row groups with rows, of {schema}; found {table.schema}")
            # In one chunk each, as chunks change the edges of pages.
            yield table.combine_chunks()

    return encode(checked(), schema, record.SETTINGS, {})


def _file(path: str, data: bytes) -> PartFile:
    footer = footer_of(path, data)
    return PartFile(
        path=path,
        bytes=len(data),
        sha256=sha256_hex(data),
        rows=footer.metadata.num_rows,
        row_group_rows=footer.row_group_rows,
        uncompressed_bytes=footer.uncompressed_bytes,
        footer_sha256=footer.sha256,
    )


def _keep(place: Place, key: str, name: str, data: bytes) -> None:
    """See to it that the object `name` of a copy is `data`.

    Raises:
        CorruptionError: It is there, and something else.
    """
    full = place.name(key, name)
    found = place.store.stat(full)
    if found is None:
        place.store.put(full, data)
    elif found.bytes != len(data) or place.store.get(full) != data:
        raise CorruptionError(
            f"{place.where(key, name)}: expected what comes of the inputs, {len(data)} bytes, found {found.bytes} "
            f"other bytes; delete this prepared copy, and prepare it again"
        )


def _check_unchanged(link: Link, *, every: bool) -> None:
    """Check that the files that a stage reads are still what they were.

    Remote ones are read in versions that are pinned; they are asked for only with `every`.

    Raises:
        ChangedError: They are not.
    """
    for file in link.watched:
        if not every and is_remote(file.url):
            continue
        if changed := difference(file, stat_input(file.url)):
            raise ChangedError(
                f"dataset {link.stage.name!r}, file {file.url}: it has changed while it was being prepared: {changed}; "
                f"prepare again when nothing writes it"
            )


def inventory_of(place: Place, copy: Copy) -> Inventory:
    """Return the files of a copy as the inputs of a run; nothing is read.

    They have no version: whenever a copy is made again, its files are the same under the same key.
    """
    files = tuple(
        FileEntry(
            url=place.where(copy.key, file.path),
            bytes=file.bytes,
            version="",
            rows=file.rows,
            row_group_rows=file.row_group_rows,
            uncompressed_bytes=file.uncompressed_bytes,
            footer_sha256=file.footer_sha256,
        )
        for file in copy.files
    )
    facts = {**copy.facts, "prepared": {"key": copy.key, "content": copy.content}}
    return Inventory(files, (), facts)
