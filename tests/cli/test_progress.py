from __future__ import annotations

import io
import sys

import pytest

from mixer.cli import console
from mixer.cli.pace import WINDOW_SHARDS, Pace, Step
from mixer.cli.progress import Bar, Lines, Silence, display


def step(done: int, rows: int = 100, nbytes: int = 1000) -> Step:
    return Step(done, rows, nbytes, f"data/shard-{done - 1:08d}.parquet")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_time_left_is_that_of_the_rows_left_at_the_last_rate() -> None:
    pace = Pace(0.0, shards=100)
    for number in range(1, 51):
        pace.add(step(number), now_s=float(number))
    assert pace.rates() == (100.0, 1000.0)
    assert pace.left_s() == 50.0
    for number in range(51, 51 + WINDOW_SHARDS):
        pace.add(step(number), now_s=50 + 10.0 * (number - 50))
    assert pace.rates() == (10.0, 100.0)
    assert pace.left_s() == 10.0 * (100 - 50 - WINDOW_SHARDS)


def test_a_resumed_run_is_not_credited_with_the_shards_of_others() -> None:
    pace = Pace(0.0, shards=1000)
    pace.add(step(901), now_s=2.0)
    assert pace.rates() == (50.0, 500.0)
    assert pace.describe().startswith("shard 901 of 1,000, 50 rows/s")


def test_a_short_last_shard_does_not_spoil_the_end() -> None:
    pace = Pace(0.0, shards=2)
    pace.add(step(1), now_s=1.0)
    pace.add(step(2, rows=1), now_s=2.0)
    assert pace.left_s() == 0.0
    assert "left" not in pace.describe()


def test_two_shards_at_the_very_same_time_divide_by_nothing() -> None:
    pace = Pace(5.0, shards=2)
    pace.add(step(1), now_s=5.0)
    assert pace.left_s() is None


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(seconds=0.01) as shown:
        shown.shards(9)
        while "no shard yet" not in (early := capsys.readouterr().err):
            pass
        shown.step(step(1))
        while "shard 1 of 9" not in (middle := capsys.readouterr().err):
            pass
        shown.step(step(2))
    end = capsys.readouterr()
    assert early.splitlines()[0] == "no shard yet"
    assert "last data/shard-00000000.parquet" in middle
    assert end.err.splitlines()[-1].startswith("shard 2 of 9, ")
    assert end.out == ""


def test_a_run_with_nothing_to_do_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines():
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, Bar),
        (Terminal(), {"TERM": "dumb"}, Lines),
        (Terminal(), {"TERM": "xterm", "CI": "true"}, Lines),
        (io.StringIO(), {"TERM": "xterm"}, Lines),
    ],
)
def test_a_bar_is_drawn_only_where_it_can_be_repainted(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, environment: dict[str, str], expected: type
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delenv("CI", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert isinstance(display(quiet=False), expected)
    assert isinstance(display(quiet=True), Silence)


def test_the_bar_tells_shard_rates_and_last_commit_and_ends_with_the_cursor_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Bar("starting") as bar:
        bar.shards(2)
        bar.step(step(1))
        console.say("a warning")
        bar.step(step(2))
    said = terminal.getvalue()
    assert said.index("starting") < said.index("a warning") < said.index("shard 2 of 2")
    assert "rows/s" in said
    assert "MB/s" in said
    assert "last data/shard-00000001.parquet, finishing" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")
    assert "\x1b[3" not in said  # no colours
