"""The kubernetes processor."""

import os
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Self

from otel_zernel.batch import STABLE_SIGNALS, Batch
from otel_zernel.component import Context, Finding, Processor
from otel_zernel_libraries.clients.kubernetes.credentials import SERVICE_ACCOUNT
from otel_zernel_libraries.resources import change_resources
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.kubernetes.config import KubernetesProcessorConfig
from otel_zernel_processors.kubernetes.doctor import findings
from otel_zernel_processors.kubernetes.enrichment import PodAttributes
from otel_zernel_processors.kubernetes.gpus.devices import GpuBoards
from otel_zernel_processors.kubernetes.gpus.holders import GpuHolder, GpuPodReport, fits
from otel_zernel_processors.kubernetes.lookup import PodLookup
from otel_zernel_processors.kubernetes.places.processes import ProcessKey, ProcessPlaces
from otel_zernel_processors.kubernetes.pods.local_pods import NODE_NAME
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable
from otel_zernel_processors.kubernetes.resources import ResourceNames, process_points
from otel_zernel_processors.kubernetes.seen import SeenResources
from otel_zernel_processors.kubernetes.sources import Sources


class KubernetesProcessor(Processor):
    """Names the pod, the container and the job of the processes and GPUs of a Kubernetes node."""

    Config: ClassVar[type[KubernetesProcessorConfig]] = KubernetesProcessorConfig
    stability = "beta"

    def __init__(
        self,
        config: KubernetesProcessorConfig,
        context: Context,
        environ: Mapping[str, str] = os.environ,
        service_account: Path = SERVICE_ACCOUNT,
    ) -> None:
        super().__init__(config, context)
        monotonic = context.clock.monotonic
        self._table: PodTable = context.kept.setdefault("pods", PodTable(monotonic))
        self._table.adopt(config.max_pods, config.retention)
        places = context.kept.setdefault(f"places in {config.proc}", ProcessPlaces(config.proc, monotonic))
        self._lookup = PodLookup(places, self._table, config.node or environ.get(NODE_NAME, ""), environ)
        self._sources = Sources(config, context, self._lookup, places, self._table, environ, service_account)
        attributes = PodAttributes(partial(fits, config.labels), partial(fits, config.annotations))
        self._seen = SeenResources(self._lookup)
        self._names = ResourceNames(self._lookup, self._seen, self._table, attributes, lambda: self._sources.own)
        self._boards = GpuBoards()
        self.interval = config.pod_resources.interval if config.pod_resources else None

    @classmethod
    def examine(cls, config: KubernetesProcessorConfig | None = None) -> Iterable[Finding]:
        """Reports the sources of names that the configuration uses."""
        return findings(config, os.environ) if config else ()

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._sources.leave)
        await self._sources.enter()
        return self

    async def prepare(self, batch: Batch) -> None:
        """Reads the processes that are new."""
        keys = self._keys(batch)
        if self._sources.misses(keys):
            try:
                await self._sources.read(keys)
            finally:
                self._names.reads += 1

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch with the names of pods. A batch without a process of this node is forwarded as it is."""
        self._complete_gpus(batch)
        for signal in STABLE_SIGNALS:
            change_resources(batch, signal, self._names.changed)
        return (batch,)

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """The holders of GPUs."""
        batch = self._report.batch(map(self._holder, self._sources.holders), now_ns)
        return () if batch is None else (batch,)

    @cached_property
    def _report(self) -> GpuPodReport:
        host, node = self._lookup.host, self._lookup.node
        return GpuPodReport({"host.name": host, **({"k8s.node.name": node} if node else {})})

    def _keys(self, batch: Batch) -> set[ProcessKey]:
        """The processes of this machine in the batch."""
        keys = {seen.process for seen in self._seen.of_batch(batch) if seen.process}
        for _, gpu in self._seen.gpus(batch):
            keys.update(key for _, key in process_points(gpu))
        return keys

    def _complete_gpus(self, batch: Batch) -> None:
        for index, gpu in list(self._seen.gpus(batch)):
            self._boards.learn(self._seen.of(gpu.resource.SerializeToString()).attributes)
            if any(True for _ in process_points(gpu)):
                self._names.complete_points(batch.edit_metrics().resource_metrics[index])

    def _holder(self, holder: GpuHolder) -> dict[str, str]:
        pod = self._table.by_name(holder.namespace, holder.pod)
        attributes = {
            **self._boards.attributes(holder.device),
            semconv.GPU_SHARING: holder.device.sharing,
            semconv.GPU_CLAIM: holder.claim,
            "k8s.namespace.name": holder.namespace,
            "k8s.pod.name": holder.pod,
            "k8s.container.name": holder.container,
            semconv.JOB_ID: pod.job.id if pod else "",
        }
        return {name: value for name, value in attributes.items() if value}
