"""What a trainer gets of a run a second: `python tests/bench/bench_read.py`.

Two runs are made once (by default in the temporary folder) and kept: *tokens*, windows of 1,025 int32 ids, and *text*
of about 1 KB a row; batches of 256, zstd level 1, with lineage columns. Each is read whole, in a fresh process each
time, by

- `pyarrow`: every row group of every shard by ``ParquetFile.read_row_group`` with its own defaults, threads included,
  and nothing done with the rows;
- `mixer.read`: Arrow tables, a batch each;
- `MixedBatches`: tensors, a batch each, in the same process, and by a loader with two workers;
- Hugging Face `datasets`, streaming, in the format "torch": batches of the same size by ``iter``, and row by row.

The figures are ratios of rows/s to `pyarrow` within one repeat, and the table has their medians, so that a busy
machine disturbs all alike. `datasets` is left after a part of the rows, as it would take minutes. Strings become Python
lists in `MixedBatches` and `datasets`, and stay Arrow in the others; so of *text* there is also a reading of *numbers*
only. Then the time to the first batch, of the first and of the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 256
BATCHES_PER_SHARD = 64
ROWS = {"tokens": 96 * 1024, "text": 192 * 1024}
WINDOW = 1_025
NUMBERS = ["_row", "_batch"]
BASELINE = "pyarrow"
DATASETS_ROWS = 16 * 1024


def made_table(kind: str, rows: int, seed: int) -> pa.Table:
    """Return rows of one input."""
    random = np.random.default_rng(seed)
    if kind == "tokens":
        ids = np.minimum(random.zipf(1.2, rows * WINDOW), 50_256).astype(np.int32)
        lists = pa.ListArray.from_arrays(np.arange(0, (rows + 1) * WINDOW, WINDOW, dtype=np.int32), ids)
        return pa.table({"input_ids": lists})
    words = np.array([f"w{number:x}" for number in range(40_000)])
    drawn = np.minimum(random.zipf(1.3, rows * 220), 39_999).reshape(rows, 220)
    return pa.table({"text": [" ".join(line) for line in words[drawn]]})


def make_run(folder: Path, kind: str) -> Path:
    """Make one run below `folder`, unless it is there; return where."""
    from mixer.building import build  # noqa: PLC0415 -- the baseline must not pay for it
    from mixer.config import MixConfig  # noqa: PLC0415 -- the same

    out = folder / kind
    if (out / "manifest.json").exists():
        return out
    datasets = {}
    for seed, (name, weight) in enumerate({"a": 3, "b": 1}.items()):
        path = folder / f"{kind}-{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(made_table(kind, ROWS[kind] * weight // 4, seed), path, row_group_size=4_096)
        datasets[name] = {"path": str(path), "weight": weight}
    config = {"output": str(out), "batch_size": BATCH_ROWS, "batches_per_shard": BATCHES_PER_SHARD}
    build(MixConfig.model_validate({**config, "on_exhausted": "stop", "datasets": datasets}))
    return out


def shards(out: Path) -> list[str]:
    """Return where the shards are."""
    return [str(path) for path in sorted((out / "data").glob("*.parquet"))]


def by_pyarrow(out: Path, columns: list[str] | None) -> Iterator[int]:
    """Read every row group."""
    for path in shards(out):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns).num_rows


def by_read(out: Path, columns: list[str] | None) -> Iterator[int]:
    """Read Arrow tables."""
    import mixer  # noqa: PLC0415 -- the baseline must not pay for it

    for table in mixer.read(str(out), columns=columns):
        yield table.num_rows


def by_batches(out: Path, columns: list[str] | None, workers: int | None = None) -> Iterator[int]:
    """Read tensors."""
    from mixer.torch import MixedBatches  # noqa: PLC0415 -- as above

    dataset = MixedBatches(str(out), columns=columns)
    batches: Any = dataset if workers is None else dataset.loader(num_workers=workers)
    for batch in batches:
        yield len(batch["_batch"])


def by_datasets(out: Path, columns: list[str] | None, batch_rows: int | None) -> Iterator[int]:
    """Stream with Hugging Face `datasets`."""
    import datasets  # noqa: PLC0415 -- as above

    streamed = datasets.load_dataset("parquet", data_files=shards(out), split="train", streaming=True, columns=columns)
    formatted = streamed.with_format("torch")
    if batch_rows is None:
        for _ in formatted:
            yield 1
        return
    for batch in formatted.iter(batch_size=batch_rows):
        yield len(batch["_batch"])


WORK: dict[str, Callable[[Path, list[str] | None], Iterator[int]]] = {
    BASELINE: by_pyarrow,
    "mixer.read": by_read,
    "MixedBatches": by_batches,
    "MixedBatches.loader, 2 workers": lambda out, columns: by_batches(out, columns, 2),
    "datasets, batches": lambda out, columns: by_datasets(out, columns, BATCH_ROWS),
    "datasets, rows": lambda out, columns: by_datasets(out, columns, None),
}


def run_here(name: str, out: Path, columns: list[str] | None) -> dict[str, float]:
    """Do one reading in this process; return its rows a second."""
    import datasets  # noqa: F401, PLC0415 -- imported before the clock starts, in every process alike

    import mixer.torch  # noqa: F401, PLC0415 -- the same

    wall, cpu = time.perf_counter(), time.process_time()
    rows = 0
    for taken in WORK[name](out, columns):
        rows += taken
        if name.startswith("datasets") and rows >= DATASETS_ROWS:
            break
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"rows_per_s": rows / wall, "cpu_us_a_row": cpu / rows * 1e6}


def first_batch_here(out: Path, *, last: bool) -> float:
    """Return the seconds from nothing open to the first batch."""
    from mixer.torch import MixedBatches  # noqa: PLC0415 -- imported before the clock starts

    batches = sum(pq.read_metadata(path).num_rows for path in shards(out)) // BATCH_ROWS
    began = time.perf_counter()
    next(iter(MixedBatches(str(out), start_batch=batches - 1 if last else 0)))
    return time.perf_counter() - began


def apart(arguments: list[str]) -> Any:
    """Do one piece of work in a fresh process."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(title: str, runs: dict[str, list[dict[str, float]]]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n\n| | rows/s to pyarrow | least - most | rows/s | CPU us a row |\n|---|---|---|---|---|")
    for name, figures in runs.items():
        ratios = [one["rows_per_s"] / base["rows_per_s"] for one, base in zip(figures, runs[BASELINE], strict=True)]
        cells = [name, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} - {max(ratios):.2f}"]
        cells += [f"{statistics.median(one[key] for one in figures):,.2f}" for key in ("rows_per_s", "cpu_us_a_row")]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure, or do the one piece of work that a measuring process asks for."""
    parser = argparse.ArgumentParser(description="Measure what a trainer gets of a run a second.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mixer-bench-read")
    parser.add_argument("--kinds", nargs="+", choices=[*ROWS, "numbers"], default=[*ROWS, "numbers"])
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--one", choices=[*WORK, "first", "last"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--columns", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one in WORK:
        print(json.dumps(run_here(arguments.one, arguments.out, arguments.columns)))
        return
    if arguments.one:
        print(json.dumps(first_batch_here(arguments.out, last=arguments.one == "last")))
        return
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, pyarrow {pa.__version__}", flush=True)
    for kind in arguments.kinds:
        out = make_run(arguments.data, "text" if kind == "numbers" else kind)
        columns = ["--columns", *NUMBERS] if kind == "numbers" else []
        runs: dict[str, list[dict[str, float]]] = {BASELINE: [], **{name: [] for name in arguments.only}}
        for _ in range(arguments.repeats):
            for name, figures in runs.items():
                figures.append(apart(["--one", name, "--out", str(out), *columns]))
        report(kind, runs)
        for which in ("first", "last") if not columns else ():
            times = [apart(["--one", which, "--out", str(out)]) for _ in range(arguments.repeats)]
            print(f"time to the {which} batch: {statistics.median(times) * 1e3:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
