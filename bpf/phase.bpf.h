/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The phase of training that a thread, or its process as a whole, is in.
 *
 * A thread with an open scope is in that scope's phase. A thread without one works for other threads: backward, for example,
 * runs on a thread of autograd. It is in the process's phase, which is the phase of the thread that last opened a scope. */
#pragma once

enum phase {
	PHASE_UNKNOWN,
	PHASE_DATA_LOADING,
	PHASE_GPU_COMPUTE,
	PHASE_NCCL_COLLECTIVE,
	PHASE_OPTIMIZER_STEP,
};

static __always_inline __u32 phase_of(const struct thread *thread, const struct process *process)
{
	return (thread->phase ? thread->phase : process->phase) & (PHASES - 1);
}

/* The phase that follows when a phase's scope ends and no other is open. Data loading is followed by the forward pass,
 * backward by the rest of the computation, and the optimizer step by an unknown phase. */
static __always_inline __u32 phase_after(__u32 phase)
{
	return phase == PHASE_DATA_LOADING || phase == PHASE_GPU_COMPUTE ? PHASE_GPU_COMPUTE : PHASE_UNKNOWN;
}

static __always_inline void set_phase(struct process *process, __u32 phase)
{
	if (process->phase == phase)
		return;
	process->phase = phase;
	process->phase_since = bpf_ktime_get_ns();
}

static __always_inline void enter_phase(struct thread *thread, struct process *process, __u32 phase)
{
	thread->phase = phase;
	set_phase(process, phase);
	process->phase_thread = thread->tid;
}

/* Returns to `outer`, the phase of the scope around the one that ends; 0 if it has none. */
static __always_inline void leave_phase(struct thread *thread, struct process *process, __u32 ended, __u32 outer)
{
	thread->phase = outer;
	if (process->phase_thread == thread->tid)
		set_phase(process, outer ? outer : phase_after(ended));
}
