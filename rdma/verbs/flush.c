/* A completion says that data has left the NIC, not that a GPU sees it: what was
 * written may still be on its way behind the PCIe bus. A read of the same memory
 * by the same NIC cannot overtake it. */
#define _GNU_SOURCE
#include "loop.h"

#include <string.h>

static int read_once(struct gdr_session *t, struct gdr_qp *q, struct ibv_send_wr *wr)
{
	uint64_t since = gdr_cycles(), idle = gdr_cycles_of(t, t->c.idle_ns);
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n, rc = ibv_post_send(q->qp, wr, &bad);

	if (rc)
		return gdr_post_failed(t, "ibv_post_send", q, rc);
	while (!(n = ibv_poll_cq(t->send_cq, 1, &wc)))
		if (gdr_cycles() - since > idle)
			return gdr_idle(t);
	return good(t, n, &wc);
}

static int read_all(struct gdr_session *t, struct gdr_qp *q, struct ibv_mr *mr, uint64_t *samples, uint32_t n)
{
	struct ibv_sge sge = { .addr = (uint64_t)(uintptr_t)mr->addr, .length = 1, .lkey = mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED };
	uint32_t i;

	wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)t->mem.addr;
	wr.wr.rdma.rkey = t->mr->rkey;
	if (read_once(t, q, &wr)) /* brings it into the caches */
		return -1;
	for (i = 0; i < n; i++) {
		uint64_t begin = gdr_cycles();

		if (read_once(t, q, &wr))
			return -1;
		samples[i] = gdr_cycles() - begin;
	}
	return 0;
}

int gdr_flush_read(const struct gdr_session *s, uint64_t *samples, uint32_t n, struct gdr_error *e)
{
	struct gdr_session t = *s; /* the same device and memory, other queues */
	struct ibv_gid_entry own;
	struct ibv_mr *mr = NULL;
	struct gdr_qp q;
	uint64_t landing[8];
	int rc = -1;

	memset(&q, 0, sizeof(q));
	memset(&t.error, 0, sizeof(t.error));
	t.c.op = GDR_READ;
	t.c.ud = t.c.events = 0;
	t.c.depth = t.c.recv_depth = 1;
	t.c.inline_bytes = 0;
	t.send_events = NULL;
	memset(&own, 0, sizeof(own));
	if (s->c.gid_index >= 0)
		(void)gdr_session_gid(&t, (uint32_t)s->c.gid_index, &own); /* it was read before */
	t.peer = (struct gdr_peer){ .gid = own.gid, .lid = t.port.lid, .mtu = (int)t.port.active_mtu, .max_reads = 1 };
	errno = 0;
	t.send_cq = t.v.create_cq(t.ctx, 1, NULL, NULL, 0);
	if (!t.send_cq) {
		(void)gdr_fail(&t, "ibv_create_cq", gdr_failure());
		goto out;
	}
	t.recv_cq = t.send_cq;
	errno = 0;
	mr = t.v.reg_mr(t.pd, landing, sizeof(landing), IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		(void)gdr_fail(&t, "ibv_reg_mr", gdr_failure());
		goto out;
	}
	if (gdr_new_qp(&t, &q))
		goto out;
	q.peer_number = q.qp->qp_num;
	if (gdr_connect_rc(&t, &q))
		goto out;
	rc = read_all(&t, &q, mr, samples, n);
out:
	if (q.qp)
		(void)t.v.destroy_qp(q.qp);
	if (mr)
		(void)t.v.dereg_mr(mr);
	if (t.send_cq)
		(void)t.v.destroy_cq(t.send_cq);
	*e = t.error;
	return rc;
}

int gdr_flush_call(struct gdr_session *s, uint64_t *samples, uint32_t n, struct gdr_error *e)
{
	const char *call = "flush";
	uint32_t i;
	int rc = 0;

	if (!s->mem.ops->flush)
		rc = EOPNOTSUPP;
	for (i = 0; !rc && i < n; i++) {
		uint64_t begin = gdr_cycles();

		rc = s->mem.ops->flush(&s->mem, &call);
		samples[i] = gdr_cycles() - begin;
	}
	gdr_set_error(e, call, rc);
	return rc ? -1 : 0;
}
