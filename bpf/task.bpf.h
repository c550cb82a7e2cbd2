/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of the kernel's tasks that are read here. libbpf takes their offsets from the running kernel's BTF. */
#pragma once

struct task_io_accounting {
	__u64 rchar; /* bytes that read(2) and the like returned */
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime; /* ns */
} __attribute__((preserve_access_index));

struct signal_struct {
	unsigned long long sum_sched_runtime; /* of the process's threads that have ended, ns */
} __attribute__((preserve_access_index));

struct task_struct {
	__u64 start_time; /* CLOCK_MONOTONIC, ns */
	struct sched_entity se;
	struct signal_struct *signal;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	int tgid; /* in the initial pid namespace */
	unsigned int flags;
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
