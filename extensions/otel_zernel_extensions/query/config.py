"""The configuration of the query extension."""

from typing import Annotated

from pydantic import Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration
from otel_zernel_libraries.serving.api.server import ApiId
from otel_zernel_libraries.store.config import StoreConfig


class QueryConfig(ComponentConfig, StoreConfig):
    """The store, and the limits of a request."""

    api: ApiId = "api"
    """The id of the api extension that serves the routes."""
    timeout: PositiveDuration = 30.0
    """Seconds for one request. A longer query is cancelled."""
    max_page_size: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Points of a page at most."""
    max_offset: Annotated[int, Field(ge=0)] = 100_000
    """Points before a page, when pages are asked for by number. `cursor` has no such limit."""
    max_windows: Annotated[int, Field(ge=1)] = 20_000
    """Results of an aggregation at most: groups times windows."""
    max_histograms: Annotated[int, Field(ge=1)] = 100_000
    """Histograms that one aggregation may read. They are added up in this process."""
    max_series: Annotated[int, Field(ge=1)] = 500_000
    """Series of the store at most. They are kept in memory, about 1 kB each."""
