"""The configuration of the tasks extension."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from otel_zernel.api.server import ApiId
from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration
from otel_zernel_extensions.tasks.engines.local.config import LocalConfig


class TasksConfig(ComponentConfig):
    """Where tasks run, and how many."""

    api: ApiId = "api"
    """The extension that serves `/api/tasks`."""
    engine: Literal["local"] = "local"
    """Where the tasks run."""
    directory: Path = Path("/var/lib/otel-zernel/tasks")
    """The directory of the stored tasks, and of the local engine's output. One collector uses it at a time."""
    max_running: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Tasks that start or run at a time. Others stay queued."""
    max_queued: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Queued tasks. Further ones are refused with 429."""
    retention: PositiveDuration = 7 * 86400.0
    """Seconds from the end of a task to the end of its record and its output."""
    max_finished: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ended tasks that are kept. Beyond, the oldest are deleted before `retention`."""
    poll_interval: Annotated[PositiveDuration, Field(ge=0.01)] = 1.0
    """Seconds between two questions to the engine."""
    max_log_readers: Annotated[int, Field(ge=1)] = 100
    """Clients that read logs at a time. Others get 503."""
    local: LocalConfig = LocalConfig.model_construct()
    """The settings of the engine `local`."""
