"""What is said of an output: whether it can be reached, by whom, what is in it, and what its clock says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mixer import building
from mixer.checkup import checkup, outputs
from mixer.checkup.base import Check
from mixer.checkup.outputs import SKEW_REFUSED_S, SKEW_WARNED_S, clock_check, output_checks
from mixer.errors import ChangedError
from mixer.storage import LocalStore, Store, open_store
from mixer.storage.filesystems import filesystem_for
from mixer.storage.urls import PROBE_FOLDER
from mixer.testing import MemoryStore, OverwritingStore
from tests.e2e.runs import objects
from tests.mixes import SHARDS, config_values, mix_config
from tests.s3_server import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def checks(url: str) -> dict[str, Check]:
    return {check.name: check for check in output_checks(url)}


def states(url: str) -> dict[str, str]:
    return {name: check.state for name, check in checks(url).items()}


def test_an_empty_place_on_a_disk_is_well_and_stays_empty(tmp_path: Path) -> None:
    output = str(tmp_path / "new/out")
    found = checks(output)
    assert {check.state for check in found.values()} == {"ok"}
    assert {
        "reachable",
        "run",
        "create",
        "create at once",
        "replace",
        "delete",
        "disk",
        "clock",
        "locks",
    } <= found.keys()
    assert found["run"].found == "none yet; the place is empty"
    assert LocalStore(output).list("") == []
    assert building.build(mix_config(tmp_path, output=output)).finished


def test_a_run_is_told_of_and_is_what_it_was(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(2)
    before = objects(open_store(config.output))
    found = checks(config.output)
    assert found["run"].found.endswith(f": 2 of {SHARDS} shards committed, not finished, can be resumed")
    assert "left over" not in found
    assert objects(open_store(config.output)) == before
    building.build(config)
    LocalStore(config.output).put(f"{PROBE_FOLDER}{'a' * 32}", b"1")
    found = checks(config.output)
    assert found["run"].found.endswith(f": {SHARDS} of {SHARDS} shards committed, finished")
    assert found["left over"].found.startswith("1 objects, 1 bytes, that nothing needs")


def test_a_run_of_another_pyarrow_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(2)
    monkeypatch.setattr(pa, "__version__", "99.0.0")
    check = checks(config.output)["pyarrow"]
    assert (check.state, "--allow-repack" in check.advice) == ("warning", True)


def test_a_damaged_run_fails(tmp_path: Path) -> None:
    config = mix_config(tmp_path)
    building.build(config)
    (tmp_path / "out/.mixer/log/000000000003.json").write_bytes(b"{}")
    (tmp_path / "out/.mixer/log/000000000005.json").write_bytes(b"{}")
    check = checks(config.output)["run"]
    assert (check.state, check.advice) == ("failed", "mixer verify tells all that is damaged")


def test_foreign_objects_are_found_and_nothing_is_written_among_them(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    found = checks(str(tmp_path / "mine"))
    assert list(found) == ["reachable", "run"]
    assert (found["run"].state, "choose another output" in found["run"].advice) == ("failed", True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_an_address_that_is_none_fails() -> None:
    assert states("ftp://host/out") == {"address": "failed"}


def test_a_folder_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    looked = list(output_checks(str(tmp_path / "file/out")))
    [create, disk] = [check for check in looked if check.state == "failed"]
    assert (create.name, disk.name) == ("create", "disk")
    for check in (create, disk):
        assert "there is a file where a folder is needed" in check.found


def test_a_store_that_overwrites_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Store = OverwritingStore(MemoryStore())
    monkeypatch.setattr(outputs, "open_store", lambda url: store)
    found = states("memory")
    assert (found["create"], found["create at once"]) == ("failed", "failed")


def test_of_a_config_the_inputs_are_looked_at_and_those_missing_named(tmp_path: Path) -> None:
    values = config_values(tmp_path)
    values["datasets"]["books"]["path"] = str(tmp_path / "nowhere")
    path = tmp_path / "mix.yaml"
    path.write_text(str(values))
    looked = checkup(str(path))
    assert looked.output == str(tmp_path / "out")
    inputs = {check.name: check for check in looked.checks if check.area == "inputs"}
    assert inputs["datasets"].found == "2 of 3 found, 4 files together"
    assert (inputs["books"].state, str(tmp_path / "nowhere") in inputs["books"].found) == ("failed", True)
    assert not looked.ok


def test_of_a_config_it_is_told_whether_building_it_would_be_refused(tmp_path: Path) -> None:
    values = config_values(tmp_path)
    path = tmp_path / "mix.yaml"

    def said(**changes: Any) -> Check:
        path.write_text(yaml.safe_dump({**values, **changes}, sort_keys=False))
        [check] = [check for check in checkup(str(path)).checks if (check.area, check.name) == ("output", "config")]
        return check

    config = mix_config(tmp_path)
    with building.start(config) as run:
        run.write(2)
    assert said().state == "ok"
    changed = said(batches=11)
    with pytest.raises(ChangedError) as refused:
        building.build(config.model_copy(update={"batches": 11}))
    assert (changed.state, changed.found) == ("failed", str(refused.value))
    (tmp_path / "inputs/code/part-0.parquet").touch()
    touched = said()
    with pytest.raises(ChangedError) as refused:
        building.build(config)
    assert (touched.state, touched.found) == ("failed", str(refused.value))


@pytest.mark.s3
def test_on_s3_all_is_well_and_no_key_is_shown(s3_url: str) -> None:
    found = checks(s3_url)
    assert {check.state for check in found.values()} == {"ok"}
    assert found["credentials"].found == "from the environment (AWS_ACCESS_KEY_ID)"
    assert found["endpoint"].found.startswith("http://127.0.0.1:")
    assert found["clock"].found == "the store's clock and this one agree"
    assert ACCESS_KEY_ID not in str(found)
    assert SECRET_ACCESS_KEY not in str(found)
    assert open_store(s3_url).list("") == []


@pytest.mark.s3
def test_a_wrong_secret_fails_and_the_server_still_tells_the_time(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-of-this-server")
    found = checks(s3_url)
    assert {name: check.state for name, check in found.items()} == {
        "endpoint": "ok",
        "credentials": "ok",
        "reachable": "failed",
        "clock": "ok",
    }
    assert "check AWS_SECRET_ACCESS_KEY" in found["reachable"].found
    assert "not-the-secret" not in str(found)


@pytest.mark.s3
def test_a_bucket_that_is_missing_fails(s3_url: str) -> None:
    found = checks(s3_url.replace(f"//{BUCKET}/", "//nosuchbucket/"))
    assert found["reachable"].state == "failed"
    assert "create" not in found


@pytest.mark.s3
def test_no_credentials_fail(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = checks(s3_url)
    assert (found["credentials"].state, found["credentials"].found) == ("failed", "none found")


def test_a_server_that_is_away_fails_after_two_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    found = checks("s3://bucket/out")
    assert list(found) == ["endpoint", "credentials", "reachable"]
    assert "no answer after 2 tries" in found["reachable"].found


@given(
    st.integers(-4000, 4000).map(lambda tenths: timedelta(seconds=tenths / 2)),
    st.sampled_from([0, 1, 20, 400, 3000]).map(lambda number: timedelta(milliseconds=number)),
    st.floats(0, 1),
    st.integers(0, 999_999).map(lambda number: timedelta(microseconds=number)),
)
def test_a_clock_is_never_called_further_off_than_it_is(
    off: timedelta, took: timedelta, when: float, start: timedelta
) -> None:
    """The other clock is read at some moment in between, and says no more than the second."""
    asked = NOW + start
    said = (asked + took * when + off).replace(microsecond=0)
    check = clock_check(asked, said, asked + took)
    off_s, slack_s = abs(off.total_seconds()), took.total_seconds() + 1
    told = re.search(r"([0-9,]+) s ", check.found)
    assert (int(told[1].replace(",", "")) if told else 0) <= off_s + 0.5
    if off_s <= SKEW_WARNED_S:
        assert check.state == "ok"
    if off_s <= SKEW_REFUSED_S:
        assert check.state != "failed"
    if off_s > SKEW_WARNED_S + slack_s:
        assert check.state != "ok"
    if off_s > SKEW_REFUSED_S + slack_s:
        assert check.state == "failed"
        assert ("ahead of" in check.found) == (off > timedelta(0))


@pytest.mark.s3
@pytest.mark.parametrize(("off_s", "state"), [(0, "ok"), (300, "warning"), (-3600, "failed")])
def test_a_clock_that_is_off_is_told(s3_url: str, monkeypatch: pytest.MonkeyPatch, off_s: int, state: str) -> None:
    """The server's word is what its answers are dated with."""

    class Dated:
        """The file system, whose answers are dated otherwise."""

        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def call_s3(self, method: str, **fields: object) -> object:
            answer = self.inner.call_s3(method, **fields)  # type: ignore[attr-defined]
            date = format_datetime(datetime.now(UTC) + timedelta(seconds=off_s), usegmt=True)
            answer["ResponseMetadata"]["HTTPHeaders"]["date"] = date
            return answer

    dated = "mixer.storage.facts.filesystem_for"
    monkeypatch.setattr(dated, lambda *place, **settings: Dated(filesystem_for(*place, **settings)))
    store = open_store(s3_url)
    (check,) = outputs._clock(store)
    assert check.state == state
