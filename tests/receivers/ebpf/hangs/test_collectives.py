"""The collectives that a program has begun and not ended, compared with its calls."""

import time
from collections.abc import Iterator

import pytest

from otel_zernel_libraries.training.stacks import OpenCollective
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.hangs.collectives import OpenCollectives
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import watched_program

INIT = "ncclCommInitRank comm=1 ranks=8 rank=3"
FLOAT = 7


class Watched:
    """A program, and its open collectives."""

    def __init__(self, program: Program, open_ones: OpenCollectives, rows: ProcessRows) -> None:
        self.program, self._open, self._rows = program, open_ones, rows

    def open(self) -> list[OpenCollective]:
        (process,) = (one for one in self._rows.live() if one.pid == self.program.pid)
        return list(self._open.of(process, time.monotonic_ns()))


@pytest.fixture
def watched(loadable: None, standin: Standin) -> Iterator[Watched]:
    with watched_program(standin, EbpfConfig()) as (watch, loaded, program):
        for library in ("libcuda.so.1", "libnccl.so.2", "libtorch_cpu.so"):
            program.do(f"load {library}")
        watch.attach()
        tables = loaded.tables
        yield Watched(program, OpenCollectives(tables.maps, tables.rows), tables.rows)


def test_collectives_of_nccl_are_open_until_the_host_has_waited(watched: Watched) -> None:
    for command in (INIT, f"ncclAllReduce comm=1 count=100 type={FLOAT}", f"ncclBroadcast comm=1 count=5 type={FLOAT}"):
        watched.program.do(command)
    first, second = watched.open()
    assert (first.operation, first.sequence, first.bytes) == ("all_reduce", 1, 400)
    assert (second.operation, second.sequence, second.bytes) == ("broadcast", 2, 20)
    assert first.communicator == second.communicator != ""
    assert first.seconds >= second.seconds > 0
    watched.program.do("cudaDeviceSynchronize")
    assert watched.open() == []


def test_a_collective_of_gloo_is_open_until_it_finishes(watched: Watched) -> None:
    watched.program.do("AsyncWork::AsyncWork ranks=4 count=17")
    (collective,) = watched.open()
    assert (collective.operation, collective.communicator, collective.sequence) == ("broadcast", "gloo of 4 ranks", 17)
    watched.program.do("Work::finish")
    assert watched.open() == []


def test_a_smaller_group_has_no_name_and_no_number(watched: Watched) -> None:
    watched.program.do("AsyncWork::AsyncWork ranks=4 count=17")
    watched.program.do("Work::finish")
    watched.program.do("AsyncWork::AsyncWork ranks=2 count=3")
    (collective,) = watched.open()
    assert (collective.operation, collective.communicator, collective.sequence) == ("broadcast", "", 0)
