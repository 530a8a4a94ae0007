"""How fast text becomes a stream of ids, beside the tokenizer's own batch encoding of the same text in the same run.

    python tests/bench/bench_tokens.py [--mb 12] [--rounds 3] [--tokenizer tokenizer.json | --tiktoken]

Texts are modules of Python's own library, again and again until there are enough; the tokenizer is trained on some of
them, unless one is given. Prepared is what `mixer prepare` does: texts are read from Parquet, encoded, and written as
Parquet to disk, with their records. All ways take turns, and the median of the ratios within a round counts, as a
machine's own speed changes from one minute to the next. Beside the time that passes stands the time of the processors,
all threads, which says what is done besides encoding even on a busy machine.
"""

from __future__ import annotations

import argparse
import base64
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from mixer import building
from mixer.config import config_from
from mixer.planning import plan
from mixer.tokenizing.ranks import ENCODINGS, read_ranks
from mixer.writing import open_sources

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.tokenizing import trained

WINDOW = 1_024
PREPARE = "mixer prepare"


def corpus(folder: Path, megabytes: float) -> list[str]:
    """Write texts of about so many MB to a Parquet file; return them."""
    texts: list[str] = []
    size = 0
    while size < megabytes * 1e6:
        for text in trained.texts("*.py"):
            texts.append(text)
            size += len(text)
            if size >= megabytes * 1e6:
                break
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet", row_group_size=64)
    return texts


def trained_for_long(folder: Path) -> str:
    """Train a tokenizer of a useful size; return where it is."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8_000, special_tokens=[trained.END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(trained.texts("[a-m]*.py"), trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def as_ranks(path: str, folder: Path) -> str:
    """Write the tokens of a byte-level BPE tokenizer as a ``.tiktoken`` file; return where it is."""
    # Bytes that are no printable character stand for themselves plus an offset, in their order.
    shown = [byte for byte in range(256) if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    bytes_of = {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}
    tokens = sorted(Tokenizer.from_file(path).get_vocab().items(), key=lambda item: item[1])
    ranked = [bytes(bytes_of[sign] for sign in token) for token, _ in tokens if token != trained.END]
    lines = (base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(ranked))
    (folder / "ranks.tiktoken").write_bytes(b"".join(lines))
    return str(folder / "ranks.tiktoken")


def own_ways(window: dict[str, Any]) -> dict[str, Callable[[Sequence[str]], object]]:
    """Return the library's own ways to make lists of ids of many texts at once, on all cores."""
    if str(window["tokenizer"]).endswith(".json"):
        tokenizer = Tokenizer.from_file(window["tokenizer"])
        return {
            "encode_batch": lambda texts: [one.ids for one in tokenizer.encode_batch(texts)],
            "encode_batch_fast": lambda texts: [one.ids for one in tokenizer.encode_batch_fast(texts)],
        }
    ranks = read_ranks(Path(window["tokenizer"]).read_bytes(), "")
    encoding = tiktoken.Encoding(
        "itself", pat_str=ENCODINGS[window["pattern"]][0], mergeable_ranks=ranks, special_tokens={}
    )
    threads = os.cpu_count() or 1
    return {"encode_ordinary_batch": lambda texts: encoding.encode_ordinary_batch(list(texts), num_threads=threads)}


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return what a call takes: of time, and of the processors'."""
    begun, busy = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begun, time.process_time() - busy


def shares(own: list[tuple[float, float]], prepared: list[tuple[float, float]]) -> str:
    """Tell the speed of preparing as a share of the library's, by time and by processors: medians, least and most."""
    told = []
    for which in (0, 1):
        ratios = [one[which] / other[which] for one, other in zip(own, prepared, strict=True)]
        told.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})")
    return f"{told[0]} of its speed by time, {told[1]} by processors"


def read_windows(values: dict[str, Any]) -> None:
    """Print how fast windows are read of the stream that was prepared, and how long one takes."""
    planned = plan(config_from(values))
    source = open_sources(planned)["texts"]
    took, _ = seconds(lambda: [source.read(at, min(at + 4_096, source.rows)) for at in range(0, source.rows, 4_096)])
    total = source.rows * (WINDOW + 1)
    print(f"windows in order:  {total / took / 1e6:7.1f} M ids/s ({source.rows:,} windows of {WINDOW + 1:,})")
    places = np.random.default_rng(1).integers(0, source.rows, 50).tolist()
    took, _ = seconds(lambda: [source.read(at, at + 1) for at in places])
    print(f"windows anywhere:  {took / len(places) * 1e3:7.2f} ms each")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mb", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokenizer")
    parser.add_argument("--tiktoken", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = corpus(folder, asked.mb)
        window: dict[str, Any] = {"context_length": WINDOW}
        window["tokenizer"] = asked.tokenizer or trained_for_long(folder)
        if asked.tiktoken:
            window |= {"tokenizer": as_ranks(window["tokenizer"], folder), "pattern": "gpt2"}
        ways = own_ways(window)
        values = {
            "output": str(folder / "out"),
            "batch_size": 8,
            "batches_per_shard": 64,
            "on_exhausted": "stop",
            "datasets": {"texts": {"path": str(folder / "texts.parquet"), "weight": 1, "window": window}},
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ways, PREPARE)}
        for number in range(asked.rounds):
            for name, own in ways.items():
                taken[name].append(seconds(partial(own, texts)))
            values["prepared"] = str(folder / f"prepared-{number}")
            taken[PREPARE].append(seconds(lambda: building.prepare(config_from(values))))
        ids = plan(config_from(values)).inventories["texts"].rows
        size = sum(len(text.encode()) for text in texts)
        print(f"{len(texts):,} texts, {size / 1e6:.1f} MB, {ids:,} ids, {os.cpu_count()} cores")
        for name, each in taken.items():
            passed, busy = (statistics.median(times) for times in zip(*each, strict=True))
            print(
                f"{name:<22} {ids / passed / 1e6:7.3f} M ids/s {size / passed / 1e6:7.2f} MB/s, "
                f"{busy / ids * 1e6:6.3f} s of processors for 1 M ids; prepare has {shares(each, taken[PREPARE])}"
            )
        read_windows(values)


if __name__ == "__main__":
    main()
