from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer import DataBatcher, build, status, verify
from mixer.building import attach, start
from mixer.config import config_from
from mixer.core.commits import Commit
from mixer.errors import ChangedError, CorruptionError, FencedError, MixerError, OutputError
from mixer.mixing import LINEAGE_SCHEMA
from mixer.planning import plan
from mixer.sources.parquet import ParquetSource
from mixer.sources.registry import RowRegistry
from mixer.storage import local as local_store
from tests.mixes import ROWS, SHARDS, config_values, mix_config


def objects(folder: Path) -> dict[str, bytes]:
    """Return every file of an output but the log, whose envelopes differ from run to run."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "/log/" not in path.as_posix()
    }


def rows_of(output: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(output / "data").to_table().to_pylist()
    return found


def test_a_run_made_twice_is_the_same_to_the_byte(tmp_path: Path) -> None:
    first = build(mix_config(tmp_path))
    second = build(mix_config(tmp_path, output=str(tmp_path / "again")))
    assert objects(tmp_path / "out") == objects(tmp_path / "again")
    assert (first.head, first.state, first.bytes) == (second.head, second.state, second.bytes)
    assert first.finished
    assert first.committed == SHARDS


def rewritten(tmp_path: Path, write: Callable[[pa.Table, Path], None]) -> Path:
    """Return the inputs again, the same rows written otherwise."""
    config_values(tmp_path)
    for name in ROWS:
        folder = tmp_path / "otherwise" / name
        folder.mkdir(parents=True)
        table = ds.dataset(tmp_path / "inputs" / name).to_table()
        write(table, folder)
    return tmp_path / "otherwise"


def in_small_row_groups(table: pa.Table, folder: Path) -> None:
    pq.write_table(table, folder / "a.parquet", row_group_size=3, compression="gzip")


def in_many_files(table: pa.Table, folder: Path) -> None:
    for number, first in enumerate(range(0, len(table), 5)):
        pq.write_table(table.slice(first, 5), folder / f"{number:03d}.parquet", use_dictionary=False)


def as_large_strings(table: pa.Table, folder: Path) -> None:
    large = table.schema.set(0, pa.field("text", pa.large_string()))
    pq.write_table(table.cast(large), folder / "a.parquet")


@pytest.mark.parametrize("write", [in_small_row_groups, in_many_files, as_large_strings])
def test_the_same_rows_laid_out_otherwise_give_the_same_shards_and_head(
    tmp_path: Path, write: Callable[[pa.Table, Path], None]
) -> None:
    whole = build(mix_config(tmp_path))
    inputs = rewritten(tmp_path, write)
    datasets = {
        name: {"path": str(inputs / name), "weight": weight}
        for name, weight in {"web": 3, "code": 2, "books": 1}.items()
    }
    other = build(mix_config(tmp_path, output=str(tmp_path / "again"), datasets=datasets))
    assert other.head == whole.head
    shards = [
        {name: data for name, data in objects(tmp_path / out).items() if name.startswith("data/")}
        for out in ("out", "again")
    ]
    assert shards[0] == shards[1]


@settings(max_examples=15)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            "batch_size": st.integers(1, 9),
            "batches_per_shard": st.integers(3, 5),
            "batches_per_row_group": st.integers(1, 3),
            "batches": st.integers(1, 11),
        }
    ),
)
def test_shards_hold_what_a_batcher_over_the_rows_emits(
    tmp_path_factory: pytest.TempPathFactory, weights: list[int], numbers: dict[str, int]
) -> None:
    batch_size, batches = numbers["batch_size"], numbers["batches"]
    folder = tmp_path_factory.mktemp("mix")
    datasets = {}
    for place, weight in enumerate(weights):
        table = pa.table({"text": [f"{place}/{row}" for row in range(100)], "n": range(100)})
        pq.write_table(table, folder / f"{place}.parquet", row_group_size=13)
        datasets[f"d{place}"] = {"path": str(folder / f"{place}.parquet"), "weight": weight}
    config = config_from({"output": str(folder / "out"), "datasets": datasets, **numbers})
    summary = build(config)
    planned = plan(config)
    sources = {name: ParquetSource(name, planned.inventories[name], planned.schema) for name in datasets}
    batcher = DataBatcher(RowRegistry(sources), dict(zip(datasets, weights, strict=True)), batch_size)
    expected = [row for _ in range(batches) for row in batcher.next_batch()]
    found = rows_of(folder / "out")
    assert [{key: row[key] for key in ("text", "n")} for row in found] == expected
    assert [row["_batch"] for row in found] == [place // batch_size for place in range(batches * batch_size)]
    assert all(row["text"] == f"{row['_dataset'][1:]}/{row['_row']}" for row in found)
    assert summary.state == batcher.state_dict()
    for source in sources.values():
        source.close()


def test_a_finished_run_run_again_changes_nothing_even_without_its_inputs(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    first = build(config)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    for path in (tmp_path / "inputs").rglob("*.parquet"):
        path.unlink()
    assert build(config) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def _has_heard(heard: list[Commit], shards: int) -> bool:
    return len(heard) >= shards


def test_stopping_at_an_edge_and_going_on_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole = build(mix_config(tmp_path, output=str(tmp_path / "whole")))
    config = mix_config(tmp_path)
    heard: list[Commit] = []
    for committed in range(SHARDS):
        summary = build(config, on_commit=heard.append, should_stop=partial(_has_heard, heard, committed))
        assert not summary.finished or committed == SHARDS - 1
    final = build(config, on_commit=heard.append)
    assert [commit.shard for commit in heard] == list(range(SHARDS))
    assert final.head == whole.head
    assert objects(tmp_path / "out") == objects(tmp_path / "whole")
    assert verify(config.output).ok


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": 5}, "batch_size: the run has 4, the config has 5"),
        ({"batches": 11}, "batches: the run has 12, the config has 11"),
        ({"batches_per_shard": 4}, "batches_per_shard: the run has 3, the config has 4"),
        ({"on_exhausted": "stop"}, "on_exhausted: the run has 'error', the config has 'stop'"),
        ({"lineage": False}, "lineage: the run has True, the config has False"),
    ],
)
def test_another_definition_is_refused_with_what_differs(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    build(mix_config(tmp_path), should_stop=lambda: True)
    before = objects(tmp_path / "out")
    with pytest.raises(ChangedError, match=re.escape(told)):
        build(mix_config(tmp_path, **changes))
    assert objects(tmp_path / "out") == before


def test_other_datasets_are_refused_with_what_differs(tmp_path: Path) -> None:
    values = config_values(tmp_path)
    build(config_from(values), should_stop=lambda: True)
    datasets = values["datasets"]
    changed: dict[str, dict[str, Any]] = {
        r"datasets.web.weight: the run has 3, the config has 4": {**datasets, "web": {**datasets["web"], "weight": 4}},
        r"datasets.web: in the run, not in the config": {name: datasets[name] for name in ("code", "books")},
        r"datasets.more: in the config, not in the run": {**datasets, "more": datasets["web"]},
        r"order of datasets": dict(reversed(datasets.items())),
        r"datasets.web.path": {**datasets, "web": {**datasets["web"], "path": datasets["code"]["path"]}},
    }
    for told, new in changed.items():
        with pytest.raises(ChangedError, match=told):
            build(config_from({**values, "datasets": new}))


def test_other_parquet_settings_are_refused_unless_rows_alone_matter(tmp_path: Path) -> None:
    whole = build(mix_config(tmp_path, output=str(tmp_path / "whole")))
    build(mix_config(tmp_path), should_stop=iter([False, False, True]).__next__)
    other = mix_config(tmp_path, compression="snappy")
    with pytest.raises(ChangedError, match=r"(?s)compression: the run has 'zstd', now it is 'snappy'.*--allow-repack"):
        build(other)
    summary = build(other, allow_repack=True)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")
    assert summary.head != whole.head
    assert verify(other.output).ok


def _append(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("change", [_append, _flip, Path.unlink, lambda path: os.truncate(path, 50)])
def test_a_changed_input_is_refused_with_its_name(tmp_path: Path, change: Callable[[Path], None]) -> None:
    config = mix_config(tmp_path)
    build(config, should_stop=iter([False, False, True]).__next__)
    changed = tmp_path / "inputs" / "code" / "part-1.parquet"
    change(changed)
    with pytest.raises(ChangedError, match=re.escape(str(changed))) as caught:
        build(config)
    assert caught.value.exit_code == 3


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"found 1 other objects, such as 'thesis.txt'"):
        build(mix_config(tmp_path))
    assert objects(tmp_path / "out") == {"thesis.txt": b"mine"}
    with pytest.raises(OutputError, match=r"no run of mixer here"):
        status(str(tmp_path / "out"))


def test_a_newer_start_owns_the_run_and_the_older_one_stops(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with start(config) as older, start(config) as newer:
        with pytest.raises(FencedError, match=r"taken by another start"):
            older.write(SHARDS)
        with pytest.raises(FencedError, match=r"another start of this run has taken it over"):
            attach(config.output, older.owner)
        newer.write(2)
        with attach(config.output, newer.owner) as again:
            again.write(SHARDS)
            assert again.finish().finished
    assert verify(config.output).ok


def test_a_store_that_fails_in_the_middle_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build(mix_config(tmp_path, output=str(tmp_path / "whole")))
    config = mix_config(tmp_path)
    create = local_store.LocalStore.create
    fails = {"data/shard-00000002.parquet"}

    def failing(store: local_store.LocalStore, name: str, data: bytes) -> bool:
        if name in fails:
            raise OSError(28, "No space left on device", name)
        return create(store, name, data)

    monkeypatch.setattr(local_store.LocalStore, "create", failing)
    with start(config) as run:
        with pytest.raises(OSError, match="No space left"):
            run.write(SHARDS)
        assert run.committed == 2
        fails.clear()
        with attach(config.output, run.owner) as again:
            again.write(SHARDS)
            assert again.finish().head == whole.head
    assert objects(tmp_path / "out") == objects(tmp_path / "whole")


def test_a_leftover_that_no_commit_names_is_replaced(tmp_path: Path) -> None:
    whole = build(mix_config(tmp_path, output=str(tmp_path / "whole")))
    config = mix_config(tmp_path)
    build(config, should_stop=iter([False, True]).__next__)
    (tmp_path / "out" / "data" / "shard-00000001.parquet").write_bytes(b"made by another version")
    assert build(config).head == whole.head
    assert objects(tmp_path / "out") == objects(tmp_path / "whole")


def test_a_commit_that_says_otherwise_than_the_plan_is_damage_with_both_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mix_config(tmp_path)
    payload = Commit.payload
    lie = {"offsets": {"web": 6, "code": 4, "books": 3}, "remainder_carry": {"web": 0, "code": 0, "books": 0}}
    monkeypatch.setattr(Commit, "payload", lambda self: {**payload(self), "state": lie})
    build(config, should_stop=iter([False, True]).__next__)
    monkeypatch.undo()
    with pytest.raises(CorruptionError, match=r"plan says state .*'books': 2.*the commit says .*'books': 3"):
        build(config)


@pytest.mark.parametrize("name", [".mixer/run.json", ".mixer/log/000000000001.json", ".mixer/log/000000000002.json"])
def test_a_flipped_bit_in_what_a_resume_reads_is_named(tmp_path: Path, name: str) -> None:
    config = mix_config(tmp_path)
    build(config, should_stop=iter([False, False, True]).__next__)
    path = tmp_path / "out" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    if name.endswith("1.json"):
        # Not among the last slots: a resume need not read it, verifying does.
        assert any(problem.object.endswith(name) for problem in verify(config.output).problems)
    else:
        with pytest.raises(CorruptionError, match=re.escape(name)):
            build(config)


def test_a_slot_missing_in_the_middle_is_named(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    build(config, should_stop=iter([False, False, True]).__next__)
    (tmp_path / "out" / ".mixer/log/000000000001.json").unlink()
    with pytest.raises(CorruptionError, match=r"\.mixer/log/000000000001\.json: missing, though"):
        build(config)


def test_stop_uses_what_every_dataset_can_fill(tmp_path: Path) -> None:
    summary = build(mix_config(tmp_path, batches=None, on_exhausted="stop"))
    # 60, 30 and 12 rows at 3:2:1: the second gives 4 rows in 3 batches, and 30 are enough for 22 batches; the
    # third gives 2 rows in 3 batches, and its 12 for 18.
    assert summary.batches == 18
    assert summary.state["offsets"]["books"] == 12


def test_without_lineage_shards_hold_the_data_columns_only(tmp_path: Path) -> None:
    build(mix_config(tmp_path, lineage=False))
    schema = pq.read_schema(tmp_path / "out" / "data" / "shard-00000000.parquet")
    assert schema.names == ["text", "n"]


def test_footers_say_which_shard_of_which_run_they_are_and_nothing_of_the_machine(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    build(config)
    planned = plan(config)
    for index in range(SHARDS):
        metadata = pq.read_metadata(tmp_path / "out" / planned.plan.shard(index).path).metadata
        said = json.loads(metadata[b"mixer"])
        assert (said["run"], said["shard"], said["first_batch"]) == (planned.run, index, 3 * index)
        assert said["state_before"] == planned.plan.state_at(3 * index)
        assert said["state_after"] == planned.plan.state_at(3 * index + 3)
        assert str(tmp_path) not in str(metadata)


def test_the_manifest_says_what_the_log_says(tmp_path: Path) -> None:
    summary = build(mix_config(tmp_path))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["head"] == summary.head
    assert manifest["rows"] == 48
    assert [shard["first_row"] for shard in manifest["shards"]] == [0, 12, 24, 36]
    assert sum(shard["counts"]["web"] for shard in manifest["shards"]) == 24
    (tmp_path / "out" / "manifest.json").unlink()
    build(mix_config(tmp_path))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest


def test_lineage_columns_come_last_and_are_never_null(tmp_path: Path) -> None:
    build(mix_config(tmp_path))
    schema = pq.read_schema(tmp_path / "out" / "data" / "shard-00000000.parquet")
    assert schema.names[-3:] == ["_dataset", "_row", "_batch"]
    assert not any(schema.field(name).nullable for name in schema.names[-3:])
    build(mix_config(tmp_path, on_exhausted="repeat", output=str(tmp_path / "repeated")))
    schema = pq.read_schema(tmp_path / "repeated" / "data" / "shard-00000000.parquet")
    assert schema.names[-4:] == LINEAGE_SCHEMA.names


def test_every_error_of_a_run_says_how_a_command_ends() -> None:
    kinds: list[type[MixerError]] = [MixerError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.exit_code for kind in kinds} == {1, 2, 3, 4, 5, 6}
