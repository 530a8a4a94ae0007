"""Reading a run's small objects (its definition, slots, checkpoints) without trusting their size."""

from __future__ import annotations

from mixer.core import commits
from mixer.errors import CorruptionError, StoreError, StoreUnavailableError
from mixer.storage import Store

FIRST_BYTES = 1 << 20
"""Read at first; nearly every record is shorter, and so costs one request."""
RECORD_BYTES_MAX = 1 << 30
"""Longest record that is read; a run of a hundred thousand datasets, or a million files, has shorter ones."""


def read_record(store: Store, name: str) -> bytes | None:
    """Return the record `name`, or None if there is none; one that is too long to be a record is not read.

    Raises:
        CorruptionError: It is longer than `RECORD_BYTES_MAX`.
        StoreError: The store refused, or did not answer.
    """
    try:
        data = store.get_range(name, 0, FIRST_BYTES)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        # A store has no other way to say that there is nothing to read from.
        if _is_absent(store, name, error):
            return None
        # It is there by now: another start may have made it in between.
        data = store.get_range(name, 0, FIRST_BYTES)
    if len(data) < FIRST_BYTES:
        # A range has no checksum on its way from S3, where a whole object has one: before it is called damaged, it is
        # read once more.
        return data if _is_sealed(data) else store.get(name)
    info = store.stat(name)
    if info is not None and info.bytes > RECORD_BYTES_MAX:
        raise CorruptionError(
            f"{store.url}/{name}: expected at most {RECORD_BYTES_MAX:,} bytes, found {info.bytes:,}; it is damaged or "
            f"foreign, restore it from a copy"
        )
    return store.get(name)


def _is_absent(store: Store, name: str, refusal: StoreError) -> bool:
    """Return whether there is no `name`; where that is refused as well, raise the first refusal, which says more."""
    try:
        return store.stat(name) is None
    except StoreError:
        raise refusal from None


def _is_sealed(data: bytes) -> bool:
    try:
        commits.unsealed(data, "record")
    except CorruptionError:
        return False
    return True
