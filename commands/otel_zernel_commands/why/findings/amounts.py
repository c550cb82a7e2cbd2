"""Numbers as text, with units."""

from otel_zernel_libraries.training.amounts import amount, percent

__all__ = ["amount", "percent"]
