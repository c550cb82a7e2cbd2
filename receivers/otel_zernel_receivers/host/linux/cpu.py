"""CPU time, from /proc/stat. The fields are those of proc_stat(5)."""

import os
from collections.abc import Iterator, Mapping

from otel_zernel_receivers.host.config import CpuConfig
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.metrics import CPU, MODE
from otel_zernel_receivers.host.reading import PointAttributes, Reading

TICKS = os.sysconf("SC_CLK_TCK")
"""The unit of CPU times, per second."""
_ALL = -1
"""In place of a CPU's number: the sum of all."""


class CpuReader(FileReader[CpuConfig]):
    """Reads the CPU time in each mode, of all CPUs together or of each one."""

    def __init__(self, config: CpuConfig, files: HostFiles) -> None:
        super().__init__(config, files)
        self._last: dict[int, Mapping[str, float]] = {}

    def read(self, problems: list[str]) -> Iterator[Reading]:
        times = {
            number: _modes(words[1:])
            for words in self._files.lines("stat")
            if words and (number := _number(words[0])) is not None
        }
        yield Reading("system.cpu.logical.count", len(times) - (_ALL in times))
        for number, modes in times.items():
            if (number != _ALL) == self._config.per_cpu:
                yield from self._readings(number, modes)
        if "system.cpu.physical.count" in self.enabled or "system.cpu.frequency" in self.enabled:
            yield from _from_cpuinfo(self._files.text("cpuinfo"))

    def _readings(self, number: int, modes: Mapping[str, float]) -> Iterator[Reading]:
        which: PointAttributes = () if number == _ALL else ((CPU, number),)
        last = self._last.get(number, {})
        # The kernel may take back some iowait, which a consumer would see as a restart of the machine.
        times = {mode: max(seconds, last.get(mode, 0.0)) for mode, seconds in modes.items()}
        self._last[number] = times
        total = sum(times.values()) - sum(last.values())
        for mode, seconds in times.items():
            yield Reading("system.cpu.time", seconds, (*which, (MODE, mode)))
            if last and total > 0:
                yield Reading("system.cpu.utilization", (seconds - last[mode]) / total, (*which, (MODE, mode)))


def _number(name: str) -> int | None:
    """The number of the CPU in the first word of a line, `_ALL` for all CPUs; None for other lines."""
    if name == "cpu":
        return _ALL
    digits = name.removeprefix("cpu")
    return int(digits) if digits != name and digits.isdecimal() else None


def _modes(words: list[str]) -> dict[str, float]:
    """Seconds by mode. The time of guests is part of `user` and `nice` already. Old kernels have fewer fields."""
    ticks = [int(word) for word in words[:8]] + [0] * (8 - len(words))
    user, nice, system, idle, iowait, irq, softirq, steal = (tick / TICKS for tick in ticks)
    return {
        "user": user,
        "nice": nice,
        "system": system,
        "idle": idle,
        "iowait": iowait,
        "interrupt": irq + softirq,
        "steal": steal,
    }


def _from_cpuinfo(text: str) -> Iterator[Reading]:
    """Cores and frequencies. Processors of some architectures list neither."""
    cores: set[tuple[str, str]] = set()
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if "core id" in fields:
            cores.add((fields.get("physical id", ""), fields["core id"]))
        if "cpu MHz" in fields and fields.get("processor", "").isdecimal():
            number = ((CPU, int(fields["processor"])),)
            yield Reading("system.cpu.frequency", float(fields["cpu MHz"]) * 1e6, number)
    if cores:
        yield Reading("system.cpu.physical.count", len(cores))
