"""Encodes rows as OTLP."""
