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

#define SYSTEM_CALL_IO_URING_ENTER 426 /* on every architecture */

#if defined(__TARGET_ARCH_x86)

struct registers {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

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

#define SYSTEM_CALL_FUTEX 202
#define SYSTEM_CALL_READ 0
#define SYSTEM_CALL_PREAD64 17
#define SYSTEM_CALL_READV 19
#define SYSTEM_CALL_PREADV 295
#define SYSTEM_CALL_WRITE 1
#define SYSTEM_CALL_PWRITE64 18
#define SYSTEM_CALL_WRITEV 20
#define SYSTEM_CALL_SENDTO 44
#define SYSTEM_CALL_RECVFROM 45
#define SYSTEM_CALL_SENDMSG 46
#define SYSTEM_CALL_RECVMSG 47
#define SYSTEM_CALL_IO_GETEVENTS 208

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

#elif defined(__TARGET_ARCH_arm64)

struct registers {
	__u64 x[31], sp, pc, pstate;
};

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

#define SYSTEM_CALL_FUTEX 98
#define SYSTEM_CALL_READ 63
#define SYSTEM_CALL_PREAD64 67
#define SYSTEM_CALL_READV 65
#define SYSTEM_CALL_PREADV 69
#define SYSTEM_CALL_WRITE 64
#define SYSTEM_CALL_PWRITE64 68
#define SYSTEM_CALL_WRITEV 66
#define SYSTEM_CALL_SENDTO 206
#define SYSTEM_CALL_RECVFROM 207
#define SYSTEM_CALL_SENDMSG 211
#define SYSTEM_CALL_RECVMSG 212
#define SYSTEM_CALL_IO_GETEVENTS 4

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
