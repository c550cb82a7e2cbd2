"""Gloo's own numbers of collectives, in the releases of PyTorch whose collectives have them."""

import pytest

from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import TORCH_CPU
from tests.receivers.ebpf.jobs.operator_runs import BACKWARD, LOADING
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, spans_of

CONSTRUCTOR = "_ZN4c10d16ProcessGroupGloo9AsyncWorkC2E"
OLD_OUTPUTS = "St6vectorIS2_IN2at6TensorESaIS4_EESaIS6_EE"
NEW_OUTPUTS = "St10shared_ptrIN4gloo7ContextEESt6vectorIS6_IN2at6TensorESaIS8_EESaISA_EE"
TIMEOUT = "NSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
# The names in libtorch_cpu.so of the wheels for CPUs, by `nm -D`.
SYMBOLS = {
    "2.1.2": f"{CONSTRUCTOR}{OLD_OUTPUTS}PKcRKN3c108optionalIS6_EE",
    "2.4.1": f"{CONSTRUCTOR}{OLD_OUTPUTS}NS_6OpTypeEmPKcRKSt8optionalIS6_E",
    "2.6.0": f"{CONSTRUCTOR}{OLD_OUTPUTS}NS_6OpTypeEmPKcRKSt8optionalIS6_E",
    "2.9.1": f"{CONSTRUCTOR}{NEW_OUTPUTS}NS_6OpTypeEm{TIMEOUT}PKcRKSt8optionalISA_E",
    "2.13.0": f"{CONSTRUCTOR}{NEW_OUTPUTS}NS_6OpTypeEm{TIMEOUT}PKcRKSt8optionalISA_E",
}


@pytest.mark.parametrize(
    ("release", "arguments"),
    [("2.1.2", []), ("2.4.1", [(4, 0, 3)]), ("2.6.0", [(4, 0, 3)]), ("2.9.1", [(5, 2, 4)]), ("2.13.0", [(5, 2, 4)])],
)
def test_the_number_is_in_the_argument_of_each_release(release: str, arguments: list[tuple[int, ...]]) -> None:
    symbol = SYMBOLS[release].encode()
    probes = [one for one in TORCH_CPU if one.kind is CallKind.WORK_NUMBER and symbol.startswith(one.beginnings)]
    assert [probe.arguments for probe in probes] == arguments


def test_the_number_of_the_largest_group_is_known_to_a_collector_that_attaches_late(
    fresh_watch: Watch, standin: Standin
) -> None:
    issue = "AsyncWork::AsyncWork"
    with standin.start(loads=["libtorch_cpu.so", "libtorch_python.so"]) as program:
        program.do("Work::Work times=5")
        program.do(f"{issue} ranks=4 count=16")
        fresh_watch.attach()
        for commands in ([f"{issue} ranks=4 count=17"], [f"{issue} ranks=2 count=99"], [f"{issue} ranks=4 count=18"]):
            for command in (*commands, "Work::Work", f"open {LOADING}", "close", BACKWARD):
                program.send(command)
        program.wait()
    loads = [span for span in spans_of(fresh_watch.read(), program.pid) if span.name == LOADING]
    assert [attributes_of(span)["zernel_collective_issued"] for span in loads] == [17, 17, 18]
