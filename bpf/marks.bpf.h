/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Marks of a thread, and the gap between a mark and the next run of operators. */
#pragma once

/* The next gap begins here. */
static __always_inline void note_mark(struct thread *thread, __u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();

	thread->active = now;
	thread->mark.time = now;
	thread->mark.blocked = thread->blocked;
	thread->mark.copies = thread->copies;
	thread->mark.faults = page_faults_of(thread, task);
	thread->mark.read = bytes_read_by(task);
}

static __always_inline void measure_gap(struct thread *thread)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mark *gap = &thread->run.gap, *mark = &thread->mark;
	__u64 read = bytes_read_by(task);

	gap->time = mark->time;
	gap->blocked = thread->blocked - mark->blocked;
	gap->copies = thread->copies - mark->copies;
	gap->faults = page_faults_of(thread, task) - mark->faults;
	gap->read = read == UNKNOWN_BYTES ? read : read - mark->read;
}

/* The time between a run's last operator and the pass or scope that ends it, in fields that runs do not need otherwise. */
static __always_inline void measure_tail(struct thread *thread, struct event *event)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mark *mark = &thread->mark;
	__u64 read = bytes_read_by(task);

	event->bytes = thread->blocked - mark->blocked;
	event->communicator = read == UNKNOWN_BYTES ? 0 : read - mark->read;
	event->communicator_size = page_faults_of(thread, task) - mark->faults;
}

/* The host has got a result of the GPU or of other ranks: the thread's latest operators are over. The time blocked in that wait
 * is no part of the gap. `blocked` is the thread's at the beginning of the wait. */
static __always_inline void note_result(struct thread *thread, __u64 now, __u64 blocked)
{
	thread->run.has_result = 1;
	thread->active = now;
	thread->mark.blocked += thread->blocked - blocked;
}
