"""The names of the attributes of points."""

from otel_zernel_libraries.training import semconv

TASK = "hw.gpu.task"
LOCATION = "hw.sensor_location"
LIMIT = "hw.limit_type"
STATE = "hw.state"
ERROR = "error.type"
DIRECTION = "network.io.direction"
PID = "process.pid"
EXECUTABLE = "process.executable.name"
QUERY = "zernel.nvml.query"
DETAILS = (
    *("hw.vendor", "hw.serial_number", "hw.firmware_version", "hw.driver_version", semconv.GPU_DEVICE),
    *(semconv.GPU_PCI_BUS_ID, semconv.GPU_BOARD_PART_NUMBER, semconv.GPU_ARCHITECTURE, semconv.GPU_NUMA_NODE),
    *(semconv.GPU_CUDA_VERSION, semconv.GPU_MIG_PROFILE, semconv.GPU_MIG_GPU_INSTANCE),
    semconv.GPU_MIG_COMPUTE_INSTANCE,
)
"""The attributes of the resource that only one metric repeats."""
