from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from mixer.errors import ChangedError
from mixer.storage.remote_file import PinnedFile, version_in

DATA = bytes(range(100))


class Handle(io.BytesIO):
    """A file whose first answers are as bad as it is told; no real store can be made to answer so."""

    def __init__(self, faults: Iterator[str], etag: str) -> None:
        super().__init__(DATA)
        self.details = {"size": len(DATA), "ETag": etag}
        self._faults = faults

    def read(self, size: int | None = -1) -> bytes:
        fault = next(self._faults, "")
        if fault == "reset":
            raise ConnectionResetError
        if fault == "hurt":
            raise ValueError("Invalid timestamp")
        data = super().read(size)
        return data[: len(data) // 2] if fault == "short" else data


class FaultyFileSystem:
    def __init__(self, *faults: str, etag: str = '"v1"') -> None:
        self.faults = iter(faults)
        self.etag = etag
        self.handles: list[Handle] = []

    def open(self, path: str, mode: str, **options: Any) -> Handle:
        self.handles.append(Handle(self.faults, self.etag))
        return self.handles[-1]


def opened(filesystem: FaultyFileSystem, version: str = "v1") -> PinnedFile:
    return PinnedFile(filesystem, "b/k", url="s3://b/k", length=len(DATA), version=version)


@pytest.mark.parametrize("fault", ["short", "reset"])
def test_a_range_that_failed_is_asked_for_again_on_a_new_handle(fault: str) -> None:
    filesystem = FaultyFileSystem(fault, "", fault)
    with opened(filesystem) as file:
        assert file.read(10) == DATA[:10]
        assert file.read(10) == DATA[10:20]
        assert len(filesystem.handles) == 3
        assert [handle.closed for handle in filesystem.handles] == [True, True, False]
    assert filesystem.handles[-1].closed


def test_it_reads_as_any_file_does() -> None:
    with opened(FaultyFileSystem()) as file:
        assert (file.seekable(), file.readable(), file.writable(), file.size()) == (True, True, False, 100)
        assert (file.seek(-3, io.SEEK_END), file.read(), file.read(), file.tell()) == (97, DATA[97:], b"", 100)
        assert (file.seek(5), file.seek(5, io.SEEK_CUR), file.read(2), file.tell()) == (5, 10, DATA[10:12], 12)
        assert (file.seek(200), file.read(1), file.seek(0)) == (200, b"", 0)
        buffer = bytearray(4)
        assert (file.readinto(buffer), bytes(buffer)) == (4, DATA[:4])


def test_another_version_is_refused_when_it_is_opened_and_when_it_is_opened_again() -> None:
    with pytest.raises(
        ChangedError, match=r"s3://b/k has changed .*expected 100 bytes, version v0; found .* version v1"
    ):
        opened(FaultyFileSystem(), version="v0")
    filesystem = FaultyFileSystem("reset")
    file = opened(filesystem)
    filesystem.etag = '"v2"'
    with pytest.raises(ChangedError, match="version v2"):
        file.read(1)
    assert all(handle.closed for handle in filesystem.handles)


def test_a_store_without_versions_is_checked_by_length_alone() -> None:
    with opened(FaultyFileSystem(), version="") as file:
        assert file.read(1) == DATA[:1]
    with pytest.raises(ChangedError, match=r"expected 99 bytes, version \(any\)"):
        PinnedFile(FaultyFileSystem(), "b/k", url="s3://b/k", length=99, version="")


def test_there_may_be_no_version() -> None:
    assert version_in({"name": "k", "size": 3}) == ""


def test_an_answer_that_is_not_understood_is_asked_for_again_and_a_mistake_of_ours_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filesystem = FaultyFileSystem("hurt")
    with opened(filesystem) as file:
        assert file.read(10) == DATA[:10]
        assert len(filesystem.handles) == 2
        monkeypatch.setattr(Handle, "seek", lambda self, offset: int("x"))
        with pytest.raises(ValueError, match="invalid literal"):
            file.read(10)
