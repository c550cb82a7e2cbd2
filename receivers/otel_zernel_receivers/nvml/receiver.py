"""The nvml receiver."""

from collections.abc import Iterable

from otel_zernel.component import Context, Emit, Finding, Receiver
from otel_zernel_receivers.nvml.config import NvmlConfig


class NvmlReceiver(Receiver):
    """Watches NVIDIA GPUs through NVML: utilisation, memory, power, temperatures, clocks, links, errors, processes."""

    Config = NvmlConfig
    stability = "beta"
    signals = frozenset({"metrics"})

    @classmethod
    def examine(cls, config: NvmlConfig | None = None) -> Iterable[Finding]:
        from otel_zernel_receivers.nvml.doctor import examine

        return examine()

    def __init__(self, config: NvmlConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_receivers.nvml.watching import GpuWatch  # a list of components does without it

        self._watch = GpuWatch(config, context)

    async def run(self, emit: Emit) -> None:
        await self._watch.run(emit)
