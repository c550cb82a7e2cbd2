"""The rank of a process, from the variables of its launcher."""

import pytest

from otel_zernel_libraries.job_environment import rank_attributes

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
