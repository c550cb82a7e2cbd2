/* The answers of the stand-in's boards: read from text, looked up by the name of the question. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <pthread.h>

struct entry {
    unsigned hash;
    char *key, *value;
};

/* A board, a MIG instance, or the driver itself (the first entry). */
struct device {
    int gpu, mig; /* mig is -1 for a board */
    struct entry *entries;
    int count, room;
};

enum { MAX_DEVICES = 128 };

extern pthread_mutex_t scenario_lock;
extern pthread_cond_t scenario_changed;

/* The caller of these functions must hold the lock. */

/* Replaces all entries by those in the file. Returns 0 if the file cannot be read. */
int scenario_read(const char *path);
/* Applies further lines. Returns 0 at the first invalid line. */
int scenario_apply(const char *text, const char *folder);
struct device *scenario_driver(void);
/* The board, or its MIG instance; NULL if the scenario does not have it. */
struct device *scenario_device(int gpu, int mig);
/* The nth value of a key, NULL if the key has fewer values. */
const char *scenario_value(const struct device *device, const char *key, int nth);

/* The next value of a key at or after entry *at. Moves *at past that entry. NULL at the end. */
const char *scenario_next(const struct device *device, const char *key, int *at);

/* To be called when NVML was shut down: boards that were lost `until closed` are back. */
void scenario_closed(void);

/* Called for every line that raises an event: `xid = CODE [GPU_INSTANCE COMPUTE_INSTANCE]`. */
void raise_event(struct device *device, unsigned long long xid, unsigned gpu_instance, unsigned compute_instance);

#endif
