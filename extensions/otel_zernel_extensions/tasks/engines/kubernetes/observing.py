"""The state of a task from its Job and its pod, as Kubernetes' API has them. No I/O."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from otel_zernel.text import printable
from otel_zernel_extensions.tasks.engines.engine import Observed
from otel_zernel_extensions.tasks.engines.kubernetes.jobs import CONTAINER

_ORDINARY: Final = frozenset({"", "Completed", "Error", "ContainerCreating", "PodInitializing"})
"""Reasons that say no more than the state does."""
_HOPELESS: Final = frozenset({"InvalidImageName"})
"""Other errors of images and of the configuration may be corrected from outside, so Kubernetes tries again."""
_NAME_OF_POD: Final = re.compile(r'^Error creating: pods "[^"]*" is')
"""The controller invents a name for each attempt."""
_EXIT_CODE: Final = re.compile(r"failed with exit code (\d{1,3}) ")
"""The message of a Job's condition with a pod failure policy (job_controller.go, `PodFailurePolicy`)."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of a task."""

    name: str
    job: str
    created: str
    """RFC 3339, of equal length: compares as text."""
    running: bool
    started: float | None
    end: Observed | None
    """Succeeded or failed, once the command has ended."""
    deleting: bool
    """Whether it was ended by a deletion, or will be."""
    reason: str
    """Why it does not run, or why it will not run on."""
    hopeless: bool
    """Whether it will never run, for this reason. Kubernetes leaves it as it is."""


def pod(item: Mapping[str, Any]) -> Pod:
    """The pod, from its JSON."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    container = _container(status)
    state = container.get("state") or {}
    labels = metadata.get("labels") or {}
    return Pod(
        name=str(metadata.get("name")),
        job=str(labels.get("batch.kubernetes.io/job-name") or labels.get("job-name") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        running=bool(state.get("running")),
        started=seconds((state.get("running") or state.get("terminated") or {}).get("startedAt")),
        end=_pod_end(item, status, state.get("terminated")),
        deleting=bool(metadata.get("deletionTimestamp")),
        reason=_pod_reason(status, state),
        hopeless=_waiting(status, state).get("reason") in _HOPELESS,
    )


def creation_failure(events: Iterable[Mapping[str, Any]]) -> str:
    """Why the controller of a Job cannot make its pod: the newest warning of the Job, without the name of the pod."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    newest = max(warnings, key=_time_of, default=None)
    if newest is None:
        return ""
    return _sentence(newest.get("reason"), _NAME_OF_POD.sub("the pod is", str(newest.get("message") or "")))


def _time_of(event: Mapping[str, Any]) -> str:
    """RFC 3339. Events of the newer API have other fields."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")


def observed(job: Mapping[str, Any] | None, pod: Pod | None, cancelled: bool) -> Observed | None:
    """The state of a task; None if it is gone. `cancelled`: this collector has deleted the Job.

    A Job whose condition is final, and whose pod is None, has an end without an exit code: look for the pod first.
    """
    if pod and pod.end and pod.deleting and (cancelled or job is None):
        end = pod.end
        return Observed("cancelled", end.exit_code, end.signal, "", end.started, end.ended) if cancelled else None
    if pod and pod.end:
        return pod.end
    if job is None:
        return _ending(pod) if pod else None
    if condition := final_condition(job):
        return _job_end(condition, job)
    if pod and pod.hopeless and not cancelled:
        return Observed("failed", reason=pod.reason)
    if pod and pod.running:
        return Observed("running", reason=pod.reason, started=pod.started)
    return Observed("starting", reason=pod.reason if pod else _job_reason(job))


def _ending(pod: Pod) -> Observed:
    reason = "its Job is deleted, and its pod is ending"
    return Observed("running" if pod.running else "starting", reason=reason, started=pod.started)


def final_condition(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The condition that says that the Job has ended."""
    return next((condition for condition in _conditions(job) if condition.get("type") in ("Complete", "Failed")), None)


def _job_end(condition: Mapping[str, Any], job: Mapping[str, Any]) -> Observed:
    started, ended = seconds((job.get("status") or {}).get("startTime")), seconds(condition.get("lastTransitionTime"))
    if condition["type"] == "Complete":
        return Observed("succeeded", 0, started=started, ended=ended)
    message = str(condition.get("message") or "")
    code = _EXIT_CODE.search(message)
    reason = _sentence(condition.get("reason"), message)
    return Observed("failed", int(code[1]) if code else None, reason=reason, started=started, ended=ended)


def _job_reason(job: Mapping[str, Any]) -> str:
    if (job.get("spec") or {}).get("suspend"):
        return "the Job is suspended, for example until its queue admits it"
    name = (job.get("metadata") or {}).get("name")
    no_pod = f"the Job has no pod yet; kubectl describe job {name} shows why"
    return next(
        (_sentence(condition.get("reason"), condition.get("message")) for condition in _conditions(job)), no_pod
    )


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = status.get("containerStatuses") or []
    return next((status for status in statuses if status.get("name") == CONTAINER), {})


def _pod_end(item: Mapping[str, Any], status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> Observed | None:
    phase, reason = status.get("phase"), _disruption(status)
    if ended is None:
        # Evicted, refused by the node, or lost with its node: the kubelet reports no container.
        return Observed("failed", reason=reason) if phase == "Failed" else None
    several = len((item.get("spec") or {}).get("containers") or []) > 1
    code = int(ended.get("exitCode") or 0)
    if not code and phase not in ("Succeeded", "Failed") and not several:
        return None
    signal = ended.get("signal") or None
    success = not code and not signal and (phase != "Failed" or several)
    own = "" if ended.get("reason") in _ORDINARY else _sentence(ended.get("reason"), ended.get("message"))
    return Observed(
        "succeeded" if success else "failed",
        None if signal else code,
        signal,
        "" if success else own or reason,
        seconds(ended.get("startedAt")),
        seconds(ended.get("finishedAt")),
    )


def _disruption(status: Mapping[str, Any]) -> str:
    """Why a pod failed that did not end by itself: evicted, preempted, over its deadline."""
    if status.get("reason"):
        return _sentence(status["reason"], status.get("message"))
    conditions = (
        condition for condition in _conditions({"status": status}) if condition.get("type") == "DisruptionTarget"
    )
    return next((_sentence(condition.get("reason"), condition.get("message")) for condition in conditions), "")


def _pod_reason(status: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    waiting = _waiting(status, state)
    if waiting and waiting.get("reason") not in _ORDINARY:
        return _sentence(waiting.get("reason"), waiting.get("message"))
    unscheduled = (
        _sentence(condition.get("reason"), condition.get("message"))
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    )
    return next(unscheduled, "") or _disruption(status)


def _waiting(status: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Why the first container that waits does not run. While init containers run, the others wait for them."""
    return _waiting_init(status) or state.get("waiting") or {}


def _waiting_init(status: Mapping[str, Any]) -> Mapping[str, Any]:
    waits = ((status_.get("state") or {}).get("waiting") for status_ in status.get("initContainerStatuses") or ())
    return next((wait for wait in waits if wait and wait.get("reason") not in _ORDINARY), {})


def _conditions(item: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The conditions that are true."""
    return (
        condition
        for condition in (item.get("status") or {}).get("conditions") or ()
        if condition.get("status") == "True"
    )


def _sentence(reason: object, message: object) -> str:
    """`ImagePullBackOff: Back-off pulling image "train:1"`."""
    return printable(": ".join(str(part).strip() for part in (reason, message) if part))


def seconds(time: object) -> float | None:
    """The s since 1970 of a time in RFC 3339; None if it is missing or something else."""
    try:
        return datetime.fromisoformat(str(time)).timestamp() if time else None
    except ValueError:
        return None
