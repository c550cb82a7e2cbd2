"""A cluster for all tests of this folder, and a webhook in it."""

from collections.abc import Iterator

import pytest

from tests.deploy.helm.with_kubernetes.releases import install, until_injected, webhook
from tests.interop.kubernetes import Kubernetes, running_kubernetes


@pytest.fixture(scope="package")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        yield kubernetes


@pytest.fixture(scope="package")
def injecting(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A cluster whose new pods in the namespace `jobs` get the sidecar."""
    kubernetes.make_namespace("ml")
    kubernetes.make_namespace("jobs")
    install(kubernetes, "ml", "sidecar-injector", {"imagePullSecrets": '[{"name": "registry"}]'})
    with webhook(kubernetes, "ml", tmp_path_factory.mktemp("webhook") / "pod"):
        until_injected(kubernetes, "jobs")
        yield kubernetes
