/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of the kernel's tasks that are read here. libbpf takes their offsets from the running kernel's BTF. */
#pragma once

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
} __attribute__((preserve_access_index));
