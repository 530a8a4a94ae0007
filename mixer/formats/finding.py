"""Which files a dataset's path stands for, and of which format they are."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from mixer.errors import InputError
from mixer.formats.kinds import ALL_SUFFIXES, format_of, suffixes_of
from mixer.storage.inputs import InputFile, InputListing, find_inputs, is_remote, read_range, stat_input
from mixer.storage.patterns import has_wildcard
from mixer.storage.urls import split_protocol

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_BESIDE = {_STATE, _SPLITS, "dataset_info.json"}
_MAX_STATE_BYTES = 64 << 20


def find_rows(path: str | Sequence[str], asked: str | None = None) -> tuple[str, InputListing]:
    """Return the format of a dataset, and its files in their order.

    Where `asked` is None the names say the format. A folder that holds Parquet is Parquet, as `find_inputs` has it,
    and a folder that `datasets` has saved is one, though its files are named as Arrow's.

    Args:
        path: What `find_inputs` takes.
        asked: The format, if the config says it.

    Raises:
        InputError: Nothing was found, or several formats; or a folder of several splits, none of them named.
        StoreError: A remote store refused, or did not answer.
    """
    entries = [path] if isinstance(path, str) else list(path)
    if asked == "huggingface":
        return asked, _find_saved(entries)
    if asked is not None:
        return asked, find_inputs(path, suffixes_of(asked))
    try:
        listing = find_inputs(path)
    except InputError:
        listing = find_inputs(path, ALL_SUFFIXES)
    names = [file.url for file in listing.files]
    # A saved dataset without rows has no Arrow file, but what is written beside them.
    has_arrow = any(name.lower().endswith(suffixes_of("huggingface")) for name in names)
    only_beside = {name.rpartition("/")[2] for name in names} <= _BESIDE
    if (has_arrow or only_beside) and any(map(_is_saved, entries)):
        return "huggingface", _find_saved(entries)
    return format_of(names), listing


def _is_saved(entry: str) -> bool:
    folder = entry.rstrip("/")
    return not has_wildcard(entry) and bool(_json_of(folder, _STATE) or _json_of(folder, _SPLITS))


def _find_saved(entries: Sequence[str]) -> InputListing:
    """Return the files of folders that `Dataset.save_to_disk` has written."""
    files: list[InputFile] = []
    for entry in entries:
        found = _saved_folder(entry.rstrip("/"))
        if found is None:
            raise InputError(
                f"input {entry!r}: expected a folder that `Dataset.save_to_disk` has written, with a {_STATE}, found "
                f"none; check the path, or set another `format`"
            )
        files += found
    return InputListing(tuple(files), ())


def _saved_folder(folder: str) -> tuple[InputFile, ...] | None:
    state = _json_of(folder, _STATE)
    if state is None:
        splits = _json_of(folder, _SPLITS)
        if splits is None:
            return None
        names = ", ".join(map(str, splits.get("splits", ()))) if isinstance(splits, dict) else ""
        raise InputError(
            f"input {folder!r}: expected one split, found a folder of several: {names}; name one, as in {folder}/train"
        )
    if not isinstance(state, dict) or not isinstance(state.get("_data_files"), list):
        # Other programs keep a state.json, too.
        return None
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise InputError(
            f"input {folder!r}: expected the rows as they are stored, found a list of indices over them; "
            f"call `flatten_indices()` and save the dataset again"
        )
    files = []
    for entry in state["_data_files"]:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or "/" in name or "\\" in name or name in {"", ".", ".."}:
            raise InputError(f"input {folder}/{_STATE}: expected names of files in this folder, found {entry!r}")
        files.append(find_inputs(f"{folder}/{name}", suffixes_of("huggingface")).files[0])
    if not files:
        raise InputError(f"input {folder}/{_STATE}: expected data files, found none; the dataset is empty")
    return tuple(files)


def _json_of(folder: str, name: str) -> Any:
    """Return what a small JSON file holds, None if there is none."""
    url = f"{folder}/{name}"
    if is_remote(url):
        file = stat_input(url)
    else:
        local = os.path.expanduser(split_protocol(url)[1])  # noqa: PTH111 - inputs are strings
        file = stat_input(os.path.abspath(local))  # noqa: PTH100 - as `find_inputs` has it
    if file is None or file.bytes > _MAX_STATE_BYTES:
        return None
    try:
        return json.loads(read_range(file, 0, file.bytes))
    except (ValueError, RecursionError) as error:
        raise InputError(f"input {url}: expected JSON, found something else: {error}; restore it") from error
