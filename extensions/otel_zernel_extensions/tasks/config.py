"""The configuration of the tasks extension."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration
from otel_zernel_extensions.tasks.engines.kubernetes.config import KubernetesConfig
from otel_zernel_extensions.tasks.engines.local.config import LocalConfig
from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig
from otel_zernel_libraries.serving.api.server import ApiId


class TasksConfig(ComponentConfig):
    """Where tasks run, and how many."""

    api: ApiId = "api"
    """The extension that serves `/api/tasks`."""
    engine: Literal["local", "kubernetes", "slurm"] = "local"
    """Where the tasks run."""
    directory: Path = Path("/var/lib/otel-zernel/tasks")
    """The directory of the stored tasks, and of the local engine's output. One collector uses it at a time."""
    max_running: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Tasks that start or run at a time. Others stay queued."""
    max_queued: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Queued tasks. Further ones are refused with 429."""
    retention: PositiveDuration = 7 * 86400.0
    """Seconds for which the record and the output of an ended task are kept, from when its end was stored."""
    max_finished: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ended tasks that are kept. Beyond, the oldest are deleted before `retention`."""
    poll_interval: Annotated[PositiveDuration, Field(ge=0.01)] = 1.0
    """Seconds between two questions to the engine."""
    max_log_readers: Annotated[int, Field(ge=1)] = 100
    """Clients that read logs at a time. Others get 503."""
    local: LocalConfig = LocalConfig.model_construct()
    """The settings of the engine `local`."""
    kubernetes: KubernetesConfig = KubernetesConfig.model_construct()
    """The settings of the engine `kubernetes`."""
    slurm: SlurmConfig | None = None
    """The settings of the engine `slurm`."""

    @model_validator(mode="after")
    def _has_its_engine(self) -> Self:
        if self.engine == "slurm" and self.slurm is None:
            raise ValueError("the engine slurm needs the section slurm, with endpoint and output_directory")
        return self
