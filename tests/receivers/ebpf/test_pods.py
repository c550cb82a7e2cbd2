"""A real process in real control groups, with the mounts of a kubelet, gets its pod from the kubernetes processor.

The collector is in a pod too: its control group namespace hides the upper part of all paths.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from otel_zernel.testing import until
from tests.collectors import running_collector
from tests.free_ports import free_port
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.test_ends import Collector
from tests.receivers.ebpf.watching import TEST_RUN

HIERARCHIES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Where cgroup v2 is mounted: alone, or beside v1."""
INTO_GROUP = 'echo $$ > "$1/cgroup.procs"; shift; '
AS_CONTAINER = f"""
{INTO_GROUP}
mount --bind "$1/etc-hosts" /etc/hosts
mount --bind "$1/containers/worker/0a1b2c3d" "$2"
shift 2
exec "$@"
"""


class PodOnDisk:
    """The control group, the files and the folder of logs of one pod with one container."""

    def __init__(self, root: Path, folder: Path, name: str) -> None:
        self.name, self.uid, self.container = name, str(uuid4()), uuid4().hex * 2
        self.group = root / "kubepods" / "burstable" / f"pod{self.uid}" / self.container
        self.group.mkdir(parents=True)
        self.files = folder / "kubelet" / "pods" / self.uid
        (self.files / "containers" / "worker").mkdir(parents=True)
        (self.files / "etc-hosts").write_text(Path("/etc/hosts").read_text("utf-8"), "utf-8")
        (self.files / "containers" / "worker" / "0a1b2c3d").touch()
        self.mount_point = folder / f"termination-log-{name}"
        self.mount_point.touch()
        (folder / "logs" / f"train_{name}_{self.uid}").mkdir(parents=True)

    @property
    def wrapper(self) -> list[str]:
        """Starts a program in the container."""
        files = [str(self.group), str(self.files), str(self.mount_point)]
        return ["unshare", "--mount", "--cgroup", "sh", "-ec", AS_CONTAINER, "sh", *files]

    def remove(self) -> None:
        self.group.rmdir()
        self.group.parent.rmdir()
        with suppress(OSError):  # the other pod is still there
            self.group.parents[1].rmdir()
            self.group.parents[2].rmdir()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list[PodOnDisk]]:
    root = next((one for one in HIERARCHIES if (one / "cgroup.controllers").exists()), None)
    if os.geteuid() != 0 or root is None or not os.access(root, os.W_OK):
        pytest.skip("needs root, and cgroup v2 that can be written")
    made = [PodOnDisk(root, tmp_path, name) for name in ("trainer-0", "collector")]
    yield made
    for pod in made:
        pod.remove()


def configuration(folder: Path, port: int) -> str:
    selection = {"processes": {"environment": {TEST_RUN: os.environ[TEST_RUN]}}, "interval": "100ms"}
    return yaml.safe_dump(
        {
            "receivers": {"ebpf": {**selection, "rescan_interval": "200ms"}},
            "processors": {"kubernetes": {"node": "node-1", "pod_logs": str(folder / "logs")}},
            "exporters": {"prometheus": {"endpoint": f"localhost:{port}"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    "all": {"receivers": ["ebpf"], "processors": ["kubernetes"], "exporters": ["prometheus"]}
                },
            },
        }
    )


async def test_a_container_seen_from_another_container_gets_its_pod(
    loadable: None, standin: Standin, pods: list[PodOnDisk], tmp_path: Path
) -> None:
    trainer, own = pods
    port = free_port()
    enter = ["sh", "-ec", INTO_GROUP + 'exec unshare --cgroup "$@"', "sh", str(own.group)]
    with (
        standin.start(wrapper=trainer.wrapper) as program,
        running_collector(
            tmp_path, configuration(tmp_path, port), wrapper=enter, environ={"ZERNEL_HOST_NAME": "node-1"}
        ),
    ):
        running = Collector(tmp_path, port)
        program.do("load libcudart.so.12")
        launches = "zernel_cuda_launch_latency_seconds_count"

        def launched() -> list[str]:
            program.do("cudaLaunchKernel")
            return running.series(launches)

        await until(launched)
        assert running.series(launches) == running.series(
            launches, k8s_namespace_name="train", k8s_pod_name="trainer-0", k8s_container_name="worker"
        )
