/* Queue pairs and completion queues of the double, and what goes between them. */
#include "provider.h"

#include <sched.h>

static void push(struct cq *cq, struct ibv_wc wc)
{
	if (cq->head - cq->tail == cq->size)
		abort(); /* an overrun completion queue */
	cq->wc[cq->head++ % cq->size] = wc;
	if (cq->armed && cq->cq.channel) {
		uint64_t one = 1;

		cq->armed = 0;
		if (write(cq->cq.channel->fd, &one, sizeof(one)) < 0)
			abort();
	}
}

void complete(struct qp *q, const struct entry *e, enum ibv_wc_status status)
{
	if (status || e->wr.send_flags & IBV_SEND_SIGNALED)
		push((struct cq *)q->qp.send_cq, (struct ibv_wc){ .wr_id = e->wr.wr_id, .status = status, .vendor_err = status ? 0x81 : 0 });
}

int take(struct qp *peer, const void *from, uint32_t n, int write, int ud, int with_imm, uint32_t imm, uint8_t **to)
{
	struct ibv_recv_wr *r = &peer->rq[peer->rq_tail % peer->rq_size];
	struct ibv_sge *s = &peer->rsge[peer->rq_tail % peer->rq_size];

	if (peer->rq_head == peer->rq_tail)
		return 0;
	peer->rq_tail++;
	if (!write) {
		*to = (uint8_t *)(uintptr_t)s->addr + (ud ? GRH : 0);
		if (s->length < n + (ud ? GRH : 0))
			abort();
	}
	if (n && from)
		move(*to, from, n);
	push((struct cq *)peer->qp.recv_cq, (struct ibv_wc){
		.wr_id = r->wr_id, .byte_len = n, .imm_data = imm, .wc_flags = with_imm ? IBV_WC_WITH_IMM : 0 });
	return 1;
}

void place(uint8_t *to, const uint8_t *from, uint32_t n)
{
	if (on_gpu(to) || on_gpu(from)) {
		move(to, from, n);
		return;
	}
	if (n > 1)
		memcpy(to, from, n - 1);
	__atomic_store_n(to + n - 1, from[n - 1], __ATOMIC_RELEASE);
}

static int fatal(int type) { return type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_PORT_ERR; }

/* Whether the cable is out before the next message. */
static int pulled(struct qp *q)
{
	if (messages + 1 < fault_at || strcmp(fault, "unplug"))
		return 0;
	if (!unplugged)
		report(IBV_EVENT_PORT_ERR, q);
	unplugged = 1;
	return 1;
}

/* Runs the oldest request of q; 0 if it has to wait for a receive. */
static int step(struct qp *q)
{
	struct entry *e = &q->sq[q->sq_tail % q->sq_size];
	int ud = q->qp.qp_type == IBV_QPT_UD;
	uint32_t number = ud ? e->wr.wr.ud.remote_qpn : q->peer;
	struct qp *peer = qps[number % QPS];
	enum ibv_wr_opcode op = e->wr.opcode;
	int receives = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	int imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t *from = e->wr.send_flags & IBV_SEND_INLINE ? e->inlined : (uint8_t *)(uintptr_t)e->sge.addr, *to;
	uint32_t n = e->sge.length;

	if (messages + 1 == fault_at && !strcmp(fault, "event") && !reported) {
		report(fault_type, q);
		reported = 1;
	}
	if (reported && fatal(fault_type))
		return 0;
	if (process_of(number) != own_process())
		return pulled(q) ? 0 : step_far(q, e, number, from);
	if (!peer || peer->state < IBV_QPS_RTR) {
		if (!ud)
			return 0;
		q->sq_tail++;
		complete(q, e, IBV_WC_SUCCESS);
		return 1;
	}
	if (receives && peer->rq_head == peer->rq_tail && !ud)
		return 0;
	if (pulled(q))
		return 0;
	messages++;
	q->sq_tail++;
	if (is("drop") || (!strcmp(fault, "lose") && messages % fault_at == 0) || (receives && peer->rq_head == peer->rq_tail)) {
		complete(q, e, ud ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
		return 1;
	}
	to = (uint8_t *)(uintptr_t)e->wr.wr.rdma.remote_addr;
	if (op == IBV_WR_RDMA_READ) {
		to = (uint8_t *)(uintptr_t)e->sge.addr;
		from = (uint8_t *)(uintptr_t)e->wr.wr.rdma.remote_addr;
	}
	if (receives)
		(void)take(peer, is("stale") ? NULL : from, n, op == IBV_WR_RDMA_WRITE_WITH_IMM, ud, imm, e->wr.imm_data, &to);
	else if (!is("stale") && !is("flip"))
		place(to, from, n);
	else if (!is("stale"))
		move(to, from, n);
	if (is("flip"))
		change(to + n / 2, 1);
	if (is("stray"))
		change(to + n, 0x40);
	complete(q, e, IBV_WC_SUCCESS);
	return 1;
}

static void run(struct qp *q)
{
	while (q && q->state == IBV_QPS_RTS && q->sq_head != q->sq_tail && step(q))
		;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	int rc = 0;

	while (!strcmp(fault, "stop"))
		pause();
	pthread_mutex_lock(&lock);
	for (; wr && !rc; wr = wr->next) {
		struct entry *e = &q->sq[q->sq_head % q->sq_size];

		*bad = wr;
		if (q->sq_head - q->sq_tail == q->sq_size) {
			rc = ENOMEM;
			break;
		}
		e->wr = *wr;
		e->sge = wr->num_sge ? *wr->sg_list : (struct ibv_sge){ 0 };
		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(e->inlined, (void *)(uintptr_t)e->sge.addr, e->sge.length);
		q->sq_head++;
		run(q);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	int rc = 0;

	pthread_mutex_lock(&lock);
	*bad = wr;
	if (q->rq_head - q->rq_tail == q->rq_size) {
		rc = ENOMEM;
	} else {
		q->rq[q->rq_head % q->rq_size] = *wr;
		if (wr->num_sge)
			q->rsge[q->rq_head % q->rq_size] = *wr->sg_list;
		q->rq_head++;
	}
	if (q->qp.qp_type == IBV_QPT_RC)
		run(qps[q->peer % QPS]);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int poll_cq(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)c;
	int i;

	pthread_mutex_lock(&lock);
	if (stalled && cq->head == cq->tail) {
		struct qp *q = stalled;

		stalled = NULL;
		run(q);
	}
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wc[cq->tail++ % cq->size];
	pthread_mutex_unlock(&lock);
	if (!i)
		sched_yield(); /* the other end may want this processor */
	return i;
}

static int req_notify_cq(struct ibv_cq *c, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&lock);
	((struct cq *)c)->armed = 1;
	pthread_mutex_unlock(&lock);
	return 0;
}

void set_ops(struct ibv_context_ops *ops)
{
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}
