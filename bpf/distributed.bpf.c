// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Waits of PyTorch's distributed package for other ranks.
 *
 * These functions throw an exception if a collective fails, so their returns must not have a return probe (see
 * torch.bpf.c). Other probes mark the ends: the instructions of a normal return, or the return of the calling function. */

#define LONGEST_ISSUE 500000  /* ns on the CPU between the issue of a collective and the wait for it */
#define MOST_RANKS (1 << 20) /* of a process group */
#define LEAST_WORK_WAIT 50000 /* ns: shorter waits are no events; low, since waits of many small collectives add up */

/* The ranks of a gloo::Context (gloo/context.h): `const int rank; const int size;`, in some releases after a pointer to virtual
 * functions. Read as a rank, the lower half of a pointer is above its upper half. */
static __always_inline __u32 ranks_of_context(__u64 context)
{
	__u32 words[4] = {};

	if (!context || bpf_probe_read_user(words, sizeof(words), (void *)context))
		return 0;
	return words[0] < words[1] ? words[1] : words[3];
}

/* A collective of gloo that has begun and is not over. */
struct open_work {
	__u64 begin; /* ns */
	__u64 sequence; /* in its group */
	__u32 tid;	/* that issued it, or that waits for it now */
	__u32 operation; /* c10d::OpType */
	__u32 ranks;	 /* of its group; 0 if not known */
	__u32 reserved;
};

/* By the address of its c10d::Work. User space reads those of a process that makes no marks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct address);
	__type(value, struct open_work);
} open_works SEC(".maps");

static __always_inline void open_work(struct hit *hit, __u32 ranks)
{
	struct address address = address_at(hit->thread, argument(hit->regs, 1));
	struct open_work work = {
		.begin = bpf_ktime_get_ns(),
		.sequence = needed_argument(hit, 0),
		.tid = hit->thread->tid,
		.operation = needed_argument(hit, 2) & 0xff,
		.ranks = ranks,
	};

	bpf_map_update_elem(&open_works, &address, &work, BPF_ANY);
}

/* c10d::Work::finish, which runs on a thread of gloo. */
static __always_inline void finish_work(struct hit *hit)
{
	struct address address = address_at(hit->thread, argument(hit->regs, 1));

	bpf_map_delete_elem(&open_works, &address);
}

/* c10d::ProcessGroupGloo::AsyncWork::AsyncWork, which calls c10d::Work::Work. A group of gloo numbers its collectives, and its
 * ranks issue them in the same order. So a collective has the same number on all ranks, whenever the probes were attached.
 * The group with the most ranks counts. Arguments: the number; the address of the pointer to the group's gloo::Context; the
 * operation. */
static __always_inline void number_work(struct hit *hit)
{
	struct process *process = process_of(hit->thread);
	__u64 pointer = needed_argument(hit, 1), context = 0;
	__u32 ranks;

	if (!process)
		return;
	if (pointer)
		bpf_probe_read_user(&context, sizeof(context), (void *)pointer);
	ranks = ranks_of_context(context);
	open_work(hit, ranks);
	if (ranks >= NUMBERED || (ranks | NUMBERED) < process->numbered_ranks)
		return;
	process->numbered_ranks = ranks | NUMBERED;
	process->works = needed_argument(hit, 0);
}

/* Counts the collectives of a process without such numbers. The ranks issue them in the same order, so a collective has the same
 * number on all of them if the first was seen. That is certain if the process has started after all probes were attached. */
static __always_inline void count_work(struct process *process)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	__u32 zero = 0;
	__u64 *attached = bpf_map_lookup_elem(&attached_at, &zero);

	if (process->numbered_ranks || process->works == UNCOUNTED_WORKS)
		return;
	if (!process->works && !(attached && leader->start_time > *attached))
		process->works = UNCOUNTED_WORKS;
	else
		__sync_fetch_and_add(&process->works, 1);
}

/* c10d::ProcessGroup::getBackend, which every collective calls. The rank and the size of the group are after a pointer to virtual
 * functions, two counters (of 32 or of 64 bits, by release) and a pointer to the store. Read as a rank, the lower half of that
 * pointer is above its upper half. Argument: the group. */
static __always_inline void note_group(struct hit *hit)
{
	struct process *process = process_of(hit->thread);
	__u64 group = needed_argument(hit, 0);
	__u32 words[4] = {}, at;

	if (!process || !group || bpf_probe_read_user(words, sizeof(words), (void *)(group + 24)))
		return;
	at = words[0] < words[1] ? 0 : 2;
	if (words[at] >= words[at + 1] || words[at + 1] > MOST_RANKS || words[at + 1] <= process->group_ranks)
		return;
	process->group_rank = words[at];
	process->group_ranks = words[at + 1];
}

/* c10d::ProcessGroupGloo::send, which writes as much as the socket takes before it calls c10d::Work::Work. */
static __always_inline void begin_transfer(struct hit *hit)
{
	hit->thread->transfer = bpf_ktime_get_ns();
}

/* c10d::Work::Work runs early in the issue of a collective, but late in that of a transfer. */
static __always_inline void begin_work(struct hit *hit)
{
	struct process *process = process_of(hit->thread);

	if (process) {
		__sync_fetch_and_add(&process->issued, 1);
		count_work(process);
	}
	hit->thread->work_issued = bpf_ktime_get_ns();
	hit->thread->work_begun = hit->thread->transfer ? hit->thread->transfer : hit->thread->work_issued;
	hit->thread->transfer = 0;
	hit->thread->work_issued_off_cpu = hit->thread->off_cpu;
}

/* The time from which the job waits. That is the issue of the collective if the thread computed nothing since then, else
 * now. Time off the CPU does not count as computing: an issue wakes other threads, which may displace the issuing one. */
static __always_inline __u64 work_since(struct thread *thread, __u64 now)
{
	__u64 issued = thread->work_issued, off_cpu = thread->off_cpu - thread->work_issued_off_cpu;

	thread->work_issued = 0;
	return issued && now - issued < off_cpu + LONGEST_ISSUE ? thread->work_begun : now;
}

/* c10d::Work::wait */
static __always_inline void begin_work_wait(struct hit *hit)
{
	struct address address;
	struct open_work *work;

	if (!process_of(hit->thread))
		return;
	address = address_at(hit->thread, argument(hit->regs, 1));
	work = bpf_map_lookup_elem(&open_works, &address);
	if (work)
		work->tid = hit->thread->tid;
	take_begin(hit->thread, &hit->thread->work_wait_begin, bpf_ktime_get_ns());
	hit->thread->work_wait_since = work_since(hit->thread, hit->thread->work_wait_begin.time);
	set_thread_state(hit->thread, running_state(hit->thread), hit->thread->work_wait_begin.time);
	hit->thread->work_wait_flags = hit->flags;
	hit->thread->work_wait_blocked = hit->thread->blocked;
}

/* The probe is on the instructions with which c10d::Work::wait returns. An exception does not execute them. */
static __always_inline void end_work_wait(struct hit *hit)
{
	struct thread *thread = hit->thread;
	struct process *process = process_of(thread);
	__u64 begin = thread->work_wait_since, now = bpf_ktime_get_ns();
	struct event *event;

	if (!process || !begin)
		return;
	thread->work_wait_since = 0;
	set_thread_state(thread, running_state(thread), now);
	note_result(thread, now, thread->work_wait_blocked);
	if (now - begin < LEAST_WORK_WAIT)
		return;
	take_end(thread, &thread->now, now);
	event = new_event(thread, INTERVAL_SYNC, begin, now);
	if (!event)
		return;
	add_snapshots(event, &thread->work_wait_begin, &thread->now);
	event->phase = phase_of(thread, process);
	event->flags = thread->work_wait_flags;
	emit(event);
}

/* c10d::Reducer::finalize_backward is the last part of backward. It runs on the thread that computed last. */
static __always_inline void begin_reducer(struct hit *hit)
{
	struct process *process = process_of(hit->thread);

	if (!process)
		return;
	process->reducer_flags = hit->flags;
	process->reducer_since = bpf_ktime_get_ns();
}

/* Called when backward returns to the thread that started it. That thread has waited for the reducer. */
static __always_inline void end_reducer(struct thread *thread, struct process *process, __u64 begin, __u64 end)
{
	__u64 since = process->reducer_since;
	struct event *event;

	if (since < begin || since > end)
		return;
	process->reducer_since = 0;
	event = new_event(thread, INTERVAL_DDP, since, end);
	if (!event)
		return;
	event->phase = PHASE_GPU_COMPUTE;
	event->flags = process->reducer_flags;
	emit(event);
}
