/* The part of libibverbs that gdrcheck calls, found at run time. */
#ifndef GDRCHECK_VERBS_TABLE_H
#define GDRCHECK_VERBS_TABLE_H

#include <infiniband/verbs.h>

#include "poison.h"
#include "trace.h"

/* Where calls are noted (trace.h); NULL: nowhere. */
extern char *gdr_verbs_trace;

/* Makes a call, named for whoever waits for it. errno stays as the call left it. */
#define GDR_VERB(name, call)                             \
	__extension__({                                  \
		gdr_trace_begin(gdr_verbs_trace, name);  \
		__auto_type result_ = (call);            \
		gdr_trace_end(gdr_verbs_trace);          \
		result_;                                 \
	})

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
	X(dereg_mr, "IBVERBS_1.1", int, (struct ibv_mr *))                          \
	X(reg_mr, "IBVERBS_1.1", struct ibv_mr *,                                   \
	  (struct ibv_pd *, void *, size_t, int))                                   \
	X(query_gid, "IBVERBS_1.1", int,                                            \
	  (struct ibv_context *, uint8_t, int, union ibv_gid *))                    \
	X(create_comp_channel, "IBVERBS_1.0", struct ibv_comp_channel *,            \
	  (struct ibv_context *))                                                   \
	X(destroy_comp_channel, "IBVERBS_1.0", int, (struct ibv_comp_channel *))    \
	X(create_cq, "IBVERBS_1.1", struct ibv_cq *,                                \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))      \
	X(destroy_cq, "IBVERBS_1.1", int, (struct ibv_cq *))                        \
	X(get_cq_event, "IBVERBS_1.1", int,                                         \
	  (struct ibv_comp_channel *, struct ibv_cq **, void **))                   \
	X(ack_cq_events, "IBVERBS_1.1", void, (struct ibv_cq *, unsigned int))      \
	X(create_qp, "IBVERBS_1.1", struct ibv_qp *,                                \
	  (struct ibv_pd *, struct ibv_qp_init_attr *))                             \
	X(modify_qp, "IBVERBS_1.1", int,                                            \
	  (struct ibv_qp *, struct ibv_qp_attr *, int))                             \
	X(destroy_qp, "IBVERBS_1.1", int, (struct ibv_qp *))                        \
	X(create_ah, "IBVERBS_1.1", struct ibv_ah *,                                \
	  (struct ibv_pd *, struct ibv_ah_attr *))                                  \
	X(destroy_ah, "IBVERBS_1.1", int, (struct ibv_ah *))

/* What only newer ones have: NULL in the table where missing. */
#define GDR_VERBS_OPTIONAL(X)                                                       \
	X(reg_dmabuf_mr, "IBVERBS_1.12", struct ibv_mr *,                           \
	  (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))                  \
	X(reg_mr_iova2, "IBVERBS_1.8", struct ibv_mr *,                             \
	  (struct ibv_pd *, void *, size_t, uint64_t, unsigned int))                \
	X(get_async_event, "IBVERBS_1.1", int,                                      \
	  (struct ibv_context *, struct ibv_async_event *))                         \
	X(ack_async_event, "IBVERBS_1.1", void, (struct ibv_async_event *))         \
	X(query_port_speed, "IBVERBS_1.16", int,                                    \
	  (struct ibv_context *, uint32_t, uint64_t *))

/* The same, of functions that inline functions of the headers stand before:
 * their names begin with an underscore. */
#define GDR_VERBS_INNER(X)                                                          \
	X(query_gid_ex, "IBVERBS_1.11", int,                                        \
	  (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *,        \
	   uint32_t, size_t))

/* Access flags of mlx5's own registration (mlx5dv.h, which Debian 12's lacks). */
enum { GDR_MLX5_DATA_DIRECT = 1 << 0 };

struct gdr_verbs {
	/* libmlx5's (MLX5_1.25); NULL: not looked for, or this one has none. */
	struct ibv_mr *(*mlx5_reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int, int);
#define GDR_FIELD(name, version, result, args) result(*name) args;
	GDR_VERBS_REQUIRED(GDR_FIELD)
	GDR_VERBS_OPTIONAL(GDR_FIELD)
	GDR_VERBS_INNER(GDR_FIELD)
#undef GDR_FIELD
};

/* Loads the library and fills the table. Returns NULL, or the reason, which
 * the caller frees. A loaded library stays loaded: it keeps threads and state. */
char *gdr_verbs_load(struct gdr_verbs *v, const char *library);

/* Looks for what only libmlx5 has. */
void gdr_mlx5_load(struct gdr_verbs *v, const char *library);

/* Finds and opens a device. Returns 0 or an errno, and in *call what failed;
 * ENODEV: the list has no such device. */
int gdr_open(const struct gdr_verbs *v, const char *name, struct ibv_context **ctx, const char **call);

/* errno after a call that returned no object; EIO where it set none: a library
 * that fails without an errno must not read as success. */
int gdr_failure(void);

/* An errno for the answer of a call that returns an errno, or -1 with errno set. */
int gdr_code(int rc);

int gdr_close(const struct gdr_verbs *v, struct ibv_context *ctx);

int gdr_query_device(const struct gdr_verbs *v, struct ibv_context *ctx, struct ibv_device_attr *attr);

/* Fills the fields of attr up to phys_state. */
int gdr_query_port(const struct gdr_verbs *v, struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

/* The port's speed in units of 100 Mb/s (ibv_query_port_speed(3)). 0 or an errno;
 * ENOSYS: this libibverbs cannot tell. */
int gdr_query_port_speed(const struct gdr_verbs *v, struct ibv_context *ctx, uint8_t port, uint64_t *speed);

/* Registers 4096 bytes of the dma-buf with descriptor -1 on a protection domain
 * of its own and frees both. *answer becomes the registration's errno, 0 if it
 * succeeded. Returns 0 or the errno of what stands around the registration. */
int gdr_probe_dmabuf(const struct gdr_verbs *v, struct ibv_context *ctx, int *answer);

#endif
