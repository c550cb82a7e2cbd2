"""The stacks of processes as profiles: for backends in the form of OTLP, and for files in that of pprof.

Both have a sample for each stack of `CodeTimes` with its position and activity, and its time in ns. A sample of another
thread has no position, and one of a DataLoader worker has the pid of the worker.

https://github.com/open-telemetry/opentelemetry-proto/blob/v1.10.0/opentelemetry/proto/profiles/v1development/profiles.proto
https://github.com/google/pprof/blob/main/proto/profile.proto
"""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.profiles.v1development import profiles_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.once import once
from otel_zernel_libraries.protobuf import declared_file, message_of
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes.job import ON_CPU
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.ledger import Position
from otel_zernel_libraries.training.stacks import CodeLine

Attribute = tuple[str, str | int]
CPU: Final = "cpu"
OFF_CPU: Final = "off_cpu"
"""The type of samples of threads that wait, for whatever reason."""
TIME: Final = "time"
"""In pprof: the sum of both."""
_UNIT: Final = "nanoseconds"


class _Sample(NamedTuple):
    kind: str
    lines: tuple[CodeLine, ...]
    """The innermost first."""
    attributes: tuple[Attribute, ...]


def profiles_data(
    code: CodeTimes, resource: Resource, scope: InstrumentationScope, start: int, end: int
) -> otlp.ProfilesData:
    """A profile of the CPU time and one of the waits in the time from `start` to `end` (ns), of the process that the
    resource describes."""
    rows = _Dictionary()
    profiles = []
    for kind in (CPU, OFF_CPU):
        profile = otlp.Profile(
            sample_type=otlp.ValueType(type_strindex=rows.text(kind), unit_strindex=rows.text(_UNIT)),
            time_unix_nano=start,
            duration_nano=max(end - start, 0),
            profile_id=blake2b(f"{kind} {start} {resource}".encode(), digest_size=16).digest(),
        )
        for sample, time in _samples(code.stacks, kind):
            indices = [rows.attribute(attribute) for attribute in sample.attributes]
            profile.samples.add(stack_index=rows.stack(sample.lines), attribute_indices=indices, values=[time])
        if profile.samples:
            profiles.append(profile)
    scoped = [otlp.ScopeProfiles(scope=scope, profiles=profiles)]
    return otlp.ProfilesData(
        resource_profiles=[otlp.ResourceProfiles(resource=resource, scope_profiles=scoped)] if profiles else [],
        dictionary=rows.message,
    )


class _Dictionary:
    """The tables of a message. Row 0 of each is empty, as OTLP demands."""

    def __init__(self) -> None:
        self.message = otlp.ProfilesDictionary(
            mapping_table=[otlp.Mapping()],
            location_table=[otlp.Location()],
            function_table=[otlp.Function()],
            link_table=[otlp.Link()],
            string_table=[""],
            attribute_table=[otlp.KeyValueAndUnit()],
            stack_table=[otlp.Stack()],
        )
        self._rows: dict[Any, int] = {"": 0}

    def text(self, text: str) -> int:
        """The number of a text."""
        if text not in self._rows:
            self.message.string_table.append(text)
            self._rows[text] = len(self.message.string_table) - 1
        return self._rows[text]

    def attribute(self, attribute: Attribute) -> int:
        """The number of an attribute."""
        name, value = attribute
        any_value = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
        return self._row(
            ("attribute", *attribute), self.message.attribute_table, key_strindex=self.text(name), value=any_value
        )

    def stack(self, lines: tuple[CodeLine, ...]) -> int:
        """The number of a stack."""
        at = [self._row(line, self.message.location_table, lines=[self._line(line)]) for line in lines]
        return self._row(lines, self.message.stack_table, location_indices=at)

    def _line(self, line: CodeLine) -> otlp.Line:
        function = self._row(
            (line.file, line.function),
            self.message.function_table,
            name_strindex=self.text(line.function),
            filename_strindex=self.text(line.file),
        )
        return otlp.Line(function_index=function, line=line.line)

    def _row(self, key: object, table: Any, **fields: Any) -> int:
        """The number of the row with this key, which it adds if needed."""
        if key not in self._rows:
            table.add(**fields)
            self._rows[key] = len(table) - 1
        return self._rows[key]


def pprof(processes: Sequence[tuple[CodeTimes, Mapping[str, str | int]]]) -> bytes:
    """A file of pprof with the stacks of processes, compressed by gzip. The attributes of a process become labels of
    its samples, as their own do."""
    profile = _pprof_type()()
    texts: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[CodeLine, int] = {}

    def text(content: str) -> int:
        return texts.setdefault(content, len(texts))

    def location(line: CodeLine) -> int:
        if line not in locations:
            key = line.file, line.function
            if key not in functions:
                functions[key] = len(functions) + 1
                profile.function.add(id=functions[key], name=text(line.function), filename=text(line.file))
            locations[line] = len(locations) + 1
            profile.location.add(id=locations[line]).line.add(function_id=functions[key], line=line.line)
        return locations[line]

    for kind in (CPU, OFF_CPU, TIME):
        profile.sample_type.add(type=text(kind), unit=text(_UNIT))
    profile.default_sample_type = text(TIME)
    profile.duration_nanos = round(max((code.seconds for code, _ in processes), default=0.0) * 1e9)
    for code, attributes in processes:
        for sample, time in _samples(code.stacks, CPU, OFF_CPU):
            values = [time if kind in (sample.kind, TIME) else 0 for kind in (CPU, OFF_CPU, TIME)]
            made = profile.sample.add(location_id=map(location, sample.lines), value=values)
            for name, value in (*attributes.items(), *sample.attributes):
                content = {"str": text(value)} if isinstance(value, str) else {"num": value}
                made.label.add(key=text(name), **content)
    profile.string_table.extend(texts)
    return gzip.compress(profile.SerializeToString(), mtime=0)


def _samples(stacks: Iterable[PlacedStack], *kinds: str) -> Iterator[tuple[_Sample, int]]:
    """The samples of these kinds, each once, and their times in ns."""
    times: Counter[_Sample] = Counter()
    for stack in stacks:
        kind = CPU if stack.activity in ON_CPU else OFF_CPU
        if kind in kinds:
            times[_Sample(kind, stack.lines, tuple(_attributes_of(stack)))] += round(stack.seconds * 1e9)
    return ((sample, time) for sample, time in times.items() if time)


def _attributes_of(stack: PlacedStack) -> Iterator[Attribute]:
    if not stack.is_other or stack.position is not Position.UNKNOWN:
        yield semconv.POSITION, stack.position.value
    yield semconv.ACTIVITY, stack.activity.value
    if stack.worker:
        yield semconv.DATALOADER_WORKER_PID, stack.worker


@once
def _pprof_type() -> Any:
    """The message of pprof's files, as far as it is written here."""
    fields = {
        "Profile": "1 ValueType* sample_type; 2 Sample* sample; 4 Location* location; 5 Function* function;"
        "6 string* string_table; 10 int64 duration_nanos; 14 int64 default_sample_type",
        "ValueType": "1 int64 type; 2 int64 unit",
        "Sample": "1 uint64* location_id; 2 int64* value; 3 Label* label",
        "Label": "1 int64 key; 2 int64 str; 3 int64 num",
        "Location": "1 uint64 id; 4 Line* line",
        "Line": "1 uint64 function_id; 2 int64 line",
        "Function": "1 uint64 id; 2 int64 name; 4 int64 filename",
    }
    return message_of(declared_file("pprof.proto", "perftools.profiles", fields), "Profile")
