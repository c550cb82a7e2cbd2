// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Incoming data: reads of more than a page, by any thread of a process that has made probed calls, or of a worker. Smaller reads are
 * mostly wake-ups and messages. */

#define SMALL_READ 4096

static __always_inline int is_read(__u64 system_call)
{
	switch (system_call) {
	case SYSTEM_CALL_READ: case SYSTEM_CALL_PREAD64: case SYSTEM_CALL_READV: case SYSTEM_CALL_PREADV: return 1;
	default: return 0;
	}
}

/* A thread of a worker that makes no probed call has a state, too, so that its waits for I/O are counted. */
static __always_inline void note_worker_thread(void)
{
	struct thread *thread = current_thread();

	if (thread && !thread->generation)
		join_workers(thread);
}

/* The context holds the registers and the result. Every system call of the machine runs this program, so the cheapest test
 * comes first. */
SEC("tp_btf/sys_exit")
int system_call_exit(__u64 *ctx)
{
	struct registers *regs = (struct registers *)ctx[0];
	__s64 bytes = ctx[1];
	struct process *process;
	struct worker *worker;
	__u32 tgid, *row;

	if (bytes <= SMALL_READ || !is_read(system_call_of(regs)))
		return 0;
	tgid = current_tgid();
	row = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	worker = row ? 0 : current_worker();
	process = row ? process_in(*row) : process_served_by(worker);
	if (!process)
		return 0;
	if (worker)
		note_worker_thread();
	__sync_fetch_and_add(row ? &process->reads : &process->worker_reads, 1);
	__sync_fetch_and_add(row ? &process->bytes_read : &process->worker_bytes_read, bytes);
	return 0;
}
