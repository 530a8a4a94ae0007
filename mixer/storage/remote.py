"""What the stores that are reached over a network share: when to try again, and what became of a write.

Each of them says how one try of each request is made; here is what is made of the answers. A write whose condition
was not met may be this call's own, whose reply was lost: so the object that is there is looked at before anyone is
told that the name is another's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

from mixer.errors import StoreError, StoreUnavailableError
from mixer.storage.base import ObjectInfo
from mixer.storage.filesystems import READ_TIMEOUT_S
from mixer.storage.retry import PATIENT, RetryPolicy, call_with_retries, http_status
from mixer.storage.urls import check_name, check_prefix, check_range

T = TypeVar("T")

_LOOK_UP = RetryPolicy(attempts=3)
_CREATE_ROUNDS = 3
_STATUS_RANGE_UNSATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be there for an upload to take place."""

    version: str | None
    """The object of this version; None: no object at all."""


ABSENT = Condition(None)


@dataclass(frozen=True, slots=True)
class RemoteStore(ABC):
    """The objects of a bucket whose keys begin with a prefix; credentials and endpoint come from the environment.

    Holds no connection itself, so that it may be pickled, and used after a fork.
    """

    bucket: str
    prefix: str = ""
    """What all keys begin with: empty, or ending in ``/``."""
    policy: RetryPolicy = PATIENT
    read_timeout_s: float = READ_TIMEOUT_S
    """How long the server may be silent before a call counts as failed, and is tried again."""

    PROTOCOL: ClassVar[str]
    """What the store's address begins with."""
    ABSENT_HINT: ClassVar[str] = "check the bucket and the endpoint"
    """What to do where something is not found that can only be the bucket."""

    @property
    def url(self) -> str:
        return self._shown("").removesuffix("/")

    def get(self, name: str) -> bytes | None:
        try:
            return self._retry("get", name, partial(self._read, self._key(name)))
        except FileNotFoundError:
            return None

    def get_range(self, name: str, start: int, stop: int) -> bytes:
        check_range(start, stop)
        if start == stop:
            if self.stat(name) is None:
                raise self._absent(name)
            return b""
        try:
            return self._retry("get", name, partial(self._read_range_or_nothing, self._key(name), start, stop))
        except FileNotFoundError as error:
            raise self._absent(name) from error

    def put(self, name: str, data: bytes) -> None:
        self._in_bucket("put", name, self._upload(name, data, None))

    def create(self, name: str, data: bytes) -> bool:
        attempt = self._upload(name, data, ABSENT)
        for _ in range(_CREATE_ROUNDS):
            try:
                if self._in_bucket("create", name, attempt):
                    return True
            except StoreUnavailableError as failure:
                return self._settle(name, data, failure)
            found = self._look_up(name, data)
            if found is not None:
                return found
        raise StoreUnavailableError(
            f"create {self._shown(name)}: the name was taken and then gone, {_CREATE_ROUNDS} times over; something else"
            " creates and deletes it"
        )

    def replace(self, name: str, data: bytes, version: str) -> bool:
        try:
            if self._retry("replace", name, self._upload(name, data, Condition(version))):
                return True
        except StoreUnavailableError as failure:
            return self._settle(name, data, failure, replaced=version)
        except FileNotFoundError:
            return False
        # Ours, if the reply to an earlier try was lost.
        return self._look_up(name, data) or False

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        folder = self.prefix + check_prefix(prefix)
        found: list[ObjectInfo] = []
        token = None
        while True:
            page, token = self._in_bucket("list", prefix, partial(self._page, folder, self.prefix + after, token))
            found.extend(page)
            if token is None:
                break
        # Some consoles mark a folder by an empty object whose name ends in a slash.
        kept = (info for info in found if info.name > after and not info.name.endswith("/"))
        # Code points sort as their UTF-8 bytes do.
        return sorted(kept, key=lambda info: info.name)

    def delete(self, name: str) -> None:
        try:
            self._retry("delete", name, partial(self._remove, self._key(name)))
        except FileNotFoundError:
            return

    def stat(self, name: str) -> ObjectInfo | None:
        try:
            return self._retry("look up", name, partial(self._look, self._key(name)))
        except FileNotFoundError:
            return None

    @abstractmethod
    def _read(self, key: str) -> bytes:
        """Return a whole object, checked; `FileNotFoundError` if there is none."""

    @abstractmethod
    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of an object, checked; the status 416 if it ends before."""

    @abstractmethod
    def _look(self, key: str) -> ObjectInfo:
        """Return what is known of an object; `FileNotFoundError` if there is none."""

    @abstractmethod
    def _write(self, key: str, data: bytes, condition: Condition | None) -> Callable[[], bool]:
        """Return one try of an upload, which says whether the condition was met; may refuse `data` at once."""

    @abstractmethod
    def _page(self, prefix: str, after: str, token: str | None) -> tuple[Iterable[ObjectInfo], str | None]:
        """Return objects whose keys begin with `prefix`, all that follow `after` among them, and the next page's token.

        Objects up to `after` may be among them as well, if the store cannot begin there; it may lie before `prefix`.
        """

    @abstractmethod
    def _remove(self, key: str) -> None:
        """Delete an object; `FileNotFoundError` if there is none, or nothing."""

    def _settle(self, name: str, data: bytes, failure: StoreUnavailableError, *, replaced: str | None = None) -> bool:
        """Find out what became of a write none of whose tries was answered; `replaced` is the version it was for."""
        shown = self._shown(name)
        try:
            found = self._look_up(name, data, policy=_LOOK_UP)
            if found is False and replaced is not None:
                info = self._retry("look up", name, partial(self._look, self._key(name)), _LOOK_UP)
                # Nothing has happened yet, and the last try may still be on its way.
                found = None if info.version == replaced else False
        except (FileNotFoundError, StoreUnavailableError):
            found = None
        if found is None:
            verb = "created" if replaced is None else "replaced"
            raise StoreUnavailableError(
                f"{failure}; whether {shown} was or will yet be {verb} is unknown; a later run finds out"
            ) from failure
        return found

    def _look_up(self, name: str, data: bytes, policy: RetryPolicy | None = None) -> bool | None:
        """Return whether the object is `data`; None if there is none. A taken name may be one's own lost success."""
        try:
            info = self._retry("look up", name, partial(self._look, self._key(name)), policy)
            if info.bytes != len(data):
                return False
            return self._retry("get", name, partial(self._read, self._key(name)), policy) == data
        except FileNotFoundError:
            return None

    def _upload(self, name: str, data: bytes, condition: Condition | None) -> Callable[[], bool]:
        return self._write(self._key(name), data, condition)

    def _in_bucket(self, doing: str, name: str, call: Callable[[], T]) -> T:
        """Do what `call` does where nothing can be missing but the bucket."""
        try:
            return self._retry(doing, name, call)
        except FileNotFoundError as error:
            raise StoreError(f"{doing} {self._shown(name)}: not found; {self.ABSENT_HINT}") from error

    def _read_range_or_nothing(self, key: str, start: int, stop: int) -> bytes:
        try:
            return self._read_range(key, start, stop)
        except Exception as error:
            if http_status(error) == _STATUS_RANGE_UNSATISFIABLE:
                return b""
            raise

    def _retry(self, doing: str, name: str, call: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        return call_with_retries(call, what=f"{doing} {self._shown(name)}", policy=policy or self.policy)

    def _key(self, name: str) -> str:
        return self.prefix + check_name(name, inside=self.prefix)

    def _name(self, key: str) -> str:
        return key[len(self.prefix) :]

    def _shown(self, name: str) -> str:
        return self._shown_key(self.prefix + name)

    def _shown_key(self, key: str) -> str:
        return f"{self.PROTOCOL}://{self.bucket}/{key}"

    def _absent(self, name: str) -> StoreError:
        return StoreError(f"get {self._shown(name)}: there is no such object")

    def _checked(self, key: str, data: bytes, expected_bytes: int) -> bytes:
        """Return `data` if it is as long as was said; else the body was cut on its way."""
        if len(data) != expected_bytes:
            raise StoreUnavailableError(f"{self._shown_key(key)}: expected {expected_bytes} bytes, found {len(data)}")
        return data

    def _checked_range(self, key: str, data: bytes, start: int, stop: int, content_range: str | None) -> bytes:
        """Return the bytes ``[start, stop)`` of what a server answered with, and said the range of."""
        if content_range is None:
            # A server may answer with the whole object.
            return data[start:stop]
        object_bytes = content_range.rpartition("/")[2]
        if not object_bytes.isdigit():
            return data
        return self._checked(key, data, min(stop, int(object_bytes)) - start)
