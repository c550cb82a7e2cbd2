"""The resource of a GPU, alike for every layout that knows GPUs."""

from otel_zernel.otlp.points import AttributeValue


def gpu_resource(*, uuid: str, index: str, model: str, hostname: str, device: str = "") -> dict[str, AttributeValue]:
    """Attributes that identify one GPU, after the semantic conventions for hardware; empty ones left out.

    Where the uuid is unknown, `hw.id` is the index, which is unique on its host only.
    """
    attributes: dict[str, AttributeValue] = {
        "service.instance.id": hostname,
        "host.name": hostname,
        "hw.type": "gpu",
        "hw.vendor": "NVIDIA",
        "hw.id": uuid or index,
        "hw.model": model,
        "zernel.gpu.index": int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else index,
        "zernel.gpu.device": device,
    }
    return {name: value for name, value in attributes.items() if value != ""}
