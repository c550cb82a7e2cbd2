/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The registers of a probed thread. The kernel's header (asm/ptrace.h) describes one architecture only; its layouts are
 * ABI, so they are repeated here. */
#pragma once

/* Reads a register at a constant offset. Compilers turn a switch over registers into one read at a computed offset, which
 * the verifier rejects. */
#define READ(member)                                              \
	({                                                        \
		__u64 value = *(const volatile __u64 *)&(member); \
		barrier_var(value);                               \
		value;                                            \
	})

/* On every architecture. */
#define SYSTEM_CALL_IO_URING_ENTER 426
#define SYSTEM_CALL_CLONE3 435
#define SYSTEM_CALL_EPOLL_PWAIT2 441
#define SYSTEM_CALL_FUTEX_WAITV 449

#if defined(__TARGET_ARCH_x86)

struct registers {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

#define USER_REGISTERS 21 /* in the context of a clock's program */
#define ARGUMENTS_IN_REGISTERS 6
#define RETURN_ADDRESS_SIZE 8 /* the return address is on the stack */
#define RESULT_PLACE_IS_ARGUMENT 1

static __always_inline __u64 register_argument(const struct registers *regs, __u32 number)
{
	switch (number) {
	case 1: return READ(regs->di);
	case 2: return READ(regs->si);
	case 3: return READ(regs->dx);
	case 4: return READ(regs->cx);
	case 5: return READ(regs->r8);
	default: return READ(regs->r9);
	}
}

static __always_inline __u64 result_of(const struct registers *regs)
{
	return regs->ax;
}

/* At the entry of a C++ function that returns an object: the address for that object. */
static __always_inline __u64 result_place(const struct registers *regs)
{
	return regs->di;
}

/* Those that an architecture lacks have numbers above 1,000. */
#define SYSTEM_CALL_READ 0
#define SYSTEM_CALL_WRITE 1
#define SYSTEM_CALL_POLL 7
#define SYSTEM_CALL_MMAP 9
#define SYSTEM_CALL_MPROTECT 10
#define SYSTEM_CALL_MUNMAP 11
#define SYSTEM_CALL_BRK 12
#define SYSTEM_CALL_IOCTL 16
#define SYSTEM_CALL_PREAD64 17
#define SYSTEM_CALL_PWRITE64 18
#define SYSTEM_CALL_READV 19
#define SYSTEM_CALL_WRITEV 20
#define SYSTEM_CALL_SELECT 23
#define SYSTEM_CALL_SCHED_YIELD 24
#define SYSTEM_CALL_MSYNC 26
#define SYSTEM_CALL_MADVISE 28
#define SYSTEM_CALL_NANOSLEEP 35
#define SYSTEM_CALL_SENDFILE 40
#define SYSTEM_CALL_CONNECT 42
#define SYSTEM_CALL_ACCEPT 43
#define SYSTEM_CALL_SENDTO 44
#define SYSTEM_CALL_RECVFROM 45
#define SYSTEM_CALL_SENDMSG 46
#define SYSTEM_CALL_RECVMSG 47
#define SYSTEM_CALL_CLONE 56
#define SYSTEM_CALL_VFORK 58
#define SYSTEM_CALL_WAIT4 61
#define SYSTEM_CALL_FCNTL 72
#define SYSTEM_CALL_FLOCK 73
#define SYSTEM_CALL_FSYNC 74
#define SYSTEM_CALL_FDATASYNC 75
#define SYSTEM_CALL_SYNC 162
#define SYSTEM_CALL_FUTEX 202
#define SYSTEM_CALL_IO_GETEVENTS 208
#define SYSTEM_CALL_CLOCK_NANOSLEEP 230
#define SYSTEM_CALL_EPOLL_WAIT 232
#define SYSTEM_CALL_WAITID 247
#define SYSTEM_CALL_PSELECT6 270
#define SYSTEM_CALL_PPOLL 271
#define SYSTEM_CALL_SPLICE 275
#define SYSTEM_CALL_SYNC_FILE_RANGE 277
#define SYSTEM_CALL_EPOLL_PWAIT 281
#define SYSTEM_CALL_ACCEPT4 288
#define SYSTEM_CALL_PREADV 295
#define SYSTEM_CALL_PWRITEV 296
#define SYSTEM_CALL_RECVMMSG 299
#define SYSTEM_CALL_SYNCFS 306
#define SYSTEM_CALL_SENDMMSG 307
#define SYSTEM_CALL_PREADV2 327
#define SYSTEM_CALL_PWRITEV2 328

/* The number of the system call that a task executes. */
static __always_inline __u64 system_call_of(const struct registers *regs)
{
	return regs->orig_ax;
}

static __always_inline __u64 instruction_of(const struct registers *regs)
{
	return regs->ip;
}

/* Of a function that may have put it on its stack already. */
static __always_inline __u64 return_address_of(const struct registers *regs)
{
	return 0; /* always on the stack */
}

/* Whether a task executes a system call. Else it is in an exception, such as a page fault, or in an interrupt. */
static __always_inline int is_in_system_call(const struct registers *regs)
{
	return (__s64)regs->orig_ax >= 0;
}

/* Also when the system call is over. */
static __always_inline __u64 first_argument_of_system_call(const struct registers *regs)
{
	return READ(regs->di);
}

#elif defined(__TARGET_ARCH_arm64)

struct registers {
	__u64 x[31], sp, pc, pstate;
	__u64 orig_x0; /* this and the next only in the kernel's registers of a task, not in those of a probe */
	__s32 system_call;
};

#define USER_REGISTERS 34
#define ARGUMENTS_IN_REGISTERS 8
#define RETURN_ADDRESS_SIZE 0 /* the return address is in x30 */
#define RESULT_PLACE_IS_ARGUMENT 0

static __always_inline __u64 register_argument(const struct registers *regs, __u32 number)
{
	switch (number) {
	case 1: return READ(regs->x[0]);
	case 2: return READ(regs->x[1]);
	case 3: return READ(regs->x[2]);
	case 4: return READ(regs->x[3]);
	case 5: return READ(regs->x[4]);
	case 6: return READ(regs->x[5]);
	case 7: return READ(regs->x[6]);
	default: return READ(regs->x[7]);
	}
}

static __always_inline __u64 result_of(const struct registers *regs)
{
	return regs->x[0];
}

static __always_inline __u64 result_place(const struct registers *regs)
{
	return regs->x[8];
}

#define SYSTEM_CALL_IO_GETEVENTS 4
#define SYSTEM_CALL_EPOLL_PWAIT 22
#define SYSTEM_CALL_FCNTL 25
#define SYSTEM_CALL_IOCTL 29
#define SYSTEM_CALL_FLOCK 32
#define SYSTEM_CALL_READ 63
#define SYSTEM_CALL_WRITE 64
#define SYSTEM_CALL_READV 65
#define SYSTEM_CALL_WRITEV 66
#define SYSTEM_CALL_PREAD64 67
#define SYSTEM_CALL_PWRITE64 68
#define SYSTEM_CALL_PREADV 69
#define SYSTEM_CALL_PWRITEV 70
#define SYSTEM_CALL_SENDFILE 71
#define SYSTEM_CALL_PSELECT6 72
#define SYSTEM_CALL_PPOLL 73
#define SYSTEM_CALL_SPLICE 76
#define SYSTEM_CALL_SYNC 81
#define SYSTEM_CALL_FSYNC 82
#define SYSTEM_CALL_FDATASYNC 83
#define SYSTEM_CALL_SYNC_FILE_RANGE 84
#define SYSTEM_CALL_WAITID 95
#define SYSTEM_CALL_FUTEX 98
#define SYSTEM_CALL_NANOSLEEP 101
#define SYSTEM_CALL_CLOCK_NANOSLEEP 115
#define SYSTEM_CALL_SCHED_YIELD 124
#define SYSTEM_CALL_ACCEPT 202
#define SYSTEM_CALL_CONNECT 203
#define SYSTEM_CALL_SENDTO 206
#define SYSTEM_CALL_RECVFROM 207
#define SYSTEM_CALL_SENDMSG 211
#define SYSTEM_CALL_RECVMSG 212
#define SYSTEM_CALL_BRK 214
#define SYSTEM_CALL_MUNMAP 215
#define SYSTEM_CALL_CLONE 220
#define SYSTEM_CALL_MMAP 222
#define SYSTEM_CALL_MPROTECT 226
#define SYSTEM_CALL_MSYNC 227
#define SYSTEM_CALL_MADVISE 233
#define SYSTEM_CALL_ACCEPT4 242
#define SYSTEM_CALL_RECVMMSG 243
#define SYSTEM_CALL_WAIT4 260
#define SYSTEM_CALL_SYNCFS 267
#define SYSTEM_CALL_SENDMMSG 269
#define SYSTEM_CALL_PREADV2 286
#define SYSTEM_CALL_PWRITEV2 287
#define SYSTEM_CALL_POLL 1001
#define SYSTEM_CALL_SELECT 1002
#define SYSTEM_CALL_VFORK 1003
#define SYSTEM_CALL_EPOLL_WAIT 1004

static __always_inline __u64 system_call_of(const struct registers *regs)
{
	return regs->x[8];
}

static __always_inline __u64 instruction_of(const struct registers *regs)
{
	return regs->pc;
}

static __always_inline __u64 return_address_of(const struct registers *regs)
{
	return regs->x[30];
}

static __always_inline int is_in_system_call(const struct registers *regs)
{
	return regs->system_call >= 0;
}

static __always_inline __u64 first_argument_of_system_call(const struct registers *regs)
{
	return READ(regs->orig_x0);
}

#endif

/* An argument at a function's entry. The first has number 1. */
static __always_inline __u64 argument(const struct registers *regs, __u32 number)
{
	__u64 value = 0;

	if (number <= ARGUMENTS_IN_REGISTERS)
		return register_argument(regs, number);
	bpf_probe_read_user(&value, sizeof(value),
			    (void *)(regs->sp + RETURN_ADDRESS_SIZE + 8 * (number - ARGUMENTS_IN_REGISTERS - 1)));
	return value;
}
