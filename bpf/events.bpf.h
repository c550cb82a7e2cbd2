/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Rare things go to user space as single records. All records have the same size, so that they can be read in bulk. */
#pragma once

#define NAME_LENGTH 64

enum interval {
	INTERVAL_DATA_LOADING,
	INTERVAL_OPTIMIZER,
	INTERVAL_ZERO_GRAD,
	INTERVAL_BACKWARD,
	INTERVAL_DDP,
	INTERVAL_USER,
	INTERVAL_SYNC,
	INTERVAL_COLLECTIVE,
	INTERVAL_COMMUNICATOR,
	INTERVAL_PROCESS, /* from its first probed call to its end */
	INTERVAL_WORKER,  /* of the process: from the worker's start to its end. `tid` is the worker's pid */
	INTERVAL_OPERATORS,
	INTERVAL_DEVICE,  /* its begin and end are those of CUPTI's clock. `name` is the busy time of each bin */
};

/* The place of a run's end. */
enum run_ending {
	AT_OPERATOR, /* the entry of the last operator */
	AT_REGION,   /* the end of the no-grad region */
	AT_NEXT_RUN, /* the entry of the next operator, which continues the run */
};

/* The operators of a run. */
enum run_kind {
	OF_MODEL,
	OF_UPDATE,     /* they update all parameters at once */
	OF_LOSS,       /* losses alone: those of the model before them are not probed */
	OF_BATCH,      /* random numbers outside passes: a batch that the program makes */
	OF_NOISE,      /* the same, with normally distributed ones among them */
	OF_IN_PLACE,   /* without gradients, each on one tensor: after a backward pass or an optimizer */
};

/* INTERVAL_OPERATORS */
struct run_facts {
	__u64 covered; /* ns */
	__u32 count;
	__u32 parts;
	__u32 ending; /* enum run_ending */
	__u16 is_without_grad;
	__u16 kind; /* enum run_kind */
};

/* INTERVAL_COLLECTIVE and INTERVAL_COMMUNICATOR */
struct communication_facts {
	__u64 id; /* of the communicator on all its ranks; 0 if not known */
	__u64 communicator;
	__u64 bytes;
	__s32 rank; /* -1 if not known */
	__u32 size; /* of the communicator */
};

/* INTERVAL_PROCESS and INTERVAL_WORKER */
struct end_facts {
	__u64 status; /* as wait(2) gives it */
	char program[16];
};

/* What an event has besides, by its interval. */
union facts {
	char name[NAME_LENGTH]; /* of a scope. Of a run's parts: their edges */
	struct run_facts run;
	struct communication_facts communication;
	struct end_facts end;
};

struct event {
	__u64 begin; /* CLOCK_MONOTONIC, ns */
	__u64 end;
	__u32 row; /* of the process */
	__u32 generation;
	__u32 pid; /* in the collector's pid namespace */
	__u32 tid;
	__u16 interval;
	__u16 phase;	   /* the thread's, at the beginning */
	__u16 operation; /* INTERVAL_PROCESS: enum ending; INTERVAL_OPERATORS: 1 for the edges of a run's parts */
	__u16 is_abandoned; /* the program did not close the scope */
	__u32 flags;	   /* of the probe */
	__u32 sequence; /* of a collective: its number on its communicator, from 1. Else c10d's collectives so far. 0: not known */
	union facts facts;
	struct snapshot snapshot_begin; /* its time is 0 if the event has none */
	struct snapshot snapshot_end;
};

/* Puts the types into the object, for a test that compares them with the types in Python. */
const struct event event_type SEC("types") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} ring SEC(".maps");

/* Counts a lost event. The end of a process has no beginning that says when something was lost. */
static __always_inline void lose_event(struct process *process, __u32 interval, __u64 begin, __u64 end)
{
	__u64 from = interval == INTERVAL_PROCESS || interval == INTERVAL_WORKER ? end : begin;

	__sync_fetch_and_add(&process->lost_events, 1);
	if (!process->lost_from || from < process->lost_from)
		process->lost_from = from;
	process->lost_until = end;
}

/* A record to fill in and pass to `emit`. Null if the ring buffer is full, which is counted. */
static __always_inline struct event *new_event_of(__u32 row, struct process *process, __u32 tid, __u32 interval,
						  __u64 begin, __u64 end)
{
	struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

	if (!event) {
		lose_event(process, interval, begin, end);
		return 0;
	}
	__builtin_memset(event, 0, offsetof(struct event, snapshot_begin));
	event->snapshot_begin.time = 0;
	event->snapshot_end.time = 0;
	event->begin = begin;
	event->end = end;
	event->row = row;
	event->generation = process->generation;
	event->pid = process->pid;
	event->tid = tid;
	event->interval = interval;
	return event;
}

/* The same for an event of a thread. */
static __always_inline struct event *new_event(const struct thread *thread, __u32 interval, __u64 begin, __u64 end)
{
	struct process *process = process_in(thread->row);
	struct event *event;

	event = process ? new_event_of(thread->row, process, thread->tid, interval, begin, end) : 0;
	if (event)
		event->sequence = works_of(process);
	return event;
}

/* Adds the snapshots of an event's begin and end. */
static __always_inline void add_snapshots(struct event *event, const struct snapshot *begin, const struct snapshot *end)
{
	event->snapshot_begin = *begin;
	event->snapshot_end = *end;
}

/* Does not wake the reader, which reads periodically: a wake-up would cost more than the record. */
static __always_inline void emit(struct event *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}
