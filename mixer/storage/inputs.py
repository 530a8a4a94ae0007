"""Input files: found by one rule of order, known by size and version, opened only if they are still the same.

Local paths never pass through fsspec: it costs a fifth of a second to import and treats some characters of a
name as its own. Remote files are read in pinned ranges; each range is retried by itself, so a decoder above
never notices a lost connection.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from mixer.closing import closed_on_error
from mixer.errors import ChangedError, InputError, StoreError
from mixer.storage.filesystems import filesystem_for
from mixer.storage.patterns import SUFFIXES, Pattern, Verdict, has_wildcard, is_hidden, split_pattern, whole_folder
from mixer.storage.remote_file import PinnedFile, version_in
from mixer.storage.retry import call_with_retries, understood
from mixer.storage.urls import is_chained, redact, redact_url, split_azure, split_protocol

T = TypeVar("T")
_SHOWN_IGNORED = 5
_LOCAL = frozenset({"file", "local"})


@dataclass(frozen=True, slots=True)
class InputFile:
    """What is known of an input file without reading it."""

    url: str
    """An absolute local path, or a URL without a user or a query."""
    bytes: int
    version: str
    """Changes when the file is replaced: an ETag, or a local file's modification time in ns. Empty if it is not known,
    or does not matter: then any will do."""


@dataclass(frozen=True, slots=True)
class InputListing:
    """The files of one dataset in their order, and what was passed over."""

    files: tuple[InputFile, ...]
    ignored: tuple[str, ...]
    """Hidden files and folders (these end in ``/``), and files that are not named as what is looked for."""


def find_inputs(path: str | Sequence[str], suffixes: tuple[str, ...] = SUFFIXES) -> InputListing:
    """Return the input files that `path` stands for: a file, a glob, a folder, or a list of these.

    Order: a list's entries in the list's order; inside a glob or a folder by the path below its fixed part,
    compared byte by byte (UTF-8), so ``part-10`` comes before ``part-2``. A name that is there is taken as it is,
    whatever characters it holds; only then `*`, `?`, `[..]` and `**` are wildcards. Symbolic links are followed.
    Where no ending is spelled out, names that end in one of `suffixes` (small letters) are taken.

    Raises:
        InputError: Nothing was found, one file was found twice, or a folder cannot be read.
        StoreError: A remote store refused, or did not answer.
    """
    entries = [path] if isinstance(path, str) else list(path)
    if not entries:
        raise InputError("expected at least one input path, found an empty list")
    listings = [_find(entry, suffixes) for entry in entries]
    seen: dict[str, str] = {}
    for entry, listing in zip(entries, listings, strict=True):
        for file in listing.files:
            if file.url in seen:
                raise InputError(
                    f"input file {file.url} was found twice, by {seen[file.url]!r} and by {entry!r}; "
                    f"list it once, or give its rows more weight"
                )
            seen[file.url] = entry
    return InputListing(
        tuple(file for listing in listings for file in listing.files),
        tuple(dict.fromkeys(name for listing in listings for name in listing.ignored)),
    )


def stat_input(url: str) -> InputFile | None:
    """Return what is known of the file at `url` (as in `InputFile`) now, or None if there is none.

    Raises:
        InputError: The local file system refuses to say.
        StoreError: A remote store refused, or did not answer.
    """
    if not is_remote(url):
        try:
            found = os.stat(url)  # noqa: PTH116 - inputs are strings, remote or not
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(url, error) from error
        return _local_file(url, found) if stat.S_ISREG(found.st_mode) else None
    filesystem, path = _remote(url)
    try:
        info = _ask(lambda: filesystem.info(path), what=f"stat {url}")
    except FileNotFoundError:
        return None
    return None if info["type"] == "directory" else InputFile(url, int(info["size"]), version_in(info))


def difference(expected: InputFile, found: InputFile | None) -> str | None:
    """Return how a file differs from what it was, for people; None if it does not.

    >>> difference(InputFile("/a", 10, "v1"), InputFile("/a", 12, "v1"))
    'expected 10 bytes, found 12'
    """
    if found is None:
        return "expected a file, found none"
    if found.bytes != expected.bytes:
        return f"expected {expected.bytes} bytes, found {found.bytes}"
    if expected.version and found.version != expected.version:
        return f"expected version {expected.version}, found {found.version} (same size, other contents or touched)"
    return None


def open_input(file: InputFile) -> Any:
    """Return a seekable, read-only handle on `file` that pyarrow takes; its owner closes it. Not thread-safe.

    Raises:
        ChangedError: The file is gone, or is not the one that `file` tells of; also from reads of a remote one.
    """
    if not is_remote(file.url):
        import pyarrow as pa  # noqa: PLC0415 - listing files must not wait for it

        try:
            handle = pa.OSFile(file.url)
        except FileNotFoundError as error:
            raise ChangedError(_changed(file, "expected a file, found none")) from error
        except OSError as error:
            raise _unreadable(file.url, error) from error
        with closed_on_error(handle):
            # Looked at after opening: whatever replaced the file before that is seen.
            _refuse_if_changed(file)
        return handle
    filesystem, path = _remote(file.url)
    return PinnedFile(filesystem, path, url=file.url, length=file.bytes, version=file.version)


def read_range(file: InputFile, start: int, stop: int) -> bytes:
    """Return the bytes ``[start, stop)`` of `file`.

    Raises:
        ChangedError: The file is gone, or is not the one that `file` tells of.
    """
    if not is_remote(file.url):
        with open_input(file) as handle:
            handle.seek(start)
            data = bytes(handle.read(stop - start))
    else:
        filesystem, path = _remote(file.url)
        try:
            data = _ask(
                lambda: filesystem.cat_file(path, start=start, end=stop), what=f"get {file.url} bytes {start}-{stop}"
            )
        except FileNotFoundError as error:
            raise ChangedError(_changed(file, "expected a file, found none")) from error
        except StoreError:
            _refuse_if_changed(file)
            raise
    if len(data) != stop - start:
        _refuse_if_changed(file)
        raise InputError(f"input file {file.url}: expected {stop - start} bytes from {start}, found {len(data)}")
    return data


def _refuse_if_changed(file: InputFile) -> None:
    if changed := difference(file, stat_input(file.url)):
        raise ChangedError(_changed(file, changed))


def _changed(file: InputFile, how: str) -> str:
    return (
        f"input file {file.url} has changed since the run was planned: {how}; put the old file back, "
        f"or start a new output"
    )


def _unreadable(path: str, error: OSError) -> InputError:
    return InputError(f"input {path}: cannot be read: {error.strerror or error}; check its permissions")


def _find(entry: str, suffixes: tuple[str, ...]) -> InputListing:
    if is_chained(entry):
        raise InputError(f"input {redact(entry)!r}: expected one protocol, found several joined by '::'")
    protocol, rest = split_protocol(entry)
    where = _find_remote(entry, suffixes) if protocol not in _LOCAL else _find_local(rest, suffixes)
    if where.files:
        return where
    ignored = ", ".join(where.ignored[:_SHOWN_IGNORED]) + (", ..." if len(where.ignored) > _SHOWN_IGNORED else "")
    found = f"only what is ignored ({len(where.ignored)}): {ignored}" if where.ignored else "nothing"
    # The compressed ones go without saying.
    endings = " or ".join(f"*{suffix}" for suffix in suffixes if suffix.count(".") == 1)
    raise InputError(
        f"input {entry!r}: expected a file, a folder with files named {endings}, or a pattern that matches some; "
        f"found {found}; check the path"
    )


def _find_local(path: str, suffixes: tuple[str, ...]) -> InputListing:
    if not path or "\0" in path:
        raise InputError(f"input {path!r}: expected a path")
    path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - pathlib would follow `..` differently
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - as above
    except (FileNotFoundError, NotADirectoryError):
        if not has_wildcard(path):
            return InputListing((), ())
        return _sorted(*_split_walk(*split_pattern(path, suffixes)))
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        return _sorted(*_split_walk(path, whole_folder(suffixes)))
    if not stat.S_ISREG(mode):
        raise InputError(f"input {path}: expected a file or a folder, found something else (a device, socket or pipe)")
    return InputListing((_local_file(path, os.stat(path)),), ())  # noqa: PTH116 - as above


def _split_walk(base: str, pattern: Pattern) -> tuple[str, Iterable[tuple[str, InputFile | None]]]:
    root = base or "/"
    return root, _walk(root, (), pattern, frozenset())


def _walk(
    folder: str, names: tuple[str, ...], pattern: Pattern, above: frozenset[tuple[int, int]]
) -> Iterator[tuple[str, InputFile | None]]:
    """Yield path below the first folder and file of all that `pattern` takes; no file for what it ignores."""
    try:
        here = os.stat(folder)  # noqa: PTH116 - as above
        identity = (here.st_dev, here.st_ino)
        if identity in above:
            raise InputError(f"input folder {folder}: a symbolic link leads back to a folder above it; remove it")
        with os.scandir(folder) as entries:
            found = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in found:
        below = (*names, entry.name)
        if entry.is_dir():
            verdict = pattern.may_hold(below)
            if verdict is Verdict.TAKEN:
                yield from _walk(entry.path, below, pattern, above | {identity})
            elif verdict is Verdict.IGNORED:
                yield "/".join(below) + "/", None
            continue
        verdict = pattern.judge(below)
        if verdict is Verdict.TAKEN:
            yield "/".join(below), _entry_file(entry)
        elif verdict is Verdict.IGNORED:
            yield "/".join(below), None


def _entry_file(entry: os.DirEntry[str]) -> InputFile | None:
    try:
        found = entry.stat()
    except OSError as error:
        raise InputError(
            f"input {entry.path}: expected a file, found a symbolic link that leads nowhere, or a file that is gone "
            f"again; remove the link, or put the file back"
        ) from error
    return _local_file(entry.path, found) if stat.S_ISREG(found.st_mode) else None


def _local_file(path: str, found: os.stat_result) -> InputFile:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(f"input {os.fsencode(path)!r}: expected a name in UTF-8; rename it") from None
    return InputFile(path, found.st_size, str(found.st_mtime_ns))


def _sorted(base: str, found: Iterable[tuple[str, InputFile | None]]) -> InputListing:
    """Return the listing of (path below `base`, file or None for what is ignored), in the order of the paths' bytes."""
    ordered = sorted(found, key=lambda pair: pair[0].encode("utf-8", "surrogateescape"))
    joiner = base if base.endswith("/") else base + "/"
    return InputListing(
        tuple(file for _, file in ordered if file is not None),
        tuple(dict.fromkeys(joiner + below for below, file in ordered if file is None)),
    )


def is_remote(url: str) -> bool:
    """Return whether `url` is not a path on this machine."""
    return split_protocol(url)[0] not in _LOCAL


def _ask(call: Callable[[], T], *, what: str) -> T:
    """Return what a call of a file system's returns, tried again for as long as its failures are of a passing kind."""
    return call_with_retries(partial(understood, call), what=what)


def _remote(url: str) -> tuple[Any, str]:
    """Return the file system of a remote URL and the path on it."""
    protocol, rest = split_protocol(url)
    account = split_azure(rest)[1] if protocol.startswith(("abfs", "az")) else ""
    filesystem = filesystem_for(protocol, account=account)
    return filesystem, filesystem._strip_protocol(url)  # noqa: SLF001 - fsspec has no public name for it


def _find_remote(url: str, suffixes: tuple[str, ...]) -> InputListing:
    _refuse_secrets(url)
    protocol, rest = split_protocol(url)
    if has_wildcard(rest.partition("/")[0]):
        raise InputError(f"input {url!r}: expected a bucket's name without wildcards")
    filesystem, path = _remote(url)
    folder = url.rstrip("/")
    try:
        info = _ask(lambda: filesystem.info(path), what=f"stat {url}")
    except FileNotFoundError:
        info = None
    if info is not None and info["type"] != "directory" and folder == url:
        return InputListing((InputFile(url, int(info["size"]), version_in(info)),), ())
    if not has_wildcard(rest) or (info is not None and info["type"] == "directory"):
        return _sorted(folder, _list_remote(folder, whole_folder(suffixes)))
    base, pattern = split_pattern(rest, suffixes)
    return _sorted(f"{protocol}://{base}", _list_remote(f"{protocol}://{base}", pattern))


def _refuse_secrets(url: str) -> None:
    """Refuse what would have to be recorded with the run but may be a secret."""
    protocol, rest = split_protocol(url)
    user = rest.partition("/")[0].rpartition("@")[0]
    # Azure writes `container@account`, which is no secret.
    if user and (":" in user or not protocol.startswith(("abfs", "az"))):
        raise InputError(
            f"input {redact_url(url)!r}: expected no user or password in the URL; set them in the environment"
        )
    if (protocol in {"http", "https"} and ("?" in rest or "#" in rest)) or "?versionId=" in rest:
        raise InputError(f"input {redact_url(url)!r}: expected no query in the URL, since a run records its inputs")


def _list_remote(base: str, pattern: Pattern) -> Iterator[tuple[str, InputFile | None]]:
    """Yield what `_walk` yields, of a remote folder."""
    filesystem, root = _remote(base)
    root = root.rstrip("/")
    infos = (
        _ask(lambda: filesystem.find(root, detail=True), what=f"list {base}").values()
        if pattern.is_recursive
        else _list_levels(filesystem, root, base, pattern)
    )
    for info in infos:
        below = info["name"][len(root) + 1 :]
        # Some tools leave an empty object named as the folder is.
        if info["type"] == "directory" or not below or below.endswith("/"):
            continue
        names = below.split("/")
        verdict = pattern.judge(names)
        if verdict is Verdict.TAKEN:
            yield below, InputFile(f"{base}/{below}", int(info["size"]), version_in(info))
        elif verdict is Verdict.IGNORED:
            yield _hidden_part(names, pattern), None


def _hidden_part(names: Sequence[str], pattern: Pattern) -> str:
    """Return the first folder that is why a file is ignored, with its closing ``/``; else the file itself."""
    for depth in range(1, len(names)):
        if is_hidden(names[depth - 1]) and pattern.may_hold(names[:depth]) is Verdict.IGNORED:
            return "/".join(names[:depth]) + "/"
    return "/".join(names)


def _list_levels(filesystem: Any, root: str, base: str, pattern: Pattern) -> Iterator[dict[str, Any]]:
    """Yield the entries of the folders that may hold matches: one listing a folder, and no deeper than needed."""
    waiting = [root]
    seen: set[str] = set()
    while waiting:
        folder = waiting.pop().rstrip("/")
        # Where folders are kept as such, one may be listed both as itself and as what names begin with.
        if folder in seen:
            continue
        seen.add(folder)
        try:
            infos = _ask(lambda f=folder: filesystem.ls(f, detail=True), what=f"list {base}")  # type: ignore[misc]  # mypy infers no type for a lambda with a default
        except FileNotFoundError:
            continue
        for info in infos:
            names = info["name"][len(root) + 1 :].rstrip("/").split("/")
            if info["type"] != "directory":
                yield info
            elif names != [""] and pattern.may_hold(names) is Verdict.TAKEN:
                waiting.append(info["name"])
