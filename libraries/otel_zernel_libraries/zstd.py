"""Zstandard: `compression.zstd`, which Python has from 3.14 on, or its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError, compress
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError, compress

__all__ = ["ZstdDecompressor", "ZstdError", "compress", "decompressor"]


def decompressor(window_log: int) -> ZstdDecompressor:
    """A decompressor of one frame, which refuses windows of more than `2**window_log` bytes."""
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: window_log})
