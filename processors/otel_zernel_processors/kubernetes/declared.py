"""The metric of the processor, and those about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own
from otel_zernel_libraries.training import semconv

OUTCOME, SOURCE = "zernel.outcome", "zernel.source"
GPU_POD = DeclaredMetric(
    "zernel.gpu.pod.info",
    "",
    "gauge",
    "Always 1. Its attributes are a GPU and a container that has it.",
    (
        *("hw.id", "hw.parent", semconv.GPU_ALLOCATED_DEVICE, semconv.GPU_SHARING, semconv.GPU_CLAIM),
        *("k8s.namespace.name", "k8s.pod.name", "k8s.container.name", semconv.JOB_ID),
    ),
    "with `pod_resources`, for each GPU that a pod has",
)
PROCESSES = own(
    "zernel.kubernetes.processes",
    "{process}",
    "Processes whose container was looked up, by outcome: pod, name_unknown, outside (in no pod) or ended (too early).",
    (OUTCOME,),
    "from the first process on",
)
FORGOTTEN = own(
    "zernel.kubernetes.forgotten_pods",
    "{pod}",
    "Pods that were forgotten while they existed, because there are more than `max_pods`.",
)
FAILURES = own(
    "zernel.kubernetes.failures",
    "{failure}",
    "Readings that failed, by their source: api, pod_resources, pod_logs or proc.",
    (SOURCE,),
)
METRICS = by_name(GPU_POD, PROCESSES, FORGOTTEN, FAILURES)
