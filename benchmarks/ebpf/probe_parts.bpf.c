// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Programs with increasing parts of `probe` in bpf/probe.bpf.c, to measure the cost of each part. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

struct task_struct;

struct state {
	__u64 start;
	__u64 sum;
	__u64 count;
	__u64 hits;
	__u32 counters[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct state);
} states SEC(".maps");

extern _Bool bpf_session_is_return(void) __ksym;

static __always_inline struct state *current_state(void)
{
	return bpf_task_storage_get(&states, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

SEC("uprobe")
int nothing(void *ctx)
{
	return 0;
}

SEC("uprobe")
int which_end(void *ctx)
{
	int end = bpf_session_is_return();

	barrier_var(end);
	return end & 1; /* the verifier accepts only 0 and 1 */
}

SEC("uprobe")
int cookie(void *ctx)
{
	return bpf_session_is_return() ? 0 : bpf_get_attach_cookie(ctx) == 1;
}

SEC("uprobe")
int thread_state(void *ctx)
{
	int begins = !bpf_session_is_return(), skip = begins ? bpf_get_attach_cookie(ctx) == 1 : 0;
	struct state *state = current_state();

	if (state && begins)
		state->start = 1;
	return skip;
}

SEC("uprobe")
int clock(void *ctx)
{
	int begins = !bpf_session_is_return(), skip = begins ? bpf_get_attach_cookie(ctx) == 1 : 0;
	struct state *state = current_state();
	__u64 now = bpf_ktime_get_ns();

	if (!state)
		return skip;
	if (begins)
		state->start = now;
	else
		state->sum += now - state->start;
	return skip;
}

SEC("uprobe")
int counters(void *ctx)
{
	int begins = !bpf_session_is_return(), skip = begins ? bpf_get_attach_cookie(ctx) == 1 : 0;
	struct state *state = current_state();
	__u64 now = bpf_ktime_get_ns();

	if (!state)
		return skip;
	if (begins) {
		__sync_fetch_and_add(&state->hits, 1);
		state->start = now;
		return skip;
	}
	__sync_fetch_and_add(&state->counters[(now - state->start) & 63], 1);
	__sync_fetch_and_add(&state->sum, now - state->start);
	__sync_fetch_and_add(&state->count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
