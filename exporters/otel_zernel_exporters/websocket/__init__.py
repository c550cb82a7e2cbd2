"""Pushes memory and latencies of a training to dashboards over WebSocket."""

from otel_zernel_exporters.websocket.exporter import WebSocketExporter as WebSocketExporter
