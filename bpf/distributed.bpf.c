// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Waits of PyTorch's distributed package for other ranks.
 *
 * These functions throw what a collective failed of, so no return may be hooked (see torch.bpf.c). Their ends show in what
 * follows when all went well. */

#define LONGEST_ISSUE 500000 /* ns on the CPU, from the issue of a collective to the wait for it */
#define LEAST_WORK_WAIT 50000 /* ns: of many small collectives none may be long */

/* c10d::Work::Work, early in the issue of a collective. */
static __always_inline void begin_work(struct hit *hit)
{
	hit->thread->work_issued = bpf_ktime_get_ns();
	hit->thread->work_issued_off_cpu = hit->thread->off_cpu;
}

/* When the wait that begins now began for the job: with the issue of its collective, if the thread computed nothing
 * since. An issue wakes the threads that carry it out, which may push the issuing one off its CPU. */
static __always_inline __u64 work_since(struct thread *thread, __u64 now)
{
	__u64 issued = thread->work_issued, off_cpu = thread->off_cpu - thread->work_issued_off_cpu;

	thread->work_issued = 0;
	return issued && now - issued < off_cpu + LONGEST_ISSUE ? issued : now;
}

/* c10d::Work::wait */
static __always_inline void begin_work_wait(struct hit *hit)
{
	if (!process_of(hit->thread))
		return;
	hit->thread->work_wait_since = work_since(hit->thread, bpf_ktime_get_ns());
	hit->thread->work_wait_flags = hit->flags;
}

/* The instructions with which c10d::Work::wait returns, and which an exception does not reach. */
static __always_inline void end_work_wait(struct hit *hit)
{
	struct thread *thread = hit->thread;
	struct process *process = process_of(thread);
	__u64 begin = thread->work_wait_since, now = bpf_ktime_get_ns();
	struct event *event;

	if (!process || !begin)
		return;
	thread->work_wait_since = 0;
	if (now - begin < LEAST_WORK_WAIT)
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
