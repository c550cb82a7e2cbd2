"""Serves the routes of other components over HTTP, for people and programs."""

from otel_zernel_extensions.api.extension import ApiExtension as ApiExtension
