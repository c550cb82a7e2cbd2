/* A stand-in for `nvidia-smi -q -x`. It reads from the libnvidia-ml.so.1 it is linked to and writes XML as nvidia-smi does.
 *
 * It writes the elements that pollers read (telegraf's nvidia_smi input, nvidia_smi.py), and "N/A" for a value that the
 * board does not return.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef void *Device;
typedef unsigned long long ull;

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, NOT_SUPPORTED = 3, MOST_PROCESSES = 64 };

/* nvml.h */
struct field {
    uint32_t id, scope;
    int64_t time, latency;
    unsigned type;
    int code;
    union {
        unsigned narrow;
        int integer;
        ull wide;
    } value;
};
struct sram {
    unsigned version;
    ull aggregate_parity, aggregate_secded, aggregate_corrected, volatile_parity, volatile_secded, volatile_corrected;
    ull l2, sm, pcie, microcontroller, other;
    unsigned exceeded;
};
struct process {
    unsigned pid;
    ull memory;
    unsigned gpu_instance, compute_instance;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *, unsigned);
int nvmlSystemGetCudaDriverVersion_v2(int *);
int nvmlDeviceGetCount_v2(unsigned *);
int nvmlDeviceGetHandleByIndex_v2(unsigned, Device *);
int nvmlDeviceGetName(Device, char *, unsigned);
int nvmlDeviceGetUUID(Device, char *, unsigned);
int nvmlDeviceGetSerial(Device, char *, unsigned);
int nvmlDeviceGetVbiosVersion(Device, char *, unsigned);
int nvmlDeviceGetBoardPartNumber(Device, char *, unsigned);
int nvmlDeviceGetPciInfo_v3(Device, struct pci *);
int nvmlDeviceGetMinorNumber(Device, unsigned *);
int nvmlDeviceGetPersistenceMode(Device, unsigned *);
int nvmlDeviceGetComputeMode(Device, unsigned *);
int nvmlDeviceGetMigMode(Device, unsigned *, unsigned *);
int nvmlDeviceGetFanSpeed(Device, unsigned *);
int nvmlDeviceGetPerformanceState(Device, unsigned *);
int nvmlDeviceGetCurrPcieLinkGeneration(Device, unsigned *);
int nvmlDeviceGetMaxPcieLinkGeneration(Device, unsigned *);
int nvmlDeviceGetCurrPcieLinkWidth(Device, unsigned *);
int nvmlDeviceGetMaxPcieLinkWidth(Device, unsigned *);
int nvmlDeviceGetPcieReplayCounter(Device, unsigned *);
int nvmlDeviceGetPcieThroughput(Device, int, unsigned *);
int nvmlDeviceGetCurrentClocksEventReasons(Device, ull *);
int nvmlDeviceGetMemoryInfo_v2(Device, ull *);
int nvmlDeviceGetBAR1MemoryInfo(Device, ull *);
int nvmlDeviceGetUtilizationRates(Device, unsigned *);
int nvmlDeviceGetEncoderUtilization(Device, unsigned *, unsigned *);
int nvmlDeviceGetDecoderUtilization(Device, unsigned *, unsigned *);
int nvmlDeviceGetJpgUtilization(Device, unsigned *, unsigned *);
int nvmlDeviceGetOfaUtilization(Device, unsigned *, unsigned *);
int nvmlDeviceGetArchitecture(Device, unsigned *);
int nvmlDeviceGetFBCStats(Device, unsigned *);
int nvmlDeviceGetRepairStatus(Device, unsigned *);
int nvmlDeviceGetEncoderStats(Device, unsigned *, unsigned *, unsigned *);
int nvmlDeviceGetMemoryErrorCounter(Device, int, int, int, ull *);
int nvmlDeviceGetSramEccErrorStatus(Device, struct sram *);
int nvmlDeviceGetRowRemapperHistogram(Device, unsigned *);
int nvmlDeviceGetTemperature(Device, int, unsigned *);
int nvmlDeviceGetMarginTemperature(Device, int *);
int nvmlDeviceGetPowerUsage(Device, unsigned *);
int nvmlDeviceGetEnforcedPowerLimit(Device, unsigned *);
int nvmlDeviceGetPowerManagementLimit(Device, unsigned *);
int nvmlDeviceGetPowerManagementDefaultLimit(Device, unsigned *);
int nvmlDeviceGetPowerManagementLimitConstraints(Device, unsigned *, unsigned *);
int nvmlDeviceGetClockInfo(Device, int, unsigned *);
int nvmlDeviceGetMaxClockInfo(Device, int, unsigned *);
int nvmlDeviceGetApplicationsClock(Device, int, unsigned *);
int nvmlDeviceGetFieldValues(Device, int, struct field *);
int nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned *, struct process *);
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device, unsigned *, struct process *);

static void open_tag(const char *tag) {
    printf("<%s>\n", tag);
}

static void close_tag(const char *tag) {
    printf("</%s>\n", tag);
}

static void put(const char *tag, int code, const char *format, ...) {
    printf("<%s>", tag);
    va_list values;
    va_start(values, format);
    if (code == SUCCESS)
        vprintf(format, values);
    else
        printf("N/A");
    va_end(values);
    printf("</%s>\n", tag);
}

static void put_flag(const char *tag, int code, int on, const char *yes, const char *no) {
    put(tag, code, "%s", on ? yes : no);
}

typedef int Text(Device, char *, unsigned);
typedef int Number(Device, unsigned *);
typedef int NumberOf(Device, int, unsigned *);
typedef int Pair(Device, unsigned *, unsigned *);

static void put_text(const char *tag, Text *ask, Device device) {
    char text[96];
    int code = ask(device, text, sizeof text);
    put(tag, code, "%s", text);
}

static void put_number(const char *tag, Number *ask, Device device, const char *format) {
    unsigned number = 0;
    int code = ask(device, &number);
    put(tag, code, format, number);
}

static void put_number_of(const char *tag, NumberOf *ask, Device device, int of, const char *format) {
    unsigned number = 0;
    int code = ask(device, of, &number);
    put(tag, code, format, number);
}

static void put_first(const char *tag, Pair *ask, Device device, const char *format) {
    unsigned first = 0, second;
    int code = ask(device, &first, &second);
    put(tag, code, format, first);
}

static void put_watts(const char *tag, Number *ask, Device device) {
    unsigned milliwatts = 0;
    int code = ask(device, &milliwatts);
    put(tag, code, "%.2f W", milliwatts / 1e3);
}

/* Fields, queried in one call */

enum {
    ECC = 1,
    RETIRED_SBE = 29,
    RETIRED_DBE = 30,
    RETIRED_PENDING = 31,
    SW_POWER_CAP = 74,
    SYNC_BOOST = 76,
    MEMORY_TEMP = 82,
    REMAPPED_COR = 142,
    REMAPPED_UNC = 143,
    REMAPPED_PENDING = 144,
    REMAPPED_FAILURE = 145,
    POWER_AVERAGE = 185,
    POWER_INSTANT = 186,
    SHUTDOWN_TLIMIT = 193,
    SLOWDOWN_TLIMIT = 194,
    MEM_MAX_TLIMIT = 195,
    GPU_MAX_TLIMIT = 196,
    RECOVERY_ACTION = 230,
    SW_THERM_SLOWDOWN = 269,
    HW_THERM_SLOWDOWN = 270,
    HW_POWER_BRAKE = 271,
    MEMORY_SCOPE = 2,
};

static struct field fields[] = {
    {.id = ECC},
    {.id = RETIRED_SBE},
    {.id = RETIRED_DBE},
    {.id = RETIRED_PENDING},
    {.id = SW_POWER_CAP},
    {.id = SYNC_BOOST},
    {.id = MEMORY_TEMP},
    {.id = REMAPPED_COR},
    {.id = REMAPPED_UNC},
    {.id = REMAPPED_PENDING},
    {.id = REMAPPED_FAILURE},
    {.id = POWER_AVERAGE},
    {.id = POWER_AVERAGE, .scope = MEMORY_SCOPE},
    {.id = POWER_INSTANT},
    {.id = SHUTDOWN_TLIMIT},
    {.id = SLOWDOWN_TLIMIT},
    {.id = MEM_MAX_TLIMIT},
    {.id = GPU_MAX_TLIMIT},
    {.id = RECOVERY_ACTION},
    {.id = SW_THERM_SLOWDOWN},
    {.id = HW_THERM_SLOWDOWN},
    {.id = HW_POWER_BRAKE},
};
enum { FIELDS = sizeof fields / sizeof *fields, WIDE = 3, SIGNED = 5 };

static void ask_fields(Device device) {
    int code = nvmlDeviceGetFieldValues(device, FIELDS, fields);
    for (int i = 0; code != SUCCESS && i < FIELDS; i++)
        fields[i].code = code;
}

static long long field(unsigned id, unsigned scope, int *code) {
    for (int i = 0; i < FIELDS; i++)
        if (fields[i].id == id && fields[i].scope == scope) {
            const struct field *one = &fields[i];
            *code = one->code;
            return one->type == WIDE     ? (long long)one->value.wide
                   : one->type == SIGNED ? one->value.integer
                                         : (long long)one->value.narrow;
        }
    *code = NOT_SUPPORTED;
    return 0;
}

static void put_field(const char *tag, unsigned id, const char *format) {
    int code;
    long long value = field(id, 0, &code);
    put(tag, code, format, value);
}

static void put_field_flag(const char *tag, unsigned id, const char *yes, const char *no) {
    int code;
    long long value = field(id, 0, &code);
    put_flag(tag, code, value != 0, yes, no);
}

static void put_field_watts(const char *tag, unsigned id, unsigned scope) {
    int code;
    long long milliwatts = field(id, scope, &code);
    put(tag, code, "%.2f W", (double)milliwatts / 1e3);
}

static void put_field_us(const char *tag, unsigned id) {
    int code;
    long long ns = field(id, 0, &code);
    put(tag, code, "%lld us", ns / 1000);
}

/* The sections of a board, in nvidia-smi's order */

static void write_identity(Device device) {
    put_text("product_name", nvmlDeviceGetName, device);
    static const char *const names[] = {"", "", "Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere",
                                        "Ada Lovelace", "Hopper", "Blackwell"};
    unsigned on = 0, architecture = 0;
    int code = nvmlDeviceGetArchitecture(device, &architecture);
    put("product_architecture", code, "%s", architecture < sizeof names / sizeof *names ? names[architecture] : "");
    code = nvmlDeviceGetPersistenceMode(device, &on);
    put_flag("persistence_mode", code, (int)on, "Enabled", "Disabled");
    open_tag("mig_mode");
    unsigned now = 0, pending = 0;
    code = nvmlDeviceGetMigMode(device, &now, &pending);
    put_flag("current_mig", code, (int)now, "Enabled", "Disabled");
    put_flag("pending_mig", code, (int)pending, "Enabled", "Disabled");
    close_tag("mig_mode");
    put_text("serial", nvmlDeviceGetSerial, device);
    put_text("uuid", nvmlDeviceGetUUID, device);
    put_number("minor_number", nvmlDeviceGetMinorNumber, device, "%u");
    put_text("vbios_version", nvmlDeviceGetVbiosVersion, device);
    put_text("board_part_number", nvmlDeviceGetBoardPartNumber, device);
    put_field_flag("gpu_recovery_action", RECOVERY_ACTION, "Reset", "None");
}

static void write_pci(Device device, const struct pci *pci) {
    open_tag("pci");
    put("pci_bus_id", SUCCESS, "%s", pci->bus_id);
    open_tag("pci_gpu_link_info");
    open_tag("pcie_gen");
    put_number("max_link_gen", nvmlDeviceGetMaxPcieLinkGeneration, device, "%u");
    put_number("current_link_gen", nvmlDeviceGetCurrPcieLinkGeneration, device, "%u");
    close_tag("pcie_gen");
    open_tag("link_widths");
    put_number("max_link_width", nvmlDeviceGetMaxPcieLinkWidth, device, "%ux");
    put_number("current_link_width", nvmlDeviceGetCurrPcieLinkWidth, device, "%ux");
    close_tag("link_widths");
    close_tag("pci_gpu_link_info");
    put_number("replay_counter", nvmlDeviceGetPcieReplayCounter, device, "%u");
    put_number_of("tx_util", nvmlDeviceGetPcieThroughput, device, 0, "%u KB/s");
    put_number_of("rx_util", nvmlDeviceGetPcieThroughput, device, 1, "%u KB/s");
    close_tag("pci");
}

static void write_reasons(Device device) {
    static const struct {
        unsigned bit;
        const char *tag;
    } reasons[] = {
        {0x1, "gpu_idle"},
        {0x2, "applications_clocks_setting"},
        {0x4, "sw_power_cap"},
        {0x8, "hw_slowdown"},
        {0x40, "hw_thermal_slowdown"},
        {0x80, "hw_power_brake_slowdown"},
        {0x10, "sync_boost"},
        {0x20, "sw_thermal_slowdown"},
        {0x100, "display_clocks_setting"},
    };
    ull mask = 0;
    int code = nvmlDeviceGetCurrentClocksEventReasons(device, &mask);
    open_tag("clocks_event_reasons");
    for (unsigned i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "clocks_event_reason_%s", reasons[i].tag);
        put_flag(tag, code, (mask & reasons[i].bit) != 0, "Active", "Not Active");
    }
    close_tag("clocks_event_reasons");
    open_tag("clocks_event_reasons_counters");
    put_field_us("clocks_event_reasons_counters_sw_power_cap", SW_POWER_CAP);
    put_field_us("clocks_event_reasons_counters_sync_boost", SYNC_BOOST);
    put_field_us("clocks_event_reasons_counters_sw_therm_slowdown", SW_THERM_SLOWDOWN);
    put_field_us("clocks_event_reasons_counters_hw_therm_slowdown", HW_THERM_SLOWDOWN);
    put_field_us("clocks_event_reasons_counters_hw_power_brake", HW_POWER_BRAKE);
    close_tag("clocks_event_reasons_counters");
}

static void put_mib(const char *tag, int code, ull bytes) {
    put(tag, code, "%llu MiB", (bytes + (1 << 19)) >> 20);
}

static void write_memory(Device device) {
    ull of[5] = {0x2000028}; /* version 2 of 40 bytes; total reserved free used */
    int code = nvmlDeviceGetMemoryInfo_v2(device, of);
    open_tag("fb_memory_usage");
    put_mib("total", code, of[1]);
    put_mib("reserved", code, of[2]);
    put_mib("used", code, of[4]);
    put_mib("free", code, of[3]);
    close_tag("fb_memory_usage");
    ull bar1[3] = {0};
    code = nvmlDeviceGetBAR1MemoryInfo(device, bar1);
    open_tag("bar1_memory_usage");
    put_mib("total", code, bar1[0]);
    put_mib("used", code, bar1[2]);
    put_mib("free", code, bar1[1]);
    close_tag("bar1_memory_usage");
}

static void write_utilization(Device device) {
    static const char *const modes[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    unsigned mode = 0, rates[2] = {0}, encoder[3] = {0}, captures[3] = {0};
    int code = nvmlDeviceGetComputeMode(device, &mode);
    put("compute_mode", code, "%s", modes[mode % 4]);
    code = nvmlDeviceGetUtilizationRates(device, rates);
    open_tag("utilization");
    put("gpu_util", code, "%u %%", rates[0]);
    put("memory_util", code, "%u %%", rates[1]);
    put_first("encoder_util", nvmlDeviceGetEncoderUtilization, device, "%u %%");
    put_first("decoder_util", nvmlDeviceGetDecoderUtilization, device, "%u %%");
    put_first("jpeg_util", nvmlDeviceGetJpgUtilization, device, "%u %%");
    put_first("ofa_util", nvmlDeviceGetOfaUtilization, device, "%u %%");
    close_tag("utilization");
    code = nvmlDeviceGetEncoderStats(device, &encoder[0], &encoder[1], &encoder[2]);
    open_tag("encoder_stats");
    put("session_count", code, "%u", encoder[0]);
    put("average_fps", code, "%u", encoder[1]);
    put("average_latency", code, "%u", encoder[2]);
    close_tag("encoder_stats");
    code = nvmlDeviceGetFBCStats(device, captures);
    open_tag("fbc_stats");
    put("session_count", code, "%u", captures[0]);
    put("average_fps", code, "%u", captures[1]);
    put("average_latency", code, "%u", captures[2]);
    close_tag("fbc_stats");
}

static void put_ecc(const char *tag, Device device, int error, int counter, int location) {
    ull count = 0;
    int code = nvmlDeviceGetMemoryErrorCounter(device, error, counter, location, &count);
    put(tag, code, "%llu", count);
}

static void write_ecc(Device device) {
    struct sram sram = {.version = 0x1000068};
    int code = nvmlDeviceGetSramEccErrorStatus(device, &sram);
    open_tag("ecc_mode");
    put_field_flag("current_ecc", ECC, "Enabled", "Disabled");
    close_tag("ecc_mode");
    open_tag("ecc_errors");
    for (int counter = 0; counter < 2; counter++) {
        const char *tag = counter ? "aggregate" : "volatile";
        open_tag(tag);
        put("sram_correctable", code, "%llu", counter ? sram.aggregate_corrected : sram.volatile_corrected);
        put("sram_uncorrectable_parity", code, "%llu", counter ? sram.aggregate_parity : sram.volatile_parity);
        put("sram_uncorrectable_secded", code, "%llu", counter ? sram.aggregate_secded : sram.volatile_secded);
        put_ecc("dram_correctable", device, 0, counter, 2);
        put_ecc("dram_uncorrectable", device, 1, counter, 2);
        if (counter)
            put_flag("sram_threshold_exceeded", code, (int)sram.exceeded, "Yes", "No");
        close_tag(tag);
    }
    open_tag("aggregate_uncorrectable_sram_sources");
    put("sram_l2", code, "%llu", sram.l2);
    put("sram_sm", code, "%llu", sram.sm);
    put("sram_microcontroller", code, "%llu", sram.microcontroller);
    put("sram_pcie", code, "%llu", sram.pcie);
    put("sram_other", code, "%llu", sram.other);
    close_tag("aggregate_uncorrectable_sram_sources");
    unsigned repair[3] = {0x100000c};
    code = nvmlDeviceGetRepairStatus(device, repair);
    put_flag("channel_repair_pending", code, (int)repair[1], "Yes", "No");
    put_flag("tpc_repair_pending", code, (int)repair[2], "Yes", "No");
    close_tag("ecc_errors");
}

static void write_rows(Device device) {
    static const char *const left[] = {"max", "high", "partial", "low", "none"};
    open_tag("retired_pages");
    open_tag("multiple_single_bit_retirement");
    put_field("retired_count", RETIRED_SBE, "%lld");
    close_tag("multiple_single_bit_retirement");
    open_tag("double_bit_retirement");
    put_field("retired_count", RETIRED_DBE, "%lld");
    close_tag("double_bit_retirement");
    put_field_flag("pending_retirement", RETIRED_PENDING, "Yes", "No");
    close_tag("retired_pages");
    open_tag("remapped_rows");
    put_field("remapped_row_corr", REMAPPED_COR, "%lld");
    put_field("remapped_row_unc", REMAPPED_UNC, "%lld");
    put_field_flag("remapped_row_pending", REMAPPED_PENDING, "Yes", "No");
    put_field_flag("remapped_row_failure", REMAPPED_FAILURE, "Yes", "No");
    unsigned banks[5] = {0};
    int code = nvmlDeviceGetRowRemapperHistogram(device, banks);
    open_tag("row_remapper_histogram");
    for (int i = 0; i < 5; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "row_remapper_histogram_%s", left[i]);
        put(tag, code, "%u bank(s)", banks[i]);
    }
    close_tag("row_remapper_histogram");
    close_tag("remapped_rows");
}

static void write_temperatures(Device device) {
    int margin[2] = {0x1000008};
    int code = nvmlDeviceGetMarginTemperature(device, margin);
    open_tag("temperature");
    put_number_of("gpu_temp", nvmlDeviceGetTemperature, device, 0, "%u C");
    put("gpu_temp_tlimit", code, "%d C", margin[1]);
    put_field("gpu_temp_max_tlimit_threshold", SHUTDOWN_TLIMIT, "%lld C");
    put_field("gpu_temp_slow_tlimit_threshold", SLOWDOWN_TLIMIT, "%lld C");
    put_field("gpu_temp_max_gpu_tlimit_threshold", GPU_MAX_TLIMIT, "%lld C");
    put_field("memory_temp", MEMORY_TEMP, "%lld C");
    put_field("gpu_temp_max_mem_tlimit_threshold", MEM_MAX_TLIMIT, "%lld C");
    close_tag("temperature");
}

static void write_power(Device device) {
    unsigned lowest = 0, highest = 0;
    open_tag("gpu_power_readings");
    put_watts("average_power_draw", nvmlDeviceGetPowerUsage, device);
    put_field_watts("instant_power_draw", POWER_INSTANT, 0);
    put_watts("current_power_limit", nvmlDeviceGetEnforcedPowerLimit, device);
    put_watts("requested_power_limit", nvmlDeviceGetPowerManagementLimit, device);
    put_watts("default_power_limit", nvmlDeviceGetPowerManagementDefaultLimit, device);
    int code = nvmlDeviceGetPowerManagementLimitConstraints(device, &lowest, &highest);
    put("min_power_limit", code, "%.2f W", lowest / 1e3);
    put("max_power_limit", code, "%.2f W", highest / 1e3);
    close_tag("gpu_power_readings");
    open_tag("gpu_memory_power_readings");
    put_field_watts("average_power_draw", POWER_AVERAGE, MEMORY_SCOPE);
    close_tag("gpu_memory_power_readings");
}

static void write_clocks(const char *tag, NumberOf *ask, Device device, int all) {
    open_tag(tag);
    put_number_of("graphics_clock", ask, device, 0, "%u MHz");
    if (all)
        put_number_of("sm_clock", ask, device, 1, "%u MHz");
    put_number_of("mem_clock", ask, device, 2, "%u MHz");
    if (all)
        put_number_of("video_clock", ask, device, 3, "%u MHz");
    close_tag(tag);
}

typedef int List(Device, unsigned *, struct process *);

static void write_processes(List *ask, Device device, const char *type) {
    struct process found[MOST_PROCESSES];
    unsigned count = MOST_PROCESSES;
    for (unsigned i = 0; ask(device, &count, found) == SUCCESS && i < count; i++) {
        open_tag("process_info");
        put("pid", SUCCESS, "%u", found[i].pid);
        put("type", SUCCESS, "%s", type);
        put_mib("used_memory", SUCCESS, found[i].memory);
        close_tag("process_info");
    }
}

static void write_gpu(Device device) {
    struct pci pci = {0};
    nvmlDeviceGetPciInfo_v3(device, &pci);
    ask_fields(device);
    printf("<gpu id=\"%s\">\n", pci.bus_id);
    write_identity(device);
    write_pci(device, &pci);
    put_number("fan_speed", nvmlDeviceGetFanSpeed, device, "%u %%");
    put_number("performance_state", nvmlDeviceGetPerformanceState, device, "P%u");
    write_reasons(device);
    write_memory(device);
    write_utilization(device);
    write_ecc(device);
    write_rows(device);
    write_temperatures(device);
    write_power(device);
    write_clocks("clocks", nvmlDeviceGetClockInfo, device, 1);
    write_clocks("applications_clocks", nvmlDeviceGetApplicationsClock, device, 0);
    write_clocks("max_clocks", nvmlDeviceGetMaxClockInfo, device, 1);
    open_tag("processes");
    write_processes(nvmlDeviceGetComputeRunningProcesses_v3, device, "C");
    write_processes(nvmlDeviceGetGraphicsRunningProcesses_v3, device, "G");
    close_tag("processes");
    close_tag("gpu");
}

int main(int count, char **arguments) {
    if (count != 3 || strcmp(arguments[1], "-q") || strcmp(arguments[2], "-x")) {
        fprintf(stderr, "usage: nvidia-smi -q -x\n");
        return 2;
    }
    if (nvmlInit_v2() != SUCCESS)
        return 9;
    char driver[80] = "";
    int cuda = 0;
    unsigned gpus = 0;
    time_t now = time(NULL);
    char timestamp[32] = "";
    strftime(timestamp, sizeof timestamp, "%a %b %e %H:%M:%S %Y", localtime(&now));
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n");
    open_tag("nvidia_smi_log");
    put("timestamp", SUCCESS, "%s", timestamp);
    int code = nvmlSystemGetDriverVersion(driver, sizeof driver);
    put("driver_version", code, "%s", driver);
    code = nvmlSystemGetCudaDriverVersion_v2(&cuda);
    put("cuda_version", code, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    nvmlDeviceGetCount_v2(&gpus);
    put("attached_gpus", SUCCESS, "%u", gpus);
    for (unsigned i = 0; i < gpus; i++) {
        Device device;
        if (nvmlDeviceGetHandleByIndex_v2(i, &device) == SUCCESS)
            write_gpu(device);
    }
    close_tag("nvidia_smi_log");
    return nvmlShutdown();
}
