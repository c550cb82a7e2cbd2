/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Workers: processes that serve a training process and do not train, such as those of a DataLoader.
 *
 * A worker has no row. Its CPU time, its waits and its reads are added up in the row of the process that it serves. Its calls
 * are not counted.
 *
 * A process is a worker if a process that trains, or another worker, has forked it. User space adds those that were started
 * otherwise. A worker that calls CUDA or NCCL, or makes a backward pass, is no worker any more. */
#pragma once

#define PF_FORKNOEXEC 0x40 /* linux/sched.h: it was forked, and has not executed another program */

struct worker {
	__u32 row; /* of the process that it serves */
	__u32 generation;
	__u32 pid; /* in the collector's pid namespace */
	__u32 reserved;
};

/* Puts the type into the object, for a test that compares it with the type in Python. */
const struct worker worker_type SEC("types") = {};

/* By tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct worker);
} workers SEC(".maps");

/* Finds the process that a worker of the current task's parent would serve. Returns 0 on success. */
static __always_inline int find_served(struct worker *worker)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 parent = task->real_parent->tgid, *row;
	struct process *process;
	struct worker *sibling;

	if (!(task->group_leader->flags & PF_FORKNOEXEC))
		return -1;
	sibling = bpf_map_lookup_elem(&workers, &parent);
	if (sibling) {
		worker->row = sibling->row;
		worker->generation = sibling->generation;
		return 0;
	}
	row = bpf_map_lookup_elem(&row_of_tgid, &parent);
	process = row ? process_in(*row) : 0;
	if (!process || process->state != LIVE || !process->trains)
		return -1;
	worker->row = *row;
	worker->generation = process->generation;
	return 0;
}

/* Makes the thread one of a worker, if its process is a worker. Returns whether it is. */
static __always_inline int join_workers(struct thread *thread, __u32 tgid, __u32 pid)
{
	struct worker *known = bpf_map_lookup_elem(&workers, &tgid), worker = { .pid = pid };

	if (known) {
		worker.row = known->row;
		worker.generation = known->generation;
	} else {
		if (find_served(&worker))
			return 0;
		if (bpf_map_update_elem(&workers, &tgid, &worker, BPF_ANY))
			lose(NO_PROCESS_ROW);
	}
	thread->row = worker.row;
	thread->generation = worker.generation;
	thread->is_worker = 1;
	thread->depth = 0;
	return 1;
}

/* The process that a worker serves; null if that has ended. */
static __always_inline struct process *process_served_by(const struct worker *worker)
{
	struct process *process = worker ? process_in(worker->row) : 0;

	return process && process->generation == worker->generation && process->state == LIVE ? process : 0;
}
