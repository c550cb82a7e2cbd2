/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What we read of the kernel's own tasks. libbpf finds the fields' places in the running kernel's BTF. */
#pragma once

struct signal_struct {
	struct {
		int counter;
	} live; /* threads of the process that have not ended */
} __attribute__((preserve_access_index));

struct task_struct {
	__u64 start_time; /* CLOCK_MONOTONIC, ns */
	int exit_code;	  /* as wait(2) tells it */
	struct signal_struct *signal;
} __attribute__((preserve_access_index));
