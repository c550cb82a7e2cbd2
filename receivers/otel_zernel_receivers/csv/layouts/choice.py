"""The layouts that a configuration allows."""

from collections.abc import Sequence

from otel_zernel_receivers.csv.config import Columns
from otel_zernel_receivers.csv.layouts.dcgm import DcgmLayout
from otel_zernel_receivers.csv.layouts.layout import CsvLayout, CustomLongLayout, CustomWideLayout, WideLayout
from otel_zernel_receivers.csv.layouts.nvidia_smi import NvidiaSmiLayout


def layouts_for(configured: str | Columns) -> Sequence[CsvLayout]:
    """The layouts that a file may have, in the order in which they are tried."""
    if isinstance(configured, Columns):
        return (CustomWideLayout(configured) if configured.metrics else CustomLongLayout(configured),)
    layouts = (DcgmLayout(), NvidiaSmiLayout(), WideLayout())
    return [layout for layout in layouts if configured in ("auto", layout.name)]
