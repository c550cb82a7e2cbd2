"""The pods that are known without any permission in Kubernetes: those of this node, from the kubelet's folder of logs,
and the collector's own, from the downward API's environment variables and files.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otel_zernel_processors.kubernetes.pods.pod import KubernetesPod

NAMESPACE: Final = "K8S_NAMESPACE"
POD_NAME: Final = "K8S_POD_NAME"
POD_UID: Final = "K8S_POD_UID"
NODE_NAME: Final = "K8S_NODE_NAME"
"""The variables that the chart sets."""
_LONGEST_FILE: Final = 1 << 20
_LINE: Final = re.compile(r'([^=\s]+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
"""A line of a downward API volume: the key, and the value as Go quotes it (pkg/fieldpath/fieldpath.go, `FormatMap`)."""
_ESCAPED: Final = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_CHARACTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def own_pod(environ: Mapping[str, str], folder: Path) -> KubernetesPod | None:
    """The pod with the labels and annotations in the folder. None if no variable names it."""
    namespace, name = environ.get(NAMESPACE, ""), environ.get(POD_NAME, "")
    if not (namespace and name):
        return None
    return KubernetesPod(
        namespace,
        name,
        environ.get(POD_UID, ""),
        environ.get(NODE_NAME, ""),
        _pairs(folder / "labels"),
        _pairs(folder / "annotations"),
    )


def _pairs(file: Path) -> dict[str, str]:
    """Empty if the file cannot be read: a pod need not mount it."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_LONGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return {}
    return {match[1]: _ESCAPED.sub(_character, match[2]) for match in _LINE.finditer(text)}


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16)) if int(code[1:], 16) <= 0x10FFFF else "\ufffd"
    return _CHARACTERS.get(code, code)


def pods_with_logs(folder: Path) -> list[KubernetesPod]:
    """The pods that have a folder `NAMESPACE_POD_UID` (pkg/kubelet/kuberuntime/helpers.go, `BuildPodLogsDirectory`).

    Raises `OSError` if the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        parts = [entry.name.split("_") for entry in entries]
    # Names in Kubernetes have no underscore.
    return [KubernetesPod(namespace, name, uid) for namespace, name, uid in filter(lambda part: len(part) == 3, parts)]
