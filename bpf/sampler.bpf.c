// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A clock on each CPU samples the code that the threads of training processes run: PyTorch's, Python's or another library's. */

#define CODE_RANGES 256 /* a power of two */
#define CODE_STEPS 9	/* of a binary search in so many ranges */
#define STACK_WORDS 128

struct code_range {
	__u64 begin;
	__u32 size;
	__u32 code;
};

/* The executable memory of a process, sorted by address. */
struct executable {
	__u32 count;
	__u32 reserved;
	struct code_range ranges[CODE_RANGES];
};

/* By tgid. User space writes those of the processes that train. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct executable);
} executables SEC(".maps");

struct sample_key {
	__u32 row;
	__u32 generation;
	__u32 tid; /* in the collector's pid namespace; 0 for all threads that make no probed calls */
	__u32 code;
	__u64 stack; /* its hash in `stacks`; 0 without Python frames */
};

struct sample_count {
	__u64 count;
	__u64 ns; /* that taking the samples took */
};

/* User space removes what it reads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sample_key);
	__type(value, struct sample_count);
} samples SEC(".maps");

/* The code at an address. */
__noinline __u32 code_at(const struct executable *executable, __u64 address)
{
	__u32 low = 0, high;
	const struct code_range *range;

	if (!executable)
		return CODE_NONE;
	high = executable->count;
	for (int step = 0; step < CODE_STEPS && low < high; step++) {
		__u32 middle = (low + high) / 2;

		if (executable->ranges[middle & (CODE_RANGES - 1)].begin <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return CODE_NONE;
	low--;
	barrier_var(low);
	range = &executable->ranges[low & (CODE_RANGES - 1)];
	return address - range->begin < range->size ? range->code : CODE_NONE;
}

static __always_inline int is_own(__u32 code)
{
	return code != CODE_NONE && code != CODE_SHARED;
}

/* The code that called shared code: the first return address with an owner on the stack. A value that an earlier call has left
 * there may be taken for one. Compilers keep no frame pointers in PyTorch and in the C library. */
static __always_inline __u32 caller_of(const struct executable *executable, const struct registers *regs)
{
	__u32 code = code_at(executable, return_address_of(regs));
	__u64 sp = regs->sp;

	for (int word = 0; word < STACK_WORDS && !is_own(code); word++) {
		__u64 address;

		if (bpf_probe_read_user(&address, sizeof(address), (void *)(sp + word * sizeof(address))))
			break;
		code = code_at(executable, address);
	}
	return code;
}

static __always_inline __u32 running_code(const struct executable *executable)
{
	const struct registers *regs = (struct registers *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u32 code = code_at(executable, instruction_of(regs));

	if (!is_own(code))
		code = caller_of(executable, regs);
	return is_own(code) ? code : CODE_NATIVE;
}

static __always_inline void count_sample(const struct sample_key *key, __u64 began)
{
	struct sample_count *counted = bpf_map_lookup_elem(&samples, key), first = { .count = 1 };

	if (counted) {
		__sync_fetch_and_add(&counted->count, 1);
		__sync_fetch_and_add(&counted->ns, bpf_ktime_get_ns() - began);
		return;
	}
	first.ns = bpf_ktime_get_ns() - began;
	if (bpf_map_update_elem(&samples, key, &first, BPF_ANY))
		lose(NO_SAMPLE);
}

/* Adds a sample to the counters of its thread. In most calls of CUDA and NCCL the state of the thread says what it does. */
static __always_inline void count_in_thread(struct thread *thread, __u32 code, __u64 period)
{
	struct thread_times *times = times_of(thread);
	__u32 state = times ? times->state : THREAD_ON_CPU;

	if (state != THREAD_ON_CPU && state != THREAD_CALLING && state != THREAD_LAUNCHING)
		code = CODE_NONE;
	thread->samples[code & (CODES - 1)]++;
	thread->frame_times[FRAMES_OF_ELSE] += period / 1000;
}

/* `struct bpf_perf_event_data` of linux/bpf_perf_event.h */
struct tick {
	__u64 regs[USER_REGISTERS];
	__u64 period; /* ns */
};

SEC("perf_event")
int sample(struct tick *tick)
{
	__u64 began = bpf_ktime_get_ns();
	__u32 tgid = current_tgid(), *row = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	struct process *process = row ? process_in(*row) : 0;
	struct executable *executable;
	struct sample_key key = {};
	struct thread *thread;

	if (!process || process->state != LIVE || !process->trains)
		return 0;
	executable = bpf_map_lookup_elem(&executables, &tgid);
	if (!executable)
		return 0;
	thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	key.row = *row;
	key.generation = process->generation;
	key.code = running_code(executable);
	if (thread && thread->generation == process->generation) {
		key.tid = thread->tid;
		count_in_thread(thread, key.code, tick->period);
	}
	key.stack = python_stack(tgid);
	count_sample(&key, began);
	return 0;
}
