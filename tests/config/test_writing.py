"""Configs written as YAML, and the schema that tells other tools what a config is."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.config import MixConfig, config_from, example_config, json_schema, parse_config, to_yaml

# fmt: off
# Words that some reader of YAML takes for something else than text, and characters that need care.
WORDS = ["no", "true", "null", "~", "010", "1e3", "1_000", "1:30", "2026-01-01", "0x1", ".5", "1.5", "<<", "=", "- a",
         "a: b", "# x", "*a", "&a", "!a", "{a", "'", '"', "%", "@", "`", "é", "語", "😀", "[x]", "?", "|", ">"]
# fmt: on
NAMES = st.sampled_from(WORDS) | st.text(min_size=1, max_size=20).filter(
    lambda name: name.isprintable() and name == name.strip() and not set("/\\") & set(name) and name not in {".", ".."}
)
PATHS = st.sampled_from([*WORDS, "s3://bucket/*.parquet", "/a b/c", "x" * 300]) | st.text(
    min_size=1, max_size=20
).filter(lambda path: path.isprintable() and path == path.strip() and not set("@?:") & set(path))
DATASETS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"path": PATHS | st.lists(PATHS, min_size=1, max_size=3), "weight": st.integers(1, 10) | st.integers(1, 10**40)}
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    per_shard = draw(st.integers(1, 1000))
    values: dict[str, Any] = {
        "output": draw(PATHS),
        "batch_size": draw(st.integers(1, 10**6)),
        "batches": draw(st.integers(1, 10**9)),
        "batches_per_shard": per_shard,
        "datasets": draw(DATASETS),
    }
    optional = {
        "on_exhausted": st.sampled_from(["error", "stop"]),
        "lineage": st.booleans(),
        "batches_per_row_group": st.none() | st.integers(1, per_shard),
        "compression_level": st.none() | st.integers(1, 22),
    }
    values |= draw(st.fixed_dictionaries({}, optional=optional))
    if values.get("on_exhausted") == "stop" and draw(st.booleans()):
        del values["batches"]
    if values.get("compression_level") is None:
        values["compression"] = draw(st.sampled_from(["zstd", "snappy", "lz4", "none"]))
    return values


@given(configs())
@settings(deadline=None)
def test_a_config_survives_yaml_and_json(values: dict[str, Any]) -> None:
    config = config_from(values)
    for again in (
        parse_config(to_yaml(config), "mix.yaml"),
        config_from(json.loads(json.dumps(config.model_dump(mode="json")))),
        MixConfig.model_validate_json(config.model_dump_json()),
    ):
        assert again == config
        assert list(again.datasets) == list(values["datasets"])


def test_the_example_loads_and_explains_every_key() -> None:
    text = example_config()
    config = parse_config(text, "example")
    assert list(config.datasets) == ["web", "code", "books"]
    keys = set(re.findall(r"^(?:# )?([a-z_]+):", text, flags=re.MULTILINE))
    assert keys == set(MixConfig.model_fields)


def test_what_the_example_leaves_out_in_comments_loads_too() -> None:
    text = re.sub(r"^# ([a-z_]+: \d\S*)$", r"\1", example_config(), flags=re.MULTILINE)
    config = parse_config(text.replace("batches: 2_000\n", "", 1), "example")
    assert (config.compression_level, config.batches_per_row_group, config.rows) == (1, 16, 1_024_000)
    general, datasets = re.sub(r"^# (phases: .*)$", r"\1", example_config(), flags=re.MULTILINE).split("\ndatasets:")
    bare = re.sub(r"^    weight: .*\n", "", datasets, flags=re.MULTILINE)
    config = parse_config(general.replace("\nbatches: 2_000", "") + "\ndatasets:" + bare, "example")
    assert config.phases is not None
    assert [phase.batches for phase in config.phases] == [1000, 1000]
    by = re.sub(r"^# (weights_by: .*)$", r"\1", example_config(), flags=re.MULTILINE).split("\ndatasets:")[0]
    config = parse_config(by + "\ndatasets:" + bare, "example")
    assert config.weights_by is not None
    assert config.weights_by.max_share == "40%"


def test_the_schema_describes_and_bounds_every_field() -> None:
    schema = json_schema()
    assert set(schema["required"]) == {"output", "batch_size", "batches_per_shard", "datasets"}
    assert schema["additionalProperties"] is False
    for name, field in {**schema["properties"], **schema["$defs"]["DatasetConfig"]["properties"]}.items():
        assert len(field["description"]) > 10, name
        numbers = [part for part in [field, *field.get("anyOf", [])] if part.get("type") == "integer"]
        assert all(part["minimum"] == (0 if name == "seed" else 1) for part in numbers), name
    assert set(schema["$defs"]) == {
        *("BatchesConfig", "ColumnConfig", "DatasetConfig", "ForkConfig", "PhaseConfig", "WeightsBy", "WindowConfig")
    }
