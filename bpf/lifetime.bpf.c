// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The ends of processes that were counted: user space hears of them at once. */

enum ending {
	EXITED,
	EXECED, /* has become another program */
};

static __always_inline void tell_end(__u32 row, struct process *process, __u32 ending)
{
	struct event *event =
		new_event_of(row, process, process->pid, INTERVAL_PROCESS, process->began, bpf_ktime_get_ns());

	if (!event)
		return;
	event->phase = process->phase;
	event->operation = ending;
	if (ending == EXITED)
		event->bytes = (__u32)bpf_get_current_task_btf()->exit_code;
	else
		bpf_get_current_comm(event->name, sizeof(process->name));
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* The process is over, or has become another program. Threads that outlive the first one claim a new row. */
static __always_inline void end_process(__u32 ending)
{
	__u32 tgid = current_tgid(), *found = bpf_map_lookup_elem(&row_of_tgid, &tgid), row;
	struct process *process = found ? process_in(*found) : 0;
	int is_told;

	if (!process)
		return;
	row = *found;
	is_told = process->state == LIVE;
	bpf_map_delete_elem(&row_of_tgid, &tgid);
	process->state = ENDED;
	if (is_told)
		tell_end(row, process, ending);
}

/* Scopes that are still open end with their thread. */
static __always_inline void end_open_scopes(void)
{
	struct scopes *scopes = current_scopes(0);
	struct thread *thread;

	if (!scopes || !scopes->depth)
		return;
	thread = current_thread();
	if (thread && known_process_of(thread))
		end_scopes(thread, scopes, 0, 1);
}

SEC("raw_tp/sched_process_exit")
int process_exit(void *ctx)
{
	end_open_scopes();
	if ((__u32)bpf_get_current_pid_tgid() == current_tgid())
		end_process(EXITED);
	return 0;
}

/* What the thread did as the program before is over too: its scopes, its calls, its choice of a device. */
SEC("raw_tp/sched_process_exec")
int process_exec(void *ctx)
{
	end_open_scopes();
	end_process(EXECED);
	bpf_task_storage_delete(&scopes_of_thread, bpf_get_current_task_btf());
	bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
	return 0;
}
