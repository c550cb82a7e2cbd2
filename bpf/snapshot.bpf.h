/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The states of a thread, and a snapshot of its counters at a mark. User space copies snapshots into spans. docs/spans.md
 * describes the fields, and `Snapshot` of libraries/training/ledger reads them. */
#pragma once

enum thread_state {
	THREAD_ON_CPU,
	THREAD_CPU_WAIT, /* it could run: preempted, or it yielded */
	THREAD_GIL,
	THREAD_FILE,
	THREAD_SOCKET,
	THREAD_PIPE,
	THREAD_LOCK,
	THREAD_CHILD, /* waits for the end of a child process, or for its exec */
	THREAD_TIMER,
	THREAD_FAULT, /* a page fault with I/O */
	THREAD_SWAP,
	THREAD_GPU_WAIT,
	THREAD_LAUNCH_BLOCKED, /* in a launch that lasts, because the queue of the device is full */
	THREAD_COPY,
	THREAD_COLLECTIVE, /* in a call of NCCL, or in c10d::Work::wait */
	THREAD_UNKNOWN,
	/* Within calls. A snapshot adds these to other states. */
	THREAD_CALLING,	  /* any other call of CUDA: on the CPU */
	THREAD_LAUNCHING, /* a launch that has not returned: on the CPU, or blocked if it lasts */
	THREAD_SETTLING,  /* a wait for the GPU while a collective is not known to be over */
	/* In waits. Their ends show the kind. */
	THREAD_POLLING,	 /* epoll */
	THREAD_FAULTING, /* a page fault */
};

#define STATES 16 /* in a snapshot; a power of two */
#define INNER_STATES 8 /* room for those within calls and waits; a power of two */

/* The owner of the code that a thread runs. */
enum code {
	CODE_NONE, /* also: in a call whose state says what the thread does */
	CODE_OPERATOR,
	CODE_PYTHON,
	CODE_NATIVE,
	CODE_SHARED,
};

#define CODES 4 /* that a thread has samples of; a power of two */

/* What Python frames show: positions in the loop, and of waits what they are for. */
enum frame_position {
	FRAMES_OF_ELSE,
	FRAMES_OF_CHECKPOINT,
	FRAMES_OF_COMPILE,
	FRAMES_OF_ENVIRONMENT,
	FRAMES_OF_GIVING, /* hands something to another thread, or waits for its end */
	FRAMES_OF_TAKING, /* gets something from another thread */
	FRAMES_OF_SWITCHING, /* an event loop: what it runs next does not follow from the order of the code */
};

#define FRAME_POSITIONS 4 /* a power of two. The others are no positions */
#define WAITS 8 /* the states of waits in system calls: THREAD_GIL to THREAD_TIMER, and unknown ones; a power of two */

struct snapshot {
	__u64 time; /* CLOCK_MONOTONIC, ns */
	__u64 times[STATES]; /* ns */
	__u64 last_operator;
	__u64 first_launch; /* since the snapshot before */
	__u64 last_launch;
	__u64 read;
	__u64 copied;
	__u32 operators;
	__u32 launches;
	__u32 copies;
	__u32 collectives; /* of the process */
	__u32 file_faults;
	__u32 minor_faults;
	__u32 major_faults;
	__u32 known;
	__u16 samples[CODES]; /* by enum code */
	__u32 frame_times[FRAME_POSITIONS]; /* us */
	__u64 written;
	__u64 writing; /* ns off the CPU in system calls that write */
	__u64 backward_blocked; /* as in other_launches, of the thread's backward passes */
	__u64 backward_first_launch;
	__u64 backward_last_launch;
	__u32 backward_launches;
	__u32 forks; /* processes that the thread has started */
	__u64 hits; /* of probes */
	__u64 giving; /* ns in waits for a lock whose frames show that the thread gets no batch */
	__u32 before_backward[WAITS]; /* us in waits in code that the loop runs before its backward pass, by state */
	__u64 after_backward; /* ns in waits for files, sockets and pipes in code after it, which gets no batch */
	__u32 sampled_before; /* samples on a CPU in code before it */
	__u32 sampled_after; /* in code after it, which gets no batch */
};

/* Launches by autograd's threads for a backward pass that another thread has begun. */
struct other_launches {
	__u64 blocked; /* ns in launches that a full queue blocked */
	__u64 first;   /* their begins, ns; 0 without one */
	__u64 last;
	__u32 count;
	__u32 reserved;
};

/* The bits of `known`. */
#define KNOWS_TIMES 1
#define KNOWS_READ 2
#define KNOWS_FILE_FAULTS 4

/* Puts the type into the object, for a test that compares it with the type in Python. */
const struct snapshot snapshot_type SEC("types") = {};
