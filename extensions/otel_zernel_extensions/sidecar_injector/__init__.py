"""Adds a sidecar to new pods of Kubernetes: a mutating admission webhook."""

from otel_zernel_extensions.sidecar_injector.extension import SidecarInjectorExtension as SidecarInjectorExtension
