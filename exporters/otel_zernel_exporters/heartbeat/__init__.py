"""Sends heartbeats of this worker to the master of a cluster."""

from otel_zernel_exporters.heartbeat.exporter import HeartbeatExporter as HeartbeatExporter
