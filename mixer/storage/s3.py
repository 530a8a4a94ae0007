"""A store in an S3 bucket, through s3fs.

Every object is one PutObject, whatever its size: only there are `If-None-Match` and the checksum honoured (s3fs
drops both without a word once an upload has several parts, and on some servers conditional completion races).
For the same reason the call is made by name, not through ``pipe_file``, which turns to several parts by itself
from 5 GiB on, and which reads `?versionId=` in a name as something else than a name.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from mixer.errors import StoreError, StoreUnavailableError
from mixer.storage.base import ObjectInfo
from mixer.storage.filesystems import READ_TIMEOUT_S, filesystem_for
from mixer.storage.retry import (
    PATIENT,
    RetryPolicy,
    call_with_retries,
    http_status,
    is_precondition_failed,
)
from mixer.storage.urls import check_name, check_prefix, check_range

T = TypeVar("T")

PUT_BYTES_MAX = 5 * 1024**3
"""S3's limit for one PutObject."""
_LOOK_UP = RetryPolicy(attempts=3)
_CREATE_ROUNDS = 3
_STATUS_RANGE_UNSATISFIABLE = 416


@dataclass(frozen=True, slots=True)
class S3Store:
    """The objects of a bucket whose keys begin with a prefix; credentials and endpoint come from the environment.

    Holds no connection itself, so that it may be pickled, and used after a fork.
    """

    bucket: str
    prefix: str = ""
    """What all keys begin with: empty, or ending in ``/``."""
    policy: RetryPolicy = PATIENT
    read_timeout_s: float = READ_TIMEOUT_S
    """How long the server may be silent before a call counts as failed, and is tried again."""

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".removesuffix("/")

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
            return self._retry("get", name, partial(self._read_range, self._key(name), start, stop))
        except FileNotFoundError as error:
            raise self._absent(name) from error

    def put(self, name: str, data: bytes) -> None:
        self._upload("put", name, partial(self._call, "put_object", **self._upload_fields(name, data)))

    def create(self, name: str, data: bytes) -> bool:
        attempt = partial(self._create_once, self._upload_fields(name, data))
        for _ in range(_CREATE_ROUNDS):
            try:
                if self._upload("create", name, attempt):
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

    def list(self, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        request = {"Prefix": self.prefix + check_prefix(prefix)}
        if after:
            request["StartAfter"] = self.prefix + after
        found: list[ObjectInfo] = []
        while True:
            page = self._list_page(prefix, request)
            found.extend(self._info(item["Key"], item["Size"], item) for item in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                break
            request["ContinuationToken"] = page["NextContinuationToken"]
        # Some consoles mark a folder by an empty object whose name ends in a slash.
        kept = (info for info in found if info.name > after and not info.name.endswith("/"))
        return sorted(kept, key=lambda info: info.name)

    def delete(self, name: str) -> None:
        try:
            self._retry("delete", name, partial(self._call, "delete_object", Key=self._key(name)))
        except FileNotFoundError:
            return

    def stat(self, name: str) -> ObjectInfo | None:
        key = self._key(name)
        try:
            found = self._retry("look up", name, partial(self._call, "head_object", Key=key))
        except FileNotFoundError:
            return None
        return self._info(key, found["ContentLength"], found)

    def _settle(self, name: str, data: bytes, failure: StoreUnavailableError) -> bool:
        """Find out what became of a create none of whose tries was answered."""
        try:
            found = self._look_up(name, data, policy=_LOOK_UP)
        except StoreUnavailableError:
            found = None
        if found is None:
            raise StoreUnavailableError(
                f"{failure}; whether {self._shown(name)} was or will yet be created is unknown; a later run finds out"
            ) from failure
        return found

    def _look_up(self, name: str, data: bytes, policy: RetryPolicy | None = None) -> bool | None:
        """Return whether the object is `data`; None if there is none. A taken name may be one's own lost success."""
        try:
            head = self._retry("look up", name, partial(self._call, "head_object", Key=self._key(name)), policy)
            if head["ContentLength"] != len(data):
                return False
            return self._retry("get", name, partial(self._read, self._key(name)), policy) == data
        except FileNotFoundError:
            return None

    def _upload_fields(self, name: str, data: bytes) -> dict[str, Any]:
        key = self._key(name)
        if len(data) > PUT_BYTES_MAX:
            raise StoreError(
                f"put {self._shown(name)}: expected at most {PUT_BYTES_MAX} bytes, S3's limit for one upload, found"
                f" {len(data)}; make the shards smaller (batches_per_shard)"
            )
        # The server refuses a body that was hurt on its way.
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        return {"Key": key, "Body": data, "ChecksumSHA256": digest}

    def _create_once(self, fields: dict[str, Any]) -> bool:
        try:
            self._call("put_object", IfNoneMatch="*", **fields)
        except OSError as error:
            if is_precondition_failed(error):
                return False
            raise
        return True

    def _upload(self, doing: str, name: str, call: Callable[[], T]) -> T:
        try:
            return self._retry(doing, name, call)
        except FileNotFoundError as error:
            raise StoreError(f"{doing} {self._shown(name)}: not found; check the bucket and the endpoint") from error

    def _read(self, key: str) -> bytes:
        response = self._call("get_object", Key=key)
        data = self._body(response)
        expected_bytes = response.get("ContentLength", len(data))
        if len(data) != expected_bytes:
            raise StoreUnavailableError(f"s3://{self.bucket}/{key}: expected {expected_bytes} bytes, found {len(data)}")
        return data

    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        try:
            response = self._call("get_object", Key=key, Range=f"bytes={start}-{stop - 1}")
        except OSError as error:
            if http_status(error) == _STATUS_RANGE_UNSATISFIABLE:
                return b""
            raise
        data = self._body(response)
        if "ContentRange" not in response:
            # A server may answer with the whole object.
            return data[start:stop]
        object_bytes = response["ContentRange"].rpartition("/")[2]
        expected_bytes = min(stop, int(object_bytes)) - start if object_bytes.isdigit() else len(data)
        if len(data) != expected_bytes:
            raise StoreUnavailableError(f"s3://{self.bucket}/{key}: expected {expected_bytes} bytes, found {len(data)}")
        return data

    def _list_page(self, prefix: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._retry("list", prefix, partial(self._call, "list_objects_v2", **request))
        except FileNotFoundError as error:
            raise StoreError(f"list {self._shown(prefix)}: not found; check the bucket and the endpoint") from error

    def _call(self, method: str, **fields: Any) -> Any:
        return filesystem_for("s3", read_timeout_s=self.read_timeout_s).call_s3(method, Bucket=self.bucket, **fields)

    def _body(self, response: dict[str, Any]) -> bytes:
        from fsspec.asyn import sync  # noqa: PLC0415 - loaded by now; at the top it would make every import slow

        return bytes(sync(filesystem_for("s3", read_timeout_s=self.read_timeout_s).loop, _read_whole, response["Body"]))

    def _retry(self, doing: str, name: str, call: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        return call_with_retries(call, what=f"{doing} {self._shown(name)}", policy=policy or self.policy)

    def _key(self, name: str) -> str:
        return self.prefix + check_name(name, inside=self.prefix)

    def _shown(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}{name}"

    def _absent(self, name: str) -> StoreError:
        return StoreError(f"get {self._shown(name)}: there is no such object")

    def _info(self, key: str, size_bytes: int, fields: dict[str, Any]) -> ObjectInfo:
        return ObjectInfo(name=key[len(self.prefix) :], bytes=size_bytes, version=fields.get("ETag", "").strip('"'))


async def _read_whole(body: Any) -> bytes:
    try:
        data: bytes = await body.read()
        return data
    finally:
        body.close()
