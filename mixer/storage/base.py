"""What mixer asks of a store, and what every store promises.

A store is a flat set of named, immutable-looking byte strings below one location. Names are relative, use
`/`, and never leave the location; none may be a folder of another, since a disk cannot hold both. The verbs are
few because each one is a promise that the contract suite holds every implementation to: whole objects only, no
write handles, no listing caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of one object without reading it."""

    name: str
    """Name relative to the store."""
    bytes: int
    """Length in bytes."""
    version: str
    """A token that changes when the object is replaced: an ETag, or a local file's modification time and inode."""


class Store(Protocol):
    """Named byte strings below one location; safe to use from several threads.

    Each verb retries what is worth retrying by itself, with full jitter and a cap; what still fails is a
    `StoreUnavailableError`. What is refused for good (access denied, no such bucket, disk full) is a
    `StoreError` at once.
    """

    @property
    def url(self) -> str:
        """Where the store is, for people: no user names, keys or query strings in it."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the whole object, or None if there is none of that name. Its length is checked."""
        ...

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``, cut at the object's end.

        Raises:
            StoreError: There is no object of that name.
        """
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, replacing what was there. Readers see all of the old or all of the new."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Store `data` under a name nobody has taken; return whether the object there is this call's.

        Of any number of writers that race for one name exactly one gets True, provided that their `data`
        differ. A call whose outcome is unknown is looked up: if the object that is there equals `data`, it
        counts as this call's own. When True is returned the object is durable.
        """
        ...

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Store `data` in place of the object that has this `ObjectInfo.version`; return whether that was done.

        False, and nothing is changed, if the object has another version by now or is gone. Of any number of
        writers that race for one version exactly one gets True, provided that their `data` differ. A call whose
        outcome is unknown is looked up: if the object that is there equals `data`, it counts as this call's own.
        When True is returned the object is durable. Readers see all of the old or all of the new.

        `put` and `delete` ask for no version. On a disk, one at the very same moment may be overwritten by this.
        """
        ...

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        """Return the objects whose names start with `prefix` and sort after `after`, sorted by name (bytewise).

        `prefix` is a folder and ends in `/`, or is empty. What was just written is seen. Leftovers of a
        store's own making (temporary files) are not.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove the object; removing one that is not there is no error."""
        ...

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known of the object, or None if there is none of that name."""
        ...
