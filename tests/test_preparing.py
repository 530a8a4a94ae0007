"""Inputs are prepared once, by whatever asks first, and a run that has begun needs nothing of that any more."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import mixer
from mixer import preparing
from mixer.collecting import gc
from mixer.comparing import compare
from mixer.config import MixConfig
from mixer.errors import (
    ChangedError,
    ConfigError,
    CorruptionError,
    InputError,
    NotPreparedError,
    OutputError,
    StoppedError,
)
from mixer.preparation.engine import Progress
from mixer.previewing import preview
from mixer.storage import open_store
from mixer.verifying import verify
from tests.e2e.runs import objects, result
from tests.preparing import WEB_ROWS, config_of, lines, small_parts


@pytest.fixture(autouse=True)
def _several_parts() -> Iterator[None]:
    with small_parts():
        yield


def elsewhere(config: MixConfig, output: Path, **changes: Any) -> MixConfig:
    return config.model_copy(update={"output": str(output), **changes})


def copies(config: MixConfig) -> dict[str, bytes]:
    place = preparing.place_of(config)
    return {name.removeprefix(place.prefix): data for name, data in objects(place.store, place.prefix).items()}


def run_bytes(output: str) -> dict[str, bytes]:
    """Return what readers of an output see: the same in every run of one definition over the same inputs."""
    return {name: data for name, data in objects(open_store(output)).items() if not name.startswith(".mixer/")}


# Preparing


def test_preparing_again_does_nothing_and_tells_so(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    told: list[Progress] = []
    first = mixer.prepare(config, on_part=told.append)
    assert (first.made, len(told)) == (1, first.stages[0].parts)
    assert len(told) > 2
    before = copies(config)
    again = mixer.prepare(config, on_part=told.append)
    assert (again.made, len(told)) == (0, first.stages[0].parts)
    assert [stage.is_new for stage in again.stages] == [False]
    assert (again.stages[0].key, again.stages[0].rows) == (first.stages[0].key, WEB_ROWS)
    assert copies(config) == before


def test_datasets_that_are_parquet_are_not_prepared(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config = config.model_copy(update={"datasets": {"code": config.datasets["code"]}})
    assert mixer.prepare(config).stages == ()
    assert not (tmp_path / "out").exists()


def test_equal_inputs_give_equal_bytes_in_any_place(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.prepare(config)
    mixer.prepare(other := elsewhere(config, tmp_path / "out2", prepared=str(tmp_path / "shared")))
    assert copies(config) == copies(other)


@pytest.mark.s3
def test_a_place_on_s3_is_as_good_as_a_disk(tmp_path: Path, s3_url: str) -> None:
    config = config_of(tmp_path)
    mixer.prepare(config)
    remote = elsewhere(config, tmp_path / "out2", prepared=f"{s3_url}/shared")
    beside = config.model_copy(update={"output": f"{s3_url}/out"})
    for other in (remote, beside):
        mixer.prepare(other)
        assert copies(other) == copies(config)
        mixer.build(other)
        assert mixer.build(other).finished
    mixer.build(config)
    assert result(remote.output).shards == result(beside.output).shards == result(config.output).shards


def test_stopped_at_a_parts_edge_it_goes_on_from_there(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    told: list[Progress] = []
    stops = iter([False, True])
    with pytest.raises(StoppedError, match="dataset 'web': stopped while it was being prepared"):
        mixer.prepare(config, on_part=told.append, should_stop=stops.__next__)
    assert [part.number for part in told] == [0, 1]
    mixer.prepare(config, on_part=told.append)
    assert [part.number for part in told] == list(range(len(told)))
    mixer.prepare(unbroken := elsewhere(config, tmp_path / "out2"))
    assert copies(config) == copies(unbroken)


def test_changed_inputs_lead_to_another_copy_and_the_old_one_stays(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    first = mixer.prepare(config)
    (tmp_path / "inputs/web.jsonl").write_text(lines(WEB_ROWS + 5))
    again = mixer.prepare(config)
    assert (again.made, again.stages[0].rows) == (1, WEB_ROWS + 5)
    assert Path(first.stages[0].where, "prepared.json").exists()


def test_whether_something_is_prepared_can_be_asked(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(NotPreparedError, match="'web'"):
        preparing.find(config, {})
    done = mixer.prepare(config)
    found = preparing.find(config, {})
    assert [stage.key for stage in found.stages] == [stage.key for stage in done.stages]
    assert found.made == 0


@pytest.mark.parametrize(
    ("dataset", "fields", "said"),
    [
        ("code", {"on_bad_line": "skip"}, r"datasets\.code\.on_bad_line: its files are Parquet, which has no lines"),
        ("web", {"document": "line"}, r"datasets\.web\.document: only plain text has it, and its files are jsonl"),
    ],
)
def test_what_the_files_do_not_have_is_refused_when_they_are_known(
    tmp_path: Path, dataset: str, fields: dict[str, str], said: str
) -> None:
    config = config_of(tmp_path)
    changed = config.datasets[dataset].model_copy(update=fields)
    config = config.model_copy(update={"datasets": {**config.datasets, dataset: changed}})
    # The first of them is named as Parquet, so that nobody need look at the files.
    for verb in (mixer.plan, mixer.build):
        with pytest.raises(ConfigError, match=said):
            verb(config)


def test_a_single_file_of_any_name_is_parquet_as_ever(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    plain = tmp_path / "inputs/code.data"
    shutil.copy(tmp_path / "inputs/code.parquet", plain)
    values = config.model_dump()
    values["datasets"] = {"code": {"path": str(plain), "weight": 1}}
    values["batches"] = 3
    assert mixer.build(MixConfig.model_validate(values)).finished


def test_a_format_that_the_files_do_not_have_is_an_input_error(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    web = config.datasets["web"].model_copy(update={"format": "parquet"})
    with pytest.raises(InputError, match=r"web\.jsonl: expected a Parquet file"):
        mixer.plan(config.model_copy(update={"datasets": {"web": web}}))


# Running


def test_a_run_prepares_by_itself_what_it_needs(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    told: list[Progress] = []
    assert mixer.build(config, on_part=told.append).finished
    assert told
    prepared = elsewhere(config, tmp_path / "out2")
    mixer.prepare(prepared)
    assert mixer.build(prepared, on_part=told.append).finished
    assert len(told) == mixer.prepare(config).stages[0].parts
    assert run_bytes(config.output) == run_bytes(prepared.output)
    assert verify(config.output).problems == ()


def test_a_plan_of_what_is_not_prepared_says_what_to_do(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    for verb in (mixer.plan, preview):
        with pytest.raises(NotPreparedError, match=r"not prepared yet: 'web' \(rows of .*`mixer prepare` with this"):
            verb(config)
    mixer.prepare(config)
    assert mixer.plan(config).plan.passes[0].size == WEB_ROWS
    assert preview(config).action == "start"


def test_a_run_that_is_there_is_gone_on_with_from_its_record_alone(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    unbroken = elsewhere(config, tmp_path / "unbroken")
    mixer.build(unbroken)
    asked = itertools.count()
    mixer.build(config, should_stop=lambda: next(asked) > 3)
    assert 0 < mixer.status(config.output).committed < 4
    # Neither the input nor what it takes to read it.
    (tmp_path / "inputs/web.jsonl").unlink()
    assert mixer.build(config).finished
    assert run_bytes(config.output) == run_bytes(unbroken.output)


def test_stopped_while_preparing_there_is_no_run_yet_and_it_goes_on(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(StoppedError):
        mixer.build(config, should_stop=lambda: True)
    with pytest.raises(OutputError, match="no run of mixer here"):
        mixer.status(config.output)
    mixer.build(config)
    mixer.build(unbroken := elsewhere(config, tmp_path / "unbroken"))
    assert run_bytes(config.output) == run_bytes(unbroken.output)


def test_copies_that_were_deleted_and_made_again_are_the_same_to_a_run(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    asked = itertools.count()
    mixer.build(config, should_stop=lambda: next(asked) > 3)
    record = (tmp_path / "out/.mixer/run.json").read_bytes()
    shutil.rmtree(tmp_path / "out/.mixer/prepared")
    with pytest.raises(ChangedError, match=r"files of its prepared copy .*; prepare it again \("):
        mixer.build(config)
    assert preview(config).action == "refuse"
    assert mixer.prepare(config).made == 1
    for path in (tmp_path / "out/.mixer/prepared").rglob("*.parquet"):
        os.utime(path, ns=(1, 1))
    assert mixer.build(config).finished
    assert (tmp_path / "out/.mixer/run.json").read_bytes() == record
    mixer.build(unbroken := elsewhere(config, tmp_path / "unbroken"))
    assert run_bytes(config.output) == run_bytes(unbroken.output)


def test_a_file_of_a_copy_that_became_another_is_not_read(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    asked = itertools.count()
    mixer.build(config, should_stop=lambda: next(asked) > 3)
    parts = sorted((tmp_path / "out/.mixer/prepared").rglob("*.parquet"))
    # Of another length, and of the same one.
    whole = parts[-1].read_bytes()
    parts[-1].write_bytes(whole[:-1])
    with pytest.raises(ChangedError, match="expected"):
        mixer.build(config)
    for part in parts:
        data = bytearray(part.read_bytes() if part != parts[-1] else whole)
        for place in range(8, len(data) - 8, 16):
            data[place] ^= 1
        part.write_bytes(bytes(data))
    with pytest.raises((CorruptionError, ChangedError)):
        mixer.build(config)


def test_a_definition_knows_the_rows_of_a_copy_and_not_its_place(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.prepare(config)
    planned = mixer.plan(config)
    moved = config_of(tmp_path / "moved", output=str(tmp_path / "moved/out"))
    mixer.prepare(moved)
    assert mixer.plan(moved).run == planned.run
    assert mixer.plan(moved).fingerprint != planned.fingerprint
    # As many rows, but others.
    path = tmp_path / "inputs/web.jsonl"
    path.write_text(lines(WEB_ROWS).replace("web 59", "web 95"))
    mixer.prepare(config)
    assert mixer.plan(config).run != planned.run


def test_nothing_is_prepared_in_an_output_that_holds_something_else(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    for verb in (mixer.prepare, mixer.build):
        with pytest.raises(OutputError, match="found 1 other objects"):
            verb(config)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_nothing_is_prepared_below_an_output_whose_date_is_not_known_yet(tmp_path: Path) -> None:
    config = config_of(tmp_path, output=str(tmp_path / "{date}"))
    with pytest.raises(ConfigError, match="stands for the date of a scheduled flow run"):
        mixer.prepare(config)
    assert not (tmp_path / "{date}").exists()
    shared = config.model_copy(update={"prepared": str(tmp_path / "copies")})
    assert mixer.prepare(shared).stages


def test_a_place_that_cannot_be_one_is_told_as_such_and_only_where_it_is_needed(tmp_path: Path) -> None:
    config = config_of(tmp_path, prepared="ftp://host/copies")
    for verb in (mixer.prepare, mixer.plan, mixer.build):
        with pytest.raises(OutputError, match=r"prepared: output 'ftp://host/copies'"):
            verb(config)
    assert mixer.prepare(config.model_copy(update={"datasets": {"code": config.datasets["code"]}})).stages == ()


def test_readers_of_the_output_do_not_see_the_parts(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.build(config)
    assert ds.dataset(config.output, format="parquet", exclude_invalid_files=True).count_rows() == 48


# What is said of it


def test_other_verbs_know_copies_from_leftovers(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.build(config)
    used = mixer.prepare(config).stages[0].key
    assert (gc(config.output).kept, verify(config.output).orphans) == ((), ())
    half = tmp_path / "out/.mixer/prepared" / ("a" * 64)
    (half / "log").mkdir(parents=True)
    (half / "begun.json").write_text("{}")
    (half / "log/00000000.json").write_text("{}")
    (tmp_path / "inputs/web.jsonl").write_text(lines(7))
    other = mixer.prepare(config).stages[0].key
    found = gc(config.output, delete=True)
    assert (found.found, found.deleted) == ((), ())
    said = {item.name: item.reason for item in found.kept}
    assert set(said) == {f".mixer/prepared/{key}/" for key in ("a" * 64, other)}
    assert said[f".mixer/prepared/{'a' * 64}/"].startswith("half prepared")
    assert said[f".mixer/prepared/{other}/"].startswith("a prepared copy that this run does not read")
    assert set(verify(config.output).orphans) == set(said)
    assert (tmp_path / "out/.mixer/prepared" / used / "prepared.json").exists()
    assert mixer.status(config.output).finished


def test_another_place_for_copies_is_no_other_run(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    asked = itertools.count()
    mixer.build(config, should_stop=lambda: next(asked) > 3)
    other = config.model_copy(update={"prepared": str(tmp_path / "shared")})
    found = compare(other, config.output)
    assert found.verdict == "harmless"
    assert found.harmless == (f"prepared: below the output before, {str(tmp_path / 'shared')!r} now",)
    assert mixer.build(other).finished
    assert not (tmp_path / "shared").exists()


def test_another_way_to_read_the_files_is_another_run(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.build(config)
    web = config.datasets["web"].model_copy(update={"on_bad_line": "skip"})
    other = config.model_copy(update={"datasets": {**config.datasets, "web": web}})
    assert compare(other, config.output).verdict == "refused"
    with pytest.raises(ChangedError, match=r"datasets\.web\.on_bad_line: the run has None, the config has 'skip'"):
        mixer.build(other)


def test_files_that_came_later_are_told_of_and_not_read(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    values = config.model_dump()
    values["datasets"]["web"]["path"] = str(tmp_path / "inputs/*.jsonl")
    config = MixConfig.model_validate(values)
    asked = itertools.count()
    mixer.build(config, should_stop=lambda: next(asked) > 3)
    (tmp_path / "inputs/web2.jsonl").write_text(lines(3))
    found = compare(config, config.output)
    assert found.verdict == "harmless"
    why = "what it was prepared from is not there any more, or not as it was; the run goes on with the copy"
    assert found.harmless == (f"datasets.web: {why}",)
    assert mixer.build(config).finished


def test_a_longer_run_and_a_fork_read_the_copies_of_the_run(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.build(config)
    longer = config.model_copy(update={"batches": 15})
    assert mixer.build(longer, extend=True).batches == 15
    forked = mixer.fork(config.output, 2, str(tmp_path / "fork"), weights={"web": 1, "code": 1}, batches=4)
    assert mixer.prepare(forked).stages == ()
    assert mixer.build(forked).finished
    assert verify(forked.output).problems == ()


def test_a_fork_prepares_what_is_new_in_it(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    mixer.build(config)
    (tmp_path / "inputs/more.jsonl").write_text(lines(20, "more"))
    values = mixer.fork(config.output, 2, str(tmp_path / "fork"), batches=4).model_dump()
    values["datasets"]["more"] = {"path": str(tmp_path / "inputs/more.jsonl")}
    values["phases"][-1]["weights"]["more"] = 2
    forked = MixConfig.model_validate(values)
    with pytest.raises(NotPreparedError, match="'more'"):
        mixer.plan(forked)
    assert mixer.build(forked).finished
    assert [stage.dataset for stage in mixer.prepare(forked).stages] == ["more"]
    assert verify(forked.output).problems == ()
