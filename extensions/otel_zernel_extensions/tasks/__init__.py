"""Runs commands as tasks, and keeps their states."""

from otel_zernel_extensions.tasks.extension import TasksExtension as TasksExtension
