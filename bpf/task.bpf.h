/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The fields of the kernel's tasks that are read here. libbpf takes their offsets from the running kernel's BTF. */
#pragma once

/* Of bpf_core_read.h. */
#define FIELD_BYTE_OFFSET 0
#define FIELD_EXISTS 2

struct task_io_accounting {
	__u64 rchar; /* bytes that read(2) and the like returned */
	__u64 wchar; /* the same of write(2) */
} __attribute__((preserve_access_index));

struct sched_entity {
	__u64 sum_exec_runtime; /* ns */
} __attribute__((preserve_access_index));

struct signal_struct {
	unsigned long long sum_sched_runtime; /* of the process's threads that have ended, ns */
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay; /* ns in the queue of a CPU, with CONFIG_SCHED_INFO */
} __attribute__((preserve_access_index));

struct mm_struct;

struct super_block {
	unsigned long s_magic;
} __attribute__((preserve_access_index));

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));

struct file {
	void *private_data;
	struct inode *f_inode;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct list_head {
	struct list_head *next;
} __attribute__((preserve_access_index));

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} __attribute__((preserve_access_index));

struct rb_root {
	struct rb_node *rb_node;
} __attribute__((preserve_access_index));

struct rb_root_cached {
	struct rb_root rb_root;
} __attribute__((preserve_access_index));

/* The private data of an epoll's file: its items in a tree, and those that are ready in a list. */
struct eventpoll {
	struct list_head rdllist;
	struct rb_root_cached rbr;
} __attribute__((preserve_access_index));

struct epoll_filefd {
	struct file *file;
} __attribute__((preserve_access_index));

struct epitem {
	struct rb_node rbn;
	struct list_head rdllink;
	struct epoll_filefd ffd;
} __attribute__((preserve_access_index));

/* The struct that has this member. */
#define CONTAINER_OF(at, type, member)                                                                    \
	((type *)((void *)(at) - __builtin_preserve_field_info(((type *)0)->member, FIELD_BYTE_OFFSET)))

/* Up to Linux 6.1, most threads collect changes of their address space's counters here first, so rss_stat fires rarely. */
struct task_rss_stat {
	int events;
} __attribute__((preserve_access_index));

#if defined(__TARGET_ARCH_x86)

struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

#elif defined(__TARGET_ARCH_arm64)

struct user_state {
	unsigned long tp_value; /* tpidr_el0, as of the thread's latest switch */
} __attribute__((preserve_access_index));

struct thread_struct {
	struct user_state uw;
} __attribute__((preserve_access_index));

#endif

struct task_struct {
	__u64 start_time; /* CLOCK_MONOTONIC, ns */
	struct sched_entity se;
	struct sched_info sched_info;
	struct signal_struct *signal;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	int pid; /* of the thread, in the initial pid namespace, as is `tgid` */
	int tgid;
	unsigned int flags;
	char comm[16];
	int exit_code;	  /* as wait(2) gives it */
	unsigned int __state;
	unsigned long min_flt; /* page faults without and with I/O */
	unsigned long maj_flt;
	struct mm_struct *mm;
	struct files_struct *files;
	struct task_rss_stat rss_stat;
	struct task_io_accounting ioac;
	struct thread_struct thread;
} __attribute__((preserve_access_index));

/* The register that points to the thread's data. */
static __always_inline __u64 thread_register(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread.fsbase;
#else
	return task->thread.uw.tp_value;
#endif
}

/* Whether page faults on files are counted: see faults.bpf.c. */
static __always_inline int knows_file_faults(struct task_struct *task)
{
	return settings.counts_file_faults && !__builtin_preserve_field_info(task->rss_stat, FIELD_EXISTS);
}

/* A kernel without CONFIG_TASK_XACCT does not count the bytes that a task reads. */
static __always_inline int knows_bytes_read(struct task_struct *task)
{
	return __builtin_preserve_field_info(task->ioac.rchar, FIELD_EXISTS);
}
