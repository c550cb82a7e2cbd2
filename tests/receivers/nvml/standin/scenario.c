/* The format, line by line (# starts a comment):
 *
 *     driver                    the next lines describe the driver
 *     gpu 0 | gpu 0-7           the next lines describe these boards; {gpu} in a value is the board's number
 *     mig 1                     the next lines describe MIG instance 1 of these boards
 *     include h100.board        inserts the lines of a file in the same folder
 *     ClockInfo 1 = 1980        nvmlDeviceGetClockInfo(device, 1) returns 1980
 *     ClockInfo 1 = !13         ... returns the error 13; without an entry it returns NOT_SUPPORTED
 *     Samples 1 += 1000000 57   adds a value; a ring buffer drops its oldest value (see SampleCapacity)
 *     Name -                    removes the entry
 *     lost = !15                every question about the board returns the error 15
 *     lost = !15 until closed   ... until nvmlShutdown
 *     hang = 1                  no question about the board returns; for the driver, neither does nvmlInit
 *     hang count = 1            nvmlDeviceGetCount does not return (driver only)
 */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t scenario_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t scenario_changed = PTHREAD_COND_INITIALIZER;

static struct device devices[MAX_DEVICES];
static int device_count;

static unsigned hash_of(const char *key) {
    unsigned hash = 2166136261u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

struct device *scenario_device(int gpu, int mig) {
    for (int i = 0; i < device_count; i++)
        if (devices[i].gpu == gpu && devices[i].mig == mig)
            return &devices[i];
    return NULL;
}

struct device *scenario_driver(void) {
    return scenario_device(-1, -1);
}

static struct device *device_made(int gpu, int mig) {
    struct device *known = scenario_device(gpu, mig);
    if (known || device_count == MAX_DEVICES)
        return known;
    devices[device_count] = (struct device){.gpu = gpu, .mig = mig};
    return &devices[device_count++];
}

const char *scenario_value(const struct device *device, const char *key, int nth) {
    unsigned hash = hash_of(key);
    for (int i = 0; device && i < device->count; i++)
        if (device->entries[i].hash == hash && !strcmp(device->entries[i].key, key) && nth-- == 0)
            return device->entries[i].value;
    return NULL;
}

const char *scenario_next(const struct device *device, const char *key, int *at) {
    unsigned hash = hash_of(key);
    while (*at < device->count) {
        const struct entry *entry = &device->entries[(*at)++];
        if (entry->hash == hash && !strcmp(entry->key, key))
            return entry->value;
    }
    return NULL;
}

static int values_of(const struct device *device, const char *key) {
    int count = 0;
    for (int at = 0; scenario_next(device, key, &at); count++)
        ;
    return count;
}

static void forget(struct device *device, const char *key, int keep) {
    int excess = values_of(device, key) - keep, kept = 0;
    if (excess <= 0)
        return;
    for (int i = 0; i < device->count; i++) {
        struct entry *entry = &device->entries[i];
        if (excess > 0 && !strcmp(entry->key, key)) {
            free(entry->key);
            free(entry->value);
            excess--;
        } else {
            device->entries[kept++] = *entry;
        }
    }
    device->count = kept;
}

void scenario_closed(void) {
    for (int i = 0; i < device_count; i++) {
        const char *lost = scenario_value(&devices[i], "lost", 0);
        if (lost && strstr(lost, "until closed"))
            forget(&devices[i], "lost", 0);
    }
}

/* The value with {gpu} replaced by the board's number. */
static char *filled(const char *value, int gpu) {
    const char *hole = strstr(value, "{gpu}");
    char *text = malloc(strlen(value) + 16);
    if (hole)
        sprintf(text, "%.*s%d%s", (int)(hole - value), value, gpu, hole + 5);
    else
        strcpy(text, value);
    return text;
}

static int ring_capacity(const struct device *device, const char *key) {
    char name[64];
    if (sscanf(key, "Samples %40s", name) != 1)
        return 1 << 20;
    char capacity[80];
    snprintf(capacity, sizeof capacity, "SampleCapacity %s", name);
    const char *value = scenario_value(device, capacity, 0);
    return value ? atoi(value) : 120;
}

static void add(struct device *device, const char *key, const char *value) {
    if (device->count == device->room) {
        device->room = device->room ? 2 * device->room : 64;
        device->entries = realloc(device->entries, device->room * sizeof *device->entries);
    }
    struct entry *entry = &device->entries[device->count++];
    *entry = (struct entry){hash_of(key), strdup(key), filled(value, device->gpu)};
    forget(device, key, ring_capacity(device, key));
}

static void set(struct device *device, const char *key, const char *value, int more) {
    unsigned long long code;
    unsigned gpu_instance = ~0u, compute_instance = ~0u;
    if (!strcmp(key, "xid") && sscanf(value, "%llu %u %u", &code, &gpu_instance, &compute_instance) >= 1) {
        raise_event(device, code, gpu_instance, compute_instance);
        return;
    }
    if (!more)
        forget(device, key, 0);
    add(device, key, value);
}

static char *trimmed(char *text) {
    text += strspn(text, " \t");
    for (char *end = text + strlen(text); end > text && strchr(" \t\r", end[-1]); *--end = 0)
        ;
    return text;
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    char *text = calloc(1, 1 << 20);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    text[size] = 0;
    fclose(file);
    return text;
}

/* The boards that the next lines describe. */
struct subject {
    int first, last, mig;
};

static int include(const char *name, const char *folder, struct subject *about);

static int apply_line(char *line, const char *folder, struct subject *about) {
    char *hash = strchr(line, '#');
    if (hash)
        *hash = 0;
    line = trimmed(line);
    if (!*line)
        return 1;
    int first, last;
    if (!strcmp(line, "driver")) {
        *about = (struct subject){-1, -1, -1};
        return 1;
    }
    if (sscanf(line, "gpu %d-%d", &first, &last) == 2 || (sscanf(line, "gpu %d", &first) == 1 && (last = first, 1))) {
        *about = (struct subject){first, last, -1};
        return 1;
    }
    if (sscanf(line, "mig %d", &about->mig) == 1)
        return 1;
    if (!strncmp(line, "include ", 8))
        return include(trimmed(line + 8), folder, about);
    char *sign = strstr(line, "=");
    int more = sign && sign > line && sign[-1] == '+';
    size_t length = strlen(line);
    for (int gpu = about->first; gpu <= about->last; gpu++) {
        struct device *device = device_made(gpu, about->mig);
        if (!device)
            return 0;
        if (!sign && line[length - 1] == '-') {
            char key[128];
            snprintf(key, sizeof key, "%.*s", (int)length - 1, line);
            forget(device, trimmed(key), 0);
        } else if (sign) {
            char key[128];
            snprintf(key, sizeof key, "%.*s", (int)(sign - line - more), line);
            set(device, trimmed(key), trimmed(sign + 1), more);
        } else {
            return 0;
        }
    }
    return 1;
}

static int apply_lines(const char *text, const char *folder, struct subject *about) {
    char *copy = strdup(text), *rest = copy, *line;
    int good = 1;
    while (good && (line = strsep(&rest, "\n")))
        good = apply_line(line, folder, about);
    free(copy);
    return good;
}

static int include(const char *name, const char *folder, struct subject *about) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = contents(path);
    int good = text && apply_lines(text, folder, about);
    free(text);
    return good;
}

int scenario_apply(const char *text, const char *folder) {
    struct subject about = {-1, -1, -1};
    int good = apply_lines(text, folder, &about);
    pthread_cond_broadcast(&scenario_changed);
    return good;
}

int scenario_read(const char *path) {
    for (int i = 0; i < device_count; i++)
        devices[i].count = 0; /* its strings leak: earlier handles may still be in use, as after a reload of the driver */
    device_count = 0;
    char *text = contents(path);
    if (!text)
        return 0;
    char folder[1024];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int good = scenario_apply(text, folder);
    free(text);
    return good;
}
