/* How a NIC is let at memory. */
#ifndef GDRCHECK_VERBS_REGISTER_H
#define GDRCHECK_VERBS_REGISTER_H

#include "mem.h"
#include "table.h"

/* What failed. call is NULL while nothing has. */
struct gdr_error {
	const char *call;
	int err;             /* errno, or 0 */
	int code;            /* of the memory's library, or 0 */
	int status;          /* enum ibv_wc_status of a failed completion, or 0 */
	uint32_t vendor_err; /* of a failed completion */
	uint32_t qp;         /* index of the QP, of a completion or a post */
};

/* Notes what a call of ours or of a memory's kind returned. */
void gdr_set_error(struct gdr_error *e, const char *call, int rc);

enum gdr_way {
	GDR_WAY_ADDRESS,     /* the CPU's memory, by its address */
	GDR_WAY_DMABUF,      /* a dma-buf */
	GDR_WAY_DMABUF_PCIE, /* a dma-buf that is reached over PCIe */
	GDR_WAY_DATA_DIRECT, /* the same, through mlx5's Data Direct function */
	GDR_WAY_PEERMEM,     /* a device's, by its address: a peer memory client knows it */
	GDR_WAYS,
};

struct gdr_registration {
	struct ibv_mr *mr;
	enum gdr_way way;
	/* The ways that were tried before, and why they failed. */
	struct {
		enum gdr_way way;
		struct gdr_error error;
	} failed[GDR_WAYS];
	int failed_n;
	uint64_t export_ns, register_ns; /* of the way that was taken */
};

/* A device and memory to be registered, and no more: nothing moves. */
struct gdr_probe {
	struct gdr_verbs v;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct gdr_mem mem; /* ops NULL: none */
};

int gdr_probe_open(struct gdr_probe *p, const char *device, struct gdr_error *e);
int gdr_probe_alloc(struct gdr_probe *p, const struct gdr_mem_ops *ops, int device, size_t bytes, struct gdr_error *e);
void gdr_probe_free(struct gdr_probe *p);
void gdr_probe_close(struct gdr_probe *p);
/* Registers the memory by one way and takes that back. */
int gdr_probe_way(struct gdr_probe *p, enum gdr_way way, struct gdr_registration *r);

/* Tries the ways one after the other; -1: none. */
int gdr_register(const struct gdr_verbs *v, struct ibv_pd *pd, struct gdr_mem *m, const enum gdr_way *ways, int n, int access, struct gdr_registration *r);

#endif
