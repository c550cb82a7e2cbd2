"""Exporters of metrics, spans, log records and profiles over OTLP, by gRPC or HTTP."""

from otel_zernel_exporters.otlp.grpc_exporter import OtlpGrpcExporter as OtlpGrpcExporter
from otel_zernel_exporters.otlp.http_exporter import OtlpHttpExporter as OtlpHttpExporter
