"""The configuration of the sidecar_injector extension."""

from typing import Annotated

from otel_zernel.component import ComponentConfig
from otel_zernel.net.tls_config import ServerTlsConfig
from otel_zernel.types import Address, ListenAddress, ReadableFile


class SidecarInjectorConfig(ComponentConfig):
    """The address of the webhook, and the fields that it adds to a pod."""

    sidecar: Annotated[str, ReadableFile()]
    """YAML file with the fields for the spec of a pod: initContainers, volumes, shareProcessNamespace."""
    tls: ServerTlsConfig
    """TLS of the server. Kubernetes calls webhooks by HTTPS only."""
    endpoint: ListenAddress = Address("localhost", 9443)
    """Host and port to listen on."""
