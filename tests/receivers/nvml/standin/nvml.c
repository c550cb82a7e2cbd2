/* A stand-in for libnvidia-ml.so.1 whose boards are described in a text file, the scenario.
 *
 * `NVML_STANDIN` is the path of the file; `standin_apply` changes the boards at run time. Signatures and layouts are those
 * that pynvml of nvidia-ml-py uses. A question without an entry in the scenario returns NOT_SUPPORTED.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "scenario.h"

typedef struct device *nvmlDevice_t;
typedef unsigned long long ull;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    ALL_SCOPES = -1,
};

static int users; /* nvmlInit calls without a matching nvmlShutdown */

/* The driver */

static int code_of(const char *value) {
    return value && *value == '!' ? atoi(value + 1) : SUCCESS;
}

static int driver_code(const char *key) {
    return code_of(scenario_value(scenario_driver(), key, 0));
}

int standin_apply(const char *text) {
    pthread_mutex_lock(&scenario_lock);
    int good = scenario_apply(text, ".");
    pthread_mutex_unlock(&scenario_lock);
    return good;
}

/* Reads another scenario, as if the machine had been rebooted with other boards. Earlier handles become invalid. */
int standin_load(const char *path) {
    pthread_mutex_lock(&scenario_lock);
    int good = scenario_read(path);
    users = 0;
    pthread_mutex_unlock(&scenario_lock);
    return good;
}

int standin_users(void) {
    return users;
}

static void wait_while(const struct device *device, const char *key) {
    while (scenario_value(device, key, 0))
        pthread_cond_wait(&scenario_changed, &scenario_lock);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&scenario_lock);
    wait_while(scenario_driver(), "hang");
    const char *path = getenv("NVML_STANDIN");
    int code = SUCCESS;
    if (!scenario_driver() && (!path || !scenario_read(path)))
        code = DRIVER_NOT_LOADED;
    else if ((code = driver_code("init")) == SUCCESS)
        users++;
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

int nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&scenario_lock);
    int code = users ? SUCCESS : UNINITIALIZED;
    users -= users > 0;
    if (!users)
        scenario_closed();
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

const char *nvmlErrorString(int code) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "error %d", code);
    return text;
}

/* Every question takes the lock, applies the board's faults, and looks its value up. */

static void pause_for(const struct device *device, const char *key) {
    char name[96];
    snprintf(name, sizeof name, "delay %s", key); /* us */
    const char *delay = scenario_value(device, name, 0);
    if (delay) {
        useconds_t us = (useconds_t)atoi(delay);
        pthread_mutex_unlock(&scenario_lock);
        usleep(us);
        pthread_mutex_lock(&scenario_lock);
    }
}

/* Returns with the lock held, also after an error. Blocks while the entry `hang` exists. */
static int enter(const struct device *device, const char *key) {
    pthread_mutex_lock(&scenario_lock);
    wait_while(device ? device : scenario_driver(), "hang");
    pause_for(device, key);
    if (!users)
        return UNINITIALIZED;
    int code = driver_code("broken");
    return code != SUCCESS ? code : code_of(scenario_value(device, "lost", 0));
}

static int leave(int code) {
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

/* Writes the first value of the key to *value. The caller must call leave() afterwards. */
static int ask(const struct device *device, const char *key, const char **value) {
    int code = enter(device, key);
    if (code != SUCCESS)
        return code;
    *value = scenario_value(device, key, 0);
    return *value ? code_of(*value) : NOT_SUPPORTED;
}

static int numbers(const struct device *device, const char *key, ull *out, int count) {
    const char *value;
    int code = ask(device, key, &value);
    for (int i = 0; code == SUCCESS && i < count; i++) {
        char *end;
        out[i] = strtoull(value, &end, 0);
        code = end == value ? INVALID_ARGUMENT : SUCCESS;
        value = end;
    }
    return leave(code);
}

static int text(const struct device *device, const char *key, char *out, unsigned room) {
    const char *value;
    int code = ask(device, key, &value);
    if (code == SUCCESS && strlen(value) >= room)
        code = INSUFFICIENT_SIZE;
    if (code == SUCCESS)
        strcpy(out, value);
    return leave(code);
}

static const char *with(char *buffer, size_t size, const char *name, int first, int second) {
    if (second < 0)
        snprintf(buffer, size, "%s %d", name, first);
    else
        snprintf(buffer, size, "%s %d %d", name, first, second);
    return buffer;
}

#define KEY(name, first, second) with((char[64]){0}, 64, name, first, second)

#define TEXT(Name)                                                          \
    int nvmlDeviceGet##Name(nvmlDevice_t device, char *out, unsigned room) { \
        return text(device, #Name, out, room);                              \
    }
#define NUMBER(Name, type)                                    \
    int nvmlDeviceGet##Name(nvmlDevice_t device, type *out) { \
        ull value;                                            \
        int code = numbers(device, #Name, &value, 1);         \
        if (code == SUCCESS)                                  \
            *out = (type)value;                               \
        return code;                                          \
    }
#define NUMBER_OF(Name)                                                   \
    int nvmlDeviceGet##Name(nvmlDevice_t device, int of, unsigned *out) { \
        ull value;                                                        \
        int code = numbers(device, KEY(#Name, of, -1), &value, 1);        \
        if (code == SUCCESS)                                              \
            *out = (unsigned)value;                                       \
        return code;                                                      \
    }
#define PAIR(Name)                                                                      \
    int nvmlDeviceGet##Name(nvmlDevice_t device, unsigned *first, unsigned *second) {   \
        ull value[2];                                                                   \
        int code = numbers(device, #Name, value, 2);                                    \
        if (code == SUCCESS)                                                            \
            *first = (unsigned)value[0], *second = (unsigned)value[1];                  \
        return code;                                                                    \
    }

TEXT(Name)
TEXT(UUID)
TEXT(Serial)
TEXT(VbiosVersion)
TEXT(BoardPartNumber)
NUMBER(Index, unsigned)
NUMBER(MinorNumber, unsigned)
NUMBER(NumaNodeId, int)
NUMBER(PowerUsage, unsigned)
NUMBER(PowerManagementLimit, unsigned)
NUMBER(PowerManagementDefaultLimit, unsigned)
NUMBER(EnforcedPowerLimit, unsigned)
NUMBER(PerformanceState, int)
NUMBER(PowerState, int)
NUMBER(FanSpeed, unsigned)
NUMBER(CurrPcieLinkGeneration, unsigned)
NUMBER(CurrPcieLinkWidth, unsigned)
NUMBER(MaxPcieLinkGeneration, unsigned)
NUMBER(MaxPcieLinkWidth, unsigned)
NUMBER(PcieReplayCounter, unsigned)
NUMBER(PersistenceMode, int)
NUMBER(ComputeMode, int)
NUMBER(Architecture, unsigned)
NUMBER(DisplayActive, int)
NUMBER(DisplayMode, int)
NUMBER(CurrentDriverModel, int)
NUMBER(MaxMigDeviceCount, unsigned)
NUMBER(GpuInstanceId, unsigned)
NUMBER(ComputeInstanceId, unsigned)
NUMBER(TotalEnergyConsumption, ull)
NUMBER(CurrentClocksEventReasons, ull)
NUMBER(CurrentClocksThrottleReasons, ull)
NUMBER(SupportedEventTypes, ull)
NUMBER_OF(ClockInfo)
NUMBER_OF(MaxClockInfo)
NUMBER_OF(ApplicationsClock)
NUMBER_OF(DefaultApplicationsClock)
NUMBER_OF(Temperature)
NUMBER_OF(TemperatureThreshold)
NUMBER_OF(PcieThroughput)
PAIR(EncoderUtilization)
PAIR(DecoderUtilization)
PAIR(JpgUtilization)
PAIR(OfaUtilization)
PAIR(MigMode)
PAIR(EccMode)

int nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, int capability, int *out) {
    ull value;
    int code = numbers(device, KEY("P2PStatus", peer->gpu, capability), &value, 1);
    if (code == SUCCESS)
        *out = (int)value;
    return code;
}

int nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out) {
    *out = device->mig >= 0;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *out) {
    int code = enter(NULL, "");
    wait_while(scenario_driver(), "hang count");
    for (*out = 0; scenario_device((int)*out, -1); ++*out)
        ;
    return leave(code != SUCCESS ? code : driver_code("Count"));
}

static int handle(int gpu, int mig, nvmlDevice_t *out) {
    int code = enter(NULL, "");
    *out = scenario_device(gpu, mig);
    if (code == SUCCESS && *out)
        return leave(code_of(scenario_value(*out, "HandleByIndex", 0)));
    return leave(code != SUCCESS ? code : mig < 0 ? INVALID_ARGUMENT : NOT_FOUND);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    return handle((int)index, -1, out);
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out) {
    return handle(device->gpu, (int)index, out);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
    return handle(device->gpu, -1, out);
}

int nvmlSystemGetDriverVersion(char *out, unsigned room) {
    return text(scenario_driver(), "DriverVersion", out, room);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned room) {
    return text(scenario_driver(), "NVMLVersion", out, room);
}

int nvmlSystemGetCudaDriverVersion(int *out) {
    ull value;
    int code = numbers(scenario_driver(), "CudaDriverVersion", &value, 1);
    *out = (int)value;
    return code;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    return nvmlSystemGetCudaDriverVersion(out);
}

/* Structures */

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, ull *out) {
    return numbers(device, "MemoryInfo", out, 3); /* total free used */
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, ull *out) {
    return numbers(device, "MemoryInfo_v2", out + 1, 4); /* after the version: total reserved free used */
}

int nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, ull *out) {
    return numbers(device, "BAR1MemoryInfo", out, 3); /* total free used */
}

static int unsigneds(nvmlDevice_t device, const char *key, unsigned *out, int count) {
    ull values[16];
    int code = numbers(device, key, values, count);
    for (int i = 0; code == SUCCESS && i < count; i++)
        out[i] = (unsigned)values[i];
    return code;
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned *out) {
    return unsigneds(device, "UtilizationRates", out, 2);
}

int nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *lowest, unsigned *highest) {
    unsigned values[2];
    int code = unsigneds(device, "PowerManagementLimitConstraints", values, 2);
    *lowest = values[0], *highest = values[1];
    return code;
}

int nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, unsigned *out) {
    return unsigneds(device, "RowRemapperHistogram", out, 5); /* max high partial low none */
}

int nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    unsigned values[4];
    int code = unsigneds(device, "RemappedRows", values, 4);
    *a = values[0], *b = values[1], *c = values[2], *d = values[3];
    return code;
}

int nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned *sessions, unsigned *rate, unsigned *latency) {
    unsigned values[3];
    int code = unsigneds(device, "EncoderStats", values, 3);
    *sessions = values[0], *rate = values[1], *latency = values[2];
    return code;
}

int nvmlDeviceGetFBCStats(nvmlDevice_t device, unsigned *out) {
    return unsigneds(device, "FBCStats", out, 3); /* sessions, frames per second, latency in us */
}

/* `GridLicensableFeatures = 1 0 1`: whether the board has licensable features, and the state of each (nvml.h). */
struct licensable_feature {
    unsigned code, state;
    char info[128], product[128];
    unsigned enabled;
    struct {
        uint32_t year;
        uint16_t month, day, hour, min, sec;
        uint8_t status;
    } expiry;
};

struct licensable_features {
    int supported;
    unsigned count;
    struct licensable_feature features[3];
};

int nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, struct licensable_features *out) {
    unsigned values[3];
    int code = unsigneds(device, "GridLicensableFeatures", values, 3);
    out->supported = (int)values[0], out->count = 2;
    out->features[0].state = values[1], out->features[1].state = values[2], out->features[2].state = 1;
    return code;
}

int nvmlDeviceGetRepairStatus(nvmlDevice_t device, unsigned *out) {
    return unsigneds(device, "RepairStatus", out + 1, 2); /* after the version: channel, TPC */
}

int nvmlDeviceGetTemperatureV(nvmlDevice_t device, int *request) {
    return unsigneds(device, KEY("TemperatureV", request[1], -1), (unsigned *)&request[2], 1);
}

int nvmlDeviceGetMarginTemperature(nvmlDevice_t device, int *request) {
    return unsigneds(device, "MarginTemperature", (unsigned *)&request[1], 1);
}

int nvmlDeviceGetViolationStatus(nvmlDevice_t device, int policy, ull *out) {
    return numbers(device, KEY("ViolationStatus", policy, -1), out, 2); /* reference us, violation ns */
}

int nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, ull *out) {
    return numbers(device, KEY("TotalEccErrors", type, counter), out, 1);
}

int nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int type, int counter, int location, ull *out) {
    char key[64];
    snprintf(key, sizeof key, "MemoryErrorCounter %d %d %d", type, counter, location);
    return numbers(device, key, out, 1);
}

int nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, ull *out) {
    ull values[12];
    int code = numbers(device, "SramEccErrorStatus", values, 12);
    if (code == SUCCESS)
        memcpy(out + 1, values, 11 * sizeof *out), *(unsigned *)(out + 12) = (unsigned)values[11];
    return code;
}

struct fabric {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health;
};

int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric *out) {
    unsigned values[3];
    int code = unsigneds(device, "GpuFabricInfo", values, 3); /* state status health-mask */
    if (code == SUCCESS)
        out->state = (unsigned char)values[0], out->status = values[1], out->health = values[2];
    return code;
}

int nvmlDeviceGetAttributes_v2(nvmlDevice_t device, unsigned *out) {
    ull values[9];
    int code = numbers(device, "Attributes", values, 9);
    for (int i = 0; code == SUCCESS && i < 8; i++)
        out[i] = (unsigned)values[i];
    if (code == SUCCESS)
        *(ull *)(out + 8) = values[8];
    return code;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *out) {
    memset(out, 0, sizeof *out);
    int code = text(device, "PciInfo", out->bus_id, sizeof out->bus_id);
    if (code == SUCCESS)
        sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return code;
}

struct process {
    unsigned pid;
    ull memory;
    unsigned gpu_instance, compute_instance;
};

static int processes(nvmlDevice_t device, const char *key, unsigned *count, struct process *out) {
    int code = enter(device, key);
    unsigned found = 0;
    int at = 0;
    const char *value;
    code = code != SUCCESS ? code : code_of(scenario_value(device, key, 0));
    for (; code == SUCCESS && (value = scenario_next(device, key, &at)); found++) {
        struct process one = {.gpu_instance = ~0u, .compute_instance = ~0u};
        sscanf(value, "%u %llu %u %u", &one.pid, &one.memory, &one.gpu_instance, &one.compute_instance);
        if (out && found < *count)
            out[found] = one;
    }
    if (code == SUCCESS && found > (out ? *count : 0))
        code = INSUFFICIENT_SIZE;
    if (code == SUCCESS || code == INSUFFICIENT_SIZE)
        *count = found;
    return leave(code);
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *out) {
    return processes(device, "ComputeRunningProcesses", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *out) {
    return processes(device, "GraphicsRunningProcesses", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count, struct process *out) {
    return processes(device, "GraphicsRunningProcesses", count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *out) {
    return processes(device, "MPSComputeRunningProcesses", count, out);
}

struct use {
    unsigned pid;
    ull time;
    unsigned sm, memory, encoder, decoder;
};

int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct use *out, unsigned *count, ull since) {
    const char *key = "ProcessUtilization", *value;
    int code = enter(device, key);
    unsigned found = 0;
    code = code != SUCCESS ? code : code_of(scenario_value(device, key, 0));
    for (int at = 0; code == SUCCESS && (value = scenario_next(device, key, &at));) {
        struct use one = {0};
        sscanf(value, "%u %llu %u %u %u %u", &one.pid, &one.time, &one.sm, &one.memory, &one.encoder, &one.decoder);
        if (one.time <= since)
            continue;
        if (out && found < *count)
            out[found] = one;
        found++;
    }
    if (code == SUCCESS)
        code = !found ? NOT_FOUND : !out || found > *count ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return leave(code);
}

/* Fields and samples */

enum { VALUE_UNSIGNED_INT = 1, VALUE_UNSIGNED_LONG_LONG = 3, VALUE_SIGNED_INT = 5 };

struct field {
    uint32_t id, scope;
    int64_t time, latency;
    unsigned type;
    int code;
    ull value;
};

/* `Field 82 = 43u`: u for an unsigned int, i for an int, x for an unknown type, nothing for an unsigned long long.
 * `Field 138.all`, `Field 165.3`: with a scope.
 */
static void answer(const struct device *device, struct field *field) {
    char key[64];
    if (field->scope == (uint32_t)ALL_SCOPES)
        snprintf(key, sizeof key, "Field %u.all", field->id);
    else if (field->scope)
        snprintf(key, sizeof key, "Field %u.%u", field->id, field->scope);
    else
        snprintf(key, sizeof key, "Field %u", field->id);
    const char *value = scenario_value(device, key, 0);
    field->code = value ? code_of(value) : NOT_SUPPORTED;
    if (field->code != SUCCESS)
        return;
    char *end;
    field->value = (ull)strtoll(value, &end, 0);
    field->type = *end == 'u' ? VALUE_UNSIGNED_INT : *end == 'i' ? VALUE_SIGNED_INT : *end == 'x' ? 99 : VALUE_UNSIGNED_LONG_LONG;
}

int nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field *fields) {
    int code = enter(device, "FieldValues");
    code = code != SUCCESS ? code : code_of(scenario_value(device, "FieldValues", 0));
    for (int i = 0; code == SUCCESS && i < count; i++)
        answer(device, &fields[i]);
    return leave(code);
}

struct sample {
    ull time, value;
};

int nvmlDeviceGetSamples(nvmlDevice_t device, int kind, ull since, unsigned *type, unsigned *count, struct sample *out) {
    const char *key = KEY("Samples", kind, -1), *value;
    int code = enter(device, key), at = 0;
    unsigned found = 0, newer = 0;
    value = scenario_value(device, key, 0);
    code = code != SUCCESS ? code : value ? code_of(value) : NOT_SUPPORTED;
    for (; code == SUCCESS && (value = scenario_next(device, key, &at)); found++) {
        if (!out)
            continue;
        char *end;
        struct sample one = {.time = strtoull(value, &end, 10)};
        one.value = strtoull(end, NULL, 10);
        if (one.time > since && newer < *count)
            out[newer++] = one;
    }
    *type = VALUE_UNSIGNED_INT;
    if (code == SUCCESS && out)
        code = newer ? SUCCESS : NOT_FOUND;
    *count = out ? newer : found;
    return leave(code);
}

/* GPM: a sample remembers its device, and the metrics are those of the scenario: `Gpm 2 = 51.5`, in an instance `Gpm 2 9`. */

struct gpm_sample {
    nvmlDevice_t device;
    int instance;
};

struct gpm_metric {
    unsigned id;
    int code;
    double value;
    const char *names[3];
};

struct gpm_question {
    unsigned version, count;
    struct gpm_sample *first, *second;
    struct gpm_metric metrics[];
};

int nvmlGpmQueryDeviceSupport(nvmlDevice_t device, unsigned *out) { /* version, supported */
    int code = unsigneds(device, "GpmSupport", &out[1], 1);
    if (code == NOT_SUPPORTED)
        out[1] = 0, code = SUCCESS;
    return code;
}

int nvmlGpmSampleAlloc(struct gpm_sample **out) {
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

int nvmlGpmSampleFree(struct gpm_sample *sample) {
    free(sample);
    return SUCCESS;
}

static int gpm_sample(nvmlDevice_t device, int instance, struct gpm_sample *out) {
    int code = enter(device, "GpmSample");
    *out = (struct gpm_sample){device, instance};
    return leave(code != SUCCESS ? code : code_of(scenario_value(device, "GpmSample", 0)));
}

int nvmlGpmSampleGet(nvmlDevice_t device, struct gpm_sample *out) {
    return gpm_sample(device, -1, out);
}

int nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned instance, struct gpm_sample *out) {
    return gpm_sample(device, (int)instance, out);
}

int nvmlGpmMetricsGet(struct gpm_question *question) {
    nvmlDevice_t device = question->first->device;
    int instance = question->first->instance;
    int same = device && device == question->second->device && instance == question->second->instance;
    int code = enter(device, "GpmMetrics");
    for (unsigned i = 0; code == SUCCESS && same && i < question->count; i++) {
        struct gpm_metric *metric = &question->metrics[i];
        const char *value = scenario_value(device, KEY("Gpm", (int)metric->id, instance), 0);
        metric->code = value ? code_of(value) : NOT_SUPPORTED;
        metric->value = value ? strtod(value, NULL) : 0;
    }
    return leave(code == SUCCESS && !same ? INVALID_ARGUMENT : code);
}

/* Events */

enum { XID_EVENT = 8, MAX_EVENTS = 256 };

struct event {
    nvmlDevice_t device;
    ull type, data;
    unsigned gpu_instance, compute_instance;
};

static struct event events[MAX_EVENTS];
static int event_count;

void raise_event(struct device *device, ull xid, unsigned gpu_instance, unsigned compute_instance) {
    if (event_count < MAX_EVENTS)
        events[event_count++] = (struct event){device, XID_EVENT, xid, gpu_instance, compute_instance};
}

int nvmlEventSetCreate(void **out) {
    int code = enter(NULL, "");
    *out = events;
    return leave(code != SUCCESS ? code : driver_code("EventSetCreate"));
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(nvmlDevice_t device, ull types, void *set) {
    (void)set;
    ull supported;
    int code = numbers(device, "SupportedEventTypes", &supported, 1);
    return code != SUCCESS ? code : types & ~supported ? NOT_SUPPORTED : SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    (void)set;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L)
        until.tv_sec++, until.tv_nsec -= 1000000000L;
    int code = enter(NULL, ""), timed_out = 0;
    while (code == SUCCESS && !event_count && !timed_out) {
        timed_out = pthread_cond_timedwait(&scenario_changed, &scenario_lock, &until) == ETIMEDOUT;
        code = users ? driver_code("broken") : UNINITIALIZED;
    }
    if (code != SUCCESS || !event_count)
        return leave(code != SUCCESS ? code : TIMEOUT);
    *out = events[0];
    memmove(events, events + 1, (size_t)--event_count * sizeof *events);
    return leave(SUCCESS);
}
