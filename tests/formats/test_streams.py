"""Compressed files: whole members are read, damage is an error that names the file, and names do not lie."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixer.errors import ChangedError, InputError
from mixer.formats.streams import Stream
from mixer.storage.inputs import find_inputs
from tests.formats.making import TOOLS, packed, read, written
from tests.profiles import sized

DATA = bytes(range(256)) * 3000 + b"end"


def content(path: str, offset: int = 0, size: int = 10_000) -> bytes:
    (file,) = find_inputs(path).files
    with Stream(file, offset) as stream:
        assert stream.position == min(offset, len(DATA))
        pieces = []
        while piece := stream.read(size):
            pieces.append(piece)
        return b"".join(pieces)


@pytest.mark.parametrize("ending", ["", *TOOLS])
def test_what_a_tool_has_compressed_is_read_from_any_offset(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, f"a{ending}", DATA)
    for offset in (0, 1, 70_000, len(DATA) - 1, len(DATA)):
        assert content(path, offset) == DATA[offset:]
    assert content(path, size=1 << 22) == DATA


@pytest.mark.parametrize("ending", TOOLS)
def test_members_one_after_the_other_are_one_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(packed(DATA[:1000], ending) + packed(b"", ending) + packed(DATA[1000:], ending))
    assert content(str(path)) == DATA


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zeros_that_pad_the_end_or_part_members_are_nothing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(packed(DATA[:1000], ending) + bytes(512) + packed(DATA[1000:], ending) + bytes(1024))
    assert content(str(path)) == DATA


@pytest.mark.parametrize("ending", TOOLS)
@given(cut=st.floats(0, 1, exclude_max=True))
@settings(max_examples=sized(short=8, long=200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_is_cut_short_anywhere_is_an_error_under_every_policy(
    tmp_path: Path, ending: str, cut: float
) -> None:
    whole = packed(b'{"a":1}\n' * 5000, ending)
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(whole[: int(len(whole) * cut)])
    for policy in ("error", "skip"):
        with pytest.raises(InputError, match=r"a\.jsonl\.\w+: (damaged or cut short|expected \w+ by its name, found)"):
            read(str(path), on_bad_line=policy)


@pytest.mark.parametrize("ending", TOOLS)
@pytest.mark.parametrize("rest", [b"garbage", b"\0garbage", b"\xff" * 600])
def test_what_follows_the_last_member_is_an_error(tmp_path: Path, ending: str, rest: bytes) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(packed(DATA, ending) + rest)
    with pytest.raises(InputError, match="damaged or cut short"):
        content(str(path))


@pytest.mark.parametrize("ending", TOOLS)
def test_a_bit_that_has_turned_is_an_error(tmp_path: Path, ending: str) -> None:
    data = bytearray(packed(DATA, ending))
    data[len(data) // 2] ^= 1
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged or cut short"):
        content(str(path))


@pytest.mark.parametrize("named", ["", *TOOLS])
@pytest.mark.parametrize("holds", ["", *TOOLS])
def test_a_name_that_lies_about_the_compression_is_an_error_that_says_so(
    tmp_path: Path, named: str, holds: str
) -> None:
    path = tmp_path / f"a.jsonl{named}"
    path.write_bytes(packed(b'{"a":1}\n', holds))
    if named == holds:
        assert read(str(path)).rows == [{"a": 1}]
        return
    tools = {"": "no compression", ".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
    found = tools[holds] if holds else "other data"
    with pytest.raises(InputError, match=f"expected {tools[named]} by its name, found {found}; rename it"):
        read(str(path), on_bad_line="skip")


@pytest.mark.parametrize(("data", "what"), [(b"PAR1....", "Parquet"), (b"PK\x03\x04....", "a zip archive")])
def test_other_kinds_of_files_are_called_by_their_names(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(InputError, match=f"expected a file as its format says, found {what}; set `format` to"):
        read(written(tmp_path, "a.jsonl", data))


def test_a_zstd_file_may_begin_with_a_frame_to_skip(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0skip" + packed(b'{"a":1}\n', ".zst"))
    assert read(str(path)).rows == [{"a": 1}]


@pytest.mark.parametrize("log_bytes", [27, 28, 31])
def test_a_zstd_window_that_takes_much_memory_is_not_called_damage(tmp_path: Path, log_bytes: int) -> None:
    # One raw block in a frame that says nothing but its window (RFC 8878, 3.1.1.1.2); `--long=28` writes such ones.
    line = b'{"a":1}\n'
    block = (1 | len(line) << 3).to_bytes(3, "little") + line
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\0" + bytes([log_bytes - 10 << 3]) + block)
    if log_bytes == 27:
        assert read(str(path)).rows == [{"a": 1}]
        return
    with pytest.raises(InputError, match=r"a\.jsonl\.zst: expected zstd with a window of at most 128 MiB.*--long"):
        read(str(path))


def test_what_python_has_compressed_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(DATA, mtime=0))
    (tmp_path / "a.xz").write_bytes(lzma.compress(DATA, check=lzma.CHECK_SHA256))
    assert content(str(tmp_path / "a.gz")) == content(str(tmp_path / "a.xz")) == DATA


def test_a_file_that_is_cut_while_it_is_read_is_a_changed_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(DATA)
    (file,) = find_inputs(str(path)).files
    with Stream(file) as stream:
        stream.read(1000)
        with path.open("rb+") as handle:
            handle.truncate(2000)
        with pytest.raises(ChangedError, match="expected 768003 bytes, found 2000"):
            stream.read(len(DATA))
