"""The contracts of receivers, processors, exporters and extensions, and the context that each one gets.

The constructor of a component stores its configuration and its `Context`, and does no I/O. Only `run`, `scrape`,
`export`, `__aenter__` and `__aexit__` do I/O.
"""

from otel_zernel.component.component import Component as Component
from otel_zernel.component.component import ComponentConfig as ComponentConfig
from otel_zernel.component.component import Context as Context
from otel_zernel.component.component import Extension as Extension
from otel_zernel.component.component import Finding as Finding
from otel_zernel.component.component import Kind as Kind
from otel_zernel.component.component import Logger as Logger
from otel_zernel.component.component import Stability as Stability
from otel_zernel.component.emit import Emit as Emit
from otel_zernel.component.emit import ImmediateEmit as ImmediateEmit
from otel_zernel.component.emit import Insist as Insist
from otel_zernel.component.emit import PacedEmit as PacedEmit
from otel_zernel.component.exporter import Exporter as Exporter
from otel_zernel.component.processor import BYTES_AT_ONCE as BYTES_AT_ONCE
from otel_zernel.component.processor import ITEMS_AT_ONCE as ITEMS_AT_ONCE
from otel_zernel.component.processor import LONGEST_PREPARATION as LONGEST_PREPARATION
from otel_zernel.component.processor import Processor as Processor
from otel_zernel.component.receiver import PartialScrape as PartialScrape
from otel_zernel.component.receiver import Receiver as Receiver
from otel_zernel.component.receiver import Scraper as Scraper
from otel_zernel.component.receiver import ScraperConfig as ScraperConfig
