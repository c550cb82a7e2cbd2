"""The watched steps as a Perfetto trace (TrackEvent), which opens in ui.perfetto.dev.

The numbers of fields are those of perfetto_trace.proto. The slices of a track nest: those that would overlap get tracks
of their own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from otel_zernel_commands.why.findings import JobFindings
from otel_zernel_commands.why.watch import Slice
from otel_zernel_libraries.protobuf import declared_file, message_of

_BEGIN: Final = 1
_END: Final = 2
_REALTIME: Final = 1
_BOOTTIME: Final = 6
"""Clocks of Perfetto's ClockSnapshot. A trace without its boot time is refused."""
_SEQUENCE: Final = 1
_FILE: Final = declared_file(
    "zernel/perfetto_trace.proto",
    "zernel.perfetto",
    {
        "ProcessDescriptor": "1 int32 pid; 6 string process_name",
        "TrackDescriptor": "1 uint64 uuid; 5 uint64 parent_uuid; 2 string name; 3 ProcessDescriptor process",
        "TrackEvent": "9 int32 type; 11 uint64 track_uuid; 22 string* categories; 23 string name",
        "Clock": "1 uint32 clock_id; 2 uint64 timestamp",
        "ClockSnapshot": "1 Clock* clocks; 2 int32 primary_trace_clock",
        "TracePacket": "8 uint64 timestamp; 58 uint32 timestamp_clock_id; 10 uint32 trusted_packet_sequence_id;"
        "6 ClockSnapshot clock_snapshot; 11 TrackEvent track_event; 60 TrackDescriptor track_descriptor",
        "Trace": "1 TracePacket* packet",
    },
)
_Trace: Any = message_of(_FILE, "Trace")


def perfetto_trace(jobs: Sequence[JobFindings], slices: Iterable[Slice]) -> bytes:
    """The trace of these jobs: a process for each rank, with tracks for its threads, collectives and GPU waits."""
    names = {rank.pid: _name(job, rank.rank) for job in jobs for rank in job.ranks}
    of_tracks: defaultdict[tuple[int, str], list[Slice]] = defaultdict(list)
    for part in slices:
        if part.pid in names and part.end >= part.start:
            of_tracks[part.pid, part.track].append(part)
    trace = _Trace()
    first = min((slice_.start for several in of_tracks.values() for slice_ in several), default=0)
    clocks = [{"clock_id": clock, "timestamp": first} for clock in (_REALTIME, _BOOTTIME)]
    trace.packet.add(
        trusted_packet_sequence_id=_SEQUENCE,
        clock_snapshot={"clocks": clocks, "primary_trace_clock": _REALTIME},
    )
    uuids = _describe(trace, names, of_tracks)
    for key in sorted(of_tracks):
        for number, lane in enumerate(_lanes(of_tracks[key])):
            uuid = uuids[key] if number == 0 else _extra(trace, key, uuids, number)
            for time, slice_, type_ in _events(lane):
                event: dict[str, Any] = {"type": type_, "track_uuid": uuid}
                if type_ == _BEGIN:
                    event |= {"name": slice_.name, "categories": [slice_.category]}
                trace.packet.add(
                    timestamp=time,
                    timestamp_clock_id=_REALTIME,
                    trusted_packet_sequence_id=_SEQUENCE,
                    track_event=event,
                )
    encoded: bytes = trace.SerializeToString()
    return encoded


def _name(job: JobFindings, rank: int | None) -> str:
    return job.title if rank is None else f"{job.title}, rank {rank}"


def _describe(trace: Any, names: Mapping[int, str], tracks: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """Adds the processes and the tracks. Returns the id of each track."""
    uuids: dict[tuple[int, str], int] = {}
    for pid, name in names.items():
        _add_track(trace, uuid=pid, process={"pid": pid, "process_name": name})
    for at, (pid, name) in enumerate(sorted(tracks), 1):
        uuids[pid, name] = at << 32
        _add_track(trace, uuid=at << 32, parent_uuid=pid, name=name)
    return uuids


def _extra(trace: Any, key: tuple[int, str], uuids: Mapping[tuple[int, str], int], number: int) -> int:
    """Adds another track of the same name, for slices that overlap those of the first."""
    uuid = uuids[key] + number
    _add_track(trace, uuid=uuid, parent_uuid=key[0], name=key[1])
    return uuid


def _add_track(trace: Any, **fields: Any) -> None:
    trace.packet.add(trusted_packet_sequence_id=_SEQUENCE, track_descriptor=fields)


def _lanes(slices: Iterable[Slice]) -> list[list[Slice]]:
    """The slices in as few lanes as they need so that those of a lane nest. In each, an outer slice comes first."""
    lanes: list[list[Slice]] = []
    still_open: list[list[Slice]] = []
    for part in sorted(slices, key=lambda part: (part.start, -part.end)):
        for outer in still_open:
            while outer and outer[-1].end <= part.start:
                outer.pop()
        fitting = (at for at, outer in enumerate(still_open) if not outer or part.end <= outer[-1].end)
        if (at := next(fitting, len(lanes))) == len(lanes):
            lanes.append([])
            still_open.append([])
        lanes[at].append(part)
        still_open[at].append(part)
    return lanes


def _events(lane: Iterable[Slice]) -> Iterator[tuple[int, Slice, int]]:
    """The begins and the ends of nested slices, in order of time."""
    still_open: list[Slice] = []
    for slice_ in lane:
        while still_open and still_open[-1].end <= slice_.start:
            last = still_open.pop()
            yield last.end, last, _END
        yield slice_.start, slice_, _BEGIN
        still_open.append(slice_)
    while still_open:
        last = still_open.pop()
        yield last.end, last, _END
