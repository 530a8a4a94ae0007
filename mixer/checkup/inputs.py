"""Whether the inputs of a config are there: they are listed, as planning does, and not opened.

Prepared copies are read whole: nobody else compares their bytes with what was written, as it takes as long as reading
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from mixer.checkup.base import Check, Checks
from mixer.config import DatasetConfig, MixConfig
from mixer.errors import MixerError, NotPreparedError
from mixer.preparation.chain import Files, find_files
from mixer.preparation.engine import damaged_parts
from mixer.preparing import find, is_needed, place_of
from mixer.storage.inputs import InputListing, find_inputs

_LISTERS = 8
_SHOWN = 8

_checks = Checks("inputs")


def input_checks(config: MixConfig) -> Iterator[Check]:
    """Yield a check for each dataset whose files cannot be listed, and one for all others together."""
    datasets = config.datasets
    with ThreadPoolExecutor(_LISTERS, thread_name_prefix="mixer-doctor") as listers:
        looked = dict(zip(datasets, listers.map(_listed, datasets.items()), strict=True))
    found: dict[str, Files] = {}
    count = 0
    for name, files in looked.items():
        if isinstance(files, str):
            yield _checks.failed(name, files)
        else:
            found[name], listing = files
            count += len(listing.files)
    if found:
        yield _checks.ok("datasets", f"{len(found):,} of {len(datasets):,} found, {count:,} files together")
    if len(found) == len(datasets):
        yield from _prepared(config, found)


def _prepared(config: MixConfig, files: Mapping[str, Files]) -> Iterator[Check]:
    """Yield whether what has to be prepared is, and whole; nothing for a config, or a fork, that tells nothing."""
    if config.fork is not None or not is_needed(config, files):
        return
    try:
        done = find(config, {}, files)
        # What the mix reads: of what was made on the way to it nothing is read any more.
        last = {stage.dataset: stage.key for stage in done.stages}
        place = place_of(config)
        damaged = [part for key in dict.fromkeys(last.values()) for part in damaged_parts(place, key)]
    except NotPreparedError as error:
        yield _checks.ok("prepared", str(error))
    except MixerError as error:
        yield _checks.failed("prepared", str(error))
    else:
        if damaged:
            shown = ", ".join(damaged[:_SHOWN]) + (", ..." if len(damaged) > _SHOWN else "")
            yield _checks.failed(
                "prepared",
                f"{len(damaged):,} damaged parts in {done.place}: {shown}",
                "delete these files; `mixer prepare` with this config makes them again, with the same bytes",
            )
        else:
            yield _checks.ok("prepared", f"all of it, in {done.place}; its bytes are those that were written")


def _listed(named: tuple[str, DatasetConfig]) -> tuple[Files, InputListing] | str:
    """Return which files a dataset has, or why that cannot be told."""
    name, dataset = named
    try:
        files = find_files(name, dataset)
        listing = files.listing or find_inputs(dataset.path)
        return Files(files.format, listing), listing
    except MixerError as error:
        return str(error)
