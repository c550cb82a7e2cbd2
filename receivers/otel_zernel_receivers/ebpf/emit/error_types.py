"""The values of `error.type` for the error codes of CUDA and NCCL."""

from otel_zernel_receivers.ebpf.probes.calls import Flag

# As in driver_types.h and cuda.h.
_CUDA = {
    1: "invalid_value",
    2: "out_of_memory",
    98: "invalid_device_function",
    100: "no_device",
    101: "invalid_device",
    209: "no_binary_for_gpu",
    400: "invalid_handle",
    600: "not_ready",
    700: "illegal_address",
    701: "launch_out_of_resources",
    702: "launch_timeout",
    710: "assert",
    715: "illegal_instruction",
    719: "launch_failure",
    999: "unknown",
}
# As in nccl.h.
_NCCL = {
    1: "unhandled_cuda_error",
    2: "system_error",
    3: "internal_error",
    4: "invalid_argument",
    5: "invalid_usage",
    6: "remote_error",
}


def error_type(code: int, flags: int) -> str:
    """The name of an error code, or its number if it has no name here. `flags` are those of the probe."""
    return (_NCCL if flags & Flag.NCCL else _CUDA).get(code, str(code))
