"""The machine, the service, the job and the rank of a process, from the environment that it was started with."""

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

JOB_ID = "zernel.job.id"
JOB_RUN = "zernel.job.run"
TASK_ID = "zernel.task.id"
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "AWS_BATCH_JOB_ID")
"""Set by Slurm, PBS, LSF, Grid Engine and AWS Batch. An array job of Slurm has an id for each of its tasks."""
_LAUNCHER = "TORCHELASTIC_RUN_ID"
"""Set by torchrun. Without a rendezvous id it is `none`."""
_SLURM_STEP = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
"""Together they name a run: a requeued job keeps its id, and its steps begin anew at 0. The first run has no count."""
_STEP_NODES = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES")
"""A step on all nodes of the job has all ranks. With a step for each node, the ids of the steps differ."""
_MPI_RUN = "PMIX_NAMESPACE"
"""Set by Open MPI's mpirun, different for each call."""
JOB_VARIABLES = frozenset(
    {
        *("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "MASTER_ADDR", "MASTER_PORT"),
        *(*_SCHEDULERS, *_SLURM_STEP, *_STEP_NODES, _LAUNCHER, _MPI_RUN),
    }
)
"""The variables with names of services and jobs."""
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
    if given := _resource_attributes(environment).get(JOB_ID):
        return given
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    meeting = f"{address}:{port}" if address and port else ""
    return _named_job(environment) or (f"{host}/{meeting}" if meeting.startswith(_LOOPBACK) else meeting)


def job_run(environment: Mapping[str, str]) -> str:
    """Names this run of the job: the same for all its ranks, and another one if the job is started again. Empty if
    nothing in the environment does so.

    It is `zernel.job.run` of `OTEL_RESOURCE_ATTRIBUTES`, else the step of Slurm, else the id of mpirun's call. torchrun
    has none: it starts the ranks again within one step, and counts restarts separately on each host.
    """
    if given := _resource_attributes(environment).get(JOB_RUN):
        return given
    if _LAUNCHER in environment:
        return ""
    nodes = [environment.get(variable, "") for variable in _STEP_NODES]
    step = [environment.get(variable, "") for variable in _SLURM_STEP]
    if all(step[:2]) and nodes[0] and nodes[0] == nodes[1]:
        return ".".join(filter(None, step))
    return "" if step[0] else environment.get(_MPI_RUN, "")


def names_own_job(environment: Mapping[str, str] | None) -> bool:
    """Whether the user or a scheduler has named the job. An id of torchrun or an address is weaker than other sources.

    True if the environment is not known.
    """
    if environment is None or _resource_attributes(environment).get(JOB_ID):
        return True
    return bool(_first_name(environment, _SCHEDULERS))


def job_attributes(environment: Mapping[str, str], host: str) -> dict[str, str]:
    """`zernel.job.id` and `zernel.task.id` of a process, as far as its environment gives them.

    The id of a task is in `OTEL_RESOURCE_ATTRIBUTES`, where the starter of a process puts it.
    """
    attributes = {JOB_ID: job_id(environment, host)}
    attributes[TASK_ID] = _resource_attributes(environment).get(TASK_ID, "")
    return {name: value for name, value in attributes.items() if value}


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


RANK: Final = "zernel.rank"
WORLD_SIZE: Final = "zernel.world_size"
LOCAL_RANK: Final = "zernel.local_rank"
_NAMES: Final = (RANK, WORLD_SIZE, LOCAL_RANK)
_TORCHRUN: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_MPI: Final = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Set by Open MPI's mpirun."""
_SLURM: Final = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
"""Set by srun. A batch script itself has a `SLURM_PROCID` too, but no number of tasks in its step."""
RANK_VARIABLES: Final = frozenset((*_TORCHRUN, *_MPI, *_SLURM))
"""The variables with ranks."""


def rank_attributes(environment: Mapping[str, str]) -> dict[str, int]:
    """The rank, the number of ranks, and the rank on its machine, as far as they are known.

    torchrun stands first: with `srun torchrun`, Slurm's variables are about torchrun itself.
    """
    if torchrun := _numbers(environment, _TORCHRUN):
        return torchrun
    for variables in (_MPI, _SLURM):
        if {RANK, WORLD_SIZE} <= (numbers := _numbers(environment, variables)).keys():
            return numbers
    return {}


def _numbers(environment: Mapping[str, str], variables: tuple[str, ...]) -> dict[str, int]:
    given = ((name, environment.get(variable, "")) for name, variable in zip(_NAMES, variables, strict=True))
    # A program may set any text.
    return {name: int(text) for name, text in given if text.isascii() and text.isdecimal() and len(text) < 10}


_LOCAL_SIZES: Final = {
    "LOCAL_WORLD_SIZE": "WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "OMPI_COMM_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE": "SLURM_STEP_NUM_TASKS",
}
"""The number of ranks on a host, and in the job."""
LOCAL_VARIABLES: Final = frozenset((*_LOCAL_SIZES, *_LOCAL_SIZES.values(), "MASTER_ADDR"))
"""The variables that say whether a job has one host."""


def ranks_of_one_host(environment: Mapping[str, str]) -> int:
    """The number of ranks of the job of a process, if all of them run on its host: its ranks are all there, or they
    meet at a loopback address. Else 0."""
    sizes = [(environment.get(local, ""), environment.get(size, "")) for local, size in _LOCAL_SIZES.items()]
    meets_here = environment.get("MASTER_ADDR", "").startswith(_LOOPBACK)
    of_host = (size for local, size in sizes if size.isdecimal() and (meets_here or size == local))
    return next((int(size) for size in of_host if len(size) < 10), 0)


def host_name(environ: Mapping[str, str] = os.environ) -> str:
    """The `host.name` of resources: the environment variable ZERNEL_HOST_NAME, else the host name.

    In a pod, the host name is that of the pod. A restart would look like a new machine, so the pod sets the variable
    to the name of its node.
    """
    return environ.get("ZERNEL_HOST_NAME") or socket.gethostname()
