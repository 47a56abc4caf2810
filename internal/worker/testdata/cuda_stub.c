/*
 * A test double of libcuda.so.1 with two GPUs, and with bad days chosen by
 * GDRCHECK_STUB_MODE. Built with -DOLD it lacks a function.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int mode(const char *name)
{
	const char *m = getenv("GDRCHECK_STUB_MODE");
	return m && !strcmp(m, name);
}

int cuInit(unsigned flags)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	if (mode("hang-init"))
		for (;;)
			pause();
	if (mode("crash-init"))
		*(volatile int *)0 = 1;
	if (mode("mismatch"))
		return 803;
	if (mode("fabric"))
		return 802;
	if (mode("odd"))
		return 31337;
	if (mode("no-device"))
		return 100;
	if (getenv("CUDA_VISIBLE_DEVICES") || !order || strcmp(order, "PCI_BUS_ID"))
		return 999;
	return 0;
}

int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = mode("absurd-count") ? -5 : 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }

int cuDeviceGetPCIBusId(char *s, int n, int d)
{
	if (mode("garbage"))
		memset(s, 'z', n);
	else
		snprintf(s, n, "0000:%02X:00.0", 0x10 + d * 0x20);
	return 0;
}

#ifndef OLD
int cuDeviceGetAttribute(int *v, int attr, int d)
{
	if (d == 1 && mode("crash-gpu1"))
		*(volatile int *)0 = 1;
	if (attr == 124)
		return mode("old-driver") ? 1 : (*v = 1, 0);
	*v = attr;
	return 0;
}
#endif

int cuGetErrorString(int code, const char **s)
{
	if (code == 31337)
		*s = "stub words";
	return code != 31337;
}
