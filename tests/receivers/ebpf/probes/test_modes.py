"""Every attach mode gives the same counts."""

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Dropped, make_context
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.kernel.libbpf import AttachType, attach_many
from otel_zernel_receivers.ebpf.probes.attach_modes import SAMPLER, AttachPoint, Mode, attach
from otel_zernel_receivers.ebpf.probes.calls import Flag, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load, load_variant, variants
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, best_mode, why_not


def places(library: Path, *probes: Probe) -> tuple[AttachPoint, ...]:
    with library.open("rb") as file:
        return find_attach_points(file.fileno(), probes).probed


RUNTIME = Probe("cudaLaunchKernel", Operation.RUNTIME_LAUNCH, Flag.RUNTIME)
DRIVER = Probe("cuLaunchKernel", Operation.DRIVER_LAUNCH, Flag.DRIVER)


def test_in_every_mode_the_kernel_accepts_every_program_and_every_call_is_counted(mode: Mode, standin: Standin) -> None:
    with (
        closing(load(Limits(), (mode,))) as loaded,
        closing(attach(loaded.bpf, mode, str(standin.cudart), places(standin.cudart, RUNTIME))),
        closing(attach(loaded.bpf, mode, str(standin.cuda), places(standin.cuda, DRIVER))),
    ):
        standin.run("load libcudart.so.12; load libcuda.so.1; cudaLaunchKernel times=1000 threads=4; cuLaunchKernel")
        readings = loaded.tables.read()
    assert loaded.refused == (), loaded.reasons
    assert loaded.not_counted == ()
    counted = {reading.operation: int(reading.counts.sum()) for reading in readings.series}
    assert counted[Operation.RUNTIME_LAUNCH] == 4000
    assert counted[Operation.DRIVER_LAUNCH] == 1, "the runtime's own calls of the driver are not counted again"
    assert readings.losses == {}


def test_a_program_that_the_kernel_refuses_is_named_and_counted(
    loadable: None, caplog: pytest.LogCaptureFixture
) -> None:
    def without_samples(limits: Limits) -> LoadedProbes:
        mode = best_mode()
        assert mode
        return load_variant(limits, mode, variants(mode)[0], [("sched_switch_old", SAMPLER)])

    context = make_context(clock=SystemClock())
    with Watch(context=context, loader=without_samples):
        pass
    lost = "Not counted without them: samples of the code that threads run"
    assert f"This kernel refuses BPF programs: {SAMPLER}. {lost}" in caplog.text
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"program_refused": 1}


def test_a_mode_that_is_not_the_best_is_explained_in_one_log_line(
    loadable: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    def refused_session(limits: Limits) -> LoadedProbes:
        return replace(load(limits), reasons=("session (session): Operation not permitted",))

    caplog.set_level(logging.INFO, "otel_zernel")
    with Watch(loader=refused_session) as watch:
        watch.attach()
        watch.attach()
    assert caplog.text.count("Operation not permitted") == 1
    assert f"Attaching by {best_mode()}" in caplog.text


def test_a_return_without_its_entry_is_counted_as_lost(standin: Standin) -> None:
    if reason := why_not(Mode.MULTI):
        pytest.skip(reason)
    (place,) = places(standin.cudart, RUNTIME)
    with closing(load(Limits(), (Mode.MULTI,))) as loaded:
        program = loaded.bpf.programs["probe_return"]
        target = AttachType.MULTI, str(standin.cudart), [place.offset], [place.probe.cookie]
        with closing(attach_many(program, *target, at_return=True)):
            standin.run("load libcudart.so.12; cudaLaunchKernel times=5")
            assert loaded.tables.read().losses == {Loss.NO_START: 5}


def test_in_every_mode_a_call_without_room_is_lost_once(mode: Mode, standin: Standin) -> None:
    limits = Limits(max_processes=1)
    with (
        closing(load(limits, (mode,))) as loaded,
        closing(attach(loaded.bpf, mode, str(standin.cudart), places(standin.cudart, RUNTIME))),
        standin.start(loads=["libcudart.so.12"]) as first,
    ):
        first.do("cudaLaunchKernel")
        standin.run("load libcudart.so.12; cudaLaunchKernel times=10")
        assert loaded.tables.read().losses == {Loss.NO_PROCESS_ROW: 10}
