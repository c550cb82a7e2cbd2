/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The state of each thread that makes probed calls: its open calls, its latest mark and its run of model operators. */
#pragma once

/* A probed call that has not returned yet. */
struct frame {
	__u64 start; /* ns */
	__u64 sp;    /* at entry; identifies the frame within its thread */
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
			__u64 blocked;	 /* of the thread, as in `wait` */
		} copy;
		struct {
			__u64 unused[2];
			__u64 blocked;
		} wait;
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
			__u64 id;
		} communicator;
	};
	__u32 flags;
	__u32 phase;
	struct snapshot begin; /* of the kinds that are events */
};

#define MERGED_PARTS 16 /* a power of two; their edges fill the facts of an event */

/* A run of model operators: see operators.bpf.c. */
struct run {
	__u64 first; /* entry of its first operator, ns; 0 if the thread has no run */
	__u64 last;
	__u64 part;    /* entry of the first operator in its latest no-grad region */
	__u64 pass;    /* entry of the first operator after its latest result */
	__u64 pass_cpu_wait; /* the time that the thread had waited for a CPU by then, ns */
	__u64 over;    /* the end of that region; 0 while it is open */
	__u64 covered; /* ns of the earlier regions */
	__u64 emitted; /* the end of the run before */
	__u32 count;
	__u32 parts; /* no-grad regions */
	__u32 kind; /* enum run_kind */
	__u32 is_without_grad;
	__u32 is_in_step; /* see operators.bpf.c */
	__u32 has_result; /* the host has got a result since the last operator */
	__u32 sets_phase; /* of the process */
	__u32 regions;	  /* no-grad regions; a part may have several */
	struct snapshot begin;
	struct snapshot region; /* the beginning of the latest no-grad region */
	__u16 edges[2 * MERGED_PARTS]; /* of its parts, us since `first` */
};

#define BEGINS_FUNCTION 1 /* `function_sp` until the custom function switches gradients off */
#define FRAMES 4 /* a power of two */

struct thread {
	__u32 row;
	__u32 generation; /* of the row when the thread looked it up; 0 if it has not */
	__u32 foreign;	  /* 1 if it is outside the collector's pid namespace */
	__u32 tid;	  /* in the collector's pid namespace */
	__u32 phase;	  /* of its innermost scope that has one, or 0 */
	__u32 place;	  /* the kind of its latest mark, see `note_place`; 0 if none */
	__u32 group_depth; /* calls of ncclGroupStart without their ncclGroupEnd */
	__u32 depth; /* frames in use */
	__u32 is_uncounted; /* its latest call was not counted: the process has no row, or is ignored */
	__u32 is_worker;    /* its process is a worker: `row` is the row of the process that it serves */
	__u32 trains;	    /* its process has made a call that no worker makes */
	__u64 devices; /* of its contexts, one byte each; see devices.bpf.c */
	__u64 off_since; /* when it left the CPU, ns */
	__u64 on_since; /* when it last woke up and got a CPU, ns; 0 while it sleeps */
	__u64 off_why; /* enum off_cpu */
	__u32 off_state; /* enum thread_state */
	__u32 off_in_system_call;
	__u64 waited; /* ns off the CPU by its own will in system calls, since its stack was collected: see sampler.bpf.c */
	__u64 next_wait; /* when its stack may be collected again, ns */
	__u64 off_cpu; /* ns, the sum so far */
	__u64 transfer; /* see distributed.bpf.c */
	__u64 work_begun;
	__u64 work_issued;
	__u64 work_issued_off_cpu;
	__u64 work_wait_since;
	__u64 work_wait_blocked;
	struct snapshot work_wait_begin;
	__u32 work_wait_flags;
	__u32 is_without_grad; /* 1 if GradMode is off, + 2 for each inference mode that it is in; see grad_mode.bpf.c */
	__u32 is_in_closure;   /* gradients are on inside an optimizer's step */
	__u32 is_own;	       /* it has computed outside backward passes */
	__u32 is_autograd;     /* one of autograd's own threads */
	__u64 function_sp;     /* the stack pointer of the custom function that it is in; 0 if none: see grad_mode.bpf.c */
	__u64 blocked;	       /* ns off the CPU by its own will, the sum so far */
	__u64 marked_blocked;  /* its `blocked` at its latest mark, and in waits for results since then */
	__u64 received;	       /* bytes, from sockets; see reads.bpf.c */
	__u64 sent;	       /* bytes, to sockets */
	__u64 read_of_kernel;  /* bytes, from /proc and the like */
	__u64 major_faults;    /* of the task, at the latest snapshot */
	__u32 has_shared_fault; /* it has waited for shared memory, and the kind of this wait is not settled */
	struct other_launches backward; /* of its backward passes that are over */
	__u64 writing;	       /* ns off the CPU in system calls that write, the sum so far */
	__u64 giving;	       /* ns, as in a snapshot; see sampler.bpf.c */
	__u64 backward_stack;  /* see python.bpf.h */
	__u64 next_backward_stack; /* when it may be collected again, ns */
	__u32 is_off_writing;  /* whether it left the CPU in one */
	__u32 forks;
	__u64 hits; /* of probes, as those of its process */
	__u64 copied;	       /* bytes, from the host to devices */
	__u64 last_operator;   /* ns; the same for launches */
	__u64 last_launch;
	__u64 first_launch;    /* since the latest snapshot that went into an event; 0 if none */
	__u64 first_launch_after_mark;
	__u64 first_launch_after_begin; /* since the latest snapshot that may go into an event */
	__u32 copies;
	__u32 operators;
	__u32 launches;
	__u32 file_faults; /* see faults.bpf.c */
	__u32 times; /* its element of `thread_times`, + 1; 0 if none: see thread_state.bpf.h */
	__u32 times_generation; /* of the row when it got the element */
	__u32 outer_call; /* the number of frames up to its outermost call of CUDA or NCCL; 0 if none */
	__u32 call_state; /* enum thread_state, in that call */
	__u32 is_changing_state;
	__u32 waits_in_launch; /* whether a long launch is one that waits */
	__u64 faults_before_launch;
	__u32 is_releasing; /* that call frees memory of the GPU */
	__u32 is_after_work;   /* a backward pass or an optimizer is over, and neither a pass nor a load has begun since */
	__u32 has_closure; /* the optimizer's step that it is in has called its closure */
	__u64 run_delay; /* ns in the queues of CPUs, up to its latest run; see cpu_takers.bpf.h */
	__u16 samples[CODES]; /* see sampler.bpf.c */
	__u32 frame_times[FRAME_POSITIONS];
	__u32 before_backward[WAITS]; /* as in a snapshot; see sampler.bpf.c. The same for the next three */
	__u64 after_backward;
	__u32 sampled_before;
	__u32 sampled_after;
	__u64 active; /* when it last made a mark or got a result, ns */
	__u64 active_cpu_wait; /* the time that it had waited for a CPU by then, ns */
	struct snapshot mark; /* at its latest mark: the end of a scope or of a backward pass, or its latest operator */
	struct snapshot now;
	struct run run;
	struct frame frames[FRAMES];
};

/* Task storage ends with its thread: it needs no clean-up and is never full. */
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
