"""The configuration of the bcc receiver."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.component import ScraperConfig
from otel_zernel.types import PositiveDuration, ReadableFile, Section
from otel_zernel_receivers.bcc.attach_config import AnyAttachment, Name
from otel_zernel_receivers.bcc.decoder_config import DecoderConfig

_LAST_LOG2 = 64
"""The last slot of bpf_log2l()."""


class LabelConfig(Section):
    """One attribute of the points, from a field of the table's key."""

    name: Name
    """The attribute: `process.pid`."""
    field: str = ""
    """The field of the key. Empty: the key itself, if it is no structure."""
    decoders: tuple[DecoderConfig, ...] = ()
    """Applied in order."""

    @model_validator(mode="after")
    def _resolved_first(self) -> Self:
        if late := [decoder.name for decoder in self.decoders[1:] if decoder.name in ("ksym", "syscall")]:
            raise ValueError(f"the decoder {late[0]} must be the first one")
        return self

    @property
    def is_pid(self) -> bool:
        """Whether the series end with a process."""
        return any(decoder.name == "pid" for decoder in self.decoders)


class BucketsConfig(Section):
    """How the slots of a histogram's table become its bounds."""

    type: Literal["log2", "linear", "fixed"] = "log2"
    """`log2`: slots of bpf_log2l(). `linear`: slot n has the values from n * step. `fixed`: slot n is below bound n."""
    field: str = ""
    """The field of the key with the slot. Empty: the key itself."""
    min: Annotated[int, Field(ge=0)] = 0
    """The first slot with a bound of its own. Lower slots are counted in it."""
    max: Annotated[int, Field(ge=0, le=1024)] = 32
    """The last slot with a bound of its own. Higher slots are counted in the bucket without a bound."""
    step: Annotated[int, Field(ge=1)] = 1
    """For `linear`: the width of a bucket in the program's integers."""
    bounds: tuple[float, ...] = ()
    """For `fixed`: the bounds in the program's numbers, ascending."""
    sum_slot: Annotated[int, Field(ge=0)] | None = None
    """The slot whose value is the sum of all values, in the program's integers."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if (self.type == "fixed") != bool(self.bounds):
            raise ValueError("`bounds` and the type `fixed` need each other")
        if any(low >= high for low, high in pairwise(self.bounds)):
            raise ValueError("`bounds` must ascend")
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be less than min ({self.min})")
        if self.type == "log2" and self.max > _LAST_LOG2:
            raise ValueError(f"max must not be above {_LAST_LOG2}, the last slot of bpf_log2l()")
        return self


class BccMetricConfig(Section):
    """One metric from a table."""

    table: Name
    """The table of the program."""
    name: Name
    """The metric's name."""
    type: Literal["histogram", "sum", "gauge"]
    """A sum is monotonic and cumulative."""
    unit: str = ""
    """In UCUM, after scaling."""
    description: str = ""
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Units in one of the program's integers: 1e-9 if it counts nanoseconds and the unit is s."""
    value: str = ""
    """The field of the table's value. Empty: the value itself, if it is no structure."""
    labels: tuple[LabelConfig, ...] = ()
    """The attributes. Entries that agree in all of them are added up."""
    buckets: BucketsConfig = BucketsConfig.model_construct()
    """For histograms."""
    max_series: Annotated[int, Field(ge=1)] = 1000
    """Series at most. Points of further ones are dropped and counted."""

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        names = [label.name for label in self.labels]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the label {twice[0]!r} is there twice")
        if self.type != "histogram" and self.buckets != BucketsConfig.model_construct():
            raise ValueError("only histograms have `buckets`")
        return self

    def key_fields(self) -> Iterator[str]:
        """The fields of the key that the metric needs."""
        yield from (label.field for label in self.labels)
        if self.type == "histogram":
            yield self.buckets.field

    @property
    def pid_fields(self) -> Sequence[str]:
        """The fields of the key that hold pids."""
        return [label.field for label in self.labels if label.is_pid]


class ProgramConfig(Section):
    """A program in C, the places to which its functions are attached, and the metrics in its tables."""

    source: Annotated[str, Field(min_length=1)] | None = None
    """The program."""
    file: Annotated[Path | None, ReadableFile()] = None
    """A file with the program, in place of `source`."""
    cflags: tuple[str, ...] = ()
    """Flags for the compiler."""
    attach: tuple[AnyAttachment, ...] = ()
    """Functions that BCC attaches by their names, such as those of TRACEPOINT_PROBE, need no entry."""
    metrics: Annotated[tuple[BccMetricConfig, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _source_or_file(self) -> Self:
        if (self.source is None) == (self.file is None):
            raise ValueError("give either `source` or `file`")
        return self

    @model_validator(mode="after")
    def _metrics_differ(self) -> Self:
        names = [metric.name for metric in self.metrics]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the metric {twice[0]!r} is there twice")
        return self


class BccConfig(ScraperConfig):
    """The programs, how often their tables are read, and the interpreter with BCC."""

    collection_interval: PositiveDuration = 10.0
    """Seconds from the start of one scrape to the start of the next."""
    programs: Annotated[Mapping[Name, ProgramConfig], Field(min_length=1)]
    """By name."""
    python: Annotated[str, Field(pattern="^/")] = "/usr/bin/python3"
    """The absolute path of a Python that has the package bcc: that of the distribution."""
    kernel_headers: Annotated[str | None, Field(pattern="^/")] = None
    """A folder with kernel headers, such as /lib/modules/6.1.0-13-amd64. By default those of the running kernel."""
    start_timeout: PositiveDuration = 60.0
    """Seconds for compiling and attaching all programs."""
    proc: str = "/proc"
    """The procfs in which the pids of series are looked up. In a container: the host's, if it is mounted."""

    @field_validator("programs")
    @classmethod
    def _one_metric_has_one_meaning(cls, programs: Mapping[str, ProgramConfig]) -> Mapping[str, ProgramConfig]:
        seen: dict[str, BccMetricConfig] = {}
        for metric in (metric for program in programs.values() for metric in program.metrics):
            known = seen.setdefault(metric.name, metric)
            if (known.unit, known.type) != (metric.unit, metric.type):
                raise ValueError(f"the metric {metric.name!r} has two units or types")
        return programs
