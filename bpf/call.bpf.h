/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A function's entry and return, joined into one call. */
#pragma once

/* A probe's hit: one end of a call. */
struct hit {
	struct registers *regs;
	struct thread *thread;
	__u64 time;
	__u32 flags;
	__u32 positions;
};

/* The nth argument that this kind of call needs; 0 if the function has none. */
static __always_inline __u64 wanted_argument(const struct hit *hit, __u32 nth)
{
	__u32 position = hit->positions >> (4 * nth) & 0xf;

	return position ? argument(hit->regs, position) : 0;
}

/* For the KEEPS_ARGUMENTS kinds. */
static __always_inline void keep_arguments(const struct hit *hit, struct frame *frame)
{
	frame->arguments[0] = wanted_argument(hit, 0);
	frame->arguments[1] = wanted_argument(hit, 1);
}

/* For kinds whose return needs nothing from the entry. */
static __always_inline void begin_nothing(struct hit *hit, struct frame *frame)
{
}

#define IN_PROGRESS 7 /* of ncclResult_t: a communicator that does not block goes on by itself */

static __always_inline int has_failed(const struct hit *hit)
{
	__u32 result = result_of(hit->regs);

	return result && !(hit->flags & IS_NCCL && result == IN_PROGRESS);
}

/* The runtime API is made of driver calls; those are no calls of the program's own. */
static __always_inline int is_inside_runtime(const struct thread *thread)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++)
		if (i < thread->depth && thread->frames[i].flags & IS_RUNTIME)
			return 1;
	return 0;
}

/* When the probes of each kind were taken off last, ns: of calls that were under way then, no return is seen. */
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

/* The mask is for the verifier of Linux 6.1, which forgets a bound that was checked in another register. */
static __always_inline struct frame *frame_at(struct thread *thread, __u32 depth)
{
	barrier_var(depth);
	return &thread->frames[depth & (FRAMES - 1)];
}

/* Frames at or below the stack pointer were left by longjmp, an exception or a lost return. */
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

/* The frame of a call that begins, or null if it is not counted. */
static __always_inline struct frame *push_frame(struct hit *hit)
{
	struct thread *thread = hit->thread;
	struct process *process;
	struct frame *frame;
	__u32 depth;

	discard_abandoned(thread, hit->regs->sp);
	process = process_of(thread);
	thread->is_uncounted = !process;
	if (!process)
		return 0;
	count_hit(process);
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
	return frame;
}

/* A return without an entry: deliberate for driver calls within runtime calls and processes that are not counted,
 * else the call began before the probe was there. */
static __always_inline void miss(struct hit *hit)
{
	if (hit->thread->is_uncounted)
		return; /* the entry has said why */
	if (!(hit->flags & IS_DRIVER && is_inside_runtime(hit->thread)) && hit->thread->depth < FRAMES &&
	    process_of(hit->thread))
		lose(NO_START);
}

/* The frame of the call that returns; null if its entry was not counted. The frame has the flags, so that most returns
 * do without asking for the cookie. */
static __always_inline struct frame *pop_frame(struct hit *hit)
{
	struct thread *thread = hit->thread;
	__u64 sp = hit->regs->sp - RETURN_ADDRESS_SIZE;
	__u32 top;

	discard_abandoned(thread, sp - 1);
	top = thread->depth - 1;
	if (top >= FRAMES || frame_at(thread, top)->sp != sp) {
		hit->flags = bpf_get_attach_cookie(hit->regs);
		miss(hit);
		return 0;
	}
	thread->depth = top;
	hit->flags = frame_at(thread, top)->flags;
	if (has_failed(hit) && hit->flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL))
		count_error(thread->row, thread->generation, hit->flags & (IS_RUNTIME | IS_DRIVER | IS_NCCL), result_of(hit->regs));
	return frame_at(thread, top);
}
