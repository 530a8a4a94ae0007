"""The demo's steps, once everything is installed: `infra/demo` runs them. Ends with 1 if any check fails."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from infra import corpora

HERE = Path(".demo")
INPUTS = HERE / "inputs"
MIXED = HERE / "mixed"
UNBROKEN = HERE / "unbroken"
CONFIG = HERE / "mix.yaml"
UNBROKEN_CONFIG = HERE / "unbroken.yaml"
STEPS = 8
KILL_AFTER = 1 / 3
"""Share of the shards that are committed when the run is killed."""

# For each source file: 10 docstrings, 60 verses, 40 passages. By bytes that is about half code.
WEIGHTS = {"code": 1, "docs": 10, "prose": 60, "plays": 40}
BATCH_SIZE = 64

# The embedded Prefect keeps its records here, and no Prefect of the user's own is touched.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
    "PREFECT_HOME": str(HERE.resolve() / "prefect"),
}


class CheckError(RuntimeError):
    """Something that the demo promises does not hold."""


def styled(text: str, code: str) -> str:
    """Return `text` in an ANSI style, on a terminal that wants it."""
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def heading(step: int, title: str, why: str) -> None:
    """Print a step's title, and why it matters."""
    print(f"\n{styled(f'{step}/{STEPS}  {title}', '1;36')}\n{styled(why, '2')}\n", flush=True)


def check(what: str, *, holds: bool) -> None:
    """Print what holds; stop the demo if it does not."""
    if not holds:
        raise CheckError(what)
    print(f"  {styled('ok', '32')}  {what}", flush=True)


def command(*arguments: str) -> list[str]:
    """Return a command line of the mixer that is installed beside this Python."""
    return [str(Path(sys.executable).with_name("mixer")), *arguments]


def mixer(*arguments: str) -> None:
    """Run a command of mixer before the reader's eyes."""
    print(styled(f"$ mixer {shlex.join(arguments)}", "1"), flush=True)
    code = subprocess.run(command(*arguments), env=ENVIRONMENT, check=False).returncode
    if code:
        raise CheckError(f"`mixer {shlex.join(arguments)}` ended with exit code {code}")


def answer(*arguments: str) -> dict[str, Any]:
    """Return what a command of mixer says with ``--json``."""
    run = subprocess.run(command(*arguments, "--json"), env=ENVIRONMENT, check=False, capture_output=True, text=True)
    if run.returncode:
        raise CheckError(f"`mixer {shlex.join(arguments)}` ended with exit code {run.returncode}: {run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def write_config(path: Path, output: Path) -> str:
    """Write the config of the demo's mix; return its text."""
    lines = [
        f"output: {output}",
        f"batch_size: {BATCH_SIZE}",
        "batches_per_shard: 16",
        "on_exhausted: stop            # as many whole batches as the data gives",
        "datasets:                     # weights are exact: of every 111 rows, 1 is code and 60 are prose",
        *(f"  {name + ':':7}{{path: {INPUTS / name}, weight: {weight}}}" for name, weight in WEIGHTS.items()),
    ]
    text = "\n".join(lines) + "\n"
    path.write_text(text)
    return text


def make_corpora() -> None:
    heading(
        1, "Real text", "Four corpora of very different size, from Python itself and two small packages, as Parquet."
    )
    for name in WEIGHTS:
        fresh = corpora.write(name, INPUTS)
        rows, size = corpora.rows_and_bytes(INPUTS / name)
        origin = corpora.CORPORA[name].package or "Python's standard library"
        again = "" if fresh else ", made by an earlier demo"
        print(f"  {name:6}{rows:>8,} rows {size / 1e6:>6.1f} MB   from {origin}{again}", flush=True)


def show_plan() -> None:
    heading(2, "The plan", "Every row of the result is known before one is read: only file footers are looked at.")
    for output in (MIXED, UNBROKEN):
        shutil.rmtree(output, ignore_errors=True)
    write_config(UNBROKEN_CONFIG, UNBROKEN)
    print(styled(f"$ cat {CONFIG}", "1"))
    print(write_config(CONFIG, MIXED), flush=True)
    mixer("plan", str(CONFIG))


def committed(output: Path) -> int:
    """Return how many shards the commit log of a run names; a look at the folder, cheap enough to do all the time."""
    log = output / ".mixer" / "log"
    # Slot 0 is the opening of the run.
    return max(0, len(list(log.glob("*.json"))) - 1)


def kill_in_the_middle() -> None:
    heading(
        3,
        "A run, killed",
        "A Prefect flow writes the shards and commits each one. In the middle its whole process group gets\n"
        "`kill -9`: no handler runs, nothing is tidied up, as when the machine dies. (No Prefect server is\n"
        "set up, so it brings its own: that takes a while, the first time most of all.)",
    )
    shards = answer("plan", str(CONFIG))["shards"]
    kill_at = int(shards * KILL_AFTER)
    print(styled(f"$ mixer run {CONFIG} &  # and kill -9 once {kill_at} shards are committed", "1"), flush=True)
    run = subprocess.Popen(command("run", str(CONFIG)), env=ENVIRONMENT, start_new_session=True)
    try:
        while run.poll() is None and committed(MIXED) < kill_at:
            time.sleep(0.002)
    finally:
        # Also when the reader has had enough of it: in a session of its own it does not hear Ctrl-C.
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    code = run.wait()
    # A progress bar that dies leaves the cursor hidden.
    print("\x1b[?25h\n" if sys.stdout.isatty() else "", flush=True)
    check(f"the run was killed (exit code {code})", holds=code == -signal.SIGKILL)
    found = answer("status", str(MIXED))
    check(
        f"{found['committed']} of {found['shards']} shards are committed, and the run is not finished",
        holds=0 < found["committed"] < found["shards"] and not found["finished"],
    )
    print()
    mixer("status", str(MIXED))


def run_again() -> None:
    heading(
        4,
        "The same command again",
        "It reads the last commit, checks it against the plan, and goes on with the first missing shard.",
    )
    mixer("run", str(CONFIG))


def run_unbroken() -> None:
    heading(5, "The same mix, never killed", "Into another folder, and this time by the bare engine without Prefect.")
    mixer("run", str(UNBROKEN_CONFIG), "--no-prefect")


def digests(output: Path) -> dict[str, str]:
    """Return the sha256 of each shard that lies in an output, by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(output.glob("data/*"))}


def compare() -> None:
    heading(6, "Are they the same?", "Not alike: the same. Every shard's bytes, and the head of the chain of commits.")
    killed, unbroken = answer("status", str(MIXED)), answer("status", str(UNBROKEN))
    check("both runs are finished", holds=killed["finished"] and unbroken["finished"])
    mine, other = digests(MIXED), digests(UNBROKEN)
    check(f"{len(mine)} of {killed['shards']} shards are there", holds=len(mine) == killed["shards"])
    check("the sha256 of every shard is equal", holds=mine == other)
    check(f"the chain head is equal: {killed['head'][:16]}...", holds=killed["head"] == unbroken["head"])
    check("the state after the last batch is equal", holds=killed["state"] == unbroken["state"])


def query_with_duckdb() -> None:
    heading(7, "Rows, with DuckDB", "The shards are plain Parquet; lineage columns say where each row came from.")
    import duckdb  # noqa: PLC0415 -- not installed where the steps before this one are tested

    database = duckdb.connect()
    database.read_parquet(f"{MIXED}/data/*.parquet").create_view("mix")

    def rows(query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = database.execute(query).fetchall()
        return found

    query = "select _batch, _dataset, _row, id, text from mix where _batch in (700, 701)"
    print(styled(f"duckdb> {query}", "1"))
    last = (-1, "")
    for batch, dataset, row, name, text in rows(query):
        if (batch, dataset) != last:
            print(f"  {batch}  {dataset:5}  {row:>6}  {name:22.22}  {' '.join(text.split()):.54}")
        last = (batch, dataset)
    print("  (the first row that each dataset gives to each of the two batches)")
    counts = dict(rows("select _dataset, count(*) from mix group by all"))
    total = sum(counts.values())
    print(f"\n{'':8}{'rows':>8}{'exact share':>15}")
    for name, weight in WEIGHTS.items():
        print(f"  {name:6}{counts[name]:>8,}{total * weight / sum(WEIGHTS.values()):>15,.2f}")
    print()
    check(
        "rows of each dataset are what the state says", holds=counts == answer("status", str(MIXED))["state"]["offsets"]
    )
    owed = {name: total * weight - counts[name] * sum(WEIGHTS.values()) for name, weight in WEIGHTS.items()}
    check("no dataset is ahead of its exact share by a whole row", holds=min(owed.values()) > -sum(WEIGHTS.values()))
    sizes = rows("select distinct count(*) from mix group by _batch")
    check(f"each of the {total // BATCH_SIZE:,} batches has {BATCH_SIZE} rows", holds=sizes == [(BATCH_SIZE,)])


def read_with_datasets() -> None:
    heading(8, "For training, with Hugging Face datasets", "The output folder loads as it is.")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(HERE.resolve() / "huggingface")}
    import datasets  # noqa: PLC0415 -- it reads the environment when it is imported

    datasets.disable_progress_bars()
    print(styled(f">>> datasets.load_dataset({str(MIXED)!r}, split='train')", "1"), flush=True)
    loaded = datasets.load_dataset(str(MIXED), split="train")
    print(f"{loaded}\n")
    found = answer("status", str(MIXED))
    check(f"{loaded.num_rows:,} rows, as many as were committed", holds=loaded.num_rows == found["rows"])
    expected = [row // BATCH_SIZE for row in range(loaded.num_rows)]
    check("batch after batch, counted from 0", holds=list(loaded["_batch"]) == expected)


def main() -> int:
    """Go through the steps; return the exit code."""
    started = time.monotonic()
    steps = (
        make_corpora,
        show_plan,
        kill_in_the_middle,
        run_again,
        run_unbroken,
        compare,
        query_with_duckdb,
        read_with_datasets,
    )
    try:
        for step in steps:
            began = time.monotonic()
            step()
            print(styled(f"{time.monotonic() - began:>98.1f} s", "2"), flush=True)
    except (CheckError, corpora.MissingPackageError) as error:
        print(f"\n{styled('failed', '31')}  {error}", file=sys.stderr)
        return 1
    print(f"\n{styled('All of it held', '1;32')}, in {time.monotonic() - started:.0f} s. Look around in {HERE}/,")
    print(f"mix your own data with {HERE}/venv/bin/mixer init, and see the flow runs with")
    print(f"PREFECT_HOME=$PWD/{HERE}/prefect {HERE}/venv/bin/prefect server start")
    return 0


if __name__ == "__main__":
    sys.exit(main())
