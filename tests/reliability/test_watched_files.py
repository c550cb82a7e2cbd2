"""`run --watch` notices files that change, as Kubernetes changes them."""

import os
from pathlib import Path

from tests.reliability.reloading import (
    HEADER,
    Collector,
    config,
    free_ports,
    status,
    wait_for,
)


class ConfigMap:
    """A folder as Kubernetes mounts it: the files are links through `..data`, which is exchanged at once."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self._version = 0
        self.update(text)
        for name in ("config.yaml", "endpoint"):
            (folder / name).symlink_to(Path("..data") / name)

    def update(self, text: str, endpoint: str = "") -> None:
        self._version += 1
        data = self.folder / f"..{self._version}"
        data.mkdir()
        (data / "config.yaml").write_text(text)
        (data / "endpoint").write_text(endpoint)
        os.utime(data / "config.yaml", (1, 1))  # all versions have the same time and perhaps the same size
        (self.folder / "..data_tmp").symlink_to(data.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")


def test_watch_notices_a_configmap_that_kubernetes_exchanges_and_files_that_the_configuration_names(
    tmp_path: Path,
) -> None:
    own, one, other, third = free_ports(4)
    (tmp_path / "in.csv").write_text(HEADER)
    (tmp_path / "mounted").mkdir()
    text = config(tmp_path, own=own, health=one)
    configmap = ConfigMap(tmp_path / "mounted", text)
    (tmp_path / "config.yaml").symlink_to(tmp_path / "mounted" / "config.yaml")
    running = Collector(tmp_path, "--watch")
    try:
        running.logs("Everything is ready")
        configmap.update(text.replace(f"127.0.0.1:{one}", f"127.0.0.1:{other}"))
        wait_for(lambda: status(other) == 404)
        assert status(one) is None
        referring = text.replace(f"127.0.0.1:{one}", f"${{file:{tmp_path}/mounted/endpoint}}")
        configmap.update(referring, endpoint=f"127.0.0.1:{one}")
        wait_for(lambda: status(one) == 404)
        configmap.update(referring, endpoint=f"127.0.0.1:{third}")
        wait_for(lambda: status(third) == 404)
        assert running.log.count("Reload restarts extensions::health_check (changed: endpoint).") == 3
    finally:
        assert running.end() == 0
