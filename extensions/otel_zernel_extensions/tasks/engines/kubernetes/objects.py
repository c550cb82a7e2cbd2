"""The Jobs and pods of this collector, by the names of the Jobs."""

from collections.abc import Coroutine
from typing import Any, Final

from otel_zernel.clock import Clock
from otel_zernel_extensions.tasks.engines.engine import Observed
from otel_zernel_extensions.tasks.engines.kubernetes import jobs
from otel_zernel_extensions.tasks.engines.kubernetes.observing import Pod, creation_failure, observed, pod
from otel_zernel_libraries.clients.json_client import Json, JsonClient
from otel_zernel_libraries.clients.kubernetes.collection import Collection, list_all

_SECONDS: Final = 5.0
"""Between two looks at the events of a Job."""


class Objects:
    """Two watches keep them up to date. The end of a pod is kept until `forget`, even if the pod is collected."""

    def __init__(self, client: JsonClient, namespace: str, instance: str, clock: Clock) -> None:
        self.jobs: dict[str, Json] = {}
        self.pods: dict[str, Pod] = {}
        self.ends: dict[str, Observed] = {}
        """The ends that were observed."""
        self.cancelled: set[str] = set()
        """The Jobs that this collector has deleted to cancel their tasks."""
        self._jobs_of_pods: dict[str, str] = {}
        self._failures: dict[str, tuple[float, str]] = {}
        """When the events of a Job without a pod were read, and their reason."""
        self._clock = clock
        self._client = client
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._events_path = f"/api/v1/namespaces/{namespace}/events"
        jobs_path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        selection = {"labelSelector": jobs.selector(instance)}
        self._job_watch = Collection(client, jobs_path, selection, self._job_changed, clock)
        self._pod_watch = Collection(client, self._pods_path, selection, self._pod_changed, clock)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """The two watches, to run until they are cancelled."""
        return [self._job_watch.run(), self._pod_watch.run()]

    @property
    def problem(self) -> str | None:
        """Why the objects may be outdated."""
        return self._job_watch.problem or self._pod_watch.problem

    def put(self, job: Json) -> None:
        """Adds a Job that was just created, before the watch reports it."""
        self._job_watch.put(job)

    async def read_pod(self, handle: str) -> Pod | None:
        """The pod of a Job, from the server itself. Raises `NoAnswer`."""
        pods, _ = await list_all(
            self._client, self._pods_path, {"labelSelector": f"batch.kubernetes.io/job-name={handle}"}
        )
        if not pods:
            pods, _ = await list_all(self._client, self._pods_path, {"labelSelector": f"job-name={handle}"})
        return max(map(pod, pods), key=_importance, default=None)

    async def creation_failure(self, handle: str, job: Json) -> str:
        """Why the Job has no pod. Empty if the server does not say, or if this collector may not list events."""
        now = self._clock.monotonic()
        asked, reason = self._failures.get(handle, (-_SECONDS, ""))
        if now - asked < _SECONDS:
            return reason
        selection = {"fieldSelector": f"involvedObject.uid={job['metadata'].get('uid')}", "limit": "50"}
        answer = await self._client.call("GET", self._events_path, params=selection)
        reason = creation_failure(answer.body.get("items") or ()) if answer.ok else ""
        self._failures[handle] = now, reason
        return reason

    def forget(self, handle: str) -> None:
        """Removes everything about a Job."""
        self.jobs.pop(handle, None)
        self.pods.pop(handle, None)
        self.ends.pop(handle, None)
        self.cancelled.discard(handle)
        self._failures.pop(handle, None)

    def _job_changed(self, name: str, item: Json | None) -> None:
        if item is None:
            self.jobs.pop(name, None)
        else:
            self.jobs[name] = item

    def _pod_changed(self, name: str, item: Json | None) -> None:
        if item is None:
            self._pod_gone(name)
            return
        seen = pod(item)
        if not seen.job:
            return
        self._jobs_of_pods[name] = seen.job
        known = self.pods.get(seen.job)
        if known is None or known.name == seen.name or _importance(seen) >= _importance(known):
            self.pods[seen.job] = seen
            self._keep_end(seen)

    def _pod_gone(self, name: str) -> None:
        job = self._jobs_of_pods.pop(name, "")
        if (known := self.pods.get(job)) and known.name == name:
            del self.pods[job]

    def _keep_end(self, seen: Pod) -> None:
        """Remembers an end at once: the pod may be collected before the next look at its state."""
        if seen.end and seen.job not in self.ends:
            end = observed(self.jobs.get(seen.job), seen, seen.job in self.cancelled)
            if end and end.status in ("succeeded", "failed", "cancelled"):
                self.ends[seen.job] = end


def _importance(pod_: Pod) -> tuple[bool, str]:
    return pod_.end is not None, pod_.created
