// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Incoming data. A process and its workers count reads of more than a page, since smaller ones are mostly wake-ups and messages. A
 * thread counts all bytes that it receives from sockets and sends to them: the kernel's count of a task's bytes has only those of
 * read(2), write(2) and the like. It also counts the bytes that it reads from /proc and the like, which are no data. */

#define SMALL_READ 4096
#define SHORT_READ 16 /* an event */

/* A thread of a worker that makes no probed call has a state, too, so that its waits for I/O are counted. */
static __always_inline void note_worker_thread(void)
{
	struct thread *thread = current_thread();

	if (thread && !thread->generation)
		join_workers(thread);
}

static __always_inline void note_read(__s64 bytes)
{
	struct process *process;
	struct worker *worker;
	__u32 tgid = current_tgid(), *row;

	row = bpf_map_lookup_elem(&row_of_tgid, &tgid);
	worker = row ? 0 : current_worker();
	process = row ? process_in(*row) : process_served_by(worker);
	if (!process)
		return;
	if (worker)
		note_worker_thread();
	__sync_fetch_and_add(row ? &process->reads : &process->worker_reads, 1);
	__sync_fetch_and_add(row ? &process->bytes_read : &process->worker_bytes_read, bytes);
}

/* The bytes that a thread reads from /proc and the like are no load of data: its snapshots leave them out. */
static __always_inline void note_read_of_kernel(const struct registers *regs, __u64 bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);

	if (thread && is_of_kernel(file_of_descriptor(task, first_argument_of_system_call(regs))))
		thread->read_of_kernel += bytes;
}

#define MESSAGES 16 /* whose lengths are added; a call with more has the bytes of the first ones */

/* struct mmsghdr of recvmmsg(2) on 64 bits: a struct msghdr, and the number of bytes received or sent. */
struct message {
	__u64 header[7];
	__u32 length;
};

/* recvmmsg and sendmmsg return the number of messages. */
static __always_inline __u64 bytes_of_messages(__u64 messages_at, __u64 count)
{
	__u64 bytes = 0;

	for (__u32 i = 0; i < MESSAGES && i < count; i++) {
		const struct message *message = (const struct message *)messages_at + i;
		__u32 length = 0;

		bpf_probe_read_user(&length, sizeof(length), &message->length);
		bytes += length;
	}
	return bytes;
}

static __always_inline void note_transfer(const struct registers *regs, __u64 result, int is_received, int has_messages)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);

	if (!thread)
		return;
	if (has_messages)
		result = bytes_of_messages(register_argument(regs, 2), result);
	if (is_received)
		thread->received += result;
	else
		thread->sent += result;
}

/* An epoll that ends without an event has reached its time-out. */
static __always_inline void note_polled(const struct registers *regs, __u64 events)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);

	if (thread)
		settle_time(thread, THREAD_POLLING,
			    events ? state_of_epoll(task, first_argument_of_system_call(regs)) : THREAD_TIMER);
}

/* The context holds the registers and the result. Every system call of the machine runs this program, so the cheapest test
 * comes first. */
SEC("tp_btf/sys_exit")
int system_call_exit(__u64 *ctx)
{
	const struct registers *regs = (const struct registers *)ctx[0];
	__s64 result = ctx[1];

	sample_wait();
	if (result < 0)
		return 0;
	switch (system_call_of(regs)) {
	case SYSTEM_CALL_READ: case SYSTEM_CALL_PREAD64: case SYSTEM_CALL_READV: case SYSTEM_CALL_PREADV:
		if (result > SHORT_READ)
			note_read_of_kernel(regs, result);
		if (result > SMALL_READ)
			note_read(result);
		break;
	case SYSTEM_CALL_RECVFROM: case SYSTEM_CALL_RECVMSG: note_transfer(regs, result, 1, 0); break;
	case SYSTEM_CALL_RECVMMSG: note_transfer(regs, result, 1, 1); break;
	case SYSTEM_CALL_SENDTO: case SYSTEM_CALL_SENDMSG: note_transfer(regs, result, 0, 0); break;
	case SYSTEM_CALL_SENDMMSG: note_transfer(regs, result, 0, 1); break;
	case SYSTEM_CALL_EPOLL_WAIT: case SYSTEM_CALL_EPOLL_PWAIT: case SYSTEM_CALL_EPOLL_PWAIT2: note_polled(regs, result);
	}
	return 0;
}
