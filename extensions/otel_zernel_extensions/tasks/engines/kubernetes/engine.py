"""The engine of Kubernetes: a task is a Job, by seven endpoints of the API server."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, NoAnswer
from otel_zernel.text import printable
from otel_zernel_extensions.tasks.engines.engine import Engine, LogsGone, Observed, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.engines.kubernetes import jobs
from otel_zernel_extensions.tasks.engines.kubernetes.config import KubernetesConfig
from otel_zernel_extensions.tasks.engines.kubernetes.logs import Logs
from otel_zernel_extensions.tasks.engines.kubernetes.objects import Objects
from otel_zernel_extensions.tasks.engines.kubernetes.observing import Pod, final_condition, observed
from otel_zernel_libraries.clients.api_access import Access
from otel_zernel_libraries.clients.json_client import Json, JsonAnswer, JsonClient
from otel_zernel_libraries.clients.kubernetes import credentials
from otel_zernel_libraries.clients.kubernetes.collection import list_all, unavailable

_ATTEMPTS: Final = 5
"""Deletions of a Job that changed meanwhile."""
_REFUSED_FOR_GOOD: Final = frozenset({400, 413, 422})
_POLICIES: Final = ("admission webhook", "ValidatingAdmissionPolicy")
"""Words in the 403 of a policy, as opposed to missing permissions and used-up quotas."""


class KubernetesEngine(Engine):
    """Runs each task as a Job with one pod. The Job's name comes from the task's id: no task runs twice."""

    def __init__(
        self, config: KubernetesConfig, context: Context, service_account: Path = credentials.SERVICE_ACCOUNT,
        environ: Mapping[str, str] = os.environ,
    ) -> None:  # fmt: skip
        self._config = config
        self._context = context
        self._service_account = service_account
        self._environ = environ
        self._setting = f"{context.path}::kubernetes"
        timeout = config.request_timeout
        self._client = JsonClient(self._read_access, "Kubernetes", self._setting, timeout, context)
        self._namespace = config.namespace or ""
        self._objects: Objects | None = None
        self._watches: list[asyncio.Task[None]] = []
        self._unsure: dict[str, float] = {}
        """Until when a creation without an answer may still happen, by task id."""

    async def __aenter__(self) -> Self:
        self._check_image()
        await self._client.__aenter__()
        self._objects = Objects(self._client, self._namespace, self._config.instance, self._context.clock)
        self._watches = [asyncio.create_task(watch) for watch in self._objects.watches()]
        return self

    async def __aexit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches = []
        await self._client.__aexit__()

    def check(self, task: TaskSpec) -> None:
        for name in task.env:
            if not name or not name.isprintable() or not name.isascii() or "=" in name:
                raise TaskRejected(f"{name!r} is not a name of an environment variable in Kubernetes")

    async def submit(self, task: TaskSpec) -> str:
        name = jobs.job_name(task.id)
        params = {"timeout": f"{self._config.request_timeout:g}s"}
        # Without a clear answer, the server may still create the Job, until `timeout` ends its work on the request.
        self._unsure[task.id] = self._now() + 2 * self._config.request_timeout
        answer = await self._client.call("POST", self._path(), params=params, body=jobs.job(task, self._config))
        if answer.status < 500:
            self._unsure.pop(task.id, None)
        if answer.status == 409:
            return await self._existing(task)
        if not answer.ok:
            raise _refusal(answer)
        self._known.put(answer.body)
        return name

    async def cancel(self, handle: str) -> None:
        for _ in range(_ATTEMPTS):
            job = await self._job(handle)
            if job is None:
                self._known.cancelled.add(handle)
                return
            end = observed(job, await self._known.read_pod(handle), False)
            if end and end.status in ("succeeded", "failed"):
                return
            self._known.cancelled.add(handle)
            # The preconditions keep the result of a task that ends at this moment.
            versions = {key: job["metadata"].get(key) for key in ("uid", "resourceVersion")}
            if await self._delete(handle, versions):
                return
        raise NoAnswer(f"the Job {handle} changes too often to be deleted")

    async def states(self, handles: Collection[str]) -> Mapping[str, Observed]:
        if problem := self._known.problem:
            raise NoAnswer(problem)
        by_handle = {handle: await self._state(handle) for handle in handles}
        return {handle: state for handle, state in by_handle.items() if state}

    async def _state(self, handle: str) -> Observed | None:
        known = self._known
        if end := known.ends.get(handle):
            return end
        job, pod = known.jobs.get(handle), known.pods.get(handle)
        if job is None or (final_condition(job) and not (pod and pod.end)):
            # The two watches are not in step: the server itself has the last word on an end, and on an absence.
            job = await self._job(handle)
            pod = await known.read_pod(handle) or pod
        state = observed(job, pod, handle in known.cancelled)
        if (
            state
            and state.status == "starting"
            and job
            and not pod
            and (reason := await known.creation_failure(handle, job))
        ):
            state = replace(state, reason=reason)
        if state and state.status in ("succeeded", "failed", "cancelled"):
            known.ends[handle] = state
        return state

    def logs(self, handle: str, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        async def find() -> Pod | None:
            pod = await self._known.read_pod(handle)
            job = None if pod else await self._job(handle)
            if not pod and (job is None or final_condition(job)):
                raise LogsGone("the pod of the task is deleted, and its output with it")
            return pod

        return Logs(self._client, self._namespace, find, self._context.clock).read(follow, tail)

    async def recover(self, ids: Collection[str]) -> Mapping[str, str]:
        for id_ in ids:
            if self._unsure.get(id_, 0.0) > self._now():
                raise NoAnswer(f"the creation of the Job {jobs.job_name(id_)} may still be in progress")
        own = {"labelSelector": jobs.selector(self._config.instance)}
        items, _ = await list_all(self._client, self._path(), own)
        names = {str(item["metadata"]["name"]) for item in items}
        return {id_: jobs.job_name(id_) for id_ in ids if jobs.job_name(id_) in names}

    async def release(self, handle: str) -> None:
        if problem := self._known.problem:
            raise NoAnswer(problem)
        pod = self._known.pods.get(handle)
        if pod and pod.hopeless:
            await self._delete(handle, None)  # else it would hold its GPUs

    async def forget(self, handle: str) -> None:
        await self._delete(handle, None)
        self._known.forget(handle)

    @property
    def _known(self) -> Objects:
        if self._objects is None:
            raise NoAnswer("the engine is not open")
        return self._objects

    async def _existing(self, task: TaskSpec) -> str:
        """The Job that has the task's name already: ours, from an earlier attempt, or that of somebody else."""
        name = jobs.job_name(task.id)
        job = await self._job(name)
        if job is None:
            raise NoAnswer(f"the Job {name} existed, and was deleted meanwhile")
        if not jobs.is_of(job, task, self._config.instance):
            raise TaskRejected(f"the Job {name} exists, and was made for another task: use another id")
        self._known.put(job)
        return name

    async def _job(self, handle: str) -> Json | None:
        answer = await self._client.call("GET", self._path(handle))
        if answer.status == 404 and answer.body.get("reason") == "NotFound":
            return None
        if not answer.ok:
            raise unavailable(answer, f"read the Job {handle}")
        return answer.body

    async def _delete(self, handle: str, versions: Mapping[str, Any] | None) -> bool:
        """Whether the Job is deleted, or will be. False if it has another version."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if versions:
            options["preconditions"] = versions
        answer = await self._client.call("DELETE", self._path(handle), body=options)
        if not answer.ok and answer.status not in (404, 409):
            raise unavailable(answer, f"delete the Job {handle}")
        return answer.status != 409

    def _path(self, name: str = "") -> str:
        path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        return f"{path}/{name}" if name else path

    def _now(self) -> float:
        return self._context.clock.monotonic()

    def _read_access(self) -> Access:
        config = self._config
        if config.kubeconfig:
            account = credentials.of_kubeconfig(Path(config.kubeconfig), config.kube_context, self._setting)
        else:
            account = credentials.of_pod(self._environ, self._service_account, self._setting)
        self._namespace = self._namespace or account.namespace
        return account.access

    def _check_image(self) -> None:
        container = jobs.job(TaskSpec("any", ("true",)), self._config)["spec"]["template"]["spec"]["containers"][0]
        if not container.get("image"):
            raise CannotStart(f"{self._setting}::image: tasks have no image; set image, or one in job_template")


def _refusal(answer: JsonAnswer) -> Exception:
    message = printable(str(answer.body.get("message") or answer.text))
    by_policy = answer.status == 403 and any(word in message for word in _POLICIES)
    if answer.status in _REFUSED_FOR_GOOD or by_policy:
        return TaskRejected(f"Kubernetes refuses the Job: {message}")
    return unavailable(answer, "create the Job")
