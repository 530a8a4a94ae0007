"""Runs on S3 as trainers read them, through a network that is not kind."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest

from mixer import building
from mixer.errors import CorruptionError
from mixer.reading import read
from mixer.storage.retry import RetryPolicy
from tests.e2e.runs import impatient
from tests.fault_proxy import Fault, FaultProxy, Request
from tests.mixes import mix_config

pytestmark = pytest.mark.s3

HASTY = RetryPolicy(attempts=4, first_wait_s=0.002, max_wait_s=0.02)
FAULTS = (Fault.STATUS_503, Fault.RESET_BEFORE, Fault.REPLY_CUT, Fault.REPLY_FLIPPED, Fault.STATUS_500_AFTER)


class EachOnce:
    """Hurts every read of a shard the first time that it is asked for, in one way after the other."""

    def __init__(self, *, first: int) -> None:
        self.asked: Counter[str] = Counter()
        self._faults = cycle(FAULTS[first:] + FAULTS[:first])

    def __call__(self, request: Request) -> Fault | None:
        if request.method != "GET" or "/data/" not in request.target:
            return None
        self.asked[request.target] += 1
        return next(self._faults) if self.asked[request.target] % 2 else None


@pytest.mark.parametrize("first", range(len(FAULTS)))
@pytest.mark.parametrize("start", [0, 1], ids=["whole", "row groups"])
def test_a_shard_is_read_right_over_a_network_that_fails(
    tmp_path: Path, s3_url: str, fault_proxy: FaultProxy, start: int, first: int
) -> None:
    config = mix_config(tmp_path, output=s3_url, batches_per_row_group=1)
    building.build(config)
    expected = [table.to_pylist() for table in read(s3_url, start_batch=start)]
    assert len(expected) == 12 - start
    faults = EachOnce(first=first)
    with impatient(HASTY, 5.0):
        fault_proxy.reset(faults)
        assert [table.to_pylist() for table in read(s3_url, start_batch=start)] == expected
    assert len(fault_proxy.faults) >= 4


def test_a_shard_that_is_damaged_on_s3_is_named(tmp_path: Path, s3_url: str) -> None:
    config = mix_config(tmp_path, output=s3_url)
    building.build(config)
    store, _ = building.started(s3_url)
    name = "data/shard-00000001.parquet"
    data = store.get(name) or b""
    store.put(name, data[:100] + b"\xff" + data[101:])
    for start in (3, 4):
        batches = read(s3_url, start_batch=start)
        with pytest.raises(CorruptionError, match=rf"{s3_url}/{name}: .*restore it from a copy"):
            list(batches)
    assert len(list(read(s3_url, start_batch=6))) == 6
