"""What is a config, what is not, and what is said of it: every problem at once, with its line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mixer.config import MixConfig, config_from, load_config, parse_config, yaml_places
from mixer.errors import ConfigError
from tests.config.said import GOOD, REFUSED, message

WITH_WEIGHT = "output: o\nbatch_size: 4\nbatches: 1\nbatches_per_shard: 2\ndatasets:\n  web: {path: a, weight: %s}\n"
DIGITS = " (write plain digits, without quotes)"


def test_a_config_has_what_was_written_and_the_defaults() -> None:
    assert parse_config(GOOD, "mix.yaml").model_dump() == {
        "output": "out",
        "prepared": None,
        "batch_size": 4,
        "batches": 10,
        "rows": None,
        "batches_per_shard": 2,
        "on_exhausted": "error",
        "seed": 0,
        "phases": None,
        "weights_by": None,
        "fork": None,
        "missing": "error",
        "lineage": True,
        "compression": "zstd",
        "compression_level": None,
        "batches_per_row_group": None,
        "length_column": None,
        "datasets": {
            "web": {"path": "web.parquet", "weight": 3, **LEFT_OUT},
            "code": {"path": ["a.parquet", "b/"], "weight": 1, **LEFT_OUT},
        },
    }


LEFT_OUT = dict.fromkeys(
    (
        *("format", "on_bad_line", "document", "window", "batches"),
        *("share", "shuffle", "columns", "max_rows", "max_epochs"),
    )
)


def test_datasets_keep_their_order() -> None:
    names = ["z", "a", "10", "9", "no"]
    text = GOOD + "".join(f"  {name}: {{path: x, weight: 1}}\n" for name in names)
    assert list(parse_config(text, "mix.yaml").datasets) == ["web", "code", *names]


def test_json_is_yaml() -> None:
    config = parse_config(GOOD, "mix.yaml")
    assert parse_config(json.dumps(config.model_dump(mode="json"), indent=1), "mix.json") == config


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("0", "0; leave the dataset out to take nothing from it"),
        ("-3", "-3"),
        ("1.5", "1.5"),
        ("true", "true"),
        ("[]", "an empty list"),
        ("{a: 1}", "a mapping"),
        ('"3"', f"the text '3'{DIGITS}"),
        ("'3'", f"the text '3'{DIGITS}"),
        ('""', f"an empty text{DIGITS}"),
        ("no", f"the text 'no'{DIGITS}"),
        ("010", f"the text '010'{DIGITS}"),
        ("1e3", f"the text '1e3'{DIGITS}"),
        ("0x10", f"the text '0x10'{DIGITS}"),
        ("0o10", f"the text '0o10'{DIGITS}"),
        ("+3", f"the text '+3'{DIGITS}"),
        ("1_0", f"the text '1_0'{DIGITS}"),
        ("10_00", f"the text '10_00'{DIGITS}"),
        ("1:30", f"the text '1:30'{DIGITS}"),
        ("2026-01-01", f"the text '2026-01-01'{DIGITS}"),
        (".inf", f"the text '.inf'{DIGITS}"),
        ("1/3", f"the text '1/3'{DIGITS}"),
        ("!!str 3", f"the text '3'{DIGITS}"),
        ("9" * 5000, f"the text '{'9' * 60}...'{DIGITS}"),
        ("-" + "9" * 3000, "a number of 9,966 bits"),
    ],
)
def test_only_a_positive_whole_number_is_a_weight(written: str, found: str) -> None:
    assert message(WITH_WEIGHT % written) == (
        f"mix.yaml:6: datasets.web.weight: expected a positive whole number, found {found}"
    )


@pytest.mark.parametrize(
    ("written", "weight"), [("1", 1), ("10_000", 10_000), ("9" * 1200, int("9" * 1200)), (str(10**19), 10**19)]
)
def test_weights_may_be_large(written: str, weight: int) -> None:
    assert parse_config(WITH_WEIGHT % written, "mix.yaml").datasets["web"].weight == weight


def test_a_weight_too_long_to_be_meant_is_refused() -> None:
    assert message(WITH_WEIGHT % ("9" * 2000)) == (
        "mix.yaml:6: datasets.web.weight: expected a positive whole number of at most 4096 bits, found a longer one"
    )


def test_all_problems_are_told_in_the_order_of_the_text() -> None:
    text = "batch_size: 1.5\non_exhausted: perhaps\nlineage: 1\nbatch_size: 3\ndatasets: {a: {path: x, weight: -1}}\n"
    assert [line.split(": ")[:2] for line in message(text).splitlines()] == [
        ["mix.yaml:1", "output"],
        ["mix.yaml:1", "batch_size"],
        ["mix.yaml:1", "batches_per_shard"],
        ["mix.yaml:2", "on_exhausted"],
        ["mix.yaml:3", "lineage"],
        ["mix.yaml:4", "batch_size"],
        ["mix.yaml:5", "datasets.a.weight"],
    ]


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n", "---\n", "null", "\ufeff"])
def test_an_empty_config_is_refused(text: str) -> None:
    assert message(text) == "mix.yaml: empty; `mixer init` writes a config to start from"


def test_secrets_never_come_back_in_a_message() -> None:
    url = "s3://key:hunter2@bucket/x?X-Amz-Signature=hunter2"
    text = (
        f"output: {url}\nbatch_size: {url}\nbatches_per_shard: ['{url}']\non_exhausted: {url}\n"
        f"lineage: {url}\nsecret_key: hunter2\n? {url}\n: {url}\n"
        f"datasets:\n  '{url}': {{path: '{url}', weight: '{url}'}}\n  a: {url}\n"
        f"  b: {{path: [3, '{url}'], weight: 1}}\n"
    )
    told = message(text)
    assert len(told.splitlines()) >= 11
    assert "hunter2" not in told
    values = yaml.safe_load(text)
    with pytest.raises(ConfigError) as caught:
        config_from(values)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValidationError) as raw:
        MixConfig.model_validate({"output": url, "batch_size": url, "batches": [url], "secret": "hunter2"})
    assert "hunter2" not in str(raw.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a@b.parquet",
        "hdfs://host:8020/a@b",
        "hdfs://host:service/a",
        "abfs://container@account.dfs.core.windows.net/a",
        "/data/what?.parquet",
        "s3://bucket/part-?.parquet",
        "s3://bucket/key=1/*.parquet",
        "C:\\data\\a.parquet",
        "~/data",
        "データ/**/*.parquet",
        "http://[::1]:9000/a@b",
    ],
)
def test_addresses_without_a_secret_are_taken(url: str) -> None:
    values = parse_config(GOOD, "mix.yaml").model_dump()
    assert config_from({**values, "output": url}).output == url


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA@bucket/a",
        "https://user:hunter2@host/a",
        "abfs://container:hunter2@account/a",
        "simplecache::s3://key:hunter2@bucket/a",
        "https://host/a?sig=hunter2",
        "https://host/a?v=1&AWSAccessKeyId=hunter2",
        "https://host/a?access_token=hunter2",
    ],
)
def test_addresses_with_a_secret_are_refused(url: str) -> None:
    values = parse_config(GOOD, "mix.yaml").model_dump()
    with pytest.raises(ConfigError) as caught:
        config_from({**values, "output": url})
    assert str(caught.value) == f"output: {REFUSED}"


def test_without_batches_a_run_may_stop_where_the_data_ends() -> None:
    text = GOOD.replace("batches: 10", "on_exhausted: stop")
    assert parse_config(text, "mix.yaml").batches is None
    assert parse_config(text + "batches: 7\n", "mix.yaml").batches == 7


def test_bounds_themselves_are_taken() -> None:
    values = parse_config(GOOD, "mix.yaml").model_dump()
    for changed in (
        {"batches_per_shard": 32_767, "batches_per_row_group": 1},
        {"batches_per_shard": 65_534, "batches_per_row_group": 2},
        {"batch_size": 2**31 - 1, "batches_per_shard": 1, "batches": 2**32},
        {"batches": (2**63 - 1) // 4},
        {"compression_level": 22},
        {"datasets": {"n" * 200: {"path": "x", "weight": 2**4096 - 1, **LEFT_OUT}}},
    ):
        assert config_from({**values, **changed}).model_dump() == {**values, **changed}


def test_plain_values_are_checked_like_files() -> None:
    values: dict[str, Any] = parse_config(GOOD, "mix.yaml").model_dump()
    assert config_from(values) == parse_config(GOOD, "mix.yaml")
    values["datasets"]["web"]["weight"] = True
    values["compression_level"] = 99
    del values["output"]
    with pytest.raises(ConfigError) as caught:
        config_from(values)
    assert str(caught.value).splitlines() == [
        "output: missing; expected a path or URL",
        "compression_level: expected a whole number from 1 to 22, found 99",
        "datasets.web.weight: expected a positive whole number, found true",
    ]


def test_a_config_cannot_be_changed() -> None:
    config = parse_config(GOOD, "mix.yaml")
    with pytest.raises(ValidationError, match="frozen"):
        config.batch_size = 5


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mix é.yaml"
    for encoded in (GOOD.encode(), GOOD.encode("utf-8-sig"), GOOD.replace("\n", "\r\n").encode()):
        file.write_bytes(encoded)
        assert load_config(file) == load_config(str(file)) == parse_config(GOOD, "mix.yaml")


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert load_config("-") == parse_config(GOOD, "mix.yaml")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: b: c")))
    with pytest.raises(ConfigError, match=r"^standard input:1: not YAML: "):
        load_config("-")


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("latin1.yaml").write_bytes("a: 1\nb: é\n".encode("latin-1"))
    Path("large.yaml").write_bytes(b"#" * (16 * 2**20 + 1))
    for name, expected in {
        "none.yaml": "none.yaml: no such file; `mixer init` writes a config to start from",
        "folder": "folder: is a folder; expected a config file in YAML",
        "latin1.yaml/x": "latin1.yaml/x: cannot be read: Not a directory",
        "latin1.yaml": "latin1.yaml:2: not UTF-8, from byte 8; save the file as UTF-8",
        "large.yaml": "large.yaml: expected a config of at most 16,777,216 bytes, found more",
        "/dev/zero": "/dev/zero: expected a config of at most 16,777,216 bytes, found more",
        "a\0b": "'a\\x00b': cannot be a file: embedded null byte",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_config(name)
        assert str(caught.value) == expected


PIECES = st.sampled_from(
    ["a", "output", "datasets", "weight", ":", ": ", "- ", "\n", "  ", "[", "]", "{", "}", ",", "'", '"', "&a ", "*a",
     "|", ">", "!", "!!int ", "#", "%", "@", "---", "...", "?", "? ", "<<", "\\", "\t", "\x85", "\u2028", "\ufeff",
     "1", "é"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=40))
@settings(deadline=None, max_examples=300)
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\Amix\.yaml(:[1-9][0-9]*)?: "):
        parse_config(text, "mix.yaml")


@given(st.lists(PIECES, max_size=25).map("".join))
@settings(deadline=None)
def test_what_is_read_is_what_a_plain_yaml_reader_sees(text: str) -> None:
    """Without words that YAML guesses at, both see the same; ours may only refuse more."""
    try:
        value = yaml_places.read(text)
    except yaml_places.UnreadableError:
        return
    # A mark of byte order is dropped once more than the library does.
    if value.lines and not value.problems and not {"!", "\ufeff"} & set(text):
        assert _as_text(value.value) == yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 - reads text only


def _as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_text(inner) for inner in value]
    return "" if value is None else str(value)


def test_the_config_is_read_without_heavy_libraries() -> None:
    program = "import sys, mixer.config; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    for heavy in ("pyarrow", "numpy", "fsspec", "prefect", "torch", "typer", "rich"):
        assert f"'{heavy}'" not in loaded
