/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The counter of an HDR histogram for a value. The layout is HdrHistogram's with unit magnitude 0, for 1 ns to 1 h. */
#pragma once

#define HDR_HIGHEST 3600000000000ULL

/* floor(log2 v) for v > 0. __builtin_clzll makes the BPF backend of clang 14 use all memory of the machine. */
static __always_inline __u32 log2_of(__u64 v)
{
	__u32 result = 0, shift;

	shift = (v > 0xffffffff) << 5; v >>= shift; result |= shift;
	shift = (v > 0xffff) << 4; v >>= shift; result |= shift;
	shift = (v > 0xff) << 3; v >>= shift; result |= shift;
	shift = (v > 0xf) << 2; v >>= shift; result |= shift;
	shift = (v > 0x3) << 1; v >>= shift; result |= shift;
	return result | (__u32)(v >> 1);
}

static __always_inline __u32 hdr_index(__u64 v)
{
	__u32 magnitude = settings.hdr_magnitude, bucket;

	if (v > HDR_HIGHEST)
		v = HDR_HIGHEST;
	bucket = log2_of(v | ((2ULL << magnitude) - 1)) - magnitude;
	return (bucket << magnitude) + (__u32)(v >> bucket);
}
