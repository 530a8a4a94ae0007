"""Records that others have written: whatever they say, a reader answers with what is there or an error of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import building
from mixer.collecting import gc
from mixer.core import commits
from mixer.core.fingerprint import fingerprint
from mixer.errors import CorruptionError
from mixer.log import CommitLog
from mixer.previewing import preview
from mixer.records import RECORD_BYTES_MAX, read_record
from mixer.storage import open_store
from mixer.verifying import verify
from tests.e2e.damage import FINAL, Runs, everything, make_runs, readers, refusal, slot, verified
from tests.profiles import sized

RUN = commits.RUN_NAME
SLOTS = (0, 1, 4, 6, FINAL)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 2**63, 10**18, 10**30, 10**4000),
    *("", "zstd", "../../outside", "/etc/passwd", "\x00", "\x1b[2J", "\ud800", "x" * 100_000),
    *([], {}, [1], {"a": 1}, nested(100), nested(900)),
)


def places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every part of a JSON value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*above, key)
        yield from places(value[key], (*above, key))


def changed(content: Any, place: tuple[str | int, ...], how: str, value: Any) -> None:
    """Change one part of `content`."""
    *above, last = place
    for key in above:
        content = content[key]
    if how == "gone":
        del content[last]
    elif how == "beside" and isinstance(content, dict):
        content["beside"] = value
    elif how == "beside":
        content.append(content[last])
    else:
        content[last] = value


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return make_runs(tmp_path_factory.mktemp("runs"))


CHANGES = st.tuples(
    st.sampled_from([RUN, RUN, RUN, *map(slot, SLOTS)]),
    st.sampled_from(["gone", "beside", "other", "other"]),
    st.sampled_from(VALUES),
)


@pytest.mark.timeout(sized(short=600, long=3600))
@given(finished=st.booleans(), change=CHANGES, data=st.data())
@settings(max_examples=sized(short=60, long=3000), deadline=None)
def test_any_change_to_a_record_by_one_who_knows_its_hashes_is_answered(
    runs: Runs, tmp_path_factory: pytest.TempPathFactory, *, finished: bool, change: Any, data: st.DataObject
) -> None:
    name, how, value = change
    out = tmp_path_factory.mktemp("changed") / "out"
    shutil.copytree(runs.finished if finished or name == slot(FINAL) else runs.unfinished, out)
    content = json.loads((out / name).read_bytes())
    del content["sha256"]
    changed(content, data.draw(st.sampled_from(list(places(content)))), how, value)
    if {"definition", "inputs"} <= set(content):
        content["run"] = fingerprint(content["definition"])
        content["fingerprint"] = fingerprint({"definition": content["definition"], "inputs": content["inputs"]})
    (out / name).write_bytes(commits.sealed(content))
    outside = everything(runs.finished)
    config = runs.config.model_copy(update={"output": str(out)})
    calls = [*readers(config, out).values(), lambda: preview(config), lambda: building.build(config)]
    # `refusal` lets through what is no error of ours.
    for call in calls:
        refusal(call)
    damage = refusal(lambda: verify(str(out)))
    assert damage is None or (isinstance(damage, CorruptionError) and name in str(damage))
    assert everything(runs.finished) == outside
    shutil.rmtree(out.parent)


FILE = ("inputs", "web", "files", 0)
IMPOSSIBLE: dict[tuple[str | int, ...], Any] = {
    (*FILE, "rows"): 10**6,
    (*FILE, "row_group_rows"): [10**6],
    (*FILE, "row_group_rows", 0): "17",
    (*FILE, "bytes"): -1,
    (*FILE, "url"): 7,
    (*FILE, "version"): [],
    (*FILE, "footer_sha256"): None,
    ("inputs", "web", "ignored"): [7],
    ("inputs", "more"): {"files": [], "ignored": []},
    ("physical", "batches_per_row_group"): 0,
    ("physical", "compression"): "zip",
    ("physical", "compression_level"): 99,
    ("physical", "pyarrow"): 1,
    ("physical", "layout"): "1",
    ("definition", "batches"): 10**12,
    ("definition", "batch_size"): 7,
    ("definition", "lineage"): 1,
    ("definition", "algorithm"): "largest-remainder-2",
    ("definition", "datasets", 0, "weight"): 10**6,
    ("definition", "datasets", 1, "name"): "web",
    ("definition", "datasets", 0, "rows"): 0,
    ("asked", "batch_size"): True,
    ("asked", "datasets"): [],
}


@pytest.mark.parametrize("place", IMPOSSIBLE, ids=lambda place: ".".join(map(str, place)))
def test_a_definition_that_no_config_gives_is_damage_though_its_hashes_are_right(
    runs: Runs, tmp_path: Path, place: tuple[str | int, ...]
) -> None:
    out = Path(shutil.copytree(runs.unfinished, tmp_path / "out"))
    content = json.loads((out / RUN).read_bytes())
    del content["sha256"]
    changed(content, place, "other", IMPOSSIBLE[place])
    content["run"] = fingerprint(content["definition"])
    content["fingerprint"] = fingerprint({"definition": content["definition"], "inputs": content["inputs"]})
    (out / RUN).write_bytes(commits.sealed(content))
    for call in readers(runs.config, out).values():
        with pytest.raises(CorruptionError, match=RUN):
            call()


@pytest.mark.parametrize("field", ["shard", "rows", "bytes", "first_batch", "batches", "counts", "state"])
@pytest.mark.parametrize("value", ["x", None, True, [], 10**30, {"offsets": 1}], ids=repr)
def test_a_commit_that_no_plan_gives_is_damage_though_its_hashes_are_right(
    runs: Runs, tmp_path: Path, field: str, value: Any
) -> None:
    out = Path(shutil.copytree(runs.unfinished, tmp_path / "out"))
    content = json.loads((out / slot(6)).read_bytes())
    del content["sha256"]
    content["payload"][field] = value
    (out / slot(6)).write_bytes(commits.sealed(content))
    with pytest.raises(CorruptionError):
        building.start(runs.config.model_copy(update={"output": str(out)}))
    assert verified(out) <= {slot(6), "data/shard-00000004.parquet"}
    assert verified(out)


def test_json_of_any_depth_is_refused() -> None:
    for depth in range(400, 1000, sized(short=7, long=1)):
        data = b'{"a":' + b"[" * depth + b"]" * depth + b',"sha256":""}'
        with pytest.raises(CorruptionError, match="here: "):
            commits.unsealed(data, "here")


HOSTILE = {
    "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"sha256":""}',
    "as deep as Python is": b'{"a":' + b"[" * 980 + b"]" * 980 + b',"sha256":""}',
    "a number of a million digits": b'{"format":' + b"9" * 1_000_000 + b',"sha256":""}',
    "a number of 4000 digits": b'{"format":' + b"9" * 4000 + b',"sha256":""}',
    "not a number": b'{"format":NaN,"sha256":""}',
    "infinite": b'{"format":1e999,"sha256":""}',
    "doubled keys": b'{"format":1,"format":1,"sha256":""}',
    "other text": '{"format":1,"sha256":"ü"}'.encode("utf-16"),
    "list": b"[]",
    "nothing": b"null",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", [RUN, slot(6)], ids=["definition", "slot"])
def test_json_that_is_made_to_hurt_is_damage(runs: Runs, tmp_path: Path, data: bytes, name: str) -> None:
    out = Path(shutil.copytree(runs.unfinished, tmp_path / "out"))
    (out / name).write_bytes(data)
    assert verified(out) == {name}
    for reader in ("resume", "status"):
        with pytest.raises(CorruptionError, match=name):
            readers(runs.config, out)[reader]()


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_checkpoint_that_is_made_to_hurt_is_damage_to_those_who_read_it(
    tmp_path: Path, runs: Runs, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixer.log.CHECKPOINT_SLOTS", 4)
    out = Path(shutil.copytree(runs.finished, tmp_path / "out"))
    name = commits.checkpoint_name(4)
    (out / name).parent.mkdir()
    (out / name).write_bytes(data)
    assert verified(out) == {name}
    run = building.existing(str(out))[1].run
    with pytest.raises(CorruptionError, match=name):
        CommitLog(open_store(str(out)), run).commits()


def sparse(path: Path, size: int) -> None:
    """Make a file that takes no room on the disk, and `size` bytes of memory if it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


HUGE_BYTES = 10 << 30


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (RUN, {"resume", "status", "head", "gc"}),
        (slot(6), {"resume", "status", "head", "gc"}),
        ("data/shard-00000004.parquet", {"resume", "head", "gc"}),
        ("manifest.json", set()),
        ("README.md", set()),
        ("data/leftover.parquet", set()),
        (commits.checkpoint_name(4), set()),
    ],
)
def test_ten_gigabytes_where_a_small_object_belongs_are_refused_before_they_are_read(
    runs: Runs, tmp_path: Path, name: str, refused: set[str], little_memory: Callable[[], None]
) -> None:
    out = Path(shutil.copytree(runs.unfinished, tmp_path / "out"))
    sparse(out / name, HUGE_BYTES)
    little_memory()
    assert verified(out) == ({name} if name not in {"README.md", "data/leftover.parquet"} else set())
    for reader, call in {**readers(runs.config, out), "gc": lambda: gc(str(out), delete=True)}.items():
        error = refusal(call)
        assert (error is not None) == (reader in refused), f"{reader}: {error}"
        assert error is None or (isinstance(error, CorruptionError) and name in str(error))


def forge(out: Path, shard_bytes: int) -> None:
    """Make the last shard so long, and its commit say so, as one who knows the hashes may."""
    sparse(out / "data/shard-00000004.parquet", shard_bytes)
    content = json.loads((out / slot(6)).read_bytes())
    del content["sha256"]
    content["payload"]["bytes"] = shard_bytes
    (out / slot(6)).write_bytes(commits.sealed(content))


def test_a_commit_of_a_shard_longer_than_any_is_damage(
    runs: Runs, tmp_path: Path, little_memory: Callable[[], None]
) -> None:
    out = Path(shutil.copytree(runs.unfinished, tmp_path / "out"))
    forge(out, HUGE_BYTES)
    little_memory()
    assert slot(6) in verified(out)
    for call in [*readers(runs.config, out).values(), lambda: gc(str(out), delete=True)]:
        error = refusal(call)
        assert isinstance(error, CorruptionError)
        assert f"{slot(6)}: not a commit: expected 0 to 5,368,709,120 bytes, found 10,737,418,240" in str(error)


@pytest.fixture
def little_memory() -> Iterator[Callable[[], None]]:
    """A call after which this process gets less new memory than a large object takes."""
    import resource  # noqa: PLC0415 -- of this fixture alone

    before = resource.getrlimit(resource.RLIMIT_AS)

    def limit() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_record_is_read_whole_up_to_what_one_may_be(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert read_record(store, "absent") is None
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        store.put(str(size), bytes(size))
        assert read_record(store, str(size)) == bytes(size)
    sparse(tmp_path / "large", RECORD_BYTES_MAX + 1)
    with pytest.raises(CorruptionError, match="expected at most 1,073,741,824 bytes, found 1,073,741,825"):
        read_record(store, "large")
