"""Entries for servers without native histograms: the same histograms in classic buckets."""

from collections.abc import Iterable

from otel_zernel_exporters.prometheusremotewrite.protocol.histograms import CUSTOM_BUCKETS, write_native_as_classic
from otel_zernel_exporters.prometheusremotewrite.protocol.series import Entry, Writes


def with_classic_histograms(entries: Iterable[Entry], *, custom_only: bool) -> list[Entry]:
    """The entries with classic buckets in place of native histograms.

    If `custom_only`, only in place of those with custom buckets, which protocol 1.0 does not have.
    """
    writes = Writes(0)
    for series, samples in entries:
        for sample in samples:
            value = sample[1]
            is_kept = isinstance(value, float) or (custom_only and value.schema != CUSTOM_BUCKETS)
            if is_kept:
                writes.samples.setdefault(series, []).append(sample)
            else:
                write_native_as_classic(series, writes, sample)
    writes.put_in_order()
    return list(writes.samples.items())
