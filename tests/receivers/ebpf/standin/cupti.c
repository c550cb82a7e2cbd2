/* A stand-in for Parca's CUPTI library: it publishes the work of the device by USDT probes. As there, nothing is recorded
 * while no tracer is at `cuda_correlation`.
 *
 * With -DSINGLE it is like the first releases, which have a probe for each kernel and none for a batch of records. */
#include <stdint.h>
#include <string.h>

#include "standin.h"

enum { BATCH = 128, BUFFERED = 16 /* records that wait until they are published */, CONCURRENT_KERNEL = 10 };

/* The begin of CUpti_ActivityKernel9. */
struct activity {
    uint32_t kind, unused[3];
    uint64_t start, end, completed;
    uint32_t device, more[25];
};

/* A note as sys/sdt.h writes it; `arguments` are those of the assembler, with their sizes. */
#define USDT(name, arguments, ...)                                                                             \
    __asm__ volatile("990: nop\n"                                                                              \
                     ".pushsection .note.stapsdt,\"\",%%note\n"                                                \
                     ".balign 4\n"                                                                             \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                                        \
                     "991: .asciz \"stapsdt\"\n"                                                               \
                     "992: .balign 4\n"                                                                        \
                     "993: .8byte 990b, standin_base, parcagpu_" #name "_semaphore\n"                          \
                     ".asciz \"parcagpu\", \"" #name "\", \"" arguments "\"\n"                                 \
                     "994: .balign 4\n"                                                                        \
                     ".popsection\n" ::__VA_ARGS__)

__asm__(".pushsection .stapsdt.base,\"a\",%progbits\nstandin_base: .space 1\n.popsection");

#define SEMAPHORE(name) __attribute__((section(".probes"), used)) static volatile unsigned short name __asm__("parcagpu_" #name "_semaphore")

SEMAPHORE(cuda_correlation);
SEMAPHORE(activity_batch);
SEMAPHORE(kernel_executed);

#if defined(__x86_64__)
#define WORD "%k"
#else
#define WORD "%w"
#endif

static struct activity activities[BATCH];
static unsigned waiting;

static __attribute__((noinline)) void publish(const void **records, uint32_t count)
{
    USDT(activity_batch, "8@%0 -4@" WORD "1", "r"(records), "r"(count));
}

static void publish_single(uint64_t begin, uint64_t end)
{
    volatile uint64_t in_memory = end;
    USDT(kernel_executed, "8@%0 8@%1", "r"(begin), "m"(in_memory));
}

/* The device has worked from `begin` to `end`. */
void standin_record(uint64_t begin, uint64_t end)
{
    const void *records[BATCH];

    USDT(cuda_correlation, "-4@" WORD "0", "r"(1));
    if (!cuda_correlation)
        return;
#ifdef SINGLE
    publish_single(begin, end);
    return;
#endif
    activities[waiting++] = (struct activity){.kind = CONCURRENT_KERNEL, .start = begin, .end = end};
    if (waiting < BUFFERED)
        return;
    for (unsigned at = 0; at < waiting; at++)
        records[at] = &activities[at];
    publish(records, waiting);
    waiting = 0;
}

int InitializeInjection(void) { return 1; }
