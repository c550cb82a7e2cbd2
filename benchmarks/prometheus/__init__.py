"""Prometheus: the page, scrapes, and remote write."""
