/* The part of libibverbs that gdrcheck calls, found at run time. */
#ifndef GDRCHECK_VERBS_TABLE_H
#define GDRCHECK_VERBS_TABLE_H

#include <infiniband/verbs.h>

#include "poison.h"

/* X(name without ibv_, symbol version, result, arguments) of what every
 * libibverbs has that programs of today link with. The version is asked for by
 * name: each of these has an IBVERBS_1.0 form too, with other structures. */
#define GDR_VERBS_REQUIRED(X)                                                       \
	X(get_device_list, "IBVERBS_1.1", struct ibv_device **, (int *))            \
	X(free_device_list, "IBVERBS_1.1", void, (struct ibv_device **))            \
	X(get_device_name, "IBVERBS_1.1", const char *, (struct ibv_device *))      \
	X(open_device, "IBVERBS_1.1", struct ibv_context *, (struct ibv_device *))  \
	X(close_device, "IBVERBS_1.1", int, (struct ibv_context *))                 \
	X(query_device, "IBVERBS_1.1", int,                                         \
	  (struct ibv_context *, struct ibv_device_attr *))                         \
	X(query_port, "IBVERBS_1.1", int,                                           \
	  (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))          \
	X(alloc_pd, "IBVERBS_1.1", struct ibv_pd *, (struct ibv_context *))         \
	X(dealloc_pd, "IBVERBS_1.1", int, (struct ibv_pd *))                        \
	X(dereg_mr, "IBVERBS_1.1", int, (struct ibv_mr *))

/* What only newer ones have: NULL in the table where missing. */
#define GDR_VERBS_OPTIONAL(X)                                                       \
	X(reg_dmabuf_mr, "IBVERBS_1.12", struct ibv_mr *,                           \
	  (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

struct gdr_verbs {
#define GDR_FIELD(name, version, result, args) result(*name) args;
	GDR_VERBS_REQUIRED(GDR_FIELD)
	GDR_VERBS_OPTIONAL(GDR_FIELD)
#undef GDR_FIELD
};

/* Loads the library and fills the table. Returns NULL, or the reason, which
 * the caller frees. A loaded library stays loaded: it keeps threads and state. */
char *gdr_verbs_load(struct gdr_verbs *v, const char *library);

/* Finds and opens a device. Returns 0 or an errno, and in *call what failed;
 * ENODEV: the list has no such device. */
int gdr_open(const struct gdr_verbs *v, const char *name, struct ibv_context **ctx, const char **call);

int gdr_close(const struct gdr_verbs *v, struct ibv_context *ctx);

int gdr_query_device(const struct gdr_verbs *v, struct ibv_context *ctx, struct ibv_device_attr *attr);

/* Fills the fields of attr up to phys_state. */
int gdr_query_port(const struct gdr_verbs *v, struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

/* Registers 4096 bytes of the dma-buf with descriptor -1 on a protection domain
 * of its own and frees both. *answer becomes the registration's errno, 0 if it
 * succeeded. Returns 0 or the errno of what stands around the registration. */
int gdr_probe_dmabuf(const struct gdr_verbs *v, struct ibv_context *ctx, int *answer);

#endif
