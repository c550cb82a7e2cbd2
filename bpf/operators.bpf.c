// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Runs of model operators: consecutive operators of one thread become one event. docs/spans.md has the rules.
 *
 * C++ exceptions pass through operators, so only their entries are probed (see torch.bpf.c). */

#define PAUSE 10000000		   /* ns between two operators. A thread that sleeps most of it has no work */
#define PAUSE_WITH_GRAD 100000000  /* the same in training, where an operator may wait for threads of OpenMP */
#define LONGEST_MERGE_GAP 2000000  /* ns between two no-grad regions that become one event */
#define LONGEST_MERGE 10000000	   /* ns: the length from which a run takes no further region */
#define LONGEST_JOIN 2000000	   /* ns: the length of a no-grad region that is the beginning of a pass with gradients */
#define LONGEST_JOIN_GAP 300000	   /* ns between that region and the next operator */
#define SHORTEST_HOST 50000	   /* ns between two no-grad regions that are one part of a run, or blocked after a result */
#define LONGEST_LEAD 5000000	   /* ns: if an operator comes later in its no-grad region, its pass begins with it */
#define LONGEST_RUN 1000000000	   /* ns: a longer pass is several runs, so that each is reported in time */

static __always_inline __u32 run_kind_of(__u32 kind)
{
	switch (kind) {
	case UPDATE:
		return OF_UPDATE;
	case IN_PLACE:
		return OF_IN_PLACE;
	case LOSS:
		return OF_LOSS;
	case BATCH:
		return OF_BATCH;
	case NOISE:
		return OF_NOISE;
	default:
		return OF_MODEL;
	}
}

static __always_inline int is_of_pass(__u32 run_kind)
{
	return run_kind == OF_MODEL || run_kind == OF_LOSS;
}

static __always_inline int is_of_batch(__u32 run_kind)
{
	return run_kind == OF_BATCH || run_kind == OF_NOISE;
}

/* Operators of one class are one run. */
static __always_inline __u32 class_of(__u32 run_kind)
{
	return run_kind == OF_LOSS ? OF_MODEL : run_kind == OF_NOISE ? OF_BATCH : run_kind == OF_IN_PLACE ? OF_UPDATE : run_kind;
}

static __always_inline __u32 phase_of_run(const struct run *run)
{
	switch (run->kind) {
	case OF_UPDATE:
		return PHASE_OPTIMIZER_STEP;
	case OF_BATCH:
	case OF_NOISE:
		return PHASE_DATA_LOADING;
	case OF_IN_PLACE:
		return PHASE_UNKNOWN;
	default:
		return PHASE_GPU_COMPUTE;
	}
}

static __always_inline __u16 microseconds(__u64 time)
{
	return time < 65535000 ? time / 1000 : 65535;
}

static __always_inline void note_part(struct run *run, __u64 end)
{
	__u32 part = (run->parts - 1) & (MERGED_PARTS - 1);

	run->edges[2 * part] = microseconds(run->part - run->first);
	run->edges[2 * part + 1] = microseconds(end - run->first);
}

/* The event with the edges of a run's parts comes before the event of the run. */
static __always_inline void emit_parts(struct thread *thread, __u64 end)
{
	struct event *event = new_event(thread, INTERVAL_OPERATORS, thread->run.first, end);

	if (!event)
		return;
	note_part(&thread->run, end);
	event->operation = 1;
	__builtin_memcpy(event->facts.name, thread->run.edges, NAME_LENGTH);
	emit(event);
}

/* Ends the thread's run, if it has one. `next` is the entry of an operator that continues it in another run, or 0. */
__noinline int end_run(struct thread *thread, __u64 next)
{
	struct event *event;
	struct run *run;
	__u32 ending;
	__u64 end;

	if (!thread)
		return 0;
	run = &thread->run;
	if (!run->first)
		return 0;
	ending = next ? AT_NEXT_RUN : run->over ? AT_REGION : AT_OPERATOR;
	end = next ? next : run->over ? run->over : run->last;
	if (run->parts > 1)
		emit_parts(thread, end);
	event = new_event(thread, INTERVAL_OPERATORS, run->first, end);
	run->emitted = end;
	run->first = 0;
	run->over = 0;
	thread->first_launch = thread->first_launch_after_mark;
	if (!event)
		return 0;
	event->phase = phase_of_run(run);
	event->facts.run.covered = run->covered + end - run->part;
	event->facts.run.count = run->count;
	event->facts.run.parts = run->parts;
	event->facts.run.ending = ending;
	event->facts.run.is_without_grad = run->is_without_grad;
	event->facts.run.kind = run->kind;
	add_snapshots(event, &run->begin, &thread->mark);
	emit(event);
	return 0;
}

/* Autograd's threads compute for the thread that began the backward pass. They are recognized by their name, which they have
 * since PyTorch 2.5, or because they computed nothing before a backward pass began. */
static __always_inline int is_for_backward(struct thread *thread, struct process *process)
{
	if (thread->is_autograd || is_inside(thread, BACKWARD))
		return 1;
	if (process->backward_thread == thread->tid)
		process->backward_thread = 0; /* the return was not seen */
	if (!process->backward_thread)
		thread->is_own = 1;
	return !thread->is_own;
}

static __always_inline int is_update(__u32 kind)
{
	return kind == UPDATE || kind == IN_PLACE;
}

/* Whether operators of this kind begin no run: programs also prepare data and read results with them. */
static __always_inline int is_continuing(__u32 kind)
{
	return kind == REDUCTION || kind == SAMPLE;
}

/* Whether the thread has done something else since a result of its pass: it was blocked, but not for the result, or it ran longer
 * than the pass. */
static __always_inline int has_left_pass(const struct thread *thread, __u64 now)
{
	const struct run *run = &thread->run;
	__u64 ran = now - thread->active - (thread->off_cpu - thread->blocked - thread->active_cpu_wait);
	__u64 pass = thread->active - run->pass - (thread->active_cpu_wait - run->pass_cpu_wait);

	return run->has_result && (thread->blocked - thread->marked_blocked > SHORTEST_HOST ||
				   (ran > SHORTEST_HOST && ran > pass));
}

/* Losses call other losses. */
static __always_inline int leaves_pass(const struct thread *thread, __u32 kind, __u64 now)
{
	return kind == OPERATOR && has_left_pass(thread, now);
}

/* Whether gradients were on only for a moment in the thread's region, as in a property of torch.distributions. */
static __always_inline int is_same_region(const struct thread *thread, __u64 now)
{
	const struct run *run = &thread->run;
	__u64 waited = run->region.times[THREAD_CPU_WAIT], before = thread->mark.times[THREAD_CPU_WAIT];

	waited = waited > before ? waited - before : 0;
	return thread->is_without_grad && run->region.time >= run->over &&
	       run->region.time - run->over < SHORTEST_HOST + waited && !has_left_pass(thread, now);
}

/* Whether the thread's run ended before this operator. */
static __always_inline int is_past(const struct thread *thread, __u32 kind, __u64 now)
{
	const struct run *run = &thread->run;
	__u64 since = now - thread->active;

	if (class_of(run->kind) != class_of(run_kind_of(kind)))
		return 1;
	if (run->over && run->kind == OF_IN_PLACE)
		return now - run->over > LONGEST_MERGE_GAP;
	if (is_of_batch(run->kind))
		return thread->blocked - thread->marked_blocked > SHORTEST_HOST;
	if (run->over && !thread->is_without_grad)
		return kind != OPERATOR || run->regions > 1 || now - run->over > LONGEST_JOIN_GAP ||
		       run->over - run->first > LONGEST_JOIN;
	if (run->over)
		return !is_same_region(thread, now) &&
		       (now - run->over > LONGEST_MERGE_GAP || run->over - run->first > LONGEST_MERGE ||
			run->parts >= MERGED_PARTS);
	if (leaves_pass(thread, kind, now))
		return !run->is_without_grad || now - run->first > LONGEST_MERGE || run->parts >= MERGED_PARTS;
	return since > (run->is_without_grad ? PAUSE : PAUSE_WITH_GRAD) &&
	       (thread->blocked - thread->marked_blocked) * 5 > since * 4;
}

/* A pass without gradients begins with its no-grad region, if the region has no mark before its first operator. */
static __always_inline __u64 begin_of_part(const struct thread *thread, __u64 now)
{
	__u64 region = thread->run.region.time;

	if (!thread->is_without_grad || !region || region < thread->mark.time || now - region > LONGEST_LEAD)
		return now;
	return region;
}

/* Gradients are off in an optimizer's step that has called its closure. Either the closure switched them off, for a pass of another
 * model, or it is over and the optimizer computes. The next mark decides: see `drop_arithmetic`. */
static __always_inline int is_in_step(const struct thread *thread)
{
	return thread->is_without_grad && thread->has_closure && thread->phase == PHASE_OPTIMIZER_STEP;
}

/* An optimizer's step ends: its closure did nothing after this run, so it is the optimizer's own arithmetic. */
static __always_inline void drop_arithmetic(struct run *run)
{
	if (!run->first || !run->is_in_step)
		return;
	run->first = 0;
	run->over = 0;
}

static __always_inline void begin_part(struct run *run, __u64 end, __u64 begin)
{
	note_part(run, end);
	run->covered += end - run->part;
	run->part = begin;
	run->parts++;
}

static __always_inline void continue_run(struct thread *thread, __u64 now)
{
	struct run *run = &thread->run;
	__u64 begin = begin_of_part(thread, now);

	if (thread->is_without_grad && begin - run->over >= SHORTEST_HOST && run->kind != OF_IN_PLACE &&
	    !is_same_region(thread, now))
		begin_part(run, run->over, begin);
	run->over = 0;
	run->regions++;
	run->is_without_grad = !!thread->is_without_grad;
	run->is_in_step = is_in_step(thread);
}

static __always_inline void begin_run(struct thread *thread, struct process *process, __u32 kind, __u64 now)
{
	struct run *run = &thread->run;

	run->first = kind == OF_IN_PLACE ? now : begin_of_part(thread, now);
	if (run->first == thread->mark.time) { /* no gap */
		run->begin = thread->mark;
	} else if (run->first == now) {
		take_boundary(thread, &run->begin, now);
		run->first = run->begin.time;
	} else {
		run->begin = run->region;
		keep_begin(thread);
	}
	run->part = run->first;
	run->covered = 0;
	run->count = 0;
	run->parts = 1;
	run->regions = 1;
	run->kind = kind;
	run->is_without_grad = !!thread->is_without_grad;
	run->is_in_step = is_in_step(thread);
	run->sets_phase = !thread->phase && !process->phase && is_of_pass(kind);
	thread->is_after_work &= !is_of_pass(kind);
	if (run->sets_phase) {
		set_phase(process, PHASE_GPU_COMPUTE);
		process->phase_thread = thread->tid;
	}
}

/* Random numbers are a batch if they are drawn outside scopes and passes. */
static __always_inline int admits_batch(const struct thread *thread, __u64 now)
{
	const struct run *run = &thread->run;

	if (thread->is_without_grad || thread->function_sp > BEGINS_FUNCTION)
		return 0;
	if (!run->first)
		return !thread->phase;
	return is_of_batch(run->kind) ||
	       (run->over && (!is_of_pass(run->kind) || now - run->over > LONGEST_MERGE_GAP));
}

/* Adds an operator to the thread's run, and begins one if it has none. Returns whether the operator is in a run. */
static __always_inline int join_run(struct thread *thread, struct process *process, __u32 kind, __u64 now)
{
	struct run *run = &thread->run;

	if (is_for_backward(thread, process))
		return 0;
	if (thread->is_without_grad ? thread->phase == PHASE_OPTIMIZER_STEP && !(is_in_step(thread) && !is_update(kind))
				    : is_update(kind))
		return 0;
	if (kind == IN_PLACE && !(run->first ? class_of(run->kind) == OF_UPDATE : thread->is_after_work && !thread->phase))
		return 0;
	if (is_continuing(kind) && (!run->first || !is_of_pass(run->kind) || (run->over && !thread->is_without_grad)))
		return 0;
	if (is_of_batch(run_kind_of(kind)) && !admits_batch(thread, now))
		return 0;
	if (run->first && is_past(thread, kind, now))
		end_run(thread, 0);
	if (run->first && !run->over && !run->is_in_step && now - run->first > LONGEST_RUN) {
		note_end_of_run(thread, now); /* no gap */
		now = thread->mark.time;
		end_run(thread, now);
	}
	if (!run->first) {
		if (is_continuing(kind))
			return 0;
		begin_run(thread, process, run_kind_of(kind), now);
	} else if (run->over) {
		continue_run(thread, now);
	} else if (run->is_without_grad && leaves_pass(thread, kind, now)) {
		begin_part(run, thread->active, now);
	}
	if (kind == AUTOCAST)
		return 1;
	if (!run->count++ || (run->has_result && kind == OPERATOR)) {
		run->pass = now;
		run->pass_cpu_wait = thread->off_cpu - thread->blocked;
	}
	if ((run->kind == OF_LOSS && kind == OPERATOR) || (run->kind == OF_BATCH && kind == NOISE) ||
	    (run->kind == OF_IN_PLACE && kind == UPDATE))
		run->kind = run_kind_of(kind);
	run->has_result = kind == SAMPLE || kind == LOSS || (kind == REDUCTION && run->has_result);
	return 1;
}

__noinline int add_operator(struct thread *thread, __u32 flags)
{
	struct process *process = thread ? process_of(thread) : 0;
	__u64 now;
	int joins;

	if (!process)
		return 0;
	switch (KIND_OF(flags)) {
	case IN_PLACE:
		__sync_fetch_and_add(&process->in_place_hits, 1);
		break;
	case OPERATOR:
	case LOSS:
	case REDUCTION:
	case SAMPLE:
	case UPDATE:
		__sync_fetch_and_add(&process->operator_hits, 1);
	}
	now = bpf_ktime_get_ns();
	joins = join_run(thread, process, KIND_OF(flags), now);
	if (!is_of_batch(run_kind_of(KIND_OF(flags))) && KIND_OF(flags) != AUTOCAST) {
		thread->operators++;
		thread->last_operator = now;
	}
	if (joins) {
		note_end_of_run(thread, now);
		note_place(thread, INTERVAL_OPERATORS, 0);
		thread->run.last = thread->mark.time;
	}
	return 0;
}

static __always_inline void begin_operator(struct hit *hit)
{
	add_operator(hit->thread, hit->flags);
}

/* The end of a no-grad region is the end of its run, unless another operator follows soon. A rollout may have thousands of
 * short regions a second, which are merged. A region inside a pass with gradients is a custom function or an activation
 * checkpoint. If the thread has left the pass, for example for an environment, the run has ended with its last operator. */
static __always_inline void end_region(struct thread *thread, struct process *process)
{
	struct run *run = &thread->run;
	__u64 now = bpf_ktime_get_ns();

	if (!run->first || run->over || !run->is_without_grad)
		return;
	if (thread->active != thread->mark.time || !has_left_pass(thread, now))
		note_end_of_run(thread, now);
	run->over = thread->mark.time;
	note_place(thread, INTERVAL_OPERATORS, 1);
	if (run->sets_phase && !thread->phase && process->phase_thread == thread->tid)
		set_phase(process, PHASE_UNKNOWN);
}

/* A run must not wait long for its next operator or region, or user space gets it too late. A rollout may sleep after each
 * region, but gets no event for each. A pass may pause for seconds, for example while Python imports a module. */
static __always_inline void end_idle_run(struct thread *thread, __u64 now, int is_asleep)
{
	const struct run *run = &thread->run;
	int is_over = run->over && !is_same_region(thread, now);

	if (run->is_in_step)
		return;
	if (is_over ? now - run->over > LONGEST_MERGE_GAP || (is_asleep && now - run->emitted > LONGEST_MERGE_GAP)
		    : run->first && now - run->last > LONGEST_RUN)
		end_run(thread, 0);
}
