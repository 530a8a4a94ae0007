"""What mixing costs beyond reading and writing the same rows: `python tests/bench/bench_mix.py`.

The work: 1.2 million rows of text of about 1 KB in three datasets with the weights 3:2:1, batches of 256, shards
of 65,536 rows, zstd level 1. The baseline reads the same rows and writes them in the same order of files, to
shards of the same size with the same codec, with plain pyarrow and one thread, and mixes nothing.

Every figure is a ratio of two processes of one repeat, so that a busy machine disturbs both; the table has the
medians of the ratios. CPU is user and system time of the work, all threads, without the imports. The data is
made once (by default in the temporary folder) and kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.measuring import anonymous_memory, status_mb

WEIGHTS = {"a": 3, "b": 2, "c": 1}
BATCH_ROWS = 256
BATCHES_PER_SHARD = 256
FILE_ROWS = 100_000
ROW_GROUP_ROWS = 25_000
MEAN_TEXT_BYTES = 1_000
BASELINE = "read and write"

Figures = dict[str, float]


def vocabulary(words: int = 40_000) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float64]]:
    """Return made-up words, short ones first, and the cumulative chance of each by Zipf's law."""
    random = np.random.default_rng(7)
    letters = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
    chances = 1 / np.arange(1, 27) ** 0.7
    lengths = np.clip(np.round(1.5 + np.log2(np.arange(2, words + 2)) / 2 + random.normal(0, 1.2, words)), 1, 16)
    spelled = "".join(random.choice(letters, int(lengths.sum()), p=chances / chances.sum()))
    stops = np.cumsum(lengths).astype(int)
    names = [spelled[stop - int(length) : stop] for length, stop in zip(lengths, stops, strict=True)]
    weights = 1 / (np.arange(words) + 2.7) ** 1.05
    return np.array(names, dtype=object), np.cumsum(weights / weights.sum())


def texts(rows: int, seed: int) -> list[str]:
    """Return texts whose lengths are log-normal around `MEAN_TEXT_BYTES`, cut from one stream of words."""
    names, chances = vocabulary()
    random = np.random.default_rng(seed)
    sigma = 0.8
    lengths = random.lognormal(np.log(MEAN_TEXT_BYTES) - sigma * sigma / 2, sigma, rows)
    stops = np.cumsum(np.clip(lengths, 20, 60_000).astype(np.int64))
    mean_word = 4.0
    stream = ""
    while len(stream) < stops[-1]:
        drawn = np.searchsorted(chances, random.random(int((stops[-1] - len(stream)) / mean_word) + 1))
        stream += " ".join(names[np.minimum(drawn, len(names) - 1)]) + ". "
    starts = np.concatenate([[0], stops[:-1]])
    return [stream[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def make_inputs(folder: Path, rows: int) -> None:
    """Write the three datasets below `folder`, unless they are there."""
    if (folder / "done").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    first = 0
    for place, (name, weight) in enumerate(WEIGHTS.items()):
        (folder / name).mkdir(parents=True)
        size = rows * weight // sum(WEIGHTS.values())
        for part, start in enumerate(range(0, size, FILE_ROWS)):
            count = min(FILE_ROWS, size - start)
            columns = {
                "id": pa.array(range(first, first + count), pa.int64()),
                "text": pa.array(texts(count, seed=1_000 * place + part)),
                "source": pa.array([f"{name}/part-{part}"] * count),
            }
            first += count
            path = folder / name / f"part-{part:03}.parquet"
            pq.write_table(
                pa.table(columns), path, row_group_size=ROW_GROUP_ROWS, compression="zstd", compression_level=1
            )
    (folder / "done").touch()


def read_and_write(inputs: Path, out: Path) -> int:
    """Read all rows a row group at a time, write them to shards; return how many."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    shard_rows = BATCH_ROWS * BATCHES_PER_SHARD

    def row_groups() -> Iterator[pa.Table]:
        for path in sorted(inputs.glob("*/*.parquet")):
            file = pq.ParquetFile(path, memory_map=False, pre_buffer=False)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, use_threads=False)

    def shards() -> Iterator[pa.Table]:
        held: list[pa.Table] = []
        for table in row_groups():
            held.append(table)
            while sum(map(len, held)) >= shard_rows:
                whole = pa.concat_tables(held)
                yield whole.slice(0, shard_rows)
                held = [whole.slice(shard_rows)]
        if sum(map(len, held)):
            yield pa.concat_tables(held)

    rows = 0
    out.mkdir()
    for number, shard in enumerate(shards()):
        pq.write_table(
            shard,
            out / f"{number:05}.parquet",
            compression="zstd",
            compression_level=1,
            # The best that plain pyarrow does here: a dictionary where it pays, none tried where it does not.
            use_dictionary=["source"],
        )
        rows += len(shard)
    return rows


def mix(inputs: Path, out: Path, *, lineage: bool) -> int:
    """Mix the datasets with mixer; return the rows written."""
    from mixer.building import build  # noqa: PLC0415 -- the baseline must not pay for it
    from mixer.config import MixConfig  # noqa: PLC0415 -- the same

    config = {
        "output": str(out),
        "batch_size": BATCH_ROWS,
        "batches_per_shard": BATCHES_PER_SHARD,
        "on_exhausted": "stop",
        "lineage": lineage,
        "datasets": {name: {"path": str(inputs / name), "weight": weight} for name, weight in WEIGHTS.items()},
    }
    return build(MixConfig.model_validate(config)).rows


WORK: dict[str, Callable[[Path, Path], int]] = {
    BASELINE: read_and_write,
    "mixer, no lineage": lambda inputs, out: mix(inputs, out, lineage=False),
    "mixer": lambda inputs, out: mix(inputs, out, lineage=True),
}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def run_here(name: str, inputs: Path, out: Path) -> Figures:
    """Do one piece of work in this process, and measure it."""
    import mixer.building  # noqa: F401, PLC0415 -- imported before the clock starts, in every process alike

    cpu, wall = cpu_seconds(), time.perf_counter()
    rows = WORK[name](inputs, out)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    size = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    return {"rows": rows, "cpu": cpu, "wall": wall, "bytes": size, "rss_mb": status_mb("self", "VmHWM")}


def run_apart(name: str, inputs: Path) -> Figures:
    """Do one piece of work in a fresh process, and sample its memory."""
    with tempfile.TemporaryDirectory(dir=inputs.parent) as scratch:
        command = [sys.executable, __file__, "--one", name, "--inputs", str(inputs), "--out", f"{scratch}/out"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with anonymous_memory(process.pid) as most:
            text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{name}: exit {process.returncode}")
    figures: Figures = json.loads(text)
    return {**figures, "anon_mb": most[0]}


def report(runs: dict[str, list[Figures]]) -> None:
    """Print a table in Markdown: medians of the figures, and of the ratios to the baseline within a repeat."""
    base = runs[BASELINE]

    def median(name: str, figure: str) -> float:
        return statistics.median(run[figure] for run in runs[name])

    def ratios(name: str, figure: str) -> list[float]:
        return [
            (run[figure] / run["rows"]) / (other[figure] / other["rows"])
            for run, other in zip(runs[name], base, strict=True)
        ]

    titles = ["", "CPU ratio", "least - most", "wall ratio", "CPU s / M rows", "rows/s"]
    titles += ["MB out", "peak anon MB", "peak RSS MB"]
    print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name in runs:
        cpu, wall, rows = ratios(name, "cpu"), ratios(name, "wall"), median(name, "rows")
        cells = [
            name,
            f"{statistics.median(cpu):.2f}",
            f"{min(cpu):.2f} - {max(cpu):.2f}",
            f"{statistics.median(wall):.2f}",
            f"{median(name, 'cpu') / rows * 1e6:.2f}",
            f"{rows / median(name, 'wall'):,.0f}",
            f"{median(name, 'bytes') / 1e6:.0f}",
            f"{median(name, 'anon_mb'):.0f}",
            f"{median(name, 'rss_mb'):.0f}",
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure, or do the one piece of work that a measuring process asks for."""
    parser = argparse.ArgumentParser(description="Measure what mixing costs beyond reading and writing.")
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mixer-bench")
    parser.add_argument("--one", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        logging.basicConfig(level=logging.WARNING)
        print(json.dumps(run_here(arguments.one, arguments.inputs, arguments.out)))
        return
    inputs = arguments.data / f"text-{arguments.rows}"
    print(f"making {arguments.rows:,} rows of text in {inputs}, if they are not there", flush=True)
    make_inputs(inputs, arguments.rows)
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, pyarrow {pa.__version__}", flush=True)
    runs: dict[str, list[Figures]] = {name: [] for name in WORK}
    for repeat in range(arguments.repeats):
        for name in WORK:
            figures = run_apart(name, inputs)
            runs[name].append(figures)
            print(f"  {repeat} {name}: CPU {figures['cpu']:.2f} s, wall {figures['wall']:.2f} s", flush=True)
    report(runs)


if __name__ == "__main__":
    main()
