"""Whether the inputs of a config are there: they are listed, as planning does, and not opened."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from mixer.checkup.base import Check, Checks
from mixer.config import MixConfig
from mixer.errors import MixerError
from mixer.storage.inputs import find_inputs

_LISTERS = 8

_checks = Checks("inputs")


def input_checks(config: MixConfig) -> Iterator[Check]:
    """Yield a check for each dataset whose files cannot be listed, and one for all others together."""
    paths = {name: dataset.path for name, dataset in config.datasets.items()}
    with ThreadPoolExecutor(_LISTERS, thread_name_prefix="mixer-doctor") as listers:
        found = dict(zip(paths, listers.map(_files, paths.values()), strict=True))
    counts = [files for files in found.values() if isinstance(files, int)]
    for name, files in found.items():
        if isinstance(files, str):
            yield _checks.failed(name, files)
    if counts:
        yield _checks.ok("datasets", f"{len(counts):,} of {len(paths):,} found, {sum(counts):,} files together")


def _files(path: str | list[str]) -> int | str:
    """Return how many files a dataset has, or why that cannot be told."""
    try:
        return len(find_inputs(path).files)
    except MixerError as error:
        return str(error)
