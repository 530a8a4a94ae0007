"""A run of many small shards, children that do it and can be killed, and what they leave, as values."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mixer import building
from mixer.config import MixConfig, config_from
from mixer.core.commits import Commit
from mixer.core.fingerprint import sha256_hex
from mixer.core.plan import State
from mixer.errors import MixerError
from mixer.log import CommitLog
from mixer.planning import Planned
from mixer.storage import Store, open_store
from mixer.storage.filesystems import filesystem_for
from mixer.storage.retry import RetryPolicy, call_with_retries
from mixer.storage.s3 import S3Store
from mixer.verifying import verify

BATCH_SIZE = 6
WEIGHTS = {"web": 3, "code": 2, "books": 1}
DEADLINE_S = 120.0
_open_store = open_store

# Children are forked from a process that has everything loaded, so one more costs 20 ms and not a second.
_FORKS = get_context("forkserver")
# Pandas, because pyarrow imports it where it is installed, when first it makes an array.
_FORKS.set_forkserver_preload([__name__, "mixer.storage.s3", "s3fs", "mixer.verifying", "mixer.testing", "pandas"])


@dataclass(frozen=True, slots=True)
class Result:
    """What a run has become, without what differs from start to start."""

    shards: dict[str, bytes]
    head: str
    state: State
    finished: bool
    manifest: bytes | None


def many_shards(folder: Path, output: str, *, shards: int, **changes: Any) -> MixConfig:
    """Return the config of a run of `shards` shards of one batch each, with its inputs made below `folder`."""
    for name, weight in WEIGHTS.items():
        path = folder / "inputs" / f"{name}.parquet"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            rows = shards * weight
            table = pa.table({"text": [f"{name} {row}" for row in range(rows)], "n": range(rows)})
            pq.write_table(table, path, row_group_size=17)
    datasets = {
        name: {"path": str(folder / "inputs" / f"{name}.parquet"), "weight": weight} for name, weight in WEIGHTS.items()
    }
    values = {
        "output": output,
        "batch_size": BATCH_SIZE,
        "batches": shards,
        "batches_per_shard": 1,
        "datasets": datasets,
    }
    return config_from({**values, **changes})


def unbroken(config: MixConfig, folder: Path) -> Result:
    """Return what `config` becomes when nothing interrupts it, in a folder of its own."""
    alone = config.model_copy(update={"output": str(folder)})
    building.build(alone)
    return result(alone.output)


def result(output: str) -> Result:
    """Return what the run at `output` has become."""
    store = open_store(output)
    summary = building.status(output)
    return Result(
        shards=objects(store, "data/"),
        head=summary.head,
        state=summary.state,
        finished=summary.finished,
        manifest=store.get("manifest.json"),
    )


@contextmanager
def lying_on(config: MixConfig, store: Store) -> Iterator[None]:
    """Let the run of `config` lie on a store of one's choice; other outputs lie where their addresses say."""

    def opened(url: str) -> Store:
        return store if url == config.output else _open_store(url)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("mixer.building", __name__):
            patch.setattr(f"{module}.open_store", opened)
        yield


def became(config: MixConfig, store: Store) -> Result:
    """Return what the run of `config` on `store` has become, and find nothing wrong with it."""
    with lying_on(config, store):
        report = verify(config.output)
        assert report.problems == ()
        assert all(name.startswith(".mixer/probe/") for name in report.orphans)
        return result(config.output)


def objects(store: Store, prefix: str = "") -> dict[str, bytes]:
    """Return everything below `prefix`."""
    return {info.name: store.get(info.name) or b"" for info in store.list(prefix)}


def assert_commits_are_true(store: Store, run: Planned, told: str = "") -> list[Commit]:
    """Check that each commit names a shard that is there and whole; return the commits."""
    committed = CommitLog(store, run.genesis).commits()
    for commit in committed:
        data = store.get(commit.path)
        assert data is not None, f"{commit.path} is missing: {told}"
        assert (len(data), sha256_hex(data)) == (commit.bytes, commit.sha256), f"{commit.path}: {told}"
    return committed


def config_file(config: MixConfig, path: Path) -> str:
    """Write `config` for the command line; return where."""
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    return str(path)


@contextmanager
def impatient(policy: RetryPolicy, read_timeout_s: float) -> Iterator[None]:
    """Ask S3, for outputs and inputs, with other patience than a user's: minutes are long in tests."""

    def hasty(url: str) -> Store:
        store = open_store(url)
        return replace(store, policy=policy, read_timeout_s=read_timeout_s) if isinstance(store, S3Store) else store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixer.building.open_store", hasty)
        for module in ("inputs", "remote_file"):
            patch.setattr(f"mixer.storage.{module}.call_with_retries", partial(call_with_retries, policy=policy))
        patch.setattr("mixer.storage.inputs.filesystem_for", partial(filesystem_for, read_timeout_s=read_timeout_s))
        yield


class Child:
    """A process of its own that calls a function, exits as the command line would, and can be killed."""

    def __init__(self, log: Path, call: Callable[..., object], *arguments: object) -> None:
        """Start ``call(*arguments)``; what it says on stderr goes to the file `log`."""
        self._log = log
        self.process: ForkServerProcess = _FORKS.Process(
            target=_live, args=(str(log), dict(os.environ), call, arguments), daemon=True
        )
        with _no_main_module():
            self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def said(self) -> str:
        """What it has said on stderr."""
        return self._log.read_text() if self._log.exists() else ""

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait for its end; return the exit code, the negative number of a signal."""
        self.process.join(DEADLINE_S)
        assert self.process.exitcode is not None, f"the child hangs; it said:\n{self.said}"
        return self.process.exitcode


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep children from running the main module again, as multiprocessing has them do: it is pytest's, and slow."""
    main = vars(sys.modules["__main__"])
    file = main.pop("__file__", None)
    try:
        yield
    finally:
        if file is not None:
            main["__file__"] = file


def _live(
    log: str, environment: dict[str, str], call: Callable[..., object], arguments: tuple[object, ...]
) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 2)
    code = 0
    try:
        call(*arguments)
    except BaseException as error:  # noqa: BLE001 -- a process ends here, and its parent reads why
        os.write(descriptor, traceback.format_exc().encode())
        code = error.exit_code if isinstance(error, MixerError) else 99
    # At once: no clean-up of this test's making shall help the engine.
    os._exit(code)


def shared_number() -> Any:
    """Return a number, at first 0, whose ``value`` children may change."""
    return _FORKS.Value("i", 0)


@contextmanager
def at_once(log: Path, calls: Sequence[tuple[Callable[..., object], object]]) -> Iterator[list[Child]]:
    """Start a child for each call and its argument; they all begin together."""
    barrier = _FORKS.Barrier(len(calls))
    children = [
        Child(log.with_name(f"{log.name}-{number}"), _together, barrier, call, argument)
        for number, (call, argument) in enumerate(calls)
    ]
    try:
        yield children
    finally:
        for child in children:
            child.process.kill()
            child.process.join()


def _together(barrier: Any, call: Callable[..., object], argument: object) -> None:
    barrier.wait(DEADLINE_S)
    call(argument)
