"""How fast files of other formats become Parquet, and in how much memory: `python tests/bench/bench_prepare.py`.

One file of each format is made of about `--mb` decoded megabytes of text, numbers and nested values, and prepared in a
fresh process, which prints MB/s of decoded input, its processors' time, and its peak of anonymous memory. Beside JSON
lines and CSV, pyarrow's own reader streams the same file into Parquet in one fresh process a round: it is a baseline
for speed, not for what is checked, since it takes the values of doubled keys and of whole numbers beyond 2^53 as they
come. Rounds take turns; medians count.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.measuring import anonymous_memory

CHUNK_ROWS = 4_096
TEXTS = 8
PYARROW = "pyarrow"


def chunks(megabytes: float) -> Iterator[list[dict[str, Any]]]:
    """Yield rows until their JSON has about so many megabytes; texts come again, numbers do not."""
    random = np.random.default_rng(17)
    words = np.array([f"w{number:x}" for number in range(40_000)])
    drawn = np.minimum(random.zipf(1.3, TEXTS * CHUNK_ROWS * 220), 39_999).reshape(TEXTS, CHUNK_ROWS, 220)
    texts = [[" ".join(line) for line in words[some]] for some in drawn]
    written, first = 0, 0
    for some in itertools.cycle(texts):
        if written >= megabytes * 1e6:
            return
        numbered = enumerate(zip(random.random(CHUNK_ROWS).tolist(), some, strict=True), first)
        yield [
            {"id": number, "score": score, "text": text, "meta": {"lang": "en", "tags": ["a", "b"]}}
            for number, (score, text) in numbered
        ]
        first += CHUNK_ROWS
        written += sum(map(len, some)) + 70 * CHUNK_ROWS


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as records of CSV."""
    return "".join(f'{row["id"]},{row["score"]!r},"{row["text"]}",en\n' for row in rows).encode()


def as_text(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as lines of text."""
    return "".join(f"{row['text']}\n" for row in rows).encode()


def packed(path: Path) -> BinaryIO:
    """Open a file for gzip's fastest level."""
    return gzip.open(path, "wb", compresslevel=1)  # type: ignore[return-value]  # a GzipFile is one


FORMATS: dict[str, tuple[bytes, Callable[[list[dict[str, Any]]], bytes], bytes]] = {
    "jsonl": (b"", as_lines, b""),
    "jsonl.gz": (b"", as_lines, b""),
    "json": (b"[", lambda rows: as_lines(rows)[:-1].replace(b"\n", b",\n") + b",\n", b"{}]"),
    "csv": (b"id,score,text,lang\n", as_csv, b""),
    "txt": (b"", as_text, b""),
}


def make_file(folder: Path, kind: str, megabytes: float) -> tuple[Path, int]:
    """Make a file, unless it is there; return it, and its bytes as decoded."""
    path, told = folder / f"rows-{megabytes:g}.{kind}", folder / f"rows-{megabytes:g}.{kind}.bytes"
    if told.exists():
        return path, int(told.read_text())
    before, encoded, after = FORMATS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    size = len(before) + len(after)
    with packed(path) if kind.endswith(".gz") else path.open("wb") as file:
        file.write(before)
        for rows in chunks(megabytes):
            size += file.write(encoded(rows))
        file.write(after)
    told.write_text(str(size))
    return path, size


def prepare_here(path: Path, out: Path) -> None:
    """Prepare a file as a dataset."""
    from mixer import building  # noqa: PLC0415 -- the baseline must not pay for it
    from mixer.config import config_from  # noqa: PLC0415 -- as above

    dataset = {"path": str(path), "weight": 1}
    config = {"output": str(out / "out"), "prepared": str(out / "prepared"), "batch_size": 8, "batches_per_shard": 64}
    building.prepare(config_from({**config, "on_exhausted": "stop", "datasets": {"rows": dataset}}))


def stream_here(path: Path, out: Path) -> None:
    """Stream a file into Parquet with pyarrow's own reader."""
    reader = pa.json.open_json(path) if ".json" in path.name else pa.csv.open_csv(path)
    with pq.ParquetWriter(out / "rows.parquet", reader.schema, compression="zstd", compression_level=1) as writer:
        for batch in reader:
            writer.write_batch(batch)


WAYS = {"mixer": prepare_here, PYARROW: stream_here}


def measured(way: str, path: Path) -> dict[str, float]:
    """Do it in a fresh process; return its seconds, its processors', and its peak of anonymous memory in MB."""
    with tempfile.TemporaryDirectory(dir=path.parent) as out:
        command = [sys.executable, __file__, "--one", way, "--data", out, "--file", str(path)]
        began = time.perf_counter()
        with subprocess.Popen(command) as process, anonymous_memory(process.pid) as most:
            _, code, usage = os.wait4(process.pid, 0)
            took = time.perf_counter() - began
            process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            raise SystemExit(f"{way} of {path} ended with {process.returncode}")
        return {"s": took, "cpu": usage.ru_utime + usage.ru_stime, "anon": most[0]}


def report(kind: str, size: int, taken: dict[str, list[dict[str, float]]]) -> None:
    """Print lines of a table in Markdown."""
    for way, figures in taken.items():
        middle = {key: statistics.median(one[key] for one in figures) for key in ("s", "cpu", "anon")}
        cells = [f"{kind}, {way}", f"{size / 1e6:,.0f}", f"{size / 1e6 / middle['s']:.0f}"]
        cells += [f"{size / 1e6 / middle['cpu']:.0f}", f"{middle['anon']:.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure, or do the one piece of work that a measuring process asks for."""
    parser = argparse.ArgumentParser(description="Measure how fast files become Parquet.")
    parser.add_argument("--mb", type=float, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mixer-bench-prepare")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        WAYS[asked.one](asked.file, asked.data)
        return
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, pyarrow {pa.__version__}")
    print("\n| | MB decoded | MB/s | MB a second of processors | peak anonymous memory, MB |\n|---|---|---|---|---|")
    for kind in asked.formats:
        path, size = make_file(asked.data, kind, asked.mb)
        ways = ["mixer", PYARROW] if kind in {"jsonl", "csv"} else ["mixer"]
        taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(asked.rounds):
            for way, figures in taken.items():
                figures.append(measured(way, path))
        report(kind, size, taken)


if __name__ == "__main__":
    main()
