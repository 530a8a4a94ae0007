"""A fake of Azure Blob Storage's REST interface, as far as mixer's client speaks it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import PurePosixPath
from xml.sax.saxutils import escape

from tests.storage.fake_server import FakeService, Reply, Request, Stored, grouped, sliced

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = base64.b64encode(b"the key of a fake account that lives as long as the tests").decode()
CONTAINER = "container"
_DATE = "Fri, 02 Jan 2026 03:04:05 GMT"
_WORDS = {
    "AuthorizationFailure": "This request is not authorized to perform this operation.",
    "BlobAlreadyExists": "The specified blob already exists.",
    "BlobNotFound": "The specified blob does not exist.",
    "ConditionNotMet": "The condition specified using HTTP conditional header(s) is not met.",
    "ContainerNotFound": "The specified container does not exist.",
    "DirectoryIsNotEmpty": "This operation is not permitted on a non-empty directory.",
    "InternalError": "The server encountered an internal error. Please retry the request.",
    "InvalidQueryParameterValue": "this fake takes whole blobs only",
    "InvalidRange": "The range specified is invalid for the current size of the resource.",
    "LeaseIdMissing": "There is currently a lease on the blob and no lease ID was specified in the request.",
    "Md5Mismatch": "The MD5 value specified in the request did not match with the MD5 value calculated by the server.",
    "ServerBusy": "The server is busy.",
}


class FakeAzure(FakeService):
    """Containers of block blobs with ETags; Put Blob is the only upload it takes.

    Attributes:
        leased: Names of blobs that somebody else holds a lease on.
        hierarchical: Whether folders are blobs too, as in accounts with a hierarchical namespace.
    """

    def __init__(self) -> None:
        super().__init__(CONTAINER)
        self.leased: set[str] = set()
        self.hierarchical = False

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a client there, and nowhere else."""
        endpoint = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={endpoint};"
            )
        }

    def refusal(self, status: int) -> Reply:
        return _error(status, {403: "AuthorizationFailure", 500: "InternalError", 503: "ServerBusy"}[status])

    def answer(self, request: Request) -> Reply:
        account, container, *names = request.path
        assert account == ACCOUNT
        assert request.headers["authorization"].startswith(f"SharedKey {ACCOUNT}:")
        with self.lock:
            objects = self.buckets.get(container)
            if objects is None:
                return _error(404, "ContainerNotFound")
            if request.query.get("restype") != "container":
                return self._on_blob(objects, "/".join(names), request)
            if request.query.get("comp") == "list":
                return self._list(container, objects, request.query)
            return Reply(200, headers=_common(1))

    def _on_blob(self, objects: dict[str, Stored], name: str, request: Request) -> Reply:
        if request.method == "PUT":
            return self._put(objects, name, request)
        found = objects.get(name)
        if found is None and name in self._folders(objects):
            return _error(409, "DirectoryIsNotEmpty") if request.method == "DELETE" else _folder(request)
        if found is None:
            return _error(404, "BlobNotFound")
        if request.headers.get("if-match", _etag(found.version)) != _etag(found.version):
            return _error(412, "ConditionNotMet")
        if request.method == "DELETE":
            del objects[name]
            return Reply(202, headers={"x-ms-request-id": "1"})
        return _get(found, request)

    def _put(self, objects: dict[str, Stored], name: str, request: Request) -> Reply:
        if "comp" in request.query or request.headers["x-ms-blob-type"] != "BlockBlob":
            return _error(400, "InvalidQueryParameterValue")
        headers, found = request.headers, objects.get(name)
        if headers.get("content-md5", _md5(request.body)) != _md5(request.body):
            return _error(400, "Md5Mismatch")
        if headers.get("if-none-match") == "*" and found is not None:
            return _error(409, "BlobAlreadyExists")
        if "if-match" in headers and (found is None or headers["if-match"] not in {"*", _etag(found.version)}):
            return _error(412, "ConditionNotMet")
        if name in self.leased:
            return _error(412, "LeaseIdMissing")
        objects[name] = Stored(request.body, self.next_version())
        return Reply(201, headers=_common(objects[name].version) | {"Content-MD5": _md5(request.body)})

    def _list(self, container: str, objects: dict[str, Stored], query: dict[str, str]) -> Reply:
        prefix, marker = query.get("prefix", ""), query.get("marker", "")
        folders = self._folders(objects)
        names = [name for name in (*objects, *folders) if name.startswith(prefix)]
        entries = grouped(names, prefix, query.get("delimiter", ""))
        waiting = [entry for entry in entries if entry[0].encode() >= marker.encode()]
        size = min(self.page, int(query.get("maxresults", 5000)))
        page, following = waiting[:size], waiting[size:]
        blobs = "".join(_prefix_xml(n) if is_prefix else _blob_xml(n, objects.get(n)) for n, is_prefix in page)
        following_xml = f"<NextMarker>{escape(following[0][0])}</NextMarker>" if following else "<NextMarker />"
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://127.0.0.1/{ACCOUNT}"'
            f' ContainerName="{container}"><Prefix>{escape(prefix)}</Prefix><Blobs>{blobs}</Blobs>{following_xml}'
            "</EnumerationResults>"
        )
        return Reply(200, body.encode(), {"Content-Type": "application/xml", "x-ms-request-id": "1"})

    def _folders(self, objects: dict[str, Stored]) -> set[str]:
        return (
            {str(above) for name in objects for above in PurePosixPath(name).parents[:-1]}
            if self.hierarchical
            else set()
        )


def _folder(request: Request) -> Reply:
    headers = _common(1) | {"x-ms-blob-type": "BlockBlob", "x-ms-meta-hdi_isfolder": "true"}
    ranged = request.method == "GET" and ("x-ms-range" in request.headers or "range" in request.headers)
    return _error(416, "InvalidRange") if ranged else Reply(200, headers=headers)


def _get(found: Stored, request: Request) -> Reply:
    headers = _common(found.version) | {"x-ms-blob-type": "BlockBlob", "Accept-Ranges": "bytes"}
    if request.method == "HEAD":
        return Reply(200, headers=headers | {"Content-Length": str(len(found.data)), "Content-MD5": _md5(found.data)})
    part = sliced(found.data, request.headers.get("x-ms-range") or request.headers.get("range"))
    if part is None:
        return _error(416, "InvalidRange")
    status, data, content_range = part
    headers["Content-Type"] = "application/octet-stream"
    if content_range is None:
        return Reply(status, data, headers | {"Content-MD5": _md5(found.data)})
    return Reply(status, data, headers | {"Content-Range": content_range, "x-ms-blob-content-md5": _md5(found.data)})


def _common(version: int) -> dict[str, str]:
    return {"ETag": _etag(version), "Last-Modified": _DATE, "x-ms-request-id": "1", "x-ms-version": "2026-10-06"}


def _etag(version: int) -> str:
    return f'"0x{version:X}"'


def _prefix_xml(name: str) -> str:
    return f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"


def _blob_xml(name: str, found: Stored | None) -> str:
    """Return the entry of a blob, or of a folder (None)."""
    data, version = (found.data, found.version) if found is not None else (b"", 1)
    metadata = "" if found is not None else "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"
    # Listings give ETags without quotes.
    etag = _etag(version).strip('"')
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{_DATE}</Last-Modified><Etag>{etag}</Etag>"
        f"<Content-Length>{len(data)}</Content-Length><Content-MD5>{_md5(data)}</Content-MD5>"
        f"<BlobType>BlockBlob</BlobType></Properties>{metadata}</Blob>"
    )


def _error(status: int, code: str) -> Reply:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{_WORDS[code]}</Message></Error>'
    return Reply(status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code})


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
