"""What lies behind a link in a store on a disk is somebody else's: it is not read, written, listed or deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
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
