/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The time that each thread that calls CUDA or NCCL spends in each state. Every moment of such a thread, from its first
 * call on, is in one state.
 *
 * Inside a call the state is that of the outermost call, whether or not the thread is on a CPU. Outside calls the state says
 * why the thread is off the CPU, or that it is on it. User space adds the time since `since` to the current state. */
#pragma once

enum thread_state {
	THREAD_ON_CPU,
	THREAD_DESCHEDULED, /* it could run: preempted, or it yielded */
	THREAD_IO,	    /* in uninterruptible sleep, or in a system call that reads or writes */
	THREAD_LOCK,	    /* in futex(2) */
	THREAD_SLEEP,
	THREAD_GPU_WAIT,
	THREAD_COLLECTIVE, /* in a call of NCCL, or waiting for the GPU while a collective is not known to be over */
	THREAD_COPY,
	THREAD_LAUNCH, /* in any other call of CUDA */
	THREAD_STATES,
};

#define STATE_ELEMENTS 16 /* a power of two */

struct thread_times {
	__u64 since; /* ns */
	__u32 row;
	__u32 generation;
	__u32 tid;
	__u32 state;
	__u32 updates; /* odd during an update */
	__u32 has_ended; /* user space reads the last times, and then frees the element */
	__u64 times[STATE_ELEMENTS]; /* ns, by state */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread_times);
} thread_times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_thread_times SEC(".maps");

static __always_inline struct thread_times *times_of(const struct thread *thread)
{
	__u32 index = thread->times - 1;

	return thread->times ? bpf_map_lookup_elem(&thread_times, &index) : 0;
}

/* A uprobe program can be preempted between two instructions; the scheduler's program then leaves the state alone. */
static __always_inline void set_thread_state(struct thread *thread, __u32 state, __u64 now)
{
	struct thread_times *times = times_of(thread);

	if (!times)
		return;
	thread->is_changing_state = 1;
	barrier();
	times->updates++;
	barrier();
	times->times[times->state & (STATE_ELEMENTS - 1)] += now - times->since;
	times->since = now;
	times->state = state;
	barrier();
	times->updates++;
	barrier();
	thread->is_changing_state = 0;
}

/* The element of a thread that makes its first call, or whose process has got another row. */
__noinline int claim_thread_times(struct thread *thread)
{
	struct thread_times *times;
	__u32 index;

	if (!thread)
		return 0;
	if (!thread->times) {
		if (bpf_map_pop_elem(&free_thread_times, &index)) {
			lose(NO_THREAD_TIMES);
			return 0;
		}
		thread->times = index + 1;
	}
	times = times_of(thread);
	if (!times)
		return 0;
	times->since = bpf_ktime_get_ns();
	times->state = THREAD_ON_CPU;
	times->tid = thread->tid;
	times->generation = thread->generation;
	times->row = thread->row;
	times->has_ended = 0;
	thread->times_generation = thread->generation;
	return 0;
}

static __always_inline __u32 state_in_call(const struct process *process, __u32 flags)
{
	switch (KIND_OF(flags)) {
	case WAIT: return process->collectives != process->collectives_settled ? THREAD_COLLECTIVE : THREAD_GPU_WAIT;
	case COPY: return THREAD_COPY;
	default: return flags & IS_NCCL ? THREAD_COLLECTIVE : THREAD_LAUNCH;
	}
}

/* Whether the frame at `thread->outer_call` - 1 is still that of a call. */
static __always_inline int is_in_call(const struct thread *thread)
{
	return thread->outer_call && thread->outer_call <= thread->depth;
}

/* A frame was pushed. */
static __always_inline void enter_call_state(struct thread *thread, const struct process *process, __u32 flags)
{
	if (!(flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL)) || (thread->outer_call && thread->outer_call < thread->depth))
		return;
	if (!thread->times || thread->times_generation != thread->generation)
		claim_thread_times(thread);
	thread->outer_call = thread->depth;
	set_thread_state(thread, state_in_call(process, flags), bpf_ktime_get_ns());
}

/* A copy that returns only after the GPU has come to it. */
static __always_inline void wait_in_copy(struct thread *thread)
{
	if (thread->outer_call == thread->depth)
		set_thread_state(thread, THREAD_GPU_WAIT, bpf_ktime_get_ns());
}

/* A frame was popped. */
static __always_inline void leave_call_state(struct thread *thread, __u64 now)
{
	if (!thread->outer_call || thread->outer_call <= thread->depth)
		return;
	thread->outer_call = 0;
	set_thread_state(thread, THREAD_ON_CPU, now);
}

/* The thread leaves the CPU, or gets it. */
static __always_inline void schedule_state(struct thread *thread, __u32 state, __u64 now)
{
	if (thread->times && !thread->is_changing_state && !is_in_call(thread))
		set_thread_state(thread, state, now);
}

static __always_inline void end_thread_times(struct thread *thread)
{
	struct thread_times *times = times_of(thread);

	if (!times)
		return;
	set_thread_state(thread, THREAD_ON_CPU, bpf_ktime_get_ns());
	times->has_ended = 1;
	thread->times = 0;
}
