"""Receives metrics, spans and log records over OTLP, by gRPC and HTTP."""

from otel_zernel_receivers.otlp.receiver import OtlpReceiver

__all__ = ["OtlpReceiver"]
