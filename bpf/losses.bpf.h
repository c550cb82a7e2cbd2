/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts what could not be recorded, by reason. User space maps the counters. */
#pragma once

enum loss {
	NO_PROCESS_ROW,	 /* the process table is full */
	NO_SERIES_SLOT,	 /* the series table is full */
	NO_START,	 /* a return whose call began before the probe was attached */
	TOO_DEEP,	 /* more nested probed calls than a thread has frames */
	NO_THREAD,	 /* no memory for a thread's state */
	NO_ALLOCATION,	 /* the table of allocations is full */
	NO_COMMUNICATOR, /* the table of communicators is full */
	TOO_MANY_COLLECTIVES, /* more collectives in one group than a process has room for */
	NO_ERROR_CODE,	 /* the table of errors is full */
	NO_CONTEXT,	 /* the table of CUDA contexts is full */
	NO_SCOPE,	 /* no memory for a thread's scopes, or the scope's own memory could not be read */
	NO_THREAD_TIMES, /* the table of threads' times is full */
	NO_SAMPLE,	 /* the table of samples is full */
	LOSSES = 16,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOSSES);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

/* Not static: the verifier checks global functions once, not at each call, and assumes that pointer arguments may be null. */
__noinline int lose(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &reason);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
