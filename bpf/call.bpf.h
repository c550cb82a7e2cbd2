/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Joins a function's entry and its return into one call. */
#pragma once

/* One hit of a probe: an entry or a return of a function. */
struct hit {
	struct registers *regs;
	struct thread *thread;
	__u64 time;
	__u32 flags;
	__u32 positions;
};

/* The nth argument that this kind of call needs, counted from 0. The result is 0 if the function has no such argument. */
static __always_inline __u64 needed_argument(const struct hit *hit, __u32 nth)
{
	__u32 position = hit->positions >> (4 * nth) & 0xf;

	return position ? argument(hit->regs, position) : 0;
}

/* The entry of KEEPS_ARGUMENTS kinds. */
static __always_inline void keep_arguments(const struct hit *hit, struct frame *frame)
{
	frame->arguments[0] = needed_argument(hit, 0);
	frame->arguments[1] = needed_argument(hit, 1);
}

/* The entry of kinds whose return needs nothing from it. */
static __always_inline void begin_nothing(struct hit *hit, struct frame *frame)
{
}

#define IN_PROGRESS 7 /* ncclInProgress: a non-blocking communicator continues in the background */

static __always_inline int has_failed(const struct hit *hit)
{
	__u32 result = result_of(hit->regs);

	return result && !(hit->flags & IS_NCCL && result == IN_PROGRESS);
}

/* The runtime API calls the driver API. Those driver calls are not counted: the program made only the runtime call. */
static __always_inline int is_inside_runtime(const struct thread *thread)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++)
		if (i < thread->depth && thread->frames[i].flags & IS_RUNTIME)
			return 1;
	return 0;
}

/* Whether the thread executes a call of this kind. */
static __always_inline int is_inside(const struct thread *thread, __u32 kind)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++)
		if (i < thread->depth && KIND_OF(thread->frames[i].flags) == kind)
			return 1;
	return 0;
}

/* The time at which the probes of each kind were last detached, ns. Calls in progress at that time never return here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KINDS);
	__type(key, __u32);
	__type(value, __u64);
} detached_at SEC(".maps");

static __always_inline int has_lost_its_return(const struct frame *frame)
{
	__u32 kind = KIND_OF(frame->flags);
	__u64 *detached = bpf_map_lookup_elem(&detached_at, &kind);

	return detached && frame->start < *detached;
}

/* The verifier of Linux 6.1 forgets a bound that was checked in another register. The mask gives it the bound again. */
static __always_inline struct frame *frame_at(struct thread *thread, __u32 depth)
{
	barrier_var(depth);
	return &thread->frames[depth & (FRAMES - 1)];
}

/* Drops frames at or below the stack pointer: longjmp, an exception or a lost return abandoned them. */
static __always_inline void discard_abandoned(struct thread *thread, __u64 sp)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++) {
		__u32 top = thread->depth - 1;

		if (top >= FRAMES)
			return;
		if (frame_at(thread, top)->sp > sp && !has_lost_its_return(frame_at(thread, top)))
			return;
		thread->depth = top;
	}
}

/* Whether only a process that trains makes the call. */
static __always_inline int is_training(__u32 flags)
{
	return flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL) || KIND_OF(flags) == BACKWARD;
}

/* Gives the thread's process, which was taken for a worker, a row of its own. Not static: see `lose`. */
__noinline int leave_workers(struct thread *thread)
{
	__u32 tgid = current_tgid();

	if (!thread)
		return -1;
	bpf_map_delete_elem(&workers, &tgid);
	thread->trains = 1;
	return find_row(thread);
}

/* The process of a call that begins; null if the call is not counted. */
static __always_inline struct process *calling_process(struct hit *hit)
{
	int trains = is_training(hit->flags);
	struct process *process = process_of(hit->thread);

	if (!process && trains && hit->thread->is_worker && !leave_workers(hit->thread))
		process = process_of(hit->thread);
	if (process && trains && !process->trains)
		process->trains = 1;
	return process;
}

/* The frame of a call that begins; null if the call is not counted. */
static __always_inline struct frame *push_frame(struct hit *hit)
{
	struct thread *thread = hit->thread;
	struct process *process;
	struct frame *frame;
	__u32 depth;

	discard_abandoned(thread, hit->regs->sp);
	process = calling_process(hit);
	thread->is_uncounted = !process;
	if (!process)
		return 0;
	__sync_fetch_and_add(&process->hits, 1);
	thread->hits++;
	if (hit->flags & IS_DRIVER && is_inside_runtime(thread))
		return 0;
	depth = thread->depth;
	if (depth >= FRAMES) {
		lose(TOO_DEEP);
		return 0;
	}
	frame = frame_at(thread, depth);
	thread->depth = depth + 1;
	frame->sp = hit->regs->sp;
	frame->flags = hit->flags;
	frame->phase = phase_of(thread, process);
	enter_call_state(thread, process, hit->flags);
	return frame;
}

/* Handles a return without a frame. Driver calls inside runtime calls and ignored processes have none on purpose. Any
 * other call began before the probe was attached, which is counted as a loss. */
static __always_inline void count_missed_start(struct hit *hit)
{
	if (hit->thread->is_uncounted)
		return; /* the entry has counted the reason */
	if (!(hit->flags & IS_DRIVER && is_inside_runtime(hit->thread)) && hit->thread->depth < FRAMES &&
	    process_of(hit->thread))
		lose(NO_START);
}

/* The frame of the call that returns; null if its entry was not counted. The frame holds the flags, so that most returns
 * need not ask the kernel for the cookie. */
static __always_inline struct frame *pop_frame(struct hit *hit)
{
	struct thread *thread = hit->thread;
	__u64 sp = hit->regs->sp - RETURN_ADDRESS_SIZE;
	__u32 top;

	discard_abandoned(thread, sp - 1);
	top = thread->depth - 1;
	if (top >= FRAMES || frame_at(thread, top)->sp != sp) {
		hit->flags = bpf_get_attach_cookie(hit->regs);
		count_missed_start(hit);
		return 0;
	}
	thread->depth = top;
	leave_call_state(thread, hit->time);
	hit->flags = frame_at(thread, top)->flags;
	if (has_failed(hit) && hit->flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL))
		count_error(thread->row, thread->generation, hit->flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL), result_of(hit->regs));
	return frame_at(thread, top);
}
