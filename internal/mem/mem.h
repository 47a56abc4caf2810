/* Memory that RDMA can be tested over. Each kind fills one table; the measuring
 * core knows no kind. */
#ifndef GDRCHECK_MEM_H
#define GDRCHECK_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "trace.h"

struct gdr_mem {
	const struct gdr_mem_ops *ops;
	void *addr;   /* what is registered and stands in work requests */
	size_t bytes; /* as rounded up by alloc */
	int device;   /* of the kind: a NUMA node, or a GPU's number; -1: any */
	void *own;    /* the kind's */
};

/* Where writes of other devices are in order by themselves: CUDA's attribute 118. */
enum { GDR_ORDER_UNKNOWN = -1, GDR_ORDER_NONE = 0, GDR_ORDER_OWNER = 100, GDR_ORDER_ALL = 200 };

struct gdr_mem_ops {
	const char *kind;
	/* The kind's own library, "CUDA", and the names of its errors; NULL: none. */
	const char *library;
	const char *(*error_name)(int code);
	/* The CPU may read and write addr: a write latency test polls it, and
	 * messages can be inlined. */
	int cpu_access;
	/* Fills addr and bytes. All functions return 0, an errno, or the library's
	 * own error, negated; *call then names what failed. */
	int (*alloc)(struct gdr_mem *m, size_t bytes, int device, const char **call);
	void (*release)(struct gdr_mem *m);
	/* Copies between the CPU's memory and m, and is through when it returns. */
	int (*copy_in)(struct gdr_mem *m, size_t to, const void *from, size_t bytes);
	int (*copy_out)(struct gdr_mem *m, void *to, size_t from, size_t bytes);
	/* Gives a dma-buf of the whole, whose byte *offset is addr; pcie: one that
	 * devices reach over PCIe even where another way is shorter. NULL: none, the
	 * address itself is registered. */
	int (*export_dmabuf)(struct gdr_mem *m, int pcie, int *fd, uint64_t *offset, const char **call);
	/* Returns when the device sees what others wrote to m. NULL: nothing to do. */
	int (*flush)(struct gdr_mem *m, const char **call);
	/* How far it sees that without a flush: GDR_ORDER_*. NULL: it is the CPU's. */
	int (*order)(const struct gdr_mem *m);
	/* The NUMA node that addr turned out to be on; -1: unknown or not one. */
	int (*node)(const struct gdr_mem *m);

	/* CPU memory that the device reads and writes by itself (pinned), for copy_start. */
	int (*pin)(struct gdr_mem *m, void *addr, size_t bytes, const char **call);
	void (*unpin)(struct gdr_mem *m, void *addr);
	/* A queue on which copies run in order beside the CPU (a CUDA stream). */
	int (*queue_open)(struct gdr_mem *m, void **queue, const char **call);
	void (*queue_close)(struct gdr_mem *m, void *queue);
	/* Marks a point of a queue (a CUDA event). */
	int (*event_open)(struct gdr_mem *m, void **event, const char **call);
	void (*event_close)(struct gdr_mem *m, void *event);
	/* Starts a copy between pinned host memory and m, out: from m; then records event, if not NULL. */
	int (*copy_start)(struct gdr_mem *m, void *queue, void *host, size_t off, size_t bytes, int out, void *event, const char **call);
	/* 0: all copies before the event are through; EAGAIN: not yet. */
	int (*event_done)(struct gdr_mem *m, void *event);
};

extern const struct gdr_mem_ops gdr_mem_host;
extern const struct gdr_mem_ops gdr_mem_cuda;     /* cuMemAlloc */
extern const struct gdr_mem_ops gdr_mem_rocm;     /* hipMalloc */
extern const struct gdr_mem_ops gdr_mem_cuda_vmm; /* cuMemCreate, as allocators with growing segments do */

/* Where calls into vendors' libraries are noted (trace.h); NULL: nowhere. */
extern char *gdr_mem_trace;

/* Names an error of a kind's library; NULL: no name. */
static inline const char *gdr_mem_error_name(const struct gdr_mem_ops *ops, int code)
{
	return ops->error_name ? ops->error_name(code) : NULL;
}

/* Loads HIP's or CUDA's library (path; NULL: the system's) and finds the GPU at a PCI address.
 * *reason, which the caller frees, has the words where the library is missing. */
int gdr_hip_open(const char *path, const char *bus_id, int *device, const char **call, char **reason);
int gdr_cuda_open(const char *path, const char *bus_id, int *device, const char **call, char **reason);

#endif
