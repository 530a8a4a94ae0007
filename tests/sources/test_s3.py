from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mixer.errors import ChangedError, InputError, StoreError
from mixer.sources.groups import Limits
from mixer.sources.inventory import Inventory, check_unchanged, take_inventory
from mixer.sources.parquet import ParquetSource
from mixer.storage.filesystems import filesystem_for
from mixer.storage.inputs import find_inputs, open_input, read_range, stat_input
from tests.s3_server import S3Server
from tests.sources.layouts import PIECES, WHOLE, Layout, written
from tests.sources.tcp_proxy import running_proxy
from tests.storage.test_inputs import AWKWARD_NAMES

pytestmark = pytest.mark.s3
both = pytest.mark.parametrize("limits", [WHOLE, PIECES], ids=["whole", "pieces"])
LAYOUT: Layout = [[10, 10], [], [0, 7], [13]]


def put(url: str, *names: str) -> None:
    for name in names:
        filesystem_for("s3").pipe_file(f"{url}/{name}".removeprefix("s3://"), name.encode())


def uploaded(folder: Path, url: str, layout: Layout = LAYOUT) -> tuple[Inventory, pa.Table]:
    dataset = written(folder, layout)
    for path in sorted(folder.iterdir()):
        filesystem_for("s3").pipe_file(f"{url}/{path.name}".removeprefix("s3://"), path.read_bytes())
    return take_inventory("d", url)[0], dataset.table


def names(url: str, path: str | list[str]) -> list[str]:
    return [file.url.removeprefix(url + "/") for file in find_inputs(path).files]


def test_folders_globs_files_and_lists_are_found_as_on_a_disk(s3_url: str) -> None:
    put(
        s3_url,
        "part-2.parquet",
        "part-10.parquet",
        "a/z.pq",
        "a-b/z.parquet",
        "_SUCCESS",
        "_log/0.parquet",
        "a/.x/y",
        "b.md",
    )
    assert (
        names(s3_url, s3_url)
        == names(s3_url, s3_url + "/")
        == ["a-b/z.parquet", "a/z.pq", "part-10.parquet", "part-2.parquet"]
    )
    assert [name.removeprefix(s3_url) for name in find_inputs(s3_url).ignored] == [
        "/_SUCCESS",
        "/_log/",
        "/a/.x/",
        "/b.md",
    ]
    assert names(s3_url, f"{s3_url}/*.parquet") == ["part-10.parquet", "part-2.parquet"]
    assert names(s3_url, f"{s3_url}/a*/z.*") == ["a-b/z.parquet", "a/z.pq"]
    assert names(s3_url, f"{s3_url}/**/*.parquet") == ["a-b/z.parquet", "part-10.parquet", "part-2.parquet"]
    assert names(s3_url, [f"{s3_url}/part-2.parquet", f"{s3_url}/a", f"{s3_url}/b.md"]) == [
        "part-2.parquet",
        "a/z.pq",
        "b.md",
    ]
    for path in ("none", "none/", "none/*.parquet", "part", "*.csv"):
        with pytest.raises(InputError, match=r"expected a file, a folder .*found nothing"):
            find_inputs(f"{s3_url}/{path}")


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_any_name_can_be_named_found_below_its_folder_and_opened(s3_url: str, name: str) -> None:
    put(s3_url, f"{name}.parquet", f"{name}.d/0.parquet")
    (file,) = find_inputs(f"{s3_url}/{name}.parquet").files
    assert file.url == f"{s3_url}/{name}.parquet"
    with open_input(file) as handle:
        assert handle.read() == f"{name}.parquet".encode()
    assert read_range(file, 0, 1) == name.encode()[:1]
    assert stat_input(file.url) == file
    assert names(s3_url, f"{s3_url}/{name}.d") == [f"{name}.d/0.parquet"]
    assert sorted(names(s3_url, s3_url)) == sorted([f"{name}.d/0.parquet", f"{name}.parquet"])


@both
def test_every_range_reads_as_a_slice_of_the_whole(s3_url: str, tmp_path: Path, limits: Limits) -> None:
    inventory, table = uploaded(tmp_path, s3_url)
    source = ParquetSource("d", inventory, table.schema, limits=limits)
    for start, stop in [(0, 40), (5, 15), (10, 20), (27, 40), (0, 1), (39, 40), (20, 27)]:
        assert source.read(start, stop).equals(table.slice(start, stop - start))
    source.close()


def test_an_inventory_costs_one_request_a_file_beside_the_listing(
    s3_server: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(tmp_path, s3_url, [[3]] * 20)
    with running_proxy(s3_server.endpoint_url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        inventory, _ = take_inventory("d", s3_url)
        assert inventory.rows == 60
        gets = [line for line in proxy.requests if line.startswith("GET") and ".parquet" in line]
        assert len(gets) == 20
        assert len(proxy.requests) <= 20 + 3
        proxy.requests.clear()
        check_unchanged("d", inventory)
        assert len(proxy.requests) == 20
        proxy.requests.clear()
        source = ParquetSource("d", inventory, written(tmp_path / "again", [[3]]).table.schema)
        source.read(0, 3)
        # A look at the version, and the bytes of the row group; the footer is known.
        assert len(proxy.requests) <= 3
        source.close()


def test_lost_connections_are_not_noticed_while_the_inventory_is_taken(
    s3_server: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = uploaded(tmp_path, s3_url)
    with running_proxy(s3_server.endpoint_url, cuts=(0, 300, 900, 700)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        assert take_inventory("d", s3_url)[0] == expected
        check_unchanged("d", expected)
        assert proxy.resets == 4


@both
def test_lost_connections_are_not_noticed_while_rows_are_read(
    s3_server: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    inventory, table = uploaded(tmp_path, s3_url, [[2000, 2000], [3000]])
    # The first bytes of an answer, its middle, or nothing at all.
    with running_proxy(s3_server.endpoint_url, cuts=(0, 500, 20_000, 3000)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        source = ParquetSource("d", inventory, table.schema, limits=limits)
        assert pa.concat_tables([source.read(start, start + 500) for start in range(0, 7000, 500)]).equals(table)
        assert source.row_groups_decoded == 3
        assert proxy.resets == 4
        source.close()


def replace(url: str) -> None:
    filesystem_for("s3").pipe_file(url.removeprefix("s3://"), b"x" * (stat_input(url) or pytest.fail(url)).bytes)


def delete(url: str) -> None:
    filesystem_for("s3").rm_file(url.removeprefix("s3://"))


@both
@pytest.mark.parametrize("change", [replace, delete])
@pytest.mark.parametrize("opened", [False, True], ids=["before it is opened", "while it is read"])
def test_a_changed_object_is_named(s3_url: str, tmp_path: Path, limits: Limits, change: object, opened: bool) -> None:
    inventory, table = uploaded(tmp_path, s3_url, [[400, 10]])
    source = ParquetSource("d", inventory, table.schema, limits=limits)
    if opened:
        source.read(0, 10)
    assert callable(change)
    change(inventory.files[0].url)
    with pytest.raises(ChangedError, match=r"s3://.*/part-000\.parquet has changed since the run was planned"):
        source.read(400, 410)
    with pytest.raises(ChangedError, match=r"part-000\.parquet: expected"):
        check_unchanged("d", inventory)
    source.close()


def test_a_missing_bucket_and_refused_access_say_so(
    s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="there is no such bucket"):
        find_inputs("s3://no-such-bucket/data")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="access denied: check the credentials") as caught:
        find_inputs(s3_url)
    assert "wrong" not in str(caught.value)
