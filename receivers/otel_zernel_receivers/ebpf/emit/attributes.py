"""The attributes of points, encoded. Most are those of an earlier point."""

from functools import lru_cache

from otel_zernel.otlp.points import NUMBER_ATTRIBUTES, encode_attributes
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.emit.ends import ProcessEnd
from otel_zernel_receivers.ebpf.emit.families import OPERATION_FAMILIES
from otel_zernel_receivers.ebpf.probes.calls import Phase


@lru_cache(maxsize=1024)  # by default there are 512 series, and some have a size too
def of_series(pid: int, operation: int, phase: int, is_sample: bool, field: int) -> bytes:
    attributes: dict[str, str | int] = {
        "process.pid": pid,
        **OPERATION_FAMILIES[operation].attributes,
        semconv.PHASE: Phase(phase).name.lower(),
    }
    if is_sample:
        attributes[semconv.SAMPLED] = True
    return encode_attributes(attributes, field)


@lru_cache(maxsize=512)
def of_process(pid: int) -> bytes:
    return encode_attributes({"process.pid": pid}, NUMBER_ATTRIBUTES)


@lru_cache(maxsize=512)
def of_phase(pid: int, phase: int) -> bytes:
    return encode_attributes({"process.pid": pid, semconv.PHASE: Phase(phase).name.lower()}, NUMBER_ATTRIBUTES)


@lru_cache(maxsize=1024)
def of_thread_state(pid: int, state: str, is_sample: bool) -> bytes:
    attributes: dict[str, str | int] = {"process.pid": pid, semconv.THREAD_STATE: state}
    if is_sample:
        attributes[semconv.SAMPLED] = True
    return encode_attributes(attributes, NUMBER_ATTRIBUTES)


@lru_cache(maxsize=512)
def of_device(pid: int, device: int | None) -> bytes:
    index = "unknown" if device is None else device
    return encode_attributes({"process.pid": pid, semconv.GPU_INDEX: index}, NUMBER_ATTRIBUTES)


def of_end(end: ProcessEnd) -> tuple[str, bool, bytes]:
    """The service, whether it was a worker, and the attributes of its point."""
    attributes = encode_attributes({**end.origin, **end.reason}, NUMBER_ATTRIBUTES)
    return end.service, end.is_worker, attributes
