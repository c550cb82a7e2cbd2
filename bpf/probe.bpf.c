// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The probe on every function. One for all kinds of calls, since detaching takes a grace period for each link.
 *
 * Three variants from one source: a session (one program for both ends of a call, Linux 6.13) costs less than two
 * programs, and Linux 7.0 changed the kfunc that tells the ends apart.
 *   SESSION      one program; bpf_session_is_return()
 *   SESSION_CTX  one program; bpf_session_is_return(ctx)
 *   CLASSIC      an entry and a return program, for uprobe.multi (6.6) and perf links (5.15) */

/* Never has a program. That there is a tail call at all keeps the kernel from giving the probes a private stack. From
 * Linux 6.13 on, programs of uprobes with more than 64 bytes on the stack have one for each CPU. Uprobes can be preempted,
 * so with a preemptible kernel another thread's probe on the same CPU would overwrite it: Linux 7.2 was seen to crash. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_private_stack SEC(".maps");

static __always_inline int meet(struct hit *hit, struct registers *regs)
{
	hit->regs = regs;
	hit->thread = current_thread();
	if (hit->thread)
		return 1;
	bpf_tail_call(regs, &no_private_stack, 0);
	return 0;
}

/* The switches below have a case for each row of CALL_KINDS. */
#define NO_CASE(...)
#define CASE_LABEL(kind, ...) case kind:
#define ENTRY_ONLY_CASE(kind, at_entry) case kind: at_entry(hit); break;
#define ENTRY_CASE(kind, at_entry, at_return) case kind: at_entry(&hit, frame); break;
#define RETURN_CASE(kind, at_entry, at_return) case kind: at_return(&hit, frame); break;
#define KEPT_CASE(kind, at_return) case kind: at_return(&hit, frame); break;

static __always_inline int is_entry_only(const struct hit *hit)
{
	switch (KIND_OF(hit->flags)) {
	CALL_KINDS(NO_CASE, NO_CASE, CASE_LABEL)
		return 1;
	default: return 0;
	}
}

static __always_inline void handle_entry_only(struct hit *hit)
{
	struct process *process = process_of(hit->thread);

	if (!process)
		return;
	count_hit(process);
	switch (KIND_OF(hit->flags)) {
	CALL_KINDS(NO_CASE, NO_CASE, ENTRY_ONLY_CASE)
	}
}

/* Returns 1 if the call's return is of no interest. */
static __always_inline int on_entry(struct registers *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	struct hit hit = { .flags = cookie, .positions = cookie >> 32 };
	struct frame *frame;

	if (!meet(&hit, regs))
		return 1;
	if (is_entry_only(&hit)) {
		handle_entry_only(&hit);
		return 1;
	}
	frame = push_frame(&hit);
	if (!frame)
		return 1;
	switch (KIND_OF(hit.flags)) {
	CALL_KINDS(ENTRY_CASE, NO_CASE, NO_CASE)
	CALL_KINDS(NO_CASE, CASE_LABEL, NO_CASE)
		keep_arguments(&hit, frame);
	}
	frame->start = bpf_ktime_get_ns();
	return 0;
}

/* Inlined, since most hits of a job end here. */
static __always_inline void end_call(const struct hit *hit, const struct frame *frame)
{
	const struct thread *thread = hit->thread;

	add_to_row(thread->row, thread->generation, OPERATION_OF(hit->flags), frame->phase, hit->time - frame->start, 0);
}

static __always_inline int on_return(struct registers *regs)
{
	struct hit hit = { .time = bpf_ktime_get_ns() };
	struct frame *frame = meet(&hit, regs) ? pop_frame(&hit) : 0;

	if (!frame)
		return 0;
	switch (KIND_OF(hit.flags)) {
	CALL_KINDS(RETURN_CASE, KEPT_CASE, NO_CASE)
	}
	return 0;
}

#if defined(CLASSIC)

SEC("uprobe")
int probe_entry(struct registers *regs)
{
	on_entry(regs);
	return 0;
}

SEC("uretprobe")
int probe_return(struct registers *regs)
{
	return on_return(regs);
}

/* What any probe costs at least; benchmarks compare with it. */

SEC("uprobe")
int empty_entry(struct registers *regs)
{
	return 0;
}

SEC("uretprobe")
int empty_return(struct registers *regs)
{
	return 0;
}

#else

#if defined(SESSION_CTX)
extern _Bool bpf_session_is_return(void *ctx) __ksym;
#define is_return(regs) bpf_session_is_return(regs)
#else
extern _Bool bpf_session_is_return(void) __ksym;
#define is_return(regs) bpf_session_is_return()
#endif

/* A session whose entry answers 1 gets no return, which saves the second trap. */
SEC("uprobe")
int probe(struct registers *regs)
{
	return is_return(regs) ? on_return(regs) : on_entry(regs);
}

/* What any probe costs at least; benchmarks compare with it. */
SEC("uprobe")
int empty(struct registers *regs)
{
	return 0;
}

#endif
