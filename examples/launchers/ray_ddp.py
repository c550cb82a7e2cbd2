"""The loop of ddp.py as two actors of Ray. Only the environment of the actors names the job and the ranks.

`python examples/launchers/ray_ddp.py [EPOCHS]`, while the collector runs examples/training.yaml as root. Needs Ray and
PyTorch: `pip install ray torch`.
"""

import socket
import sys
from pathlib import Path

import ray

RANKS = 2


def environment(rank: int, port: int) -> dict[str, str]:
    """The variables of an actor. Ray starts its process with them, so the collector sees them.

    Variables that a program sets later, as Ray Train does with RANK, are not visible from outside. NCCL's ranks are.
    """
    return {
        "OTEL_SERVICE_NAME": "my-ray-job",
        "OTEL_RESOURCE_ATTRIBUTES": "zernel.job.id=my-ray-job",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class Rank:
    """A rank of the job."""

    def train(self, epochs: int) -> None:
        sys.path.append(str(Path(__file__).parent))
        from ddp import train  # type: ignore[import-not-found]  # beside this file

        train(epochs)


def main(epochs: int) -> None:
    """Runs the ranks on this machine, until all have ended."""
    ray.init(include_dashboard=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    actors = [
        ray.remote(Rank).options(num_cpus=0.5, runtime_env={"env_vars": environment(rank, port)}).remote()
        for rank in range(RANKS)
    ]
    ray.get([actor.train.remote(epochs) for actor in actors])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
