"""Runs on S3 through a network that loses, hurts, delays and reorders: the right bytes, or a clear error."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.building import RunSummary, existing
from mixer.config import MixConfig, config_from
from mixer.core import commits
from mixer.errors import FencedError, MixerError
from mixer.storage import open_store
from mixer.storage.retry import RetryPolicy
from mixer.verifying import verify
from tests.e2e.runs import Result, assert_commits_are_true, at_once, impatient, result, unbroken
from tests.fault_proxy import Chooser, Fault, FaultProxy, Request, seeded
from tests.figures import Note
from tests.profiles import sized
from tests.s3_server import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY

pytestmark = pytest.mark.s3

SEEDS = range(sized(short=6, long=300))
PAIRS = range(sized(short=1, long=30))
PAIR_RATE = 0.2
SHARDS = 12
WEIGHTS = {"web": 3, "code": 2, "books": 1}
BATCH_SIZE, BATCHES_PER_SHARD = 12, 2
BATCHES = SHARDS * BATCHES_PER_SHARD
ROW_BYTES = 400
RATES = (0.05, 0.5)
ATTEMPTS = (3, 5, 12)
"""Tries of one call; with few of them errors do come."""
FLIPS = tuple(range(sized(short=4, long=40)))
"""In which reply of a kind a bit is flipped."""
ROW_READS = 6
"""Requests for rows that every run over inputs on S3 makes at least."""
LIVES = 2
"""How often a run that ended in an error is run again under faults, before it is run without."""
READ_TIMEOUT_S = 0.15
DONE, REFUSED, FENCED = 0, 1, 6
INPUT_PREFIX = "inputs-of-test-faults"


def policy(attempts: int) -> RetryPolicy:
    return RetryPolicy(attempts=attempts, first_wait_s=0.002, max_wait_s=0.02)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a seed stands for."""

    seed: int
    rate: float
    attempts: int
    inputs: str
    """Where the inputs are: ``disk``, or ``s3``, read through the faults as well."""


def trial(seed: int) -> Trial:
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return Trial(seed, chance.uniform(*RATES), chance.choice(ATTEMPTS), chance.choice(["disk", "disk", "s3"]))


@dataclass(slots=True)
class Tally:
    """What became of the runs, and what was done to them."""

    seeds: int = 0
    right: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[Fault] = field(default_factory=Counter)
    requests: int = 0
    lost_creates: int = 0
    overtaken: int = 0

    def note(self, proxy: FaultProxy, found: RunSummary | MixerError) -> None:
        """Count a run that has ended."""
        if isinstance(found, MixerError):
            self.errors[type(found).__name__] += 1
        else:
            self.right += 1
        self.faults.update(fault for _, fault in proxy.faults)
        self.requests += len(proxy.requests)
        self.lost_creates += len(proxy.lost_creates())
        self.overtaken += proxy.overtaken

    def add(self, other: Tally) -> None:
        """Count what another has counted."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def figures(self) -> dict[str, int]:
        """Return all counts by names that say what they are."""
        return {
            "seeds": self.seeds,
            "runs": self.right + self.errors.total(),
            "runs right": self.right,
            "runs ended in a clear error": self.errors.total(),
            **{f"error {name}": count for name, count in self.errors.items()},
            "requests": self.requests,
            "requests hurt": self.faults.total(),
            **{f"fault {fault.name}": count for fault, count in self.faults.items()},
            "creations whose reply was lost": self.lost_creates,
            "requests overtaken": self.overtaken,
        }


@pytest.fixture(scope="module")
def total() -> Iterator[Tally]:
    """Counts over the seeds; if all of them ran, they must have hurt."""
    counted = Tally()
    yield counted
    if counted.seeds == len(SEEDS):
        assert counted.right >= len(SEEDS) // 3
        assert counted.errors["StoreUnavailableError"] >= len(SEEDS) // 6
        assert counted.lost_creates >= len(SEEDS)
        assert set(counted.faults) == set(Fault)
        assert counted.overtaken >= len(SEEDS) // 4


@pytest.fixture
def tally(total: Tally, figures: Note) -> Iterator[Tally]:
    """Counts of one seed."""
    counted = Tally()
    yield counted
    total.add(counted)
    figures("faults", counted.figures())


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix without a place for its output, and what it becomes."""

    config: MixConfig
    expected: Result

    def at(self, output: str) -> MixConfig:
        return self.config.model_copy(update={"output": output})


@pytest.fixture(scope="module")
def mixes(tmp_path_factory: pytest.TempPathFactory, s3_server: object) -> dict[str, Mix]:
    """The same mix of inputs on a disk and of the same inputs on S3."""
    folder = tmp_path_factory.mktemp("faults")
    found = {}
    for where, place in (("disk", str(folder)), ("s3", f"s3://{BUCKET}/{INPUT_PREFIX}")):
        datasets = {name: {"path": f"{place}/{name}.parquet", "weight": weight} for name, weight in WEIGHTS.items()}
        for name, weight in WEIGHTS.items():
            open_store(place).put(f"{name}.parquet", dataset(name, BATCHES * BATCH_SIZE // 6 * weight))
        values: dict[str, Any] = {"output": "nowhere", "batch_size": BATCH_SIZE, "datasets": datasets}
        config = config_from({**values, "batches": BATCHES, "batches_per_shard": BATCHES_PER_SHARD})
        found[where] = Mix(config, unbroken(config, folder / f"unbroken-{where}"))
    assert found["s3"].expected.shards == found["disk"].expected.shards
    return found


def dataset(name: str, rows: int) -> bytes:
    """Return a Parquet file of rows of random text, its pages with checksums."""
    chance = random.Random(name)  # noqa: S311 - repeatable on purpose
    table = pa.table({"text": [chance.randbytes(ROW_BYTES // 2).hex() for _ in range(rows)], "n": range(rows)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=37, write_page_checksum=True, use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def sparing_plans(choose: Chooser) -> Chooser:
    """Flip no bit of what inputs are planned from: the end of a file, where its footer is.

    Nothing is known yet to compare it with, and a range has no checksum on S3. With TLS no bit flips unnoticed.
    """

    def spared(request: Request) -> Fault | None:
        fault = choose(request)
        return None if fault is Fault.REPLY_FLIPPED and is_footer(request) else fault

    return spared


def is_footer(request: Request) -> bool:
    """Say whether the end of an input is asked for; those of these tests are so short that it is all of them."""
    return INPUT_PREFIX in request.target and request.headers.get("range", "").startswith("bytes=0-")


@contextmanager
def faults(proxy: FaultProxy, choose: Chooser, attempts: int, *, salt: int) -> Iterator[None]:
    """Hurt what is asked of S3 meanwhile, by clients that do not wait long."""
    proxy.reset(sparing_plans(choose), salt=salt)
    try:
        with impatient(policy(attempts), READ_TIMEOUT_S):
            yield
    finally:
        proxy.choose = lambda request: None


def ended(call: Callable[[], RunSummary]) -> RunSummary | MixerError:
    """Return what a call returns, or the error that it ends in."""
    try:
        return call()
    except MixerError as error:
        return error


def assert_clear(error: MixerError, kinds: set[Fault], told: str) -> None:
    """An error says where, gives no secret away, and claims no more than a store that does not answer."""
    said = f"{error} {error.__cause__}"
    assert re.search(rf"s3://{BUCKET}/[^ ]", str(error)), told
    assert ACCESS_KEY_ID not in said, told
    assert SECRET_ACCESS_KEY not in said, told
    assert not isinstance(error, FencedError), f"there is no other start: {told}"
    # Whether bytes were hurt on their way or lie there so, nobody can tell from one look.
    assert error.exit_code == REFUSED or Fault.REPLY_FLIPPED in kinds, told


def assert_committed_part_is_right(output: str, expected: Result, told: str) -> None:
    """Each commit names a shard that is there, with the bytes that an unbroken run gives it, and none twice."""
    store = open_store(output)
    if store.get(commits.RUN_NAME) is None:
        assert store.list(commits.LOG_PREFIX) == [], told
        assert store.list("data/") == [], told
        return
    store, run = existing(output)
    committed = assert_commits_are_true(store, run, told)
    assert [commit.path for commit in committed] == sorted(expected.shards)[: len(committed)], told
    for commit in committed:
        assert store.get(commit.path) == expected.shards[commit.path], told
        assert commit.state == run.plan.state_at(commit.first_batch + commit.batches), told
    manifest = store.get(commits.MANIFEST_NAME)
    assert manifest in {None, expected.manifest}, told


def assert_right(output: str, expected: Result, told: str) -> None:
    """A run that has ended is what an unbroken one is."""
    found = result(output)
    assert found.head == expected.head, told
    assert found == expected, told
    report = verify(output)
    assert report.problems == (), told
    assert all(name.startswith(".mixer/probe/") for name in report.orphans), told


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_under_faults_ends_right_or_in_a_clear_error(
    seed: int, mixes: dict[str, Mix], s3_url: str, fault_proxy: FaultProxy, tally: Tally
) -> None:
    drawn = trial(seed)
    mix = mixes[drawn.inputs]
    config = mix.at(s3_url)
    tally.seeds += 1
    for life in range(LIVES):
        draw = seed * LIVES + life
        with faults(fault_proxy, seeded(draw, drawn.rate), drawn.attempts, salt=draw):
            found = ended(partial(building.build, config))
        tally.note(fault_proxy, found)
        hurt = {fault for _, fault in fault_proxy.faults}
        fault_proxy.reset()
        if not isinstance(found, MixerError):
            break
        told = f"{drawn} {life=} {found!r}"
        assert_clear(found, hurt, told)
        assert_committed_part_is_right(s3_url, mix.expected, told)
    else:
        building.build(config)
    assert_right(s3_url, mix.expected, str(drawn))


READS: dict[str, Callable[[Request], bool]] = {
    "definition": lambda request: request.target.endswith("/.mixer/run.json"),
    "slots": lambda request: "/.mixer/log/" in request.target.partition("?")[0],
    "listings": lambda request: "list-type=2" in request.target,
}


@pytest.mark.parametrize("kind", READS)
def test_a_flipped_bit_in_what_a_run_says_of_itself_is_found(
    kind: str, mixes: dict[str, Mix], s3_url: str, fault_proxy: FaultProxy
) -> None:
    expected = mixes["disk"].expected
    building.build(mixes["disk"].at(s3_url))
    flips = 0
    for number in FLIPS:
        with faults(fault_proxy, of_nth(READS[kind], number % 2), ATTEMPTS[-1], salt=number):
            found = ended(partial(building.status, s3_url))
        flips += len(fault_proxy.faults)
        if isinstance(found, MixerError):
            # Records are read once more before they are called damaged; a listing is not.
            assert kind == "listings", repr(found)
            assert_clear(found, {Fault.REPLY_FLIPPED}, repr(found))
        else:
            assert (found.head, found.committed, found.state) == (expected.head, SHARDS, expected.state)
    assert flips >= len(FLIPS) // 2


def test_a_flipped_bit_in_rows_is_found_if_their_pages_have_checksums(
    mixes: dict[str, Mix], tmp_path: Path, fault_proxy: FaultProxy
) -> None:
    mix = mixes["s3"]
    errors = 0
    for number in FLIPS:
        config = mix.at(str(tmp_path / str(number)))
        with faults(fault_proxy, of_nth(is_of_rows, number % ROW_READS), ATTEMPTS[-1], salt=number):
            found = ended(partial(building.build, config))
        assert len(fault_proxy.faults) == 1
        if isinstance(found, MixerError):
            errors += 1
            assert_clear(found, {Fault.REPLY_FLIPPED}, repr(found))
            assert_committed_part_is_right(config.output, mix.expected, repr(found))
            building.build(config)
        assert_right(config.output, mix.expected, f"{number=} {found!r}")
    assert errors >= 2


def of_nth(kind: Callable[[Request], bool], number: int) -> Chooser:
    """Flip a bit of the reply to one request of a kind, the one after `number` others, and of no other."""
    seen = itertools.count()
    return lambda request: (
        Fault.REPLY_FLIPPED if request.method == "GET" and kind(request) and next(seen) == number else None
    )


def is_of_rows(request: Request) -> bool:
    """Say whether rows of an input are asked for."""
    return INPUT_PREFIX in request.target and "range" in request.headers and not is_footer(request)


def build_impatiently(config: MixConfig) -> None:
    with impatient(policy(ATTEMPTS[-1]), READ_TIMEOUT_S):
        building.build(config)


@pytest.mark.crash
@pytest.mark.parametrize("seed", PAIRS)
def test_two_starts_at_once_under_faults_end_as_one_run(
    seed: int, mixes: dict[str, Mix], s3_url: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    mix = mixes["disk"]
    config = mix.at(s3_url)
    fault_proxy.reset(seeded(10_000 + seed, PAIR_RATE, set(Fault) - {Fault.REPLY_FLIPPED}))
    with at_once(tmp_path / "stderr", [(build_impatiently, config)] * 2) as children:
        codes = [child.ended() for child in children]
        said = [child.said for child in children]
    assert set(codes) <= {DONE, REFUSED, FENCED}, said
    assert codes != [FENCED, FENCED], said
    assert fault_proxy.faults
    fault_proxy.reset()
    assert_committed_part_is_right(s3_url, mix.expected, f"{seed=} {codes=}")
    building.build(config)
    assert_right(s3_url, mix.expected, f"{seed=} {codes=}")
