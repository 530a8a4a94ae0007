"""The README is true: its blocks run and print what it says, and its tables are what the code says.

A fenced block after the comment ``<!-- run -->`` is run, all in one folder; the block after ``<!-- output -->`` is what
it must print. Such comments do not show in rendered Markdown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from flows.settings import DEFAULT_RETRY_DELAYS_SECONDS, DEFAULTS, RETRY_DELAYS
from mixer import errors
from mixer.cli.app import app
from mixer.config import json_schema
from mixer.errors import MixerError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^<!-- (run|output|layout) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {"python": [sys.executable, "-W", "error", "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
MAKING = 2
"""So many blocks make what all others need; these do not need each other, so two are run at a time."""
UNBOUNDED = 2**31 - 1
"""From here on a limit is the machine's, and not worth a word."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block that is run."""

    line: int
    language: str
    text: str
    output: str | None
    """What it must print; None if nothing is said of it."""


def blocks() -> list[Block]:
    """Return the blocks that are run, in order."""
    found: list[Block] = []
    for match in BLOCK.finditer(README):
        kind, language, text = match.groups()
        line = README.count("\n", 0, match.start()) + 1
        if kind == "run":
            found.append(Block(line, language, text, None))
        elif kind == "output":
            last = found.pop()
            assert last.output is None, f"line {line}: a second output of one block"
            found.append(Block(last.line, last.language, last.text, text))
    return found


BLOCKS = blocks()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all blocks are run."""
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[int, subprocess.CompletedProcess[str]]:
    """What became of each block, by its line."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "HF_"))},
        # `mixer` is the one that is installed beside this Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
    }

    def outcome(block: Block) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMANDS[block.language], block.text],
            cwd=folder,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )

    made = [outcome(block) for block in BLOCKS[:MAKING]]
    with ThreadPoolExecutor(2) as pool:
        used = list(pool.map(outcome, BLOCKS[MAKING:]))
    return {block.line: done for block, done in zip(BLOCKS, [*made, *used], strict=True)}


@pytest.mark.crash
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_runs_and_prints_what_it_says(
    block: Block, outcomes: dict[int, subprocess.CompletedProcess[str]]
) -> None:
    done = outcomes[block.line]
    assert done.returncode == 0, done.stderr
    if block.output is not None:
        assert done.stdout == block.output


@pytest.mark.crash
def test_the_run_that_is_killed_is_killed(outcomes: dict[int, subprocess.CompletedProcess[str]]) -> None:
    (block,) = (block for block in BLOCKS if "kill -9" in block.text)
    assert re.findall(r"shard (\d+): exit code 137", outcomes[block.line].stdout) == ["20", "70"]


def test_the_example_and_all_five_readers_are_run() -> None:
    text = "".join(block.text for block in BLOCKS if block.output is not None)
    for reader in ("import datasets", "import pyarrow.dataset", "import pandas", "import polars", "import duckdb"):
        assert reader in text
    assert len(BLOCKS[0].text.splitlines()) == 10


@pytest.mark.crash
def test_an_output_holds_what_the_layout_says(
    folder: Path, outcomes: dict[int, subprocess.CompletedProcess[str]]
) -> None:
    (text,) = (match[3] for match in BLOCK.finditer(README) if match[1] == "layout")
    said = {line.split()[0] for line in text.splitlines()}
    found = {str(path.relative_to(folder / "killed")) for path in (folder / "killed").rglob("*") if path.is_file()}
    # What a killed process has not finished lies there on a disk; of checkpoints a short run has none,
    # and nothing had to be prepared.
    kinds = {re.sub(r"\d", "0", name) for name in found if not name.startswith(".mixer/tmp/")}
    assert kinds == said - {".mixer/checkpoints/", ".mixer/prepared/"}


def table(heading: str) -> list[list[str]]:
    """Return the cells of the one table whose first line begins so."""
    lines = README.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(heading))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


KINDS = {
    "DatasetConfig": "dataset",
    "PhaseConfig": "phase",
    "WeightsBy": "mapping",
    "ForkConfig": "mapping",
    "ColumnConfig": "mapping",
    "WindowConfig": "mapping",
    "BatchesConfig": "mapping",
}


def plural(words: str) -> str:
    """Return the words for several: the first number is one of things, and not a bound."""
    return " or ".join(f"{word.removesuffix(' from 1')}s" for word in words.split(" or "))


def inner_words(field: dict[str, Any], key: str) -> str:
    """Return the type of a list's entries or a mapping's values."""
    return type_words(field[key]) if isinstance(field.get(key), dict) else ""


def type_words(field: dict[str, Any]) -> str:
    """Return a type of the config's JSON Schema in the README's words."""
    if "anyOf" in field:
        return " or ".join(type_words(kind) for kind in field["anyOf"] if kind.get("type") != "null")
    if "$ref" in field:
        return KINDS[field["$ref"].rpartition("/")[2]]
    if "enum" in field or "const" in field:
        choices = field.get("enum", [field.get("const")])
        return ", ".join(f"`{value}`" for value in choices if value is not None)
    words = {
        "array": f"list of {plural(inner_words(field, 'items'))}",
        "boolean": "`true`, `false`",
        "integer": f"whole number from {field['minimum']}" if "minimum" in field else "whole number",
        "object": f"mapping of names to {plural(inner_words(field, 'additionalProperties'))}",
        "string": "text",
        "number": "number",
    }
    limit = f" to {field['maximum']}" if field.get("maximum", UNBOUNDED) < UNBOUNDED else ""
    return words[field["type"]] + limit


def default_words(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "required"
    default = field["default"]
    return "none" if default is None else f"`{str(default).lower()}`"


def config_rows(fields: dict[str, Any], prefix: str = "") -> Iterator[list[str]]:
    for name, field in fields.items():
        yield [f"`{prefix}{name}`", type_words(field), default_words(field), field["description"]]


def test_the_config_table_is_the_model() -> None:
    schema = json_schema()
    dataset = schema["$defs"]["DatasetConfig"]["properties"]
    expected = [*config_rows(schema["properties"]), *config_rows(dataset, "datasets.NAME.")]
    parts = {
        "datasets.NAME.window.": "WindowConfig",
        "datasets.NAME.batches.": "BatchesConfig",
        "phases[].": "PhaseConfig",
        "weights_by.": "WeightsBy",
        "fork.": "ForkConfig",
    }
    for name, kind in parts.items():
        expected += config_rows(schema["$defs"][kind]["properties"], name)
    assert table("| field | type |") == expected


def error_classes() -> list[type[MixerError]]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MixerError)]


def test_the_exit_codes_are_those_of_the_errors() -> None:
    expected: dict[str, set[str]] = {"0": set(), "130, 143": set()}
    for kind in error_classes():
        expected.setdefault(str(kind.exit_code), set()).add(kind.__name__)
    assert {code: set(re.findall(r"`(\w+)`", names)) for code, _, names in table("| exit code |")} == expected


def test_the_commands_and_their_options_are_those_of_the_program() -> None:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    everywhere = {"--json", "--debug"}
    expected = {}
    for name, command in group.commands.items():
        names = [[*parameter.opts, *parameter.secondary_opts] for parameter in command.params]
        options = {longest(each) for each in names if each[0].startswith("-")}
        assert everywhere <= options
        expected[name] = options - everywhere
    said = {
        row[0].split()[1].strip("`"): set(re.findall(r"`(--[\w-]+)`", row[2]))
        for row in table("| command | what it does | o")
    }
    assert said == expected


def longest(names: list[str]) -> str:
    """Return the name by which the README calls an option: of a pair, the one that changes something."""
    return "--no-prefect" if "--no-prefect" in names else max(names, key=len)


def test_the_settings_are_those_that_are_made() -> None:
    assert {row[0].strip("`"): row[1].strip("`") for row in table("| variable |")} == DEFAULTS
    assert RETRY_DELAYS in README
    assert f"`{','.join(f'{delay:g}' for delay in DEFAULT_RETRY_DELAYS_SECONDS)}`" in README


@pytest.mark.parametrize("path", ["README.md", ".github/CONTRIBUTING.md"])
def test_files_that_are_named_are_there(path: str) -> None:
    named = re.findall(r"(?<![\w./])((?:mixer|flows|infra|tests|\.ci|\.github)/[\w./-]+)", (ROOT / path).read_text())
    # A module that is spoken of because it must not be there.
    missing = [name for name in named if not (ROOT / name.rstrip(".")).exists() and name != "mixer/plan.py"]
    assert named
    assert missing == []


def test_links_within_the_readme_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", README, flags=re.DOTALL), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors
