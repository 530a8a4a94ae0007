"""A bit that flips in an input, unseen by its size and time: named, or without effect, wherever the format can tell."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.config import MixConfig
from mixer.errors import ChangedError, CorruptionError
from tests.e2e.damage import body_bytes, everything, flips, refusal
from tests.e2e.runs import many_shards
from tests.profiles import sized

SHARDS = 6
FLIPS = sized(short=30, long=1000)


@dataclass(frozen=True, slots=True)
class Mix:
    """A run that was stopped after its first shard, what it becomes, and one of its inputs."""

    config: MixConfig
    begun: Path
    unbroken: dict[str, bytes]
    input: Path


def make_mix(folder: Path, **options: object) -> Mix:
    """Make it below `folder`, its inputs written with `options`."""
    config = many_shards(folder, str(folder / "begun"), shards=SHARDS)
    for path in (folder / "inputs").iterdir():
        pq.write_table(pq.read_table(path), path, row_group_size=5, **options)
    with building.start(config) as run:
        run.write(1)
    building.build(config.model_copy(update={"output": str(folder / "unbroken")}))
    return Mix(config, folder / "begun", everything(folder / "unbroken/data"), folder / "inputs/web.parquet")


def overwrite(path: Path, data: bytes) -> None:
    """Change a file as a bad disk does: its time stays."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def resumed(mix: Mix, folder: Path) -> tuple[Path, MixConfig]:
    """Return a copy of the begun run, and its config."""
    out = Path(shutil.copytree(mix.begun, folder / "out"))
    return out, mix.config.model_copy(update={"output": str(out)})


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_flipped_bit_among_the_rows_is_named_or_changes_nothing_if_pages_have_checksums(
    tmp_path: Path, codec: str
) -> None:
    mix = make_mix(tmp_path, compression=codec, write_page_checksum=True)
    whole, body = mix.input.read_bytes(), body_bytes(mix.input)
    named = 0
    for trial, damaged in enumerate(flips(whole[:body], FLIPS)):
        out, config = resumed(mix, tmp_path / str(trial))
        overwrite(mix.input, damaged + whole[body:])
        error = refusal(lambda config=config: building.build(config))  # type: ignore[misc]
        overwrite(mix.input, whole)
        if error is not None:
            named += 1
            assert isinstance(error, CorruptionError)
            assert f"dataset 'web', file {mix.input}, row group " in str(error)
            assert set(everything(out / "data").items()) <= set(mix.unbroken.items())
            building.build(config)
        assert everything(out / "data") == mix.unbroken
        shutil.rmtree(out.parent)
    # The rest hit what is not read: statistics of pages, rows that no batch takes.
    assert named > FLIPS // 2


def test_a_flipped_bit_among_compressed_rows_without_checksums_is_named_where_it_does_not_decode(
    tmp_path: Path,
) -> None:
    """Where it does decode, nothing in the file tells: only its writer can have checksums written."""
    mix = make_mix(tmp_path, compression="zstd", write_page_checksum=False)
    whole, body = mix.input.read_bytes(), body_bytes(mix.input)
    named = unnoticed = 0
    for trial, damaged in enumerate(flips(whole[:body], FLIPS)):
        out, config = resumed(mix, tmp_path / str(trial))
        overwrite(mix.input, damaged + whole[body:])
        error = refusal(lambda config=config: building.build(config))  # type: ignore[misc]
        overwrite(mix.input, whole)
        if error is None:
            unnoticed += everything(out / "data") != mix.unbroken
        else:
            named += 1
            assert isinstance(error, CorruptionError)
            assert f"dataset 'web', file {mix.input}, row group " in str(error)
        shutil.rmtree(out.parent)
    assert named > FLIPS // 5
    assert unnoticed


def test_the_column_is_named_that_does_not_decode(tmp_path: Path) -> None:
    mix = make_mix(tmp_path, compression="none", write_page_checksum=True)
    _, config = resumed(mix, tmp_path / "copy")
    column = pq.read_metadata(mix.input).row_group(2).column(1)
    data = bytearray(mix.input.read_bytes())
    data[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    overwrite(mix.input, bytes(data))
    with pytest.raises(CorruptionError, match=r"file .*web\.parquet, row group 2, column 'n': its bytes do not"):
        building.build(config)


def test_a_flipped_bit_in_a_footer_is_a_changed_input(tmp_path: Path) -> None:
    mix = make_mix(tmp_path)
    whole = mix.input.read_bytes()
    footer_bytes = int.from_bytes(whole[-8:-4], "little") + 8
    begun = everything(mix.begun)
    chance = random.Random(1)  # noqa: S311 -- places, not secrets
    for _ in range(FLIPS):
        place = chance.randrange(len(whole) - footer_bytes, len(whole))
        out, config = resumed(mix, tmp_path / str(place))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        overwrite(mix.input, bytes(damaged))
        with pytest.raises(ChangedError, match=r"dataset 'web', file .*web\.parquet: "):
            building.build(config)
        assert everything(out / "data") == everything(mix.begun / "data")
        shutil.rmtree(out.parent)
    overwrite(mix.input, whole)
    assert everything(mix.begun) == begun


@pytest.mark.parametrize("change", ["shorter", "empty", "gone", "newer"])
def test_an_input_that_is_seen_to_be_another_is_refused_before_anything_is_written(tmp_path: Path, change: str) -> None:
    mix = make_mix(tmp_path)
    match change:
        case "shorter":
            overwrite(mix.input, mix.input.read_bytes()[:-1])
        case "empty":
            overwrite(mix.input, b"")
        case "gone":
            mix.input.unlink()
        case _:
            os.utime(mix.input, ns=(1, 1))
    begun = everything(mix.begun)
    with pytest.raises(ChangedError, match=r"web\.parquet"):
        building.build(mix.config)
    assert everything(mix.begun) == begun
