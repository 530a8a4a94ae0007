"""Which names stand for which format and which compression."""

from __future__ import annotations

from collections.abc import Sequence

from mixer.errors import InputError
from mixer.storage.patterns import SUFFIXES as PARQUET_SUFFIXES

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""Endings that say how a whole file is compressed."""

_ENDINGS = {
    "jsonl": (".jsonl", ".ndjson"),
    "json": (".json",),
    "csv": (".csv",),
    "tsv": (".tsv",),
    "text": (".txt", ".text"),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "huggingface": (".arrow",),
    "webdataset": (".tar",),
}
_SHORT_ENDINGS = {".tgz": ("webdataset", "gzip")}
ROW_FORMATS = tuple(_ENDINGS)
"""Formats that are made into Parquet before they are mixed."""


def suffixes_of(kind: str) -> tuple[str, ...]:
    """Return what the names of files of the format `kind` end in, in small letters.

    >>> suffixes_of("tsv")
    ('.tsv', '.tsv.gz', '.tsv.zst', '.tsv.bz2', '.tsv.xz')
    >>> suffixes_of("parquet"), suffixes_of("huggingface")
    (('.parquet', '.pq'), ('.arrow',))
    """
    if kind == "parquet":
        return PARQUET_SUFFIXES
    plain = _ENDINGS[kind]
    if kind == "huggingface":
        return plain
    short = tuple(ending for ending, (named, _) in _SHORT_ENDINGS.items() if named == kind)
    return (*plain, *short, *(ending + packed for ending in plain for packed in COMPRESSIONS))


ALL_SUFFIXES = tuple(dict.fromkeys(suffix for kind in ("parquet", *ROW_FORMATS) for suffix in suffixes_of(kind)))
"""What is looked for where neither the config nor a name says which format."""


def compression_of(name: str) -> str | None:
    """Return how the file of this name is compressed as a whole, None if it is not.

    >>> compression_of("a.jsonl.ZST"), compression_of("a.tgz"), compression_of("a.jsonl")
    ('zstd', 'gzip', None)
    """
    lower = name.lower()
    for ending, (_, packed) in _SHORT_ENDINGS.items():
        if lower.endswith(ending):
            return packed
    return next((packed for ending, packed in COMPRESSIONS.items() if lower.endswith(ending)), None)


def format_of(names: Sequence[str]) -> str:
    """Return the format of the files of one dataset, as their names say it.

    A name without a known ending stands for Parquet, as it always did.

    >>> format_of(["a.jsonl.gz", "b.ndjson"]), format_of(["a.bin"])
    ('jsonl', 'parquet')

    Raises:
        InputError: The names say several.
    """
    kinds: dict[str, str] = {}
    for name in names:
        kinds.setdefault(_kind_of(name), name)
    if len(kinds) > 1:
        found = ", ".join(f"{kind} ({name})" for kind, name in sorted(kinds.items()))
        raise InputError(
            f"expected files of one format, found {found}; name the files by a pattern such as '*.jsonl', or set "
            f"`format`"
        )
    return next(iter(kinds), "parquet")


def _kind_of(name: str) -> str:
    lower = name.lower()
    return next((kind for kind in ROW_FORMATS if lower.endswith(suffixes_of(kind))), "parquet")
