/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Marks of a thread, and the snapshots of its counters at them. */
#pragma once

/* Not static: see `lose`. The thread may have lost the CPU since `now`; then it had the state of the snapshot from later on. */
__noinline int take_snapshot(struct thread *thread, struct snapshot *snapshot, __u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_times *times;
	struct process *process;
	__u32 known = 0;

	if (!thread || !snapshot)
		return 0;
	times = claimed_times(thread);
	process = process_in(thread->row);
	settle_shared_fault(thread, task);
	settle_time(thread, THREAD_FAULTING, THREAD_FAULT); /* no change of a counter has followed */
	settle_time(thread, THREAD_POLLING, THREAD_UNKNOWN);
	thread->is_changing_state = 1;
	barrier();
	if (times) {
		__u32 state = times->state;

		if (now < times->since)
			now = times->since;

		__builtin_memcpy(snapshot->times, times->times, sizeof(snapshot->times));
		snapshot->times[THREAD_ON_CPU] += *time_in(times, THREAD_CALLING) + *time_in(times, THREAD_LAUNCHING);
		snapshot->times[THREAD_GPU_WAIT] += *time_in(times, THREAD_SETTLING);
		state = state == THREAD_SETTLING ? THREAD_GPU_WAIT : state >= STATES ? THREAD_ON_CPU : state;
		snapshot->times[state & (STATES - 1)] += now - times->since;
		known = settings.counts_off_cpu ? KNOWS_TIMES : 0;
	}
	barrier();
	thread->is_changing_state = 0;
	snapshot->time = now;
	if (process && !thread->is_worker)
		process->marked = now;
	snapshot->last_operator = thread->last_operator;
	snapshot->first_launch = thread->first_launch;
	snapshot->last_launch = thread->last_launch;
	snapshot->copied = thread->copied;
	snapshot->operators = thread->operators;
	snapshot->launches = thread->launches;
	snapshot->copies = thread->copies;
	snapshot->collectives = process ? collectives_of(process) : 0;
	snapshot->file_faults = thread->file_faults;
	snapshot->minor_faults = task->min_flt;
	snapshot->major_faults = task->maj_flt;
	thread->major_faults = task->maj_flt;
	__builtin_memcpy(snapshot->samples, thread->samples, sizeof(snapshot->samples));
	__builtin_memcpy(snapshot->frame_times, thread->frame_times, sizeof(snapshot->frame_times));
	snapshot->read = 0;
	if (knows_bytes_read(task)) {
		snapshot->read = task->ioac.rchar + thread->received - thread->read_of_kernel;
		known |= KNOWS_READ;
	}
	snapshot->written = thread->sent;
	if (knows_bytes_read(task))
		snapshot->written += task->ioac.wchar;
	snapshot->writing = thread->writing;
	snapshot->forks = thread->forks;
	snapshot->hits = thread->hits;
	snapshot->giving = thread->giving;
	__builtin_memcpy(snapshot->before_backward, thread->before_backward, sizeof(snapshot->before_backward));
	snapshot->after_backward = thread->after_backward;
	snapshot->sampled_before = thread->sampled_before;
	snapshot->sampled_after = thread->sampled_after;
	snapshot->backward_blocked = thread->backward.blocked;
	snapshot->backward_first_launch = thread->backward.first;
	snapshot->backward_last_launch = thread->backward.last;
	snapshot->backward_launches = thread->backward.count;
	snapshot->known = known | (knows_file_faults(task) ? KNOWS_FILE_FAULTS : 0);
	return 0;
}

/* Takes a snapshot that goes into an event. The next one has the first launch after it. */
static __always_inline void take_boundary(struct thread *thread, struct snapshot *snapshot, __u64 now)
{
	take_snapshot(thread, snapshot, now);
	thread->first_launch = 0;
	thread->first_launch_after_mark = 0;
	thread->first_launch_after_begin = 0;
}

/* Takes a snapshot that goes into an event only if that lasts, or is a run. */
static __always_inline void take_begin(struct thread *thread, struct snapshot *snapshot, __u64 now)
{
	take_snapshot(thread, snapshot, now);
	thread->first_launch_after_begin = 0;
}

/* The latest snapshot of `take_begin` goes into an event. */
static __always_inline void keep_begin(struct thread *thread)
{
	thread->first_launch = thread->first_launch_after_begin;
}

/* The end of an event that began with `take_begin`. */
static __always_inline void take_end(struct thread *thread, struct snapshot *snapshot, __u64 now)
{
	keep_begin(thread);
	take_boundary(thread, snapshot, now);
}

static __always_inline void note_launch_in_backward(const struct thread *thread, __u64 begin)
{
	struct process *process = process_in_backward(thread);

	if (!process)
		return;
	__sync_fetch_and_add(&process->backward.count, 1);
	process->backward.last = begin;
	if (!process->backward.first)
		process->backward.first = begin;
}

static __always_inline void note_launch(struct thread *thread, __u64 begin)
{
	note_launch_in_backward(thread, begin);
	thread->launches++;
	thread->last_launch = begin;
	if (!thread->first_launch)
		thread->first_launch = begin;
	if (!thread->first_launch_after_mark)
		thread->first_launch_after_mark = begin;
	if (!thread->first_launch_after_begin)
		thread->first_launch_after_begin = begin;
}

/* The thread is in an interval of this kind, or after it. */
static __always_inline void note_place(struct thread *thread, __u32 interval, int is_over)
{
	thread->place = (interval + 1) * 2 + is_over;
}

/* `thread->mark` is the snapshot of a new mark. */
static __always_inline void note_mark(struct thread *thread)
{
	thread->active = thread->mark.time;
	thread->active_cpu_wait = thread->off_cpu - thread->blocked;
	thread->marked_blocked = thread->blocked;
	if (thread->work_wait_since) { /* an exception ended the wait */
		thread->work_wait_since = 0;
		set_thread_state(thread, running_state(thread), thread->mark.time);
	}
}

/* The entry of an operator, or the end of a no-grad region: the end of a run, if none follows. */
static __always_inline void note_end_of_run(struct thread *thread, __u64 now)
{
	take_snapshot(thread, &thread->mark, now);
	thread->first_launch_after_mark = 0;
	note_mark(thread);
}

/* The host has got a result of the GPU or of other ranks: the thread's latest operators are over. The time blocked in that wait
 * is no part of the gap. `blocked` is the thread's at the beginning of the wait. */
static __always_inline void note_result(struct thread *thread, __u64 now, __u64 blocked)
{
	thread->run.has_result = 1;
	thread->active = now;
	thread->active_cpu_wait = thread->off_cpu - thread->blocked;
	thread->marked_blocked += thread->blocked - blocked;
}
