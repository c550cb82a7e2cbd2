"""The configuration of the live exporter."""

from typing import Annotated

from pydantic import Field

from otel_zernel.api.server import OptionalApiId
from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration


class LiveConfig(ComponentConfig):
    """How the live state is kept and served."""

    api: OptionalApiId = "api"
    """The extension that serves the page at `/`, `/api/live` and `/api/live/stream`. null serves nothing."""
    push_interval: Annotated[PositiveDuration, Field(ge=0.1)] = 1.0
    """Seconds between two deltas, at least 0.1."""
    history: Annotated[int, Field(gt=0, le=10_000)] = 200
    """The last steps of each rank that the state has. A step takes 72 bytes."""
    max_clients: Annotated[int, Field(gt=0)] = 1000
    """The most readers of the stream. Others get 503."""
    expiration: PositiveDuration = 300.0
    """Seconds without data after which a rank, a GPU or a job leaves the state."""
