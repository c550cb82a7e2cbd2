"""`bcc` runs in the pod that the chart renders, in an image made from ours by deploy/image/bcc.Containerfile."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.image.debian import SUITE
from docs.catalogue import ROOT
from tests.deploy.conftest import unpacked
from tests.deploy.helm.pods import NODE, running_pod
from tests.deploy.helm.rendering import CHART, render
from tests.deploy.helm.test_running import end_as_the_kubelet_does, free_address, until_serving
from tests.deploy.image.containers import ENTRYPOINT, Container, running
from tests.deploy.test_bcc import FOR_OTHER_CONTAINERS, NAMED
from tests.receivers.bcc.programs import kernel_headers, require_bcc

CONTAINERFILE = ROOT / "deploy" / "image" / "bcc.Containerfile"
FOLDERS = {"modules": Path("/lib/modules"), "headers": Path("/usr/src"), "tracing": Path("/sys/kernel/tracing")}
"""The volumes of the values. If the node has no tracefs there, `bcc` mounts one for itself."""
JOB = """
import os, time
print("started", flush=True)
while True:
    os.getppid()
    time.sleep(0.01)
"""
CALLS = """
BPF_HASH(calls, u32, u64);

int on_call(struct pt_regs *ctx)
{
        u32 pid = bpf_get_current_pid_tgid() >> 32;
        calls.increment(pid);
        return 0;
}
"""


@pytest.fixture(scope="module")
def root_with_bcc(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image. The tests ask no registry, so mmdebstrap makes the image of Debian."""
    assert f"DEBIAN=docker.io/library/debian:{SUITE}-slim" in CONTAINERFILE.read_text()
    with tempfile.TemporaryDirectory(prefix="bcc-") as name:  # 2 GB
        folder = Path(name)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", SUITE, folder / "debian.tar"], check=True)
        (folder / "Debian").write_text("FROM scratch\nADD debian.tar /\n")
        store = ["--storage-driver=vfs", f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]
        build = ["buildah", *store, "build", "--quiet", "--isolation=chroot"]
        subprocess.run([*build, "--tag=debian", f"--file={folder / 'Debian'}", name], check=True)
        images = ["--build-arg=DEBIAN=localhost/debian", f"--build-arg=IMAGE=oci-archive:{image}"]
        built = folder / "bcc.tar"
        named = [f"--tag=oci-archive:{built}:bcc", f"--file={CONTAINERFILE}"]
        subprocess.run([*build, *images, *named, str(CONTAINERFILE.parent)], check=True)
        return unpacked(built, tmp_path_factory.mktemp("bundle"))


@contextmanager
def pod(root: Path, folder: Path, ip: str, **changes: Any) -> Iterator["subprocess.Popen[str]"]:
    """The pod of the chart's example with `bcc`. A double underscore in the name of a change stands for a dot."""
    require_bcc()
    receiver = {"kernel_headers": kernel_headers(), "collection_interval": "1s"}
    values = {**{f"config__receivers__bcc__{key}": value for key, value in receiver.items()}, **changes}
    manifests = render(
        CHART / "ci/daemonset-bcc-values.yaml",
        changes={key.replace("__", "."): json.dumps(value) for key, value in values.items()},
    )
    folder.mkdir(exist_ok=True)
    with running_pod(manifests, ip, root, folder, FOLDERS) as process:
        yield process


@contextmanager
def job_in_another_container(root: Path, folder: Path) -> Iterator[int]:
    """A process that calls getppid() all the time. Its pid on the node."""
    container = Container([JOB], entrypoint=(*ENTRYPOINT[:-1], "/usr/bin/python3.11", "-c"))
    with running(container, root, folder) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        inside = psutil.Process(process.pid).children(recursive=True)
        (pid,) = (one.pid for one in inside if one.name() == "python3.11")
        yield pid


def counting_calls(pid: int) -> dict[str, Any]:
    """A program that counts the calls of getppid() in the container of a process."""
    path = f"/proc/{pid}/root/lib/x86_64-linux-gnu/libc.so.6"
    label = {"name": "process.pid", "decoders": ["pid"]}
    return {
        "source": CALLS,
        "attach": [{"kind": "uprobe", "path": path, "symbol": "getppid", "function": "on_call"}],
        "metrics": [{"table": "calls", "name": "calls", "type": "sum", "labels": [label]}],
    }


@pytest.mark.soak
def test_a_tracepoint_counts_the_programs_that_the_node_starts(root_with_bcc: Path, tmp_path: Path) -> None:
    program, ip = shutil.copy("/bin/true", tmp_path / "some-program"), free_address()
    with (
        pod(root_with_bcc, tmp_path, ip) as process,
        subprocess.Popen(["sh", "-c", f"while :; do {program}; sleep 0.1; done"]) as job,
    ):
        try:
            until_serving(process, f"http://{ip}:13133/", "Server available")
            series = rf'process_starts_total{{[^}}]*host_name="{NODE}"[^}}]*process_executable_name="some-program"'
            until_serving(process, f"http://{ip}:9091/metrics", series, job)
        finally:
            job.kill()
        assert end_as_the_kubelet_does(process, 30)[0] == 0


@pytest.mark.soak
def test_a_function_of_another_container_needs_one_more_capability(
    root: Path, root_with_bcc: Path, tmp_path: Path
) -> None:
    ip = free_address()
    with job_in_another_container(root, tmp_path / "job") as pid:
        programs = {"config__receivers__bcc__programs": {"starts": None, "calls": counting_calls(pid)}}
        with pod(root_with_bcc, tmp_path / "without", ip, **programs) as process:
            log, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        assert f"/proc/{pid}/root cannot be read; grant the collector the capability {FOR_OTHER_CONTAINERS}" in log
        held = [name.removeprefix("CAP_") for name in (*NAMED, FOR_OTHER_CONTAINERS)]
        more = {"securityContext__capabilities__add": held}
        with pod(root_with_bcc, tmp_path / "with", ip, **programs, **more) as process:
            until_serving(process, f"http://{ip}:9091/metrics", rf'calls_total{{[^}}]*process_pid="{pid}"')
            assert end_as_the_kubelet_does(process, 30)[0] == 0
