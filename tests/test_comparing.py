from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mixer import building
from mixer.comparing import compare
from mixer.config import MixConfig, config_from
from mixer.differing import row_differences
from mixer.errors import ChangedError, ConfigError, OutputError
from tests.mixes import config_file, config_values, mix_config


def begun(folder: Path, shards: int = 2, **changes: Any) -> str:
    """Begin a run; return its output."""
    with building.start(mix_config(folder, **changes)) as run:
        run.write(shards)
        if shards == run.plan.shard_count:
            run.finish()
    return str(folder / "out")


def resumes(folder: Path, **changes: Any) -> bool:
    try:
        with building.start(mix_config(folder, **changes)):
            return True
    except ChangedError:
        return False


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({}, "same", []),
        ({"batch_size": 8, "batches": 6}, "refused", ["batch_size: the run has 4, the config has 8"]),
        ({"batches": 11}, "refused", ["batches: the run has 12, the config has 11"]),
        ({"lineage": False}, "refused", ["lineage: the run has True, the config has False"]),
        ({"compression": "snappy"}, "allow-repack", ["compression:", "compression_level:"]),
        ({"batches_per_row_group": 1}, "allow-repack", ["batches_per_row_group:"]),
        ({"length_column": "n"}, "harmless", ["length_column: 'n' now"]),
    ],
)
def test_a_config_and_a_run_tell_the_same_difference_as_a_resume(
    tmp_path: Path, changes: dict[str, Any], verdict: str, said: list[str]
) -> None:
    old = config_file(tmp_path)
    config = mix_config(tmp_path, **changes)
    output = begun(tmp_path)
    for found in (compare(config, old), compare(config, output)):
        assert found.verdict == verdict
        lines = [*found.refused, *found.repack, *found.harmless]
        assert all(any(line.startswith(start) for line in lines) for start in said), lines
    assert resumes(tmp_path, **changes) == (verdict in {"same", "harmless"})


def test_of_a_changed_window_only_what_has_changed_is_told() -> None:
    def windowed(**window: Any) -> MixConfig:
        dataset = {"path": "a.parquet", "window": {"context_length": 8, "end_of_text": 1, **window}}
        return config_from(
            {
                "output": "out",
                "batch_size": 1,
                "batches": 1,
                "batches_per_shard": 1,
                "datasets": {"a": {"weight": 1, **dataset}},
            }
        )

    where = "datasets.a.window"
    assert row_differences(windowed(), windowed(context_length=9, stride=3)) == [
        f"{where}.context_length: the run has 8, the config has 9",
        f"{where}.stride: the run has None, the config has 3",
    ]
    (whole,) = row_differences(
        config_from({**windowed().model_dump(), "datasets": {"a": {"path": "a.parquet", "weight": 1}}}), windowed()
    )
    assert whole.startswith(f"{where}: the run has None, the config has {{'context_length': 8, ")


def test_a_longer_run_is_told_from_another_one(tmp_path: Path) -> None:
    output = begun(tmp_path, shards=4)
    found = compare(mix_config(tmp_path, batches=14), output)
    assert (found.verdict, found.refused, found.why) == ("extend", (), None)
    assert found.extends == ("batches: the run has 12, the config has 14",)
    found = compare(mix_config(tmp_path, batches=11), output)
    assert found.verdict == "refused"
    assert found.why is not None
    assert "it can only get longer" in found.why
    assert compare(mix_config(tmp_path, batches=14), config_file(tmp_path)).verdict == "refused"


def test_inputs_that_changed_are_refused_and_new_ones_do_not_matter(tmp_path: Path) -> None:
    output = begun(tmp_path)
    folder = tmp_path / "inputs/web"
    (folder / "part-2.parquet").write_bytes((folder / "part-1.parquet").read_bytes())
    found = compare(mix_config(tmp_path), output)
    assert found.verdict == "harmless"
    assert found.harmless == (
        f"datasets.web: 1 file that the run does not know, and will not read: {folder / 'part-2.parquet'}",
    )
    (tmp_path / "inputs/code/part-0.parquet").unlink()
    found = compare(mix_config(tmp_path), output)
    assert found.verdict == "refused"
    assert "code/part-0.parquet" in found.refused[0]


def test_a_finished_run_needs_no_inputs(tmp_path: Path) -> None:
    output = begun(tmp_path, shards=4)
    config = mix_config(tmp_path)
    (tmp_path / "inputs/code/part-0.parquet").unlink()
    assert compare(config, output).verdict == "same"


def test_another_output_does_not_matter(tmp_path: Path) -> None:
    output = begun(tmp_path)
    found = compare(mix_config(tmp_path, output=str(tmp_path / "elsewhere")), output)
    assert found.verdict == "harmless"
    assert found.harmless[0].startswith("output: ")


def test_the_inputs_of_an_older_config_need_not_be_there(tmp_path: Path) -> None:
    values = config_values(tmp_path)
    values["datasets"]["web"]["path"] = "gone/*.parquet"
    old = config_file(tmp_path, datasets=values["datasets"])
    found = compare(mix_config(tmp_path), old)
    assert [line.split(":")[0] for line in found.refused] == ["datasets.web.path"]


def test_what_is_neither_a_config_nor_a_run_is_an_error(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        compare(config, str(tmp_path / "old.yaml"))
    with pytest.raises(OutputError, match="no run of mixer here"):
        compare(config, str(tmp_path / "old"))
