"""Runs tasks as processes of this machine."""

from otel_zernel_extensions.tasks.engines.local.engine import LocalEngine as LocalEngine
