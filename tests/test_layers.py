"""Imports only point down: what decides bytes knows nothing of what stores, schedules or shows them."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("mixer", "flows")

LAYERS = (
    ("mixer.errors", "mixer.closing"),
    ("mixer.core",),
    ("mixer.storage", "mixer.mixing", "mixer.shards", "mixer.schemas", "mixer.batcher"),
    ("mixer.config", "mixer.sources"),
    ("mixer.log", "mixer.records"),
    (),  # the verbs: every module of mixer that stands in no other layer
    ("mixer",),
    ("mixer.testing",),
    ("mixer.cli", "mixer.torch", "flows"),
)
"""Lowest first; a name stands for its module and all below it, but `mixer` for the package's face alone."""
VERBS = LAYERS.index(())

ONLY_IN = {
    "fsspec": "mixer.storage",
    "s3fs": "mixer.storage",
    "gcsfs": "mixer.storage",
    "adlfs": "mixer.storage",
    "azure": "mixer.storage",
    "google": "mixer.storage",
    "aiobotocore": "mixer.storage",
    "botocore": "mixer.storage",
    "prefect": "flows",
    "torch": "mixer.torch",
    "tiktoken": "mixer.tokenizing",
    "tokenizers": "mixer.tokenizing",
    "typer": "mixer.cli",
    "rich": "mixer.cli",
}
CORE_MAY_IMPORT = {*sys.stdlib_module_names, "numpy", "mixer"}


def module_name(path: Path) -> str:
    """Return the dotted name of a file below the root."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def inside(module: str, package: str) -> bool:
    """Say whether `module` is `package` or below it."""
    return module == package or module.startswith(f"{package}.")


def layer(module: str) -> int:
    """Return the layer of a module of ours; the greater stands above."""
    if module == "mixer":
        return LAYERS.index(("mixer",))
    for number, names in enumerate(LAYERS):
        if any(name != "mixer" and inside(module, name) for name in names):
            return number
    return VERBS


def imports(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Yield every module that a source text imports, anywhere in it, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            base = parts[: len(parts) - node.level + is_package] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from mixer.core import plan` means the module if there is one, and a name in the package if not.
            named = [f"{origin}.{alias.name}" for alias in node.names]
            yield from (name for name in named if name in MODULES)
            if any(name not in MODULES for name in named):
                yield origin


IMPORTS = {
    module: sorted(set(imports(path.read_text(), module, is_package=path.name == "__init__.py")))
    for module, path in MODULES.items()
}
EDGES = [(module, target) for module, targets in IMPORTS.items() for target in targets if target in MODULES]


def upward(edges: list[tuple[str, str]]) -> list[str]:
    """Return a line for each import that points up."""
    return [f"{module} imports {target}" for module, target in edges if layer(target) > layer(module)]


def test_every_name_of_a_layer_is_there() -> None:
    assert {name for names in LAYERS for name in names} - MODULES.keys() == set()
    assert set(ONLY_IN.values()) - MODULES.keys() == set()


def test_no_import_points_up() -> None:
    assert upward(EDGES) == []


def test_an_import_that_points_up_is_found() -> None:
    edges = [
        ("mixer.core.plan", "mixer.storage.base"),
        ("mixer.sources.parquet", "mixer.planning"),
        ("mixer.building", "flows.premix"),
        ("mixer.building", "mixer"),
        ("mixer.planning", "mixer.cli"),
        ("mixer.errors", "mixer.core.plan"),
    ]
    assert upward(edges) == [f"{module} imports {target}" for module, target in edges]
    assert upward([(target, module) for module, target in edges]) == []


def test_imports_go_in_no_circle() -> None:
    # A package's own __init__ gathers what lies below it, which is no circle as long as that does not import it.
    graphlib.TopologicalSorter({module: [t for m, t in EDGES if m == module] for module in MODULES}).prepare()


def test_relative_and_late_imports_count() -> None:
    source = "def f():\n    from ..errors import MixerError\n    import mixer.core.plan\nfrom . import base\n"
    assert list(imports(source, "mixer.storage.local", is_package=False)) == [
        "mixer.storage.base",
        "mixer.errors",
        "mixer.core.plan",
    ]


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_heavy_package_is_imported_in_one_place_only(package: str) -> None:
    users = [module for module, targets in IMPORTS.items() if any(inside(target, package) for target in targets)]
    assert [module for module in users if not inside(module, ONLY_IN[package])] == []


def test_the_core_is_the_standard_library_and_numpy() -> None:
    reached = {
        (module, target.split(".")[0])
        for module, targets in IMPORTS.items()
        if inside(module, "mixer.core") or module == "mixer.errors"
        for target in targets
    }
    assert ("mixer.core.allocation", "numpy") in reached
    assert [(module, target) for module, target in sorted(reached) if target not in CORE_MAY_IMPORT] == []


def loaded_by(statement: str) -> set[str]:
    """Return the top-level names of the modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    return set(json.loads(run.stdout))


def test_importing_mixer_loads_nothing_heavy() -> None:
    assert loaded_by("import mixer") & {"prefect", "torch", "s3fs", "flows", "pyarrow", "pydantic"} == set()


def test_all_public_names_together_load_no_scheduler_and_no_store_that_is_not_used() -> None:
    loaded = loaded_by("from mixer import *")
    assert "pyarrow" in loaded
    assert loaded & {"prefect", "torch", "s3fs", "flows", "pandas", "typer", "rich"} == set()


def test_what_is_loaded_is_seen() -> None:
    assert {"mixer", "s3fs"} <= loaded_by("import mixer, s3fs")
