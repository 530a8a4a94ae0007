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
from typing import Any, ClassVar

from mixer.errors import StoreError
from mixer.storage.base import ObjectInfo
from mixer.storage.filesystems import filesystem_for
from mixer.storage.remote import Condition, RemoteStore
from mixer.storage.retry import is_precondition_failed, understood

PUT_BYTES_MAX = 5 * 1024**3
"""S3's limit for one PutObject."""


@dataclass(frozen=True, slots=True)
class S3Store(RemoteStore):
    """The objects of an S3 bucket whose keys begin with a prefix."""

    PROTOCOL: ClassVar[str] = "s3"

    def _write(self, key: str, data: bytes, condition: Condition | None) -> Callable[[], bool]:
        if len(data) > PUT_BYTES_MAX:
            raise StoreError(
                f"put {self._shown_key(key)}: expected at most {PUT_BYTES_MAX} bytes, S3's limit for one upload, found"
                f" {len(data)}; make the shards smaller (batches_per_shard)"
            )
        # The server refuses a body that was hurt on its way.
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        fields = {"Key": key, "Body": data, "ChecksumSHA256": digest}
        if condition is not None:
            fields |= {"IfNoneMatch": "*"} if condition.version is None else {"IfMatch": f'"{condition.version}"'}
        return partial(self._write_once, fields)

    def _write_once(self, fields: dict[str, Any]) -> bool:
        try:
            self._call("put_object", **fields)
        except OSError as error:
            if is_precondition_failed(error):
                return False
            raise
        return True

    def _look(self, key: str) -> ObjectInfo:
        found = self._call("head_object", Key=key)
        return self._info(key, found["ContentLength"], found)

    def _read(self, key: str) -> bytes:
        response = self._call("get_object", Key=key)
        data = self._body(response)
        return self._checked(key, data, response.get("ContentLength", len(data)))

    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        response = self._call("get_object", Key=key, Range=f"bytes={start}-{stop - 1}")
        return self._checked_range(key, self._body(response), start, stop, response.get("ContentRange"))

    def _page(self, prefix: str, after: str, token: str | None) -> tuple[list[ObjectInfo], str | None]:
        request = {"Prefix": prefix}
        if after > prefix:
            request["StartAfter"] = after
        if token is not None:
            request["ContinuationToken"] = token
        page = self._call("list_objects_v2", **request)
        found = [self._info(item["Key"], item["Size"], item) for item in page.get("Contents", ())]
        return found, page["NextContinuationToken"] if page.get("IsTruncated") else None

    def _remove(self, key: str) -> None:
        self._call("delete_object", Key=key)

    def _call(self, method: str, **fields: Any) -> Any:
        filesystem = filesystem_for("s3", read_timeout_s=self.read_timeout_s)
        return understood(partial(filesystem.call_s3, method, Bucket=self.bucket, **fields))

    def _body(self, response: dict[str, Any]) -> bytes:
        from fsspec.asyn import sync  # noqa: PLC0415 - loaded by now; at the top it would make every import slow

        loop = filesystem_for("s3", read_timeout_s=self.read_timeout_s).loop
        return bytes(understood(partial(sync, loop, _read_whole, response["Body"])))

    def _info(self, key: str, size_bytes: int, fields: dict[str, Any]) -> ObjectInfo:
        return ObjectInfo(name=self._name(key), bytes=size_bytes, version=fields.get("ETag", "").strip('"'))


async def _read_whole(body: Any) -> bytes:
    try:
        data: bytes = await body.read()
        return data
    finally:
        body.close()
