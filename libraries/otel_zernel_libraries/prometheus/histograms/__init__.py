"""The buckets of histograms on a page: exponential ones, and classic ones whose bounds never move."""

from otel_zernel_libraries.prometheus.histograms.bounds import Bounds, ascending, bound_text, bounds_of
from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets
from otel_zernel_libraries.prometheus.histograms.grids import BucketLayout, default_bounds, fixed_bounds
from otel_zernel_libraries.prometheus.histograms.native import NativeBuckets, native_buckets
from otel_zernel_libraries.prometheus.histograms.steady import SteadyTotals

__all__ = [
    "Bounds",
    "BucketLayout",
    "ExponentialBuckets",
    "NativeBuckets",
    "SteadyTotals",
    "ascending",
    "bound_text",
    "bounds_of",
    "default_bounds",
    "fixed_bounds",
    "native_buckets",
]
