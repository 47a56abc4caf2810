/* A test double of NVML. Its GPUs stand at the addresses in LAB_GPUS; with
 * LAB_NVML_WRITE set, nvmlInit writes to that file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { /* nvmlPciInfo_t */
	char bus_id_legacy[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
} pci_info;

static char gpus[8][32];
static unsigned int count;

int nvmlInit_v2(void)
{
	const char *file = getenv("LAB_NVML_WRITE"), *list = getenv("LAB_GPUS");
	char *copy, *word;

	if (file) {
		int fd = open(file, O_CREAT | O_WRONLY, 0600);

		if (fd < 0 || write(fd, "x", 1) != 1)
			return 999;
		close(fd);
	}
	count = 0;
	copy = strdup(list ? list : "");
	for (word = strtok(copy, " "); word && count < 8; word = strtok(NULL, " "))
		snprintf(gpus[count++], sizeof(gpus[0]), "%s", word);
	free(copy);
	return 0;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int rc) { (void)rc; return "error of the test double"; }

static int text(char *out, unsigned int n, const char *s)
{
	return snprintf(out, n, "%s", s) < 0 ? 999 : 0;
}
int nvmlSystemGetDriverVersion(char *out, unsigned int n) { return text(out, n, "0.0-double"); }
int nvmlSystemGetNVMLVersion(char *out, unsigned int n) { return text(out, n, "0.0-double"); }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 12080; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **dev)
{
	if (i >= count)
		return 2; /* invalid argument */
	*dev = gpus[i];
	return 0;
}
int nvmlDeviceGetPciInfo_v3(void *dev, pci_info *p)
{
	unsigned int function;

	memset(p, 0, sizeof(*p));
	if (sscanf(dev, "%x:%x:%x.%x", &p->domain, &p->bus, &p->device, &function) != 4)
		return 999;
	snprintf(p->bus_id, sizeof(p->bus_id), "%08X:%02X:%02X.%X", p->domain, p->bus, p->device, function);
	return 0;
}
int nvmlDeviceGetName(void *dev, char *out, unsigned int n) { (void)dev; return text(out, n, "GPU stand-in"); }
int nvmlDeviceGetUUID(void *dev, char *out, unsigned int n)
{
	return snprintf(out, n, "GPU-stand-in-%s", (char *)dev) < 0 ? 999 : 0;
}
