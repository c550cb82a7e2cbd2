"""Exemplars: their values, and copies that a series may keep."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar


def exemplar_value(exemplar: Exemplar) -> float:
    """An exemplar's value, from whichever of its two fields is set."""
    return exemplar.as_double or exemplar.as_int


def copied(exemplar: Exemplar) -> Exemplar:
    """A copy. The original would keep its whole batch in memory."""
    copy = Exemplar()
    copy.CopyFrom(exemplar)
    return copy
