"""The resources of a batch, whatever its signals."""

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch.batch import Batch
from otel_zernel.batch.signals import Signal
from otel_zernel.batch.thin import LEVELS


def holders_of(batch: Batch, signal: Signal) -> Sequence[Any]:
    """The messages that have a resource each, such as `ResourceSpans`. Read-only."""
    holders: Sequence[Any] = getattr(batch.message(signal), LEVELS[signal][0])
    return holders


def editable_holders_of(batch: Batch, signal: Signal) -> Any:
    """The same, to change in place."""
    return getattr(batch.edit(signal), LEVELS[signal][0])


def change_resources(batch: Batch, signal: Signal, change: Callable[[bytes], Resource | None]) -> None:
    """Replaces resources. `change` gets the encoding of each, and returns None if it stays."""
    outcomes = [change(holder.resource.SerializeToString()) for holder in holders_of(batch, signal)]
    for index, resource in enumerate(outcomes):
        if resource is not None:
            editable_holders_of(batch, signal)[index].resource.CopyFrom(resource)
