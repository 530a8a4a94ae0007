"""adlfs as mixer uses it: one try a request, reads pinned to an ETag, names taken as they are.

Imports adlfs and the SDK below it: import it only where Azure Blob Storage is used.
"""

from __future__ import annotations

import io
import os
from typing import Any, NoReturn

from adlfs import AzureBlobFileSystem
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import BlobServiceClient

from mixer.errors import StoreError
from mixer.storage.range_file import RangeFile
from mixer.storage.retry import AbsentError, AnswerError, error_code
from mixer.storage.urls import split_azure, split_protocol

_ONE_REQUEST = 1024**5
"""More bytes than a blob has: nothing is cut into parts, neither on its way there nor back."""
_STATUS_ABSENT = 404
_ACCOUNT_MISSING = (
    "Azure: expected to know the account; set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with"
    " AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or an identity that DefaultAzureCredential finds"
)


class OneTryTransport(AioHttpTransport):  # type: ignore[misc]  # without types, as aiohttp has none here
    """HTTP as Azure's SDK asks for it, but bodies are read whole here, where a failure is not tried again unseen."""

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:  # noqa: ARG002 - see above
        return await super().send(request, stream=False, **options)

    def _get_request_data(self, request: Any) -> Any:
        data = super()._get_request_data(request)
        # Plain bytes of more than 1 MiB would hold up all other requests; they are not copied here.
        return io.BytesIO(data) if isinstance(data, bytes) else data


class OneTryAzureFileSystem(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs publishes no types
    """Azure Blob Storage without retries or caches."""

    def do_connect(self) -> None:
        options: dict[str, Any] = {
            "retry_total": 0,
            "max_single_put_size": _ONE_REQUEST,
            "max_single_get_size": _ONE_REQUEST,
            "transport": OneTryTransport(**self._timeout_kwargs),
        }
        try:
            if self.connection_string is not None:
                self.service_client = BlobServiceClient.from_connection_string(self.connection_string, **options)
                return
            if self.account_name is None:
                raise StoreError(_ACCOUNT_MISSING)
            self.account_url = f"https://{self.account_name}.blob.core.windows.net"
            credential = self.credential or self.account_key or self.sas_token
            self.service_client = BlobServiceClient(self.account_url, credential=credential, **options)
        except ValueError as error:
            # The words may hold what was wrong, and that may be a secret.
            raise StoreError(
                f"Azure: the settings of the account are not understood ({type(error).__name__});"
                " check AZURE_STORAGE_CONNECTION_STRING and the account's name"
            ) from None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        protocol, rest = split_protocol(path)
        if protocol not in cls.protocol:
            return path.lstrip("/")
        container, _, key = split_azure(rest)
        return f"{container}/{key}".rstrip("/") if container else ""

    def split_path(self, path: str, **_kwargs: Any) -> tuple[str, str, None]:
        container, _, key = self._strip_protocol(path).partition("/")
        return container, key, None

    async def _find(self, path: str, *, detail: bool = False, **_kwargs: Any) -> Any:
        """Return what lies below the folder `path`; adlfs's own returns another type if it is a file."""
        container, key, _ = self.split_path(path)
        async with self.service_client.get_container_client(container) as client:
            blobs = client.list_blobs(include=["metadata"], name_starts_with=f"{key}/" if key else None)
            try:
                infos = await self._details([blob async for blob in blobs])
            except ResourceNotFoundError as error:
                raise FileNotFoundError(path) from error
        found = {info["name"]: info for info in infos if info["type"] == "file"}
        return found if detail else list(found)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, version: str = "", **_kwargs: Any
    ) -> bytes:
        container, key, _ = self.split_path(path)
        length = None if end is None else end - (start or 0)
        options: dict[str, Any] = {"offset": start if length is None else start or 0, "length": length}
        if version:
            options |= {"etag": version, "match_condition": MatchConditions.IfNotModified}
        async with self.service_client.get_blob_client(container, key) as blob:
            try:
                stream = await blob.download_blob(max_concurrency=1, **options)
                return bytes(await stream.readall())
            except HttpResponseError as error:
                raise_answer(error, path)

    def _open(self, path: str, mode: str = "rb", **_kwargs: Any) -> RangeFile:
        if mode != "rb":
            raise ValueError(f"{path}: expected to be opened for reading, found {mode!r}")
        return RangeFile(self, path, version_key="etag")


def make_azure_filesystem(connect_timeout_s: float, read_timeout_s: float, account: str) -> OneTryAzureFileSystem:
    """Return a file system with the environment's credentials; `account` is what the address names, or empty.

    Raises:
        StoreError: The environment names no account, or another one.
    """
    connection = dict(
        part.partition("=")[::2] for part in os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    )
    named = connection.get("AccountName")
    if account and connection != {"": ""} and named != account:
        raise StoreError(
            f"Azure: the address names the account {account!r}, AZURE_STORAGE_CONNECTION_STRING names"
            f" {named or 'none'!r}; leave one of them out"
        )
    return OneTryAzureFileSystem(
        account_name=account or None,
        skip_instance_cache=True,
        use_listings_cache=False,
        max_concurrency=1,
        connection_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
    )


def raise_answer(error: HttpResponseError, shown: str) -> NoReturn:
    """Raise `error` as an answer that tells its status, if it holds one; else as it is, since nothing was answered."""
    status = error.status_code
    if status is None:
        raise error
    code = error_code(error)
    message = f"{shown}: {str(error).partition(chr(10))[0]}"
    if status == _STATUS_ABSENT:
        raise AbsentError(status, code, message) from error
    raise AnswerError(status, code, message) from error
