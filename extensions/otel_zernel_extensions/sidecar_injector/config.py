"""The configuration of the sidecar_injector extension."""

from typing import Annotated

from pydantic import AfterValidator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Address, ListenAddress, ReadableFile
from otel_zernel_extensions.sidecar_injector.fitting import quantity
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


def _quantity(text: str) -> str:
    if not quantity(text):
        raise ValueError("not an amount of CPU; write one such as 500m or 1")
    return text


class SidecarInjectorConfig(ComponentConfig):
    """The address of the webhook, and the fields that it adds to a pod."""

    sidecar: Annotated[str, ReadableFile()]
    """YAML file with the fields for the spec of a pod: initContainers, volumes, imagePullSecrets,
    shareProcessNamespace, ports."""
    tls: ServerTlsConfig
    """TLS of the server. Kubernetes calls webhooks by HTTPS only."""
    endpoint: ListenAddress = Address("localhost", 9443)
    """Host and port to listen on."""
    cpu_limit: Annotated[str, AfterValidator(_quantity)] = "500m"
    """CPU limit of the sidecar in pods whose containers all have one. In a Guaranteed pod it is also the request."""
