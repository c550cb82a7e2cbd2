// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Collectives of NCCL.
 *
 * A call of NCCL only enqueues a collective. Two durations are counted for each:
 *   host_enqueue      from the call's entry to its return. In a group, NCCL launches nothing before the outermost
 *                     ncclGroupEnd, so the duration lasts until that returns.
 *   host_upper_bound  from the call's entry until the host has next waited for the GPU, when the collective is over.
 * A wait for any stream ends a collective: frameworks run collectives on streams of their own, make the computing stream
 * wait for those on the GPU, and make the host wait for the computing stream. Until then a collective is pending, in a ring
 * of PENDING elements per process. */

#define PENDING 64

enum collective_state {
	SETTLED, /* over, failed, or never used */
	GROUPED,
	ENQUEUED,
};

struct collective {
	__u64 begin;
	__u64 end;
	__u64 bytes;
	__u64 communicator;
	__u32 generation; /* of the process's row: elements of an earlier process are ignored */
	__u32 state;
	__u32 tid;
	__u32 flags;
	__u32 phase;
	__u32 sequence; /* on its communicator; 0 if not known */
};

/* Each row of the process table has PENDING elements. */
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

/* The factor from a collective's count to its data: all_gather and reduce_scatter are given the count of one rank. */
static __always_inline __u32 parts_of(struct hit *hit, __u64 communicator)
{
	struct address address = address_at(hit->thread, communicator);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &address);
	struct process *process = process_of(hit->thread);

	if (!(hit->flags & IS_PER_RANK))
		return 1;
	if (found)
		return found->size ? found->size : 1; /* 0: made by a split, of some of the job's ranks */
	if (process && process->world_size)
		return process->world_size;
	return process && process->group_ranks ? process->group_ranks : 1;
}

/* Arguments: count, element type, communicator. */
static __always_inline void begin_collective(struct hit *hit, struct frame *frame)
{
	frame->collective.communicator = needed_argument(hit, 2);
	take_begin(hit->thread, &frame->begin, bpf_ktime_get_ns());
	frame->collective.bytes = needed_argument(hit, 0) * element_size(needed_argument(hit, 1)) *
				  parts_of(hit, frame->collective.communicator);
}

/* Counts a collective and emits its event: as enqueued (`is_over` 0) or as over (`is_over` 1). `begin` is the snapshot at its
 * call, if that ends now. */
__noinline int emit_collective(struct thread *thread, struct collective *collective, __u64 end, __u32 is_over,
			       struct snapshot *begin)
{
	struct communicator *communicator;
	struct address address;
	struct event *event;
	__u32 operation;

	if (!thread || !collective)
		return 0;
	operation = OPERATION_OF(collective->flags) + (is_over ? UPPER_BOUND : 0);
	count(thread, operation, collective->phase, end - collective->begin, is_over ? 0 : collective->bytes);
	event = new_event(thread, INTERVAL_COLLECTIVE, collective->begin, end);
	if (!event)
		return 0;
	event->tid = collective->tid;
	event->phase = collective->phase;
	event->operation = operation;
	event->flags = collective->flags;
	event->facts.communication.bytes = collective->bytes;
	event->facts.communication.communicator = collective->communicator;
	event->facts.communication.rank = -1;
	address = address_at(thread, collective->communicator);
	communicator = bpf_map_lookup_elem(&communicators, &address);
	if (communicator) {
		event->facts.communication.rank = communicator->rank;
		event->facts.communication.size = communicator->size;
		event->facts.communication.id = communicator->id;
	}
	event->sequence = collective->sequence;
	if (begin)
		add_snapshots(event, begin, &thread->now);
	emit(event);
	return 0;
}

/* The number of a collective on its communicator, the same on all ranks. Sends and receives have none: they are calls of two
 * ranks only. */
static __always_inline __u32 next_sequence(struct hit *hit, __u64 value)
{
	struct address address = address_at(hit->thread, value);
	__u32 operation = OPERATION_OF(hit->flags);
	struct communicator *communicator;

	if (operation == SEND || operation == RECEIVE)
		return 0;
	communicator = bpf_map_lookup_elem(&communicators, &address);
	return communicator && communicator->is_counted ? __sync_fetch_and_add(&communicator->collectives, 1) + 1 : 0;
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
	collective->sequence = next_sequence(hit, frame->collective.communicator);
	if (hit->thread->group_depth) {
		collective->state = GROUPED;
		return;
	}
	collective->state = ENQUEUED;
	take_end(hit->thread, &hit->thread->now, hit->time);
	emit_collective(hit->thread, collective, hit->time, 0, &frame->begin);
}

/* ncclGroupStart, and with IS_GROUP_END ncclGroupEnd. A failed ncclGroupEnd also ends the group, but launches nothing. */
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
			emit_collective(thread, collective, hit->time, 0, 0);
	}
}

/* The host has waited for the GPU from `begin` to `end`: collectives that were enqueued before `begin` are over. */
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
			process->collectives_settled = process->collectives - 1; /* so that the next wait checks again */
		else if (__sync_val_compare_and_swap(&collective->state, ENQUEUED, SETTLED) == ENQUEUED)
			emit_collective(thread, collective, end, 1, 0);
	}
	return 0;
}
