"""A fake of Google Cloud Storage's JSON interface, as far as mixer's client speaks it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from tests.storage.fake_server import FakeService, Reply, Request, Stored, grouped, sliced

BUCKET = "bucket"
_UNMET = "At least one of the pre-conditions you specified did not hold."


class FakeGCS(FakeService):
    """Buckets of objects with generations; a multipart upload is the only one it takes."""

    def __init__(self) -> None:
        super().__init__(BUCKET)

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a client there, and nowhere else."""
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.port}", "NO_GCE_CHECK": "true"}

    def refusal(self, status: int) -> Reply:
        reason = {403: "forbidden", 500: "backendError", 503: "backendError"}[status]
        return _error(status, reason, "Permission denied on resource" if status == 403 else "Try again")

    def answer(self, request: Request) -> Reply:
        parts = list(request.path)
        service = parts.pop(0) if parts[0] in {"upload", "download"} else ""
        assert parts[:3] == ["storage", "v1", "b"], request.path
        # Nothing behind the bucket: what is asked for is the bucket itself.
        bucket, kind, *names = [*parts[3:], ""] if len(parts) == 4 else parts[3:]
        with self.lock:
            objects = self.buckets.get(bucket)
            if objects is None:
                return _error(404, "notFound", "The specified bucket does not exist.")
            if not kind:
                return _json({"kind": "storage#bucket", "name": bucket})
            if service == "upload":
                return self._insert(bucket, objects, request)
            if not names:
                return self._list(bucket, objects, request.query)
            return _on_object(bucket, objects, names[0], request)

    def _insert(self, bucket: str, objects: dict[str, Stored], request: Request) -> Reply:
        if request.query.get("uploadType") != "multipart":
            return _error(400, "invalid", "this fake takes multipart uploads only")
        about, data = _parts(request)
        md5 = _md5(data)
        if about.get("md5Hash", md5) != md5:
            words = f'Provided MD5 hash "{about["md5Hash"]}" doesn\'t match calculated MD5 hash "{md5}".'
            return _error(400, "invalid", words)
        if not _is_met(request.query, objects.get(about["name"])):
            return _error(412, "conditionNotMet", _UNMET)
        objects[about["name"]] = Stored(data, self.next_version())
        return _json(_resource(bucket, about["name"], objects[about["name"]]))

    def _list(self, bucket: str, objects: dict[str, Stored], query: dict[str, str]) -> Reply:
        prefix, start = query.get("prefix", ""), query.get("startOffset", "")
        names = [name for name in objects if name.startswith(prefix) and name.encode() >= start.encode()]
        entries = grouped(names, prefix, query.get("delimiter", ""))
        token = query.get("pageToken", "")
        waiting = [entry for entry in entries if entry[0].encode() > token.encode()]
        page = waiting[: min(self.page, int(query.get("maxResults", 1000)))]
        answer: dict[str, Any] = {"kind": "storage#objects"}
        # Empty lists are left out, as the service does.
        if items := [_resource(bucket, name, objects[name]) for name, is_prefix in page if not is_prefix]:
            answer["items"] = items
        if prefixes := [name for name, is_prefix in page if is_prefix]:
            answer["prefixes"] = prefixes
        if len(waiting) > len(page):
            answer["nextPageToken"] = page[-1][0]
        return _json(answer)


def _on_object(bucket: str, objects: dict[str, Stored], name: str, request: Request) -> Reply:
    found = objects.get(name)
    if found is None:
        return _error(404, "notFound", f"No such object: {bucket}/{name}")
    if not _is_met(request.query, found):
        return _error(412, "conditionNotMet", _UNMET)
    if request.method == "DELETE":
        del objects[name]
        return Reply(204)
    if request.query.get("alt") == "media":
        return _media(found, request.headers.get("range"))
    return _json(_resource(bucket, name, found))


def _is_met(query: dict[str, str], found: Stored | None) -> bool:
    wanted = query.get("ifGenerationMatch")
    return wanted is None or int(wanted) == (found.version if found is not None else 0)


def _parts(request: Request) -> tuple[dict[str, Any], bytes]:
    boundary = request.headers["content-type"].partition('boundary="')[2].rstrip('"').encode()
    empty, first, rest = request.body.split(b"--" + boundary, 2)
    assert empty == b""
    second, _, closing = rest.rpartition(b"--" + boundary)
    assert closing.startswith(b"--")
    about = first.partition(b"\r\n\r\n")[2]
    return json.loads(about), second.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def _media(found: Stored, wanted: str | None) -> Reply:
    part = sliced(found.data, wanted)
    if part is None:
        return Reply(416, b"The requested range cannot be satisfied.", {"Content-Range": f"bytes */{len(found.data)}"})
    status, data, content_range = part
    headers = {
        "X-Goog-Generation": str(found.version),
        "X-Goog-Hash": f"crc32c=AAAAAA==,md5={_md5(found.data)}",
        "X-Goog-Stored-Content-Length": str(len(found.data)),
    }
    return Reply(status, data, headers | ({"Content-Range": content_range} if content_range else {}))


def _resource(bucket: str, name: str, found: Stored) -> dict[str, Any]:
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "size": str(len(found.data)),
        "generation": str(found.version),
        "metageneration": "1",
        "md5Hash": _md5(found.data),
        "etag": base64.b64encode(str(found.version).encode()).decode(),
        "updated": "2026-01-02T03:04:05.678Z",
        "timeCreated": "2026-01-02T03:04:05.678Z",
    }


def _json(value: dict[str, Any]) -> Reply:
    return Reply(200, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def _error(status: int, reason: str, message: str) -> Reply:
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}
    return Reply(status, json.dumps({"error": error}).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
