"""Text to tokens to windows to shards: each window is what brute force gives, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer import building
from mixer.asking import items_of
from mixer.cli.plan_remarks import remarks
from mixer.cli.plan_value import plan_value
from mixer.config import MixConfig, config_from
from mixer.core.fingerprint import sha256_hex
from mixer.core.windows import tail_start, window_count
from mixer.errors import SchemaError
from mixer.forecasting import forecast
from mixer.planning import plan, read_run_file, run_file
from mixer.preparation.tokens import Sizes
from mixer.previewing import preview
from mixer.sampling import sample_lengths
from mixer.sources.inventory import FileEntry, Inventory
from mixer.storage import LocalStore, Store
from mixer.testing import WRITES, die_at_every_step, sample
from mixer.verifying import verify
from mixer.writing import encoded_shards, open_sources
from tests.e2e.runs import objects, result
from tests.profiles import sized
from tests.tokenizing import trained

CONTEXT = {"web": 48, "code": 33}
STRIDE = {"web": 48, "code": 7}
TEXTS = {"web": trained.texts("a[br]*.py"), "code": (*trained.texts("bi*.py"), "", trained.END, "end")}
PAD = 3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut streams, parts and blocks so small that there are several of each."""
    monkeypatch.setattr("mixer.preparation.tokens.SIZES", Sizes(row_group_ids=700, part_row_groups=20))
    monkeypatch.setattr("mixer.core.streams.BLOCK_BYTES", 5_000)


def values(folder: Path, **window: Any) -> dict[str, Any]:
    """Return a config as plain values, with its inputs made: rows of texts, and windows as items."""
    datasets = {}
    for name, texts in TEXTS.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, row_group_size=3)
            trained.save(folder)
        datasets[name] = {
            "path": str(path),
            "weight": {"web": 1, "code": 3}[name],
            "window": {
                "context_length": CONTEXT[name],
                "stride": STRIDE[name],
                "tokenizer": str(folder / "tokenizer.json"),
                **window,
            },
        }
    return {
        "output": str(folder / "out"),
        "batch_size": 16,
        "batches_per_shard": 20,
        "batches_per_row_group": 7,
        "on_exhausted": "redistribute",
        "datasets": datasets,
    }


def by_hand(name: str, *, padded: bool) -> list[tuple[list[int], list[int]]]:
    """Return of each window of a dataset its ids, and which of its documents they are in."""
    documents = [[*trained.ids_of(text), trained.end_id()] for text in TEXTS[name]]
    ids = [identity for document in documents for identity in document]
    numbers = [number for number, document in enumerate(documents) for _ in document]
    length, stride = CONTEXT[name] + 1, STRIDE[name]
    starts = [number * stride for number in range(window_count(len(ids), CONTEXT[name], stride))]
    if padded and (tail := tail_start(len(ids), CONTEXT[name], stride)) is not None:
        starts.append(tail)
    found = []
    for start in starts:
        window, owners = ids[start : start + length], numbers[start : start + length]
        lacking = length - len(window)
        found.append((window + [PAD] * lacking, [owner - owners[0] for owner in owners] + [-1] * lacking))
    return found


def rows_of(output: str, decode: Callable[[Any], list[int]] = list) -> list[dict[str, Any]]:
    """Return the rows of all shards, in order."""
    files = sorted(Path(output, "data").glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()
    return [{**row, "input_ids": decode(row["input_ids"])} for row in rows]


@pytest.mark.parametrize(
    ("window", "kind"),
    [
        ({"documents": True}, "list<element: int32>"),
        ({"store_as": "uint16", "pad_id": PAD}, "binary"),
        ({"store_as": "int32", "pad_id": PAD, "documents": True}, "binary"),
    ],
)
def test_every_window_of_every_shard_is_what_brute_force_gives(
    tmp_path: Path, window: dict[str, Any], kind: str
) -> None:
    config = config_from(values(tmp_path, **window))
    building.build(config)
    assert str(pq.read_schema(tmp_path / "out" / "data" / "shard-00000000.parquet").field("input_ids").type) == kind
    dtype = {"uint16": "<u2", "int32": "<i4"}.get(window.get("store_as", ""))
    rows = rows_of(config.output, (lambda value: np.frombuffer(value, dtype).tolist()) if dtype else list)
    expected = {name: by_hand(name, padded="pad_id" in window) for name in TEXTS}
    for row in rows:
        ids, numbers = expected[row["_dataset"]][row["_row"]]
        assert row["input_ids"] == ids
        if "documents" in window:
            assert row["document_ids"] == numbers
    # With `redistribute` all data is used: each window once, in its order.
    for name in TEXTS:
        assert [row["_row"] for row in rows if row["_dataset"] == name] == list(range(len(expected[name])))
    assert verify(config.output).problems == ()


def shuffled(folder: Path) -> MixConfig:
    """Return a config whose datasets are shuffled in several blocks, and repeated."""
    asked = values(folder, documents=True, pad_id=PAD)
    asked["datasets"]["code"]["shuffle"] = "block"
    return config_from({**asked, "on_exhausted": "repeat", "batches": 300})


def test_windows_shuffled_in_blocks_are_each_there_once_in_a_pass(tmp_path: Path) -> None:
    config = shuffled(tmp_path)
    building.build(config)
    planned = plan(config)
    blocks = planned.plan.passes[1].blocks
    assert blocks is not None
    assert len(blocks) > 5
    rows = [row for row in rows_of(config.output) if row["_dataset"] == "code"]
    expected = by_hand("code", padded=True)
    assert all(row["input_ids"] == expected[row["_row"]][0] for row in rows)
    first = [row["_row"] for row in rows if row["_epoch"] == 0]
    assert sorted(first) == list(range(len(expected))) != first


def test_any_shard_made_alone_has_the_same_bytes(tmp_path: Path) -> None:
    config = shuffled(tmp_path)
    building.build(config)
    planned = plan(config)
    for index in range(planned.plan.shard_count - 1, -1, -4):
        ((shard, data),) = encoded_shards(planned, open_sources(planned), range(index, index + 1))
        assert data == (tmp_path / "out" / shard.path).read_bytes()


def test_a_run_that_dies_anywhere_while_it_prepares_or_mixes_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_from({**values(tmp_path, documents=True), "batches_per_shard": 60, "prepared": None})
    numbers = iter(range(10_000))

    def new_store() -> Store:
        return LocalStore(str(tmp_path / f"out-{next(numbers)}"))

    def act(store: Store) -> None:
        with monkeypatch.context() as patch:
            for module in ("mixer.building", "mixer.preparing"):
                patch.setattr(f"{module}.open_store", lambda url: store)
            building.build(config.model_copy(update={"output": store.url}))

    def became(store: Store) -> tuple[Any, dict[str, str]]:
        copies = {
            name: sha256_hex(data)
            for name, data in objects(store, ".mixer/prepared/").items()
            if name.endswith((".parquet", ".json"))
        }
        return result(store.url), copies

    steps = die_at_every_step(act, new_store, became, choose=sample(sized(short=6, long=10_000), verbs=WRITES, seed=3))
    parts = [
        operation for operation in steps.operations if "prepared/" in str(operation) and ".parquet" in str(operation)
    ]
    assert len({str(operation).partition(" ")[2] for operation in parts if operation.verb in WRITES}) > 3


def test_what_windows_are_is_part_of_the_run_and_how_they_were_made_is_not(tmp_path: Path) -> None:
    asked = values(tmp_path, pad_id=PAD)
    config = config_from({**asked, "prepared": str(tmp_path / "prepared")})
    building.prepare(config)
    planned = plan(config)
    told = planned.definition["datasets"][0]
    assert told["window"] == {
        "context_length": CONTEXT["web"],
        "stride": STRIDE["web"],
        "pad_id": PAD,
        "store_as": "list",
        "documents": False,
        "end_of_text": trained.end_id(),
        "ids": planned.inventories["web"].rows,
    }
    assert told["rows"] == len(by_hand("web", padded=True))
    assert read_run_file(run_file(planned), config.output, "run.json").run == planned.run
    for changes in ({"stride": 47}, {"pad_id": 4}, {"pad_id": None}, {"documents": True}, {"store_as": "int32"}):
        other = config.model_dump()
        for dataset in other["datasets"].values():
            dataset["window"] |= changes
        # The same copies serve: nothing is prepared again.
        assert plan(config_from(other)).run != planned.run
    same = config.model_dump()
    same["datasets"]["web"]["window"]["stride"] = None
    assert plan(config_from(same)).run == planned.run


def test_the_plan_counts_windows_and_their_tokens(tmp_path: Path) -> None:
    config = config_from(values(tmp_path))
    building.prepare(config)
    planned = plan(config)
    lengths = sample_lengths(planned, "input_ids")
    for place, name in enumerate(TEXTS):
        windows = len(by_hand(name, padded=False))
        found = lengths[name]
        assert planned.plan.passes[place].size == windows
        assert found is not None
        assert found.complete
        assert found.taken(planned.plan.passes[place], windows) == windows * (CONTEXT[name] + 1)
    ahead = forecast(planned)
    groups = sum(len(entry.row_group_rows) for entry in planned.inventories["code"].files)
    assert ahead.datasets[1].reads.row_groups == groups
    value = plan_value(preview(config), lengths=lengths, length_column="input_ids")
    assert value["datasets"][1]["stream"]["ids"] == planned.inventories["code"].rows
    said = "\n".join(remarks(value, None))
    assert f"code: {planned.inventories['code'].rows:,} ids of {len(TEXTS['code'])} documents, each closed by" in said
    # Windows that overlap take each id as often as they hold it.
    assert 4 < ahead.datasets[1].output_bytes / ahead.datasets[1].used_bytes < 5


@pytest.mark.parametrize("other", ["text", "lists"])
def test_windows_mix_with_rows_of_the_same_columns_only(tmp_path: Path, other: str) -> None:
    asked = values(tmp_path)
    table = {
        "text": pa.table({"text": ["a"] * 50}),
        "lists": pa.table({"input_ids": pa.array([[1, 2, 3]] * 50, pa.list_(pa.int64()))}),
    }[other]
    pq.write_table(table, tmp_path / "rows.parquet")
    asked["datasets"]["rows"] = {"path": str(tmp_path / "rows.parquet"), "weight": 1}
    config = config_from(asked)
    building.prepare(config)
    if other == "lists":
        # The wider type holds both.
        assert plan(config).schema == pa.schema({"input_ids": pa.list_(pa.field("element", pa.int64()))})
        building.build(config)
        kept = [row["input_ids"] for row in rows_of(config.output) if row["_dataset"] == "rows"]
        assert kept == [[1, 2, 3]] * 50
        return
    with pytest.raises(SchemaError) as caught:
        plan(config)
    said = str(caught.value)
    assert (
        "column 'input_ids': list<element: int32> in dataset 'web' (windows of the prepared copy of its files)" in said
    )
    assert "but missing in dataset 'rows'" in said


def test_ids_that_are_there_already_become_windows(tmp_path: Path) -> None:
    documents = [[number] * (number % 5) for number in range(1, 200)]
    ids = [identity for document in documents for identity in [*document, 0]]
    pq.write_table(pa.table({"ids": pa.array(documents, pa.list_(pa.uint16()))}), tmp_path / "a.parquet")
    window = {"context_length": 9, "text": "ids", "end_of_text": 0, "stride": 5}
    config = config_from(
        {
            "output": str(tmp_path / "out"),
            "batch_size": 1,
            "batches_per_shard": 100,
            "on_exhausted": "stop",
            "datasets": {"a": {"path": str(tmp_path / "a.parquet"), "weight": 1, "window": window}},
        }
    )
    building.build(config)
    assert [row["input_ids"] for row in rows_of(config.output)] == [
        ids[start : start + 10] for start in range(0, len(ids) - 9, 5)
    ]


def test_stride_one_over_a_hundred_million_ids_is_planned_at_once(tmp_path: Path) -> None:
    asked = values(tmp_path, stride=1, pad_id=PAD)
    for dataset in asked["datasets"].values():
        dataset["shuffle"] = "block"
    config = config_from(asked)
    building.prepare(config)
    planned = plan(config)
    many = {name: _stretched(inventory, 10**8) for name, inventory in planned.inventories.items()}
    data = run_file(replace(planned, inventories=many))
    assert len(data) < 100_000
    for name, inventory in many.items():
        assert items_of(config.datasets[name], inventory) == 10**8 - CONTEXT[name]


def _stretched(inventory: Inventory, ids: int) -> Inventory:
    """Return the inventory of a stream as long, in row groups as streams have them."""
    groups = (*([1 << 19] * (ids >> 19)), ids & ((1 << 19) - 1))
    entry = replace(inventory.files[0], rows=ids, row_group_rows=groups, bytes=2 * ids, uncompressed_bytes=3 * ids)
    assert isinstance(entry, FileEntry)
    return replace(inventory, files=(entry,))
