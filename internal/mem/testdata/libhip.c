/* A test double of libamdhip64.so and libhsa-runtime64.so, over the double of
 * libcuda, whose faults it shares. A dma-buf of it begins a page before the
 * memory, as HSA's may. */
#include "libcuda.c"

int hipInit(unsigned flags) { (void)flags; BEGIN; return OK; }
int hipDeviceGetByPCIBusId(int *d, const char *s) { BEGIN; return cuDeviceGetByPCIBusId(d, s); }
int hipSetDevice(int d)
{
	BEGIN;
	current = &retained[d];
	return OK;
}
int hipMalloc(void **p, size_t bytes)
{
	ptr at = 0;
	int rc;

	BEGIN;
	rc = cuMemAlloc_v2(&at, bytes);
	*p = (void *)at;
	return rc;
}
int hipFree(void *p) { return cuMemFree_v2((ptr)p); }
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) { (void)kind; BEGIN; return cuMemcpy((ptr)to, (ptr)from, bytes); }
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *s)
{
	enum { TO_DEVICE = 1 };

	BEGIN;
	return kind == TO_DEVICE ? cuMemcpyHtoDAsync_v2((ptr)to, from, bytes, s) : cuMemcpyDtoHAsync_v2(to, (ptr)from, bytes, s);
}
int hipHostRegister(void *p, size_t bytes, unsigned flags) { return cuMemHostRegister_v2(p, bytes, flags); }
int hipHostUnregister(void *p) { return cuMemHostUnregister(p); }
int hipStreamCreateWithFlags(void **s, unsigned flags) { return cuStreamCreate(s, flags); }
int hipStreamDestroy(void *s) { return cuStreamDestroy_v2(s); }
int hipStreamSynchronize(void *s) { return cuStreamSynchronize(s); }
int hipEventCreateWithFlags(void **e, unsigned flags) { return cuEventCreate(e, flags); }
int hipEventDestroy(void *e) { return cuEventDestroy_v2(e); }
int hipEventRecord(void *e, void *s) { return cuEventRecord(e, s); }
int hipEventQuery(void *e) { return cuEventQuery(e); }
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorUnknown"; }

int hsa_amd_portable_export_dmabuf(const void *p, size_t bytes, int *fd, unsigned long long *offset)
{
	enum { PAGE = 4096 };

	BEGIN;
	if (!find((ptr)p))
		return 0x1001; /* HSA_STATUS_ERROR_INVALID_ARGUMENT */
	*offset = PAGE;
	*fd = memory(bytes + PAGE);
	return OK;
}
int hsa_status_string(int code, const char **s) { *s = "HSA_STATUS_ERROR"; return code < 0x1000; }
