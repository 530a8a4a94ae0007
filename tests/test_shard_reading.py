"""A shard that is as long as the right one, and sound, but not what was committed, where not all of it is read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building, shard_reading
from mixer.errors import CorruptionError
from mixer.reading import read
from tests.mixes import mix_config

SHARD = "data/shard-00000001.parquet"
FIRST = 3
"""Its first batch."""

PARTLY: dict[str, dict[str, Any]] = {
    "from its middle on": {"start_batch": FIRST + 1},
    "up to its middle": {"start_batch": FIRST, "stop_batch": FIRST + 1},
    "some columns": {"start_batch": FIRST, "columns": ["n", "_row"]},
    "too long to be held": {"start_batch": FIRST},
}
partly = pytest.mark.parametrize("how", PARTLY)


@pytest.fixture(autouse=True)
def _short(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "too long to be held":
        monkeypatch.setattr(shard_reading, "WHOLE_BYTES_MAX", 1)


def run_of(folder: Path, numbers: range, *, weights: tuple[int, int] = (1, 1)) -> Path:
    """Make a run of these numbers, from each of two datasets; shards of others of its shape are as long as its own."""
    datasets = {}
    for name, weight in zip(("a", "b"), weights, strict=True):
        path = folder / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": numbers}), path)
        datasets[name] = {"path": str(path), "weight": weight}
    building.build(mix_config(folder, datasets=datasets, compression="none"))
    return folder / "out"


def footer_of(shard: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(pq.read_metadata(shard).metadata[b"mixer"])
    return said


def assert_refused(output: Path, how: str, expected: str) -> None:
    with pytest.raises(CorruptionError, match=rf"{re.escape(SHARD)}: .*{expected}.*; `mixer verify` checks"):
        list(read(str(output), **PARTLY[how]))


@partly
def test_a_shard_of_another_run_with_the_same_number_batches_and_states_is_refused(tmp_path: Path, how: str) -> None:
    # A row more makes it another run.
    output, other = run_of(tmp_path / "run", range(1000, 1064)), run_of(tmp_path / "other", range(2000, 2065))
    right, wrong = footer_of(output / SHARD), footer_of(other / SHARD)
    assert {**right, "run": wrong["run"]} == wrong != right
    assert (output / SHARD).stat().st_size == (other / SHARD).stat().st_size
    shutil.copy(other / SHARD, output / SHARD)
    assert_refused(output, how, f"its footer says that it is of another run, {wrong['run']}")


@partly
def test_a_shard_after_which_the_state_is_another_one_is_refused(tmp_path: Path, how: str) -> None:
    numbers = range(64)
    output = run_of(tmp_path / "run", numbers, weights=(3, 1))
    other = run_of(tmp_path / "other", numbers, weights=(1, 3))
    right, wrong = footer_of(output / SHARD), footer_of(other / SHARD)
    assert right["state_after"] != wrong["state_after"]
    # As if both were of one run.
    data = (other / SHARD).read_bytes().replace(wrong["run"].encode(), right["run"].encode())
    assert len(data) == (output / SHARD).stat().st_size
    (output / SHARD).write_bytes(data)
    assert footer_of(output / SHARD) == {**wrong, "run": right["run"]}
    assert_refused(output, how, "the commit says state_after .*, its footer says")


@partly
@pytest.mark.parametrize("key", ["shard", "first_batch", "batches", "batch_size", "state_after", "run"])
def test_a_footer_in_which_one_digit_is_another_one_is_refused(out: Path, key: str, how: str) -> None:
    shard = out / SHARD
    before = footer_of(shard)

    def other(found: re.Match[bytes]) -> bytes:
        return found[1] + (b"1" if found[2] != b"1" else b"2")

    changed, times = re.subn(rb'("%s":[^0-9]*)([0-9])' % key.encode(), other, shard.read_bytes())
    assert times == 1
    shard.write_bytes(changed)
    after = footer_of(shard)
    assert {name for name in after if after[name] != before[name]} == {key}
    expected = "of another run" if key == "run" else f"the commit says {key} .*, its footer says"
    assert_refused(out, how, expected)
