// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The work of devices, from a CUPTI library in the process that publishes its records by USDT (provider `parcagpu`).
 *
 * A record has the begin and the end of a kernel or of a copy, as CUPTI's clock gives them. A job has up to 100,000 of them a
 * second. Therefore only the busy time of each BIN is kept. BINS bins go to user space as one event. */

#define BINS NAME_LENGTH	 /* one byte each */
#define BIN_NS 200000ULL	 /* the resolution of a segment's busy time */
#define WINDOW_NS (BINS * BIN_NS)
#define WHOLE_BIN 255
#define RECORDS 128 /* of one batch, at most: ACTIVITY_BATCH_SIZE of parcagpu */

/* The kinds of records: CUpti_ActivityKind of cupti_activity.h. */
enum record_kind {
	RECORD_COPY = 1,
	RECORD_MEMORY_SET = 2,
	RECORD_KERNEL = 3,
	RECORD_CONCURRENT_KERNEL = 10,
};

/* The beginning of these records, which has been the same since CUDA 9. */
struct record {
	__u32 kind;
	__u32 unused[3];
	__u64 begin; /* ns; 0 if not known */
	__u64 end;
};

struct device_key {
	__u32 row;
	__u32 generation;
};

struct device_work {
	__u64 window; /* the begin of the current one, ns */
	__u64 from, until; /* the latest time that is known to be busy without a break, ns */
	__u32 busy[BINS]; /* ns */
	__u8 shares[BINS]; /* of the latest window that was sent; the verifier of Linux 6.1 wants no loop around an event */
};

/* The devices of one process count as one: it is busy while any of them is. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct device_key);
	__type(value, struct device_work);
} device_works SEC(".maps");

/* Nothing, for a new process: the value is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device_work);
} no_device_work SEC(".maps");

/* The begin, the end and the bins of an event. Null if the process is gone, or the ring is full. */
static __always_inline struct event *new_device_event(const struct device_key *key, __u64 begin, __u64 end)
{
	struct process *process = process_in(key->row);

	if (!process || process->generation != key->generation)
		return 0;
	return new_event_of(key->row, process, process->pid, INTERVAL_DEVICE, begin, end);
}

/* Sends the bins of the current window, and empties them. */
__noinline int send_window(const struct device_key *key, struct device_work *work)
{
	struct event *event;

	if (!key || !work || !work->window)
		return 0;
	for (__u32 bin = 0; bin < BINS; bin++) {
		__u64 share = (__u64)work->busy[bin] * WHOLE_BIN / BIN_NS;

		work->shares[bin] = share < WHOLE_BIN ? share : WHOLE_BIN;
		work->busy[bin] = 0;
	}
	event = new_device_event(key, work->window, work->window + WINDOW_NS);
	if (!event)
		return 0;
	__builtin_memcpy(event->facts.name, work->shares, BINS);
	emit(event);
	return 0;
}

/* Adds busy time that lies in one window. */
__noinline int add_in_window(const struct device_key *key, struct device_work *work, __u64 begin, __u64 end)
{
	__u64 window = begin - begin % WINDOW_NS;

	if (!key || !work)
		return 0;
	if (work->window != window) {
		send_window(key, work);
		work->window = window;
	}
	for (__u32 bin = 0; bin < BINS; bin++) {
		__u64 since = window + bin * BIN_NS, until = since + BIN_NS;

		if (since < end && begin < until)
			work->busy[bin] += (end < until ? end : until) - (begin > since ? begin : since);
	}
	return 0;
}

/* Adds busy time. Windows that are busy as a whole are one event. */
__noinline int add_busy(const struct device_key *key, struct device_work *work, __u64 begin, __u64 end)
{
	__u64 first_whole, last_whole;
	struct event *event;

	if (!key || !work || begin >= end)
		return 0;
	first_whole = begin + WINDOW_NS - 1;
	first_whole -= first_whole % WINDOW_NS;
	last_whole = end - end % WINDOW_NS;
	if (first_whole > last_whole) /* within one window */
		return add_in_window(key, work, begin, end);
	if (begin < first_whole)
		add_in_window(key, work, begin, first_whole);
	if (first_whole < last_whole) {
		event = new_device_event(key, first_whole, last_whole);
		if (event) {
			__builtin_memset(event->facts.name, WHOLE_BIN, BINS);
			emit(event);
		}
	}
	if (last_whole < end)
		add_in_window(key, work, last_whole, end);
	return 0;
}

/* Adds the time of one record, without what is known to be busy already: streams work side by side. */
__noinline int add_record(const struct device_key *key, struct device_work *work, __u64 begin, __u64 end)
{
	__u64 from, until;

	if (!key || !work || !begin || begin >= end)
		return 0;
	from = work->from;
	until = work->until;
	if (begin > until || end < from) {
		work->from = begin;
		work->until = end;
		return add_busy(key, work, begin, end);
	}
	if (begin < from) {
		work->from = begin;
		add_busy(key, work, begin, from);
	}
	if (end > until) {
		work->until = end;
		add_busy(key, work, until, end);
	}
	return 0;
}

static __always_inline struct device_work *device_work_of(const struct hit *hit, struct device_key *key)
{
	struct device_work *work, *none;
	__u32 zero = 0;

	key->row = hit->thread->row;
	key->generation = hit->thread->generation;
	work = bpf_map_lookup_elem(&device_works, key);
	none = work ? 0 : bpf_map_lookup_elem(&no_device_work, &zero);
	if (!none)
		return work;
	bpf_map_update_elem(&device_works, key, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&device_works, key);
}

/* An argument of a USDT probe. `place`, from its lowest bit: 5 bits for the register, 1 for whether it is the address of the
 * argument, 10 for a signed number that is added to that address, in units of 4 bytes. */
static __always_inline __u64 usdt_argument(const struct hit *hit, __u32 place)
{
	__u64 value = 0, number = place & 0x1f;
	__s64 added = ((__s64)((__u64)(place >> 6) << 54)) >> 52;

	if (bpf_probe_read_kernel(&value, sizeof(value), (const char *)hit->regs + number * sizeof(value)))
		return 0;
	if (!(place & 0x20))
		return value;
	if (bpf_probe_read_user(&value, sizeof(value), (const void *)(value + added)))
		return 0;
	return value;
}

/* Arguments: an array of addresses of records, and their number. */
static __always_inline void begin_activities(struct hit *hit)
{
	__u64 array = usdt_argument(hit, hit->positions & 0xffff);
	__u32 count = usdt_argument(hit, hit->positions >> 16);
	struct device_key key;
	struct device_work *work = device_work_of(hit, &key);

	if (!work)
		return;
	for (__u32 at = 0; at < RECORDS; at++) {
		struct record record;
		__u64 place = 0;

		if (at >= count)
			break;
		if (bpf_probe_read_user(&place, sizeof(place), (const void *)(array + at * sizeof(place))) ||
		    bpf_probe_read_user(&record, sizeof(record), (const void *)place))
			continue;
		if (record.kind == RECORD_KERNEL || record.kind == RECORD_CONCURRENT_KERNEL || record.kind == RECORD_COPY ||
		    record.kind == RECORD_MEMORY_SET)
			add_record(&key, work, record.begin, record.end);
	}
}

/* Arguments: the begin and the end of a kernel. */
static __always_inline void begin_kernel_record(struct hit *hit)
{
	struct device_key key;
	struct device_work *work = device_work_of(hit, &key);

	if (work)
		add_record(&key, work, usdt_argument(hit, hit->positions & 0xffff),
			   usdt_argument(hit, hit->positions >> 16));
}

/* The library gives records only while this probe is on. */
static __always_inline void begin_correlation(struct hit *hit)
{
}
