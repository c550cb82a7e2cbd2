/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What could not be counted, and why. User space reads the counters by mmap. */
#pragma once

enum loss {
	NO_PROCESS_ROW,	 /* the process table is full */
	NO_SERIES_SLOT,	 /* the series table is full */
	NO_START,	 /* a return whose call began before the probe was there */
	TOO_DEEP,	 /* more probed calls inside each other than a thread has frames */
	NO_THREAD,	 /* no memory for a thread's state */
	NO_ALLOCATION,	 /* too many allocations to remember their sizes */
	NO_COMMUNICATOR, /* too many communicators to remember */
	TOO_MANY_COLLECTIVES, /* more in one group than a process has room for */
	NO_ERROR_CODE,	 /* too many kinds of errors to tell apart */
	NO_CONTEXT,	 /* too many CUDA contexts to remember their devices */
	NO_SCOPE,	 /* no memory for a thread's scopes, or a scope in memory that is not there */
	LOSSES = 16,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOSSES);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

/* Functions that are not static are verified once, whoever calls them. They take what they are given for maybe null. */
__noinline int lose(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &reason);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
