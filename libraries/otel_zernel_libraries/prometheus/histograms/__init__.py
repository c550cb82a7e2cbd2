"""The buckets of histograms on a page: exponential ones, and classic ones whose bounds never move."""

from otel_zernel_libraries.prometheus.histograms.bounds import Bounds as Bounds
from otel_zernel_libraries.prometheus.histograms.bounds import SteadyTotals as SteadyTotals
from otel_zernel_libraries.prometheus.histograms.bounds import ascending as ascending
from otel_zernel_libraries.prometheus.histograms.bounds import bound_text as bound_text
from otel_zernel_libraries.prometheus.histograms.bounds import bounds_of as bounds_of
from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets as ExponentialBuckets
from otel_zernel_libraries.prometheus.histograms.grids import BucketLayout as BucketLayout
from otel_zernel_libraries.prometheus.histograms.grids import default_bounds as default_bounds
from otel_zernel_libraries.prometheus.histograms.grids import fixed_bounds as fixed_bounds
from otel_zernel_libraries.prometheus.histograms.native import NativeBuckets as NativeBuckets
from otel_zernel_libraries.prometheus.histograms.native import native_buckets as native_buckets
