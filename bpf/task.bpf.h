/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of the kernel's tasks that are read here. libbpf takes their offsets from the running kernel's BTF. */
#pragma once

struct task_struct {
	__u64 start_time; /* CLOCK_MONOTONIC, ns */
	int exit_code;	  /* as wait(2) gives it */
	unsigned int __state;
} __attribute__((preserve_access_index));
