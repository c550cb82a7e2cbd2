// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Includes all programs: they share one set of maps, so they form one object. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#include "settings.bpf.h"
#include "registers.bpf.h"
#include "losses.bpf.h"
#include "hdr.bpf.h"
#include "task.bpf.h"
#include "kinds.bpf.h"
#include "snapshot.bpf.h"
#include "thread.bpf.h"
#include "process.bpf.h"
#include "workers.bpf.h"
#include "gil.bpf.h"
#include "python.bpf.h"
#include "thread_process.bpf.h"
#include "series.bpf.h"
#include "errors.bpf.h"
#include "phase.bpf.h"
#include "events.bpf.h"
#include "thread_state.bpf.h"
#include "call.bpf.h"
#include "address.bpf.h"
#include "marks.bpf.h"
#include "operators.bpf.c"
#include "grad_mode.bpf.c"
#include "communicators.bpf.c"
#include "collectives.bpf.c"
#include "waits.bpf.h"
#include "devices.bpf.c"
#include "cuda.bpf.c"
#include "distributed.bpf.c"
#include "torch.bpf.c"
#include "blocking.bpf.h"
#include "cpu_takers.bpf.h"
#include "sampler.bpf.c"
#include "sched.bpf.c"
#include "reads.bpf.c"
#include "faults.bpf.c"
#include "lifetime.bpf.c"
#include "activities.bpf.c"
#include "probe.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
/* The digest of the sources. A test uses it to check that the committed objects are built from them. */
const char SOURCES[] SEC("sources") = SOURCE_DIGEST;
