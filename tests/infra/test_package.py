"""What `pip install .` gives: every file, a command that works, and no import of what it does not bring along."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mixer", "flows")
EXTRAS = {
    "mixer/preparation/external.py": "sort",
    "mixer/storage/azure.py": "azure",
    "mixer/storage/azure_filesystem.py": "azure",
    "mixer/storage/gcs_filesystem.py": "gcs",
    "mixer/tokenizing/hugging.py": "tokenizers",
    "mixer/tokenizing/ranks.py": "tiktoken",
    "mixer/torch": "torch",
}
"""Modules, and folders of such, that stand behind an extra of their own."""
COMES_WITH = {
    "aiobotocore": "s3fs",
    "aiohttp": "s3fs",
    "azure-core": "adlfs",
    "azure-storage-blob": "adlfs",
    "botocore": "aiobotocore",
    "httpx": "prefect",
    "pydantic-core": "pydantic",
}
"""Distributions whose errors and settings are seen through another one's; that one says which versions it takes."""


def pip(*arguments: str) -> None:
    run = subprocess.run([sys.executable, "-m", "pip", *arguments], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [path] = folder.glob("mixer-*.whl")
    return path


@pytest.mark.install
def test_the_wheel_holds_the_two_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {"mixer/py.typed", "flows/py.typed"} <= held


@pytest.mark.install
def test_the_installed_command_mixes(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--quiet", "--no-deps", "--no-compile", "--target", str(site), str(wheel))
    for name, rows in (("a", 30), ("b", 10)):
        pq.write_table(pa.table({"n": range(rows)}), tmp_path / f"{name}.parquet")
    (tmp_path / "mix.yaml").write_text(
        "output: out\nbatch_size: 4\nbatches: 10\nbatches_per_shard: 5\n"
        "datasets: {a: {path: a.parquet, weight: 3}, b: {path: b.parquet, weight: 1}}\n"
    )

    def command(*arguments: str) -> str:
        # Far from the checkout, and with the wheel's files before those that the tests run from.
        run = subprocess.run(
            [sys.executable, str(site / "bin" / "mixer"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert "mixer plan mix.yaml" in command("--help")
    assert importlib.metadata.version("mixer") in command("--version")
    command("plan", "mix.yaml")
    command("run", "mix.yaml", "--no-prefect")
    assert "finished" in command("status", "out")
    assert pq.read_table(tmp_path / "out" / "data").num_rows == 40


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def named(dependencies: list[str]) -> set[str]:
    """Return the distributions that dependencies ask for, by their normal names."""
    return {normal(re.split(r"[^\w.-]", dependency)[0]) for dependency in dependencies}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def imported(path: Path) -> set[str]:
    """Return the top-level names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names - {*PACKAGES, *sys.stdlib_module_names}


def test_whatever_is_imported_is_a_declared_dependency() -> None:
    homes = importlib.metadata.packages_distributions()
    asked = project()
    always = named(asked["dependencies"]) | set(COMES_WITH)

    def allowed(path: Path) -> set[str]:
        place = path.relative_to(ROOT)
        extras = {EXTRAS[name.as_posix()] for name in (place, *place.parents) if name.as_posix() in EXTRAS}
        return always | {name for extra in extras for name in named(asked["optional-dependencies"][extra])}

    stray = {
        f"{path.relative_to(ROOT)} imports {name}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in imported(path)
        if not {normal(home) for home in homes.get(name, [])} & allowed(path)
    }
    assert stray == set()


@pytest.mark.parametrize("distribution", COMES_WITH)
def test_what_comes_with_a_dependency_does_come_with_it(distribution: str) -> None:
    assert distribution in named(importlib.metadata.requires(COMES_WITH[distribution]) or [])


def test_every_declared_dependency_has_a_lower_bound() -> None:
    asked = project()
    every = [*asked["dependencies"], *(one for extra in asked["optional-dependencies"].values() for one in extra)]
    assert [dependency for dependency in every if ">=" not in dependency and "==" not in dependency] == []
