"""The demo's steps, once everything is installed: `infra/demo` runs them. Ends with 1 if any check fails."""

from __future__ import annotations

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

import corpora

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
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
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


def mixer(*arguments: str, show: bool = True) -> None:
    """Run a command of mixer before the reader's eyes."""
    if show:
        print(styled(f"$ mixer {shlex.join(arguments)}", "1"), flush=True)
    code = subprocess.run(["mixer", *arguments], env=ENVIRONMENT, check=False).returncode
    if code:
        raise CheckError(f"`mixer {shlex.join(arguments)}` ended with exit code {code}")


def status(output: Path) -> dict[str, Any]:
    """Return what `mixer status --json` says of a run."""
    command = ["mixer", "status", str(output), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True).stdout)
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
    heading(1, "Real text", "Four corpora of very different size, from Python itself and two small packages, as Parquet.")
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
        "`kill -9`: no handler runs, nothing is tidied up, as when the machine dies.",
    )
    shards = planned_shards()
    print(styled(f"$ mixer run {CONFIG}        # and kill -9 after {int(shards * KILL_AFTER)} shards", "1"), flush=True)
    run = subprocess.Popen(["mixer", "run", str(CONFIG)], env=ENVIRONMENT, start_new_session=True)
    while run.poll() is None and committed(MIXED) < shards * KILL_AFTER:
        time.sleep(0.002)
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
    code = run.wait()
    print("\x1b[?25h\n" if sys.stdout.isatty() else "")
    check(f"the run was killed (exit code {code})", holds=code == -signal.SIGKILL)
    mixer("status", str(MIXED))
    found = status(MIXED)
    print()
    check(
        f"it got as far as shard {found['committed']} of {found['shards']}",
        holds=0 < found["committed"] < found["shards"] and not found["finished"],
    )


def planned_shards() -> int:
    """Return how many shards the plan has."""
    command = ["mixer", "plan", str(CONFIG), "--json"]
    return int(json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True).stdout)["shards"])


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
    import hashlib

    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(output.glob("data/*"))}


def compare() -> None:
    heading(6, "Are they the same?", "Not alike: the same. Every shard's bytes, and the head of the chain of commits.")
    killed, unbroken = status(MIXED), status(UNBROKEN)
    check("both runs are finished", holds=killed["finished"] and unbroken["finished"])
    mine, other = digests(MIXED), digests(UNBROKEN)
    check(f"{len(mine)} of {killed['shards']} shards are there", holds=len(mine) == killed["shards"])
    check("the sha256 of every shard is equal", holds=mine == other)
    check(f"the chain head is equal: {killed['head'][:16]}...", holds=killed["head"] == unbroken["head"])
    check("the state after the last batch is equal", holds=killed["state"] == unbroken["state"])


def query_with_duckdb() -> None:
    heading(7, "Rows, with DuckDB", "The shards are plain Parquet; lineage columns say where each row came from.")
    import duckdb

    shards = f"'{MIXED}/data/*.parquet'"
    first = f"""
        select _batch, _dataset, _row, replace(text[:60], chr(10), ' ') as text
        from {shards} where _batch = 0 qualify row_number() over (partition by _dataset order by _row) <= 2
        order by case _dataset {" ".join(f"when '{name}' then {n}" for n, name in enumerate(WEIGHTS))} end, _row
    """
    for batch, dataset, row, text in duckdb.sql(first).fetchall():
        print(f"  batch {batch}  {dataset:6} row {row:<5} {text!r}")
    print()
    counts = dict(duckdb.sql(f"select _dataset, count(*) from {shards} group by all").fetchall())
    total = sum(counts.values())
    for name, weight in WEIGHTS.items():
        exact = total * weight / sum(WEIGHTS.values())
        print(f"  {name:6}{counts[name]:>8,} rows   exact share {exact:>11,.2f}")
    print()
    check("rows of each dataset are what the state says", holds=counts == status(MIXED)["state"]["offsets"])
    ahead = [counts[name] * sum(WEIGHTS.values()) - total * weight for name, weight in WEIGHTS.items()]
    check("no dataset is ahead of its exact share by a row", holds=all(a < sum(WEIGHTS.values()) for a in ahead))
    uneven = duckdb.sql(f"select _batch from {shards} group by _batch having count(*) != {BATCH_SIZE}").fetchall()
    check(f"each of the {total // BATCH_SIZE:,} batches has {BATCH_SIZE} rows", holds=uneven == [])


def read_with_datasets() -> None:
    heading(8, "For training, with Hugging Face datasets", "The output folder loads as it is.")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(HERE.resolve() / "huggingface")}
    import datasets

    datasets.disable_progress_bars()
    print(styled(f">>> datasets.load_dataset({str(MIXED)!r}, split='train')", "1"), flush=True)
    loaded = datasets.load_dataset(str(MIXED), split="train")
    print(f"{loaded}\n")
    found = status(MIXED)
    check(f"{loaded.num_rows:,} rows, in the order of the shards", holds=loaded.num_rows == found["rows"])
    check("its batches count up from 0", holds=loaded["_batch"] == sorted(loaded["_batch"]))


def main() -> int:
    """Go through the steps; return the exit code."""
    started = time.monotonic()
    try:
        make_corpora()
        show_plan()
        kill_in_the_middle()
        run_again()
        run_unbroken()
        compare()
        query_with_duckdb()
        read_with_datasets()
    except (CheckError, corpora.MissingPackageError, subprocess.CalledProcessError) as error:
        print(f"\n{styled('failed', '31')}  {error}", file=sys.stderr)
        return 1
    print(f"\n{styled('All of it held', '1;32')}, in {time.monotonic() - started:.0f} s. Look around in {HERE}/,")
    print(f"mix your own data with {HERE}/venv/bin/mixer init, and see the flow runs with")
    print(f"PREFECT_HOME=$PWD/{HERE}/prefect {HERE}/venv/bin/prefect server start")
    return 0


if __name__ == "__main__":
    sys.exit(main())
