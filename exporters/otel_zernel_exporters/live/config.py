"""The configuration of the live exporter."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration
from otel_zernel_libraries.serving.api.server import OptionalApiId


class LiveConfig(ComponentConfig):
    """How the live state is kept and served."""

    api: OptionalApiId = "api"
    """The extension that serves the page at `/`, `/api/live` and `/api/live/stream`. null serves nothing."""
    push_interval: Annotated[PositiveDuration, Field(ge=0.1)] = 1.0
    """Seconds between two deltas, at least 0.1."""
    history: Annotated[int, Field(gt=0, le=10_000)] = 200
    """The rows of steps of each rank that the state has, 88 bytes each. A row is a step. If steps are so fast that the
    rows would cover less than 20 s, a row has several steps."""
    max_clients: Annotated[int, Field(gt=0)] = 1000
    """The most readers of the stream. Others get 503."""
    replay: bool = False
    """Whether the data is a replay, whose times are unrelated to the clock."""
    expiration: PositiveDuration = 300.0
    """Seconds without data after which a rank, a GPU or a job leaves the state."""
    html: Path | None = None
    """A file for the page with the last state, in one file, written when the exporter ends. None writes nothing."""
