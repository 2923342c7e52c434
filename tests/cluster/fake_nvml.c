/* A libnvidia-ml.so.1 for tests: FAKE_NVML=broken fails to start, else a line of devices
 * "uuid,mig uuid;uuid": two GPUs, the first in MIG mode with one MIG device. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

static char text[1024];
static char *uuids[8][2];
static unsigned count;

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  const char *spec = getenv("FAKE_NVML");
  if (spec == NULL || strcmp(spec, "broken") == 0) return DRIVER_NOT_LOADED;
  strncpy(text, spec, sizeof text - 1);
  count = 0;
  for (char *entry = strtok(text, ";"); entry != NULL; entry = strtok(NULL, ";")) {
    char *comma = strchr(entry, ',');
    if (comma != NULL) *comma++ = 0;
    uuids[count][0] = entry;
    uuids[count++][1] = comma;
  }
  return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Error"; }
int nvmlDeviceGetCount_v2(unsigned *result) {
  *result = count;
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  *handle = &uuids[index][0];
  return SUCCESS;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
  strncpy(out, *(char **)handle, size);
  return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *out, unsigned size) {
  (void)handle;
  strncpy(out, "NVIDIA Test", size);
  return SUCCESS;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  char **entry = handle;
  if (entry[1] == NULL) return NOT_SUPPORTED;
  *current = *pending = 1;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *result) {
  (void)handle;
  *result = 7;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig) {
  if (index != 2) return NOT_FOUND;
  *mig = (char **)handle + 1;
  return SUCCESS;
}
