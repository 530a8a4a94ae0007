"""The proof that a store can do what a run needs, and what is done with one that cannot, if its user accepts it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mixer.errors import OutputError, StoreError, StoreUnavailableError
from mixer.storage.base import ObjectInfo, Store
from mixer.storage.urls import PROBE_FOLDER, draw_name

logger = logging.getLogger(__name__)

RISK = "two runs at the very same moment could overwrite each other's shards and commits"
"""What may happen on a store without create-only writes."""
ACCEPT = (
    "or, if never more than one process works on it, accept the risk: --accept-unsafe-store, in Python"
    " accept_unsafe_store=True"
)
"""What can be done about it, beside choosing another output."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Why a store did not pass the probe."""

    message: str
    may_be_accepted: bool = True


def probe_create_only(store: Store) -> None:
    """Make sure that `store` lets a name be created once only, by trying it; leaves nothing behind.

    A store that is merely racy cannot be told by this, as the two tries come one after the other.

    Raises:
        OutputError: The second create went through, or there is no such verb (see `RISK`), or it loses objects.
        StoreError: The store cannot be used at all.
    """
    fit_to_write(store, accept_unsafe=False)


def fit_to_write(store: Store, *, accept_unsafe: bool) -> Store:
    """Return `store` if it passes the probe, else, with `accept_unsafe`, a `CheckThenPutStore` over it.

    Raises:
        OutputError: It does not pass, and the risk is not accepted, or it loses objects.
        StoreError: The store cannot be used at all.
    """
    # Somebody who tidies up may have removed the probe's object, as a dead one's; hardly so often in a row.
    tries = 1
    while (flaw := _probe(store)) is not None and tries < _TRIES:
        tries += 1
    if flaw is None:
        logger.debug("event=probe store=%s create_only=true", store.url)
        return store
    if accept_unsafe and flaw.may_be_accepted:
        return CheckThenPutStore(store)
    raise OutputError(flaw.message)


def _probe(store: Store) -> _Flaw | None:
    """Return what is wrong with the create-only writes of `store`, and what to do; None if nothing is."""
    nonce = draw_name()
    name = f"{PROBE_FOLDER}{nonce}"
    first, second = f"first {nonce}".encode(), f"second {nonce}".encode()
    try:
        created = store.create(name, first)
    except StoreUnavailableError:
        raise
    except (OutputError, StoreError) as refusal:
        return _Flaw(_refused(store, name, first, refusal))
    try:
        created_again = store.create(name, second)
        found = store.get(name)
    finally:
        store.delete(name)
    if created_again:
        return _Flaw(
            f"output {store.url}: expected the store to refuse a second create of {name}, found that it accepted it;"
            f" without create-only writes (on S3: If-None-Match on PutObject) {RISK}; choose a store that has them,"
            f" {ACCEPT}"
        )
    if created and found == first:
        return None
    return _Flaw(
        f"output {store.url}: expected the store to keep {name}, found that it does not keep what was created;"
        " no run is safe there, choose another output",
        may_be_accepted=False,
    )


def _refused(store: Store, name: str, data: bytes, refusal: OutputError | StoreError) -> str:
    """Return what it means that a create was refused: if a plain put goes through, that there is no such verb.

    Raises:
        StoreError: The put was refused as well: what was said first.
    """
    try:
        store.put(name, data)
    except StoreUnavailableError:
        raise
    except StoreError:
        raise refusal from None
    store.delete(name)
    if isinstance(refusal, OutputError):
        # It knows better why, and says all this itself.
        return str(refusal)
    return (
        f"output {store.url}: expected a store with create-only writes, found that it takes {name} without the"
        f" condition only ({refusal}); so {RISK}; choose a store that has them, {ACCEPT}"
    )


@dataclass(frozen=True, slots=True)
class CheckThenPutStore:
    """A store without conditional writes, made to refuse what comes second, if not what comes at the same moment.

    Its `create` and `replace` look first, put, and read back. So one process at a time can do all that it could on
    another store. Two at the very same moment may both be told that they were first.
    """

    inner: Store

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, name: str) -> bytes | None:
        return self.inner.get(name)

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        return self.inner.get_range(name, start, stop)

    def put(self, name: str, data: bytes) -> None:
        self.inner.put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        found = self.inner.stat(name)
        if found is None:
            self.inner.put(name, data)
        elif found.bytes != len(data):
            return False
        return self.inner.get(name) == data

    def replace(self, name: str, data: bytes, version: str) -> bool:
        found = self.inner.stat(name)
        if found is None:
            return False
        if found.version == version:
            self.inner.put(name, data)
        elif found.bytes != len(data):
            return False
        return self.inner.get(name) == data

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        return self.inner.list(prefix, after=after)

    def delete(self, name: str) -> None:
        self.inner.delete(name)

    def stat(self, name: str) -> ObjectInfo | None:
        return self.inner.stat(name)
