/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of the kernel's tasks that are read here. libbpf takes their offsets from the running kernel's BTF. */
#pragma once

struct task_io_accounting {
	__u64 rchar; /* bytes that read(2) and the like returned */
} __attribute__((preserve_access_index));

struct task_struct {
	__u64 start_time; /* CLOCK_MONOTONIC, ns */
	int exit_code;	  /* as wait(2) gives it */
	unsigned int __state;
	unsigned long min_flt; /* page faults without and with I/O */
	unsigned long maj_flt;
	struct task_io_accounting ioac;
} __attribute__((preserve_access_index));

#define UNKNOWN_BYTES (~0ULL)
#define FIELD_EXISTS 2 /* BPF_FIELD_EXISTS of bpf_core_read.h */

static __always_inline __u64 page_faults_of(struct task_struct *task)
{
	return task->min_flt + task->maj_flt;
}

/* A kernel without CONFIG_TASK_XACCT does not count the bytes. */
static __always_inline __u64 bytes_read_by(struct task_struct *task)
{
	return __builtin_preserve_field_info(task->ioac.rchar, FIELD_EXISTS) ? task->ioac.rchar : UNKNOWN_BYTES;
}
