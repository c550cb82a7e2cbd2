/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a thread, and its process as a whole, is doing.
 *
 * A thread with a scope of its own is in that scope's phase. Threads without one help the others (backward runs on a
 * thread of autograd's), so they are in the process's phase: that of the thread which began a scope last. */
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

/* What follows when a phase's scope is over and no other is open: the forward pass after loading, what is left of the
 * computation after backward, and nothing known after the optimizer. */
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

/* Back to `outer`, the phase around the one that ends, or 0. */
static __always_inline void leave_phase(struct thread *thread, struct process *process, __u32 ended, __u32 outer)
{
	thread->phase = outer;
	if (process->phase_thread == thread->tid)
		set_phase(process, outer ? outer : phase_after(ended));
}
