"""Every error that mixer raises on purpose, and the exit code that each one ends a command with.

Classes are split by what a caller can do about them: mend the config, look at the inputs, start a new
output, leave the run to its new owner, or simply try again. A message says where, what was expected, what
was found, and what to do next; it never holds a secret.
"""

from __future__ import annotations

from typing import ClassVar


class MixerError(Exception):
    """Base of every error that mixer raises on purpose."""

    exit_code: ClassVar[int] = 1
    """What a command that ends with this error exits with."""
    transient: ClassVar[bool] = False
    """Whether the same call may well succeed a little later, with nothing changed."""


class ConfigError(MixerError, ValueError):
    """The config cannot be read, or asks for something impossible.

    >>> raise ConfigError("datasets.web.weight: expected a positive integer, found 0")
    Traceback (most recent call last):
    mixer.errors.ConfigError: datasets.web.weight: expected a positive integer, found 0
    """

    exit_code = 2


class InputError(MixerError, ValueError):
    """An input is missing, empty, not Parquet, or cut short."""

    exit_code = 2


class NotPreparedError(InputError):
    """Inputs must be prepared before they can be mixed, and are not yet."""


class StoppedError(MixerError, RuntimeError):
    """The caller asked to stop before there was a run to tell of; what is done stays, and the same call goes on."""


class SchemaError(ConfigError):
    """The datasets' columns cannot be brought to one schema without loss or guessing."""


class OutputError(MixerError, ValueError):
    """The output location cannot be used: foreign files lie there, or its store cannot keep the promises."""

    exit_code = 2


class ChangedError(MixerError, RuntimeError):
    """What a run is made from differs from what it was planned with: its definition, or an input file."""

    exit_code = 3


class CorruptionError(MixerError, RuntimeError):
    """An object of a run is not what the commit log says it is."""

    exit_code = 4


class NotEnoughDataError(MixerError, ValueError):
    """A dataset holds fewer items than the asked number of batches takes."""

    exit_code = 5


class FencedError(MixerError, RuntimeError):
    """A newer start has taken this run over; this process has stopped, and nothing is harmed."""

    exit_code = 6


class DatasetError(MixerError, RuntimeError):
    """A dataset failed to give a `DataBatcher` its next item; the cause is chained, and nothing is lost."""


class ExhaustedError(DatasetError):
    """A dataset of a `DataBatcher` has no further item."""


class StoreError(MixerError, OSError):
    """A store refused a call for good: no such bucket, access denied, a full disk, a read-only folder."""


class StoreUnavailableError(StoreError):
    """A store did not answer, or asked to be left alone for a while; trying again is right."""

    transient = True
