"""Whether an output can be reached, what is in it, and whether its store does what a run needs."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from mixer.building import existing, status
from mixer.checkup.base import Check, Checks
from mixer.checkup.machine import room
from mixer.checkup.stores import store_checks
from mixer.collecting import gc
from mixer.config import MixConfig
from mixer.core import commits
from mixer.errors import CorruptionError, MixerError, OutputError, StoreError, StoreUnavailableError
from mixer.previewing import preview
from mixer.storage import LocalStore, Store, open_store
from mixer.storage.facts import credentials_source, endpoint, impatient, server_time
from mixer.storage.urls import PROBE_FOLDER, draw_name, redact_url

SKEW_WARNED_S = 60
SKEW_REFUSED_S = 15 * 60
"""S3 refuses requests of a clock that is further off."""

_checks = Checks("output")


def output_checks(url: str, config: MixConfig | None = None) -> Iterator[Check]:
    """Yield the checks of an output; what depends on one that failed is left out.

    Args:
        url: Where it is.
        config: What is to be run there; None if that is not known.
    """
    try:
        store = impatient(open_store(url))
    except OutputError as error:
        yield _checks.failed("address", str(error))
        return
    yield from _credentials(store)
    try:
        # Also tells a bucket that is missing from an object that is.
        store.list(PROBE_FOLDER)
        has_run = store.stat(commits.RUN_NAME) is not None
    except StoreUnavailableError as error:
        yield _checks.failed("reachable", str(error))
        return
    except StoreError as error:
        yield _checks.failed("reachable", str(error))
        yield from _clock(store)
        return
    yield _checks.ok("reachable", redact_url(store.url))
    yield from _clock(store)
    if not has_run and _holds_others(store):
        found = "other objects lie here and no run of mixer does, so none is begun here, and nothing more was tried"
        yield _checks.failed("run", found, "choose another output, or empty this one")
        return
    yield from _run(url, config) if has_run else [_checks.ok("run", "none yet; the place is empty")]
    yield from store_checks(store)
    if isinstance(store, LocalStore):
        yield from _disk(store)


def _credentials(store: Store) -> Iterator[Check]:
    """Yield where the credentials come from; a local disk needs none."""
    try:
        source = credentials_source(store)
        where = endpoint(store)
    except MixerError as error:
        yield _checks.failed("credentials", str(error))
        return
    if where:
        yield _checks.ok("endpoint", where)
    if source is None:
        advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        yield _checks.failed("credentials", "none found", advice)
    elif source:
        yield _checks.ok("credentials", f"from {source}")


def _clock(store: Store) -> Iterator[Check]:
    """Yield how far the clocks here and behind the store are apart, if it tells."""
    asked = datetime.now(UTC)
    said = server_time(store)
    if said is not None:
        yield clock_check(asked, said, datetime.now(UTC))


def clock_check(asked: datetime, said: datetime, answered: datetime) -> Check:
    """Return the check of two clocks.

    Args:
        asked: When the store was asked, by the clock here.
        said: What the store's clock said, cut to the second.
        answered: When its answer was here, by the clock here.
    """
    # It said so at some time in between, and up to a second had been cut off.
    early_s, late_s = (said - answered).total_seconds(), (said - asked).total_seconds() + 1
    off_s = early_s if early_s > 0 else min(late_s, 0.0)
    if abs(off_s) < 1:
        return _checks.ok("clock", "the store's clock and this one agree")
    found = f"the store's clock is {abs(off_s):,.0f} s {'ahead of' if off_s > 0 else 'behind'} this one"
    if abs(off_s) > SKEW_REFUSED_S:
        return _checks.failed("clock", found, "set this machine's clock; S3 refuses what is off by over 15 minutes")
    if abs(off_s) > SKEW_WARNED_S:
        return _checks.warning("clock", found, "set this machine's clock; S3 refuses what is off by over 15 minutes")
    return _checks.ok("clock", found)


def _run(url: str, config: MixConfig | None) -> Iterator[Check]:
    """Yield how far the run that is there has come, whether `config` goes on with it, and what lies beside it."""
    try:
        summary, (_, planned) = status(url), existing(url)
        garbage = gc(url)
    except CorruptionError as error:
        yield _checks.failed("run", str(error), "mixer verify tells all that is damaged")
        return
    except MixerError as error:
        yield _checks.failed("run", str(error))
        return
    state = "finished" if summary.finished else "not finished, can be resumed"
    yield _checks.ok("run", f"{summary.run}: {summary.committed:,} of {summary.shards:,} shards committed, {state}")
    if config is not None:
        yield _same(config)
    written_by = planned.physical.get("pyarrow")
    if not summary.finished and written_by != pa.__version__:
        found = f"the run was started with pyarrow {written_by}, and {pa.__version__} is installed"
        yield _checks.warning(
            "pyarrow", found, "install that one, or resume with --allow-repack: other bytes, same rows"
        )
    if garbage.found:
        size_bytes = sum(item.bytes for item in garbage.found)
        found = f"{len(garbage.found):,} objects, {size_bytes:,} bytes, that nothing needs"
        yield _checks.ok("left over", f"{found}: `mixer gc` shows them, `mixer gc --delete` removes them")


def _same(config: MixConfig) -> Check:
    """Return whether building `config` would go on with the run that is there, or refuse to, as building says it."""
    try:
        refusal = preview(config).refusal
    except MixerError as error:
        refusal = error
    if refusal is not None:
        return _checks.failed("config", str(refusal))
    return _checks.ok("config", "it is of the run that is there")


def _holds_others(store: Store) -> bool:
    return any(not info.name.startswith(".mixer/") for info in store.list(""))


def _disk(store: LocalStore) -> Iterator[Check]:
    """Yield what matters of a disk; hard links and fsync were tried by creating."""
    folder = store.root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    yield room(_checks, "disk", shutil.disk_usage(folder).free, "make room, or choose another disk")
    name = f"{PROBE_FOLDER}{draw_name()}"
    try:
        asked = datetime.now(UTC)
        store.create(name, b"1")
        path = store.root / name
        # Not the time of the last change of its bytes, which is set from here.
        said = datetime.fromtimestamp(path.stat().st_ctime, UTC)
        yield clock_check(asked, said, datetime.now(UTC))
        yield _locks(path)
    except (StoreError, OutputError) as error:
        yield _checks.failed("disk", str(error))
    finally:
        store.delete(name)


def _locks(path: Path) -> Check:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        advice = "`mixer gc` cannot tell whether an unfinished file there is still being written, and keeps all"
        return _checks.warning("locks", f"this file system has none: {error.strerror}", advice)
    return _checks.ok("locks", "files can be locked")
