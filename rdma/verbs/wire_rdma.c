/* Chunks as RDMA WRITEs with immediate into the other end's slots. A credit is
 * an empty SEND whose immediate counts the chunks that have left their slots. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>

#define CREDIT_BIT 0x80000000u
#define LAST_BIT 1u
#define CREDIT_WR (1ull << GDR_COVERS_SHIFT)

static int send_one(struct gdr_session *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->send_flags = IBV_SEND_SIGNALED;
	rc = ibv_post_send(s->qps->qp, wr, &bad);
	return rc ? gdr_post_failed(s, "ibv_post_send", s->qps, rc) : 0;
}

static int rdma_post(struct gdr_session *s, size_t bytes, int last)
{
	struct gdr_staging *g = s->staging;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)gdr_slot(s, g->out, g->posted), .length = (uint32_t)bytes, .lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = &sge, .num_sge = 1, .imm_data = last ? LAST_BIT : 0,
		.wr.rdma = { .remote_addr = s->peer.addr + g->posted % s->c.chunks * s->c.chunk, .rkey = s->peer.rkey },
	};

	return send_one(s, &wr);
}

static int rdma_credit(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = CREDIT_BIT | (uint32_t)g->landed, .wr_id = CREDIT_WR };

	if (g->credits_out == s->c.chunks)
		return 1;
	g->credits_out++;
	return send_one(s, &wr);
}

static int took(struct gdr_session *s, const struct ibv_wc *wc)
{
	struct gdr_staging *g = s->staging;
	struct ibv_recv_wr *bad;
	int rc;

	if (!(wc->wc_flags & IBV_WC_WITH_IMM))
		return gdr_fail(s, "a message without immediate data", EPROTO);
	if (wc->imm_data & CREDIT_BIT) {
		g->credited += (wc->imm_data - (uint32_t)g->credited) & ~CREDIT_BIT;
		if (g->credited > g->posted)
			return gdr_fail(s, "a credit for what was not sent", EPROTO);
	} else {
		g->arrived++;
		g->ended |= wc->imm_data & LAST_BIT;
		if (!g->in || g->arrived - g->told > s->c.chunks)
			return gdr_fail(s, "a chunk without a free slot", EPROTO);
	}
	rc = ibv_post_recv(s->qps->qp, &s->qps->recv, &bad);
	return rc ? gdr_post_failed(s, "ibv_post_recv", s->qps, rc) : 0;
}

static int rdma_poll(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	int n = ibv_poll_cq(s->send_cq, GDR_POLL, s->wc), i;

	if (good(s, n, s->wc))
		return -1;
	for (i = 0; i < n; i++) {
		if (s->wc[i].wr_id == CREDIT_WR)
			g->credits_out--;
		else
			g->sent++;
	}
	n = ibv_poll_cq(s->recv_cq, GDR_POLL, s->wc);
	if (good(s, n, s->wc))
		return -1;
	for (i = 0; i < n; i++)
		if (took(s, &s->wc[i]))
			return -1;
	return 0;
}

const struct gdr_wire gdr_wire_rdma = { .post = rdma_post, .credit = rdma_credit, .poll = rdma_poll };
