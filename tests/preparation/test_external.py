from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.errors import ConfigError, InputError, SchemaError, StoreError
from mixer.preparation.cutting import row_bytes
from mixer.preparation.external import Keyed, SortLimits, opened_sorter
from tests.preparation.rows import bits, drawn

UTC = "UTC"
TYPES: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, UTC)),
        *(pa.duration(unit) for unit in ("s", "ns")),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(38, 10), pa.decimal256(76, 38)),
        *(pa.binary(1), pa.binary(16), pa.binary(), pa.large_binary(), pa.string(), pa.large_string()),
        pa.list_(pa.uint8()),
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        pa.large_list(pa.float16()),
        pa.list_(pa.large_list(pa.list_(pa.timestamp("ns", UTC)))),
        pa.struct({"a": pa.int8(), "A": pa.large_string(), "": pa.struct({"x y": pa.binary(3), "f0": pa.float32()})}),
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.bool_())}),
        pa.list_(pa.struct({"role": pa.string(), "parts": pa.list_(pa.struct({"n": pa.decimal256(50, 2)}))})),
    )
}


def pieces_of(table: pa.Table, keys: np.ndarray[Any, Any], rows: int) -> Iterator[Keyed]:
    for start in range(0, table.num_rows, rows):
        part = slice(start, start + rows)
        yield Keyed(keys[part], np.arange(start, min(start + rows, len(keys))), table.slice(start, rows))


def sorted_rows(schema: pa.Schema, rows: Iterable[Keyed], limits: SortLimits) -> Generator[Keyed, None, None]:
    with opened_sorter("web", schema, limits) as sorter, closing(sorter.sorted(rows)) as found:
        yield from found


def sorted_table(table: pa.Table, keys: np.ndarray[Any, Any], limits: SortLimits, rows: int = 700) -> pa.Table:
    found = list(sorted_rows(table.schema, pieces_of(table, keys, rows), limits))
    assert np.concatenate([piece.keys for piece in found]).tolist() == sorted(keys.tolist())
    return pa.concat_tables([piece.rows for piece in found])


def limits(folder: Path, **changes: int) -> SortLimits:
    return SortLimits(**{"memory_bytes": 256 << 20, **changes}, scratch=folder)


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("wide", [False, True], ids=["through the database", "set aside"])
def test_every_type_comes_out_bit_for_bit(tmp_path: Path, kind: pa.DataType, wide: bool) -> None:
    chance = np.random.default_rng(7)
    rows = 900
    column = drawn(chance, kind, rows)
    column.validate(full=True)
    table = pa.table({"v": column, "V": pa.array(range(rows))})
    keys = chance.integers(0, 2**64, rows, dtype=np.uint64)
    # Of rows that differ in size about half are set aside, else all.
    narrow = int(np.median(row_bytes(table))) - 1 if wide else 10**6
    found = sorted_table(table, keys, limits(tmp_path, narrow_bytes=narrow))
    order = np.argsort(keys, kind="stable")
    assert found.schema == table.schema
    found.validate(full=True)
    expected = bits(table["v"])
    assert bits(found["v"]) == [expected[row] for row in order]
    assert found["V"].to_pylist() == order.tolist()
    assert not list(tmp_path.iterdir())


SPECIAL = [0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFE00, 0xFFFF, 0x7FFF, 0x0001]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_zeros_and_nans_keep_their_signs_and_payloads(tmp_path: Path, size: int) -> None:
    words = np.array(SPECIAL, dtype="u8") << np.array(8 * size - 16, dtype="u8") | np.array(1, dtype="u8")
    kind = {2: pa.float16(), 4: pa.float32(), 8: pa.float64()}[size]
    column = pa.array(words.astype(f"u{size}")).view(kind)
    table = pa.table({"x": column, "xs": pa.array([[None]] * len(column), pa.list_(kind))})
    keys = np.arange(len(column), dtype=np.uint64)[::-1].copy()
    found = sorted_table(table, keys, limits(tmp_path))
    assert bits(found["x"]) == bits(column)[::-1]


def test_texts_that_are_not_valid_come_out_as_they_were(tmp_path: Path) -> None:
    column = pa.array([b"\xff\xfe", b"", None, b"\xed\xa0\x80"], pa.binary()).view(pa.string())
    found = sorted_table(pa.table({"t": column}), np.array([3, 2, 1, 0], dtype=np.uint64), limits(tmp_path))
    assert bits(found["t"]) == bits(column)[::-1]


@settings(max_examples=20)
@given(st.data())
def test_rows_come_by_key_and_then_by_place(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 60))
    keys = np.array(
        data.draw(st.lists(st.integers(0, 5) | st.just(2**64 - 1), min_size=rows, max_size=rows)), np.uint64
    )
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    each = data.draw(st.integers(1, 70))
    found = sorted_rows(table.schema, pieces_of(table, keys, each), limits(tmp_path_factory.getbasetemp()))
    numbers = [n for piece in found for n in piece.rows["n"].to_pylist()]
    assert numbers == np.argsort(keys, kind="stable").tolist()


def test_rows_of_one_key_come_by_place_in_whatever_order_they_are_given(tmp_path: Path) -> None:
    rows = 5000
    places = np.arange(rows)[::-1].copy()
    table = pa.table({"n": places})
    given_ = Keyed(places.astype(np.uint64) // 1000, places, table)
    for narrow in (0, 10**6):
        found = list(sorted_rows(table.schema, [given_], limits(tmp_path, narrow_bytes=narrow)))
        assert [n for piece in found for n in piece.rows["n"].to_pylist()] == list(range(rows))


def test_one_sorter_sorts_again_and_again(tmp_path: Path) -> None:
    table = pa.table({"t": [b"x" * 50, b"y", b"z" * 90]})
    with opened_sorter("web", table.schema, limits(tmp_path, narrow_bytes=40)) as sorter:
        for order in ([2, 0, 1], [0, 1, 2], [1, 2, 0]):
            keys = np.argsort(order).astype(np.uint64)
            found = [value for piece in sorter.sorted(pieces_of(table, keys, 2)) for value in bits(piece.rows["t"])]
            assert found == [bits(table["t"])[row] for row in order]


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.map_(pa.string(), pa.int8()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8(), 3),
        pa.struct([]),
        pa.struct([pa.field("a", pa.int64(), nullable=False)]),
        pa.string_view(),
        pa.month_day_nano_interval(),
        pa.list_(pa.struct({"a": pa.uuid()})),
    ],
    ids=str,
)
def test_what_cannot_be_carried_is_refused_by_name(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema({"fine": pa.int8(), "odd": kind})
    with pytest.raises(SchemaError, match="dataset 'web': a sort cannot carry columns of these types: 'odd', "):
        next(sorted_rows(schema, [], limits(tmp_path)))


def test_what_goes_wrong_with_the_rows_is_raised_as_it_is(tmp_path: Path) -> None:
    def broken() -> Iterator[Keyed]:
        yield Keyed(np.zeros(1, np.uint64), np.zeros(1, np.int64), pa.table({"n": [1]}))
        raise InputError("the file is gone")

    with pytest.raises(InputError, match=r"^the file is gone$"):
        list(sorted_rows(pa.schema({"n": pa.int64()}), broken(), limits(tmp_path)))
    assert not list(tmp_path.iterdir())


def test_a_sort_that_is_left_early_leaves_nothing(tmp_path: Path) -> None:
    table = pa.table({"n": range(50_000)})
    found = sorted_rows(table.schema, pieces_of(table, np.arange(50_000, dtype=np.uint64), 999), limits(tmp_path))
    next(found)
    assert len(list(tmp_path.iterdir())) == 1
    found.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"dataset 'web': its rows cannot be sorted in .*missing.*TMPDIR"):
        list(sorted_rows(pa.schema({"n": pa.int64()}), [], limits(tmp_path / "missing" / "a" / "b")))
    assert not list(tmp_path.iterdir())


def test_without_duckdb_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ConfigError, match=r"DuckDB, which sorts its rows, is not installed.*mixer\[sort\]"):
        next(sorted_rows(pa.schema({"n": pa.int64()}), [], limits(tmp_path)))


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from mixer.errors import StoreError
from mixer.preparation.external import Keyed, SortLimits, opened_sorter

# The system lets no file grow beyond this: what a full disk is to those who write.
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
folder, narrow = Path(sys.argv[1]), int(sys.argv[2])
limits = SortLimits(memory_bytes=24 << 20, scratch=folder, narrow_bytes=narrow)
rows = 60_000
keys = np.random.default_rng(1).integers(0, 2**64, rows, dtype=np.uint64)
table = pa.table({"t": pa.array([b"%08d" % row * 100 for row in range(rows)])})
pieces = [
    Keyed(keys[start : start + 1000], np.arange(start, start + 1000), table.slice(start, 1000))
    for start in range(0, rows, 1000)
]
try:
    with opened_sorter("web", table.schema, limits) as sorter:
        for piece in sorter.sorted(pieces):
            pass
except StoreError as error:
    print(error)
    print(len(list(folder.iterdir())))
"""


@pytest.mark.parametrize("narrow", [1, 10_000], ids=["set aside", "through the database"])
def test_a_full_disk_is_said_clearly_and_nothing_is_left(tmp_path: Path, narrow: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(narrow)], capture_output=True, text=True, check=True
    )
    said, left = done.stdout.rsplit("\n", 2)[:2]
    assert said.startswith(f"dataset 'web': its rows cannot be sorted in {tmp_path}: ")
    assert "File too large" in said
    assert "make room, or name another place of prepared copies with `prepared` (if that is in a store: " in said
    assert "with the environment variable TMPDIR), then run again" in said
    assert left == "0"
