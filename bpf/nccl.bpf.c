// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Collectives and communicators.
 *
 * A call only enqueues: from its entry to its return is `host_enqueue`. Within ncclGroupStart and ncclGroupEnd nothing is
 * launched before the outermost end, so there it lasts until that returns. When the host has next waited for the
 * GPU, the collective counts as over: `host_upper_bound`. Any stream's wait will do: frameworks put collectives on streams
 * of their own, let the computing stream wait for them on the GPU, and wait for that one. Until then the collective is
 * kept in a small ring of its process. */

#define PENDING 64

struct communicator {
	__s32 rank;
	__u32 size;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, struct communicator);
} communicators SEC(".maps");

enum collective_state {
	SETTLED, /* or never used */
	GROUPED,
	ENQUEUED,
};

struct collective {
	__u64 begin;
	__u64 end;
	__u64 bytes;
	__u64 communicator;
	__u32 generation; /* of the process's row: what an earlier one left does not count */
	__u32 state;
	__u32 tid;
	__u32 flags;
	__u32 phase;
	__u32 reserved;
};

/* PENDING for each row of the process table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PENDING);
	__type(key, __u32);
	__type(value, struct collective);
} collectives SEC(".maps");

static __always_inline __u32 element_size(__u64 type)
{
	switch (type) {
	case 0: case 1: case 10: case 11: return 1; /* int8, uint8, fp8 */
	case 6: case 9: return 2;		    /* float16, bfloat16 */
	case 4: case 5: case 8: return 8;	    /* int64, uint64, float64 */
	default: return 4;			    /* int32, uint32, float32 */
	}
}

/* How many ranks the collective's data is of: counts of all_gather and reduce_scatter are for each. */
static __always_inline __u32 parts_of(struct hit *hit, __u64 communicator)
{
	struct address address = address_at(hit->thread, communicator);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &address);
	struct process *process = process_of(hit->thread);

	if (!(hit->flags & IS_PER_RANK))
		return 1;
	if (found)
		return found->size ? found->size : 1; /* made by a split: not of all the job's ranks */
	return process && process->world_size ? process->world_size : 1;
}

/* Arguments: count, element type, communicator. */
static __always_inline void begin_collective(struct hit *hit, struct frame *frame)
{
	frame->collective.communicator = wanted_argument(hit, 2);
	frame->collective.bytes = wanted_argument(hit, 0) * element_size(wanted_argument(hit, 1)) *
				  parts_of(hit, frame->collective.communicator);
}

/* Counts a collective that was enqueued (`later` 0) or is over (`later` 1). */
__noinline int tell_collective(struct thread *thread, struct collective *collective, __u64 end, __u32 later)
{
	struct communicator *communicator;
	struct address address;
	struct event *event;
	__u32 operation;

	if (!thread || !collective)
		return 0;
	operation = OPERATION_OF(collective->flags) + (later ? UPPER_BOUND : 0);
	count(thread, operation, collective->phase, end - collective->begin, later ? 0 : collective->bytes);
	event = new_event(thread, INTERVAL_COLLECTIVE, collective->begin, end);
	if (!event)
		return 0;
	event->tid = collective->tid;
	event->phase = collective->phase;
	event->operation = operation;
	event->flags = collective->flags;
	event->bytes = collective->bytes;
	event->communicator = collective->communicator;
	address = address_at(thread, collective->communicator);
	communicator = bpf_map_lookup_elem(&communicators, &address);
	if (communicator) {
		event->rank = communicator->rank;
		event->communicator_size = communicator->size;
	}
	emit(event);
	return 0;
}

static __always_inline struct collective *pending(const struct thread *thread, __u32 number)
{
	__u32 index = thread->row * PENDING + (number & (PENDING - 1));

	return bpf_map_lookup_elem(&collectives, &index);
}

static __always_inline void end_collective(struct hit *hit, struct frame *frame)
{
	struct process *process = process_of(hit->thread);
	struct collective *collective;

	if (!process || has_failed(hit))
		return;
	collective = pending(hit->thread, __sync_fetch_and_add(&process->collectives, 1));
	if (!collective)
		return;
	if (collective->state == GROUPED && collective->generation == hit->thread->generation)
		lose(TOO_MANY_COLLECTIVES);
	collective->state = SETTLED;
	collective->generation = hit->thread->generation;
	collective->begin = frame->start;
	collective->end = hit->time;
	collective->bytes = frame->collective.bytes;
	collective->communicator = frame->collective.communicator;
	collective->tid = hit->thread->tid;
	collective->flags = hit->flags;
	collective->phase = frame->phase;
	if (hit->thread->group_depth) {
		collective->state = GROUPED;
		return;
	}
	collective->state = ENQUEUED;
	tell_collective(hit->thread, collective, hit->time, 0);
}

/* ncclGroupStart and ncclGroupEnd; the latter is told by IS_GROUP_END. If it fails the group is over too, and nothing of
 * it was launched. */
static __always_inline void end_group(struct hit *hit, struct frame *frame)
{
	struct thread *thread = hit->thread;
	int failed = has_failed(hit);

	if (!(hit->flags & IS_GROUP_END)) {
		thread->group_depth += !failed;
		return;
	}
	if (thread->group_depth && --thread->group_depth)
		return;
	for (__u32 i = 0; i < PENDING; i++) {
		struct collective *collective = pending(thread, i);

		if (!collective || collective->generation != thread->generation || collective->state != GROUPED ||
		    collective->tid != thread->tid)
			continue;
		collective->state = failed ? SETTLED : ENQUEUED;
		collective->end = hit->time;
		if (!failed)
			tell_collective(thread, collective, hit->time, 0);
	}
}

/* The host has waited for the GPU since `begin`: what was enqueued before is over. */
__noinline int settle_collectives(struct thread *thread, __u64 begin, __u64 end)
{
	struct process *process = thread ? process_of(thread) : 0;

	if (!process || process->collectives == process->collectives_settled)
		return 0;
	process->collectives_settled = process->collectives;
	for (__u32 i = 0; i < PENDING; i++) {
		struct collective *collective = pending(thread, i);

		if (!collective || collective->generation != thread->generation || collective->state == SETTLED)
			continue;
		if (collective->state == GROUPED || collective->end > begin)
			process->collectives_settled = process->collectives - 1; /* the next wait has to look again */
		else if (__sync_val_compare_and_swap(&collective->state, ENQUEUED, SETTLED) == ENQUEUED)
			tell_collective(thread, collective, end, 1);
	}
	return 0;
}

/* Keeps what is known of a communicator, and tells user space. `rank` is -1 and `size` 0 if they are not known. */
__noinline int note_communicator(struct thread *thread, __u64 value, __s32 rank, __u32 size, int is_told)
{
	struct communicator communicator = { .rank = rank, .size = size };
	struct address address;
	struct event *event;
	__u64 now;

	if (!thread || !value)
		return 0;
	address = address_at(thread, value);
	if (bpf_map_update_elem(&communicators, &address, &communicator, BPF_ANY))
		lose(NO_COMMUNICATOR);
	now = bpf_ktime_get_ns();
	event = is_told ? new_event(thread, INTERVAL_COMMUNICATOR, now, now) : 0;
	if (!event)
		return 0;
	event->communicator = value;
	event->rank = rank;
	event->communicator_size = size;
	emit(event);
	return 0;
}

/* Arguments: where the communicator is written, the number of ranks, the rank; of a communicator whose size and rank only
 * NCCL knows (split), the first; of those of all of a process's devices (IS_ARRAY), the first two. */
static __always_inline void begin_communicator(struct hit *hit, struct frame *frame)
{
	frame->communicator.result_at = wanted_argument(hit, 0);
	frame->communicator.size = wanted_argument(hit, 1);
	frame->communicator.rank = frame->communicator.size ? wanted_argument(hit, 2) : -1;
}

static __always_inline __u64 communicator_written(__u64 place)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)place);
	return value;
}

static __always_inline void end_communicator(struct hit *hit, struct frame *frame)
{
	__u32 size = frame->communicator.size;
	__u64 place = frame->communicator.result_at;

	if (has_failed(hit))
		return;
	if (!(hit->flags & IS_ARRAY)) {
		note_communicator(hit->thread, communicator_written(place), frame->communicator.rank, size, 1);
		return;
	}
	for (__u32 rank = 0; rank < DEVICES && rank < size; rank++) /* the process is all ranks, so it has none itself */
		note_communicator(hit->thread, communicator_written(place + 8 * rank), rank, size, 0);
}

/* ncclCommCount and ncclCommUserRank. Arguments: the communicator, and where the answer is written. */
static __always_inline void end_question(struct hit *hit, struct frame *frame)
{
	struct address address = address_at(hit->thread, frame->question.communicator);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &address);
	__s32 answer, rank = found ? found->rank : -1;
	__u32 size = found ? found->size : 0;

	if (has_failed(hit) || bpf_probe_read_user(&answer, sizeof(answer), (void *)frame->question.result_at))
		return;
	if (KIND_OF(hit->flags) == COMMUNICATOR_SIZE)
		size = answer;
	else
		rank = answer;
	note_communicator(hit->thread, address.value, rank, size, 1);
}

/* ncclCommDestroy and ncclCommAbort. Argument: the communicator. */
static __always_inline void forget_communicator(struct hit *hit)
{
	struct address address = address_at(hit->thread, wanted_argument(hit, 0));

	bpf_map_delete_elem(&communicators, &address);
}
