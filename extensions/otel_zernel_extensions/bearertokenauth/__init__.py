"""Checks and sends bearer tokens."""

from otel_zernel_extensions.bearertokenauth.extension import BearerTokenAuthExtension as BearerTokenAuthExtension
