"""A part of a prepared copy that a bad disk has changed is named, with what makes it again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mixer
from mixer.checkup.inputs import input_checks
from mixer.errors import CorruptionError
from tests.preparing import config_of, small_parts


@pytest.fixture(autouse=True)
def _several_parts() -> Iterator[None]:
    with small_parts():
        yield


@pytest.mark.parametrize("where", ["rows", "footer", "length"])
def test_a_damaged_part_is_named_with_what_makes_it_again(tmp_path: Path, where: str) -> None:
    config = config_of(tmp_path)
    mixer.prepare(config)
    parts = sorted((tmp_path / "out/.mixer/prepared").rglob("*.parquet"))
    part = parts[len(parts) // 2 if where == "length" else 0]
    whole = part.read_bytes()
    column = pq.read_metadata(part).row_group(0).column(0)
    damaged = bytearray(whole)
    if where == "rows":
        damaged[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    elif where == "footer":
        damaged[-20] ^= 1
    part.write_bytes(bytes(damaged))
    asked = itertools.count()

    def shorten() -> bool:
        # After the run was planned: before, it would be made again.
        if where == "length" and next(asked) == 0:
            part.write_bytes(whole[:-1])
        return False

    with pytest.raises(CorruptionError, match=f"file {re.escape(str(part))}.*delete this file: `mixer prepare`"):
        mixer.build(config, should_stop=shorten)
    part.unlink()
    mixer.prepare(config)
    assert part.read_bytes() == whole
    assert mixer.build(config).finished


def test_the_doctor_names_each_part_whose_bytes_are_others_and_what_makes_it_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.prepare(config)
    parts = sorted((tmp_path / "out/.mixer/prepared").rglob("*.parquet"))
    assert [check.state for check in input_checks(config)] == ["ok", "ok"]
    whole = [part.read_bytes() for part in parts]
    for part, data in zip(parts[1:3], whole[1:3], strict=True):
        part.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    found = [check for check in input_checks(config) if check.state == "failed"]
    assert len(found) == 1
    assert "2 damaged parts" in found[0].found
    assert found[0].found.endswith(f"{parts[1]}, {parts[2]}")
    assert "delete these files; `mixer prepare`" in found[0].advice
    parts[1].unlink()
    parts[2].unlink()
    mixer.prepare(config)
    assert [part.read_bytes() for part in parts] == whole
    assert [check.state for check in input_checks(config)] == ["ok", "ok"]
