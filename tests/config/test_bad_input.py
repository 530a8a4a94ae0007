"""A table of bad configs, and the whole answer to each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.config.said import DATASET, GOOD, REFUSED, TOP, message

STOP = "`on_exhausted: stop` to make as many as the data fills"
PRODUCT = "(batch_size x batches_per_shard)"


Edit = Callable[[str], str]


def change(line: str, to: str) -> Edit:
    """Return an edit of `GOOD` that replaces a line, or adds `to` on top if `line` is empty."""
    return lambda text: text.replace(f"{line}\n", to) if line else to + text


BAD = {
    "unknown key": (
        change("", "bach_size: 4\n"),
        [f"1: bach_size: unknown key; did you mean 'batch_size'? known keys are {TOP}"],
    ),
    "key of a later version": (change("", "curriculum: 4\n"), [f"1: curriculum: unknown key; known keys are {TOP}"]),
    "misspelt key is one mistake": (
        change("batch_size: 4", "batchsize: 4\n"),
        [f"2: batchsize: unknown key; did you mean 'batch_size'? known keys are {TOP}"],
    ),
    "unknown key of a dataset": (
        change("  web: {path: web.parquet, weight: 3}", "  web:\n    path: a\n    wieght: 3\n"),
        [f"8: datasets.web.wieght: unknown key; did you mean 'weight'? known keys are {DATASET}"],
    ),
    "secret key": (
        change("", "aws_secret_access_key: hunter2\n"),
        [f"1: aws_secret_access_key: unknown key; known keys are {TOP}"],
    ),
    "missing key": (change("batch_size: 4", ""), ["1: batch_size: missing; expected a positive whole number"]),
    "missing key of a dataset": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: a}\n"),
        ["6: datasets.web.weight: missing; expected a positive whole number (or `share`: a percentage)"],
    ),
    "doubled key": (
        change("batch_size: 4", "batch_size: 4\nbatch_size: 5\n"),
        ["3: batch_size: doubled key, first on line 2; keep one of them"],
    ),
    "doubled dataset": (
        lambda text: text + "  web: {path: x, weight: 1}\n",
        ["8: datasets.web: doubled key, first on line 6; keep one of them"],
    ),
    "doubled key of a dataset": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: a, weight: 3, path: b}\n"),
        ["6: datasets.web.path: doubled key, first on line 6; keep one of them"],
    ),
    "yaml 1.1 boolean": (change("", "lineage: no\n"), ["1: lineage: expected true or false, found the text 'no'"]),
    "python boolean": (change("", "lineage: True\n"), ["1: lineage: expected true or false, found the text 'True'"]),
    "number as boolean": (change("", "lineage: 1\n"), ["1: lineage: expected true or false, found 1"]),
    "boolean as number": (
        change("batch_size: 4", "batch_size: true\n"),
        ["2: batch_size: expected a positive whole number, found true"],
    ),
    "float as number": (
        change("batch_size: 4", "batch_size: 4.0\n"),
        ["2: batch_size: expected a positive whole number, found 4.0"],
    ),
    "no batches": (change("batches: 10", "batches: 0\n"), ["3: batches: expected a positive whole number, found 0"]),
    "batches left out": (
        change("batches: 10", ""),
        ["1: batches: missing; say how many batches to make, or set " + STOP],
    ),
    "huge batch": (
        change("batch_size: 4", f"batch_size: {10**30}\n"),
        [f"2: batch_size: expected a positive whole number of at most 2,147,483,647, found {10**30}"],
    ),
    "huge shard": (
        change("batch_size: 4", "batch_size: 2147483647\n"),
        [f"4: batches_per_shard: expected at most 2,147,483,647 rows a shard {PRODUCT}, found 4,294,967,294"],
    ),
    "huge run": (
        change("batches: 10", f"batches: {2**63 - 1}\n"),
        ["3: batches: expected at most 9,223,372,036,854,775,807 rows in all (batch_size x batches), found more"],
    ),
    "policy of a later version": (
        change("", "on_exhausted: forget\n"),
        ["1: on_exhausted: expected 'error', 'stop', 'repeat' or 'redistribute', found the text 'forget'"],
    ),
    "codec": (
        change("", "compression: gzip\n"),
        ["1: compression: expected 'zstd', 'snappy', 'lz4' or 'none', found the text 'gzip'"],
    ),
    "level": (
        change("", "compression_level: 23\n"),
        ["1: compression_level: expected a whole number from 1 to 22, found 23"],
    ),
    "level without zstd": (
        change("", "compression: none\ncompression_level: 3\n"),
        ["2: compression_level: only zstd has levels, and compression is 'none'; leave it out"],
    ),
    "row group larger than the shard": (
        change("", "batches_per_row_group: 3\n"),
        ["1: batches_per_row_group: expected at most batches_per_shard (2), found 3"],
    ),
    "too many row groups": (
        change("batches_per_shard: 2", "batches_per_shard: 32768\nbatches_per_row_group: 1\n"),
        ["5: batches_per_row_group: expected at most 32,767 row groups a shard, found 32,768; raise it"],
    ),
    "too many row groups, the last one smaller": (
        change("batches_per_shard: 2", "batches_per_shard: 65535\nbatches_per_row_group: 2\n"),
        ["5: batches_per_row_group: expected at most 32,767 row groups a shard, found 32,768; raise it"],
    ),
    "empty output": (
        change("output: out", "output: ' '\n"),
        ["1: output: expected a path or URL, found an empty text"],
    ),
    "output with space around": (
        change("output: out", "output: 'out '\n"),
        ["1: output: expected a path or URL, found one with space around it; take the space out"],
    ),
    "output with a control character": (
        change("output: out", 'output: "a\\0b"\n'),
        ["1: output: expected a path or URL, found one with control characters or broken Unicode"],
    ),
    "output is no text": (change("output: out", "output: [a]\n"), ["1: output: expected a path or URL, found a list"]),
    "no datasets": (
        lambda text: text[: text.index("datasets")] + "datasets: {}\n",
        ["5: datasets: expected a mapping from names to a path and a weight each, found an empty mapping"],
    ),
    "datasets as a list": (
        lambda text: text[: text.index("datasets")] + "datasets:\n  - {name: web, path: a, weight: 1}\n",
        ["5: datasets: expected a mapping from names to a path and a weight each, found a list"],
    ),
    "dataset is no mapping": (
        change("  web: {path: web.parquet, weight: 3}", "  web: web.parquet\n"),
        ["6: datasets.web: expected a mapping with path and weight, found the text 'web.parquet'"],
    ),
    "path is a number": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: 3, weight: 3}\n"),
        ["6: datasets.web.path: expected a path or URL, or a list of them, found a number"],
    ),
    "path holds a number": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: [a, 3], weight: 3}\n"),
        ["6: datasets.web.path: expected a path or URL, or a list of them, found a list that holds a number"],
    ),
    "path is an empty list": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: [], weight: 3}\n"),
        ["6: datasets.web.path: expected a path or URL, or a list of them, found an empty list"],
    ),
    "path holds an empty text": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: [a, ''], weight: 3}\n"),
        ["6: datasets.web.path: entry 2 of the list: expected a path or URL, found an empty text"],
    ),
    "name with a slash": (
        lambda text: text + "  a/b: {path: x, weight: 1}\n",
        ["8: datasets['a/b']: expected a name without '/' and '\\' that is not '.' or '..'"],
    ),
    "name of two dots": (
        lambda text: text + "  ..: {path: x, weight: 1}\n",
        ["8: datasets['..']: expected a name without '/' and '\\' that is not '.' or '..'"],
    ),
    "name with space around": (
        lambda text: text + "  ' a': {path: x, weight: 1}\n",
        ["8: datasets[' a']: expected a name of printable characters without space around it"],
    ),
    "empty name": (
        lambda text: text + "  '': {path: x, weight: 1}\n",
        ["8: datasets['']: expected a name of 1 to 200 characters, found 0"],
    ),
    "long name": (
        lambda text: text + f"  {'n' * 201}: {{path: x, weight: 1}}\n",
        [f"8: datasets.{'n' * 201}: expected a name of 1 to 200 characters, found 201"],
    ),
    "name with a line end": (
        lambda text: text + '  "a\\nb": {path: x, weight: 1}\n',
        ["8: datasets['a\\nb']: expected a name of printable characters without space around it"],
    ),
    "password in the output": (
        change("output: out", "output: s3://key:hunter2@bucket/out\n"),
        [f"1: output: {REFUSED}"],
    ),
    "password with a slash": (
        change("output: out", "output: s3://key:hun/ter2@bucket/out\n"),
        [f"1: output: {REFUSED}"],
    ),
    "signature in a path": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: ['ftp://h/a?X-Amz-Signature=x'], weight: 3}\n"),
        [f"6: datasets.web.path: entry 1 of the list: {REFUSED}"],
    ),
    "tag": (
        change("output: out", "output: !!python/object/apply:os.system [touch hacked]\n"),
        ["1: output: tag 'tag:yaml.org,2002:python/object/apply:os.system': tags are not taken; write a plain value"],
    ),
    "alias": (
        change("  web: {path: web.parquet, weight: 3}", "  web: &web {path: a, weight: 3}\n  web2: *web\n"),
        ["7: alias *web: aliases are not taken; write the value out"],
    ),
    "merge key": (
        change("  web: {path: web.parquet, weight: 3}", "  web: {path: a, weight: 3, <<: {weight: 4}}\n"),
        [f"6: datasets.web['<<']: unknown key; known keys are {DATASET}"],
    ),
    "tab": (
        change("batch_size: 4", "batch_size:\n\t4\n"),
        ["3: not YAML: while scanning for the next token found character that cannot start any token"],
    ),
    "no end": (
        lambda text: text + "x: [",
        ["8: not YAML: while parsing a flow node did not find expected node content"],
    ),
    "two documents": (lambda text: text + "---\na: b\n", ["8: a second document begins; expected one"]),
    "list as key": (change("", "[a]: b\n"), ["1: a key is not a text; expected `key: value`"]),
    "deep": (change("", f"a: {'[' * 16}"), ["1: nested more than 16 deep"]),
    "control character": (change("", "a: b\na: \x07\n"), ["2: character U+0007 cannot stand in YAML"]),
    "top level is a list": (lambda text: "- a\n", [f"1: expected a mapping with the keys {TOP}; found a list"]),
    "top level is a text": (
        lambda text: "\n\nmix",
        [f"3: expected a mapping with the keys {TOP}; found the text 'mix'"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_answered_with_its_line_and_what_to_do(case: str) -> None:
    edit, expected = BAD[case]
    assert message(edit(GOOD)).splitlines() == [f"mix.yaml:{line}" for line in expected]
