/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who took the CPU: what ran on it while a thread of a job could run and waited in its queue.
 *
 * The kernel adds such a wait to run_delay just after the thread gets the CPU. So the wait is known when the thread leaves it
 * again. Then the latest runs of this CPU show who had it in that time. Nobody took the time in which nothing ran. */
#pragma once

#define RUNS 64 /* that a CPU remembers; a power of two */
#define LEAST_CPU_WAIT 20000 /* ns */

struct taker_key {
	__u32 row; /* of the process that waited */
	__u32 generation;
	__u32 tgid; /* of the process that ran, in the initial pid namespace */
	__u32 reserved;
};

struct taken_time {
	__u64 ns;
	char name[16]; /* of the process that ran */
};

/* Puts the types into the object, for a test that compares them with those in Python. */
const struct taker_key taker_key_type SEC("types") = {};
const struct taken_time taken_time_type SEC("types") = {};

/* User space removes what it reads. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct taker_key);
	__type(value, struct taken_time);
} cpu_takers SEC(".maps");

struct cpu_run {
	__u64 since; /* ns */
	__u64 tgid; /* 0 for no process */
	char name[16];
};

struct cpu_runs {
	__u64 count; /* so far */
	struct cpu_run runs[RUNS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_runs);
} cpu_runs SEC(".maps");

/* The task gets this CPU. */
static __always_inline void note_run(struct task_struct *next)
{
	__u32 zero = 0;
	struct cpu_runs *cpu = bpf_map_lookup_elem(&cpu_runs, &zero);
	struct cpu_run *run;

	if (!cpu)
		return;
	run = &cpu->runs[cpu->count++ & (RUNS - 1)];
	run->since = bpf_ktime_get_ns();
	run->tgid = next->tgid;
	__builtin_memcpy(run->name, next->group_leader->comm, sizeof(run->name));
}

static __always_inline void charge_taker(const struct thread *thread, const struct cpu_run *run, __u64 ns)
{
	struct taker_key key = { .row = thread->row, .generation = thread->generation, .tgid = run->tgid };
	struct taken_time *taken = bpf_map_lookup_elem(&cpu_takers, &key), first = { .ns = ns };

	if (taken) {
		__sync_fetch_and_add(&taken->ns, ns);
		return;
	}
	__builtin_memcpy(first.name, run->name, sizeof(first.name));
	bpf_map_update_elem(&cpu_takers, &key, &first, BPF_NOEXIST);
}

/* Charges a run for its part of a wait, and returns its begin. Not inlined, so that the loop of its caller ends with a jump: before
 * Linux 6.7 the verifier refuses other loops. */
static __noinline __u64 charge_run(const struct thread *thread, const struct cpu_run *run, __u64 start, __u64 end)
{
	__u64 since = run->since > start ? run->since : start;

	if (run->tgid && end > since)
		charge_taker(thread, run, end - since);
	return run->since;
}

/* The thread leaves this CPU: now its wait for it is known, up to `now` (ns) in all. Not static: see `lose`. */
__noinline int charge_takers(struct thread *thread, __u64 now)
{
	__u64 before, end, start;
	__u32 zero = 0;
	struct cpu_runs *cpu = bpf_map_lookup_elem(&cpu_runs, &zero);

	if (!thread)
		return 0;
	before = thread->run_delay;
	thread->run_delay = now;
	if (!cpu || !before || now < before + LEAST_CPU_WAIT || thread->is_worker)
		return 0;
	end = cpu->runs[(cpu->count - 1) & (RUNS - 1)].since; /* its own run */
	start = end - (now - before);
	for (int i = 2; i < RUNS && end > start; i++)
		end = charge_run(thread, &cpu->runs[(cpu->count - i) & (RUNS - 1)], start, end);
	return 0;
}
