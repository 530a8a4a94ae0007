"""The command `mixer init`: a config to start from, filled in with the datasets that lie at a location."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mixer.cli import wording
from mixer.cli.console import Reply
from mixer.config import example_config, parse_config
from mixer.core.allocation import Allocation
from mixer.core.exhaustion import batches_that_fit
from mixer.errors import ConfigError, InputError

if TYPE_CHECKING:
    from mixer.storage.inputs import InputFile

BATCH_SIZE = 512
NAME_CHARACTERS = 190
"""Longest name that is given, so that a number still fits behind it."""
_NUMBERS = re.compile(r"[-_.]?\d+(?:-of-\d+)?")
_GENERIC = {"", "part", "shard", "data", "train", "file", "chunk"}
"""What files of one dataset are called when the name says nothing."""
_NOTES = (".md", "license.txt", "dataset_info.json", "state.json", "dataset_dict.json", "metadata.json")
"""Names of files that tell of data."""


@dataclass(frozen=True, slots=True)
class Found:
    """A dataset that was found, and how much is in it."""

    name: str
    path: str | list[str]
    files: int
    rows: int | None
    """None if only preparing will tell."""
    bytes: int


def write_config(path: str, *, source: str | None, force: bool) -> Reply:
    """Answer `mixer init`."""
    found = _find(source) if source is not None else []
    text = example_config() if source is None else config_text(example_config(), found)
    write_text(Path(path), text, force=force)
    value = {
        "config": path,
        "datasets": [
            {"name": d.name, "path": d.path, "files": d.files, "rows": d.rows, "bytes": d.bytes} for d in found
        ],
    }
    return Reply(value, lambda _width: _lines(value))


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    config = wording.visible(value["config"])
    for dataset in value["datasets"]:
        yield f"{wording.visible(dataset['name'])}: {_amount(dataset['files'], dataset['rows'], dataset['bytes'])}"
    edit = "Set the weights in it" if value["datasets"] else "Set output and datasets in it"
    yield f"Wrote {config}. {edit}, then look at what comes of it: mixer plan {config}"


def _amount(files: int, rows: int | None, nbytes: int) -> str:
    told = "rows to be prepared" if rows is None else wording.plural(rows, "row")
    return f"{told} in {wording.plural(files, 'file')}, {wording.size(nbytes)}"


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a config for the user, over none that is there unless that is asked for.

    Raises:
        ConfigError: One is there, or it cannot be written.
    """
    try:
        if not force:
            path.touch(exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{path}: there already; name another file, or replace it with --force") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def _find(source: str) -> list[Found]:
    """Return the datasets at a location, with what is in each; footers are read, no rows.

    Where there is Parquet nothing else is looked for: what lies beside it mostly tells of it.
    """
    from mixer.formats.kinds import ALL_SUFFIXES  # noqa: PLC0415 -- only where data is looked at
    from mixer.sources.inventory import take_inventory  # noqa: PLC0415 -- as above
    from mixer.storage.inputs import find_inputs  # noqa: PLC0415 -- as above

    try:
        urls = [file.url for file in find_inputs(source).files]
    except InputError:
        files = find_inputs(source, ALL_SUFFIXES).files
        return _to_prepare([file for file in files if not file.url.lower().endswith(_NOTES)])
    found = []
    for name, path in group(urls).items():
        inventory, _ = take_inventory(name, path)
        if inventory.rows:
            found.append(Found(name, path, len(inventory.files), inventory.rows, inventory.bytes))
    if not found:
        raise InputError(f"input {source!r}: expected rows, found {wording.plural(len(urls), 'file')} without any")
    return found


def _to_prepare(files: Sequence[InputFile]) -> list[Found]:
    """Return the datasets that files of other formats make; how many rows there are is not known.

    Raises:
        InputError: There are none, or some lie together that are of several formats.
    """
    from mixer.formats.finding import find_rows  # noqa: PLC0415 -- only where data is looked at

    found = []
    for name, path in group([file.url for file in files]).items() if files else ():
        _, listing = find_rows(path)
        found.append(Found(name, path, len(listing.files), None, sum(file.bytes for file in listing.files)))
    if not found:
        raise InputError("expected files with rows, found only notes on them; name the data")
    return found


def group(urls: Sequence[str]) -> dict[str, str | list[str]]:
    """Return datasets by name: one for each folder, or where files lie together one for each kind of name.

    >>> group(["/d/web/a.parquet", "/d/web/x/b.parquet", "/d/code/a.parquet"])
    {'web': '/d/web/', 'code': '/d/code/'}
    >>> group(["/d/web-00.parquet", "/d/web-01.parquet", "/d/books.parquet"])
    {'web': '/d/web-*.parquet', 'books': '/d/books.parquet'}
    >>> group(["/d/part-0.parquet", "/d/part-1.parquet"])
    {'d': '/d/part-*.parquet'}
    """
    base = _common_folder(urls)
    kinds: dict[tuple[bool, str], list[str]] = {}
    for url in urls:
        folder, slash, _ = url[len(base) :].partition("/")
        key = (True, folder) if slash else (False, _stem(folder))
        kinds.setdefault(key, []).append(url)
    found: dict[str, str | list[str]] = {}
    for (is_folder, kind), members in kinds.items():
        last = base.rstrip("/").rpartition("/")[2]
        name = kind if is_folder or (kind not in _GENERIC and (len(kinds) > 1 or len(members) == 1)) else last
        path = f"{base}{kind}/" if is_folder else _pattern(members, urls)
        found[_free_name(name, found)] = path
    return found


def _common_folder(urls: Sequence[str]) -> str:
    """Return the deepest folder that holds all of `urls`, with its closing ``/``."""
    folders = [url.split("/")[:-1] for url in urls]
    depth = 0
    while all(len(folder) > depth for folder in folders) and len({folder[depth] for folder in folders}) == 1:
        depth += 1
    return "/".join(folders[0][:depth]) + "/"


def _stem(name: str) -> str:
    """Return a file's name without suffix and numbers.

    >>> _stem("train-00001-of-00096.parquet"), _stem("web.pq"), _stem("2024_03.parquet"), _stem("books-1.jsonl.zst")
    ('train', 'web', '', 'books')
    """
    from mixer.formats.kinds import COMPRESSIONS  # noqa: PLC0415 -- only where data is looked at

    if name.lower().endswith(tuple(COMPRESSIONS)):
        name = name.rpartition(".")[0]
    return _NUMBERS.sub("", name.rpartition(".")[0] or name).strip("-_. ")


def _pattern(members: list[str], urls: Sequence[str]) -> str | list[str]:
    """Return what stands for `members` and no other of `urls`: the only one, a pattern, or all of them."""
    if len(members) == 1:
        return members[0]
    first, last = min(members), max(members)
    same = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), 0)
    start = first[:same].rstrip("0123456789")
    pattern = f"{start}*{first[first.rindex('.') :]}"
    taken = [url for url in urls if fnmatch.fnmatchcase(url, pattern)]
    return pattern if taken == members and not any(sign in start for sign in "*?[") else members


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    """Return `name`, made one that a config takes and that no other dataset has."""
    name = name.replace("\\", "-").strip()[:NAME_CHARACTERS]
    if not name or not name.isprintable() or name in {".", ".."}:
        name = "dataset"
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def config_text(example: str, found: Sequence[Found]) -> str:
    """Return `example` with the datasets that were found, with equal weights, for as long as all of them last."""
    batch_size = BATCH_SIZE
    rows = [dataset.rows for dataset in found if dataset.rows is not None]
    while rows and batch_size > 1 and not batches_that_fit(Allocation((1,) * len(rows), batch_size), rows):
        batch_size //= 2
    general = example[: example.index("\ndatasets:\n")]
    for key, line in (
        ("batch_size", f"batch_size: {batch_size}"),
        ("batches", "# batches: 1000"),
        ("on_exhausted", "on_exhausted: stop"),
    ):
        general = re.sub(rf"^{key}:.*$", line, general, count=1, flags=re.MULTILINE)
    lines = [general, "datasets:"]
    for dataset in found:
        lines.append(f"  # {_amount(dataset.files, dataset.rows, dataset.bytes)}")
        entry = {dataset.name: {"path": dataset.path, "weight": 1}}
        dumped = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=10**6)
        lines += [f"  {line}" for line in dumped.splitlines()]
    text = "\n".join(lines) + "\n"
    parse_config(text, "the config")
    return text
