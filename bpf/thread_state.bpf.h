/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The time that each thread that makes marks, or calls CUDA or NCCL, spends in each state. From its first mark or call on, every
 * moment of such a thread is in one state.
 *
 * Inside a call the state is that of the outermost call, whether or not the thread is on a CPU. Outside calls the state says
 * why the thread is off the CPU, or that it is on it. User space adds the time since `since` to the current state. */
#pragma once

#define LONG_LAUNCH 50000 /* ns: the launch of a kernel that takes longer waits for room in the device's queue */
#define LOADING_FAULTS 4  /* page faults in a launch that loads its kernel first */
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

static __always_inline __u64 page_faults(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->min_flt + task->maj_flt;
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
	thread->is_releasing = KIND_OF(flags) == RELEASE;
	thread->waits_in_launch = OPERATION_OF(flags) != GRAPH_LAUNCH;
	thread->faults_before_launch = page_faults();
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

/* The kind of time in a state that is within a call or a wait is known now. */
static __always_inline void settle_time(struct thread *thread, __u32 state, __u32 settled)
{
	struct thread_times *times = times_of(thread);

	if (!times || !*time_in(times, state))
		return;
	times->updates++;
	barrier();
	*time_in(times, settled) += *time_in(times, state);
	*time_in(times, state) = 0;
	barrier();
	times->updates++;
}

/* The process, if the thread computes for a backward pass that another thread has begun. See is_for_backward: a thread that has
 * computed outside of such passes does not. */
static __always_inline struct process *process_in_backward(const struct thread *thread)
{
	struct process *process = process_in(thread->row);

	if (!process || !process->backward_thread || process->backward_thread == thread->tid)
		return 0;
	return thread->is_autograd || !thread->is_own ? process : 0;
}

/* The thread has mapped a page of shared memory. Whether it has waited for swap is known when the fault is over. */
static __always_inline void note_shared_fault(struct thread *thread)
{
	struct thread_times *times = times_of(thread);

	if (times && *time_in(times, THREAD_FAULTING))
		thread->has_shared_fault = 1;
}

static __always_inline void settle_shared_fault(struct thread *thread, struct task_struct *task)
{
	if (!thread->has_shared_fault)
		return;
	settle_time(thread, THREAD_FAULTING,
		    settings.has_swap && task->maj_flt > thread->major_faults ? THREAD_SWAP : THREAD_FAULT);
	thread->has_shared_fault = 0;
}

/* A launch has returned: now its length is known. The first launch of a kernel loads it, into new memory. */
static __always_inline void settle_launch(struct thread *thread)
{
	struct thread_times *times = times_of(thread);
	int is_blocked = times && *time_in(times, THREAD_LAUNCHING) > LONG_LAUNCH && thread->waits_in_launch &&
			 page_faults() - thread->faults_before_launch < LOADING_FAULTS;
	struct process *process = is_blocked ? process_in_backward(thread) : 0;

	if (process)
		__sync_fetch_and_add(&process->backward.blocked, *time_in(times, THREAD_LAUNCHING));
	settle_time(thread, THREAD_LAUNCHING, is_blocked ? THREAD_LAUNCH_BLOCKED : THREAD_CALLING);
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

/* Whether a launch that leaves the CPU waits for room in the device's queue. Other waits are for files that it loads, or for a lock
 * of the driver; and a preempted thread waits for a CPU. */
static __always_inline int is_wait_for_queue(__u32 state, int has_yielded)
{
	return has_yielded || state == THREAD_TIMER || state == THREAD_UNKNOWN;
}

/* The thread leaves the CPU. To free memory of the GPU, it waits for the GPU. */
static __always_inline void leave_cpu_state(struct thread *thread, __u32 state, int has_yielded, __u64 now)
{
	__u32 running = running_state(thread);

	if (running == THREAD_LAUNCHING && is_wait_for_queue(state, has_yielded)) {
		thread->waits_in_launch = 1;
		return;
	}
	if (running == THREAD_CALLING && thread->is_releasing && state != THREAD_CPU_WAIT)
		state = THREAD_GPU_WAIT;
	set_thread_state(thread, state, now);
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
