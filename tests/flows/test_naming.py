"""Which date a flow run is of does not depend on when it really runs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.naming import date_at, run_name, with_date, zone_of
from mixer import building
from mixer.errors import ConfigError
from tests.mixes import mix_config

ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Tokyo", "America/St_Johns", "Pacific/Kiritimati", "Europe/Berlin")]


@given(st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1)), st.sampled_from(ZONES))  # noqa: DTZ001 - a zone is given
def test_a_moment_has_the_date_of_the_wall_clock_it_was_read_from(moment: dt.datetime, zone: ZoneInfo) -> None:
    there = moment.replace(tzinfo=zone)
    assert date_at(there.astimezone(dt.UTC), zone) == there.astimezone(dt.UTC).astimezone(zone).date()
    assert abs((date_at(there.astimezone(dt.UTC), zone) - moment.date()).days) <= 1


@given(st.text(), st.text(), st.dates())
def test_only_the_word_date_in_braces_is_filled_in(before: str, after: str, date: dt.date) -> None:
    before, after = before.replace("{date}", ""), after.replace("{date}", "")
    assert with_date(f"{before}/{{date}}/{after}", date) == f"{before}/{date}/{after}"
    assert with_date(before, date) == before


def test_every_flow_run_is_named_by_its_output_and_its_date() -> None:
    date = dt.date(2026, 11, 30)
    assert run_name("out", date) == "premix out of 2026-11-30"
    assert run_name(with_date("out/{date}", date), date) == "premix out/2026-11-30"


def test_a_flow_run_that_no_schedule_made_has_the_zone_that_all_schedules_have() -> None:
    one, other, unknown = UUID(int=1), UUID(int=2), UUID(int=3)
    assert zone_of(unknown, {one: "Asia/Tokyo", other: "Asia/Tokyo"}) == ZoneInfo("Asia/Tokyo")
    assert zone_of(unknown, {one: "Asia/Tokyo", other: "UTC"}) is None
    assert zone_of(one, {one: None, other: "Asia/Tokyo"}) == ZoneInfo("UTC")


def test_what_is_no_flow_run_of_a_deployment_has_no_date(tmp_path: Path) -> None:
    config = mix_config(tmp_path, output="out/{date}")
    with pytest.raises(ConfigError, match="stands for the date of a scheduled flow run"):
        building.build(config)
    assert building.plan(config).plan.batches == 12
