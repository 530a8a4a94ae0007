"""A store in a bucket of Google Cloud Storage, through gcsfs.

Every object is one upload (`uploadType=multipart`: what is known of the object, and its bytes, in one request),
whatever its size: gcsfs itself turns to a resumable upload from 50 MiB on, whose condition is looked at when it
begins and whose parts carry no checksum. The server compares the body with the MD5 that is sent with it. Nothing
is repeated by gcsfs, and none of its caches is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from mixer.storage.base import ObjectInfo
from mixer.storage.filesystems import filesystem_for
from mixer.storage.remote import Condition, RemoteStore
from mixer.storage.retry import is_precondition_failed, understood

_FIELDS = "name,size,generation"
_NEVER = partial(bool, False)  # noqa: FBT003 - it stands for a try, and is what that returns


@dataclass(frozen=True, slots=True)
class GCSStore(RemoteStore):
    """The objects of a bucket of Google Cloud Storage whose names begin with a prefix; versions are generations."""

    PROTOCOL: ClassVar[str] = "gs"

    def _write(self, key: str, data: bytes, condition: Condition | None) -> Callable[[], bool]:
        params = {}
        if condition is not None:
            generation = "0" if condition.version is None else condition.version
            # A condition of 0 would ask for absence, and what is no number is refused: no object has such a version.
            if condition.version is not None and not _is_generation(generation):
                return _NEVER
            params = {"ifGenerationMatch": generation}
        # The server refuses a body that was hurt on its way.
        about = json.dumps({"name": key, "md5Hash": _md5(data)}).encode()
        boundary = uuid.uuid4().hex.encode()
        head = b"--%b\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%b\r\n" % (boundary, about)
        head += b"--%b\r\nContent-Type: application/octet-stream\r\n\r\n" % boundary
        body = b"".join((head, data, b"\r\n--%b--" % boundary))
        return partial(self._write_once, boundary.decode(), body, params)

    def _write_once(self, boundary: str, body: bytes, params: dict[str, str]) -> bool:
        try:
            self._call(
                "POST",
                self._address("upload"),
                self.bucket,
                headers={"Content-Type": f'multipart/related; boundary="{boundary}"'},
                # Plain bytes of more than 1 MiB would hold up all other requests; they are not copied here.
                data=io.BytesIO(body),
                uploadType="multipart",
                **params,
            )
        except OSError as error:
            if is_precondition_failed(error):
                return False
            raise
        return True

    def _look(self, key: str) -> ObjectInfo:
        return self._info(self._json("GET", "b/{}/o/{}", self.bucket, key, fields=_FIELDS))

    def _read(self, key: str) -> bytes:
        headers, data = self._media(key)
        stored_bytes = headers.get("X-Goog-Stored-Content-Length", "")
        self._checked(key, data, int(stored_bytes) if stored_bytes.isdigit() else len(data))
        for hashed in ",".join(headers.getall("X-Goog-Hash", ())).split(","):
            if hashed.strip().startswith("md5=") and hashed.strip() != f"md5={_md5(data)}":
                raise ConnectionError(f"{self._shown_key(key)}: expected {hashed.strip()}, found md5={_md5(data)}")
        return data

    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        headers, data = self._media(key, Range=f"bytes={start}-{stop - 1}")
        return self._checked_range(key, data, start, stop, headers.get("Content-Range"))

    def _page(self, prefix: str, after: str, token: str | None) -> tuple[list[ObjectInfo], str | None]:
        params = {"prefix": prefix, "fields": f"items({_FIELDS}),nextPageToken"}
        if after > prefix:
            params["startOffset"] = after
        if token is not None:
            params["pageToken"] = token
        page = self._json("GET", "b/{}/o", self.bucket, **params)
        return [self._info(item) for item in page.get("items", ())], page.get("nextPageToken")

    def _remove(self, key: str) -> None:
        self._call("DELETE", "b/{}/o/{}", self.bucket, key)

    def _media(self, key: str, **headers: str) -> tuple[Any, bytes]:
        headers["Accept-Encoding"] = "identity"
        address = self._address("download") + "/{}"
        found, data = self._call("GET", address, self.bucket, key, headers=headers, alt="media")
        return found, bytes(data)

    def _address(self, service: str) -> str:
        return f"{self._filesystem()._location}/{service}/storage/v1/b/{{}}/o"  # noqa: SLF001 - gcsfs has no public name for it

    def _json(self, method: str, path: str, *args: str, **params: Any) -> dict[str, Any]:
        _, body = self._call(method, path, *args, **params)
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ConnectionError(f"{self._shown_key('')}: expected JSON, found {body[:100]!r}") from error
        return dict(found)

    def _call(self, method: str, path: str, *args: str, **params: Any) -> tuple[Any, bytes]:
        headers, body = understood(partial(self._filesystem().call, method, path, *args, **params))
        return headers, body

    def _filesystem(self) -> Any:
        return filesystem_for("gs", read_timeout_s=self.read_timeout_s)

    def _info(self, fields: dict[str, Any]) -> ObjectInfo:
        return ObjectInfo(
            name=self._name(fields["name"]),
            bytes=understood(partial(int, fields["size"])),
            version=str(fields["generation"]),
        )


def _is_generation(version: str) -> bool:
    return version.isascii() and version.isdigit() and int(version) > 0


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
