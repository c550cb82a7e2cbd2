/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The reason why a thread blocks: its system call, and the kind of file that it waits for. */
#pragma once

#define TASK_INTERRUPTIBLE 1   /* linux/sched.h; unchanged since Linux 2.6 */
#define TASK_UNINTERRUPTIBLE 2 /* counted as waiting for I/O, as in the load average */
#define TASK_NOLOAD 0x400
#define PF_MEMALLOC 0x800 /* it frees memory, because there is none */

#define FILE_TYPE 0170000 /* S_IFMT and others of linux/stat.h */
#define FILE_SOCKET 0140000
#define FILE_REGULAR 0100000
#define FILE_BLOCK 0060000
#define FILE_DIRECTORY 0040000
#define FILE_PIPE 0010000

#define PROC_MAGIC 0x9fa0 /* linux/magic.h */
#define SYSFS_MAGIC 0x62656572
#define CGROUP_MAGIC 0x27e0eb
#define CGROUP2_MAGIC 0x63677270

#define READ_KERNEL(value, place) bpf_probe_read_kernel(&(value), sizeof(value), &(place))

/* The file of a descriptor; null if it cannot be read. */
static __always_inline struct file *file_of_descriptor(struct task_struct *task, __u32 number)
{
	struct files_struct *files = task->files;
	struct fdtable *table = 0;
	struct file **all = 0, *file = 0;
	unsigned int length = 0;

	if (READ_KERNEL(table, files->fdt) || READ_KERNEL(length, table->max_fds) || number >= length ||
	    READ_KERNEL(all, table->fd) || bpf_probe_read_kernel(&file, sizeof(file), all + number))
		return 0;
	return file;
}

/* The state of a thread that waits for this file. Event counters, timers and epolls have no type. */
static __always_inline __u32 state_of_file(struct file *file)
{
	struct inode *inode = 0;
	unsigned short mode = 0;

	if (!file || READ_KERNEL(inode, file->f_inode) || READ_KERNEL(mode, inode->i_mode))
		return THREAD_UNKNOWN;
	switch (mode & FILE_TYPE) {
	case FILE_SOCKET: return THREAD_SOCKET;
	case FILE_PIPE: return THREAD_PIPE;
	case FILE_REGULAR: case FILE_BLOCK: case FILE_DIRECTORY: return THREAD_FILE;
	default: return THREAD_UNKNOWN;
	}
}

/* Whether the kernel makes the contents of a file: they are facts about the machine, and no data. */
static __always_inline int is_of_kernel(struct file *file)
{
	struct inode *inode = 0;
	struct super_block *super = 0;
	unsigned long magic = 0;

	if (!file || READ_KERNEL(inode, file->f_inode) || READ_KERNEL(super, inode->i_sb) || READ_KERNEL(magic, super->s_magic))
		return 0;
	return magic == PROC_MAGIC || magic == SYSFS_MAGIC || magic == CGROUP_MAGIC || magic == CGROUP2_MAGIC;
}

static __always_inline __u32 state_of_descriptor(struct task_struct *task, __u32 number)
{
	return state_of_file(file_of_descriptor(task, number));
}

static __always_inline __u32 state_of_item(struct epitem *item)
{
	struct file *file = 0;

	return item && !READ_KERNEL(file, item->ffd.file) ? state_of_file(file) : THREAD_UNKNOWN;
}

/* The state of a thread whose wait for this epoll has ended. A file that is still ready comes first. Without one, it is one of
 * the files at the top of the epoll's tree. */
static __always_inline __u32 state_of_epoll(struct task_struct *task, __u32 number)
{
	struct file *file = file_of_descriptor(task, number);
	struct eventpoll *epoll = 0;
	struct list_head *ready = 0;
	struct rb_node *root = 0, *child = 0;
	__u32 state = THREAD_UNKNOWN;

	if (!file || READ_KERNEL(epoll, file->private_data) || !epoll)
		return THREAD_UNKNOWN;
	if (!READ_KERNEL(ready, epoll->rdllist.next) && ready != &epoll->rdllist)
		state = state_of_item(CONTAINER_OF(ready, struct epitem, rdllink));
	if (state != THREAD_UNKNOWN || READ_KERNEL(root, epoll->rbr.rb_root.rb_node) || !root)
		return state;
	state = state_of_item(CONTAINER_OF(root, struct epitem, rbn));
	if (state == THREAD_UNKNOWN && !READ_KERNEL(child, root->rb_left) && child)
		state = state_of_item(CONTAINER_OF(child, struct epitem, rbn));
	if (state == THREAD_UNKNOWN && !READ_KERNEL(child, root->rb_right) && child)
		state = state_of_item(CONTAINER_OF(child, struct epitem, rbn));
	return state;
}

struct poll {
	__s32 descriptor;
	__u16 events;
	__u16 results;
};

/* The state of a thread in poll(2): the kind of what it waits for, if that is one or the first two are of one kind. */
static __always_inline __u32 state_in_poll(struct task_struct *task, __u64 polls_at, __u32 count, int has_timeout)
{
	struct poll polls[2] = {};
	__u32 state = THREAD_UNKNOWN;

	if (count && !bpf_probe_read_user(polls, count > 1 ? sizeof(polls) : sizeof(polls[0]), (void *)polls_at))
		state = state_of_descriptor(task, polls[0].descriptor);
	if (count > 1 && state != THREAD_UNKNOWN && state != state_of_descriptor(task, polls[1].descriptor))
		state = THREAD_UNKNOWN;
	return state == THREAD_UNKNOWN && has_timeout ? THREAD_TIMER : state;
}

/* The state of a thread that sleeps in a system call, and that a signal can wake. */
static __always_inline __u32 state_asleep(struct task_struct *task, const struct registers *regs)
{
	__u64 first = register_argument(regs, 1);
	__u32 state;

	switch (system_call_of(regs)) {
	case SYSTEM_CALL_FUTEX: return is_gil(task->tgid, first) ? THREAD_GIL : THREAD_LOCK;
	case SYSTEM_CALL_FUTEX_WAITV: case SYSTEM_CALL_FLOCK: case SYSTEM_CALL_FCNTL: return THREAD_LOCK;
	case SYSTEM_CALL_READ: case SYSTEM_CALL_PREAD64: case SYSTEM_CALL_READV: case SYSTEM_CALL_PREADV:
	case SYSTEM_CALL_PREADV2: case SYSTEM_CALL_WRITE: case SYSTEM_CALL_PWRITE64: case SYSTEM_CALL_WRITEV:
	case SYSTEM_CALL_PWRITEV: case SYSTEM_CALL_PWRITEV2: case SYSTEM_CALL_SENDFILE: case SYSTEM_CALL_SPLICE:
		return state_of_descriptor(task, first);
	case SYSTEM_CALL_RECVFROM: case SYSTEM_CALL_RECVMSG: case SYSTEM_CALL_RECVMMSG: case SYSTEM_CALL_SENDTO:
	case SYSTEM_CALL_SENDMSG: case SYSTEM_CALL_SENDMMSG: case SYSTEM_CALL_CONNECT: case SYSTEM_CALL_ACCEPT:
	case SYSTEM_CALL_ACCEPT4:
		return THREAD_SOCKET;
	case SYSTEM_CALL_IO_GETEVENTS: case SYSTEM_CALL_IO_URING_ENTER: return THREAD_FILE;
	case SYSTEM_CALL_WAIT4: case SYSTEM_CALL_WAITID: return THREAD_CHILD;
	case SYSTEM_CALL_NANOSLEEP: case SYSTEM_CALL_CLOCK_NANOSLEEP: return THREAD_TIMER;
	case SYSTEM_CALL_POLL:
		return state_in_poll(task, first, register_argument(regs, 2), (__s32)register_argument(regs, 3) > 0);
	case SYSTEM_CALL_PPOLL:
		return state_in_poll(task, first, register_argument(regs, 2), !!register_argument(regs, 3));
	case SYSTEM_CALL_SELECT: case SYSTEM_CALL_PSELECT6: /* the first argument is the highest descriptor + 1 */
		state = first ? state_of_descriptor(task, first - 1) : THREAD_UNKNOWN;
		return state == THREAD_UNKNOWN && register_argument(regs, 5) ? THREAD_TIMER : state;
	case SYSTEM_CALL_EPOLL_WAIT: case SYSTEM_CALL_EPOLL_PWAIT: case SYSTEM_CALL_EPOLL_PWAIT2: return THREAD_POLLING;
	default: return THREAD_UNKNOWN;
	}
}

/* The state of a thread in uninterruptible sleep. */
static __always_inline __u32 state_in_io(struct task_struct *task, const struct registers *regs)
{
	if (!is_in_system_call(regs))
		return task->flags & PF_MEMALLOC ? THREAD_SWAP : THREAD_FAULTING;
	switch (system_call_of(regs)) {
	case SYSTEM_CALL_CLONE: case SYSTEM_CALL_CLONE3: case SYSTEM_CALL_VFORK: return THREAD_CHILD;
	case SYSTEM_CALL_FUTEX: case SYSTEM_CALL_FUTEX_WAITV: return THREAD_LOCK;
	case SYSTEM_CALL_MMAP: case SYSTEM_CALL_MUNMAP: case SYSTEM_CALL_MPROTECT: case SYSTEM_CALL_BRK:
	case SYSTEM_CALL_MADVISE:
		return task->flags & PF_MEMALLOC ? THREAD_SWAP : THREAD_FAULT;
	case SYSTEM_CALL_IOCTL: return THREAD_UNKNOWN;
	default: return THREAD_FILE;
	}
}
