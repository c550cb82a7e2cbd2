/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who calls: a row for each process, and for each thread a place to keep what it is doing.
 *
 * A process gets its row with its first probed call, so nothing is missed until user space has looked at it. Its end
 * only marks the row; user space reads the last counts, then gives row and slots back. */
#pragma once

#define OPERATIONS 64
#define PHASES 8
#define DEVICES 32 /* that one process can tell apart */

enum state {
	FREE,
	LIVE,
	IGNORED, /* by the verdict of user space: not counted */
	ENDED,
};

struct process {
	__u64 began;	  /* ns of the boot clock's monotonic part: the first call seen */
	__u32 pid;	  /* in the collector's pid namespace */
	__u32 tgid;	  /* in the initial one */
	__u32 generation; /* of the row: counts the processes that had it */
	__u32 state;
	__u32 phase;	  /* of the process as a whole: see phase.bpf.h */
	__u32 phase_thread;
	__u64 phase_since; /* ns; 0: it has never had one */
	__u64 lost_events;
	__u32 world_size;	   /* as user space has found it; 0: not known */
	__u32 collectives;	   /* that were enqueued; see nccl.bpf.c */
	__u32 collectives_settled; /* as of the last wait */
	__u32 reducer_flags;	   /* of its probe; see distributed.bpf.c */
	__u64 reducer_since;
	__u64 hits; /* of probes, at entries: each one, whatever came of it */
	__u64 off_cpu; /* ns, of all its threads that make probed calls */
	__u64 io_wait;
	__u64 last_burst; /* ns on the CPU without a break */
	__u64 bursts;
	__u64 reads; /* large ones: see reads.bpf.c */
	__u64 bytes_read;
	char name[16];
	__u32 slots[OPERATIONS * PHASES]; /* of its series: number + 1, or 0 */
};

/* A probed call that has not returned yet. */
struct frame {
	__u64 start; /* ns */
	__u64 sp;    /* at entry; identifies the frame among those of its thread */
	union {	     /* facts that a kind's entry keeps for its return; `*_at` is an address in the process */
		__u64 arguments[2]; /* of the KEEPS_ARGUMENTS kinds; the next three name them */
		struct {
			__u64 result_at;
			__u64 device;
		} context;
		struct {
			__u64 value; /* a device or a context */
		} choice;
		struct {
			__u64 communicator;
			__u64 result_at;
		} question;
		struct {
			__u64 bytes;
			__u64 direction; /* enum cudaMemcpyKind; 0 if the operation implies it */
		} copy;
		struct {
			__u64 result_at;
			__u64 size;
			__u64 device;
		} allocation;
		struct {
			__u64 value; /* an address or a handle */
			__u64 size;
			__u64 device;
		} release;
		struct {
			__u64 object_at;
			__u64 name_at;
		} scope;
		struct {
			__u64 outer_phase;
		} backward;
		struct {
			__u64 bytes;
			__u64 communicator;
		} collective;
		struct {
			__u64 result_at;
			__u32 size;
			__s32 rank;
		} communicator;
	};
	__u32 flags;
	__u32 phase;
};

#define FRAMES 4 /* a power of two */

struct thread {
	__u32 row;
	__u32 generation; /* of the row when it was looked up; 0: not yet */
	__u32 foreign;	  /* lives outside the collector's pid namespace */
	__u32 tid;	  /* in the collector's pid namespace */
	__u32 phase;	  /* of its own scope, or 0 */
	__u32 group_depth; /* of ncclGroupStart */
	__u32 depth;
	__u32 is_uncounted; /* its latest call: the process has no row, or is ignored */
	__u64 devices; /* a stack: see devices.bpf.c */
	__u64 off_since; /* of the CPU */
	__u64 on_since;
	__u64 off_why;
	__u64 off_cpu; /* ns in all */
	__u64 work_issued; /* see distributed.bpf.c */
	__u64 work_issued_off_cpu;
	__u64 work_wait_since;
	__u32 work_wait_flags;
	struct frame frames[FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} row_of_tgid SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_rows SEC(".maps");

/* When probes were put on a file last, ns; the highest number while they are being put there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} attached_at SEC(".maps");

/* The row is copied to the stack: before Linux 6.2 a map key cannot lie in memory that a global function was given. */
static __always_inline struct process *process_in(__u32 row)
{
	return bpf_map_lookup_elem(&processes, &row);
}

/* Task storage goes with its thread: nothing to clean up, and never full. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *current_thread(void)
{
	struct thread *thread =
		bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		lose(NO_THREAD);
	return thread;
}

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline int claim_row(__u32 tgid, __u32 pid, __u32 *row)
{
	struct process *process;

	if (bpf_map_pop_elem(&free_rows, row))
		return -1;
	process = process_in(*row);
	if (!process)
		return -1;
	process->began = bpf_ktime_get_ns();
	process->tgid = tgid;
	process->pid = pid;
	process->phase = 0;
	process->phase_thread = 0;
	process->phase_since = 0;
	process->world_size = 0;
	process->last_burst = 0;
	process->collectives = 0;
	process->collectives_settled = 0;
	process->reducer_since = 0;
	bpf_get_current_comm(process->name, sizeof(process->name));
	process->generation++;
	process->state = LIVE;
	if (!bpf_map_update_elem(&row_of_tgid, &tgid, row, BPF_NOEXIST))
		return 0;
	process->state = FREE; /* another thread of the process was first */
	bpf_map_push_elem(&free_rows, row, 0);
	return -1;
}

#define INITIAL_PID_NAMESPACE 0xeffffffcU /* PROC_PID_INIT_INO of linux/proc_ns.h */

/* Pid and thread id in the collector's pid namespace. The helper knows only tasks that live in that namespace itself; from
 * the initial one, all can be named. */
static __always_inline int current_ids(struct bpf_pidns_info *ids)
{
	if (settings.pid_namespace_inode == INITIAL_PID_NAMESPACE) {
		ids->pid = bpf_get_current_pid_tgid();
		ids->tgid = current_tgid();
		return 0;
	}
	return bpf_get_ns_current_pid_tgid(settings.pid_namespace_device, settings.pid_namespace_inode, ids,
					   sizeof(*ids));
}

/* The device of a thread that chooses none is its first one. That can be said of threads that began when every probe was
 * in its place. */
static __always_inline __u32 first_device(void)
{
	__u32 zero = 0;
	__u64 *attached = bpf_map_lookup_elem(&attached_at, &zero);

	return attached && bpf_get_current_task_btf()->start_time > *attached;
}

/* Looks the thread's process up, or gives it a row. */
__noinline int find_row(struct thread *thread)
{
	struct bpf_pidns_info ids;
	struct process *process;
	__u32 tgid = current_tgid(), row, *found;

	if (!thread)
		return -1;
	if (current_ids(&ids)) {
		thread->foreign = 1; /* for good: no task changes its own pid namespace */
		return -1;
	}
	found = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	if (found) {
		row = *found;
	} else if (claim_row(tgid, ids.tgid, &row)) {
		found = bpf_map_lookup_elem(&row_of_tgid, &tgid);
		if (!found) {
			lose(NO_PROCESS_ROW);
			return -1;
		}
		row = *found;
	}
	process = process_in(row);
	if (!process)
		return -1;
	if (!thread->generation)
		thread->devices = first_device();
	thread->row = row;
	thread->generation = process->generation;
	thread->tid = ids.pid;
	return 0;
}

static __always_inline int is_current(const struct process *process, const struct thread *thread)
{
	return process && process->generation == thread->generation &&
	       (process->state == LIVE || process->state == IGNORED);
}

/* The thread's process, or null if it is not counted. */
static __always_inline struct process *process_of(struct thread *thread)
{
	struct process *process = process_in(thread->row);

	if (!is_current(process, thread)) {
		if (thread->foreign || find_row(thread))
			return 0;
		process = process_in(thread->row);
	}
	return process && process->state == LIVE ? process : 0;
}

/* What probes cost is told by how often they are hit, whatever came of it. */
static __always_inline void count_hit(struct process *process)
{
	__sync_fetch_and_add(&process->hits, 1);
}
