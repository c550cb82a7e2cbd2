"""Every way to attach counts the same."""

import logging
from dataclasses import replace
from functools import partial

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.attaching import Mode
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.layout import Loss
from otel_zernel_receivers.ebpf.libbpf import attach_multi
from otel_zernel_receivers.ebpf.libraries import find_places
from otel_zernel_receivers.ebpf.loading import Loaded, load
from otel_zernel_receivers.ebpf.probes import Flag, Operation, Probe
from otel_zernel_receivers.ebpf.tables import Limits
from otel_zernel_receivers.ebpf.watch import Watch
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import calls, why_not

LAUNCH = "zernel.cuda.launch.latency"


def test_every_mode_counts_every_call(mode: Mode, standin: Standin) -> None:
    watch = Watch(EbpfConfig(), make_context(clock=SystemClock()), partial(load, modes=(mode,)))
    try:
        watch.open()
        with standin.start() as program:
            program.do("load libcudart.so.12")
            program.do("cudaLaunchKernel")  # loads libcuda
            watch.attach()
            program.do("cudaLaunchKernel times=1000 threads=4")
            batch = watch.read()
    finally:
        watch.close()
    assert calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == 4000
    assert calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="driver") == 0


def test_a_mode_that_is_not_the_best_is_explained_once(
    loadable: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    def refused_session(limits: Limits) -> Loaded:
        return replace(load(limits, (Mode.MULTI,)), reasons=("session (session): Operation not permitted",))

    caplog.set_level(logging.INFO, "otel_zernel")
    watch = Watch(EbpfConfig(), make_context(clock=SystemClock()), refused_session)
    try:
        watch.open()
        watch.attach()
        watch.attach()
    finally:
        watch.close()
    assert caplog.text.count("Operation not permitted") == 1
    assert "Attaching by multi" in caplog.text


def test_a_return_without_its_entry_is_counted_as_lost(standin: Standin) -> None:
    if reason := why_not(Mode.MULTI):
        pytest.skip(reason)
    loaded = load(Limits(), (Mode.MULTI,))
    with standin.cudart.open("rb") as file:
        probe = Probe("cudaLaunchKernel", Operation.RUNTIME_LAUNCH, Flag.RUNTIME)
        (place,) = find_places(file.fileno(), (probe,)).probed
    program = loaded.bpf.programs["probe_return"]
    link = attach_multi(program, str(standin.cudart), [place.offset], [place.probe.cookie], at_return=True)
    try:
        standin.run("load libcudart.so.12; cudaLaunchKernel times=5")
        assert loaded.tables.read().losses == {Loss.NO_START: 5}
    finally:
        link.close()
        loaded.close()
