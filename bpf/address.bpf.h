/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Things that a process names by an address: allocations, communicators. */
#pragma once

struct address {
	__u64 value;
	__u32 row;
	__u32 generation;
	__u64 is_handle;
};
