// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* CUDA calls that carry more than a duration: copies (bytes), and allocations (memory held on each device). */

#define LAST_COPY_KIND 4 /* cudaMemcpyDefault, the last of enum cudaMemcpyKind */

/* Arguments: the number of bytes; the direction, if the function has that parameter. The direction is added to the
 * operation. */
static __always_inline void begin_copy(struct hit *hit, struct frame *frame)
{
	__u64 kind = needed_argument(hit, 1);

	frame->copy.bytes = needed_argument(hit, 0);
	frame->copy.direction = kind > LAST_COPY_KIND ? LAST_COPY_KIND : kind;
	frame->copy.blocked = hit->thread->blocked;
	if (hit->flags & IS_BLOCKING)
		take_begin(hit->thread, &frame->begin, bpf_ktime_get_ns());
	if (hit->flags & IS_BLOCKING && OPERATION_OF(hit->flags) + frame->copy.direction != COPY_HOST_TO_DEVICE)
		wait_in_copy(hit->thread);
}

static __always_inline void end_copy(struct hit *hit, struct frame *frame)
{
	__u64 duration = hit->time - frame->start, bytes = has_failed(hit) ? 0 : frame->copy.bytes;

	count(hit->thread, OPERATION_OF(frame->flags) + frame->copy.direction, frame->phase, duration, bytes);
	if (OPERATION_OF(frame->flags) + frame->copy.direction == COPY_HOST_TO_DEVICE) {
		hit->thread->copies++;
		hit->thread->copied += bytes;
	}
	if (frame->flags & IS_BLOCKING)
		end_wait(hit, frame);
}

/* Memory */

struct memory {
	__u64 used;
	__u64 peak;
	__u64 allocations;
	__u64 frees;
};

/* Each row of the process table has DEVICES elements. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, DEVICES);
	__type(key, __u32);
	__type(value, struct memory);
} memory SEC(".maps");

struct allocation {
	__u64 size;
	__u64 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct address);
	__type(value, struct allocation);
} allocations SEC(".maps");

static __always_inline struct memory *memory_of(const struct thread *thread, __u32 device)
{
	__u32 index = thread->row * DEVICES + (device < DEVICES ? device : UNKNOWN_DEVICE);

	return bpf_map_lookup_elem(&memory, &index);
}

static __always_inline struct address address_of(const struct thread *thread, const struct frame *frame, __u64 value)
{
	struct address address = { .value = value,
				   .row = thread->row,
				   .generation = thread->generation,
				   .is_handle = !!(frame->flags & IS_HANDLE) };

	return address;
}

/* Removes the allocation at an address and returns it. Its size is 0 if none is known. */
static __always_inline struct allocation remove_allocation(const struct address *address)
{
	struct allocation *found = bpf_map_lookup_elem(&allocations, address), none = { .device = UNKNOWN_DEVICE };

	if (!found)
		return none;
	none = *found;
	bpf_map_delete_elem(&allocations, address);
	return none;
}

static __always_inline void subtract(const struct thread *thread, const struct allocation *allocation, __u32 frees)
{
	struct memory *memory = memory_of(thread, allocation->device);

	if (!memory)
		return;
	__sync_fetch_and_add(&memory->frees, frees);
	__sync_fetch_and_add(&memory->used, -allocation->size);
}

#define LOCATION_TYPE_DEVICE 1 /* of enum CUmemLocationType */

/* The first fields of CUmemAllocationProp. */
struct allocation_properties {
	__u32 type;
	__u32 handle_types;
	__u32 location_type;
	__u32 location;
};

/* Arguments: the place for the resulting address; the size; the CUmemAllocationProp that names a device, if the function has
 * one. Otherwise memory is allocated on the thread's current device. */
static __always_inline void begin_allocation(struct hit *hit, struct frame *frame)
{
	struct allocation_properties properties = {};
	__u64 properties_at = needed_argument(hit, 2);

	frame->allocation.result_at = needed_argument(hit, 0);
	frame->allocation.size = needed_argument(hit, 1);
	frame->allocation.device = device_of(hit->thread);
	if (properties_at && !bpf_probe_read_user(&properties, sizeof(properties), (void *)properties_at))
		frame->allocation.device =
			properties.location_type == LOCATION_TYPE_DEVICE ? properties.location : UNKNOWN_DEVICE;
}

static __always_inline void end_allocation(struct hit *hit, struct frame *frame)
{
	struct thread *thread = hit->thread;
	struct allocation allocation, missed;
	struct address address;
	struct memory *memory;
	__u64 value = 0;

	if (has_failed(hit) || bpf_probe_read_user(&value, sizeof(value), (void *)frame->allocation.result_at))
		return;
	allocation.size = frame->allocation.size;
	allocation.device = frame->allocation.device;
	address = address_of(thread, frame, value);
	missed = remove_allocation(&address); /* an address that is in use again was freed by a call without a probe */
	subtract(thread, &missed, 0);
	memory = memory_of(thread, allocation.device);
	if (!memory)
		return;
	__sync_fetch_and_add(&memory->allocations, 1);
	if (bpf_map_update_elem(&allocations, &address, &allocation, BPF_ANY))
		lose(NO_ALLOCATION); /* its release could not be subtracted, so it is not added either */
	else
		raise(&memory->peak, __sync_fetch_and_add(&memory->used, allocation.size) + allocation.size);
}

/* Argument: the address. The entry already removes the allocation, since another thread may get the same address before
 * this call returns. */
static __always_inline void begin_release(struct hit *hit, struct frame *frame)
{
	struct address address = address_of(hit->thread, frame, needed_argument(hit, 0));
	struct allocation allocation = remove_allocation(&address);

	frame->release.value = address.value;
	frame->release.size = allocation.size;
	frame->release.device = allocation.device;
}

static __always_inline void end_release(struct hit *hit, struct frame *frame)
{
	struct allocation allocation = { .size = frame->release.size, .device = frame->release.device };
	struct address address = address_of(hit->thread, frame, frame->release.value);

	if (!address.value) /* releasing null does nothing */
		return;
	if (!has_failed(hit))
		subtract(hit->thread, &allocation, 1);
	else if (allocation.size)
		bpf_map_update_elem(&allocations, &address, &allocation, BPF_ANY);
}
