/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The process table, with a row for each process that makes probed calls.
 *
 * A process gets its row at its first probed call, so its calls are counted before user space has inspected it. When it ends,
 * the row is only marked: user space reads the last counts, then frees the row and its series slots. */
#pragma once

#define OPERATIONS 64
#define PHASES 8
#define DEVICES 32 /* that are counted separately for one process */

enum state {
	FREE,
	LIVE,
	IGNORED, /* user space decided not to count it */
	ENDED,
};

struct process {
	__u64 began;	  /* of its first probed call, ns of CLOCK_MONOTONIC */
	__u32 pid;	  /* in the collector's pid namespace */
	__u32 tgid;	  /* in the initial pid namespace */
	__u32 generation; /* of the row: counts the processes that have used it */
	__u32 state;
	__u32 phase;	  /* of the process as a whole: see phase.bpf.h */
	__u32 phase_thread;
	__u64 phase_since; /* ns; 0 if it has never been in a phase */
	__u64 lost_events;
	__u64 lost_from; /* the earliest beginning of an event lost since user space has set this to 0, ns */
	__u64 lost_until; /* the latest end of one, ns */
	__u32 world_size;	   /* of its job, from user space; 0 if not known */
	__u32 collectives;	   /* enqueued so far; see collectives.bpf.c */
	__u32 collectives_settled; /* as of the last wait */
	__u32 reducer_flags;	   /* of its probe; see distributed.bpf.c */
	__u64 reducer_since;
	__u64 marked; /* the time of its latest mark, ns; 0 without one */
	__u64 hits; /* of probes on functions whose return is probed, too, whether or not the call is counted */
	__u64 entry_hits; /* of the other probes */
	__u64 operator_hits; /* those of them on model operators */
	__u64 in_place_hits; /* and those on operators that change one tensor */
	__u64 off_cpu; /* ns, the sum over its threads that make probed calls */
	__u64 io_wait;
	__u64 last_burst; /* ns that a thread ran until it went to sleep */
	__u64 bursts;
	__u64 reads; /* of more than a page; see reads.bpf.c */
	__u64 bytes_read;
	__u64 worker_cpu; /* ns, of its workers that have ended; see workers.bpf.h */
	__u64 worker_io_wait;
	__u64 worker_reads;
	__u64 worker_bytes_read;
	__u32 trains; /* 1 once it has used CUDA or NCCL, computed gradients, or opened a scope of a DataLoader or optimizer */
	__u32 backward_thread; /* that began the latest backward pass; 0 if it is over */
	__u32 works; /* of c10d so far; see distributed.bpf.c */
	__u32 numbered_ranks; /* NUMBERED | the ranks of the group that gave the latest number in `works`; 0 if they are counted */
	__u32 origin; /* see `origins`; 0 if the process has executed its program itself */
	__u32 issued; /* collectives of c10d, whether or not `works` counts them */
	__u32 group_rank; /* in the largest process group of c10d so far */
	__u32 group_ranks; /* of that group; 0 if none was seen */
	struct other_launches backward; /* of the latest backward pass */
	char name[16];
	__u32 slots[OPERATIONS * PHASES]; /* the slot of each series: its number + 1; 0 if none */
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

/* For each process that runs the program of another one, which has forked it or one of its ancestors: the pid of that other
 * process in the collector's pid namespace. By tgid. User space knows a process that ends soon by this. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} origins SEC(".maps");

/* The time at which probes were last attached to a file, ns; the highest number while they are being attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} attached_at SEC(".maps");

/* The parameter is a copy on the stack. Before Linux 6.2 a map key must not lie in memory that a global function got by a
 * pointer. */
static __always_inline struct process *process_in(__u32 row)
{
	return bpf_map_lookup_elem(&processes, &row);
}

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline int claim_row(__u32 tgid, __u32 pid, __u32 *row)
{
	struct process *process;
	__u32 *origin;

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
	process->marked = 0;
	process->backward_thread = 0;
	process->trains = 0;
	process->works = 0;
	process->issued = 0;
	process->backward = (struct other_launches){};
	process->numbered_ranks = 0;
	process->group_ranks = 0;
	origin = bpf_map_lookup_elem(&origins, &tgid);
	process->origin = origin ? *origin : 0;
	bpf_get_current_comm(process->name, sizeof(process->name));
	process->generation++;
	process->state = LIVE;
	if (!bpf_map_update_elem(&row_of_tgid, &tgid, row, BPF_NOEXIST))
		return 0;
	process->state = FREE; /* another thread of the process claimed a row first */
	bpf_map_push_elem(&free_rows, row, 0);
	return -1;
}

#define INITIAL_PID_NAMESPACE 0xeffffffcU /* PROC_PID_INIT_INO of linux/proc_ns.h */

/* Pid and thread id in the collector's pid namespace. Returns 0 on success. The helper fails for tasks of any other pid
 * namespace. In the initial namespace it is not needed: every task has a pid there. */
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

/* The initial `thread->devices`. A thread that selects no device uses its first one. A thread that started before all probes
 * were attached may have selected one unnoticed, so its device is unknown. */
static __always_inline __u32 first_device(void)
{
	__u32 zero = 0;
	__u64 *attached = bpf_map_lookup_elem(&attached_at, &zero);

	return attached && bpf_get_current_task_btf()->start_time > *attached;
}

/* Autograd names its threads since PyTorch 2.5: pt_autograd_0. */
static __always_inline int is_named_autograd(void)
{
	char name[16] = {};

	bpf_get_current_comm(name, sizeof(name));
	return *(__u64 *)name == *(const __u64 *)"pt_autog" && name[8] == 'r' && name[9] == 'a' && name[10] == 'd';
}

/* The collectives that the process has issued. Those of c10d with NCCL are counted by both. */
static __always_inline __u32 collectives_of(const struct process *process)
{
	return process->collectives > process->issued ? process->collectives : process->issued;
}

#define UNCOUNTED_WORKS 0xffffffffU
#define NUMBERED 0x80000000U

/* The number of the latest collective that the process has issued; 0 if not known. See distributed.bpf.c. */
static __always_inline __u32 works_of(const struct process *process)
{
	return process->works == UNCOUNTED_WORKS ? 0 : process->works;
}
