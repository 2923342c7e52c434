/* A libnvidia-ml.so.1 for tests. FAKE_NVML is "broken" (the driver is not loaded), a line of devices
 * "uuid,mig uuid;uuid", or the path of a scenario: lines of `key value`, read anew at every call, so that
 * a test can change them while a program runs. Lines before the first `gpu UUID` are the system's, those
 * after it that device's. A value "!N" makes the call return error N. `xid N` is an event that arrives
 * once, each line of a device in its turn. Signatures and structures as pynvml calls them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
  DRIVER_NOT_LOADED = 9, TIMEOUT = 10
};
enum { MAX_DEVICES = 8, LINE = 256, LINKS = 18 };
enum { XID_EVENT = 8 };
#define MIB (1ull << 20)

typedef struct { int index; int is_mig; } Device;
static Device devices[MAX_DEVICES] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}};
static Device mig_devices[MAX_DEVICES];
static int registered[MAX_DEVICES], delivered[MAX_DEVICES];

/* The text of a scenario file, or one made of a line of devices. NULL where there is neither. */
static char *scenario(void) {
  static __thread char text[16384];
  const char *spec = getenv("FAKE_NVML");
  if (spec == NULL || strcmp(spec, "broken") == 0) return NULL;
  if (spec[0] == '/') {
    FILE *file = fopen(spec, "r");
    if (file == NULL) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
  }
  char copy[1024] = "";
  strncpy(copy, spec, sizeof copy - 1);
  text[0] = 0;
  for (char *entry = strtok(copy, ";"); entry != NULL; entry = strtok(NULL, ";")) {
    char *comma = strchr(entry, ',');
    if (comma != NULL) *comma++ = 0;
    sprintf(text + strlen(text), "gpu %s\n", entry);
    if (comma != NULL) sprintf(text + strlen(text), "mig %s\n", comma);
  }
  return text;
}

/* The value of the n-th `key` of device `index` (-1: the system) into `value`; 0 where there is none. */
static int find_nth(int index, const char *key, int n, char *value) {
  char *text = scenario(), *rest = NULL;
  int current = -1;
  for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
    size_t length = strcspn(line, " ");
    if (strncmp(line, "gpu ", 4) == 0) current++;
    if (current != index || strlen(key) != length || strncmp(line, key, length) != 0) continue;
    if (n-- > 0) continue;
    strncpy(value, line[length] ? line + length + 1 : "", LINE - 1);
    value[LINE - 1] = 0;
    return 1;
  }
  return 0;
}

static int text_of(int index, const char *key, const char *fallback, char *out, unsigned size) {
  char value[LINE], lost[LINE];
  if (index >= 0 && find_nth(index, "lost", 0, lost)) return atoi(lost);
  if (!find_nth(index, key, 0, value)) strcpy(value, fallback);
  if (value[0] == '!') return atoi(value + 1);
  strncpy(out, value, size);
  return SUCCESS;
}

static int number_of(void *handle, const char *key, const char *fallback, unsigned long long *out) {
  char value[LINE];
  int status = text_of(((Device *)handle)->index, key, fallback, value, sizeof value);
  if (status == SUCCESS) *out = strtoull(value, NULL, 10);
  return status;
}

static int small_of(void *handle, const char *key, const char *fallback, unsigned *out) {
  unsigned long long wide = 0;
  int status = number_of(handle, key, fallback, &wide);
  *out = (unsigned)wide;
  return status;
}

int nvmlInitWithFlags(unsigned flags) {
  char value[LINE];
  (void)flags;
  if (scenario() == NULL) return DRIVER_NOT_LOADED;
  return find_nth(-1, "init", 0, value) ? atoi(value) : SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  return text_of(-1, "driver", "570.86.15", out, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
  char value[LINE];
  int status = text_of(-1, "cuda", "12080", value, sizeof value);
  if (status == SUCCESS) *out = atoi(value);
  return status;
}
int nvmlDeviceGetCount_v2(unsigned *result) {
  char value[LINE];
  for (*result = 0; find_nth((int)*result, "gpu", 0, value);) ++*result;
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  char value[LINE];
  *handle = &devices[index];
  return find_nth((int)index, "handle", 0, value) ? atoi(value + 1) : SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
  Device *device = handle;
  return text_of(device->index, device->is_mig ? "mig" : "gpu", "!2", out, size);
}
int nvmlDeviceGetCpuAffinity(void *handle, unsigned size, unsigned long *set) {
  char value[LINE];
  int status = text_of(((Device *)handle)->index, "cpus", "!3", value, sizeof value);
  memset(set, 0, size * sizeof *set);
  if (status == SUCCESS) set[0] = strtoul(value, NULL, 16);
  return status;
}
int nvmlDeviceGetPciInfo_v3(void *handle, char *info) {
  /* The new bus id stands after the old one (16 bytes) and five numbers. */
  return text_of(((Device *)handle)->index, "pci", "!3", info + 16 + 5 * sizeof(unsigned), 32);
}
int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
  return text_of(((Device *)handle)->index, "name", "NVIDIA Test", out, size);
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  char value[LINE];
  if (!find_nth(((Device *)handle)->index, "mig", 0, value)) return NOT_SUPPORTED;
  *current = *pending = 1;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *result) {
  (void)handle;
  *result = 7;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig) {
  int owner = ((Device *)handle)->index;
  if (index != 2) return NOT_FOUND;
  mig_devices[owner] = (Device){owner, 1};
  *mig = &mig_devices[owner];
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *total_free_used) {
  unsigned long long total = 0, used = 0;
  int status = number_of(handle, "memory_total_mib", "143771", &total);
  if (status == SUCCESS) status = number_of(handle, "memory_used_mib", "600" /* reserved included */, &used);
  total_free_used[0] = total * MIB;
  total_free_used[1] = (total - used) * MIB;
  total_free_used[2] = used * MIB;
  return status;
}
/* Structure of version 2; `memory_v2 !13` makes a driver that does not have it. */
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory *out) {
  unsigned long long reserved = 0, total_free_used[3];
  int status = number_of(handle, "memory_v2", "500", &reserved);
  if (status == SUCCESS) status = nvmlDeviceGetMemoryInfo(handle, total_free_used);
  if (status != SUCCESS) return status;
  if (out->version != (sizeof(Memory) | 2u << 24)) return INVALID_ARGUMENT;
  out->total = total_free_used[0];
  out->reserved = reserved * MIB;
  out->free = total_free_used[1];
  out->used = total_free_used[2] - out->reserved;
  return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *gpu_memory) {
  gpu_memory[1] = 0;
  return small_of(handle, "utilisation", "7", gpu_memory);
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *out) {
  return sensor ? INVALID_ARGUMENT : small_of(handle, "temperature", "41", out);
}
int nvmlDeviceGetTemperatureThreshold(void *handle, int kind, unsigned *out) {
  return kind == 1 ? small_of(handle, "slowdown_temperature", "92", out) : INVALID_ARGUMENT;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *out) { return small_of(handle, "power_mw", "75500", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *out) {
  return small_of(handle, "power_limit_mw", "700000", out);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *out) {
  return number_of(handle, "clock_reasons", "1", out);
}
int nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *out) {
  return small_of(handle, "pcie_replays", "0", out);
}
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *out) {
  return small_of(handle, "pcie_width", "16", out);
}
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *out) {
  return small_of(handle, "pcie_width_max", "16", out);
}
int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
  *pending = 1;
  return small_of(handle, "ecc", "1", current);
}
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *out) {
  if (kind != 1) return INVALID_ARGUMENT; /* uncorrected */
  return number_of(handle, counter == 0 ? "ecc_volatile" : "ecc_aggregate", "0", out);
}
int nvmlDeviceGetRemappedRows(
    void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
  *corrected = *uncorrected = 0;
  int status = small_of(handle, "remap_pending", "0", pending);
  return status == SUCCESS ? small_of(handle, "remap_failed", "0", failed) : status;
}
int nvmlDeviceGetRetiredPages(void *handle, int cause, unsigned *count, unsigned long long *pages) {
  unsigned found = 0, room = *count;
  int status = small_of(handle, cause ? "retired_double" : "retired_single", "0", &found);
  if (status != SUCCESS) return status;
  *count = found;
  if (found > room) return INSUFFICIENT_SIZE;
  for (unsigned page = 0; page < found; page++) pages[page] = page * 65536ull;
  return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *handle, unsigned *out) {
  return small_of(handle, "retired_pending", "0", out);
}
/* links: one letter a link, 1 active, 0 inactive. */
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
  char value[LINE];
  int status = text_of(((Device *)handle)->index, "links", "111111111111111111", value, sizeof value);
  if (status != SUCCESS) return status;
  if (link >= strlen(value)) return link < LINKS ? NOT_SUPPORTED : INVALID_ARGUMENT;
  *active = value[link] == '1';
  return SUCCESS;
}

/* process PID MIB */
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
  char value[LINE];
  int index = ((Device *)handle)->index;
  unsigned found = 0, room = *count;
  if (find_nth(index, "lost", 0, value)) return atoi(value);
  while (find_nth(index, "process", (int)found, value)) {
    if (value[0] == '!') return atoi(value + 1);
    unsigned pid = 0;
    unsigned long long mib = 0;
    sscanf(value, "%u %llu", &pid, &mib);
    if (found < room) out[found] = (Process){pid, mib * MIB, ~0u, ~0u};
    found++;
  }
  *count = found;
  return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

typedef struct {
  void *device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
} Event;
int nvmlEventSetCreate(void **set) {
  *set = registered;
  return SUCCESS;
}
int nvmlEventSetFree(void *set) {
  (void)set;
  return SUCCESS;
}
int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *out) {
  return number_of(handle, "events", "8", out);
}
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
  (void)set;
  if (types != XID_EVENT) return INVALID_ARGUMENT;
  registered[((Device *)handle)->index] = 1;
  return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
  char value[LINE];
  (void)set;
  for (unsigned waited = 0;; waited += 5) {
    for (int index = 0; index < MAX_DEVICES; index++) {
      if (!registered[index] || !find_nth(index, "xid", delivered[index], value)) continue;
      delivered[index]++;
      *event = (Event){&devices[index], XID_EVENT, strtoull(value, NULL, 10), ~0u, ~0u};
      return SUCCESS;
    }
    if (waited >= timeout_ms) return TIMEOUT;
    usleep(5000);
  }
}
