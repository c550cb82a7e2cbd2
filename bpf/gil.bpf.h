/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The lock of each process's Python interpreter, the GIL. A thread that waits for it is in futex(2), at an address inside it. */
#pragma once

struct gil {
	__u64 begin; /* its first address */
	__u64 end;
};

/* By tgid. User space adds the processes whose Python it can read. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gil);
} gils SEC(".maps");

/* Whether a futex of the process is its GIL. */
static __always_inline int is_gil(__u32 tgid, __u64 futex_address)
{
	struct gil *gil = bpf_map_lookup_elem(&gils, &tgid);

	return gil && futex_address >= gil->begin && futex_address < gil->end;
}
