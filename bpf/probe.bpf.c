// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The program behind every probe. One program serves all kinds of calls, since detaching each link takes an RCU grace
 * period.
 *
 * This source gives three variants:
 *   SESSION      one program for both ends of a call, which costs less than two (Linux 6.13); bpf_session_is_return()
 *   SESSION_CTX  the same for Linux 7.0, which gave that kfunc an argument; bpf_session_is_return(ctx)
 *   CLASSIC      an entry and a return program, for uprobe.multi (Linux 6.6) and perf links (Linux 5.15) */

/* Always empty. A program with a tail call gets no private stack, which is why the probes have one.
 *
 * Since Linux 6.13, a uprobe program that uses more than 64 bytes of stack gets a private stack per CPU. Uprobe programs can
 * be preempted. On a preemptible kernel, the probe of another thread on the same CPU then overwrites that stack: Linux 7.2
 * crashed in tests. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_private_stack SEC(".maps");

/* Fills in the registers and the thread of a hit. Returns 0 if there is no memory for the thread's state. */
static __always_inline int find_thread(struct hit *hit, struct registers *regs)
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
#define ENTRY_ONLY_CASE(kind, entry) case kind: entry(hit); break;
#define ENTRY_CASE(kind, entry, return_) case kind: entry(&hit, frame); break;
#define RETURN_CASE(kind, entry, return_) case kind: return_(&hit, frame); break;
#define KEPT_CASE(kind, return_) case kind: return_(&hit, frame); break;

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
	__sync_fetch_and_add(&process->entry_hits, 1);
	hit->thread->hits++;
	switch (KIND_OF(hit->flags)) {
	CALL_KINDS(NO_CASE, NO_CASE, ENTRY_ONLY_CASE)
	}
}

/* Returns 1 if the call's return need not be probed. */
static __always_inline int on_entry(struct registers *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	struct hit hit = { .flags = cookie, .positions = cookie >> 32 };
	struct frame *frame;

	if (!find_thread(&hit, regs))
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

/* The return of CALL. It is inlined, since most hits of a job end here. */
static __always_inline void end_call(const struct hit *hit, const struct frame *frame)
{
	struct thread *thread = hit->thread;

	if (frame->flags & (IS_RUNTIME | IS_DRIVER))
		note_launch(thread, frame->start);
	add_to_row(thread->row, thread->generation, OPERATION_OF(hit->flags), frame->phase, hit->time - frame->start, 0);
}

static __always_inline int on_return(struct registers *regs)
{
	struct hit hit = { .time = bpf_ktime_get_ns() };
	struct frame *frame = find_thread(&hit, regs) ? pop_frame(&hit) : 0;

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

/* The least that a probe can cost, for benchmarks to compare with. */

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

/* If the program returns 1 at the entry, the kernel does not probe the return, which saves the second trap. */
SEC("uprobe")
int probe(struct registers *regs)
{
	return is_return(regs) ? on_return(regs) : on_entry(regs);
}

/* The least that a probe can cost, for benchmarks to compare with. */
SEC("uprobe")
int empty(struct registers *regs)
{
	return 0;
}

#endif
