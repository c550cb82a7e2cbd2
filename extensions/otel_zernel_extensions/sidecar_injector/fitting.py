"""Fits the containers of the sidecar to the pod of a job: their names, ports and resources.

The pod must work as before. Kubernetes derives a pod's class of service from all its containers, and checks each one
against quotas. With `hostNetwork`, the ports are those of the node.
"""

import copy
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

Named = dict[str, Any]
"""A container or a volume of Kubernetes, with its `name`."""
Spec = Mapping[str, Any]
"""The `spec` of a pod."""

PORTS: Final = range(20_000, 29_000)
"""For pods on the network of their node: below those of torchrun (29400, 29500), of NodePort services (30000) and of
outgoing connections."""
_SIZES: Final = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([-+]?[0-9]{1,3}))?")
"""Kubernetes' resource.Quantity, without a sign."""
_RESOURCES: Final = ("cpu", "memory")
"""Those from which Kubernetes derives the class of service."""


def fitted(containers: Sequence[Named], spec: Spec, ports: Mapping[str, int], cpu_limit: str, seed: str) -> list[Named]:
    """Copies of the sidecar's containers, for a pod with this spec.

    `ports` has the environment variables that change a port of the sidecar, and its default. `cpu_limit` is for pods
    whose containers all limit their CPU. The same `seed` gives the same ports.
    """
    taken = {container["name"] for container in _containers(spec)}
    result = copy.deepcopy(list(containers))
    for container in result:
        container["name"] = next(name for name in names(container["name"]) if name not in taken)
        _fit_resources(container, spec, cpu_limit)
        if spec.get("hostNetwork"):
            _move_ports(container, ports, seed)
    return result


def names(name: str) -> Iterable[str]:
    """The names that the container may get, the first free one of them."""
    return (name, *(f"{name[:50]}-sidecar{number}" for number in ("", *range(2, 100))))


def _containers(spec: Spec) -> list[Named]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _fit_resources(container: Named, spec: Spec, cpu_limit: str) -> None:
    """Limits the sidecar where all containers of the pod have limits, and gives requests of the same amount if they do.

    A quota on limits refuses a pod if one container has none. A pod is Guaranteed, and may have exclusive CPUs, if the
    limits of CPU and memory equal the requests in every container.
    """
    if spec.get(
        "resources"
    ):  # those of the whole pod bound the sidecar, and the sum of the containers may not exceed them
        container.pop("resources", None)
        return
    own = [container.get("resources") or {} for container in _containers(spec)]
    resources = container.pop("resources", {})
    requests, limits = resources.setdefault("requests", {}), resources.setdefault("limits", {})
    for name in _RESOURCES:
        if own and all(name in (container.get("limits") or {}) for container in own):
            least = cpu_limit if name == "cpu" else "0"
            limits.setdefault(name, max(str(requests.get(name, "0")), least, key=quantity))
    if own and all(_is_guaranteed(container) for container in own):
        requests.update({name: limits[name] for name in _RESOURCES if name in limits})
    if used := {field: amounts for field, amounts in resources.items() if amounts}:
        container["resources"] = used


def _is_guaranteed(resources: Mapping[str, Any]) -> bool:
    """Whether CPU and memory have limits, and the requests are the same. A missing request is the limit."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return all(
        name in limits and quantity(str(requests.get(name, limits[name]))) == quantity(str(limits[name]))
        for name in _RESOURCES
    )


def quantity(text: str) -> Fraction:
    """An amount of Kubernetes, such as `500m`, `1.5Gi` or `1e3`. 0 for another text, which the API server refuses."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return Fraction(0)
    number, suffix, exponent = match.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << 10 * _BINARY[suffix])
    return Fraction(f"{number}e{exponent or _SIZES[suffix or '']}")


def _move_ports(container: Named, ports: Mapping[str, int], seed: str) -> None:
    """Other ports for each pod: several pods of a node may have a sidecar. The scheduler reserves none of them."""
    first = PORTS.start + zlib.crc32(seed.encode()) % (len(PORTS) - len(ports))
    moved = {port: first + index for index, port in enumerate(sorted(set(ports.values())))}
    by_name = {port.get("name"): port.get("containerPort") for port in container.pop("ports", ())}
    container["env"] = [
        *(variable for variable in container.get("env") or () if variable.get("name") not in ports),
        *({"name": name, "value": str(moved[port])} for name, port in ports.items()),
    ]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        for action in ("httpGet", "tcpSocket", "grpc"):
            target = (container.get(probe) or {}).get(action)
            if target:
                port = by_name.get(target.get("port"), target.get("port"))
                target["port"] = moved.get(port, port)
