/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Where an HDR histogram counts a value: the layout of HdrHistogram with unit magnitude 0, from 1 ns to 1 h. */
#pragma once

#define HDR_HIGHEST 3600000000000ULL

/* floor(log2 v) for v > 0. clang 14's BPF backend takes all memory there is for __builtin_clzll. */
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
