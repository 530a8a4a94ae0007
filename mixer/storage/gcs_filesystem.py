"""gcsfs as mixer uses it: one try a request, errors that tell their status, reads pinned to a generation.

Imports gcsfs, which takes a second: import it only where Google Cloud Storage is used. It is the file system over
JSON and HTTP; the one over gRPC, which gcsfs would choose for zonal buckets, is left alone.
"""

from __future__ import annotations

import json as jsons
import os
from typing import Any

from aiohttp import ClientTimeout
from fsspec.config import conf
from gcsfs.core import GCSFileSystem

from mixer.errors import StoreError
from mixer.storage.range_file import RangeFile
from mixer.storage.retry import AbsentError, AnswerError

_STATUS_BAD_REQUEST = 400
_STATUS_FORBIDDEN = 403
_STATUS_ABSENT = 404


class OneTryGCSFileSystem(GCSFileSystem):  # type: ignore[misc]  # gcsfs publishes no types
    """Google Cloud Storage without retries, caches, or errors that hide their status."""

    async def _request(  # noqa: PLR0913 - gcsfs's own parameters
        self,
        method: str,
        path: str,
        *args: str,
        headers: dict[str, str] | None = None,
        json: Any = None,
        data: Any = None,
        cache_type: str | None = None,  # noqa: ARG002 - gcsfs counts by it what it caches; nothing is cached here
        cache_source: str | None = None,  # noqa: ARG002 - as above
        **params: Any,
    ) -> tuple[int, Any, Any, bytes]:
        """Send one request and return status, headers, request and body; an `AnswerError` tells of a refusal."""
        await self._set_session()
        async with self.session.request(
            method=method,
            url=self._format_path(path, args),
            params=self._get_params(params),
            json=json,
            headers=self._get_headers(headers),
            data=data,
            timeout=self.requests_timeout,
        ) as response:
            body: bytes = await response.read()
            if response.status >= _STATUS_BAD_REQUEST:
                raise refusal(response.status, body, "/".join(args) or path)
            return response.status, response.headers, response.request_info, body

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, version: str = "", **_kwargs: Any
    ) -> bytes:
        bucket, key, _ = self.split_path(path)
        headers = {"Accept-Encoding": "identity"}
        if start is not None or end is not None:
            headers["Range"] = await self._process_limits(path, start, end)
        condition = {"ifGenerationMatch": version} if version else {}
        address = self._location + "/download/storage/v1/b/{}/o/{}"
        _, data = await self._call("GET", address, bucket, key, headers=headers, alt="media", **condition)
        return bytes(data)

    def _open(self, path: str, mode: str = "rb", **_kwargs: Any) -> RangeFile:
        if mode != "rb":
            raise ValueError(f"{path}: expected to be opened for reading, found {mode!r}")
        return RangeFile(self, path, version_key="generation")


def make_gcs_filesystem(connect_timeout_s: float, read_timeout_s: float) -> OneTryGCSFileSystem:
    """Return a file system with the environment's credentials; an emulator (STORAGE_EMULATOR_HOST) needs none.

    Raises:
        StoreError: The environment's credentials are not understood.
    """
    settings: dict[str, Any] = {}
    emulated = os.environ.get("STORAGE_EMULATOR_HOST", "") not in {"", "default"}
    if emulated and not any("token" in conf.get(protocol, {}) for protocol in GCSFileSystem.protocol):
        settings["token"] = "anon"  # noqa: S105 - gcsfs's word for none
    try:
        return OneTryGCSFileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            requests_timeout=ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=read_timeout_s),
            **settings,
        )
    except ValueError as error:
        # The words may hold what was wrong, and that may be a secret.
        raise StoreError(
            f"Google: the settings of the environment are not understood ({type(error).__name__}); check"
            " GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"
        ) from None


def refusal(status: int, body: bytes, shown: str) -> AnswerError:
    """Return the error that an answer of this status means; `shown` says what was asked for."""
    text = body.decode(errors="replace").strip()
    message, code = text, ""
    try:
        error = jsons.loads(text)["error"]
        message = str(error["message"])
        code = str(error["errors"][0]["reason"])
    except (ValueError, LookupError, TypeError):
        # Where a whole object is asked for, Google answers in plain text.
        pass
    if status == _STATUS_ABSENT:
        code = "NoSuchBucket" if "bucket does not exist" in message else code
        return AbsentError(status, code, f"{shown}: {message}")
    if status == _STATUS_BAD_REQUEST and "match calculated" in message:
        code = "BadDigest"
    # gcsfs looks for this word to find out whether it may list at least.
    forbidden = "Forbidden: " if status == _STATUS_FORBIDDEN else ""
    return AnswerError(status, code, f"{forbidden}{shown}: {message}")
