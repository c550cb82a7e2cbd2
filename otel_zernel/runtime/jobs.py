"""The name of a process's service and the id of its job, from the environment that it was started with."""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "AWS_BATCH_JOB_ID")
"""Set by Slurm, PBS, LSF, Grid Engine and AWS Batch. An array job of Slurm has an id for each of its tasks."""
_LAUNCHER = "TORCHELASTIC_RUN_ID"
"""Set by torchrun. Without a rendezvous id it is `none`."""
JOB_VARIABLES = frozenset(
    {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", *_SCHEDULERS, _LAUNCHER, "MASTER_ADDR", "MASTER_PORT"}
)
"""The variables that this module reads."""
_LOOPBACK = ("localhost", "127.", "::1")


def service_name(environment: Mapping[str, str], executable: str) -> str:
    """`OTEL_SERVICE_NAME`, else `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, else the job id, else
    `unknown_service:EXECUTABLE`, as OpenTelemetry's SDKs choose it."""
    given = environment.get("OTEL_SERVICE_NAME") or _resource_attributes(environment).get("service.name")
    return given or _named_job(environment) or f"unknown_service:{executable}"


def job_id(environment: Mapping[str, str], host: str) -> str:
    """The id of the job, which all its ranks share; empty if the environment does not give it.

    It is `zernel.job.id` of `OTEL_RESOURCE_ATTRIBUTES`, else the id of the scheduler or of torchrun, else the address
    at which the ranks meet. A loopback address gets the name of the host in front of it.
    """
    if given := _resource_attributes(environment).get("zernel.job.id"):
        return given
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    meeting = f"{address}:{port}" if address and port else ""
    return _named_job(environment) or (f"{host}/{meeting}" if meeting.startswith(_LOOPBACK) else meeting)


def names_own_job(environment: Mapping[str, str] | None) -> bool:
    """Whether the user or a scheduler has named the job. An id of torchrun or an address is weaker than other sources.

    True if the environment is not known.
    """
    if environment is None or _resource_attributes(environment).get("zernel.job.id"):
        return True
    return bool(_first_name(environment, _SCHEDULERS))


def job_attributes(environment: Mapping[str, str], host: str) -> dict[str, str]:
    """`zernel.job.id` and `zernel.task.id` of a process, as far as its environment gives them.

    The id of a task is in `OTEL_RESOURCE_ATTRIBUTES`, where the starter of a process puts it.
    """
    found = {"zernel.job.id": job_id(environment, host)}
    found["zernel.task.id"] = _resource_attributes(environment).get("zernel.task.id", "")
    return {name: value for name, value in found.items() if value}


def _named_job(environment: Mapping[str, str]) -> str:
    return _first_name(environment, (*_SCHEDULERS, _LAUNCHER))


def _first_name(environment: Mapping[str, str], variables: Iterable[str]) -> str:
    for variable in variables:
        if (value := environment.get(variable, "")) and value.lower() not in ("none", "undefined"):
            return value
    return ""


def _resource_attributes(environment: Mapping[str, str]) -> dict[str, str]:
    """`key=value,...`, percent-encoded. Parts of another form are ignored."""
    pairs = (pair.partition("=") for pair in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    return {unquote(key.strip()): unquote(value.strip()) for key, equals, value in pairs if equals}
