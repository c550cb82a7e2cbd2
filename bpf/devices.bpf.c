// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The device that a thread works on: the device of its current context. cudaSetDevice of the runtime API sets it too.
 *
 * A thread has a stack of contexts. `thread->devices` holds one byte for each, the current one in the lowest byte: the number
 * of the context's device + 1, or 0 if the device is not known. */

#define UNKNOWN_DEVICE (DEVICES - 1)
#define DEVICE_BITS 8
#define DEVICE_MASK ((1ULL << DEVICE_BITS) - 1)

/* The device of each context. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct address);
	__type(value, __u64);
} contexts SEC(".maps");

static __always_inline __u64 device_of(const struct thread *thread)
{
	__u64 device = thread->devices & DEVICE_MASK;

	return device ? device - 1 : UNKNOWN_DEVICE;
}

/* A device as a byte of `thread->devices`. */
static __always_inline __u64 device_byte(__u64 device)
{
	return device < UNKNOWN_DEVICE ? device + 1 : 0;
}

static __always_inline void choose_device(struct thread *thread, __u64 device)
{
	thread->devices = (thread->devices & ~DEVICE_MASK) | device_byte(device);
}

static __always_inline void push_device(struct thread *thread, __u64 device)
{
	thread->devices = thread->devices << DEVICE_BITS | device_byte(device);
}

static __always_inline __u64 device_of_context(const struct thread *thread, __u64 context)
{
	struct address address = address_at(thread, context);
	__u64 *device = bpf_map_lookup_elem(&contexts, &address);

	return device ? *device : UNKNOWN_DEVICE;
}

/* Arguments: the place for the resulting context, and the device. A created context is also pushed on the stack. */
static __always_inline void end_context(struct hit *hit, struct frame *frame)
{
	__u64 value = 0, device = (__u32)frame->context.device;
	struct address address;

	if (has_failed(hit) || bpf_probe_read_user(&value, sizeof(value), (void *)frame->context.result_at))
		return;
	address = address_at(hit->thread, value);
	if (bpf_map_update_elem(&contexts, &address, &device, BPF_ANY))
		lose(NO_CONTEXT);
	if (KIND_OF(hit->flags) == CONTEXT_CREATE)
		push_device(hit->thread, device);
}

/* The next four have one argument: the device (cudaSetDevice), or the context; cuCtxPopCurrent has none. */
static __always_inline void end_device(struct hit *hit, struct frame *frame)
{
	if (!has_failed(hit))
		choose_device(hit->thread, (__u32)frame->choice.value);
}

static __always_inline void end_context_set(struct hit *hit, struct frame *frame)
{
	if (!has_failed(hit))
		choose_device(hit->thread, device_of_context(hit->thread, frame->choice.value));
}

static __always_inline void end_context_push(struct hit *hit, struct frame *frame)
{
	if (!has_failed(hit))
		push_device(hit->thread, device_of_context(hit->thread, frame->choice.value));
}

static __always_inline void end_context_pop(struct hit *hit, struct frame *frame)
{
	if (!has_failed(hit))
		hit->thread->devices >>= DEVICE_BITS;
}
