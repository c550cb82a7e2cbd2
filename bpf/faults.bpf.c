// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Page faults on files: pages of mapped files, and of files in shared memory, that a thread maps by touching them. New memory of a
 * program (anonymous pages) causes most faults, but shows no load of data.
 *
 * A wait in a page fault was for swap if the number of the address space's pages in swap changes next. A wait for a page of shared
 * memory was for swap if the machine has swap, and the thread has had a major fault since its latest snapshot: other such waits
 * are for pages that the kernel reads ahead. The task counts a fault after this program has run.
 *
 * The kernel counts the pages of each address space by type. The tracepoint rss_stat fires at each change of such a counter. */

#define MM_FILEPAGES 0 /* linux/mm_types_task.h */
#define MM_SWAPENTS 2
#define MM_SHMEMPAGES 3

/* Every page fault of the machine runs this program, so the cheapest test comes first. A task can also change the counters of
 * another address space, for example when it needs memory. */
SEC("tp_btf/rss_stat")
int pages_mapped(__u64 *ctx)
{
	struct task_struct *task;
	struct thread *thread;
	__u32 type = ctx[1];

	if (type != MM_FILEPAGES && type != MM_SHMEMPAGES && type != MM_SWAPENTS)
		return 0;
	task = bpf_get_current_task_btf();
	if ((struct mm_struct *)ctx[0] != task->mm)
		return 0;
	thread = bpf_task_storage_get(&threads, task, 0, 0);
	if (!thread)
		return 0;
	settle_shared_fault(thread, task);
	if (type == MM_SHMEMPAGES)
		note_shared_fault(thread);
	else
		settle_time(thread, THREAD_FAULTING, type == MM_SWAPENTS ? THREAD_SWAP : THREAD_FAULT);
	if (type != MM_SWAPENTS)
		thread->file_faults++;
	return 0;
}
