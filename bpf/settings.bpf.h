/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space decides before loading. Constants to the verifier, so a choice costs nothing at run time. */
#pragma once

struct settings {
	/* The collector's pid namespace, as stat(2) of /proc/self/ns/pid gives it. */
	__u64 pid_namespace_device;
	__u64 pid_namespace_inode;
	/* log2 of a histogram's counters per power of two: 7 for two significant digits, 10 for three. */
	__u32 hdr_magnitude;
	/* Counters of one histogram: 4608 or 33792. */
	__u32 hdr_length;
	/* Waits from which on each is an event, ns. */
	__u64 long_wait;
};

/* The only constant in .rodata: user space writes the section as a whole. */
const volatile struct settings settings = {};
