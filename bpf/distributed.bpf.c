// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Waits of PyTorch's distributed package for other ranks.
 *
 * These functions throw what a collective failed of, so no probe may be on their returns (see torch.bpf.c). Ends are told
 * by what follows when all went well. */

#define LONGEST_FUNCTION 4096 /* bytes */

/* c10d::Work::wait */
static __always_inline void begin_work_wait(struct hit *hit)
{
	if (!process_of(hit->thread))
		return;
	hit->thread->work_wait_since = bpf_ktime_get_ns();
	hit->thread->work_wait_code = instruction(hit->regs);
	hit->thread->work_wait_flags = hit->flags;
}

/* What c10d::Work::wait calls last. Others call it too, but do not return into c10d::Work::wait; so a wait that ended in
 * an exception is never taken for one that goes on. */
static __always_inline void end_work_wait(struct hit *hit)
{
	struct thread *thread = hit->thread;
	struct process *process = process_of(thread);
	__u64 begin = thread->work_wait_since, now = bpf_ktime_get_ns();
	struct event *event;

	if (!process || !begin || return_address(hit->regs) - thread->work_wait_code >= LONGEST_FUNCTION)
		return;
	thread->work_wait_since = 0;
	if (now - begin < settings.long_wait)
		return;
	event = new_event(thread, INTERVAL_SYNC, begin, now);
	if (!event)
		return;
	event->phase = phase_of(thread, process);
	event->flags = thread->work_wait_flags;
	emit(event);
}

/* c10d::Reducer::finalize_backward is the last that backward does, on the thread that computed last. */
static __always_inline void begin_reducer(struct hit *hit)
{
	struct process *process = process_of(hit->thread);

	if (!process)
		return;
	process->reducer_flags = hit->flags;
	process->reducer_since = bpf_ktime_get_ns();
}

/* Backward returns to the thread that asked for it, which has waited for the reducer. */
static __always_inline void end_reducer(struct thread *thread, struct process *process, __u64 begin, __u64 end)
{
	__u64 since = process->reducer_since;
	struct event *event;

	if (since < begin || since > end)
		return;
	process->reducer_since = 0;
	event = new_event(thread, INTERVAL_DDP, since, end);
	if (!event)
		return;
	event->phase = PHASE_GPU_COMPUTE;
	event->flags = process->reducer_flags;
	emit(event);
}
