"""What every store promises, held against each of them."""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from mixer.errors import OutputError, StoreError
from mixer.storage import Store, open_store, probe_create_only
from mixer.testing import MemoryStore, OverwritingStore

ESCAPING = (
    "..",
    "../outside",
    "data/../../outside",
    "data/..",
    "./data",
    "data/.",
    "/etc/passwd",
    "//data",
    "data//shard",
    "data/",
    "",
    "/",
    "a\0b",
    "a\nb",
    "a\rb",
    "a\x1bb",
    "a\\b",
    "a\u2028b",
    "x" * 1025,
    "\u00e9" * 513,
    "a/" * 600 + "a",
    ".mixer/tmp",
    ".mixer/tmp/a",
)
ALLOWED = (
    "data/shard-00000000.parquet",
    ".mixer/log/000000000000.json",
    "a b",
    "\u00e9\u4e16",
    "a?versionId=b",
    "a#b",
    "a%2Fb",
    "..a",
    "a*[b]",
    "~",
    "=+&;:@,$!'()",
)


def names(store: Store, prefix: str = "", after: str = "") -> list[str]:
    return [info.name for info in store.list(prefix, after=after)]


def test_what_was_put_is_got(store: Store) -> None:
    store.put("data/a", b"one")
    assert store.get("data/a") == b"one"


def test_a_put_replaces_the_whole_object(store: Store) -> None:
    store.put("a", b"a long first version")
    store.put("a", b"short")
    assert store.get("a") == b"short"


def test_there_is_nothing_under_a_name_not_written(store: Store) -> None:
    store.put("a/b", b"1")
    for name in ("b", "a", "a/b/c", "a/bc"):
        assert store.get(name) is None
        assert store.stat(name) is None


def test_an_empty_store_is_empty(store: Store) -> None:
    assert store.list("") == []
    assert store.list("data/") == []
    assert store.get("a") is None
    assert store.stat("a") is None
    store.delete("a")


def test_an_empty_object_is_an_object(store: Store) -> None:
    assert store.create("a", b"")
    assert not store.create("a", b"1")
    assert store.get("a") == b""
    assert store.get_range("a", 0, 10) == b""
    assert [info.bytes for info in store.list("")] == [0]


def test_every_byte_comes_back(store: Store) -> None:
    data = bytes(range(256)) * 5000
    store.put("a", data)
    assert store.get("a") == data


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 10), (0, 4), (3, 7), (9, 10), (9, 11), (5, 10**12), (10, 20), (11, 20), (0, 0), (4, 4), (99, 99)],
)
def test_a_range_is_a_slice_of_the_object(store: Store, start: int, stop: int) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", start, stop) == b"0123456789"[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 0), (5, 9)])
def test_a_range_of_nothing_is_refused(store: Store, start: int, stop: int) -> None:
    with pytest.raises(StoreError, match="there is no such"):
        store.get_range("a", start, stop)


@pytest.mark.parametrize(("start", "stop"), [(-1, 4), (4, 3), (-2, -1)])
def test_a_range_that_is_none_is_refused(store: Store, start: int, stop: int) -> None:
    store.put("a", b"0123456789")
    with pytest.raises(ValueError, match="expected 0 <= start <= stop"):
        store.get_range("a", start, stop)


def test_a_name_is_created_once(store: Store) -> None:
    assert store.create("log/0", b"first")
    assert not store.create("log/0", b"second")
    assert not store.create("log/0", b"third")
    assert store.get("log/0") == b"first"


def test_creating_the_same_bytes_again_counts_as_ones_own(store: Store) -> None:
    assert store.create("a", b"same")
    assert store.create("a", b"same")
    assert not store.create("a", b"sane")


def version_of(store: Store, name: str) -> str:
    info = store.stat(name)
    assert info is not None
    return info.version


def test_a_version_is_replaced_once(store: Store) -> None:
    store.create("data/a", b"one")
    first = version_of(store, "data/a")
    assert store.replace("data/a", b"the second", first)
    assert store.get("data/a") == b"the second"
    assert version_of(store, "data/a") != first
    assert not store.replace("data/a", b"the third", first)
    assert store.get("data/a") == b"the second"
    assert store.replace("data/a", b"the third", version_of(store, "data/a"))
    assert store.get("data/a") == b"the third"
    assert names(store) == ["data/a"]


def test_a_version_of_another_object_replaces_nothing(store: Store) -> None:
    store.put("a", b"one")
    store.put("b", b"two")
    assert not store.replace("a", b"three", version_of(store, "b"))
    assert store.get("a") == b"one"


def test_what_was_put_meanwhile_is_not_replaced(store: Store) -> None:
    store.put("a", b"one")
    before = version_of(store, "a")
    store.put("a", b"of another")
    assert not store.replace("a", b"two", before)
    assert store.get("a") == b"of another"


def test_what_is_gone_is_not_replaced(store: Store) -> None:
    store.put("a", b"one")
    before = version_of(store, "a")
    store.delete("a")
    assert not store.replace("a", b"two", before)
    assert names(store) == []
    assert not store.replace("never/there", b"two", before)
    assert names(store) == []


def test_replacing_by_what_is_there_already_counts_as_ones_own(store: Store) -> None:
    store.put("a", b"one")
    before = version_of(store, "a")
    assert store.replace("a", b"two", before)
    assert store.replace("a", b"two", before)
    assert not store.replace("a", b"owt", before)
    assert store.replace("a", b"two", version_of(store, "a"))
    assert store.get("a") == b"two"


def test_a_replacement_is_whole_and_every_byte_of_it(store: Store) -> None:
    data = bytes(range(256)) * 5000
    store.put("a", b"short")
    assert store.replace("a", data, version_of(store, "a"))
    assert store.get("a") == data
    assert store.replace("a", b"", version_of(store, "a"))
    assert store.get("a") == b""


def test_a_deleted_name_is_free_again(store: Store) -> None:
    store.create("a", b"1")
    store.delete("a")
    assert store.get("a") is None
    assert names(store) == []
    assert store.create("a", b"2")


def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    store.put("a/b", b"1")
    for name in ("b", "a", "a/b/c"):
        store.delete(name)
    assert names(store) == ["a/b"]


def test_a_listing_is_sorted_by_the_bytes_of_the_names(store: Store) -> None:
    written = [
        "a-",
        "a/b",
        "a.b",
        "a/b-",
        "b/a/c",
        "A",
        "Z/z",
        "\u00e9",
        "\U0001f600",
        "\uffee",
        "~",
        "a!/x",
        "a0",
    ]
    for name in written:
        store.put(name, b"")
    assert names(store) == sorted(written, key=str.encode)


def test_a_listing_of_a_folder_holds_what_is_below_it_and_nothing_beside_it(store: Store) -> None:
    for name in ("data/1", "data/2/3", "data-old/1", "dat", "data.txt"):
        store.put(name, b"")
    assert names(store, "data/") == ["data/1", "data/2/3"]
    assert names(store, "data/2/") == ["data/2/3"]
    assert names(store, "dat/") == []


@pytest.mark.parametrize(
    "after", ["", "a", "log/", "log/3", "log/35", "log/5", "log/9", "log0", "z", "log/3/x", "\U0001f600"]
)
def test_a_listing_starts_after_a_name(store: Store, after: str) -> None:
    for name in ("a", "b/c", "b/d/e", "log/0", "log/3", "log/4", "log/5", "log/6/7", "z"):
        store.put(name, b"")
    assert names(store, "", after) == [name for name in names(store) if name > after]
    assert names(store, "log/", after) == [name for name in names(store, "log/") if name > after]


def test_a_listing_and_a_look_agree_on_length_and_version(store: Store) -> None:
    store.put("a", b"12345")
    (listed,) = store.list("")
    assert listed == store.stat("a")
    assert (listed.name, listed.bytes) == ("a", 5)


def test_the_version_changes_with_every_replacement(store: Store) -> None:
    seen = set()
    for number in range(20):
        store.put("a", str(number).encode())
        info = store.stat("a")
        assert info is not None
        seen.add(info.version)
    assert len(seen) == 20


def test_a_listing_sees_what_was_just_written_and_deleted(store: Store) -> None:
    for number in range(20):
        name = f"log/{number:03}"
        store.create(name, b"1")
        assert names(store, "log/")[-1] == name
    for number in range(20):
        store.delete(f"log/{number:03}")
        assert len(names(store, "log/")) == 19 - number


@pytest.mark.parametrize("prefix", ["data", "/", "../", "a//", "a/../"])
def test_a_prefix_that_is_no_folder_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(StoreError):
        store.list(prefix)


@pytest.mark.parametrize("name", ESCAPING, ids=ascii)
def test_a_name_that_could_escape_is_refused_by_every_verb(store: Store, name: str) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: store.get(name),
        lambda: store.get_range(name, 0, 1),
        lambda: store.put(name, b"1"),
        lambda: store.create(name, b"1"),
        lambda: store.replace(name, b"1", "version"),
        lambda: store.delete(name),
        lambda: store.stat(name),
    ]
    for verb in verbs:
        with pytest.raises(StoreError, match="object name"):
            verb()
    assert store.list("") == []


@pytest.mark.parametrize("name", ALLOWED)
def test_a_name_that_only_looks_odd_is_kept_as_it_is(store: Store, name: str) -> None:
    assert store.create(name, b"1")
    assert not store.create(name, b"2")
    assert store.get(name) == b"1"
    assert names(store) == [name]
    store.delete(name)
    assert names(store) == []


def test_the_address_is_where_it_was_opened(store_url: str) -> None:
    assert open_store(store_url).url == store_url


def test_two_stores_side_by_side_do_not_see_each_other(store_url: str) -> None:
    here, beside = open_store(store_url), open_store(store_url + "-old")
    beside.put("a", b"1")
    assert here.list("") == []
    assert here.get("a") is None


def test_a_store_may_be_pickled_and_copied(store_url: str) -> None:
    first = open_store(store_url)
    first.put("a", b"1")
    unpickled = pickle.loads(pickle.dumps(first))  # noqa: S301 - its own bytes
    for other in (unpickled, copy.deepcopy(first)):
        assert other.get("a") == b"1"
        assert other.url == first.url


def test_the_probe_passes_and_leaves_nothing_behind(store: Store) -> None:
    probe_create_only(store)
    assert store.list("") == []


def test_the_probe_refuses_a_store_that_overwrites(store: Store) -> None:
    with pytest.raises(OutputError, match=r"refuse a second create .* accepted it; .* --accept-unsafe-store"):
        probe_create_only(OverwritingStore(store))
    assert store.list("") == []


def test_the_probe_refuses_a_store_that_says_yes_to_everyone() -> None:
    class Polite(MemoryStore):
        def create(self, name: str, data: bytes) -> bool:
            super().create(name, data)
            return True

    with pytest.raises(OutputError, match="accepted it"):
        probe_create_only(Polite())


def test_the_probe_refuses_a_store_that_loses_what_was_created() -> None:
    class Forgetful(MemoryStore):
        def get(self, name: str) -> bytes | None:
            return None

    with pytest.raises(OutputError, match="does not keep what was created"):
        probe_create_only(Forgetful())


WRITER = """
import sys
from mixer.storage import open_store
store = open_store(sys.argv[1])
store.put("replaced", b"o" * int(sys.argv[2]))
print("ready", flush=True)
for number in range(1000):
    store.create(f"created/{number}", b"n" * int(sys.argv[2]))
    store.put("replaced", b"n" * int(sys.argv[2]))
"""


@pytest.mark.crash
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_a_writer_that_is_stopped_leaves_whole_objects_only(store_url: str, how: signal.Signals) -> None:
    store = open_store(store_url)
    size = 6_000_000
    for number in range(2):
        command = [sys.executable, "-c", WRITER, store_url, str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.003 + 0.07 * number)
            writer.send_signal(how)
            writer.wait(180)
        assert writer.returncode == -how
        assert store.get("replaced") in (b"o" * size, b"n" * size)
        for info in store.list(""):
            assert info.bytes == size
            assert info.name.startswith(("created/", "replaced"))
            store.delete(info.name)
