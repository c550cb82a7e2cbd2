"""The sources of names: /proc, the folders of logs, the downward API, the API server and the kubelet.

Each of them is read by a task or in a thread. The table of pods, the places of processes and the holders of GPUs have
the results. The kernel may hold a reader of /proc/PID/environ for as long as the process is stuck in a page fault: a
thread of its own reads the places, and the pipeline does not wait for it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.runtime.tasks import cancel
from otel_zernel.runtime.threads import WorkerThread, run_in_thread
from otel_zernel_processors.kubernetes.config import KubernetesProcessorConfig
from otel_zernel_processors.kubernetes.declared import FAILURES, FORGOTTEN, OUTCOME, PROCESSES, SOURCE
from otel_zernel_processors.kubernetes.gpus.holders import GpuHolder, HolderHistory, Kubelet
from otel_zernel_processors.kubernetes.lookup import PodLookup
from otel_zernel_processors.kubernetes.places.processes import ProcessKey, ProcessPlace, ProcessPlaces
from otel_zernel_processors.kubernetes.pods.local_pods import own_pod, pods_with_logs
from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable
from otel_zernel_processors.kubernetes.pods.watch import PodWatch

_AT_ONCE: Final = 256
"""Processes that are read before a batch goes on, which takes 0.1 s. Others are read before the next batches."""
_HANGS: Final = 5.0
"""Seconds after which a reading counts as stuck."""


class PlaceReader:
    """Reads in a thread of its own, and hands over what it has read, also what came too late for its batch."""

    def __init__(self, places: ProcessPlaces) -> None:
        self._places = places
        self._thread: WorkerThread | None = None
        self._began = 0.0
        self._found: deque[tuple[ProcessKey, ProcessPlace | None]] = deque()

    @property
    def hangs(self) -> bool:
        """Whether the thread has been stuck for a while."""
        return self._is_busy and time.monotonic() - self._began > _HANGS

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.busy

    async def read(self, keys: Sequence[ProcessKey]) -> bool:
        """Reads some of the processes. Returns at once, with False, while the thread is busy."""
        self.take()
        if self._is_busy:
            return False
        if keys:
            self._thread = self._thread or WorkerThread("kubernetes")
            self._began = time.monotonic()
            await self._thread.call(lambda: self._read(keys[:_AT_ONCE]))
            self.take()
        return True

    def take(self) -> None:
        """Remembers what the thread has read."""
        while self._found:
            self._places.remember(*self._found.popleft())

    def close(self) -> None:
        """Ends the thread. Does not wait for it."""
        if self._thread:
            self._thread.close()
            self._thread = None

    def _read(self, keys: Sequence[ProcessKey]) -> None:
        for key in keys:
            self._found.append((key, self._places.read(key)))


_UPKEEP: Final = 10.0
"""Seconds between two looks for deleted pods and new labels of the own pod."""
_FIRST_LIST: Final = 2.0
"""Seconds that a start waits for the first list of pods."""
_NEXT_LISTING: Final = 1.0
"""Seconds between two listings of the folders of logs, if a pod has none."""


class Sources:
    """Reads names while it is entered. What it has read survives a reload."""

    def __init__(
        self,
        config: KubernetesProcessorConfig,
        context: Context,
        lookup: PodLookup,
        places: ProcessPlaces,
        table: PodTable,
        environ: Mapping[str, str],
        service_account: Path,
    ) -> None:
        self._config = config
        self._context = context
        self._lookup = lookup
        self._reader = PlaceReader(places)
        self._table = table
        self._environ = environ
        self._watch = PodWatch(config.api, table, context, environ, service_account) if config.api else None
        self._kubelet = Kubelet(config.pod_resources) if config.pod_resources else None
        self._history = HolderHistory()
        self.holders: tuple[GpuHolder, ...] = ()
        """Those in the last answer of the kubelet."""
        self.own: KubernetesPod | None = None
        """The collector's own pod, with `own_pod`."""
        self._logged_uids: set[str] = set()
        """The pods whose names are known from the folders of logs alone."""
        self._problems: dict[str, str] = {}
        self._logged = RepeatedByKey(context.clock.monotonic)
        self._listed = float("-inf")
        """When the folders of logs were listed, monotonic seconds."""
        self._answered = float("-inf")
        """When the kubelet answered last."""
        self._forgotten = 0
        self._stack = AsyncExitStack()
        create = context.meter.create_counter
        self._processes = create(*PROCESSES.counter)
        self._failures = create(*FAILURES.counter)
        self._forgotten_pods = create(*FORGOTTEN.counter)

    async def enter(self) -> None:
        """Raises `CannotStart`."""
        works = [partial(self._repeat, "names", self._keep_up, _UPKEEP, _UPKEEP)]
        if self._config.own_pod:
            self.own = await run_in_thread(self._read_own_pod)
        if self._watch:
            collection = self._watch.of_node(self._lookup.node, self._watched)
            await self._stack.enter_async_context(self._watch.client)
            works.append(partial(self._repeat, "api", collection.run, _UPKEEP))
        if self._kubelet and self._config.pod_resources:
            self._stack.push_async_callback(self._kubelet.close)
            read, interval = partial(self._read_holders, self._kubelet), self._config.pod_resources.interval
            works.append(partial(self._repeat, "pod_resources", read, interval))
        self._stack.callback(self._reader.close)
        tasks = [asyncio.create_task(work(), name=f"{self._context.path}: {work.args[0]}") for work in works]
        self._stack.push_async_callback(cancel, *tasks)
        if self._watch:
            # The first batches are named too, if the server answers soon.
            try:
                await asyncio.wait_for(collection.listed.wait(), _FIRST_LIST)
            except TimeoutError:
                self._watched(collection.problem)

    async def leave(self) -> None:
        await self._stack.aclose()

    def misses(self, keys: Collection[ProcessKey]) -> bool:
        """Whether `read` has to read something before these processes can be named."""
        self._reader.take()
        return bool(self._lookup.missing(keys)) or (self._may_list() and any(map(self._lookup.is_unnamed, keys)))

    async def read(self, keys: Collection[ProcessKey]) -> None:
        """Reads the places of new processes, and the names of their pods."""
        if self._reader.hangs:
            self._failed("proc", f"reading {self._config.proc_root} hangs; a process may be stuck in the kernel")
        missing = self._lookup.missing(keys)
        if await self._reader.read(missing):
            self._succeeded("proc")
        if self._may_list() and any(map(self._lookup.is_unnamed, keys)):
            await self._list_pods()
        for key in missing:
            if not self._lookup.missing([key]):
                self._processes.add(1, {OUTCOME: self._outcome(key)})

    def _outcome(self, key: ProcessKey) -> str:
        of_process = self._lookup.of_process(key)
        if of_process.pod:
            return "pod"
        if of_process.place.container.pod_uid:
            return "name_unknown"
        return "outside" if of_process.place.was_read else "ended"

    def _may_list(self) -> bool:
        return self._config.logs is not None and self._context.clock.monotonic() - self._listed >= _NEXT_LISTING

    async def _list_pods(self) -> None:
        """Reads the folders of logs. The API knows more of a pod, so a known pod stays as it is."""
        folder = self._config.logs or Path()
        self._listed = self._context.clock.monotonic()
        try:
            pods = await run_in_thread(partial(pods_with_logs, folder))
        except OSError as error:
            self._failed("pod_logs", f"cannot read {folder}: {error.strerror}")
            return
        self._succeeded("pod_logs")
        for pod in pods:
            known = self._table.by_uid(pod.uid)
            if known is None or self._watch is None:
                self._table.put(known or pod)
                self._logged_uids.add(pod.uid)
        for uid in self._logged_uids - {pod.uid for pod in pods}:
            self._table.delete(uid)
            self._logged_uids.discard(uid)

    def _read_own_pod(self) -> KubernetesPod:
        """Raises `CannotStart` if no variable names the pod."""
        pod = own_pod(self._environ, Path(self._config.pod_info))
        if pod is None:
            raise CannotStart(
                f"{self._context.path}::own_pod: the collector's pod is not known; set K8S_NAMESPACE and K8S_POD_NAME"
                " by the downward API"
            )
        return pod

    async def _repeat(
        self, source: str, work: Callable[[], Coroutine[Any, Any, None]], interval: float, delay: float = 0.0
    ) -> None:
        """Does the work every `interval` s, whatever happens, and for the first time after `delay` s."""
        await self._context.clock.sleep(delay)
        while True:
            try:
                await work()
            except NoAnswer as error:
                self._failed(source, str(error))
            except Exception as error:
                self._context.logger.exception("Reading %s failed: %r", source, error)
                self._failed(source, f"reading {source} failed: {error!r}")
            await self._context.clock.sleep(interval)

    async def _keep_up(self) -> None:
        self._table.expire()
        self._forgotten_pods.add(self._table.forgotten - self._forgotten)
        self._forgotten = self._table.forgotten
        if self._config.own_pod:
            self.own = await run_in_thread(self._read_own_pod)
        if self._context.clock.monotonic() - self._answered > self._config.retention:
            self.holders = ()

    def _watched(self, problem: str | None) -> None:
        """Reports at once whether the pods may be outdated."""
        if problem:
            self._failed("api", problem)
        else:
            self._succeeded("api")

    async def _read_holders(self, kubelet: Kubelet) -> None:
        listed = await kubelet.holders()
        self._answered = self._context.clock.monotonic()
        self._succeeded("pod_resources")
        self.holders = self._history.present(listed, self._has_ended)

    def _has_ended(self, namespace: str, name: str) -> bool:
        pod = self._table.by_name(namespace, name)
        return pod is not None and pod.has_ended

    def _failed(self, source: str, problem: str) -> None:
        self._failures.add(1, {SOURCE: source})
        self._problems[source] = problem
        self._context.report(problem)
        if due := self._logged.add(source):
            self._context.logger.warning("Names of pods may be missing: %s%s", problem, more(due))

    def _succeeded(self, source: str) -> None:
        if self._problems.pop(source, None) is not None:
            self._context.report(next(iter(self._problems.values()), None))
