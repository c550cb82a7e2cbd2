"""The host receiver: reads all scrapers, and encodes their readings and the ends of missing series."""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby

from otel_zernel.batch import Batch
from otel_zernel.component import Context, PartialScrape, Scraper
from otel_zernel.errors import CannotStart
from otel_zernel.otlp import points as otlp
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.host.config import HostConfig
from otel_zernel_receivers.host.metrics import METRICS
from otel_zernel_receivers.host.reading import ManySubjectsReader, PointAttributes, Reader, Reading, Subject

SCOPE = otlp.Scope("otel_zernel_receivers.host")
_DESCRIPTORS = {
    name: otlp.Descriptor(name, metric.unit, metric.kind, metric.description) for name, metric in METRICS.items()
}
_Series = tuple[str, PointAttributes]


class SubjectEncoder:
    """Encodes the readings of one resource. It remembers the series of the last scrape."""

    def __init__(self, subject: Subject) -> None:
        self._resource = otlp.encode_resource(dict(subject.attributes))
        self._start_ns = subject.start_ns
        self._series: set[_Series] = set()

    def encode(self, readings: Iterable[Reading], time_ns: int) -> Batch:
        """The readings at this time, and staleness points of series that are missing."""
        points: defaultdict[str, list[bytes]] = defaultdict(list)
        sums, others = otlp.Period(self._start_ns, time_ns), otlp.Period(0, time_ns)
        series = set()
        for metric, value, attributes in readings:
            series.add((metric, attributes))
            period = sums if METRICS[metric].kind == "sum" else others
            points[metric].append(otlp.encode_number_point(_encoded(attributes), value, period))
        for metric, attributes in self._series - series:
            stale = encode_staleness(METRICS[metric].kind, time_ns)
            points[metric].append(delimited(1, _encoded(attributes) + stale))
        self._series = series
        if not points:
            return Batch()
        metrics = [otlp.encode_metric(_DESCRIPTORS[name], b"".join(point)) for name, point in points.items()]
        encoded = otlp.encode_resource_metrics(self._resource, SCOPE, metrics)
        return Batch.encoded("metrics", encoded, sum(map(len, points.values())))


@lru_cache(maxsize=16384)
def _encoded(attributes: PointAttributes) -> bytes:
    return otlp.encode_point_attributes(dict(attributes))


_UNKNOWN_FORM = (ValueError, KeyError, IndexError, TypeError, ArithmeticError)
"""The errors of reading a file that does not look as expected."""
_MOST_SENTENCES = 3
"""Problems that one message names."""


class HostReceiver(Scraper):
    """Watches the machine: CPUs, memory, disks, filesystems, networks, load, swap, pressure, cgroup, processes."""

    Config = HostConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    config: HostConfig

    def __init__(self, config: HostConfig, context: Context) -> None:
        super().__init__(config, context)
        self._readers: Sequence[Reader | ManySubjectsReader] = ()
        self._refresh: Callable[[], None] = lambda: None
        self._machine: SubjectEncoder | None = None
        self._others: dict[Subject, SubjectEncoder] = {}

    def scrape(self) -> Batch:
        machine = self._machine or self._open()
        self._refresh()
        problems: list[str] = []
        time_ns = self.context.clock.time_ns()
        readings = [
            reading for reader in self._readers if isinstance(reader, Reader) for reading in _read(reader, problems)
        ]
        batches = [machine.encode(readings, time_ns)]
        for reader in self._readers:
            if isinstance(reader, ManySubjectsReader):
                batches += self._others_of(reader, problems, time_ns)
        batch = Batch.join(batches)
        if problems:
            raise PartialScrape(_sentence(problems), batch, len(problems))
        return batch

    def _others_of(self, reader: ManySubjectsReader, problems: list[str], time_ns: int) -> list[Batch]:
        """The batches of all subjects, and of those that are gone: their series end."""
        readings_of: dict[Subject, list[Reading]] = {}
        try:
            readings_of.update((subject, _enabled(readings, reader)) for subject, readings in reader.read_all(problems))
        except (OSError, *_UNKNOWN_FORM) as error:
            problems.append(_failed(reader, error))
        batches = []
        for subject, readings in readings_of.items():
            encoder = self._others.setdefault(subject, SubjectEncoder(subject))
            batches.append(encoder.encode(readings, time_ns))
        ended = self._others.keys() - readings_of.keys()
        return batches + [self._others.pop(gone).encode((), time_ns) for gone in ended]

    def _open(self) -> SubjectEncoder:
        """Makes the readers, at the first scrape. Raises `CannotStart` if `root_path` has no /proc."""
        attributes = (("host.name", os.uname().nodename), ("os.type", sys.platform))
        if sys.platform == "linux":
            from otel_zernel_receivers.host.linux.machine import LinuxMachine

            try:
                machine = LinuxMachine(self.config, self.context.clock)
            except OSError as error:
                raise CannotStart(
                    f"{self.context.path}::root_path: cannot read {error.filename}: {error.strerror}; mount the host's"
                    " root there"
                ) from error
            self._readers, self._refresh, start_ns = machine.readers, machine.refresh, machine.boot_ns
            attributes = (("host.name", machine.host_name), ("os.type", "linux"))
        else:
            from otel_zernel_receivers.host.portable import boot_time_ns, portable_readers

            self._readers, start_ns = portable_readers(self.config.scrapers), boot_time_ns()
        self._machine = SubjectEncoder(Subject(attributes, start_ns))
        return self._machine


def _read(reader: Reader, problems: list[str]) -> list[Reading]:
    """The readings of one scraper. Those before an error are kept."""
    readings: list[Reading] = []
    try:
        readings.extend(reader.read(problems))
    except (OSError, *_UNKNOWN_FORM) as error:
        problems.append(_failed(reader, error))
    return _enabled(readings, reader)


def _enabled(readings: list[Reading], reader: Reader | ManySubjectsReader) -> list[Reading]:
    return [reading for reading in readings if reading.metric in reader.enabled]


def _failed(reader: Reader | ManySubjectsReader, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot read {error.filename}: {error.strerror}"
    return f"a file of the kernel has an unknown form ({type(reader).__name__}: {error!r})"


def _sentence(problems: list[str]) -> str:
    """The first problems. Equal ones are named once."""
    different = [problem for problem, _ in groupby(problems)]
    more = f"; and {len(different) - _MOST_SENTENCES} more" if len(different) > _MOST_SENTENCES else ""
    return "; ".join(different[:_MOST_SENTENCES]) + more
