from __future__ import annotations

import signal
from types import FrameType

from mixer.cli.stopping import SIGNALS, StopRequest


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


def test_without_a_signal_nothing_stops_and_all_is_as_before() -> None:
    before = handlers()
    with StopRequest() as stop:
        assert handlers() != before
        assert not stop()
    assert handlers() == before


def test_a_handler_that_another_has_put_in_place_is_replaced_again() -> None:
    heard = []

    def torn(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    with StopRequest() as stop:
        signal.signal(signal.SIGTERM, torn)
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        assert stop.exit_code == 143
    assert heard == []


def test_the_exit_code_is_that_of_the_signal() -> None:
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert stop.exit_code == 130
