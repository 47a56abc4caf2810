/* Pinned memory, queues and events of the ways through host memory. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_direction(struct gdr_session *s, void **queue, void ***events)
{
	const struct gdr_mem_ops *ops = s->mem.ops;
	const char *call = "calloc";
	uint32_t i;
	int rc;

	*events = calloc(s->c.chunks, sizeof(**events));
	if (!*events)
		return gdr_fail(s, call, ENOMEM);
	rc = ops->queue_open(&s->mem, queue, &call);
	for (i = 0; !rc && i < s->c.chunks; i++)
		rc = ops->event_open(&s->mem, &(*events)[i], &call);
	return rc ? gdr_fail(s, call, rc) : 0;
}

static int make_slots(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	uint64_t each = s->c.chunk * s->c.chunks;
	const char *call;
	int rc;

	g->host.ops = &gdr_mem_host;
	rc = gdr_mem_host.alloc(&g->host, (s->has_src + s->has_dst) * each, s->c.numa_node, &call);
	if (rc) {
		g->host.ops = NULL;
		return gdr_fail(s, call, rc);
	}
	rc = s->mem.ops->pin(&s->mem, g->host.addr, g->host.bytes, &call);
	if (rc)
		return gdr_fail(s, call, rc);
	g->pinned = 1;
	if (s->has_dst)
		g->in = g->host.addr;
	if (s->has_src)
		g->out = (uint8_t *)g->host.addr + (s->has_dst ? each : 0);
	return 0;
}

int gdr_staging_make(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging = calloc(1, sizeof(*g));

	if (!g)
		return gdr_fail(s, "calloc", ENOMEM);
	g->wire = s->c.route == GDR_TCP ? &gdr_wire_tcp : &gdr_wire_rdma;
	if (!s->mem.ops->copy_start)
		return gdr_fail(s, "copies beside the CPU", EOPNOTSUPP);
	if (make_slots(s))
		return -1;
	if (g->in && make_direction(s, &g->in_queue, &g->in_events))
		return -1;
	if (g->out && make_direction(s, &g->out_queue, &g->out_events))
		return -1;
	return s->c.route == GDR_STAGED ? gdr_session_register(s, &g->host, &(enum gdr_way){ GDR_WAY_ADDRESS }, 1) : 0;
}

static void close_direction(struct gdr_session *s, void *queue, void **events)
{
	uint32_t i;

	if (queue)
		s->mem.ops->queue_close(&s->mem, queue);
	for (i = 0; events && i < s->c.chunks; i++)
		if (events[i])
			s->mem.ops->event_close(&s->mem, events[i]);
	free(events);
}

void gdr_staging_close(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;

	if (!g)
		return;
	close_direction(s, g->in_queue, g->in_events);
	close_direction(s, g->out_queue, g->out_events);
	if (g->pinned)
		s->mem.ops->unpin(&s->mem, g->host.addr);
	if (g->host.ops)
		g->host.ops->release(&g->host);
	free(g);
	s->staging = NULL;
}

/* Between steps nothing is under way, and each receive has been posted anew. */
int gdr_staging_prepare(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	struct gdr_qp *q = s->qps;
	uint32_t k;

	g->pieces = (s->step.size + s->c.chunk - 1) / s->c.chunk;
	g->goal = g->started = g->copied = g->posted = g->sent = g->credited = 0;
	g->arrived = g->landing = g->landed = g->told = 0;
	g->final = g->ended = 0;
	q->posted = q->completed = q->received = 0;
	q->goal = s->step.messages ? s->step.messages + s->step.warm_up : NEVER;
	if (s->c.route == GDR_COPY)
		gdr_copies_prepare(s);
	if (s->c.route != GDR_STAGED || s->used)
		return 0;
	q->recv.num_sge = 0; /* data is written, and credits are immediate */
	for (k = 0; k < s->c.recv_depth; k++) {
		struct ibv_recv_wr *bad;
		int rc = ibv_post_recv(q->qp, &q->recv, &bad);

		if (rc)
			return gdr_post_failed(s, "ibv_post_recv", q, rc);
	}
	return 0;
}
