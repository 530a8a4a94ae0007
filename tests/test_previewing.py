from __future__ import annotations

from pathlib import Path

import pytest

from mixer import building
from mixer.errors import ChangedError, CorruptionError, NotEnoughDataError, OutputError
from mixer.planning import run_file
from mixer.previewing import preview
from tests.mixes import mix_config


def test_a_new_output_would_be_started_and_is_not_touched(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    seen = preview(config)
    assert (seen.action, seen.committed, seen.refusal) == ("start", 0, None)
    assert seen.planned.plan.rows == 48
    assert not (tmp_path / "out").exists()


def test_what_preview_says_is_what_building_does(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    run = preview(config).planned.run
    with building.start(config) as started:
        started.write(2)
    seen = preview(config)
    assert (seen.action, seen.committed, seen.planned.run) == ("resume", 2, run)
    assert building.build(config).run == run[:12]
    assert (preview(config).action, preview(config).committed) == ("nothing", 4)


def test_foreign_objects_would_be_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    seen = preview(mix_config(tmp_path))
    assert seen.action == "refuse"
    assert isinstance(seen.refusal, OutputError)


def test_another_definition_is_planned_and_would_be_refused(tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    seen = preview(mix_config(tmp_path, batch_size=2))
    assert (seen.action, seen.planned.plan.batch_size) == ("refuse", 2)
    assert isinstance(seen.refusal, ChangedError)
    assert "batch_size: the run has 4, the config has 2" in str(seen.refusal)


def test_a_longer_run_is_planned_as_what_it_would_be_extended_to(tmp_path: Path) -> None:
    building.build(mix_config(tmp_path))
    seen = preview(mix_config(tmp_path, batches=13))
    assert (seen.action, seen.planned.plan.batches, seen.committed, seen.refusal) == ("extend", 13, 4, None)


def test_a_length_column_is_no_part_of_a_run(tmp_path: Path) -> None:
    run = preview(mix_config(tmp_path)).planned
    named = preview(mix_config(tmp_path, length_column="n")).planned
    assert (named.run, named.fingerprint) == (run.run, run.fingerprint)
    assert run_file(named) == run_file(run)
    with building.start(mix_config(tmp_path)) as started:
        started.write(1)
    assert preview(mix_config(tmp_path, length_column="n")).action == "resume"
    assert building.build(mix_config(tmp_path, length_column="text")).finished


def test_another_codec_would_be_refused_though_the_rows_are_the_same(tmp_path: Path) -> None:
    with building.start(mix_config(tmp_path)) as run:
        run.write(1)
    seen = preview(mix_config(tmp_path, compression="snappy"))
    assert seen.action == "refuse"
    assert "--allow-repack" in str(seen.refusal)


def test_a_changed_input_would_be_refused_until_the_run_is_finished(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(1)
    part = tmp_path / "inputs/code/part-0.parquet"
    data = part.read_bytes()
    part.unlink()
    seen = preview(config)
    assert (seen.action, seen.committed) == ("refuse", 1)
    assert "code/part-0.parquet" in str(seen.refusal)
    part.write_bytes(data)
    assert preview(config).action == "refuse"  # touched: nobody can tell that it is the same


def test_what_cannot_be_planned_raises(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughDataError, match="'books' runs out first"):
        preview(mix_config(tmp_path, batches=1000))


def test_a_damaged_run_raises(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    (tmp_path / "out/data/shard-00000003.parquet").unlink()
    with pytest.raises(CorruptionError, match="shard-00000003"):
        preview(config)
