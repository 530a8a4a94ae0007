from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mixer
from mixer.errors import InputError, OutputError
from mixer.storage import LocalStore, open_store
from mixer.storage.azure import AzureStore
from mixer.storage.gcs import GCSStore
from mixer.storage.inputs import find_inputs
from mixer.storage.s3 import S3Store


def test_paths_and_file_addresses_are_local(tmp_path: Path) -> None:
    for url in (str(tmp_path / "a"), f"file://{tmp_path}/a", f"{tmp_path}/a/", f"{tmp_path}/b/../a"):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == str(tmp_path / "a")


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3a://bucket/a/b", "bucket", "a/b/"),
        ("S3://bucket/a/b/", "bucket", "a/b/"),
    ],
)
def test_s3_addresses_name_a_bucket_and_a_prefix(url: str, bucket: str, prefix: str) -> None:
    assert open_store(url) == S3Store(bucket, prefix)


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("gs://bucket", "bucket", ""),
        ("gcs://bucket/a/b/", "bucket", "a/b/"),
        ("GS://my_bucket.org/a", "my_bucket.org", "a/"),
    ],
)
def test_addresses_of_google_name_a_bucket_and_a_prefix(url: str, bucket: str, prefix: str) -> None:
    assert open_store(url) == GCSStore(bucket, prefix)


@pytest.mark.parametrize(
    ("url", "expected", "shown"),
    [
        ("az://box", AzureStore("box"), "az://box"),
        ("abfs://box/a/b/", AzureStore("box", "a/b/"), "az://box/a/b"),
        ("abfss://box/a", AzureStore("box", "a/"), "az://box/a"),
        ("az://$web/a", AzureStore("$web", "a/"), "az://$web/a"),
        (
            "abfss://box@acme.dfs.core.windows.net/a",
            AzureStore("box", "a/", account="acme"),
            "abfss://box@acme.dfs.core.windows.net/a",
        ),
        (
            "abfss://acme.dfs.core.windows.net/box",
            AzureStore("box", account="acme"),
            "abfss://box@acme.dfs.core.windows.net",
        ),
    ],
)
def test_addresses_of_azure_name_a_container_and_perhaps_an_account(url: str, expected: AzureStore, shown: str) -> None:
    store = open_store(url)
    assert store == expected
    assert store.url == shown
    assert open_store(store.url) == store


@pytest.mark.parametrize(
    ("url", "package", "extra"), [("gs://bucket/a", "gcsfs", "gcs"), ("az://box/a", "adlfs", "azure")]
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else real(name))
    expected = rf"{package} is not installed; install it with: pip install 'mixer\[{extra}\]'"
    with pytest.raises(OutputError, match=expected):
        open_store(url)
    monkeypatch.setattr("mixer.storage.filesystems._filesystems", {})
    with pytest.raises(InputError, match=expected):
        find_inputs(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "expected a path on a local disk, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://"),
        ("s3://", "expected a path"),
        ("s3:///a", "expected s3://bucket/prefix"),
        ("s3:/bucket/a", "mind the number of slashes"),
        ("file:/a", "mind the number of slashes"),
        ("file://a/b", "mind the number of slashes"),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/x/a", "its alias"),
        ("s3://bucket/a//b", "non-empty parts"),
        ("s3://bucket/../other", "would leave the store"),
        ("s3://bucket/" + "x" * 600, "prefix of at most 512 bytes"),
        ("a\nb", "expected a path"),
        ("/a\0b", "expected a path"),
        ("gs://", "expected a path"),
        ("gs:///a", "expected gs://bucket/prefix"),
        ("gs:/bucket/a", "mind the number of slashes"),
        ("gs://bucket/a/../b", "would leave the store"),
        ("az:///a", "expected az://container/prefix"),
        ("az://Container/a", "expected az://container/prefix"),
        ("az:/container/a", "mind the number of slashes"),
        ("abfss://acme.dfs.core.windows.net", "expected az://container/prefix or abfss://container@account"),
        ("abfss://box@acme.dfs.core.windows.net/a//b", "non-empty parts"),
        ("hdfs://host/a", r"hdfs:// is not supported for outputs; expected .*s3://bucket/prefix"),
        ("https://host/a", "https:// is not supported for outputs"),
        ("memory://a", "mixer.testing.MemoryStore"),
        ("simplecache::s3://bucket/a", "expected a path"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, expected: str) -> None:
    with pytest.raises(OutputError, match=expected):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "s3://AKIA7:hunter2@bucket/a",
            "s3://hunter2@bucket",
            "s3://bucket/a?secret=hunter2",
            "s3://bucket/a#hunter2",
        ),
        *(
            "gs://AKIA7:hunter2@bucket/a",
            "gs://hunter2@bucket",
            "gs://bucket/a?secret=hunter2",
            "gs://bucket/a#hunter2",
        ),
        *("az://AKIA7:hunter2@box/a", "az://hunter2@box/a", "az://box/a?sig=hunter2", "az://box/a#hunter2"),
        "abfss://AKIA7:hunter2@acme.dfs.core.windows.net/a",
        "abfss://box@acme.dfs.core.windows.net/a?sig=hunter2",
    ],
)
def test_secrets_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OutputError, match="credentials come from the environment") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert "AKIA7" not in str(caught.value)


@pytest.mark.parametrize("verb", [mixer.read, mixer.status, mixer.verify])
@pytest.mark.parametrize("output", [None, 3, Path("out")])
def test_what_is_no_text_is_refused_with_the_name_of_the_argument(
    verb: Callable[[Any], object], output: object
) -> None:
    with pytest.raises(OutputError, match=f"^output: expected .* as text, found {type(output).__name__}$"):
        verb(output)
