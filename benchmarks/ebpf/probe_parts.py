"""The parts of the cost of a counted call: programs with increasing parts of the probe, alternately on one function.

Needs root, clang and Linux 6.13 to 6.19. Run it on an idle machine: a part is some 10 ns of 1,000 ns.
"""

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import BenchmarkRow
from benchmarks.ebpf.probed_calls import compiled, time_calls
from otel_zernel_receivers.ebpf.kernel.libbpf import AttachType, Object
from otel_zernel_receivers.ebpf.kernel.versions import CHEAPEST, RUNNING, SESSION_CONTEXT
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, Mode, attach
from otel_zernel_receivers.ebpf.probes.calls import Flag, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits

ROUNDS = 25
PARTS = {
    "nothing": "the trap alone, both ends",
    "which_end": "+ which end it is",
    "cookie": "+ the cookie at the entry",
    "thread_state": "+ task storage at both ends",
    "clock": "+ the clock at both ends",
    "counters": "+ four atomic additions",
    "probe": "+ all the rest: frames, phases, series",
}
_SOURCE = Path(__file__).with_suffix(".bpf.c")


def run() -> list[BenchmarkRow]:
    """A row for each part."""
    if not shutil.which("clang") or not CHEAPEST <= RUNNING < SESSION_CONTEXT:
        return [BenchmarkRow("eBPF: parts of a probe", "not measured: needs clang and Linux 6.13 to 6.19")]
    probe = Probe("probed", Operation.RUNTIME_LAUNCH, Flag.RUNTIME)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        executable = compiled(Path(folder))
        with executable.open("rb") as file:
            places = find_attach_points(file.fileno(), (probe,)).probed
        parts = stack.enter_context(closing(_loaded(Path(folder))))
        whole = stack.enter_context(closing(load(Limits(), (Mode.SESSION,)))).bpf
        best = _best(executable, places, {name: whole if name == "probe" else parts for name in PARTS})
    rows, before = [], best["nothing"]
    for name, text in PARTS.items():
        added = f", {best[name] - before:+.0f} ns" if name != "nothing" else ""
        rows.append(BenchmarkRow(f"eBPF: {text}", f"{best[name]:.0f} ns{added}, {best[name] / best['nothing']:.2f} x"))
        before = best[name]
    return rows


def _loaded(folder: Path) -> Object:
    target = folder / "parts.bpf.o"
    include = f"/usr/include/{platform.machine()}-linux-gnu"
    command = ["clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", "-idirafter", include, "-c", str(_SOURCE)]
    subprocess.run([*command, "-o", str(target)], check=True)
    parts = Object(target)
    for program in parts.programs.values():
        program.prepare(AttachType.SESSION)
    parts.load()
    return parts


def _best(executable: Path, places: Sequence[AttachPoint], objects: dict[str, Object]) -> dict[str, float]:
    """The time of a call in ns with each program: the minimum of several alternating rounds."""
    best = dict.fromkeys(objects, float("inf"))
    command = [executable]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as program:
        for _ in range(ROUNDS):
            for name, bpf in objects.items():
                with closing(attach(bpf, Mode.SESSION, str(executable), places, name)):
                    best[name] = min(best[name], time_calls(program))
        program.kill()
    return best
