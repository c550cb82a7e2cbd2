"""The rank of a process in its job, from the environment that it was started with."""

from collections.abc import Mapping
from typing import Final

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
"""The variables that this module reads."""


def rank_attributes(environment: Mapping[str, str]) -> dict[str, int]:
    """The rank, the number of ranks, and the rank on its machine, as far as they are known.

    torchrun stands first: with `srun torchrun`, Slurm's variables are about torchrun itself.
    """
    if torchrun := _numbers(environment, _TORCHRUN):
        return torchrun
    for variables in (_MPI, _SLURM):
        if {RANK, WORLD_SIZE} <= (found := _numbers(environment, variables)).keys():
            return found
    return {}


def _numbers(environment: Mapping[str, str], variables: tuple[str, ...]) -> dict[str, int]:
    given = ((name, environment.get(variable, "")) for name, variable in zip(_NAMES, variables, strict=True))
    # A program may set any text.
    return {name: int(text) for name, text in given if text.isascii() and text.isdecimal() and len(text) < 10}
