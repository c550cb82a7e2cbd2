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

/* Of these calls the entry is all. */
static __always_inline int is_no_call(const struct hit *hit)
{
	switch (KIND_OF(hit->flags)) {
	case SCOPE_END: case COMMUNICATOR_END: case WORK_WAIT: case WORK_WAIT_END: case REDUCER:
	case WORK_ISSUE: return 1;
	default: return 0;
	}
}

static __always_inline void pass(struct hit *hit)
{
	struct process *process = process_of(hit->thread);

	if (!process)
		return;
	count_hit(process);
	switch (KIND_OF(hit->flags)) {
	case SCOPE_END: close_scope(hit); break;
	case COMMUNICATOR_END: forget_communicator(hit); break;
	case WORK_ISSUE: begin_work(hit); break;
	case WORK_WAIT: begin_work_wait(hit); break;
	case WORK_WAIT_END: end_work_wait(hit); break;
	case REDUCER: begin_reducer(hit); break;
	}
}

/* Answers 1 if the call's return is of no interest. */
static __always_inline int on_entry(struct registers *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	struct hit hit = { .flags = cookie, .positions = cookie >> 32 };
	struct frame *frame;

	if (!meet(&hit, regs))
		return 1;
	if (is_no_call(&hit)) {
		pass(&hit);
		return 1;
	}
	frame = begin_call(&hit);
	if (!frame)
		return 1;
	switch (KIND_OF(hit.flags)) {
	case COPY: begin_copy(&hit, frame); break;
	case ALLOCATE: begin_allocation(&hit, frame); break;
	case RELEASE: begin_release(&hit, frame); return 0;
	case DEVICE: case CONTEXT: case CONTEXT_CREATE: case CONTEXT_SET: case CONTEXT_PUSH:
	case COMMUNICATOR_SIZE: case COMMUNICATOR_RANK: keep_arguments(&hit, frame); break;
	case SCOPE_BEGIN: begin_scope(&hit, frame); break;
	case BACKWARD: begin_backward(&hit, frame); break;
	case COLLECTIVE: begin_collective(&hit, frame); break;
	case COMMUNICATOR: begin_communicator(&hit, frame); break;
	}
	frame->start = bpf_ktime_get_ns();
	return 0;
}

/* Inlined, since most hits of a job end here. */
static __always_inline void count_call(const struct hit *hit, const struct frame *frame)
{
	const struct thread *thread = hit->thread;

	add_to_row(thread->row, thread->generation, OPERATION_OF(hit->flags), frame->phase, hit->time - frame->start, 0);
}

static __always_inline int on_return(struct registers *regs)
{
	struct hit hit = { .time = bpf_ktime_get_ns() };
	struct frame *frame = meet(&hit, regs) ? end_call(&hit) : 0;

	if (!frame)
		return 0;
	switch (KIND_OF(hit.flags)) {
	case CALL: count_call(&hit, frame); break;
	case WAIT: count_wait(&hit, frame); break;
	case COPY: end_copy(&hit, frame); break;
	case ALLOCATE: end_allocation(&hit, frame); break;
	case RELEASE: end_release(&hit, frame); break;
	case DEVICE: case CONTEXT_SET: case CONTEXT_PUSH: case CONTEXT_POP: end_choice(&hit, frame); break;
	case CONTEXT: case CONTEXT_CREATE: end_context(&hit, frame); break;
	case SCOPE_BEGIN: open_scope(&hit, frame); break;
	case BACKWARD: end_backward(&hit, frame); break;
	case COLLECTIVE: end_collective(&hit, frame); break;
	case GROUP: end_group(&hit); break;
	case COMMUNICATOR: end_communicator(&hit, frame); break;
	case COMMUNICATOR_SIZE: case COMMUNICATOR_RANK: end_question(&hit, frame); break;
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
