"""What lies behind a link in a store on a disk is somebody else's: it is not read, written, listed or deleted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from mixer.errors import StoreError
from mixer.storage import LocalStore


def test_links_and_odd_files_are_neither_followed_out_nor_listed(tmp_path: Path) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    store = LocalStore(root)
    store.put("a", b"1")
    LocalStore(outside).put("b", b"1")
    (root / "dangling").symlink_to(tmp_path / "nothing")
    (root / "away").symlink_to(outside)
    (root / "around").symlink_to(root)
    os.mkfifo(root / "pipe")
    assert [info.name for info in store.list("")] == ["a"]


def on_all_verbs(store: LocalStore, name: str) -> dict[str, Callable[[], object]]:
    folder = name.rpartition("/")[0] + "/"
    return {
        "get": lambda: store.get(name),
        "get_range": lambda: store.get_range(name, 0, 1),
        "put": lambda: store.put(name, b"2"),
        "create": lambda: store.create(name, b"2"),
        "replace": lambda: store.replace(name, b"2", "x"),
        "list": lambda: store.list(folder),
        "list all": lambda: store.list(""),
        "delete": lambda: store.delete(name),
        "stat": lambda: store.stat(name),
    }


@pytest.mark.parametrize("verb", on_all_verbs(LocalStore("x"), "a/a"))
@pytest.mark.parametrize("folder", ["data", ".mixer", ".mixer/log", ".mixer/probe", ".mixer/tmp"])
def test_no_verb_goes_out_of_the_store_through_a_link(tmp_path: Path, folder: str, verb: str) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"1")
    (root / folder).parent.mkdir(parents=True)
    (root / folder).symlink_to(outside)
    name = "data/x" if folder == ".mixer/tmp" else f"{folder}/x"
    calls = on_all_verbs(LocalStore(root), name)
    if folder == ".mixer/tmp" and verb not in {"put", "create"}:
        # Nothing else goes there.
        return
    with pytest.raises(StoreError, match=f"{root / folder}: expected a folder, found a symbolic link; inside of an"):
        calls[verb]()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"x": b"1"}


def test_a_store_whose_own_folder_is_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link")
    store.put("data/x", b"1")
    assert store.get("data/x") == b"1"
    assert [info.name for info in store.list("")] == ["data/x"]
    assert (tmp_path / "real" / "data" / "x").read_bytes() == b"1"


def nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, chdir(path.parent):  # such a name may not be long
        server.bind(path.name)


@pytest.mark.parametrize("verb", ["get", "get_range", "create", "replace", "stat"])
@pytest.mark.parametrize(
    ("put", "kind"),
    [(os.mkfifo, "a pipe"), (nowhere, "a symbolic link that leads nowhere"), (socket_at, "a socket")],
    ids=["pipe", "link", "socket"],
)
def test_what_is_no_file_is_refused_in_an_objects_place_and_never_waited_for(
    tmp_path: Path, put: Callable[[Path], None], kind: str, verb: str
) -> None:
    store = LocalStore(tmp_path)
    put(tmp_path / "odd")
    with pytest.raises(StoreError, match=f"odd: expected a file, found {kind}; move it away"):
        on_all_verbs(store, "odd")[verb]()
    assert os.path.lexists(tmp_path / "odd")
    assert list((tmp_path / ".mixer/tmp").glob("*")) == []


def test_an_empty_object_is_not_taken_for_a_pipe_that_holds_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "odd")
    with pytest.raises(StoreError, match="found a pipe"):
        LocalStore(tmp_path).create("odd", b"")


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    store = LocalStore(tmp_path)
    found = store.stat("link")
    assert found is not None
    assert (found.bytes, store.get("link"), store.create("link", b"34")) == (2, b"12", False)
