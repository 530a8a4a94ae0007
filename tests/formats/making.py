"""Files of every format, written by the tools that people write them with, and the rows that come of them."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from mixer.core.fingerprint import JSON
from mixer.formats.finding import find_rows
from mixer.formats.options import RowsOptions
from mixer.formats.stage import RowsStage
from mixer.preparation.base import BadLine, Part

TOOLS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
Document = Literal["file", "line", "paragraph"]


def packed(data: bytes, ending: str) -> bytes:
    """Return `data` as the tool for this ending compresses it; as it is for none."""
    if not ending:
        return data
    return subprocess.run([TOOLS[ending], "-c"], input=data, capture_output=True, check=True).stdout


def written(folder: Path, name: str, data: bytes) -> str:
    """Write a file, compressed as its name says; return its path."""
    path = folder / name
    path.write_bytes(packed(data, path.suffix if path.suffix in TOOLS else ""))
    return str(path)


def stage_of(
    path: str | Sequence[str],
    asked: str | None = None,
    *,
    part_bytes: int = 3000,
    row_group_bytes: int = 500,
    **how: Any,
) -> RowsStage:
    """Return the stage over what a path stands for, with small parts."""
    kind, listing = find_rows(path, asked)
    options = RowsOptions(kind, **how)
    return RowsStage("d", listing.files, options, part_bytes=part_bytes, row_group_bytes=row_group_bytes)


@dataclass(frozen=True)
class Rows:
    """What came of a file."""

    schema: pa.Schema
    parts: Sequence[Part]
    facts: Mapping[str, JSON]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for part in self.parts for group in part.row_groups for row in group.to_pylist()]

    @property
    def bad(self) -> list[BadLine]:
        return [line for part in self.parts for line in part.bad]


def rows_of(stage: RowsStage) -> Rows:
    """Return all parts of a stage, each looked at."""
    schema = stage.schema()
    parts = list(stage.parts(schema, None))
    for part in parts:
        for group in part.row_groups:
            group.validate(full=True)
            assert group.num_rows > 0
            assert group.schema.equals(schema, check_metadata=True)
            assert all(column.num_chunks == 1 for column in group.columns)
    return Rows(schema, parts, stage.facts(parts[-1].cursor if parts else None))


def read(path: str | Sequence[str], asked: str | None = None, **options: Any) -> Rows:
    """Return what comes of the files that a path stands for."""
    return rows_of(stage_of(path, asked, **options))


def json_lines(rows: Sequence[Mapping[str, Any]], *, ascii_only: bool = False) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()


def arrow(table: pa.Table, *, is_stream: bool, batch_rows: int = 70) -> bytes:
    out = io.BytesIO()
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(out, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write_batch(batch)
    return out.getvalue()


def tar(members: Sequence[tuple[str, bytes]], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
