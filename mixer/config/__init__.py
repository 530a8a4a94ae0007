"""What a run is asked to be: one strict model that is the YAML file, the flow's parameter and the Python argument.

Nothing is guessed, converted or looked up: no environment variable, no search path, no merging of files. Secrets have
no place here; they come from where the stores look for them themselves (the AWS chain, fsspec's configuration).
"""

from __future__ import annotations

from mixer.config.fields import BatchesConfig, DatasetConfig, ForkConfig, PhaseConfig, WeightsBy, WindowConfig
from mixer.config.models import MixConfig
from mixer.config.reading import config_from, load_config, parse_config
from mixer.config.values import ColumnConfig
from mixer.config.writing import example_config, json_schema, to_yaml

__all__ = [
    "BatchesConfig",
    "ColumnConfig",
    "DatasetConfig",
    "ForkConfig",
    "MixConfig",
    "PhaseConfig",
    "WeightsBy",
    "WindowConfig",
    "config_from",
    "example_config",
    "json_schema",
    "load_config",
    "parse_config",
    "to_yaml",
]
