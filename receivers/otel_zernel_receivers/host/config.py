"""The configuration of the host receiver. Keys are those of the OpenTelemetry Collector's hostmetrics receiver."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from otel_zernel.component import ScraperConfig
from otel_zernel.types import Duration, NamedSections, PositiveDuration, Section
from otel_zernel_receivers.host.metrics import ScraperName, of_scraper


class HostMetricConfig(Section):
    """Enables or disables one metric."""

    enabled: bool
    """Whether to send the metric."""


class NameMatch(Section):
    """Names to select. `strict` compares whole names, `regexp` searches by regular expressions, as Go does."""

    key: ClassVar[str]
    """The field with the names or patterns."""
    match_type: Literal["strict", "regexp"]

    @model_validator(mode="after")
    def _patterns_compile(self) -> Self:
        for name in self.wanted() if self.match_type == "regexp" else ():
            try:
                re.compile(name)
            except re.error as error:
                raise ValueError(f"{name!r} is not a regular expression: {error}") from error
        return self

    def wanted(self) -> Sequence[str]:
        """The configured names or patterns."""
        names: Sequence[str] = getattr(self, self.key)
        return names

    def matches(self, name: str) -> bool:
        """Whether one of the names is this one."""
        if self.match_type == "strict":
            return name in self.wanted()
        return any(re.search(pattern, name) for pattern in self.wanted())


class DeviceMatch(NameMatch):
    """Disks, or the devices of filesystems."""

    key = "devices"
    devices: tuple[str, ...]


class FilesystemTypeMatch(NameMatch):
    """Types of filesystems: ext4, nfs4."""

    key = "fs_types"
    fs_types: tuple[str, ...]


class MountPointMatch(NameMatch):
    """Mount points."""

    key = "mount_points"
    mount_points: tuple[str, ...]


class InterfaceMatch(NameMatch):
    """Network interfaces."""

    key = "interfaces"
    interfaces: tuple[str, ...]


class ProcessNameMatch(NameMatch):
    """Executables."""

    key = "names"
    names: tuple[str, ...]


def selects(include: NameMatch | None, exclude: NameMatch | None, name: str) -> bool:
    """Whether the name is included, and not excluded."""
    return (include is None or include.matches(name)) and not (exclude and exclude.matches(name))


class OneScraperConfig(Section):
    """The metrics of one scraper."""

    scraper: ClassVar[ScraperName]
    metrics: Mapping[str, HostMetricConfig] = Field(default_factory=dict)
    """Metrics to enable or disable, by name."""

    @model_validator(mode="after")
    def _metrics_exist(self) -> Self:
        known = of_scraper(self.scraper)
        for name in self.metrics:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"its metrics are {', '.join(known)}"
                raise ValueError(f"the scraper {self.scraper} has no metric {name!r}; {hint}")
        return self

    def enabled(self) -> frozenset[str]:
        """The names of the metrics to send."""
        configured = {name: metric.enabled for name, metric in self.metrics.items()}
        known = of_scraper(self.scraper).values()
        return frozenset(metric.name for metric in known if configured.get(metric.name, metric.enabled))


class CpuConfig(OneScraperConfig):
    """CPU time."""

    scraper = "cpu"
    per_cpu: bool = False
    """Whether each logical CPU has its own series, with `cpu.logical_number`."""


class MemoryConfig(OneScraperConfig):
    """Memory."""

    scraper = "memory"


class DiskConfig(OneScraperConfig):
    """Disks."""

    scraper = "disk"
    include: DeviceMatch | None = None
    """The disks to report. By default all but loop devices and RAM disks."""
    exclude: DeviceMatch | None = DeviceMatch.model_construct(match_type="regexp", devices=(r"^(loop|ram|zram)\d+$",))


class FilesystemConfig(OneScraperConfig):
    """Mounted filesystems."""

    scraper = "filesystem"
    include_virtual_filesystems: bool = False
    """Whether to report filesystems without a disk or a server, besides /dev/shm and the root of a container."""
    include_devices: DeviceMatch | None = None
    exclude_devices: DeviceMatch | None = None
    include_fs_types: FilesystemTypeMatch | None = None
    exclude_fs_types: FilesystemTypeMatch | None = None
    include_mount_points: MountPointMatch | None = None
    exclude_mount_points: MountPointMatch | None = None
    mount_timeout: PositiveDuration = 1.0
    """Seconds after which a filesystem counts as hung, such as one of a lost NFS server. The others are reported."""
    max_filesystems: Annotated[int, Field(ge=1)] = 256
    """Filesystems to report at most."""


class NetworkConfig(OneScraperConfig):
    """Network interfaces."""

    scraper = "network"
    include: InterfaceMatch | None = None
    exclude: InterfaceMatch | None = None
    max_interfaces: Annotated[int, Field(ge=1)] = 256
    """Interfaces to report at most: a node of Kubernetes has one for each pod."""


class LoadConfig(OneScraperConfig):
    """Load averages."""

    scraper = "load"
    cpu_average: bool = False
    """Whether to divide the load by the number of logical CPUs."""


class PagingConfig(OneScraperConfig):
    """Swap and page faults."""

    scraper = "paging"


class PressureConfig(OneScraperConfig):
    """Pressure stall information (PSI) of the machine, and of the cgroup."""

    scraper = "pressure"


class CgroupConfig(OneScraperConfig):
    """The cgroup in which the collector runs: in a container, its limits."""

    scraper = "cgroup"


class ProcessCountsConfig(OneScraperConfig):
    """Counts of processes."""

    scraper = "processes"


class ProcessConfig(OneScraperConfig):
    """Each process by itself."""

    scraper = "process"
    include: ProcessNameMatch | None = None
    """The executables to report. By default all. Kernel threads are never reported."""
    exclude: ProcessNameMatch | None = None
    max_processes: Annotated[int, Field(ge=1)] = 256
    """Processes to report at most: those of jobs first, then those with the most memory."""
    scrape_process_delay: Duration = 0.0
    """Seconds that a process must have run."""
    mute_process_all_errors: bool = False
    """Whether files that may not be read are no error. Without it, each such process is an error once."""


class ScrapersConfig(NamedSections):
    """The scrapers to run. A scraper that is not named does not run."""

    cpu: CpuConfig | None = None
    memory: MemoryConfig | None = None
    disk: DiskConfig | None = None
    filesystem: FilesystemConfig | None = None
    network: NetworkConfig | None = None
    load: LoadConfig | None = None
    paging: PagingConfig | None = None
    pressure: PressureConfig | None = None
    cgroup: CgroupConfig | None = None
    processes: ProcessCountsConfig | None = None
    process: ProcessConfig | None = None

    @model_validator(mode="after")
    def _one_runs(self) -> Self:
        if not self.configured():
            raise ValueError("name at least one scraper, or remove the key for the default")
        return self

    def configured(self) -> Sequence[OneScraperConfig]:
        """The scrapers that run."""
        every = (getattr(self, name) for name in type(self).model_fields)
        return [scraper for scraper in every if scraper is not None]


def _default_scrapers() -> ScrapersConfig:
    names = (name for name in ScrapersConfig.model_fields if name != "process")
    return ScrapersConfig.model_validate(dict.fromkeys(names))


def _absolute(path: str) -> str:
    if path and not Path(path).is_absolute():
        raise ValueError(f"{path!r} must be an absolute path, such as /hostfs")
    return path


class HostConfig(ScraperConfig):
    """The scrapers, and how often they run."""

    collection_interval: PositiveDuration = 10.0
    """Seconds from the start of one scrape to the start of the next."""
    root_path: Annotated[str, AfterValidator(_absolute)] = ""
    """Where the host's root is mounted, if the collector runs in a container and reports the host: `/hostfs`."""
    scrapers: ScrapersConfig = Field(default_factory=_default_scrapers)
