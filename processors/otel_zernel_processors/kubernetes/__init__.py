"""Names the pods, containers and jobs of processes and GPUs."""

from otel_zernel_processors.kubernetes.processor import KubernetesProcessor as KubernetesProcessor
