// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A clock on each CPU samples the code that the threads of training processes run: PyTorch's, Python's or another library's. After
 * a wait, the thread collects its own stack at the end of the system call. */

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
	__u16 place; /* of the thread: the kind of its latest mark */
	__u8 code;   /* CODE_NONE after a wait */
	__u8 state;  /* enum thread_state: of the wait, or of the call that runs */
	__u64 stack; /* its hash in `stacks`; 0 without Python frames */
	__u32 worker; /* its pid in the collector's pid namespace; 0 for the training process itself */
	__u32 reserved;
};

struct sample_count {
	__u64 count;
	__u64 ns; /* that taking the samples took */
	__u64 lasted; /* ns: of the waits, or between the ticks */
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

static __always_inline void count_sample(const struct sample_key *key, __u64 began, __u64 lasted)
{
	struct sample_count *counted = bpf_map_lookup_elem(&samples, key), first = { .count = 1, .lasted = lasted };

	if (counted) {
		__sync_fetch_and_add(&counted->count, 1);
		__sync_fetch_and_add(&counted->lasted, lasted);
		__sync_fetch_and_add(&counted->ns, bpf_ktime_get_ns() - began);
		return;
	}
	first.ns = bpf_ktime_get_ns() - began;
	if (bpf_map_update_elem(&samples, key, &first, BPF_ANY))
		lose(NO_SAMPLE);
}

static __always_inline __u32 state_of(const struct thread *thread)
{
	struct thread_times *times = times_of(thread);

	return times ? times->state : THREAD_ON_CPU;
}

/* Adds a sample to the counters of its thread. In most calls of CUDA and NCCL the state of the thread says what it does. */
static __always_inline void count_in_thread(struct thread *thread, __u32 state, __u32 code, __u32 position, __u64 ns)
{
	if (state != THREAD_ON_CPU && state != THREAD_CALLING && state != THREAD_LAUNCHING)
		code = CODE_NONE;
	thread->samples[code & (CODES - 1)]++;
	thread->frame_times[position & (FRAME_POSITIONS - 1)] += ns / 1000;
}

/* The training process of the current thread, or the one that it serves as a worker; null if it is not sampled. User space
 * chooses the workers that are: those whose Python it knows. */
static __always_inline struct process *sampled_process(__u32 tgid, struct sample_key *key)
{
	__u32 *row = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	struct worker *worker = row ? 0 : bpf_map_lookup_elem(&workers, &tgid);
	struct process *process;

	if (worker && bpf_map_lookup_elem(&pythons, &tgid)) {
		row = &worker->row;
		key->worker = worker->pid;
	}
	process = row ? process_in(*row) : 0;
	if (!process || process->state != LIVE || !process->trains)
		return 0;
	if (worker && worker->generation != process->generation)
		return 0;
	key->row = *row;
	key->generation = process->generation;
	return process;
}

/* Forked workers have that of the process that they serve. */
static __always_inline struct executable *executable_of(__u32 tgid, const struct process *process)
{
	struct executable *executable = bpf_map_lookup_elem(&executables, &tgid);
	__u32 served = process->tgid;

	return executable || served == tgid ? executable : bpf_map_lookup_elem(&executables, &served);
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
	__u32 tgid = current_tgid();
	struct sample_key key = {};
	struct process *process = sampled_process(tgid, &key);
	struct executable *executable = process ? executable_of(tgid, process) : 0;
	struct thread *thread;

	if (!executable)
		return 0;
	thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	key.code = running_code(executable);
	key.stack = python_stack(tgid, COLLECTS_BY_CLOCK);
	if (thread && thread->generation == key.generation && !key.worker) {
		key.tid = thread->tid;
		key.place = thread->place;
		key.state = state_of(thread);
		count_in_thread(thread, key.state, key.code, position_of_stack(key.stack, COLLECTS_BY_CLOCK), tick->period);
		if (key.stack && key.state == THREAD_ON_CPU)
			count_sample_for_batch(thread, tgid);
	}
	count_sample(&key, began, tick->period);
	return 0;
}

#define WAIT_INTERVAL 5000000 /* ns: at most 200 stacks a second of one thread, */
#define WAIT_BURST 100000000  /* ns: after a pause that many at once as fit into this time */

/* Whether the thread on this CPU has waited. Every system call of the machine asks this. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} has_waited SEC(".maps");

static __always_inline void note_wait(struct thread *thread, __u64 ns)
{
	if (thread->off_in_system_call)
		thread->waited += ns;
}

/* The thread gets this CPU. It may be null. */
static __always_inline void announce_wait(const struct thread *thread)
{
	__u32 zero = 0, *waited = bpf_map_lookup_elem(&has_waited, &zero);

	if (waited)
		*waited = thread && thread->waited >= settings.shortest_wait;
}

/* A token bucket. What a refused stack would have stood for, the next one stands for. */
static __always_inline int may_collect(struct thread *thread, __u64 now)
{
	__u64 next = thread->next_wait > now ? thread->next_wait : now;

	if (next > now + WAIT_BURST)
		return 0;
	thread->next_wait = next + WAIT_INTERVAL;
	return 1;
}

/* Counts the stack of the current thread for the time that it has waited. Not static: see `lose`. */
__noinline int count_wait(void)
{
	__u64 began = bpf_ktime_get_ns(), waited;
	__u32 tgid = current_tgid(), zero = 0, *is_sampled = bpf_map_lookup_elem(&samples_waits, &zero);
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	struct sample_key key = {};

	if (!thread)
		return 0;
	waited = thread->waited;
	if (!is_sampled || !*is_sampled || !sampled_process(tgid, &key) || thread->generation != key.generation) {
		thread->waited = 0;
		return 0;
	}
	if (!may_collect(thread, began))
		return 0;
	thread->waited = 0;
	key.tid = key.worker ? 0 : thread->tid;
	key.place = key.worker ? 0 : thread->place;
	key.state = thread->off_state;
	key.stack = python_stack(tgid, COLLECTS_AFTER_WAIT);
	thread->frame_times[position_of_stack(key.stack, COLLECTS_AFTER_WAIT)] += waited / 1000;
	if (key.stack)
		count_for_batch(thread, key.state, waited);
	count_sample(&key, began, waited);
	return 0;
}

/* A system call ends. */
static __always_inline void sample_wait(void)
{
	__u32 zero = 0, *waited = bpf_map_lookup_elem(&has_waited, &zero);

	if (!waited || !*waited)
		return;
	*waited = 0;
	count_wait();
}
