// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Regions without gradients: torch.no_grad and torch.inference_mode end and begin runs of operators. */

/* The closure of an optimizer's step computes with gradients on. The optimizer itself computes with gradients off. */
static __always_inline void enter_closure(struct thread *thread, struct process *process)
{
	if (thread->phase != PHASE_OPTIMIZER_STEP)
		return;
	thread->is_in_closure = 1;
	thread->has_closure = 1;
	enter_phase(thread, process, PHASE_GPU_COMPUTE);
}

static __always_inline void leave_closure(struct thread *thread, struct process *process)
{
	if (thread->is_in_closure && thread->phase == PHASE_GPU_COMPUTE)
		enter_phase(thread, process, PHASE_OPTIMIZER_STEP);
	thread->is_in_closure = 0;
}

__noinline int change_grad(struct thread *thread, __u32 is_without_grad)
{
	struct process *process = thread ? process_of(thread) : 0;
	__u32 was_without_grad;

	if (!process)
		return 0;
	if (thread->is_autograd || is_inside(thread, BACKWARD)) /* autograd restores the mode unseen */
		return 0;
	was_without_grad = thread->is_without_grad;
	thread->is_without_grad = is_without_grad;
	if (!was_without_grad == !is_without_grad)
		return 0;
	if (was_without_grad) {
		end_region(thread, process);
		enter_closure(thread, process);
		return 0;
	}
	if (thread->run.over && thread->run.is_in_step)
		end_run(thread, 0); /* gradients were on again after it, so it is no arithmetic of the optimizer */
	take_begin(thread, &thread->run.region, bpf_ktime_get_ns());
	leave_closure(thread, process);
	return 0;
}

#define GRAD_MODE_OFF 1
#define INFERENCE 2
#define DEEPEST_INFERENCE 64
#define OFF_BEFORE_INFERENCE 0x80000000 /* GradMode when the outermost inference mode began: its end restores that */

/* torch.autograd.Function.apply switches gradients off while the forward function runs, but makes its results a part of the pass
 * with gradients. Compiled models and activation checkpoints are such functions. */
static __always_inline void begin_function(struct hit *hit)
{
	struct thread *thread = hit->thread;

	if (thread->function_sp <= hit->regs->sp)
		thread->function_sp = BEGINS_FUNCTION;
}

/* Whether a change of the mode belongs to a custom function. Its begin and its end come from one frame, also if an exception ends
 * it, and all changes between them from frames below. */
static __always_inline int is_of_function(struct thread *thread, __u64 sp, __u32 is_enabled)
{
	__u64 function_sp = thread->function_sp;

	if (function_sp > sp)
		return 1;
	thread->function_sp = 0;
	if (function_sp == sp)
		return 1;
	if (function_sp != BEGINS_FUNCTION || is_enabled || thread->is_without_grad)
		return 0;
	thread->function_sp = sp;
	return 1;
}

/* c10::GradMode::set_enabled(enabled) */
static __always_inline void set_grad_mode(struct hit *hit)
{
	__u32 others = hit->thread->is_without_grad & ~GRAD_MODE_OFF;
	__u32 is_enabled = argument(hit->regs, 1) & 1;

	if (!is_of_function(hit->thread, hit->regs->sp, is_enabled))
		change_grad(hit->thread, is_enabled ? others : others | GRAD_MODE_OFF);
}

/* torch.inference_mode. It switches GradMode off unseen, so a torch.no_grad inside it leaves GradMode off. */

static __always_inline void begin_inference(struct hit *hit)
{
	__u32 mode = hit->thread->is_without_grad;

	if (mode == GRAD_MODE_OFF)
		mode |= OFF_BEFORE_INFERENCE;
	if ((mode & ~OFF_BEFORE_INFERENCE) < DEEPEST_INFERENCE * INFERENCE)
		change_grad(hit->thread, mode + INFERENCE);
}

static __always_inline void end_inference(struct hit *hit)
{
	__u32 mode = hit->thread->is_without_grad, depth = (mode & ~OFF_BEFORE_INFERENCE) / INFERENCE;

	if (depth > 1)
		change_grad(hit->thread, mode - INFERENCE);
	else if (depth)
		change_grad(hit->thread, mode & OFF_BEFORE_INFERENCE ? GRAD_MODE_OFF : 0);
}
