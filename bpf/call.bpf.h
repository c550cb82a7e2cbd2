/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A function's entry and return, joined into one call.
 *
 * Three variants from one source, since a session (one program for both ends, Linux 6.13) costs a fifth less than two
 * programs, and Linux 7.0 changed the kfunc that tells the ends apart:
 *   SESSION      one program; bpf_session_is_return()
 *   SESSION_CTX  one program; bpf_session_is_return(ctx)
 *   (neither)    an entry and a return program, for uprobe.multi (6.6) and perf links (5.15) */
#pragma once

/* What user space says of a probed function, in its attach cookie. */
#define OPERATION_OF(flags) ((flags) & 0xff)
#define ARGUMENT_OF(flags, nth) (((flags) >> (8 + 4 * (nth))) & 0xf)
#define IS_RUNTIME (1u << 24) /* of CUDA's runtime API */
#define IS_DRIVER (1u << 25)  /* of CUDA's driver API */

#if defined(SESSION) || defined(SESSION_CTX)

#if defined(SESSION_CTX)
extern _Bool bpf_session_is_return(void *ctx) __ksym;
#define is_return(ctx) bpf_session_is_return(ctx)
#else
extern _Bool bpf_session_is_return(void) __ksym;
#define is_return(ctx) bpf_session_is_return()
#endif

/* A session whose entry answers 1 gets no return: the second trap is saved. */
#define PROBE(name)                                                                  \
	SEC("uprobe") int name(struct registers *ctx)                                \
	{                                                                            \
		return is_return(ctx) ? on_##name##_return(ctx) : on_##name##_entry(ctx); \
	}

#else

#define PROBE(name)                                                                                \
	SEC("uprobe") int name##_entry(struct registers *ctx) { on_##name##_entry(ctx); return 0; } \
	SEC("uretprobe") int name##_return(struct registers *ctx) { on_##name##_return(ctx); return 0; }

#endif

/* The runtime API is made of driver calls; those are no calls of the program's own. */
static __always_inline int is_inside_runtime(const struct thread *thread)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++)
		if (i < thread->depth && thread->frames[i].flags & IS_RUNTIME)
			return 1;
	return 0;
}

/* Frames at or below the stack pointer were left by longjmp, an exception or a lost return. */
static __always_inline void discard_abandoned(struct thread *thread, __u64 sp)
{
#pragma unroll
	for (__u32 i = 0; i < FRAMES; i++) {
		__u32 top = thread->depth - 1;

		if (top >= FRAMES || thread->frames[top].sp > sp)
			return;
		thread->depth = top;
	}
}

/* The frame of a call that begins, or null if it is not counted. */
static __always_inline struct frame *begin_call(struct registers *ctx, struct thread *thread)
{
	__u32 flags = bpf_get_attach_cookie(ctx), depth;
	struct process *process;
	struct frame *frame;

	discard_abandoned(thread, ctx->sp);
	if (flags & IS_DRIVER && is_inside_runtime(thread))
		return 0;
	process = process_of(thread);
	if (!process)
		return 0;
	depth = thread->depth;
	if (depth >= FRAMES) {
		lose(TOO_DEEP);
		return 0;
	}
	frame = &thread->frames[depth];
	thread->depth = depth + 1;
	frame->sp = ctx->sp;
	frame->flags = flags;
	frame->phase = process->phase & (PHASES - 1);
	return frame;
}

/* The frame of the call that returns; null if its entry was not counted. */
static __always_inline struct frame *end_call(struct registers *ctx, struct thread *thread)
{
	__u64 sp = ctx->sp - RETURN_ADDRESS_SIZE;
	__u32 top;

	discard_abandoned(thread, sp - 1);
	top = thread->depth - 1;
	if (top >= FRAMES || thread->frames[top].sp != sp)
		return 0;
	thread->depth = top;
	return &thread->frames[top];
}

/* A return without an entry: deliberate for driver calls within runtime calls and processes that are not counted,
 * else the call began before the probe was there. */
static __always_inline void miss(struct registers *ctx, struct thread *thread)
{
	__u32 flags = bpf_get_attach_cookie(ctx);

	if (!(flags & IS_DRIVER && is_inside_runtime(thread)) && thread->depth < FRAMES && process_of(thread))
		lose(NO_START);
}

static __always_inline int on_call_entry(struct registers *ctx)
{
	struct thread *thread = current_thread();
	struct frame *frame = thread ? begin_call(ctx, thread) : 0;

	if (!frame)
		return 1;
	frame->start = bpf_ktime_get_ns();
	return 0;
}

/* Counts the call of `frame` in its series. Returns the slot, for what else there is to add. */
static __always_inline struct slot *count_call(struct registers *ctx, struct thread *thread, struct frame *frame,
					       __u64 now)
{
	struct process *process = process_of(thread);
	struct slot *slot;
	__u32 number;

	if (!process)
		return 0;
	slot = slot_of(process, thread, OPERATION_OF(frame->flags), frame->phase, &number);
	if (!slot)
		return 0;
	if ((__u32)result_of(ctx))
		__sync_fetch_and_add(&slot->errors, 1);
	record(slot, number, now - frame->start);
	return slot;
}

static __always_inline int on_call_return(struct registers *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *thread = current_thread();
	struct frame *frame = thread ? end_call(ctx, thread) : 0;

	if (frame)
		count_call(ctx, thread, frame, now);
	else if (thread)
		miss(ctx, thread);
	return 0;
}

PROBE(call)

/* What any probe costs at least: what the benchmark compares with. */
static __always_inline int on_empty_entry(struct registers *ctx)
{
	return 0;
}

static __always_inline int on_empty_return(struct registers *ctx)
{
	return 0;
}

PROBE(empty)
