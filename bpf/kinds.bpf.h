/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kinds of probed calls, and the facts about a probed function that user space puts into its attach cookie.
 *
 * The Python side is probes/calls.py of the receiver. A test compares the two files. */
#pragma once

/* One row per kind of call, and the functions that handle its two ends. The order of the rows gives the numbers.
 *   WITH_RETURN(kind, entry, return)
 *   KEEPS_ARGUMENTS(kind, return)     the entry only keeps the first two arguments for the return
 *   ENTRY_ONLY(kind, entry)           the return has no probe */
#define CALL_KINDS(WITH_RETURN, KEEPS_ARGUMENTS, ENTRY_ONLY) \
	WITH_RETURN(CALL, begin_nothing, end_call) \
	WITH_RETURN(WAIT, begin_wait, end_wait) \
	WITH_RETURN(COPY, begin_copy, end_copy) \
	WITH_RETURN(ALLOCATE, begin_allocation, end_allocation) \
	WITH_RETURN(RELEASE, begin_release, end_release) \
	KEEPS_ARGUMENTS(DEVICE, end_device) \
	WITH_RETURN(SCOPE_BEGIN, begin_scope, open_scope) \
	ENTRY_ONLY(SCOPE_END, close_scope) \
	WITH_RETURN(BACKWARD, begin_backward, end_backward) \
	WITH_RETURN(COLLECTIVE, begin_collective, end_collective) \
	WITH_RETURN(GROUP, begin_nothing, end_group) \
	WITH_RETURN(COMMUNICATOR, begin_communicator, end_communicator) \
	ENTRY_ONLY(COMMUNICATOR_END, forget_communicator) \
	KEEPS_ARGUMENTS(COMMUNICATOR_SIZE, end_question) \
	KEEPS_ARGUMENTS(COMMUNICATOR_RANK, end_question) \
	ENTRY_ONLY(WORK_WAIT, begin_work_wait) \
	ENTRY_ONLY(WORK_WAIT_END, end_work_wait) \
	ENTRY_ONLY(REDUCER, begin_reducer) \
	KEEPS_ARGUMENTS(CONTEXT, end_context) \
	KEEPS_ARGUMENTS(CONTEXT_CREATE, end_context) \
	KEEPS_ARGUMENTS(CONTEXT_SET, end_context_set) \
	KEEPS_ARGUMENTS(CONTEXT_PUSH, end_context_push) \
	WITH_RETURN(CONTEXT_POP, begin_nothing, end_context_pop) \
	ENTRY_ONLY(WORK_ISSUE, begin_work) \
	ENTRY_ONLY(OPERATOR, begin_operator) \
	ENTRY_ONLY(LOSS, begin_operator) \
	ENTRY_ONLY(REDUCTION, begin_operator) \
	ENTRY_ONLY(SAMPLE, begin_operator) \
	ENTRY_ONLY(UPDATE, begin_operator) \
	ENTRY_ONLY(GRAD_MODE, set_grad_mode) \
	ENTRY_ONLY(INFERENCE_BEGIN, begin_inference) \
	ENTRY_ONLY(INFERENCE_END, end_inference) \
	ENTRY_ONLY(WORK_NUMBER, number_work) \
	ENTRY_ONLY(TRANSFER, begin_transfer) \
	ENTRY_ONLY(BATCH, begin_operator) \
	ENTRY_ONLY(NOISE, begin_operator) \
	ENTRY_ONLY(AUTOCAST, begin_operator) \
	ENTRY_ONLY(IN_PLACE, begin_operator) \
	ENTRY_ONLY(WORK_FINISH, finish_work) \
	ENTRY_ONLY(ACTIVITIES, begin_activities) \
	ENTRY_ONLY(KERNEL_RECORD, begin_kernel_record) \
	ENTRY_ONLY(CORRELATION, begin_correlation) \
	ENTRY_ONLY(PROCESS_GROUP, note_group) \
	ENTRY_ONLY(FUNCTION, begin_function)

#define NAME_OF_ROW(kind, ...) kind,

enum kind { CALL_KINDS(NAME_OF_ROW, NAME_OF_ROW, NAME_OF_ROW) KINDS };

/* A cookie has, from its lowest bit: 8 bits for the operation, 8 for the kind, 8 for the function's number (which only user
 * space reads), 8 for the flags, then 4 for the position of each argument that the kind needs; for USDT probes 16 for the
 * place of each argument. */
#define OPERATION_OF(flags) ((flags) & 0xff)
#define KIND_OF(flags) (((flags) >> 8) & 0xff)

#define IS_RUNTIME (1u << 24)	/* a function of CUDA's runtime API */
#define IS_DRIVER (1u << 25)	/* a function of CUDA's driver API */
#define IS_BLOCKING (1u << 26)	/* a copy that also waits for the GPU */
#define IS_HANDLE (1u << 27)	/* memory that has a handle instead of an address */
#define IS_NCCL (1u << 28)	/* a function of NCCL */
#define IS_PER_RANK (1u << 29)	/* a collective whose count is the count of one rank */
#define IS_GROUP_END (1u << 30) /* ncclGroupEnd; without the flag, ncclGroupStart */
#define IS_ARRAY (1u << 31)	/* creates the communicators of all ranks at once */

/* Operations that the BPF side knows by name. The other operations only come in cookies. */
enum operation {
	SYNC = 4,
	COPY_HOST_TO_DEVICE = 9,
	DATALOADER_WAIT = 16,
	FUTEX_WAIT = 17,
	SEND = 29,
	RECEIVE = 30,
	UPPER_BOUND = 8, /* added to a collective's operation when the collective is over */
};
