/* Readies a size: buffers filled, receives posted, everything counted anew. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int drain(struct gdr_session *s, struct ibv_cq *cq)
{
	int n;

	do {
		n = ibv_poll_cq(cq, GDR_POLL, s->wc);
	} while (n > 0);
	return n < 0 ? gdr_fail(s, "ibv_poll_cq", EIO) : 0;
}

static const enum ibv_wr_opcode opcodes[] = {
	[GDR_WRITE] = IBV_WR_RDMA_WRITE,
	[GDR_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[GDR_READ] = IBV_WR_RDMA_READ,
	[GDR_SEND] = IBV_WR_SEND,
};

static void prepare_qp(struct gdr_session *s, struct gdr_qp *q)
{
	uint64_t at = (uint64_t)(q - s->qps) * s->span, own = (uint64_t)(uintptr_t)s->mem.addr;
	uint32_t i;

	q->posted = q->completed = q->received = q->off = q->recv_off = 0;
	q->unsignalled = 0;
	q->ended = 0;
	q->goal = s->step.messages ? s->step.messages + s->step.warm_up : NEVER;
	q->local = own + at + (s->c.op == GDR_READ ? s->dst : 0);
	q->remote = s->peer.addr + at + (s->c.op == GDR_READ ? 0 : s->peer_dst);
	for (i = 0; i < s->c.post_list; i++) {
		struct ibv_send_wr *wr = &q->wr[i];

		wr->opcode = opcodes[s->c.op];
		wr->imm_data = 0;
		wr->next = i + 1 < s->c.post_list ? wr + 1 : NULL;
		wr->send_flags = s->step.size <= s->max_inline && s->c.op != GDR_READ && s->mem.ops->cpu_access ? IBV_SEND_INLINE : 0;
		if (s->c.latency) { /* bandwidth's loop decides which ones are */
			wr->send_flags |= IBV_SEND_SIGNALED;
			wr->wr_id = 0;
		}
		q->sge[i].addr = q->local;
		q->sge[i].length = (uint32_t)s->step.size;
		if (s->c.op != GDR_SEND) {
			wr->wr.rdma.rkey = s->peer.rkey;
			wr->wr.rdma.remote_addr = q->remote;
		} else if (s->c.ud) {
			wr->wr.ud.ah = s->ah;
			wr->wr.ud.remote_qpn = q->peer_number;
			wr->wr.ud.remote_qkey = GDR_QKEY;
		}
	}
	q->target = own + s->dst + at;
	q->recv.wr_id = (uint64_t)(q - s->qps);
	q->recv.num_sge = s->c.op == GDR_SEND;
	q->recv_sge.length = (uint32_t)(s->step.size + (s->c.ud ? GDR_GRH : 0));
}

static int post_receives(struct gdr_session *s)
{
	uint32_t i, k, n = s->c.recv_depth;

	/* The one that a latency test posts behind its first message. */
	if (s->c.latency && s->c.initiator && n > 1)
		n--;
	for (i = 0; i < s->c.qps; i++)
		for (k = 0; k < n; k++)
			if (post_recv(s, &s->qps[i]))
				return -1;
	return 0;
}

static int make_room(struct gdr_session *s)
{
	/* A latency of half a microsecond is out of reach, so this many suffice. */
	enum { PER_SECOND = 2000000, MOST = 1 << 24 };
	uint64_t n = s->step.messages ? s->step.messages : s->step.duration_ns / 1000 * PER_SECOND / 1000000 + 16;

	if (s->c.latency && (s->c.initiator || s->c.route == GDR_COPY)) {
		if (n > MOST)
			n = MOST;
		n += s->step.warm_up + 2; /* a time more than messages, and one to spare */
		if (n > s->samples_cap) {
			free(s->samples);
			s->samples = malloc(n * sizeof(*s->samples));
			s->samples_cap = s->samples ? n : 0;
			if (!s->samples)
				return gdr_fail(s, "malloc", ENOMEM);
		}
		memset(s->samples, 0, n * sizeof(*s->samples)); /* no page fault while measuring */
	}
	if (!s->sent.series)
		s->sent.series = calloc(GDR_SERIES_MAX + 1, sizeof(uint64_t));
	return s->sent.series ? 0 : gdr_fail(s, "calloc", ENOMEM);
}

static int prepare_qps(struct gdr_session *s)
{
	uint32_t i;

	for (i = 0; i < s->c.qps; i++)
		prepare_qp(s, &s->qps[i]);
	return gdr_receives(&s->c) ? post_receives(s) : 0;
}

static int clear_queues(struct gdr_session *s)
{
	/* Receives of the step before have its buffers: a new start clears them. */
	if (s->used && gdr_has_receives(&s->c) && gdr_session_reset(s))
		return -1;
	return drain(s, s->send_cq) || drain(s, s->recv_cq) ? -1 : 0;
}

int gdr_session_prepare(struct gdr_session *s, const struct gdr_step *step)
{
	uint32_t most = s->c.depth - s->c.post_list + 1;
	int rc;

	s->step = *step;
	/* More, and a full queue could hold no signalled send at all. */
	if (s->step.moderation > most)
		s->step.moderation = most;
	s->stride = gdr_stride(&s->c, step->size);
	s->walk = gdr_walk(&s->c, step->size);
	if (s->c.route == GDR_DIRECT && clear_queues(s))
		return -1;
	if (make_room(s) || gdr_fill(s))
		return -1;
	gdr_clear(&s->sent);
	s->posted = 0;
	s->warming = 0;
	s->samples_n = s->lost = 0;
	s->last_mark = 0;
	s->progress = 0;
	rc = s->c.route == GDR_DIRECT ? prepare_qps(s) : gdr_staging_prepare(s);
	s->used = 1;
	return rc;
}
