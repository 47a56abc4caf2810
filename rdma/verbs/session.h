/* One end of a test: device, memory, queue pairs, and the measuring loops. The
 * functions are called in the order gdr_session_open, _setup, _connect, then for
 * each size _prepare, _run, _verify, and _close last. */
#ifndef GDRCHECK_VERBS_SESSION_H
#define GDRCHECK_VERBS_SESSION_H

#include "events.h"
#include "register.h"

enum gdr_route {
	GDR_DIRECT, /* the device's memory is registered */
	GDR_STAGED, /* through pinned host memory, which is registered */
	GDR_TCP,    /* through pinned host memory and a socket: no RDMA device, no QP */
	GDR_COPY,   /* only between the device and pinned host memory: READ out of it, WRITE into it */
};

enum gdr_op { GDR_WRITE, GDR_WRITE_IMM, GDR_READ, GDR_SEND };

struct gdr_config {
	int op;  /* enum gdr_op */
	int route; /* enum gdr_route */
	int latency, ud, initiator, bidirectional, events, relaxed_ordering;
	uint32_t qps, depth, recv_depth, post_list, inline_bytes;
	uint64_t max_size, footprint, seed, idle_ns;
	int flush;  /* its flush will be measured */
	int device; /* of the memory's kind: NUMA node, -1: any; or GPU */
	int numa_node; /* of the slots in host memory; -1: any */
	enum gdr_way ways[GDR_WAYS]; /* to register it, in the order to be tried */
	int ways_n;
	uint8_t port, sl, traffic_class, retry, rnr_retry, timeout;
	uint16_t pkey_index;
	int gid_index; /* -1: no GRH */
	/* Of the ways through host memory: slots of so many bytes each way, how many. */
	uint64_t chunk;
	uint32_t chunks;
};

struct gdr_staging;

/* The peer, for _connect. */
struct gdr_peer {
	union ibv_gid gid;
	uint16_t lid;
	uint32_t rkey;
	uint64_t addr, bytes;
	int mtu; /* enum ibv_mtu of the connection */
	int max_reads;
};

/* One size, for _prepare, _run and _verify. */
struct gdr_step {
	uint64_t size;
	uint64_t messages; /* on each QP, or 0: by duration */
	uint64_t warm_up;  /* on each QP */
	uint64_t duration_ns, margin_ns, interval_ns;
	uint32_t moderation;
};

/* Completed sends, within a window. */
struct gdr_window {
	uint64_t first, last; /* cycles of the polls that open and close it */
	uint64_t messages;    /* completed in it */
	uint64_t total, final; /* of the whole step, warm-up included; cycles of the last one */
	uint64_t *series;     /* messages in each interval */
	uint32_t intervals;   /* whole ones in series */
	int from_start;       /* a test by time too short for margins: all is counted */
};

struct gdr_qp {
	struct ibv_qp *qp;
	uint32_t peer_number, peer_psn, psn;
	struct ibv_send_wr *wr; /* post_list of them, chained */
	struct ibv_sge *sge;
	struct ibv_recv_wr recv;
	struct ibv_sge recv_sge;
	uint64_t local, remote, target; /* start of its slots; target: of those it receives into */
	uint64_t off, recv_off; /* of the next slot, within a walk */
	uint64_t posted, completed, received;
	uint64_t goal; /* posts after which it ends */
	uint32_t unsignalled;
	int ended; /* the last message has come */
};

struct gdr_session {
	struct gdr_verbs v;
	struct gdr_config c;
	struct gdr_step step;
	struct gdr_error error;

	struct ibv_context *ctx;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_pd *pd;
	struct gdr_mem mem;
	struct gdr_registration registration;
	struct ibv_mr *mr; /* the registration's */
	struct ibv_comp_channel *send_events, *recv_events;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_ah *ah;
	struct gdr_qp *qps;
	struct ibv_wc *wc;
	struct gdr_peer peer;
	struct gdr_staging *staging; /* NULL: the direct way */

	/* The memory: sources at 0, destinations at dst; each QP has span bytes. */
	int has_src, has_dst;
	uint64_t span, dst;
	uint64_t stride, walk; /* of the step: from slot to slot, and all slots */
	uint64_t peer_dst;     /* where the peer's destinations start */
	uint32_t max_inline;

	struct gdr_window sent;
	uint64_t posted; /* on all QPs in this step */
	int warming;     /* the warm-up is under way */
	uint64_t *samples; /* cycles of a round trip each; while a test runs, of each post */
	uint64_t samples_cap, samples_n;
	uint64_t lost;     /* messages of a UD latency test without a sample */
	double ns_per_cycle;
	uint64_t cycles0, ns0; /* the clocks at setup */
	double cpu_ns;         /* of the measuring thread in the last run */
	uint8_t last_mark;     /* of a write latency test */
	volatile uint64_t progress; /* messages that are through; read by another thread */
	int used;              /* a step was run on these QPs */
};

int gdr_session_open(struct gdr_session **s, const struct gdr_verbs *v, const char *device, uint8_t port, struct gdr_error *e);
/* A session without a device, for GDR_TCP and GDR_COPY. */
int gdr_session_bare(struct gdr_session **s, struct gdr_error *e);
int gdr_session_setup(struct gdr_session *s, const struct gdr_config *c, const struct gdr_mem_ops *mem);
int gdr_session_connect(struct gdr_session *s, const struct gdr_peer *p);
int gdr_session_prepare(struct gdr_session *s, const struct gdr_step *step);
/* Runs on the calling thread, with all its signals blocked. */
int gdr_session_run(struct gdr_session *s);
void gdr_session_close(struct gdr_session *s);

/* Reads a GID table entry with its type; ENODATA where the entry is empty,
 * EOPNOTSUPP where this libibverbs cannot tell the type. */
int gdr_session_gid(struct gdr_session *s, uint32_t index, struct ibv_gid_entry *entry);

/* What makes data visible to a device after it has arrived, n times, in cycles
 * each: reads of one byte over a queue pair connected to itself, or the call of
 * the memory's library. After a run; nothing is under way meanwhile. An error is
 * in *e, and the session is as before. */
int gdr_flush_read(const struct gdr_session *s, uint64_t *samples, uint32_t n, struct gdr_error *e);
int gdr_flush_call(struct gdr_session *s, uint64_t *samples, uint32_t n, struct gdr_error *e);

/* After how long a message of a UD latency test, or its answer, is taken for lost. */
uint64_t gdr_lost_after_ns(const struct gdr_session *s);

static inline int gdr_order(const struct gdr_mem *m) { return m->ops->order ? m->ops->order(m) : GDR_ORDER_ALL; }

/* A queue pair in INIT, and its way up to the peer's. */
int gdr_new_qp(struct gdr_session *s, struct gdr_qp *q);
int gdr_connect_rc(struct gdr_session *s, struct gdr_qp *q);

/* CLOCK_MONOTONIC. */
uint64_t gdr_now_ns(void);

uint64_t gdr_session_progress(struct gdr_session *s);

/* The NUMA node that the memory turned out to be on; -1: unknown. */
int gdr_session_node(const struct gdr_session *s);

/* Whether this end posts messages of the operation, or data comes to it. */
int gdr_sends(const struct gdr_config *c, int initiator);
int gdr_gets_data(const struct gdr_config *c);

/* Whether messages of the operation end in a receive, and whether here. */
int gdr_has_receives(const struct gdr_config *c);
int gdr_receives(const struct gdr_config *c);

struct gdr_mismatch {
	uint64_t compared, offset;
	uint64_t overwritten; /* messages whose place a later one had taken */
	uint8_t got, want;
	int wrong, untouched;
};

/* Compares the destinations; messages[q] is how many of them went to QP q. */
int gdr_session_verify(struct gdr_session *s, const uint64_t *messages, uint8_t last_mark, struct gdr_mismatch *m);
int gdr_fill(struct gdr_session *s);

/* A receive's buffer begins with room for the GRH, on UD. */
enum { GDR_GRH = 40, GDR_LINE = 64 };

/* Marks of the write latency test: the last byte of a message. */
enum { GDR_MARKS = 250, GDR_MARK_END = 255 };
#define GDR_IMM_END 0xffffffffu

enum { GDR_QKEY = 0x11111111, GDR_POLL = 16 /* completions taken at a time */ };

/* From slot to slot, and the bytes of all slots of a QP. */
uint64_t gdr_stride(const struct gdr_config *c, uint64_t size);
uint64_t gdr_walk(const struct gdr_config *c, uint64_t size);

/* Brings all QPs back to what _connect left, without anything posted on them. */
int gdr_session_reset(struct gdr_session *s);

/* Registers memory for the operations of the config, the first way that works. */
int gdr_session_register(struct gdr_session *s, struct gdr_mem *m, const enum gdr_way *ways, int n);

int gdr_fail(struct gdr_session *s, const char *call, int err);

#endif
