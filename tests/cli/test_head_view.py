from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mixer import building
from mixer.cli.head_view import rows_lines, rows_value
from mixer.heading import Rows
from tests.cli.conftest import Mixer
from tests.mixes import mix_config

SECOND = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def rows(**columns: Any) -> Rows:
    return Rows("out", "abc", 4, 8, pa.table(columns))


def test_rows_say_where_they_come_from(mixer: Mixer, tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    answer = mixer("head", str(tmp_path / "out"), "-n", "5", "--batch", "3")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split() for line in answer.out.splitlines()] == [
        ["row", "_batch", "_dataset", "_row", "text", "n"],
        ["12", "3", "web", "6", "web", "6", "6"],
        ["13", "3", "web", "7", "web", "7", "7"],
        ["14", "3", "code", "4", "code", "4", "4"],
        ["15", "3", "books", "2", "books", "2", "2"],
        ["16", "4", "web", "8", "web", "8", "8"],
    ]


def test_with_json_rows_are_whole(mixer: Mixer, tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    value = mixer("head", str(tmp_path / "out"), "-n", "1", "--json").json
    assert value["rows"] == [{"text": "web 0", "n": 0, "_dataset": "web", "_row": 0, "_batch": 0}]
    assert (value["first_row"], value["batch_size"]) == (0, 4)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\xff", {"base64": "AP8="}),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (0.5, 0.5),
        (SECOND, "2026-01-02 03:04:05+00:00"),
        (Decimal("1.10"), "1.10"),
        ([{"a": None, "b": b"x"}], [{"a": None, "b": {"base64": "eA=="}}]),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_every_kind_of_value_is_json(value: Any, expected: Any) -> None:
    found = rows_value(rows(x=[value]))
    assert json.loads(json.dumps(found, allow_nan=False))["rows"] == [{"x": expected}]


def test_long_text_is_shortened_and_never_steers_the_terminal() -> None:
    text = "It was a bright cold day in April.\n" * 100 + "\x1b[2J"
    for width in (None, 40, 80, 200):
        lines = list(rows_lines(rows(_dataset=["w\x1b[1m"], text=[text]), width))
        assert max(map(len, lines)) <= (width or 120)
        assert "\x1b" not in "".join(lines)
        assert "(3,504 chars)" in "".join(lines)


def test_many_columns_become_blocks_in_a_narrow_window() -> None:
    columns = {f"column {number}": ["a long value " * 10] for number in range(12)}
    lines = list(rows_lines(rows(**columns), 80))
    assert max(map(len, lines)) <= 80
    assert [line.split("  ")[0].strip() for line in lines] == ["row", *columns]


def test_a_run_without_rows_says_so() -> None:
    assert list(rows_lines(rows(text=pa.array([], pa.string())), 80)) == ["no rows are committed yet"]
