// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Communicators of NCCL: their ranks, sizes and ids, and the number of collectives on each. */

struct communicator {
	__s32 rank;
	__u32 size;
	__u64 id; /* the first bytes of NCCL's unique id, which all ranks share; 0 if not known */
	__u32 is_counted; /* 1 if its creation was seen */
	__u32 collectives; /* since its creation */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, struct communicator);
} communicators SEC(".maps");

/* Remembers a communicator, or more about it; with `has_event`, also emits an event. An unknown rank is -1, an unknown size
 * is 0. */
__noinline int note_communicator(struct thread *thread, __u64 value, __s32 rank, __u32 size, int has_event)
{
	struct communicator communicator = { .rank = rank, .size = size };
	struct communicator *found;
	struct address address;
	struct event *event;
	__u64 now;

	if (!thread || !value)
		return 0;
	address = address_at(thread, value);
	found = bpf_map_lookup_elem(&communicators, &address);
	if (found) {
		found->rank = rank;
		found->size = size;
	} else if (bpf_map_update_elem(&communicators, &address, &communicator, BPF_ANY)) {
		lose(NO_COMMUNICATOR);
	}
	now = bpf_ktime_get_ns();
	event = has_event ? new_event(thread, INTERVAL_COMMUNICATOR, now, now) : 0;
	if (!event)
		return 0;
	event->facts.communication.communicator = value;
	event->facts.communication.rank = rank;
	event->facts.communication.size = size;
	emit(event);
	return 0;
}

/* Starts the count of a communicator's collectives. An earlier communicator may have had the same address. */
static __always_inline void begin_counting(struct thread *thread, __u64 value, __u64 id)
{
	struct address address = address_at(thread, value);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &address);

	if (!found)
		return;
	found->id = id;
	found->collectives = 0;
	found->is_counted = 1;
}

/* The first 8 bytes of the unique id: on x86-64 the argument itself, which lies on the stack; else it is passed by reference. */
static __always_inline __u64 unique_id(__u64 argument)
{
#ifdef __TARGET_ARCH_arm64
	__u64 value = 0;

	if (argument)
		bpf_probe_read_user(&value, sizeof(value), (void *)argument);
	return value;
#else
	return argument;
#endif
}

/* Arguments: the place for the resulting communicator, the number of ranks, the rank, the unique id. ncclCommSplit has only the first: NCCL
 * computes the others. ncclCommInitAll (IS_ARRAY) has the first two: it creates one communicator for each device. */
static __always_inline void begin_communicator(struct hit *hit, struct frame *frame)
{
	frame->communicator.result_at = needed_argument(hit, 0);
	frame->communicator.size = needed_argument(hit, 1);
	frame->communicator.rank = frame->communicator.size ? needed_argument(hit, 2) : -1;
	frame->communicator.id = unique_id(needed_argument(hit, 3));
}

static __always_inline __u64 communicator_at(__u64 place)
{
	__u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)place);
	return value;
}

static __always_inline void end_communicator(struct hit *hit, struct frame *frame)
{
	__u32 size = frame->communicator.size;
	__u64 result_at = frame->communicator.result_at;

	if (has_failed(hit))
		return;
	if (!(hit->flags & IS_ARRAY)) {
		__u64 value = communicator_at(result_at);

		note_communicator(hit->thread, value, frame->communicator.rank, size, 1);
		begin_counting(hit->thread, value, frame->communicator.id);
		return;
	}
	for (__u32 rank = 0; rank < DEVICES && rank < size; rank++) { /* no events: the process is not one rank, but all of them */
		__u64 value = communicator_at(result_at + 8 * rank);

		note_communicator(hit->thread, value, rank, size, 0);
		begin_counting(hit->thread, value, 0);
	}
}

/* ncclCommCount and ncclCommUserRank. Arguments: the communicator, and the place for the result. */
static __always_inline void end_question(struct hit *hit, struct frame *frame)
{
	struct address address = address_at(hit->thread, frame->question.communicator);
	struct communicator *found = bpf_map_lookup_elem(&communicators, &address);
	__s32 result, rank = found ? found->rank : -1;
	__u32 size = found ? found->size : 0;

	if (has_failed(hit) || bpf_probe_read_user(&result, sizeof(result), (void *)frame->question.result_at))
		return;
	if (KIND_OF(hit->flags) == COMMUNICATOR_SIZE)
		size = result;
	else
		rank = result;
	note_communicator(hit->thread, address.value, rank, size, 1);
}

/* ncclCommDestroy and ncclCommAbort. Argument: the communicator. */
static __always_inline void forget_communicator(struct hit *hit)
{
	struct address address = address_at(hit->thread, needed_argument(hit, 0));

	bpf_map_delete_elem(&communicators, &address);
}
