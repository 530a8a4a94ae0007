"""Which date a flow run is of, what `{date}` in its output becomes, and how it is called: pure functions.

A flow run is of the date on which it was to start, on the clock of its schedule: that never changes, however late it
starts, however often it is tried again. When it really ran would change over midnight, and lead a retry to another
output.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from uuid import UUID
from zoneinfo import ZoneInfo

from mixer.building import DATE

UTC = ZoneInfo("UTC")


def zone_of(schedule: UUID | None, zones: Mapping[UUID, str | None]) -> ZoneInfo | None:
    """Return the time zone whose date counts: UTC where no schedule names one, None where several would do.

    Args:
        schedule: The schedule that made the flow run, if one did.
        zones: The time zone of each schedule of the deployment; None stands for UTC, as Prefect has it.

    >>> night, noon = UUID(int=1), UUID(int=2)
    >>> zone_of(noon, {night: "Asia/Tokyo", noon: "Europe/Berlin"})
    zoneinfo.ZoneInfo(key='Europe/Berlin')
    >>> zone_of(None, {night: "Asia/Tokyo"}), zone_of(None, {}), zone_of(None, {night: "Asia/Tokyo", noon: None})
    (zoneinfo.ZoneInfo(key='Asia/Tokyo'), zoneinfo.ZoneInfo(key='UTC'), None)
    """
    if schedule is not None and schedule in zones:
        return ZoneInfo(zones[schedule] or "UTC")
    names = {zone or "UTC" for zone in zones.values()} or {"UTC"}
    return ZoneInfo(names.pop()) if len(names) == 1 else None


def date_at(moment: dt.datetime, zone: ZoneInfo) -> dt.date:
    """Return the date at `moment`, which knows its offset, on the clocks of `zone`.

    >>> date_at(dt.datetime(2026, 11, 30, 23, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin"))
    datetime.date(2026, 12, 1)
    """
    return moment.astimezone(zone).date()


def with_date(output: str, date: dt.date) -> str:
    """Return `output` with `date` in place of each ``{date}``; other braces are left alone.

    >>> with_date("s3://lake/{date}/{v}", dt.date(2026, 11, 30))
    's3://lake/2026-11-30/{v}'
    """
    return output.replace(DATE, date.isoformat())


def run_name(output: str, date: dt.date | None) -> str:
    """Return the name of a flow run: where it writes to, and of which date it is, unless the output says that.

    >>> run_name("s3://lake/v3", dt.date(2026, 11, 30)), run_name("out", None)
    ('premix s3://lake/v3 of 2026-11-30', 'premix out')
    >>> run_name("s3://lake/2026-11-30", dt.date(2026, 11, 30))
    'premix s3://lake/2026-11-30'
    """
    said = date is None or date.isoformat() in output
    return f"premix {output}" if said else f"premix {output} of {date}"
