"""The configuration of the otlp_json_file receiver."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.storage import Storage
from otel_zernel.types import ExtensionId, ReadableFile

Name = Annotated[str, Field(min_length=1)]


class OtlpJsonFileConfig(ComponentConfig):
    """The files to replay, and the pace. `include`, `exclude`, `start_at` and `storage` are those of otelcol."""

    include: Annotated[list[Name], Field(min_length=1), ReadableFile()]
    """Paths and globs of files."""
    exclude: list[Name] = Field(default_factory=list)
    """Paths and globs of files that are not read."""
    speed: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 0.0
    """The pace of the replay: 1 is the recorded pace, 10 is ten times as fast, 0 is as fast as downstream accepts."""
    timestamps: Literal["recorded", "now", "moved"] = "recorded"
    """The recorded times, or times from the start of the replay on. `now` divides all distances by `speed`, and `moved`
    keeps them. Both need a `speed`."""
    loop: bool = False
    """Start again after the last file, without end."""
    follow: bool = False
    """Wait for records that are appended, also after rotation and truncation, without end."""
    start_at: Literal["beginning", "end"] = "beginning"
    """With `follow`: whether files that exist at the start are read from their beginning or from their end."""
    signal: Literal["auto", "metrics", "traces", "logs"] = "auto"
    """The signal in files of protobuf, which do not name it: `metrics`, `traces`, `logs`, or found by the content."""
    storage: Annotated[str | None, ExtensionId(Storage)] = None
    """The id of a storage extension that keeps the positions in followed files over restarts."""

    @model_validator(mode="after")
    def _compatible_options(self) -> Self:
        if self.follow and (self.loop or self.speed):
            raise ValueError("follow excludes loop and speed: new records are read as they are written; remove one")
        if self.start_at == "end" and not self.follow:
            raise ValueError("start_at: end reads only records that are appended later; set follow: true")
        if self.storage is not None and not self.follow:
            raise ValueError("storage keeps the positions in followed files; set follow, or remove storage")
        if self.timestamps != "recorded" and not self.speed:
            raise ValueError(f"timestamps: {self.timestamps} needs a speed, else it has no pace; set speed: 1")
        return self
