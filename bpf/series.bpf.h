/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One HDR histogram for each series {process, operation, phase}, in dense arrays that user space maps.
 *
 * The kernel never clears counters, which grow modulo 2^32: readers compute differences. A slot gets another series only
 * after user space has read it for the last time. */
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

/* Each slot has settings.hdr_length counters. An element holds two, since the kernel rounds elements up to 8 bytes. */
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

/* Gives the series a slot. Returns the slot's number + 1; 0 if no slot is free. */
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
	bpf_map_push_elem(&free_slots, &number, 0); /* another thread claimed one first */
	return first;
}

/* Raises a maximum to at least `value`. After four lost races it gives up, so concurrent values may be missed. */
static __always_inline void raise(__u64 *maximum, __u64 value)
{
#pragma unroll
	for (int attempt = 0; attempt < 4; attempt++) {
		__u64 highest = *maximum;

		if (value <= highest || __sync_val_compare_and_swap(maximum, highest, value) == highest)
			return;
	}
}

/* Counts a value in a series of the process, if it still has the row in this generation.
 *
 * The histogram's counter is written first and `count` last: a reader that finds a higher `count` finds the whole value. */
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

/* The same as a global function. `series` is the operation, plus the phase << 16. */
__noinline int count_in_row(__u32 row, __u32 generation, __u32 series, __u64 value, __u64 bytes)
{
	add_to_row(row, generation, series & 0xffff, series >> 16, value, bytes);
	return 0;
}

static __always_inline void count(const struct thread *thread, __u32 operation, __u32 phase, __u64 value, __u64 bytes)
{
	count_in_row(thread->row, thread->generation, operation | phase << 16, value, bytes);
}
