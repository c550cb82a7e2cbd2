"""A kubeconfig file for tests."""

from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, server: str, user: dict[str, Any]) -> None:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "train"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content), "utf-8")
