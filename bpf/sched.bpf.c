// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* When and why threads that make probed calls leave the CPU. */

enum off_cpu {
	OFF_PREEMPTED, /* it could still run: preempted, or it yielded */
	OFF_SLEEPING,
	OFF_FUTEX,
	OFF_IO,
	OFF_STOPPED, /* by a signal, a debugger or the freezer; or idle in the kernel */
};

static __always_inline __u32 state_off_cpu(struct task_struct *task, __u32 why)
{
	const struct registers *regs = (struct registers *)bpf_task_pt_regs(task);

	switch (why) {
	case OFF_PREEMPTED: return THREAD_CPU_WAIT;
	case OFF_IO: return state_in_io(task, regs);
	case OFF_STOPPED: return THREAD_UNKNOWN;
	default: return is_in_system_call(regs) ? state_asleep(task, regs) : THREAD_UNKNOWN;
	}
}

static __always_inline int has_yielded(struct task_struct *task)
{
	return system_call_of((struct registers *)bpf_task_pt_regs(task)) == SYSTEM_CALL_SCHED_YIELD;
}

static __always_inline __u32 why_off_cpu(struct task_struct *task, int is_preempted, __u64 state)
{
	struct registers *regs;

	if (is_preempted || !state)
		return OFF_PREEMPTED;
	if (state & TASK_UNINTERRUPTIBLE)
		return state & TASK_NOLOAD ? OFF_STOPPED : OFF_IO;
	if (!(state & TASK_INTERRUPTIBLE))
		return OFF_STOPPED;
	regs = (struct registers *)bpf_task_pt_regs(task);
	return system_call_of(regs) == SYSTEM_CALL_FUTEX ? OFF_FUTEX : OFF_SLEEPING;
}

static __always_inline int is_writing(struct task_struct *task)
{
	const struct registers *regs = (struct registers *)bpf_task_pt_regs(task);

	switch (system_call_of(regs)) {
	case SYSTEM_CALL_WRITE: case SYSTEM_CALL_PWRITE64: case SYSTEM_CALL_WRITEV: case SYSTEM_CALL_PWRITEV:
	case SYSTEM_CALL_PWRITEV2: case SYSTEM_CALL_SENDFILE: case SYSTEM_CALL_SENDTO: case SYSTEM_CALL_SENDMSG:
	case SYSTEM_CALL_SENDMMSG: case SYSTEM_CALL_FSYNC: case SYSTEM_CALL_FDATASYNC: case SYSTEM_CALL_MSYNC:
	case SYSTEM_CALL_SYNC_FILE_RANGE: case SYSTEM_CALL_SYNC: case SYSTEM_CALL_SYNCFS:
		return is_in_system_call(regs);
	default: return 0;
	}
}

static __always_inline struct process *known_process_of(const struct thread *thread)
{
	struct process *process = process_in(thread->row);

	return is_current(process, thread) ? process : 0;
}

static __always_inline void leave_cpu(struct thread *thread, __u64 now, __u32 why)
{
	struct process *process = known_process_of(thread);

	thread->off_since = now;
	thread->off_why = why;
	thread->is_off_writing = why != OFF_PREEMPTED && is_writing(bpf_get_current_task_btf());
	if (process && !thread->is_worker)
		end_idle_run(thread, now, why != OFF_PREEMPTED);
	if (!process || thread->is_worker || !thread->on_since || why == OFF_PREEMPTED)
		return;
	process->last_burst = now - thread->on_since;
	__sync_fetch_and_add(&process->bursts, 1);
	thread->on_since = 0;
}

static __always_inline void enter_cpu(struct thread *thread, __u64 now)
{
	struct process *process = known_process_of(thread);
	__u64 off = now - thread->off_since;

	if (!thread->on_since)
		thread->on_since = now;
	if (!process || !thread->off_since)
		return;
	if (thread->is_worker) {
		if (thread->off_why != OFF_PREEMPTED)
			note_wait(thread, off);
		if (thread->off_why == OFF_IO)
			__sync_fetch_and_add(&process->worker_io_wait, off);
		return;
	}
	thread->off_cpu += off;
	if (thread->off_why != OFF_PREEMPTED) {
		thread->blocked += off;
		note_wait(thread, off);
	}
	if (thread->is_off_writing)
		thread->writing += off;
	__sync_fetch_and_add(&process->off_cpu, off);
	if (thread->off_why == OFF_IO)
		__sync_fetch_and_add(&process->io_wait, off);
	if (thread->off_why == OFF_FUTEX && off > 1000)
		count_in_row(thread->row, thread->generation, FUTEX_WAIT | phase_of(thread, process) << 16, off, 0);
}

static __always_inline int switch_task(struct task_struct *previous, struct task_struct *next, int is_preempted,
				       __u64 state)
{
	struct thread *thread = bpf_task_storage_get(&threads, previous, 0, 0);

	if (thread && thread->generation) {
		__u64 now = bpf_ktime_get_ns();
		__u32 why = why_off_cpu(previous, is_preempted, state);

		int is_known = has_state_on_cpu(thread);

		thread->off_state = running_state(thread);
		if (is_known || thread->is_worker)
			thread->off_state = state_off_cpu(previous, why);
		if (is_known)
			leave_cpu_state(thread, thread->off_state, has_yielded(previous), now);
		thread->off_in_system_call = is_in_system_call((struct registers *)bpf_task_pt_regs(previous));
		leave_cpu(thread, now, why);
		if (__builtin_preserve_field_info(previous->sched_info.run_delay, FIELD_EXISTS))
			charge_takers(thread, previous->sched_info.run_delay);
	} else if (is_named_worker(previous)) {
		current_worker();
	}
	thread = bpf_task_storage_get(&threads, next, 0, 0);
	if (thread && thread->generation) {
		__u64 now = bpf_ktime_get_ns();

		enter_cpu_state(thread, now);
		enter_cpu(thread, now);
	}
	announce_wait(thread);
	note_run(next);
	return 0;
}

SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	return switch_task((struct task_struct *)ctx[1], (struct task_struct *)ctx[2], ctx[0], ctx[3]);
}

#if defined(CLASSIC)

/* Before Linux 5.18 the tracepoint has no fourth argument. The task itself still holds the state that it leaves with. */
SEC("tp_btf/sched_switch")
int sched_switch_old(__u64 *ctx)
{
	struct task_struct *previous = (struct task_struct *)ctx[1];

	return switch_task(previous, (struct task_struct *)ctx[2], ctx[0], previous->__state);
}

#endif
