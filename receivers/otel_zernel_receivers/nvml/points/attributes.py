"""The names of the attributes of points."""

TASK = "hw.gpu.task"
LOCATION = "hw.sensor_location"
LIMIT = "hw.limit_type"
STATE = "hw.state"
ERROR = "error.type"
DIRECTION = "network.io.direction"
DOMAIN = "zernel.gpu.clock.domain"
ENGINE = "zernel.gpu.engine"
REASON = "zernel.gpu.throttle.reason"
POLICY = "zernel.gpu.violation.policy"
ECC_COUNTER = "zernel.gpu.ecc.counter"
ECC_LOCATION = "zernel.gpu.ecc.location"
SOURCE = "zernel.gpu.counter.source"
ENERGY_SOURCE = "zernel.gpu.energy.source"
AVAILABILITY = "zernel.gpu.row_remap.availability"
LINK = "zernel.gpu.nvlink.link"
LINK_STATE = "zernel.gpu.nvlink.state"
FABRIC_STATE = "zernel.gpu.fabric.state"
FABRIC_PROBLEM = "zernel.gpu.fabric.problem.type"
XID = "zernel.gpu.xid.code"
GPU_INSTANCE = "zernel.gpu.mig.gpu_instance"
PROCESS_TYPE = "zernel.gpu.process.type"
PID = "process.pid"
EXECUTABLE = "process.executable.name"
PID_NAMESPACE = "zernel.process.pid_namespace"
COMPUTE_MODE = "zernel.gpu.compute_mode"
REPAIR = "zernel.gpu.repair.unit"
QUERY = "zernel.nvml.query"
DETAILS = (
    *("hw.vendor", "hw.serial_number", "hw.firmware_version", "hw.driver_version", "zernel.gpu.device"),
    *("zernel.gpu.pci.bus_id", "zernel.gpu.board_part_number", "zernel.gpu.architecture", "zernel.gpu.numa_node"),
    *("zernel.gpu.cuda_version", "zernel.gpu.mig.profile", "zernel.gpu.mig.gpu_instance"),
    "zernel.gpu.mig.compute_instance",
)
"""The attributes of the resource that only one metric repeats."""
