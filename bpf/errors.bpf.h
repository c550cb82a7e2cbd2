/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts failed calls by library and error code. Failures are rare, so a hash map is fast enough. */
#pragma once

struct error {
	__u32 row; /* of the process */
	__u32 generation;
	__u32 flags; /* the library: IS_RUNTIME, IS_DRIVER or IS_NCCL */
	__u32 code;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct error);
	__type(value, __u64);
} errors SEC(".maps");

__noinline int count_error(__u32 row, __u32 generation, __u32 flags, __u32 code)
{
	struct error error = { .row = row, .generation = generation, .flags = flags, .code = code };
	__u64 *count = bpf_map_lookup_elem(&errors, &error), zero = 0;

	if (!count) {
		bpf_map_update_elem(&errors, &error, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&errors, &error);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		lose(NO_ERROR_CODE);
	return 0;
}
