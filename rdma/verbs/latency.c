/* Latency: one message in flight, there and back. */
#define _GNU_SOURCE
#include "loop.h"

/* Spins, or sleeps, until a queue has a completion. */
static ALWAYS_INLINE int await(struct gdr_session *s, struct ibv_cq *cq, struct ibv_wc *wc, uint64_t idle_cycles)
{
	struct sleeper z = { 0 };
	uint64_t since = 0;
	uint32_t spins = 0;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc))) {
		enum { LOOK = 256 };

		if (s->c.events && gdr_rest(s, &z))
			return -1;
		if (++spins % LOOK && !s->c.events)
			continue;
		if (!since)
			since = gdr_cycles();
		else if (gdr_cycles() - since > idle_cycles)
			return gdr_idle(s);
	}
	return good(s, n, wc);
}

static ALWAYS_INLINE int await_mark(struct gdr_session *s, const volatile uint8_t *at, uint8_t mark, uint64_t idle_cycles)
{
	uint64_t since = 0;
	uint32_t spins = 0;

	for (;;) {
		enum { LOOK = 1024 };
		uint8_t v = *at;

		if (v == mark || v == GDR_MARK_END) {
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			return v == GDR_MARK_END;
		}
		if (++spins % LOOK)
			continue;
		/* A failed send is why nothing comes back, and known only from its queue. */
		if (!since)
			since = gdr_cycles();
		else if (gdr_cycles() - since > idle_cycles)
			return gdr_idle(s);
	}
}

static int latency_read(struct gdr_session *s)
{
	struct gdr_qp *q = s->qps;
	uint64_t idle_cycles = gdr_cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
	int last = 0;

	for (i = 0; !last; i++) {
		t = stamp(s, i, t);
		last = is_last(s, i, t, &end);
		if (post(s, q, 1, 1) || await(s, s->send_cq, s->wc, idle_cycles))
			return -1;
		q->completed++;
	}
	(void)stamp(s, i, t);
	return 0;
}

/* The next mark of a slot walk: it changes when the walk begins anew. */
static ALWAYS_INLINE uint8_t next_mark(uint8_t mark, uint64_t off)
{
	return off ? mark : mark == GDR_MARKS ? 1 : (uint8_t)(mark + 1);
}

static int latency_write(struct gdr_session *s)
{
	struct gdr_qp *q = s->qps;
	uint64_t idle_cycles = gdr_cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
	volatile uint8_t *src = (uint8_t *)s->mem.addr + s->step.size - 1;
	const volatile uint8_t *dst = (uint8_t *)s->mem.addr + s->dst + s->step.size - 1;
	uint8_t mark = 0;
	int last = 0;

	for (i = 0; !last; i++) {
		uint64_t off = q->off;

		mark = next_mark(mark, off);
		if (!s->c.initiator) {
			last = await_mark(s, dst + off, mark, idle_cycles);
			if (last < 0)
				return -1;
			__atomic_store_n(&s->progress, i, __ATOMIC_RELAXED);
		} else {
			t = stamp(s, i, t);
			last = is_last(s, i, t, &end);
		}
		src[off] = last ? GDR_MARK_END : mark;
		if (post(s, q, 1, 1) || await(s, s->send_cq, s->wc, idle_cycles))
			return -1;
		q->completed++;
		if (s->c.initiator && await_mark(s, dst + off, mark, idle_cycles) < 0)
			return -1;
	}
	if (s->c.initiator)
		(void)stamp(s, i, t);
	s->last_mark = GDR_MARK_END;
	q->received = i;
	return 0;
}

/* Waits for a message; 1: it was the last. Another receive takes its place at
 * once only where there is no second one: else that can wait until the answer
 * is on its way. */
static ALWAYS_INLINE int await_message(struct gdr_session *s, struct gdr_qp *q, uint64_t idle_cycles)
{
	int end;

	if (await(s, s->recv_cq, s->wc, idle_cycles))
		return -1;
	end = s->wc->wc_flags & IBV_WC_WITH_IMM && s->wc->imm_data == GDR_IMM_END;
	q->received++;
	return s->c.recv_depth < 2 && post_recv(s, q) ? -1 : end;
}

static ALWAYS_INLINE int latency_message(struct gdr_session *s, const int rdma)
{
	struct gdr_qp *q = s->qps;
	uint64_t idle_cycles = gdr_cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
	int last = 0;

	for (i = 0; !last; i++) {
		if (!s->c.initiator) {
			last = await_message(s, q, idle_cycles);
			if (last < 0)
				return -1;
			__atomic_store_n(&s->progress, i, __ATOMIC_RELAXED);
		} else {
			t = stamp(s, i, t);
			last = is_last(s, i, t, &end);
		}
		if (last)
			q->goal = q->posted + 1; /* so that this one says the end */
		if (post(s, q, 1, rdma))
			return -1;
		if (s->c.recv_depth >= 2 && (i || !s->c.initiator) && post_recv(s, q))
			return -1;
		if (await(s, s->send_cq, s->wc, idle_cycles))
			return -1;
		q->completed++;
		if (s->c.initiator && await_message(s, q, idle_cycles) < 0)
			return -1;
	}
	if (s->c.initiator)
		(void)stamp(s, i, t);
	return 0;
}

int gdr_latency(struct gdr_session *s)
{
	if (!gdr_sends(&s->c, s->c.initiator))
		return 0;
	switch (s->c.op) {
	case GDR_READ:
		return latency_read(s);
	case GDR_WRITE:
		return latency_write(s);
	case GDR_WRITE_IMM:
		return latency_message(s, 1);
	default:
		return latency_message(s, 0);
	}
}
