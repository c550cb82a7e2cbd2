/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Settings that user space writes before loading. The verifier treats them as constants, so they cost nothing at run time. */
#pragma once

struct settings {
	/* The collector's pid namespace: device and inode from stat(2) of /proc/self/ns/pid. */
	__u64 pid_namespace_device;
	__u64 pid_namespace_inode;
	/* log2 of the number of counters per power of two: 7 for two significant digits, 10 for three. */
	__u32 hdr_magnitude;
	/* The number of counters of one histogram: 4608 or 33792. */
	__u32 hdr_length;
	/* The shortest wait for which an event is emitted, ns. */
	__u64 long_wait;
	/* 1 if the program pages_mapped is loaded. */
	__u64 counts_file_faults;
	/* 1 if a program on sched_switch is loaded. */
	__u64 counts_off_cpu;
	/* 1 if the machine has swap. */
	__u64 has_swap;
	/* The time that a thread waits before its stack is collected, ns. */
	__u64 shortest_wait;
};

/* The only constant in .rodata, since user space writes the whole section. */
const volatile struct settings settings = {};
