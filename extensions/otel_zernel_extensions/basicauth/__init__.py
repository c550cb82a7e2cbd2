"""Checks and sends user names and passwords."""

from otel_zernel_extensions.basicauth.extension import BasicAuthExtension as BasicAuthExtension
