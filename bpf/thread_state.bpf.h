/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The time that each thread that makes marks, or calls CUDA or NCCL, spends in each state. From its first mark or call on, every
 * moment of such a thread is in one state.
 *
 * Inside a call the state is that of the outermost call, whether or not the thread is on a CPU. Outside calls the state says
 * why the thread is off the CPU, or that it is on it. User space adds the time since `since` to the current state. */
#pragma once

#define LONG_LAUNCH 50000 /* ns: the launch of a kernel that takes longer waits for room in the device's queue */
#define GRAPH_LAUNCH 3	  /* an operation: a graph of many kernels takes longer without a wait */

struct thread_times {
	__u64 since; /* ns */
	__u32 row;
	__u32 generation;
	__u32 tid;
	__u32 state;
	__u32 updates; /* odd during an update */
	__u16 has_ended; /* user space reads the last times, and then frees the element */
	__u16 has_called; /* CUDA or NCCL */
	__u64 times[STATES + INNER_STATES]; /* ns, by state */
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

/* Where the time of a state is added up. */
static __always_inline __u64 *time_in(struct thread_times *times, __u32 state)
{
	return state & STATES ? &times->times[STATES + (state & (INNER_STATES - 1))] : &times->times[state & (STATES - 1)];
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
	if (now < times->since) /* the thread has lost the CPU since `now` */
		now = times->since;
	*time_in(times, times->state) += now - times->since;
	times->since = now;
	times->state = state;
	barrier();
	times->updates++;
	barrier();
	thread->is_changing_state = 0;
}

/* The element of a thread that makes its first mark or call, or whose process has got another row. */
__noinline int claim_thread_times(struct thread *thread)
{
	struct thread_times *times;
	__u32 index;

	if (!thread)
		return 0;
	thread->is_changing_state = 1;
	barrier();
	if (!thread->times) {
		if (bpf_map_pop_elem(&free_thread_times, &index)) {
			lose(NO_THREAD_TIMES);
			thread->is_changing_state = 0;
			return 0;
		}
		thread->times = index + 1;
	}
	times = times_of(thread);
	if (!times) {
		thread->is_changing_state = 0;
		return 0;
	}
	times->since = bpf_ktime_get_ns();
	times->state = THREAD_ON_CPU;
	times->tid = thread->tid;
	times->generation = thread->generation;
	times->row = thread->row;
	times->has_ended = 0;
	times->has_called = 0;
	thread->times_generation = thread->generation;
	barrier();
	thread->is_changing_state = 0;
	return 0;
}

static __always_inline struct thread_times *claimed_times(struct thread *thread)
{
	if (!thread->times || thread->times_generation != thread->generation)
		claim_thread_times(thread);
	return times_of(thread);
}

static __always_inline __u32 state_in_call(const struct process *process, __u32 flags)
{
	if (KIND_OF(flags) == WAIT)
		return process->collectives != process->collectives_settled ? THREAD_SETTLING : THREAD_GPU_WAIT;
	if (KIND_OF(flags) == COPY)
		return THREAD_COPY;
	if (flags & IS_NCCL)
		return THREAD_COLLECTIVE;
	return KIND_OF(flags) == CALL ? THREAD_LAUNCHING : THREAD_CALLING;
}

/* Whether the frame at `thread->outer_call` - 1 is still that of a call. */
static __always_inline int is_in_call(const struct thread *thread)
{
	return thread->outer_call && thread->outer_call <= thread->depth;
}

/* The state of the thread while it is on the CPU. */
static __always_inline __u32 running_state(const struct thread *thread)
{
	if (thread->work_wait_since)
		return THREAD_COLLECTIVE;
	return is_in_call(thread) ? thread->call_state : THREAD_ON_CPU;
}

/* A frame was pushed. */
static __always_inline void enter_call_state(struct thread *thread, const struct process *process, __u32 flags)
{
	struct thread_times *times;

	if (!(flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL)) || (thread->outer_call && thread->outer_call < thread->depth))
		return;
	times = claimed_times(thread);
	if (times)
		times->has_called = 1;
	thread->outer_call = thread->depth;
	thread->call_state = state_in_call(process, flags);
	thread->waits_in_launch = OPERATION_OF(flags) != GRAPH_LAUNCH;
	set_thread_state(thread, running_state(thread), bpf_ktime_get_ns());
}

/* A copy that returns only after the GPU has come to it. */
static __always_inline void wait_in_copy(struct thread *thread)
{
	if (thread->outer_call != thread->depth)
		return;
	thread->call_state = THREAD_GPU_WAIT;
	set_thread_state(thread, running_state(thread), bpf_ktime_get_ns());
}

/* A launch has returned: now its length is known. */
static __always_inline void settle_launch(struct thread *thread)
{
	struct thread_times *times = times_of(thread);
	__u64 launching;

	if (!times)
		return;
	launching = *time_in(times, THREAD_LAUNCHING);
	times->updates++;
	barrier();
	*time_in(times, launching > LONG_LAUNCH && thread->waits_in_launch ? THREAD_LAUNCH_BLOCKED : THREAD_CALLING) +=
		launching;
	*time_in(times, THREAD_LAUNCHING) = 0;
	barrier();
	times->updates++;
}

/* A frame was popped. */
static __always_inline void leave_call_state(struct thread *thread, __u64 now)
{
	if (!thread->outer_call || thread->outer_call <= thread->depth)
		return;
	thread->outer_call = 0;
	set_thread_state(thread, running_state(thread), now);
	if (thread->call_state == THREAD_LAUNCHING)
		settle_launch(thread);
}

/* Whether the thread's state depends on the CPU. In most calls it does not. */
static __always_inline int has_state_on_cpu(const struct thread *thread)
{
	__u32 running = running_state(thread);

	return thread->times && !thread->is_changing_state &&
	       (running == THREAD_ON_CPU || running == THREAD_CALLING || running == THREAD_LAUNCHING);
}

/* The thread leaves the CPU. A launch yields the CPU while the device's queue is full; a preempted one waits for a CPU. */
static __always_inline void leave_cpu_state(struct thread *thread, __u32 state, int has_yielded, __u64 now)
{
	if (running_state(thread) != THREAD_LAUNCHING || (state == THREAD_CPU_WAIT && !has_yielded))
		set_thread_state(thread, state, now);
	else
		thread->waits_in_launch = 1;
}

static __always_inline void enter_cpu_state(struct thread *thread, __u64 now)
{
	if (thread->times && !thread->is_changing_state)
		set_thread_state(thread, running_state(thread), now);
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
