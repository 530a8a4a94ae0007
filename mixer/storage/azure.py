"""A store in a container of Azure Blob Storage, through adlfs and the SDK below it.

Every object is one Put Blob, whatever its size up to Azure's limit: from 64 MiB on the SDK would by itself send
blocks, of which no checksum is kept and whose order two writers could mix. The server compares the body with the
MD5 that is sent with it, and keeps it. The SDK's retries are switched off, and none of adlfs's caches is used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from mixer.errors import StoreError
from mixer.storage.base import ObjectInfo
from mixer.storage.filesystems import filesystem_for
from mixer.storage.remote import Condition, RemoteStore
from mixer.storage.retry import AnswerError, is_precondition_failed, understood

T = TypeVar("T")

PUT_BYTES_MAX = 5000 * 1024**2
"""Azure's limit for one Put Blob."""
_METADATA = "x-ms-meta-"
_CODE_FULL_FOLDER = "DirectoryIsNotEmpty"
_CODES_UNMET = frozenset({"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet"})


@dataclass(frozen=True, slots=True)
class AzureStore(RemoteStore):
    """The objects of a container of Azure Blob Storage whose names begin with a prefix; versions are ETags."""

    account: str = ""
    """The storage account; empty: the one that the environment names."""

    PROTOCOL: ClassVar[str] = "az"
    ABSENT_HINT: ClassVar[str] = "check the container and the account"

    def _write(self, key: str, data: bytes, condition: Condition | None) -> Callable[[], bool]:
        if len(data) > PUT_BYTES_MAX:
            raise StoreError(
                f"put {self._shown_key(key)}: expected at most {PUT_BYTES_MAX} bytes, Azure's limit for one upload,"
                f" found {len(data)}; make the shards smaller (batches_per_shard)"
            )
        return partial(self._write_once, key, data, hashlib.md5(data, usedforsecurity=False).digest(), condition)

    def _write_once(self, key: str, data: bytes, md5: bytes, condition: Condition | None) -> bool:
        async def upload(client: Any) -> None:
            from azure.core import MatchConditions  # noqa: PLC0415 - loaded by now
            from azure.storage.blob import ContentSettings  # noqa: PLC0415 - as above

            options: dict[str, Any] = {"overwrite": True}
            if condition is not None and condition.version is None:
                options = {"overwrite": False}
            elif condition is not None:
                options |= {"etag": f'"{condition.version}"', "match_condition": MatchConditions.IfNotModified}
            async with client.get_blob_client(self.bucket, key) as blob:
                await blob.upload_blob(
                    data,
                    length=len(data),
                    # The server refuses a body that was hurt on its way, and keeps the MD5 for readers.
                    headers={"Content-MD5": base64.b64encode(md5).decode()},
                    content_settings=ContentSettings(content_md5=bytearray(md5)),
                    max_concurrency=1,
                    **options,
                )

        try:
            self._call(key, upload)
        except AnswerError as error:
            if not is_precondition_failed(error):
                raise
            if condition is not None and error.code in _CODES_UNMET:
                return False
            # Such as a lease that another holds on the blob.
            raise StoreError(f"put {self._shown_key(key)}: refused ({error}); check what holds the blob") from error
        return True

    def _look(self, key: str) -> ObjectInfo:
        async def look(client: Any) -> Any:
            async with client.get_blob_client(self.bucket, key) as blob:
                return await blob.get_blob_properties()

        found = self._call(key, look)
        if _is_folder(found.metadata):
            raise FileNotFoundError(self._shown_key(key))
        return self._info(key, found)

    def _read(self, key: str) -> bytes:
        data, headers = self._download(key)
        if _is_folder({name.removeprefix(_METADATA): value for name, value in headers.items()}):
            raise FileNotFoundError(self._shown_key(key))
        length = headers.get("Content-Range", "").rpartition("/")[2]
        self._checked(key, data, int(length) if length.isdigit() else len(data))
        expected = headers.get("x-ms-blob-content-md5") or headers.get("Content-MD5")
        found = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        if expected is not None and expected != found:
            raise ConnectionError(f"{self._shown_key(key)}: expected md5={expected}, found md5={found}")
        return data

    def _read_range(self, key: str, start: int, stop: int) -> bytes:
        data, headers = self._download(key, offset=start, length=stop - start)
        return self._checked_range(key, data, start, stop, headers.get("Content-Range"))

    def _download(self, key: str, **which: int) -> tuple[bytes, Any]:
        answers: list[Any] = []

        async def download(client: Any) -> bytes:
            async with client.get_blob_client(self.bucket, key) as blob:
                stream = await blob.download_blob(
                    max_concurrency=1, raw_response_hook=lambda answer: answers.append(answer.http_response), **which
                )
                return bytes(await stream.readall())

        data = self._call(key, download)
        return data, answers[-1].headers

    def _page(
        self,
        prefix: str,
        after: str,  # noqa: ARG002 - the service could begin there, but not every account and emulator knows how
        token: str | None,
    ) -> tuple[list[ObjectInfo], str | None]:
        async def list_page(client: Any) -> tuple[list[Any], str | None]:
            async with client.get_container_client(self.bucket) as container:
                pages = container.list_blobs(name_starts_with=prefix or None, include=["metadata"]).by_page(token)
                async for page in pages:
                    return [blob async for blob in page], pages.continuation_token or None
            return [], None

        blobs, following = self._call(prefix, list_page)
        return [self._info(blob.name, blob) for blob in blobs if not _is_folder(blob.metadata)], following

    def _remove(self, key: str) -> None:
        async def remove(client: Any) -> None:
            async with client.get_blob_client(self.bucket, key) as blob:
                await blob.delete_blob()

        try:
            self._call(key, remove)
        except AnswerError as error:
            if error.code != _CODE_FULL_FOLDER:
                raise

    def _call(self, key: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        """Ask the service once; an answer that says no is an `AnswerError`."""
        from azure.core.exceptions import HttpResponseError  # noqa: PLC0415 - see below
        from fsspec.asyn import sync  # noqa: PLC0415 - at the top they would make every import slow

        from mixer.storage.azure_filesystem import raise_answer  # noqa: PLC0415 - as above

        filesystem = filesystem_for("az", read_timeout_s=self.read_timeout_s, account=self.account)
        try:
            answer: T = understood(partial(sync, filesystem.loop, ask, filesystem.service_client))
        except HttpResponseError as error:
            raise_answer(error, self._shown_key(key))
        return answer

    def _shown_key(self, key: str) -> str:
        place = f"{self.bucket}@{self.account}.dfs.core.windows.net" if self.account else self.bucket
        return f"{'abfss' if self.account else self.PROTOCOL}://{place}/{key}"

    def _info(self, key: str, fields: Any) -> ObjectInfo:
        return ObjectInfo(name=self._name(key), bytes=int(fields.size), version=str(fields.etag).strip('"'))


def _is_folder(metadata: Mapping[str, str] | None) -> bool:
    """Return whether a blob is no object but a folder, as accounts with a hierarchical namespace keep one."""
    return any(name.lower() == "hdi_isfolder" and value == "true" for name, value in (metadata or {}).items())
