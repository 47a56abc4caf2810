#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "staging.h"

int gdr_fail(struct gdr_session *s, const char *call, int err)
{
	if (!s->error.call) /* the first cause counts */
		gdr_set_error(&s->error, call, err);
	return -1;
}

int gdr_session_open(struct gdr_session **out, const struct gdr_verbs *v, const char *device, uint8_t port, struct gdr_error *e)
{
	struct gdr_session *s = calloc(1, sizeof(*s));
	const char *call = "calloc";
	int rc = ENOMEM;

	if (!s)
		goto failed;
	s->v = *v;
	rc = gdr_open(v, device, &s->ctx, &call);
	if (rc)
		goto failed;
	call = "ibv_query_device";
	rc = gdr_query_device(v, s->ctx, &s->device);
	if (rc)
		goto failed;
	call = "ibv_query_port";
	rc = gdr_query_port(v, s->ctx, port, &s->port);
	if (rc)
		goto failed;
	s->c.port = port;
	call = "fcntl of the events";
	rc = gdr_watch_open(s);
	if (rc)
		goto failed;
	*out = s;
	return 0;
failed:
	if (s && s->ctx)
		(void)gdr_close(v, s->ctx);
	free(s);
	gdr_set_error(e, call, rc);
	return -1;
}

int gdr_session_bare(struct gdr_session **out, struct gdr_error *e)
{
	*out = calloc(1, sizeof(**out));
	if (*out)
		return 0;
	*e = (struct gdr_error){ .call = "calloc", .err = ENOMEM };
	return -1;
}

int gdr_session_gid(struct gdr_session *s, uint32_t index, struct ibv_gid_entry *entry)
{
	memset(entry, 0, sizeof(*entry));
	errno = 0;
	if (s->v.query_gid_ex)
		return gdr_code(GDR_VERB("ibv_query_gid", s->v.query_gid_ex(s->ctx, s->c.port, index, entry, 0, sizeof(*entry))));
	errno = 0;
	if (GDR_VERB("ibv_query_gid", s->v.query_gid(s->ctx, s->c.port, (int)index, &entry->gid)))
		return gdr_failure();
	return EOPNOTSUPP;
}

int gdr_sends(const struct gdr_config *c, int initiator)
{
	return initiator || c->bidirectional || (c->latency && c->op != GDR_READ);
}

int gdr_gets_data(const struct gdr_config *c)
{
	return gdr_sends(c, c->op == GDR_READ ? c->initiator : !c->initiator);
}

static int has_source(const struct gdr_config *c)
{
	return gdr_sends(c, c->op == GDR_READ ? !c->initiator : c->initiator);
}

static uint64_t round_up(uint64_t n) { return (n + GDR_LINE - 1) / GDR_LINE * GDR_LINE; }

uint64_t gdr_stride(const struct gdr_config *c, uint64_t size) { return round_up(size + (c->ud ? GDR_GRH : 0)); }

/* How many bytes a QP's slots of a size take. */
uint64_t gdr_walk(const struct gdr_config *c, uint64_t size)
{
	uint64_t stride = gdr_stride(c, size), slots = c->footprint / c->qps / stride;

	return (slots ? slots : 1) * stride;
}

static int access_of(const struct gdr_config *c)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (c->op == GDR_WRITE || c->op == GDR_WRITE_IMM)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (c->op == GDR_READ || c->flush)
		access |= IBV_ACCESS_REMOTE_READ;
	/* A test that polls memory must not see a message's end before its start. */
	if (c->relaxed_ordering && !(c->op == GDR_WRITE && c->latency))
		access |= IBV_ACCESS_RELAXED_ORDERING;
	return access;
}

int gdr_session_register(struct gdr_session *s, struct gdr_mem *m, const enum gdr_way *ways, int n)
{
	if (gdr_register(&s->v, s->pd, m, ways, n, access_of(&s->c), &s->registration)) {
		s->error = s->registration.failed[s->registration.failed_n - 1].error;
		return -1;
	}
	s->mr = s->registration.mr;
	return 0;
}

static int allocate(struct gdr_session *s, const struct gdr_mem_ops *ops)
{
	const char *call;
	int rc;
	uint64_t max = gdr_walk(&s->c, s->c.max_size);

	/* The largest size need not have the longest walk: its slots may not fill
	 * the footprint to the end. */
	if (max < s->c.footprint / s->c.qps)
		max = s->c.footprint / s->c.qps / GDR_LINE * GDR_LINE;
	s->span = max;
	s->has_src = has_source(&s->c);
	s->has_dst = gdr_gets_data(&s->c);
	s->dst = s->has_src ? s->span * s->c.qps : 0;
	s->mem.ops = ops;
	rc = ops->alloc(&s->mem, s->dst + (s->has_dst ? s->span * s->c.qps : 0) + GDR_LINE, s->c.device, &call);
	if (rc) {
		s->mem.ops = NULL;
		return gdr_fail(s, call, rc);
	}
	return 0;
}

int gdr_has_receives(const struct gdr_config *c) { return c->op == GDR_SEND || c->op == GDR_WRITE_IMM; }

/* Who sends through host memory receives credits. */
int gdr_receives(const struct gdr_config *c) { return gdr_has_receives(c) && (c->route != GDR_DIRECT || gdr_sends(c, !c->initiator)); }

static int make_cq(struct gdr_session *s, uint32_t entries, struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (s->c.events) {
		errno = 0;
		*channel = GDR_VERB("ibv_create_comp_channel", s->v.create_comp_channel(s->ctx));
		if (!*channel)
			return gdr_fail(s, "ibv_create_comp_channel", gdr_failure());
	}
	errno = 0;
	*cq = GDR_VERB("ibv_create_cq", s->v.create_cq(s->ctx, (int)entries, NULL, *channel, 0));
	return *cq ? 0 : gdr_fail(s, "ibv_create_cq", gdr_failure());
}

static int create_qp(struct gdr_session *s, struct gdr_qp *q)
{
	uint32_t ask = s->c.inline_bytes;

	for (;;) {
		struct ibv_qp_init_attr attr = {
			.send_cq = s->send_cq,
			.recv_cq = s->recv_cq,
			.qp_type = s->c.ud ? IBV_QPT_UD : IBV_QPT_RC,
			.cap = {
				.max_send_wr = s->c.depth,
				.max_recv_wr = gdr_receives(&s->c) ? s->c.recv_depth : 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = ask,
			},
		};
		errno = 0;
		q->qp = GDR_VERB("ibv_create_qp", s->v.create_qp(s->pd, &attr));
		if (q->qp) {
			s->max_inline = ask < attr.cap.max_inline_data ? ask : attr.cap.max_inline_data;
			return 0;
		}
		/* A device that cannot inline so much refuses the QP. */
		if (!ask || (errno != EINVAL && errno != ENOMEM))
			return gdr_fail(s, "ibv_create_qp", gdr_failure());
		ask /= 2;
	}
}

/* call names the call and the state, for errors too. */
static int modify(struct gdr_session *s, struct gdr_qp *q, struct ibv_qp_attr *attr, int mask, const char *call)
{
	int rc;

	errno = 0;
	rc = gdr_code(GDR_VERB(call, s->v.modify_qp(q->qp, attr, mask)));
	return rc ? gdr_fail(s, call, rc) : 0;
}

static int to_init(struct gdr_session *s, struct gdr_qp *q)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = s->c.pkey_index,
		.port_num = s->c.port,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (s->c.ud) {
		attr.qkey = GDR_QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = (unsigned int)access_of(&s->c) & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	return modify(s, q, &attr, mask, "ibv_modify_qp to INIT");
}

enum { PSN_MASK = 0xffffff };

int gdr_new_qp(struct gdr_session *s, struct gdr_qp *q) { return create_qp(s, q) || to_init(s, q) ? -1 : 0; }

static int make_qp(struct gdr_session *s, struct gdr_qp *q)
{
	uint32_t i;

	if (gdr_new_qp(s, q))
		return -1;
	if (getrandom(&q->psn, sizeof(q->psn), 0) != sizeof(q->psn))
		q->psn = q->qp->qp_num * 2654435761u;
	q->psn &= PSN_MASK;
	q->wr = calloc(s->c.post_list, sizeof(*q->wr));
	q->sge = calloc(s->c.post_list, sizeof(*q->sge));
	if (!q->wr || !q->sge)
		return gdr_fail(s, "calloc", ENOMEM);
	for (i = 0; i < s->c.post_list; i++) {
		q->wr[i].sg_list = &q->sge[i];
		q->wr[i].num_sge = 1;
		q->wr[i].next = i + 1 < s->c.post_list ? &q->wr[i + 1] : NULL;
		q->sge[i].lkey = s->mr->lkey;
	}
	q->recv.sg_list = &q->recv_sge;
	q->recv.num_sge = 1;
	q->recv_sge.lkey = s->mr->lkey;
	return 0;
}

int gdr_session_setup(struct gdr_session *s, const struct gdr_config *c, const struct gdr_mem_ops *mem)
{
	uint8_t port = s->c.port;
	uint32_t i;

	s->c = *c;
	s->c.port = port;
	s->cycles0 = gdr_cycles();
	s->ns0 = gdr_monotonic_ns();
	s->wc = calloc(GDR_POLL, sizeof(*s->wc));
	s->qps = calloc(c->qps, sizeof(*s->qps));
	if (!s->wc || !s->qps)
		return gdr_fail(s, "calloc", ENOMEM);
	if (allocate(s, mem))
		return -1;
	if (!s->ctx)
		return gdr_staging_make(s);
	errno = 0;
	s->pd = GDR_VERB("ibv_alloc_pd", s->v.alloc_pd(s->ctx));
	if (!s->pd)
		return gdr_fail(s, "ibv_alloc_pd", gdr_failure());
	if (c->route == GDR_DIRECT ? gdr_session_register(s, &s->mem, c->ways, c->ways_n) : gdr_staging_make(s))
		return -1;
	if (make_cq(s, c->depth * c->qps, &s->send_cq, &s->send_events) ||
	    make_cq(s, gdr_receives(&s->c) ? c->recv_depth * c->qps : 1, &s->recv_cq, &s->recv_events))
		return -1;
	for (i = 0; i < c->qps; i++)
		if (make_qp(s, &s->qps[i]))
			return -1;
	return 0;
}

static struct ibv_ah_attr path_to(const struct gdr_session *s)
{
	enum { HOPS = 255 };
	struct ibv_ah_attr ah = { .dlid = s->peer.lid, .sl = s->c.sl, .port_num = s->c.port };

	if (s->c.gid_index >= 0) {
		ah.is_global = 1;
		ah.grh.dgid = s->peer.gid;
		ah.grh.sgid_index = (uint8_t)s->c.gid_index;
		ah.grh.hop_limit = HOPS;
		ah.grh.traffic_class = s->c.traffic_class;
	}
	return ah;
}

int gdr_connect_rc(struct gdr_session *s, struct gdr_qp *q)
{
	enum { RNR_TIMER = 12 }; /* 0.64 ms: as perftest */
	int reads = s->device.max_qp_init_rd_atom;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)s->peer.mtu,
		.dest_qp_num = q->peer_number,
		.rq_psn = q->peer_psn,
		.max_dest_rd_atomic = (uint8_t)s->device.max_qp_rd_atom,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = path_to(s),
	};

	if (modify(s, q, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, "ibv_modify_qp to RTR"))
		return -1;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = q->psn;
	attr.timeout = s->c.timeout;
	attr.retry_cnt = s->c.retry;
	attr.rnr_retry = s->c.rnr_retry;
	attr.max_rd_atomic = (uint8_t)(reads < s->peer.max_reads ? reads : s->peer.max_reads);
	return modify(s, q, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, "ibv_modify_qp to RTS");
}

static int connect_ud(struct gdr_session *s, struct gdr_qp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };

	if (modify(s, q, &attr, IBV_QP_STATE, "ibv_modify_qp to RTR"))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = q->psn;
	return modify(s, q, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, "ibv_modify_qp to RTS");
}

static int connect_all(struct gdr_session *s)
{
	uint32_t i;

	for (i = 0; i < s->c.qps; i++)
		if (s->c.ud ? connect_ud(s, &s->qps[i]) : gdr_connect_rc(s, &s->qps[i]))
			return -1;
	return 0;
}

int gdr_session_reset(struct gdr_session *s)
{
	uint32_t i;

	for (i = 0; i < s->c.qps; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

		if (modify(s, &s->qps[i], &attr, IBV_QP_STATE, "ibv_modify_qp to RESET") || to_init(s, &s->qps[i]))
			return -1;
	}
	return connect_all(s);
}

int gdr_session_connect(struct gdr_session *s, const struct gdr_peer *p)
{
	struct gdr_config c = s->c; /* the peer's, whose memory is laid out by the same rules */
	uint64_t need;

	c.initiator = !c.initiator;
	s->peer = *p;
	s->peer_dst = has_source(&c) ? s->span * c.qps : 0;
	need = s->peer_dst + (gdr_gets_data(&c) ? s->span * c.qps : 0);
	if (s->c.route != GDR_DIRECT)
		need = gdr_gets_data(&c) ? s->c.chunk * s->c.chunks : 0;
	if (p->bytes < need)
		return gdr_fail(s, "the peer's memory", EMSGSIZE);
	if (s->c.ud) {
		struct ibv_ah_attr ah = path_to(s);

		errno = 0;
		s->ah = GDR_VERB("ibv_create_ah", s->v.create_ah(s->pd, &ah));
		if (!s->ah)
			return gdr_fail(s, "ibv_create_ah", gdr_failure());
	}
	return connect_all(s);
}

void gdr_session_close(struct gdr_session *s)
{
	uint32_t i;

	for (i = 0; s->qps && i < s->c.qps; i++) {
		if (s->qps[i].qp)
			(void)GDR_VERB("ibv_destroy_qp", s->v.destroy_qp(s->qps[i].qp));
		free(s->qps[i].wr);
		free(s->qps[i].sge);
	}
	if (s->ah)
		(void)GDR_VERB("ibv_destroy_ah", s->v.destroy_ah(s->ah));
	if (s->send_cq)
		(void)GDR_VERB("ibv_destroy_cq", s->v.destroy_cq(s->send_cq));
	if (s->recv_cq)
		(void)GDR_VERB("ibv_destroy_cq", s->v.destroy_cq(s->recv_cq));
	if (s->send_events)
		(void)s->v.destroy_comp_channel(s->send_events);
	if (s->recv_events)
		(void)s->v.destroy_comp_channel(s->recv_events);
	if (s->mr)
		(void)GDR_VERB("ibv_dereg_mr", s->v.dereg_mr(s->mr));
	gdr_staging_close(s);
	if (s->mem.ops)
		s->mem.ops->release(&s->mem);
	if (s->pd)
		(void)GDR_VERB("ibv_dealloc_pd", s->v.dealloc_pd(s->pd));
	if (s->ctx)
		(void)gdr_close(&s->v, s->ctx);
	free(s->qps);
	free(s->wc);
	free(s->samples);
	free(s->sent.series);
	free(s);
}

uint64_t gdr_session_progress(struct gdr_session *s) { return s->progress; }

int gdr_session_node(const struct gdr_session *s) { return s->mem.ops->node ? s->mem.ops->node(&s->mem) : -1; }
