/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A function's entry and return, joined into one call. */
#pragma once

/* What user space says of a probed function, in its attach cookie: flags, and the positions of arguments. */
#define OPERATION_OF(flags) ((flags) & 0xff)
#define KIND_OF(flags) (((flags) >> 8) & 0xff)
/* Bits 16 to 23 number the function, for user space. */
#define IS_RUNTIME (1u << 24)  /* of CUDA's runtime API */
#define IS_DRIVER (1u << 25)   /* of CUDA's driver API */
#define IS_BLOCKING (1u << 26) /* a copy that also waits for the GPU */
#define IS_HANDLE (1u << 27)   /* of memory that has a handle in place of an address */
#define IS_NCCL (1u << 28)
#define IS_PER_RANK (1u << 29)	/* a collective whose count is for each rank */
#define IS_GROUP_END (1u << 30) /* ncclGroupEnd, not ncclGroupStart */
#define IS_ARRAY (1u << 31)	/* communicators of all ranks at once */

/* What is to be done at a call's ends. */
enum kind {
	CALL,
	WAIT,
	COPY,
	ALLOCATE,
	RELEASE,
	DEVICE,
	SCOPE_BEGIN,
	SCOPE_END, /* its entry is all */
	BACKWARD,
	COLLECTIVE,
	GROUP,
	COMMUNICATOR,
	COMMUNICATOR_END, /* its entry is all */
	COMMUNICATOR_SIZE,
	COMMUNICATOR_RANK,
	WORK_WAIT, /* its entry is all, as of the next two */
	WORK_WAIT_END,
	REDUCER,
	CONTEXT,
	CONTEXT_CREATE, /* and make it the current one */
	CONTEXT_SET,
	CONTEXT_PUSH,
	CONTEXT_POP,
	WORK_ISSUE, /* its entry is all */
};

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

/* For calls of which the return wants to know arguments as they are. */
static __always_inline void keep_arguments(const struct hit *hit, struct frame *frame)
{
	frame->argument[0] = wanted_argument(hit, 0);
	frame->argument[1] = wanted_argument(hit, 1);
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
	__uint(max_entries, 32);
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
static __always_inline struct frame *begin_call(struct hit *hit)
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
static __always_inline struct frame *end_call(struct hit *hit)
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
