"""Network interfaces, from /proc/net/dev; connections, from /proc/net/tcp; load averages, from /proc/loadavg."""

from collections import Counter
from collections.abc import Iterator

from otel_zernel_receivers.host.config import LoadConfig, NetworkConfig, selects
from otel_zernel_receivers.host.linux.files import HostFiles
from otel_zernel_receivers.host.metrics import CONNECTION_STATE, INTERFACE, NET_DIRECTION, TRANSPORT
from otel_zernel_receivers.host.reading import Limit, Reader, Reading

# include/net/tcp_states.h
_STATES = {
    "01": "established",
    "02": "syn_sent",
    "03": "syn_received",
    "04": "fin_wait_1",
    "05": "fin_wait_2",
    "06": "time_wait",
    "07": "closed",
    "08": "close_wait",
    "09": "last_ack",
    "0A": "listen",
    "0B": "closing",
    "0C": "syn_received",
}


class NetworkReader(Reader):
    """Reads network interfaces."""

    def __init__(self, config: NetworkConfig, files: HostFiles) -> None:
        super().__init__(config.enabled())
        self._config = config
        self._files = files
        self._limit = Limit()

    def read(self, problems: list[str]) -> Iterator[Reading]:
        reported = 0
        for line in self._files.of_machine("net/dev").splitlines()[2:]:
            name, _, numbers = line.rpartition(":")
            name = name.strip()
            if selects(self._config.include, self._config.exclude, name):
                reported += 1
                if reported <= self._config.max_interfaces:
                    yield from _of_interface(name, [int(number) for number in numbers.split()])
        if reported > self._config.max_interfaces:
            missing = f"{reported - self._config.max_interfaces} network interfaces"
            self._limit.exceeded(problems, missing, "max_interfaces")
        if "system.network.connection.count" in self.enabled:
            yield from self._connections()

    def _connections(self) -> Iterator[Reading]:
        states: Counter[str] = Counter(dict.fromkeys(_STATES.values(), 0))
        for name in ("net/tcp", "net/tcp6"):
            try:
                lines = self._files.of_machine(name).splitlines()[1:]
            except FileNotFoundError:  # IPv6 may be disabled
                continue
            states.update(_STATES.get(line.split(None, 4)[3], "closed") for line in lines)
        for state, count in states.items():
            attributes = ((TRANSPORT, "tcp"), (CONNECTION_STATE, state))
            yield Reading("system.network.connection.count", count, attributes)


def _of_interface(name: str, numbers: list[int]) -> Iterator[Reading]:
    for direction, at in (("receive", 0), ("transmit", 8)):
        octets, packets, errors, dropped = numbers[at : at + 4]
        attributes = ((INTERFACE, name), (NET_DIRECTION, direction))
        yield Reading("system.network.io", octets, attributes)
        yield Reading("system.network.packet.count", packets, attributes)
        yield Reading("system.network.packet.dropped", dropped, attributes)
        yield Reading("system.network.errors", errors, attributes)


class LoadReader(Reader):
    """Reads the load averages."""

    def __init__(self, config: LoadConfig, files: HostFiles) -> None:
        super().__init__(config.enabled())
        self._cpu_average = config.cpu_average
        self._files = files

    def read(self, problems: list[str]) -> Iterator[Reading]:
        words = self._files.text("loadavg").split()
        cpus = 1
        if self._cpu_average:
            cpus = sum(line[0].startswith("cpu") for line in self._files.lines("stat") if line) - 1
        for minutes, average in zip((1, 5, 15), words, strict=False):
            yield Reading(f"system.cpu.load_average.{minutes}m", float(average) / max(cpus, 1))
