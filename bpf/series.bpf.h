/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The series {process, operation, phase}: an HDR histogram each, in dense arrays that user space maps.
 *
 * Counters only grow (modulo 2^32) and are never cleared: readers take differences. A slot changes its owner only after
 * user space has read it for the last time. */
#pragma once

struct slot {
	__u64 count;
	__u64 sum;
	__u64 highest;
	__u64 bytes;
	__u32 row;	 /* of the process */
	__u16 operation;
	__u16 phase;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* settings.hdr_length counters for each slot. Two to an element, since the kernel rounds elements up to 8 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32[2]);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_slots SEC(".maps");

/* Gives the series a slot and returns its number + 1, or 0 if there is none left. */
__noinline __u32 claim_slot(__u32 row, __u32 operation, __u32 phase)
{
	struct process *process = process_in(row);
	__u32 number, first, cell = operation * PHASES + phase;
	struct slot *slot;

	if (!process || cell >= OPERATIONS * PHASES)
		return 0;
	if (bpf_map_pop_elem(&free_slots, &number)) {
		lose(NO_SERIES_SLOT);
		return 0;
	}
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return 0;
	slot->row = row;
	slot->operation = operation;
	slot->phase = phase;
	first = __sync_val_compare_and_swap(&process->slots[cell], 0, number + 1);
	if (!first)
		return number + 1;
	bpf_map_push_elem(&free_slots, &number, 0); /* another thread was first */
	return first;
}

/* Under contention a maximum may stay below the highest of values that came at the same moment. */
static __always_inline void raise(__u64 *maximum, __u64 value)
{
#pragma unroll
	for (int attempt = 0; attempt < 4; attempt++) {
		__u64 highest = *maximum;

		if (value <= highest || __sync_val_compare_and_swap(maximum, highest, value) == highest)
			return;
	}
}

/* Counts a value in a series of the process that has the row in this generation.
 *
 * The histogram's counter comes first and `count` last: a reader that sees `count` move sees all of the value. */
static __always_inline void add_to_row(__u32 row, __u32 generation, __u32 operation, __u32 phase, __u64 value, __u64 bytes)
{
	__u32 number, index, pair, *two;
	struct process *process = process_in(row);
	struct slot *slot;

	if (!process || process->generation != generation || process->state != LIVE)
		return;
	number = process->slots[(operation * PHASES + phase) & (OPERATIONS * PHASES - 1)];
	if (!number)
		number = claim_slot(row, operation, phase);
	number--;
	slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return;
	index = number * settings.hdr_length + hdr_index(value);
	pair = index / 2;
	two = bpf_map_lookup_elem(&counters, &pair);
	if (two)
		__sync_fetch_and_add(&two[index & 1], 1);
	__sync_fetch_and_add(&slot->sum, value);
	if (bytes)
		__sync_fetch_and_add(&slot->bytes, bytes);
	raise(&slot->highest, value);
	__sync_fetch_and_add(&slot->count, 1);
}

/* The same as a function of its own. `series` is the operation and the phase << 16. */
__noinline int count_in_row(__u32 row, __u32 generation, __u32 series, __u64 value, __u64 bytes)
{
	add_to_row(row, generation, series & 0xffff, series >> 16, value, bytes);
	return 0;
}

static __always_inline void count(const struct thread *thread, __u32 operation, __u32 phase, __u64 value, __u64 bytes)
{
	count_in_row(thread->row, thread->generation, operation | phase << 16, value, bytes);
}
