/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The Python frames of a thread: their code objects, and the instruction of each. User space knows the offsets of each version. */
#pragma once

#define PLACES 32 /* a power of two */
#define TAG 7ULL  /* Python 3.14 has flags in the lowest bits of references */
#define ROLE(frames) (1 << ((frames) & (FRAME_POSITIONS - 1))) /* of FRAMES_OF_GIVING and those after it */
#define BACKWARD_INTERVAL 100000000 /* ns: a loop calls backward at the same place each time */

/* Offsets in the structs of a process's interpreter, bytes. */
struct python {
	__u32 thread_id;      /* in the state of a thread */
	__u32 frame;	      /* in it: the innermost frame, or the place of its address */
	__u32 is_indirect;    /* `frame` is a place */
	__u32 frame_in_place;
	__u32 previous;	      /* in a frame: the frame that called it */
	__u32 code;
	__u32 instruction;    /* its address, or a number of 32 bits in the code */
	__u32 is_number;
	__u32 owner;	      /* 0 if frames have none */
	__u32 shim;	      /* the lowest owner of frames that stand for a call from C */
	__u32 thread_register; /* the distance of a thread's register from its pthread_self() */
};

/* By tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python);
} pythons SEC(".maps");

struct python_thread {
	__u64 id; /* as pthread_self() gives it */
	__u32 tgid;
	__u32 reserved;
};

/* The address of the state of each thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct python_thread);
	__type(value, __u64);
} python_threads SEC(".maps");

struct place {
	__u64 code;	   /* the address of a code object; 0 for a call from C */
	__u64 instruction; /* its address, or its number */
};

/* A function that shows the position of a thread in its loop. */
struct code_key {
	__u64 code; /* the address of its code object */
	__u32 tgid;
	__u32 reserved;
};

/* enum frame_position. User space adds the functions that it knows, once it has seen them in a stack. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct code_key);
	__type(value, __u32);
} frame_positions SEC(".maps");

/* The innermost frame is the first. */
struct stack {
	__u32 depth;
	__u32 is_cut;	 /* it has more frames */
	__u32 is_broken; /* a frame could not be read */
	__u16 position;	 /* enum frame_position, of the innermost frame that shows one */
	__u16 roles;	 /* the ROLEs that frames show */
	struct place places[PLACES];
};

/* By their hash. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct stack);
} stacks SEC(".maps");

/* A clock's interrupt may come while another program collects. */
enum collector {
	COLLECTS_BY_CLOCK,
	COLLECTS_AFTER_WAIT,
	COLLECTS_AT_BACKWARD,
	COLLECTORS,
};

/* Where a stack is collected: it is larger than a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COLLECTORS);
	__type(key, __u32);
	__type(value, struct stack);
} collected SEC(".maps");

static __always_inline int read_word(__u64 address, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)address);
}

/* The state of the current thread; 0 if it has none. A state is checked, since another thread may use its memory now. */
static __always_inline __u64 python_state(const struct python *python, __u32 tgid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct python_thread thread = { .id = thread_register(task) - python->thread_register, .tgid = tgid };
	__u64 *state = bpf_map_lookup_elem(&python_threads, &thread), id = 0;

	if (!state || read_word(*state + python->thread_id, &id) || id != thread.id)
		return 0;
	return *state;
}

static __always_inline __u64 innermost_frame(const struct python *python, __u64 state)
{
	__u64 frame = 0;

	if (read_word(state + python->frame, &frame))
		return 0;
	if (python->is_indirect && read_word(frame + python->frame_in_place, &frame))
		return 0;
	return frame;
}

static __always_inline int is_shim(const struct python *python, __u64 frame)
{
	__u8 owner = 0;

	if (!python->owner)
		return 0;
	bpf_probe_read_user(&owner, sizeof(owner), (void *)(frame + python->owner));
	return owner >= python->shim;
}

static __always_inline __u64 hashed(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

static __always_inline __u32 position_of_code(__u64 code, __u32 tgid)
{
	struct code_key key = { .code = code, .tgid = tgid };
	__u32 *position = bpf_map_lookup_elem(&frame_positions, &key);

	return position ? *position : FRAMES_OF_ELSE;
}

/* Collects the frames from `frame` on. Returns their hash. */
static __always_inline __u64 collect(const struct python *python, __u64 frame, struct stack *stack, __u32 tgid)
{
	__u64 hash = 1, mask = python->is_number ? 0xffffffff : ~0ULL;
	__u32 depth;

	stack->is_broken = 0;
	stack->position = FRAMES_OF_ELSE;
	stack->roles = 0;
	for (depth = 0; depth < PLACES && frame; depth++) {
		struct place *place = &stack->places[depth & (PLACES - 1)];
		__u64 code, instruction, called = frame;
		__u32 position;

		if (read_word(called + python->code, &code) || read_word(called + python->instruction, &instruction) ||
		    read_word(called + python->previous, &frame)) {
			stack->is_broken = 1;
			frame = 0;
			break;
		}
		code = is_shim(python, called) ? 0 : code & ~TAG;
		instruction &= mask;
		place->code = code;
		place->instruction = instruction;
		position = position_of_code(code, tgid);
		if (position >= FRAME_POSITIONS)
			stack->roles |= ROLE(position);
		else if (stack->position == FRAMES_OF_ELSE)
			stack->position = position;
		hash = hashed(hashed(hash, code), instruction);
	}
	stack->depth = depth;
	stack->is_cut = frame != 0;
	return hash;
}

/* The hash of the Python frames of the current thread, which are then in `stacks`; 0 if it runs no Python, or if they cannot be
 * read. */
__noinline __u64 python_stack(__u32 tgid, __u32 collector)
{
	struct python *python = bpf_map_lookup_elem(&pythons, &tgid);
	struct stack *stack = bpf_map_lookup_elem(&collected, &collector);
	__u64 state, frame, hash;

	if (!python || !stack)
		return 0;
	state = python_state(python, tgid);
	frame = state ? innermost_frame(python, state) : 0;
	if (!frame)
		return 0;
	hash = collect(python, frame, stack, tgid);
	if (!bpf_map_lookup_elem(&stacks, &hash))
		bpf_map_update_elem(&stacks, &hash, stack, BPF_ANY);
	return hash;
}

/* The position that the latest stack shows. */
static __always_inline __u32 position_of_stack(__u64 hash, __u32 collector)
{
	struct stack *stack = bpf_map_lookup_elem(&collected, &collector);

	return hash && stack ? stack->position & (FRAME_POSITIONS - 1) : FRAMES_OF_ELSE;
}

/* 1 while the clock runs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} samples_waits SEC(".maps");

/* Collects the stack with which the thread's loop calls backward. */
static __always_inline void note_backward(struct thread *thread, __u64 now)
{
	__u32 zero = 0, *is_sampled = bpf_map_lookup_elem(&samples_waits, &zero);

	if (!is_sampled || !*is_sampled || now < thread->next_backward_stack)
		return;
	thread->next_backward_stack = now + BACKWARD_INTERVAL;
	thread->backward_stack = python_stack(current_tgid(), COLLECTS_AT_BACKWARD);
}

enum loop_order {
	NO_ORDER,
	BEFORE_BACKWARD,
	AFTER_BACKWARD,
	GETS_AFTER_BACKWARD,
};

/* Whether the code of the latest stack of a collector stands before the call of backward in the innermost function that runs both,
 * which has the loop: then it belongs to the batch that follows. After that call, a function that this one has called may get the
 * next batch. An event loop around both runs its tasks in any order. */
__noinline int order_in_loop(__u32 collector, __u64 backward, __u32 tgid)
{
	const struct stack *stack = bpf_map_lookup_elem(&collected, &collector);
	const struct stack *call = bpf_map_lookup_elem(&stacks, &backward);
	int order = NO_ORDER;

	if (!stack || !call || stack->is_cut || stack->is_broken || call->is_cut || call->is_broken)
		return NO_ORDER;
	for (__u32 outer = 1; outer <= PLACES && outer <= stack->depth; outer++) {
		const struct place *place = &stack->places[(stack->depth - outer) & (PLACES - 1)];
		const struct place *calls = &call->places[(call->depth - outer) & (PLACES - 1)];
		__u32 role = position_of_code(place->code, tgid);

		if (order == AFTER_BACKWARD) {
			if (role == FRAMES_OF_TAKING)
				return GETS_AFTER_BACKWARD;
			continue;
		}
		if (outer > call->depth || place->code != calls->code || role == FRAMES_OF_SWITCHING)
			return NO_ORDER;
		if (place->code && place->instruction != calls->instruction) {
			if (place->instruction < calls->instruction)
				return BEFORE_BACKWARD;
			order = AFTER_BACKWARD;
		}
	}
	return order;
}

static __always_inline void count_before_backward(struct thread *thread, __u32 state, __u64 waited)
{
	__u32 wait = state - THREAD_GIL;

	if (state == THREAD_UNKNOWN || state == THREAD_POLLING)
		wait = WAITS - 1;
	else if (wait > THREAD_TIMER - THREAD_GIL)
		return;
	thread->before_backward[wait & (WAITS - 1)] += waited / 1000;
}

static __always_inline int is_transfer(__u32 state)
{
	return state == THREAD_FILE || state == THREAD_SOCKET || state == THREAD_PIPE || state == THREAD_POLLING;
}

/* Counts a wait whose stack has just been collected. A thread that waits for a lock gets no batch if it hands something on, or if the
 * wait stands after the backward pass and not in a function that gets something. Not static: see `lose`. */
__noinline int count_for_batch(struct thread *thread, __u32 state, __u64 waited)
{
	__u32 collector = COLLECTS_AFTER_WAIT;
	const struct stack *wait = bpf_map_lookup_elem(&collected, &collector);
	int order;

	if (!thread || !wait)
		return 0;
	order = order_in_loop(collector, thread->backward_stack, current_tgid());
	if (order == BEFORE_BACKWARD)
		count_before_backward(thread, state, waited);
	if (state == THREAD_LOCK && (wait->roles & ROLE(FRAMES_OF_GIVING) || order == AFTER_BACKWARD))
		thread->giving += waited;
	if (order == AFTER_BACKWARD && is_transfer(state) && !thread->is_off_writing)
		thread->after_backward += waited;
	return 0;
}

/* Counts a sample of the clock whose stack has just been collected. */
static __always_inline void count_sample_for_batch(struct thread *thread, __u32 tgid)
{
	int order = order_in_loop(COLLECTS_BY_CLOCK, thread->backward_stack, tgid);

	if (order == BEFORE_BACKWARD)
		thread->sampled_before++;
	if (order == AFTER_BACKWARD)
		thread->sampled_after++;
}
