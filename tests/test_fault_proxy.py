from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.storage import open_store
from tests.fault_proxy import Fault, FaultProxy, Request, scripted, seeded

ASKED = [
    (method, f"/bucket/{name}") for method in ("GET", "PUT") for name in ("run.json", "log/0", "0123456789abcdef" * 2)
] * 20


def requests(asked: list[tuple[str, str]]) -> list[Request]:
    return [Request(number, method, target, {}, 0) for number, (method, target) in enumerate(asked)]


@given(st.permutations(ASKED), st.integers(0, 5))
def test_the_draw_depends_on_what_is_asked_and_not_on_when(shuffled: list[tuple[str, str]], seed: int) -> None:
    def drawn(asked: list[tuple[str, str]]) -> Counter[tuple[str, str, Fault | None]]:
        choose = seeded(seed, 0.5)
        return Counter((request.method, request.target, choose(request)) for request in requests(asked))

    assert drawn(shuffled) == drawn(ASKED)


def test_names_that_are_drawn_anew_each_time_are_hurt_alike() -> None:
    first, second = ([("PUT", f"/bucket/{name}")] * 40 for name in ("0123456789abcdef" * 2, "fedcba9876543210" * 2))
    one, other = ([*map(seeded(7, 0.5), requests(asked))] for asked in (first, second))
    assert one == other
    # Not the same one each time: what is asked again would never come through.
    assert len(set(one)) > len(Fault) // 2


def test_seeds_and_rates_differ() -> None:
    asked = requests(ASKED)
    drawn = {seed: [*map(seeded(seed, 0.25), asked)] for seed in range(4)}
    assert len({str(faults) for faults in drawn.values()}) == len(drawn)
    assert [*map(seeded(0, 0.0), asked)] == [None] * len(asked)
    assert None not in map(seeded(0, 1.0), asked)
    assert set(map(seeded(0, 1.0, [Fault.DELAYED]), asked)) == {Fault.DELAYED}


@pytest.mark.s3
def test_a_request_that_is_held_back_lets_a_later_one_through(
    s3_url: str, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_proxy, "hold_s", 50.0)
    store = open_store(s3_url)
    store.put("first", b"0")
    fault_proxy.reset(scripted([Fault.REORDERED]))
    older = threading.Thread(target=store.put, args=("a", b"1"))
    older.start()
    while not fault_proxy.requests:
        time.sleep(0.001)
    store.put("b", b"2")
    older.join()
    assert [request.target.rpartition("/")[2] for request in fault_proxy.requests] == ["a", "b"]
    assert [request.target.rpartition("/")[2] for request, _ in fault_proxy.answered] == ["b", "a"]
    assert fault_proxy.overtaken == 1
    assert [(info.name, info.bytes) for info in store.list("")] == [("a", 1), ("b", 1), ("first", 1)]


@pytest.mark.s3
def test_a_creation_whose_reply_is_lost_is_counted(s3_url: str, fault_proxy: FaultProxy) -> None:
    store = open_store(s3_url)
    fault_proxy.reset(scripted([Fault.RESET_AFTER], methods=["PUT"]))
    assert store.create("a", b"1")
    assert [request.target.rpartition("/")[2] for request in fault_proxy.lost_creates()] == ["a"]
    fault_proxy.reset(scripted([Fault.RESET_BEFORE], methods=["PUT"]))
    assert store.create("b", b"1")
    assert fault_proxy.lost_creates() == []
