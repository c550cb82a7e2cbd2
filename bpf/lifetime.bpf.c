// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The forks of processes, and the ends of counted processes and of their workers. User space is woken for each, but not for workers that end normally. */

enum ending {
	EXITED,
	EXECED, /* it executes another program, by exec */
};

/* The current task forks. `ctx` holds its task and the new one. */
SEC("tp_btf/sched_process_fork")
int process_fork(__u64 *ctx)
{
	struct task_struct *child = (struct task_struct *)ctx[1];
	__u32 parent = current_tgid(), tgid = child->tgid, *known;
	struct bpf_pidns_info ids;
	struct thread *thread;

	if (tgid != child->pid) /* a thread */
		return 0;
	thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	if (thread)
		thread->forks++;
	known = bpf_map_lookup_elem(&origins, &parent);
	if (known)
		ids.tgid = *known;
	else if (current_ids(&ids))
		return 0;
	bpf_map_update_elem(&origins, &tgid, &ids.tgid, BPF_ANY);
	return 0;
}

/* The current process has ended, or executes a program of its own. */
static __always_inline void forget_origin(void)
{
	__u32 tgid = current_tgid();

	bpf_map_delete_elem(&origins, &tgid);
}

static __always_inline void emit_end(__u32 row, struct process *process, __u32 ending)
{
	struct event *event =
		new_event_of(row, process, process->pid, INTERVAL_PROCESS, process->began, bpf_ktime_get_ns());

	if (!event)
		return;
	event->phase = process->phase;
	event->operation = ending;
	if (ending == EXITED)
		event->facts.end.status = (__u32)bpf_get_current_task_btf()->exit_code;
	else
		bpf_get_current_comm(event->facts.end.program, sizeof(event->facts.end.program));
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* A worker has ended. The one that executes another program is no worker any more. */
static __always_inline void end_worker(__u32 tgid, __u32 ending)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct worker *worker = current_worker();
	struct process *process = process_served_by(worker);
	struct event *event;

	if (process && ending == EXITED) {
		__sync_fetch_and_add(&process->worker_cpu, task->se.sum_exec_runtime + task->signal->sum_sched_runtime);
		event = new_event_of(worker->row, process, worker->pid, INTERVAL_WORKER, task->start_time,
				     bpf_ktime_get_ns());
		if (event) {
			event->facts.end.status = (__u32)task->exit_code;
			bpf_get_current_comm(event->facts.end.program, sizeof(event->facts.end.program));
			bpf_ringbuf_submit(event, event->facts.end.status ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
		}
	}
	if (worker)
		bpf_map_delete_elem(&workers, &tgid);
}

/* The process has ended, or executes another program. Threads that outlive its first thread claim a new row. */
static __always_inline void end_process(__u32 ending)
{
	__u32 tgid = current_tgid(), *found = bpf_map_lookup_elem(&row_of_tgid, &tgid), row;
	struct process *process = found ? process_in(*found) : 0;
	int is_counted;

	if (!process) {
		end_worker(tgid, ending);
		return;
	}
	row = *found;
	is_counted = process->state == LIVE;
	bpf_map_delete_elem(&row_of_tgid, &tgid);
	process->state = ENDED;
	if (is_counted)
		emit_end(row, process, ending);
}

/* Ends the scopes that are still open when their thread ends. */
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

static __always_inline void end_open_run(void)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);

	if (thread && thread->run.first && known_process_of(thread))
		end_run(thread, 0);
}

static __always_inline void end_own_times(void)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);

	if (thread)
		end_thread_times(thread);
}

SEC("raw_tp/sched_process_exit")
int process_exit(void *ctx)
{
	end_open_scopes();
	end_open_run();
	end_own_times();
	if ((__u32)bpf_get_current_pid_tgid() == current_tgid()) {
		end_process(EXITED);
		forget_origin();
	}
	return 0;
}

/* The thread's state belongs to the previous program and is dropped: its scopes, its calls, its device. */
SEC("raw_tp/sched_process_exec")
int process_exec(void *ctx)
{
	end_open_scopes();
	end_open_run();
	end_own_times();
	end_process(EXECED);
	forget_origin();
	bpf_task_storage_delete(&scopes_of_thread, bpf_get_current_task_btf());
	bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
	return 0;
}
