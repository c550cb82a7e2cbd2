"""The resource of a GPU, which is the same in all GPU layouts."""

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv


def gpu_resource(*, uuid: str, index: str, model: str, hostname: str, device: str = "") -> dict[str, AttributeValue]:
    """The attributes that identify one GPU, after the semantic conventions for hardware, without empty ones.

    If the uuid is unknown, `hw.id` is the index, which is unique only on its host.
    """
    attributes: dict[str, AttributeValue] = {
        "host.name": hostname,
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": uuid or index,
        "hw.model": model,
        semconv.GPU_INDEX: int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else index,
        semconv.GPU_DEVICE: device,
    }
    return {name: value for name, value in attributes.items() if value != ""}
