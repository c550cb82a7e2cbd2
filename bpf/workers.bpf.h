/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Workers: processes that serve a training process and do not train, such as those of a DataLoader.
 *
 * A worker has no row. Its CPU time, its waits and its reads are added up in the row of the process that it serves. Its calls
 * are not counted.
 *
 * A child of a process that trains may be anything: a server, a logger, an environment. PyTorch names its workers
 * pt_data_worker (since 2.6; user space finds those of older ones by their shared memory). A worker that calls CUDA or NCCL,
 * or makes a backward pass, is no worker any more. */
#pragma once

#define GENERATIONS 4 /* the worker of a forkserver is the grandchild of its training process */

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

static __always_inline int is_named_worker(struct task_struct *task)
{
	const __u64 *name = (const __u64 *)task->group_leader->comm;

	return name[0] == 0x5f617461645f7470ULL /* "pt_data_" */ && (name[1] & 0xffffffffffffULL) == 0x72656b726f77ULL /* "worker" */;
}

/* Finds the process that the current task's process would serve as a worker. Returns 0 on success. */
static __always_inline int find_served(struct worker *worker)
{
	struct task_struct *task = bpf_get_current_task_btf();

	for (int i = 0; i < GENERATIONS; i++) {
		struct process *process;
		__u32 tgid, *row;

		task = task->real_parent;
		tgid = task->tgid;
		row = bpf_map_lookup_elem(&row_of_tgid, &tgid);
		process = row ? process_in(*row) : 0;
		if (process && process->state == LIVE && process->trains) {
			worker->row = *row;
			worker->generation = process->generation;
			return 0;
		}
	}
	return -1;
}

/* The worker that the current task's process is; null if it is none. */
static __always_inline struct worker *current_worker(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	struct worker *known = bpf_map_lookup_elem(&workers, &tgid), worker = {};
	struct bpf_pidns_info ids;

	if (known || !is_named_worker(task) || current_ids(&ids) || find_served(&worker))
		return known;
	worker.pid = ids.tgid;
	if (bpf_map_update_elem(&workers, &tgid, &worker, BPF_ANY))
		lose(NO_PROCESS_ROW);
	return bpf_map_lookup_elem(&workers, &tgid);
}

/* Makes the thread one of a worker, if its process is a worker. Returns whether it is. */
static __always_inline int join_workers(struct thread *thread)
{
	struct worker *worker = current_worker();

	if (!worker)
		return 0;
	thread->row = worker->row;
	thread->generation = worker->generation;
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
