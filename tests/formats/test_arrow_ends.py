"""Where Arrow IPC ends: rows that stand behind an end mark are an error, and are never passed over."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from mixer.errors import InputError
from mixer.formats.arrow_footer import FooterError, batch_offsets
from mixer.formats.cutting import read_cursor
from tests.formats.making import arrow, packed, read, rows_of, stage_of, written

TABLE = pa.table({"n": pa.array(range(150), pa.int32()), "t": [f"t{number}" for number in range(150)]})
DICTIONARY = TABLE.set_column(1, "t", TABLE["t"].dictionary_encode())
STREAM = arrow(TABLE, is_stream=True, batch_rows=50)
FILE = arrow(TABLE, is_stream=False, batch_rows=50)
MARK = b"\xff\xff\xff\xff\0\0\0\0"
endings = pytest.mark.parametrize("ending", ["", ".gz", ".zst"])


def footer_bytes(data: bytes) -> int:
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    return int(length)


def mark_at(data: bytes) -> int:
    """Return where what follows the end mark of a file begins."""
    at = len(data) - 10 - footer_bytes(data)
    assert data[at - len(MARK) : at] == MARK
    return at


@endings
@pytest.mark.parametrize("rest", [STREAM, FILE, b"\0", b"junk" * 99], ids=["stream", "file", "a zero", "junk"])
def test_what_follows_a_stream_is_an_error_that_says_where(tmp_path: Path, ending: str, rest: bytes) -> None:
    path = written(tmp_path, f"a.arrows{ending}", STREAM + rest)
    with pytest.raises(InputError, match=rf"a\.arrows.*, byte {len(STREAM)}: expected nothing after .*split the file"):
        read(path, on_bad_line="skip")


def test_streams_that_were_compressed_apart_are_no_one_stream(tmp_path: Path) -> None:
    (tmp_path / "a.arrows.gz").write_bytes(2 * packed(STREAM, ".gz"))
    with pytest.raises(InputError, match=f"byte {len(STREAM)}: expected nothing after"):
        read(str(tmp_path / "a.arrows.gz"))


@endings
@pytest.mark.parametrize("rest", [FILE, b"junk" * 99 + b"ARROW1"], ids=["file", "junk"])
def test_what_follows_a_file_is_an_error_that_says_where(tmp_path: Path, ending: str, rest: bytes) -> None:
    path = written(tmp_path, f"a.arrow{ending}", FILE + rest)
    with pytest.raises(InputError, match=rf"a\.arrow.*, byte {mark_at(FILE)}: expected the footer .*split"):
        read(path, on_bad_line="skip")


@endings
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_end_mark_in_the_middle_of_a_file_is_an_error(tmp_path: Path, ending: str, number: int) -> None:
    at = batch_offsets(FILE[mark_at(FILE) :])[number]
    data = FILE[: at + 4] + bytes(4) + FILE[at + 8 :]
    with pytest.raises(InputError, match=rf"a\.arrow.*, byte {at + 8}: expected the footer of an Arrow IPC file"):
        read(written(tmp_path, f"a.arrow{ending}", data))


@pytest.mark.parametrize("batches", [0, 1, 2, 4])
def test_a_footer_that_lists_other_batches_is_an_error(tmp_path: Path, batches: int) -> None:
    other = arrow(pa.concat_tables([TABLE, TABLE]).slice(0, 50 * batches), is_stream=False, batch_rows=50)
    data = FILE[: mark_at(FILE)] + other[mark_at(other) :]
    with pytest.raises(InputError, match=f"found 3 record batches before it .* a footer that lists {batches} there"):
        read(written(tmp_path, "a.arrow", data))


@endings
@pytest.mark.parametrize("table", [TABLE, DICTIONARY], ids=["plain", "dictionary"])
@pytest.mark.parametrize("batch_rows", [7, 50, 150])
def test_the_end_is_looked_at_after_every_cursor(tmp_path: Path, ending: str, table: pa.Table, batch_rows: int) -> None:
    whole = arrow(table, is_stream=False, batch_rows=batch_rows)
    path = written(tmp_path, f"a.arrow{ending}", whole)
    stage = stage_of(path, part_bytes=400, row_group_bytes=200)
    schema = stage.schema()
    parts = rows_of(stage).parts
    assert len(parts) > 3
    cursors = [(part.cursor, read_cursor(part.cursor)[0]) for part in parts]
    for cursor, numbers in cursors:
        rest = list(stage.parts(schema, cursor))
        assert sum(group.num_rows for later in rest for group in later.row_groups) == 150 - numbers["rows"]
    # One batch less in the footer is noticed, wherever one goes on.
    written(tmp_path, f"a.arrow{ending}", whole[: mark_at(whole)] + fewer(whole))
    damaged = stage_of(path, part_bytes=400, row_group_bytes=200)
    last = batch_offsets(whole[mark_at(whole) :])[-1]
    for cursor, numbers in cursors[:-1]:
        if numbers["offset"] <= last:
            with pytest.raises(InputError, match="a footer that lists"):
                list(damaged.parts(schema, cursor))


def fewer(data: bytes) -> bytes:
    """Return what follows the end mark of a file, with the last batch gone from the footer."""
    tail = data[mark_at(data) :]
    count = len(batch_offsets(tail))
    at = tail.index(struct.pack("<q", batch_offsets(tail)[0])) - 4
    assert struct.unpack_from("<I", tail, at) == (count,)
    return tail[:at] + struct.pack("<I", count - 1) + tail[at + 4 :]


def test_zeros_between_the_end_mark_and_the_footer_are_nothing(tmp_path: Path) -> None:
    at = mark_at(FILE)
    found = read(written(tmp_path, "a.arrow", FILE[:at] + bytes(8) + FILE[at:]))
    assert found.rows == TABLE.to_pylist()


@pytest.mark.parametrize("between", [b"\0\0\0\0rows", bytes(64)], ids=["text", "many zeros"])
def test_anything_else_between_them_is_an_error(tmp_path: Path, between: bytes) -> None:
    at = mark_at(FILE)
    with pytest.raises(InputError, match=rf"byte {at}: expected the footer .*, found something else: \d+ bytes are"):
        read(written(tmp_path, "a.arrow", FILE[:at] + between + FILE[at:]))


def test_files_and_streams_without_a_batch_end_well(tmp_path: Path) -> None:
    for is_stream in (False, True):
        assert read(written(tmp_path, "a.arrow", arrow(TABLE.schema.empty_table(), is_stream=is_stream))).rows == []


@pytest.mark.parametrize("tail", [b"", b"ARROW1", b"\0\0\0\0ARROW1", b"\xff\xff\xff\xffARROW1", bytes(40) + b"ARROW1"])
def test_what_is_no_footer_is_told_so(tail: bytes) -> None:
    with pytest.raises(FooterError):
        batch_offsets(tail)


@pytest.mark.parametrize("place", range(0, 400, 3))
def test_a_footer_whose_bytes_have_changed_is_read_or_refused(place: int) -> None:
    tail = bytearray(FILE[mark_at(FILE) :])
    tail[place % len(tail)] ^= 0xFF
    try:
        assert all(isinstance(offset, int) for offset in batch_offsets(bytes(tail)))
    except FooterError:
        return
