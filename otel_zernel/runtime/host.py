"""The name of the machine."""

import os
import socket
from collections.abc import Mapping


def host_name(environ: Mapping[str, str] = os.environ) -> str:
    """The `host.name` of resources: the environment variable ZERNEL_HOST_NAME, else the host name.

    In a pod, the host name is that of the pod. A restart would look like a new machine, so the pod sets the variable
    to the name of its node.
    """
    return environ.get("ZERNEL_HOST_NAME") or socket.gethostname()
