/* What the stand-in's boards answer: read from text, looked up by the name of the question. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <pthread.h>

struct entry {
    unsigned hash;
    char *key, *value;
};

/* A board, a MIG instance of one, or (the first) the driver itself. */
struct device {
    int gpu, mig; /* mig is -1 for a board */
    struct entry *entries;
    int count, room;
};

enum { MAX_DEVICES = 128 };

extern pthread_mutex_t scenario_lock;
extern pthread_cond_t scenario_changed;

/* All of these are to be called with the lock held. */

/* Forgets everything, then reads the file; 0 if it cannot be read. */
int scenario_read(const char *path);
/* Reads further lines; returns 0 at the first that is none. */
int scenario_apply(const char *text, const char *folder);
struct device *scenario_driver(void);
/* The board, or its MIG instance; NULL if the scenario has none such. */
struct device *scenario_device(int gpu, int mig);
/* The nth value of a key, NULL if there are not so many. */
const char *scenario_value(const struct device *device, const char *key, int nth);

/* The next value of a key from entry *at on, which moves behind it; NULL at the end. */
const char *scenario_next(const struct device *device, const char *key, int *at);

/* NVML was shut down: what was lost only until then is back. */
void scenario_closed(void);

/* Called for every event a line raises: `xid = CODE [GPU_INSTANCE COMPUTE_INSTANCE]`. */
void raise_event(struct device *device, unsigned long long xid, unsigned gpu_instance, unsigned compute_instance);

#endif
