/*
 * A test double of libnvidia-ml.so.1 with two GPUs, and with bad days chosen by
 * GDRCHECK_STUB_MODE. The signatures are those of NVIDIA's nvml.h, written down
 * again with plain C types. Built with -DOLD it lacks what old libraries lack.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, VERSION_MISMATCH = 18 };

static int mode(const char *name)
{
	const char *m = getenv("GDRCHECK_STUB_MODE");
	return m && !strcmp(m, name);
}

static int hang(void)
{
	for (;;)
		pause();
}

/* A device handle is 1 + its index, as a pointer. */
static long index_of(void *device) { return (long)device - 1; }

static int text(char *buf, unsigned n, const char *s)
{
	if (mode("garbage")) { /* not ended, not UTF-8 */
		memset(buf, 0xfe, n);
		memcpy(buf, "junk\x1b[31m", 9);
		return OK;
	}
	snprintf(buf, n, "%s", s);
	return OK;
}

int nvmlInit_v2(void)
{
	if (mode("hang-init"))
		hang();
	if (mode("slow-init"))
		usleep(300 * 1000);
	if (mode("crash-init"))
		*(volatile int *)0 = 1;
	if (mode("exit-init")) {
		fprintf(stderr, "NVML stub: giving up\n");
		exit(7);
	}
	if (mode("no-driver"))
		return DRIVER_NOT_LOADED;
	if (mode("mismatch"))
		return VERSION_MISMATCH;
	if (mode("odd-init"))
		return -77;
	if (mode("chatty")) { /* talks on stdout, stderr and our own fd 3 */
		for (int i = 0; i < 100000; i++)
			fprintf(i % 2 ? stdout : stderr, "chatter %d\n", i);
	}
	if (mode("scribble"))
		dprintf(3, "not json at all\n");
	if (mode("scribble-flood")) {
		char junk[4096];
		memset(junk, 'x', sizeof junk);
		while (write(3, junk, sizeof junk) > 0)
			;
	}
	return OK;
}

#ifndef OLD
const char *nvmlErrorString(int code)
{
	switch (code) {
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case VERSION_MISMATCH: return "Driver/library version mismatch";
	case GPU_IS_LOST: return "GPU is lost";
	case NOT_SUPPORTED: return "Not Supported";
	case NO_PERMISSION: return "Insufficient Permissions";
	}
	return "Stub Error";
}
#endif

int nvmlSystemGetDriverVersion(char *v, unsigned n) { return text(v, n, "580.1.2"); }
int nvmlSystemGetNVMLVersion(char *v, unsigned n) { return text(v, n, "13.580.1.2"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return OK; }

int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = mode("absurd-count") ? 1u << 31 : 2;
	return mode("odd-count") ? 4242 : OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
	if (i == 1 && mode("lost-gpu1"))
		return GPU_IS_LOST;
	*device = (void *)(long)(i + 1);
	return OK;
}

struct pci_info {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *d, struct pci_info *p)
{
	memset(p, 0, sizeof *p);
	if (mode("garbage-address"))
		memset(p, 0x7f, sizeof *p);
	else
		snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02lX:00.0", 0x10 + index_of(d) * 0x20);
	return OK;
}

int nvmlDeviceGetName(void *d, char *buf, unsigned n)
{
	if (index_of(d) == 1 && mode("hang-gpu1"))
		hang();
	if (index_of(d) == 1 && mode("crash-gpu1"))
		*(volatile int *)0 = 1;
	if (index_of(d) == 1 && mode("exit-gpu1"))
		exit(3);
	if (index_of(d) == 1 && mode("abort-gpu1"))
		abort();
	if (mode("slow"))
		usleep(20 * 1000);
	return text(buf, n, "Stub GPU");
}

int nvmlDeviceGetUUID(void *d, char *buf, unsigned n)
{
	char s[64];
	snprintf(s, sizeof s, "GPU-00000000-0000-0000-0000-00000000000%ld", index_of(d));
	return text(buf, n, s);
}

struct memory { uint64_t total, free, used; };

int nvmlDeviceGetBAR1MemoryInfo(void *d, struct memory *m)
{
	*m = mode("garbage") ? (struct memory){ 1, 5, ~0ull } : (struct memory){ 256ull << 30, (256ull << 30) - 4096, 4096 };
	return OK;
}

#ifndef OLD
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m)
{
	*m = (struct memory){ 80ull << 30, 79ull << 30, 1ull << 30 };
	return OK;
}
#endif

int nvmlDeviceGetCpuAffinity(void *d, unsigned n, unsigned long *set)
{
	memset(set, 0, n * sizeof *set);
	set[0] = 0xffffffff;
	set[1] = 1;
	return OK;
}

int nvmlDeviceGetNvLinkState(void *d, unsigned link, int *active)
{
	if (link >= 4)
		return INVALID_ARGUMENT;
	*active = link != 3;
	return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, struct pci_info *p)
{
	memset(p, 0, sizeof *p);
	snprintf(p->bus_id, sizeof p->bus_id, "00000000:C%u:00.0", link);
	return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned link, int *type) { *type = 2; return OK; }

int nvmlDeviceGetArchitecture(void *d, unsigned *arch) { *arch = mode("garbage") ? 7777 : 9; return OK; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) { return NOT_SUPPORTED; }
int nvmlDeviceGetEccMode(void *d, int *now, int *next) { *now = *next = 1; return OK; }
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, unsigned long long *n) { return NO_PERMISSION; }
int nvmlDeviceGetPersistenceMode(void *d, int *on) { *on = 1; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *n) { *n = mode("garbage") ? 99 : 1; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *n) { *n = 16; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *n) { *n = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *n) { *n = 16; return OK; }
int nvmlDeviceGetClockInfo(void *d, int type, unsigned *n) { *n = type == 1 ? 345 : 9; return OK; }
int nvmlDeviceGetMaxClockInfo(void *d, int type, unsigned *n) { *n = type == 1 ? 1980 : 9; return OK; }
int nvmlDeviceGetPerformanceState(void *d, int *p) { *p = mode("garbage") ? 4000 : 8; return OK; }

int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *infos)
{
	if (mode("garbage")) { /* says that it filled in more than there is room for */
		*n = 1u << 30;
		return OK;
	}
	*n = 0;
	return OK;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level) { *level = 50; return OK; }
