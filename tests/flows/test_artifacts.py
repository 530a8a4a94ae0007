"""What the server is shown of a run is small, right, and holds no secret."""

from __future__ import annotations

import json
import re
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from flows.artifacts import Ending, artifact_key, percent, report_text, state_table, state_text
from mixer.errors import StoreUnavailableError
from tests.flows.views import commit_of, view_of

LIMIT_BYTES = 8_000
names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=200)
weights = st.dictionaries(names, st.integers(1, 10) | st.integers(1, 2**4096 - 1), min_size=1, max_size=40)


def size_bytes(text: str) -> int:
    return len(text.encode())


@given(st.text(max_size=300), st.text(max_size=10))
def test_any_output_gives_a_key_that_prefect_takes(output: str, fingerprint: str) -> None:
    key = artifact_key(output, fingerprint)
    assert re.fullmatch(r"mixer(-[a-z0-9]+)+", key)
    assert len(key) < 80


def test_outputs_that_read_alike_have_different_keys() -> None:
    outputs = ["s3://a/b", "s3://a-b", "/a/b", "s3://A/B"]
    assert len({artifact_key(output, "f") for output in outputs} | {artifact_key("/a/b", "g")}) == 5


@given(st.integers(0, 10**40), st.integers(1, 10**40))
def test_shares_are_right_to_the_last_decimal_shown(part: int, whole: int) -> None:
    shown = Fraction(percent(part, whole).removesuffix("%"))
    assert abs(shown - Fraction(100 * part, whole)) <= Fraction(1, 20_000)


@given(weights, st.integers(0, 3))
def test_a_state_of_any_mix_is_small_and_says_what_is_left_out(weights: dict[str, int], shard: int) -> None:
    view = view_of(weights)
    commit = commit_of(view, shard)
    table = state_table(view, commit)
    text = state_text(view, commit, unseen_shards=range(shard))
    assert size_bytes(json.dumps(table)) + size_bytes(json.dumps(text)) < LIMIT_BYTES
    shown = [row for row in table[1:] if "more in" not in str(row["dataset"])]
    hidden = [row for row in table[1:] if "more in" in str(row["dataset"])]
    assert len(shown) == len(weights) or hidden[0]["dataset"] == f"({len(weights) - len(shown)} more in .mixer/log/)"
    assert all(row.keys() == table[0].keys() for row in table)


def test_a_state_shows_offsets_carries_and_shares() -> None:
    view = view_of({"web": 3, "code": 2, "books": 1}, batches=12, batches_per_shard=1)
    table = state_table(view, commit_of(view, 1))
    assert [list(row.values()) for row in table] == [
        [1, "(all)", 4, 4000, 8, 0, "", ""],
        [1, "web", 2, "", 4, 0, "50.0000%", "50.0000%"],
        [1, "code", 2, "", 3, -2, "33.3333%", "37.5000%"],
        [1, "books", 0, "", 1, 2, "16.6667%", "12.5000%"],
    ]


def test_a_thousand_datasets_are_shown_as_far_as_there_is_room() -> None:
    view = view_of({f"dataset-{number}": number + 1 for number in range(1000)}, batch_size=1000)
    table = state_table(view, commit_of(view, 0))
    assert 20 < len(table) < 100
    assert table[-1]["dataset"] == f"({1000 - (len(table) - 2)} more in .mixer/log/)"


@given(weights, st.integers(-1, 3), st.text(max_size=10_000), st.booleans())
def test_a_report_on_any_mix_is_small(weights: dict[str, int], last: int, message: str, failed: bool) -> None:
    view = view_of(weights)
    error = StoreUnavailableError(message) if failed else None
    commit = commit_of(view, last) if last >= 0 else None
    report = report_text(view, Ending(commit, "0" * 64, finished=last == 3, seconds=1.0, error=error))
    assert size_bytes(report) < LIMIT_BYTES


def test_a_report_shows_an_error_of_mixer_and_of_others_only_the_kind() -> None:
    view = view_of({"a": 1})
    ours = Ending(commit_of(view, 1), "0" * 64, finished=False, seconds=1.0, error=StoreUnavailableError("slow down"))
    theirs = Ending(None, "0" * 64, finished=False, seconds=1.0, error=ValueError("password=hunter2"))
    assert "StoreUnavailableError: slow down" in report_text(view, ours)
    assert "- shards: 2 of 4" in report_text(view, ours)
    assert "ValueError" in report_text(view, theirs)
    assert "hunter2" not in report_text(view, theirs)
