"""Prints a configuration as it was understood: `print-config`."""

from otel_zernel.config.load import Loaded
from otel_zernel.config.schema import Settings


def show(loaded: Loaded, settings: Settings, redacted: bool) -> str:
    """The merged configuration as YAML, with the fall-back defaults that components took from the environment.

    Secrets are `[REDACTED]`, unless `redacted` is false.
    """
    raise NotImplementedError
