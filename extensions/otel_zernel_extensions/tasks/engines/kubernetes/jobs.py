"""The Job that runs a task: the template of the configuration, with the task's command, environment and limits."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from otel_zernel_extensions.tasks.engines.engine import TaskSpec, task_environment
from otel_zernel_extensions.tasks.engines.kubernetes.config import KubernetesConfig
from otel_zernel_libraries.clients.json_client import Json

CONTAINER: Final = "task"
"""The container that runs the command. Its exit code is the task's."""
TASK_LABEL: Final = "zernel.io/task-id"
INSTANCE_LABEL: Final = "zernel.io/instance"
DIGEST: Final = "zernel.io/task-sha256"
"""An annotation: which task a Job was made for, so that another task with the same name is found."""
_PREFIX: Final = "zernel-"
_MANAGED: Final = "app.kubernetes.io/managed-by"


def job_name(task_id: str) -> str:
    """The name of the Job. It is the same at each attempt, so that a task runs once."""
    return _PREFIX + task_id


def selector(instance: str) -> str:
    """Selects the Jobs and the pods of this collector."""
    return f"{_MANAGED}=otel-zernel,{INSTANCE_LABEL}={instance}"


def digest(task: TaskSpec) -> str:
    """A fingerprint of the task, as the client described it."""
    limits = task.limits
    parts = [task.id, task.command, task.name, sorted(task.env.items()), task.working_dir]
    numbers = [limits.cpu, limits.memory, limits.gpus, limits.time]
    return hashlib.sha256(json.dumps([parts, numbers]).encode()).hexdigest()


def is_of(job: Mapping[str, Any], task: TaskSpec, instance: str) -> bool:
    """Whether a Job in the cluster was made for this task by this collector."""
    metadata = job.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    ours = labels.get(INSTANCE_LABEL) == instance and labels.get(TASK_LABEL) == task.id
    return ours and annotations.get(DIGEST) == digest(task)


def job(task: TaskSpec, config: KubernetesConfig) -> Json:
    """The Job to create."""
    labels = {_MANAGED: "otel-zernel", INSTANCE_LABEL: config.instance, TASK_LABEL: task.id}
    template = copy.deepcopy(dict(config.job_template))
    merged = merge(
        template,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": job_name(task.id), "labels": labels, "annotations": {DIGEST: digest(task)}},
            # A second attempt would run the command twice. The collector deletes the Job, so that its end is not lost.
            "spec": {
                "backoffLimit": 0,
                "completions": 1,
                "parallelism": 1,
                "template": {"metadata": {"labels": labels}},
            },
        },
    )
    merged["metadata"].pop("generateName", None)
    merged["spec"].pop("ttlSecondsAfterFinished", None)
    merged["spec"].setdefault("podFailurePolicy", _EXIT_CODE_IN_CONDITION)
    merged["spec"]["template"]["spec"] = _pod(merged["spec"]["template"].get("spec") or {}, task, config)
    return merged


_EXIT_CODE_IN_CONDITION: Final = {
    "rules": [{"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "NotIn", "values": [0]}}]
}
"""The Job's condition then names the exit code, which outlives the pod."""


def _pod(template: Json, task: TaskSpec, config: KubernetesConfig) -> Json:
    pod = merge(template, {"restartPolicy": "Never"})
    if config.service_account:
        pod["serviceAccountName"] = config.service_account
    elif "serviceAccountName" not in pod:
        pod.setdefault("automountServiceAccountToken", False)
    if task.limits.time is not None:
        # Whole seconds, and 0 is not allowed.
        pod["activeDeadlineSeconds"] = max(1, -int(-task.limits.time // 1))
    containers = pod.get("containers") or []
    known: Json = next((container for container in containers if container.get("name") == CONTAINER), {})
    others = [container for container in containers if container.get("name") != CONTAINER]
    pod["containers"] = [_container(known, task, config), *others]
    return pod


def _container(template: Json, task: TaskSpec, config: KubernetesConfig) -> Json:
    # Kubernetes would expand $(NAME) in commands and values. $$ stands for one $.
    command = [argument.replace("$", "$$") for argument in task.command]
    env = {name: value.replace("$", "$$") for name, value in task_environment(task).items()}
    kept = [variable for variable in template.get("env") or [] if variable.get("name") not in env]
    container = merge(template, {"name": CONTAINER, "command": command, "resources": _resources(task, config)})
    container.pop("args", None)
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in env.items())]
    if config.image:
        container["image"] = config.image
    if task.working_dir:
        container["workingDir"] = task.working_dir
    return container


def _resources(task: TaskSpec, config: KubernetesConfig) -> Json:
    limits: dict[str, str] = {}
    if task.limits.cpu is not None:
        limits["cpu"] = f"{max(1, round(task.limits.cpu * 1000))}m"
    if task.limits.memory is not None:
        limits["memory"] = str(task.limits.memory)
    if task.limits.gpus:
        limits[config.gpu_resource] = str(task.limits.gpus)
    return {"limits": limits, "requests": dict(limits)} if limits else {}


def merge(below: Json, above: Mapping[str, Any]) -> Json:
    """`above` laid over `below`: mappings are merged, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return merged
