"""The contracts of receivers, processors, exporters and extensions, and the context that each one gets.

The constructor of a component stores its configuration and its `Context`, and does no I/O. Only `run`, `scrape`,
`export`, `__aenter__` and `__aexit__` do I/O.
"""

from otel_zernel.component.component import (
    Component,
    ComponentConfig,
    Context,
    Extension,
    Finding,
    Kind,
    Logger,
    Stability,
)
from otel_zernel.component.emit import Emit, ImmediateEmit, Insist, PacedEmit
from otel_zernel.component.exporter import Exporter
from otel_zernel.component.processor import BYTES_AT_ONCE, ITEMS_AT_ONCE, LONGEST_PREPARATION, Processor
from otel_zernel.component.receiver import PartialScrape, Receiver, Scraper, ScraperConfig

__all__ = [
    "BYTES_AT_ONCE",
    "ITEMS_AT_ONCE",
    "LONGEST_PREPARATION",
    "Component",
    "ComponentConfig",
    "Context",
    "Emit",
    "Exporter",
    "Extension",
    "Finding",
    "ImmediateEmit",
    "Insist",
    "Kind",
    "Logger",
    "PacedEmit",
    "PartialScrape",
    "Processor",
    "Receiver",
    "Scraper",
    "ScraperConfig",
    "Stability",
]
