"""Receives metrics, spans, log records and profiles over OTLP, by gRPC and HTTP."""

from otel_zernel_receivers.otlp.receiver import OtlpReceiver as OtlpReceiver
