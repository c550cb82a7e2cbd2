"""The name of a service and the id of a job, from the environment of a process.

The name of the machine comes from the environment, else from the system.

The rank of a process, from the variables of its launcher.
"""

import socket

import pytest

from otel_zernel_libraries.job_environment import (
    host_name,
    job_id,
    job_run,
    rank_attributes,
    ranks_of_one_host,
    service_name,
)

SLURM = {"SLURM_JOB_ID": "4711"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"OTEL_SERVICE_NAME": "bert", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other", **SLURM}, "bert"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b, service.name=my%20bert,,x", **SLURM}, "my bert"),
        (SLURM, "4711"),
        ({"TORCHELASTIC_RUN_ID": "run-7"}, "run-7"),
        (TORCHRUN, "unknown_service:python3.11"),
        ({"OTEL_SERVICE_NAME": ""}, "unknown_service:python3.11"),
        ({}, "unknown_service:python3.11"),
    ],
)
def test_the_service_is_the_given_name_else_the_job_else_unknown(environment: dict[str, str], name: str) -> None:
    assert service_name(environment, "python3.11") == name


@pytest.mark.parametrize(
    ("environment", "id_"),
    [
        ({**SLURM, **TORCHRUN}, "4711"),
        (TORCHRUN, "10.0.0.5:29500"),
        ({**TORCHRUN, "MASTER_ADDR": "localhost"}, "node-1/localhost:29500"),
        ({**TORCHRUN, "MASTER_ADDR": "127.0.0.1"}, "node-1/127.0.0.1:29500"),
        ({"MASTER_ADDR": "10.0.0.5"}, ""),
        ({}, ""),
    ],
)
def test_the_id_of_a_job_is_the_same_on_all_its_ranks(environment: dict[str, str], id_: str) -> None:
    assert job_id(environment, "node-1") == id_


STEP = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize(
    ("environment", "run"),
    [
        (STEP, "4711.0"),
        ({**STEP, "SLURM_RESTART_COUNT": "2"}, "4711.0.2"),
        ({**STEP, "PMIX_NAMESPACE": "slurm.pmix.4711.0"}, "4711.0"),
        ({"PMIX_NAMESPACE": "prterun-node-812@1"}, "prterun-node-812@1"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "zernel.job.run=7", **STEP}, "7"),
        ({**STEP, "SLURM_STEP_NUM_NODES": "1"}, ""),
        ({**STEP, **TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}, ""),
        (TORCHRUN, ""),
        (SLURM, ""),
        ({}, ""),
    ],
)
def test_a_run_is_named_only_where_all_ranks_have_the_same_name(environment: dict[str, str], run: str) -> None:
    assert job_run(environment) == run


def test_the_variable_names_the_node_of_a_pod() -> None:
    assert host_name({"ZERNEL_HOST_NAME": "gpu-7"}) == "gpu-7"


def test_without_the_variable_it_is_the_name_of_the_system() -> None:
    assert host_name({}) == host_name({"ZERNEL_HOST_NAME": ""}) == socket.gethostname()


SRUN = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({**SRUN, "RANK": "40", "WORLD_SIZE": "128", "LOCAL_RANK": "0"}, (40, 128, 0)),
        (SRUN, (5, 16, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, (2, 4, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"}, (None, None, None)),
        ({"RANK": "3"}, (3, None, None)),
        ({"RANK": "three", "WORLD_SIZE": "99999999999"}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_the_launcher_next_to_the_process_gives_its_rank(
    environment: dict[str, str], expected: tuple[int | None, ...]
) -> None:
    found = rank_attributes(environment)
    assert tuple(found.get(f"zernel.{name}") for name in ("rank", "world_size", "local_rank")) == expected


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}, 2),
        ({"MASTER_ADDR": "localhost"}, 0),
        ({**TORCHRUN, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, 8),
        ({**TORCHRUN, "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 0),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "many"}, 0),
        (TORCHRUN, 0),
        ({}, 0),
    ],
)
def test_a_job_whose_ranks_meet_on_one_host_is_there_as_a_whole(environment: dict[str, str], ranks: int) -> None:
    assert ranks_of_one_host(environment) == ranks
