"""A snapshot has the counters of a thread at a mark. The difference of two says what the thread did meanwhile.

A span of a training thread carries the snapshots of its begin and its end (docs/development/spans.md). Their bytes are
those of the C struct `snapshot` in bpf/, so the ebpf receiver copies them and computes nothing.
"""

import struct
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from operator import sub
from typing import Final, NamedTuple

from otel_zernel_libraries.training.ledger.moments import Activity, Position

STATES: Final = (
    None,
    Activity.CPU_WAIT,
    Activity.GIL,
    Activity.FILE,
    Activity.SOCKET,
    Activity.PIPE,
    Activity.LOCK,
    Activity.CHILD,
    Activity.TIMER,
    Activity.FAULT,
    Activity.SWAP,
    Activity.GPU_WAIT,
    Activity.LAUNCH_BLOCKED,
    Activity.COPY,
    Activity.COLLECTIVE,
    Activity.UNKNOWN,
)
"""The states that the kernel tells apart, in the order of `Snapshot.times`.

The first, on a CPU, is no activity yet: samples divide it into `operator`, `python` and `native`. `cpu_wait` still
contains `throttled`, which only the counters of the control group tell apart.
"""
SAMPLED: Final = (None, Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE)
"""The activities of `Snapshot.samples`. The first, in a call of CUDA or NCCL, is known by its state."""
FRAME_POSITIONS: Final = (None, Position.CHECKPOINT, Position.COMPILE, Position.ENVIRONMENT)
"""The positions of `Snapshot.frame_times`. They have no marks; Python frames show them. The first is any other."""
WAITS: Final = (
    *(Activity.GIL, Activity.FILE, Activity.SOCKET, Activity.PIPE, Activity.LOCK, Activity.CHILD, Activity.TIMER),
    Activity.UNKNOWN,
)
"""The states of `Snapshot.before_backward`. A wait whose state was settled late counts in the last one."""
LAYOUT: Final = struct.Struct(f"<Q{len(STATES)}Q5Q8I{len(SAMPLED)}H{len(FRAME_POSITIONS)}I5Q2I2Q{len(WAITS)}IQ2I")
"""The fields of `Snapshot` in their order, little-endian. A later release may append fields."""
_SHORTEST: Final = struct.calcsize(f"<Q{len(STATES)}Q5Q8I")
"""The first version had so many bytes."""
_WORD: Final = "<u4"
_WORDS: Final = 2 * LAYOUT.size // 4
_MASK: Final = (_WORDS + 7) // 8
"""Bytes: a bit for each word of two snapshots."""


COUNTS: Final = 2**32
SAMPLES: Final = 2**16
"""Counts and samples are modulo these."""
KNOWS_TIMES: Final = 1
KNOWS_READ: Final = 2
KNOWS_FILE_FAULTS: Final = 4
"""Bits of `Snapshot.known`."""


class Snapshot(NamedTuple):
    """The counters of a thread at a mark."""

    time: int
    """ns. All times of a snapshot have one clock, CLOCK_MONOTONIC."""
    times: tuple[int, ...]
    """ns in each of `STATES`. Only differences have a meaning."""
    last_operator: int
    """The begin of the thread's last operator, ns; 0 without one."""
    first_launch: int
    """The first launch since the snapshot before, ns; 0 without one."""
    last_launch: int
    """The last launch, ns; 0 without one."""
    read: int
    """Bytes that its system calls have read, or received from sockets, without files that the kernel makes."""
    copied: int
    """Bytes of its copies from the host to a device."""
    operators: int
    """Operators that have begun. Counts are modulo 2^32."""
    launches: int
    copies: int
    """Copies from the host to a device."""
    collectives: int
    """Collectives that the process has issued."""
    file_faults: int
    """Page faults on mapped files and shared memory."""
    minor_faults: int
    """Page faults without I/O."""
    major_faults: int
    """Page faults with I/O."""
    known: int
    """A bit mask of `KNOWS_TIMES` and others: the fields that this kernel counts."""
    samples: tuple[int, ...]
    """Samples on the CPU by `SAMPLED`, modulo 2^16."""
    frame_times: tuple[int, ...]
    """The time by `FRAME_POSITIONS`, us modulo 2^32, as samples and long waits show it."""
    written: int = 0
    """Bytes that its system calls have written to files, or sent to sockets. This and all that follows is 0 in older
    recordings."""
    writing: int = 0
    """ns off the CPU in system calls that write. They also count in `times`."""
    backward_blocked: int = 0
    """ns in blocked launches of other threads that computed for this thread's backward passes, as the next three."""
    backward_first_launch: int = 0
    """The first launch in the latest pass that has one, ns; 0 without one."""
    backward_last_launch: int = 0
    backward_launches: int = 0
    forks: int = 0
    """Processes that the thread has started."""
    hits: int = 0
    """Hits of the receiver's probes in the thread, as `zernel.probe.hits` counts them."""
    giving: int = 0
    """ns in waits for a lock whose frames show that the thread gets no batch. They also count in `times`."""
    before_backward: tuple[int, ...] = (0,) * len(WAITS)
    """The time by `WAITS` in code that the loop runs before its backward pass, us modulo 2^32. It also counts in
    `times`."""
    after_backward: int = 0
    """ns in waits for files, sockets and pipes in code that the loop runs after its backward pass, and not in a
    function that gets something. They also count in `times`."""
    sampled_before: int = 0
    """Samples on the CPU in code before the backward pass, modulo 2^32."""
    sampled_after: int = 0
    """The same in code after it, but not in a function that gets something."""

    def since(self, earlier: "Snapshot") -> tuple[int, ...] | None:
        """The time (ns) in each of `STATES` since an earlier snapshot.

        None if they do not belong to one count: after a restart of the receiver, or for another thread with the same
        id, all counters begin again.
        """
        spent = tuple(map(sub, self.times, earlier.times))
        return spent if self._follows(earlier) and min(spent) >= 0 else None

    def by_state_since(self, earlier: "Snapshot") -> dict[Activity | None, int] | None:
        """The same by state, without states in which no time was spent."""
        if not self._follows(earlier):
            return None
        pairs = zip(STATES, earlier.times, self.times, strict=True)
        spent = {state: after - before for state, before, after in pairs if before != after}
        return spent if not spent or min(spent.values()) > 0 else None

    def _follows(self, earlier: "Snapshot") -> bool:
        return (
            self.time >= earlier.time
            and self.read >= earlier.read
            and self.copied >= earlier.copied
            and self.hits >= earlier.hits
        )

    def towards(self, later: "Snapshot", part: int, whole: int) -> "Snapshot":
        """The counters after `part` ns of the `whole` ns until a later snapshot, if all grow evenly.

        Counts are rounded: a snapshot may lie some us from the edge that it belongs to.
        """

        def between(before: tuple[int, ...], after: tuple[int, ...], modulus: int = 2**64) -> tuple[int, ...]:
            if before == after:
                return before
            pairs, half = zip(before, after, strict=True), whole // 2 if modulus < 2**64 else 0
            return tuple(
                [
                    first + ((last - first) % modulus * part + half) // whole if first != last else first
                    for first, last in pairs
                ]
            )

        return _snapshot(
            (
                self.time + part,
                between(self.times, later.times),
                *(self.last_operator, self.first_launch, self.last_launch),
                *between((self.read, self.copied), (later.read, later.copied)),
                *between(self.counts, later.counts, COUNTS),
                self.known,
                between(self.samples, later.samples, SAMPLES),
                between(self.frame_times, later.frame_times, COUNTS),
                *between(self[_WRITTEN:_BACKWARD_FIRST], later[_WRITTEN:_BACKWARD_FIRST]),  # type: ignore[arg-type]
                *(later.backward_first_launch, later.backward_last_launch),
                *between(self[_BACKWARD:_GIVING], later[_BACKWARD:_GIVING], COUNTS),  # type: ignore[arg-type]
                *between((self.giving,), (later.giving,)),
                between(self.before_backward, later.before_backward, COUNTS),
                *between((self.after_backward,), (later.after_backward,)),
                *between(self[_SAMPLED:], later[_SAMPLED:], COUNTS),  # type: ignore[arg-type]
            )
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """From `operators` to `major_faults`."""
        return self[_FIRST_COUNT:_KNOWN]  # type: ignore[return-value]

    def to_bytes(self) -> bytes:
        lists = *self.samples, *self.frame_times
        return LAYOUT.pack(
            *(self.time, *self.times, *self[2:_LISTS], *lists, *self[_WRITTEN:_BEFORE]),
            *(*self.before_backward, *self[_AFTER:]),
        )


def joined_snapshots(begin: bytes, end: bytes) -> bytes:
    """The attributes of a span in one piece, each as long as `LAYOUT`; empty if one is too short."""
    if min(len(begin), len(end)) < _SHORTEST:
        return b""
    size = LAYOUT.size
    if len(begin) == len(end) == size:
        return begin + end
    return begin[:size].ljust(size, b"\0") + end[:size].ljust(size, b"\0")


def packed_snapshots(pieces: Sequence[bytes]) -> list[bytes]:
    """Such pieces without the words that are 0, as three in four are: a span that is held takes little memory so."""
    import numpy as np  # a collector without `phases` starts without it

    words = np.frombuffer(b"".join(pieces), dtype=_WORD).reshape(-1, _WORDS)
    is_set = words != 0
    masks, values = np.packbits(is_set, axis=1).tobytes(), words[is_set].tobytes()
    ends = (is_set.sum(axis=1).cumsum() * 4).tolist()
    return [
        masks[at * _MASK : (at + 1) * _MASK] + values[begin:end] for at, (begin, end) in enumerate(pairwise((0, *ends)))
    ]


def unpacked_snapshots(packed: Sequence[bytes]) -> bytes:
    """The pieces from which these were packed, joined."""
    import numpy as np  # as above

    masks = np.frombuffer(b"".join([piece[:_MASK] for piece in packed]), dtype=np.uint8)
    is_set = np.unpackbits(masks).view(np.bool_)  # in one row, which takes a quarter of the time of several
    words = np.zeros(len(is_set), dtype=_WORD)
    words[is_set] = np.frombuffer(b"".join([piece[_MASK:] for piece in packed]), dtype=_WORD)
    return words.reshape(-1, 8 * _MASK)[:, :_WORDS].tobytes()


def read_snapshots(joined: bytes) -> list[Snapshot]:
    """Reads such pieces of any number of spans, in their order."""
    return [
        _snapshot(
            (
                row[0],
                row[1:_COUNTERS],
                *row[_COUNTERS:_SAMPLES],
                row[_SAMPLES:_FRAMES],
                row[_FRAMES:_LATER],
                *row[_LATER:_WAITS],
                row[_WAITS:_LAST],
                *row[_LAST:],
            )
        )
        for row in LAYOUT.iter_unpack(joined)
    ]


_FIRST_COUNT, _KNOWN = Snapshot._fields.index("operators"), Snapshot._fields.index("known")
_LISTS, _WRITTEN = Snapshot._fields.index("samples"), Snapshot._fields.index("written")
_BACKWARD_FIRST, _BACKWARD = (Snapshot._fields.index(name) for name in ("backward_first_launch", "backward_launches"))
_GIVING, _BEFORE = Snapshot._fields.index("giving"), Snapshot._fields.index("before_backward")
_AFTER, _SAMPLED = _BEFORE + 1, Snapshot._fields.index("sampled_before")
_COUNTERS = 1 + len(STATES)
_SAMPLES = _COUNTERS + _LISTS - 2
_FRAMES = _SAMPLES + len(SAMPLED)
_LATER = _FRAMES + len(FRAME_POSITIONS)
_WAITS = _LATER + _BEFORE - _WRITTEN
_LAST = _WAITS + len(WAITS)
"""Where these fields begin in a row."""
_snapshot = partial(tuple.__new__, Snapshot)
"""Makes a snapshot in half the time that its class needs."""
