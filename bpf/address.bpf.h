/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Keys for objects that a process identifies by an address: allocations, communicators and contexts. */
#pragma once

struct address {
	__u64 value;
	__u32 row;
	__u32 generation;
	__u64 is_handle;
};

static __always_inline struct address address_at(const struct thread *thread, __u64 value)
{
	struct address address = { .value = value, .row = thread->row, .generation = thread->generation };

	return address;
}
