"""Every command on an output and on inputs in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixer.storage import open_store
from tests.cli.conftest import Mixer
from tests.mixes import ROWS, SHARDS, config_file, make_inputs
from tests.s3_server import ACCESS_KEY_ID, SECRET_ACCESS_KEY


@pytest.mark.s3
def test_every_command_speaks_s3_and_shows_no_key(mixer: Mixer, tmp_path: Path, s3_url: str) -> None:
    make_inputs(tmp_path / "inputs")
    store = open_store(s3_url)
    for file in (tmp_path / "inputs").rglob("*.parquet"):
        store.put(f"in/{file.relative_to(tmp_path / 'inputs').as_posix()}", file.read_bytes())
    output = f"{s3_url}/out"
    found = mixer("init", str(tmp_path / "found.yaml"), "--from", f"{s3_url}/in", "--json")
    assert {d["name"]: (d["path"], d["rows"]) for d in found.json["datasets"]} == {
        name: (f"{s3_url}/in/{name}/", rows) for name, rows in ROWS.items()
    }
    datasets = {name: {"path": f"{s3_url}/in/{name}/", "weight": 1} for name in ROWS}
    config = config_file(tmp_path, output=output, datasets=datasets, batches=8)

    shards = -(-8 // 3)
    assert shards < SHARDS
    planned = mixer("plan", config, "--json", "--debug")
    assert (planned.code, planned.json["action"], planned.json["shards"]) == (0, "start", shards)
    assert store.list("out/") == []
    ran = mixer("run", config, "--no-prefect", "--json", "--debug")
    assert (ran.code, ran.json["finished"], ran.json["output"]) == (0, True, output)
    assert mixer("status", output, "--json").json == ran.json
    verified = mixer("verify", output, "--json", "--debug")
    assert (verified.code, verified.json["ok"], verified.json["orphans"]) == (0, True, [])
    rows = mixer("head", output, "-n", "32", "--json").json["rows"]
    assert len(rows) == 32
    (place,) = mixer("where", output, "--batch", "7", "--slot", "3", "--json").json["places"]
    assert (place["dataset"], place["dataset_row"]) == (rows[31]["_dataset"], rows[31]["_row"])
    assert (place["output"], place["path"], place["shard_row"]) == (output, "data/shard-00000002.parquet", 7)
    assert place["file"].startswith(f"{s3_url}/in/{place['dataset']}/part-")
    assert mixer("plan", config, "--json").json["action"] == "nothing"

    data = bytearray(store.get("out/data/shard-00000001.parquet") or b"")
    data[50] ^= 1
    store.put("out/data/shard-00000001.parquet", bytes(data))
    damaged = mixer("verify", output)
    assert damaged.code == 4
    assert f"{output}/data/shard-00000001.parquet: expected sha256" in damaged.out
    for answer in (found, planned, ran, verified, damaged):
        assert SECRET_ACCESS_KEY not in answer.out + answer.err
        assert ACCESS_KEY_ID not in answer.out + answer.err
