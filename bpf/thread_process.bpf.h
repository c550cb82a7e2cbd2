/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The process of a thread: finds its row in the process table, or claims one, unless the process is a worker. */
#pragma once

/* Looks up the row of the thread's process, or claims one. Returns 0 on success. */
__noinline int find_row(struct thread *thread)
{
	struct bpf_pidns_info ids;
	struct process *process;
	__u32 tgid = current_tgid(), row, *found;

	if (!thread)
		return -1;
	if (current_ids(&ids)) {
		thread->foreign = 1; /* forever: a task never changes its own pid namespace */
		return -1;
	}
	found = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	if (!found && !thread->trains && join_workers(thread)) {
		thread->tid = ids.pid;
		return -1;
	}
	thread->is_worker = 0;
	if (found) {
		row = *found;
	} else if (claim_row(tgid, ids.tgid, &row)) {
		found = bpf_map_lookup_elem(&row_of_tgid, &tgid);
		if (!found) {
			lose(NO_PROCESS_ROW);
			return -1;
		}
		row = *found;
	}
	process = process_in(row);
	if (!process)
		return -1;
	if (!thread->generation)
		thread->devices = first_device();
	thread->row = row;
	thread->generation = process->generation;
	thread->tid = ids.pid;
	thread->is_autograd = is_named_autograd();
	return 0;
}

static __always_inline int is_current(const struct process *process, const struct thread *thread)
{
	return process && process->generation == thread->generation &&
	       (process->state == LIVE || process->state == IGNORED);
}

/* Whether the thread's process is still a worker: another thread of it may have begun to train. */
static __always_inline int is_still_worker(const struct thread *thread)
{
	__u32 tgid = current_tgid();

	return thread->is_worker && !bpf_map_lookup_elem(&row_of_tgid, &tgid);
}

/* The thread's process; null if it is not counted. */
static __always_inline struct process *process_of(struct thread *thread)
{
	struct process *process = process_in(thread->row);

	if (is_still_worker(thread))
		return 0;
	if (thread->is_worker || !is_current(process, thread)) {
		if (thread->foreign || find_row(thread))
			return 0;
		process = process_in(thread->row);
	}
	return process && process->state == LIVE ? process : 0;
}
