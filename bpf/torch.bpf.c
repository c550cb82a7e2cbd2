// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Scopes of PyTorch, which it opens with or without a profiler.
 *
 * A function through which a C++ exception may pass must not have a return probe. The probe replaces the return address, and
 * an unwinder that finds the replacement ends the program. Therefore torch::autograd::Engine::execute, which throws the
 * exceptions of backward, has none; the CPython function that calls it catches every exception. The end of a scope needs
 * no return: its entry is enough. */

#define SCOPES 16

/* The offset of the at::RecordFunction, which ends, in the PythonRecordFunction, which the program holds. The virtual table
 * and the reference counts come first; the counts have 8 bytes, and had 16 up to PyTorch 2.2. Trying both is safe: another
 * RecordFunction at either offset would overlap. */
#define RECORD_FUNCTION_OFFSET 16
#define OLD_RECORD_FUNCTION_OFFSET 24

struct scope {
	__u64 object; /* PythonRecordFunction */
	__u64 begin;
	__u16 interval;
	__u16 phase;	   /* that the scope sets; 0 if none */
	__u16 outer_phase; /* of the thread before the scope */
	__u16 counted_phase; /* in which calls inside the scope are counted */
	char name[NAME_LENGTH];
	struct snapshot snapshot; /* at its begin */
};

struct scopes {
	__u32 outermost; /* the position of the outermost open scope in the ring `open` */
	__u32 depth;
	struct scope open[SCOPES];
};

#define SCOPE_AT(scopes, position) (&(scopes)->open[(position) & (SCOPES - 1)])

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scopes);
} scopes_of_thread SEC(".maps");

static __always_inline struct scopes *current_scopes(__u64 flags)
{
	return bpf_task_storage_get(&scopes_of_thread, bpf_get_current_task_btf(), 0, flags);
}

static __always_inline int begins_with(const char *name, const char *text, __u32 length)
{
#pragma unroll
	for (__u32 i = 0; i < length; i++)
		if (name[i] != text[i])
			return 0;
	return 1;
}

#define BEGINS_WITH(name, text) begins_with(name, text, sizeof(text) - 1)

static __always_inline void classify(struct scope *scope)
{
	scope->phase = PHASE_UNKNOWN;
	if (BEGINS_WITH(scope->name, "enumerate(DataLoader)")) {
		scope->interval = INTERVAL_DATA_LOADING;
		scope->phase = PHASE_DATA_LOADING;
	} else if (BEGINS_WITH(scope->name, "Optimizer.step#")) {
		scope->interval = INTERVAL_OPTIMIZER;
		scope->phase = PHASE_OPTIMIZER_STEP;
	} else if (BEGINS_WITH(scope->name, "Optimizer.zero_grad#")) {
		scope->interval = INTERVAL_ZERO_GRAD;
		scope->phase = PHASE_OPTIMIZER_STEP;
	} else if (BEGINS_WITH(scope->name, "DistributedDataParallel.")) {
		scope->interval = INTERVAL_DDP;
	} else {
		scope->interval = INTERVAL_USER;
	}
}

/* `thread->now` is the snapshot of its end. */
__noinline int end_scope(struct thread *thread, struct scope *scope, int is_abandoned)
{
	struct event *event;
	__u64 end;

	if (!thread || !scope)
		return 0;
	end = thread->now.time;
	if (scope->phase == PHASE_DATA_LOADING)
		count(thread, DATALOADER_WAIT, scope->phase, end - scope->begin, 0);
	event = new_event(thread, scope->interval, scope->begin, end);
	if (!event)
		return 0;
	event->phase = scope->counted_phase;
	event->is_abandoned = !!is_abandoned;
	__builtin_memcpy(event->facts.name, scope->name, NAME_LENGTH);
	add_snapshots(event, &scope->snapshot, &thread->now);
	emit(event);
	return 0;
}

/* Finds the innermost open scope with one of these objects. Returns the number of scopes around it; -1 if not found. */
__noinline int find_scope(struct scopes *scopes, __u64 object, __u64 other)
{
	__u32 depth = scopes ? scopes->depth : 0;

	for (__u32 i = 1; i <= SCOPES && i <= depth; i++) {
		__u64 open = SCOPE_AT(scopes, scopes->outermost + depth - i)->object;

		if (open == object || open == other)
			return depth - i;
	}
	return -1;
}

/* Ends the scope that has `outside` scopes around it. Scopes inside it are abandoned: the program left them open, for
 * example by an exception. */
__noinline int end_scopes(struct thread *thread, struct scopes *scopes, __u32 outside, int is_abandoned)
{
	struct process *process = thread ? process_of(thread) : 0;
	__u32 depth, ended = 0, outer = 0, clears_only = 1;

	if (!process || !scopes)
		return 0;
	depth = scopes->depth;
	for (__u32 i = 1; i <= SCOPES && i <= depth - outside; i++) {
		struct scope *scope = SCOPE_AT(scopes, scopes->outermost + depth - i);

		if (scope->phase) {
			ended = scope->phase;
			note_place(thread, scope->interval, 1);
			clears_only &= scope->interval == INTERVAL_ZERO_GRAD;
		}
		outer = scope->outer_phase;
	}
	if (ended == PHASE_OPTIMIZER_STEP && !clears_only) {
		drop_arithmetic(&thread->run);
		thread->has_closure = 0;
		thread->is_after_work = 1;
	}
	if (ended)
		end_run(thread, 0);
	take_boundary(thread, &thread->now, bpf_ktime_get_ns());
	for (__u32 i = 1; i <= SCOPES && i <= depth - outside; i++)
		end_scope(thread, SCOPE_AT(scopes, scopes->outermost + depth - i),
			  is_abandoned || depth - i > outside);
	scopes->depth = outside;
	if (!ended)
		return 0;
	if (!clears_only) { /* loops clear gradients between the data and the pass: the gap goes on */
		thread->mark = thread->now;
		note_mark(thread);
	}
	leave_phase(thread, process, ended, outer);
	if (thread->phase != PHASE_GPU_COMPUTE)
		thread->is_in_closure = 0;
	return 0;
}

/* torch::autograd::profiler::record_function_enter_new(name, arguments). A hidden argument is the address for the object that
 * it returns. */

static __always_inline void begin_scope(struct hit *hit, struct frame *frame)
{
	frame->scope.object_at = result_place(hit->regs);
	frame->scope.name_at = argument(hit->regs, 1 + RESULT_PLACE_IS_ARGUMENT);
}

static __always_inline void open_scope(struct hit *hit, struct frame *frame)
{
	struct scopes *scopes = current_scopes(BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct process *process = process_of(hit->thread);
	__u64 object = 0, text = 0;
	struct scope *scope;
	int stale;

	if (!process)
		return;
	if (!scopes || bpf_probe_read_user(&object, sizeof(object), (void *)frame->scope.object_at) ||
	    bpf_probe_read_user(&text, sizeof(text), (void *)frame->scope.name_at)) {
		lose(NO_SCOPE);
		return;
	}
	stale = find_scope(scopes, object, object);
	if (stale >= 0)
		end_scopes(hit->thread, scopes, stale, 1);
	if (scopes->depth >= SCOPES) { /* drop the outermost: scopes that are never closed must not block new ones */
		take_boundary(hit->thread, &hit->thread->now, hit->time);
		end_scope(hit->thread, SCOPE_AT(scopes, scopes->outermost), 1);
		scopes->outermost++;
		scopes->depth = SCOPES - 1;
	}
	scope = SCOPE_AT(scopes, scopes->outermost + scopes->depth);
	scopes->depth++;
	scope->object = object;
	scope->begin = frame->start;
	scope->outer_phase = hit->thread->phase;
	__builtin_memset(scope->name, 0, NAME_LENGTH);
	bpf_probe_read_user_str(scope->name, NAME_LENGTH, (void *)text);
	classify(scope);
	if (scope->phase) {
		process->trains = 1;
		end_run(hit->thread, 0);
		hit->thread->is_after_work &= scope->phase != PHASE_DATA_LOADING;
		enter_phase(hit->thread, process, scope->phase);
		note_place(hit->thread, scope->interval, 0);
	}
	take_boundary(hit->thread, &scope->snapshot, hit->time);
	scope->counted_phase = phase_of(hit->thread, process);
}

/* at::RecordFunction::end(), or the jump to it in record_function_exit_new(). The former is called twice for each scope, and
 * also for objects that are no scopes. */
static __always_inline void close_scope(struct hit *hit)
{
	struct scopes *scopes = current_scopes(0);
	__u64 ended = argument(hit->regs, 1);
	int found = -1;

	if (scopes)
		found = find_scope(scopes, ended - RECORD_FUNCTION_OFFSET, ended - OLD_RECORD_FUNCTION_OFFSET);

	if (found >= 0)
		end_scopes(hit->thread, scopes, found, 0);
}

/* THPEngine_run_backward */

/* The launches for a backward pass that is over count in the snapshots of the thread that has waited for it. */
static __always_inline void take_launches(struct thread *thread, const struct other_launches *pass)
{
	thread->backward.blocked += pass->blocked;
	if (!pass->count)
		return;
	thread->backward.count += pass->count;
	thread->backward.first = pass->first;
	thread->backward.last = pass->last;
}

static __always_inline void begin_backward(struct hit *hit, struct frame *frame)
{
	struct process *process = process_of(hit->thread);

	frame->backward.outer_phase = hit->thread->phase;
	if (!process)
		return;
	end_run(hit->thread, 0);
	take_boundary(hit->thread, &frame->begin, bpf_ktime_get_ns());
	note_backward(hit->thread, frame->begin.time);
	if (!process->backward_thread) {
		process->backward_thread = hit->thread->tid;
		process->backward = (struct other_launches){};
	}
	enter_phase(hit->thread, process, PHASE_GPU_COMPUTE);
	note_place(hit->thread, INTERVAL_BACKWARD, 0);
}

static __always_inline void end_backward(struct hit *hit, struct frame *frame)
{
	struct process *process = process_of(hit->thread);
	struct event *event;

	if (process) {
		if (process->backward_thread == hit->thread->tid && !is_inside(hit->thread, BACKWARD)) {
			process->backward_thread = 0;
			take_launches(hit->thread, &process->backward);
		}
		take_boundary(hit->thread, &hit->thread->mark, hit->time);
		leave_phase(hit->thread, process, PHASE_GPU_COMPUTE, frame->backward.outer_phase);
		end_reducer(hit->thread, process, frame->start, hit->thread->mark.time);
		hit->thread->is_after_work = 1;
		note_mark(hit->thread);
		note_place(hit->thread, INTERVAL_BACKWARD, 1);
	}
	event = new_event(hit->thread, INTERVAL_BACKWARD, frame->begin.time, hit->thread->mark.time);
	if (!event)
		return;
	event->phase = PHASE_GPU_COMPUTE;
	add_snapshots(event, &frame->begin, &hit->thread->mark);
	emit(event);
}
