"""Runs tasks as Jobs of Kubernetes."""

from otel_zernel_extensions.tasks.engines.kubernetes.config import KubernetesConfig as KubernetesConfig
from otel_zernel_extensions.tasks.engines.kubernetes.engine import KubernetesEngine as KubernetesEngine
