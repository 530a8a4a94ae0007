"""Parquet files of strangers: nothing in them is run, and no size in them takes memory before it is seen to be true."""

from __future__ import annotations

import pickle
import resource
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.config import MixConfig, config_from
from mixer.errors import CorruptionError, InputError, MixerError
from mixer.heading import head
from mixer.sources import footers
from mixer.verifying import verify
from tests.e2e.runs import Child


def mix_of(path: Path, output: Path, batches: int = 1) -> MixConfig:
    datasets = {"hostile": {"path": str(path), "weight": 1}}
    return config_from(
        {"output": str(output), "batch_size": 1, "batches": batches, "batches_per_shard": 1, "datasets": datasets}
    )


class Bomb:
    """What leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.mark,)  # type: ignore[return-value]


def metadata_of_all_kinds(bomb: bytes) -> list[pa.Schema]:
    """Return schemas whose metadata tempt a reader to unpickle or to load a type."""
    names = (b"arrow.py_extension_type", b"numpy.ndarray", b"ray.data.arrow_tensor", b"no.such.type")
    extensions = [
        pa.schema(
            [pa.field("n", pa.int64(), metadata={b"ARROW:extension:name": name, b"ARROW:extension:metadata": bomb})]
        )
        for name in names
    ]
    plain = pa.schema([("n", pa.int64())])
    whole = (b"pandas", b"huggingface", b"mixer", b"ARROW:schema")
    return [*extensions, *(plain.with_metadata({key: bomb}) for key in whole)]


def test_nothing_in_a_files_metadata_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(mark))
    for number, schema in enumerate(metadata_of_all_kinds(bomb)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"n": [1, 2]}, schema=schema), path)
        config = mix_of(path, tmp_path / f"out-{number}", batches=2)
        try:
            building.build(config)
        except InputError as error:
            # An Arrow schema that is none: no harm, and no guess.
            assert f"{number}.parquet" in str(error)  # noqa: PT017 -- others are taken
            continue
        assert head(config.output).table["n"].to_pylist() == [1, 2]
        assert verify(config.output).ok
    assert not mark.exists()
    pickle.loads(bomb)  # noqa: S301 -- to see that it would
    assert mark.exists()


def varint(number: int) -> bytes:
    """Return a number as Thrift's compact protocol writes it."""
    zigzag = number << 1
    out = b""
    while zigzag > 127:
        out += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    return out + bytes([zigzag])


def honest(folder: Path) -> tuple[bytes, bytes]:
    """Return a file up to its footer, and the footer."""
    path = folder / "honest.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), path, store_schema=False)
    data = path.read_bytes()
    footer_bytes = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - footer_bytes], data[-8 - footer_bytes : -8]


def lying(name: str, footer: bytes) -> tuple[bytes, int | None]:
    """Return a footer that says what is not so, and the length to claim for it; None for its own."""
    rows, schema = b"\x16\x06", b"\x19\x2c"
    assert (footer.count(rows) > 1, schema in footer) == (True, True)
    match name:
        case "length of 4 GiB":
            return footer, 2**32 - 1
        case "rows of the file":
            return footer.replace(rows + b"\x19", b"\x16" + varint(2**62) + b"\x19"), None
        case "all rows":
            return footer.replace(rows, b"\x16" + varint(2**62)), None
        case "some rows":
            return footer.replace(rows, b"\x16" + varint(4000)), None
        case "length of a list":
            return footer.replace(schema, b"\x19\xfc" + varint(2**30), 1), None
        case _:
            return footer.replace(b"\x18\x06schema", b"\x18" + varint(2**30) + b"schema"), None


LIES = ("length of 4 GiB", "rows of the file", "all rows", "some rows", "length of a list", "length of a text")


def build_in_little_memory(config: MixConfig, more_bytes: int) -> None:
    """Build where no more than `more_bytes` can be had beside what the process has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes, used + more_bytes))
    building.build(config)


@pytest.mark.parametrize("lie", LIES)
def test_a_footer_that_lies_about_sizes_is_refused_with_its_file_in_little_memory(tmp_path: Path, lie: str) -> None:
    body, footer = honest(tmp_path)
    changed, length = lying(lie, footer)
    path = tmp_path / "hostile.parquet"
    path.write_bytes(body + changed + struct.pack("<I", len(changed) if length is None else length) + b"PAR1")
    child = Child(tmp_path / "log", build_in_little_memory, mix_of(path, tmp_path / "out", batches=4), 1 << 29)
    assert child.ended() in {InputError.exit_code, CorruptionError.exit_code}, child.said
    assert "dataset 'hostile', file " in child.said
    assert "hostile.parquet" in child.said


def test_a_footer_of_hundreds_of_megabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hostile.parquet"
    size = 10 << 30
    with path.open("wb") as file:
        file.truncate(size - 8)
        file.seek(size - 8)
        file.write(struct.pack("<I", 2**32 - 1) + b"PAR1")
    child = Child(tmp_path / "log", build_in_little_memory, mix_of(path, tmp_path / "out"), 1 << 29)
    assert child.ended() == InputError.exit_code, child.said
    assert "expected a footer of at most 268,435,456 bytes, found one said to be 4,294,967,303" in child.said
    assert footers.FOOTER_BYTES_MAX == 1 << 28


def test_datasets_of_more_rows_than_can_be_numbered_are_refused(tmp_path: Path) -> None:
    body, footer = honest(tmp_path)
    changed, _ = lying("all rows", footer)
    (tmp_path / "in").mkdir()
    for number in range(3):
        data = body + changed + struct.pack("<I", len(changed)) + b"PAR1"
        (tmp_path / f"in/{number}.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"dataset 'hostile': expected at most 9,223,372,036,854,775,807 rows"):
        building.build(mix_of(tmp_path / "in", tmp_path / "out"))


def test_a_value_that_unpacks_to_more_than_there_is_memory_is_named_and_the_run_goes_on_elsewhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "hostile.parquet"
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"text": ["short", "x" * (350 << 20)]}), path, row_group_size=1, **options)
    assert path.stat().st_size < 1 << 20
    config = mix_of(path, tmp_path / "out", batches=2)
    child = Child(tmp_path / "log", build_in_little_memory, config, 1 << 28)
    assert child.ended() == InputError.exit_code, child.said
    assert "hostile.parquet, row group 1: does not fit into the memory that there is" in child.said
    assert building.status(config.output).committed == 1


def test_columns_that_no_output_can_have_are_named(tmp_path: Path) -> None:
    path = tmp_path / "hostile.parquet"
    pq.write_table(pa.table({"_row": [1], "n": [2]}), path)
    with pytest.raises(MixerError, match="_row"):
        building.build(mix_of(path, tmp_path / "out"))
