"""The folders of a node that a DaemonSet's pod mounts, with the owners and modes that the kubelet gives them."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from docs.catalogue import ROOT
from tests.processors.kubernetes.gpus.kubelet import FakeKubelet

GPU: Final = "GPU-11111111-2222-3333-4444-555555555555"


class NodeFolders:
    """The folders of logs and of the kubelet's socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs, socket = folder / "logs", folder / "pod-resources"
        self._logs.mkdir(parents=True, mode=0o755)
        socket.mkdir(mode=0o750)
        self.kubelet = FakeKubelet(socket)

    @property
    def volumes(self) -> Mapping[str, Path]:
        """The folders, by the names of the chart's volumes."""
        return {"pod-logs": self._logs, "pod-resources": self.kubelet.socket.parent}

    @contextlib.contextmanager
    def running_job(self, pod: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A training in a pod of namespace `train`: with its folder of logs, and the mount that every container has."""
        uid = str(uuid4())
        (self._logs / f"train_{pod}_{uid}").mkdir()
        hosts = self._folder / "pods" / uid / "etc-hosts"
        hosts.parent.mkdir(parents=True)
        hosts.write_text("127.0.0.1 localhost\n")
        mount_and_run = 'mount --bind "$0" /etc/hosts && exec "$@"'
        train = [sys.executable, str(ROOT / "examples/train.py"), "1000"]
        command = ["unshare", "--mount", "sh", "-c", mount_and_run, str(hosts), *train]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
            yield job
