"""Stores metrics and spans in SQLite or PostgreSQL."""

from otel_zernel_exporters.sql.exporter import SqlExporter as SqlExporter
