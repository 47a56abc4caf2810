/* Latency over UD, where a message or its answer may be lost: each carries a number
 * as immediate data, and a message without an answer in time has no sample. */
#define _GNU_SOURCE
#include "loop.h"

/* This end's place in its memory. */
struct walk {
	uint64_t off;
	int owed; /* receives that were taken, or left out at first, and are to be posted */
};

static NEVER_INLINE int spin(struct gdr_session *s, struct ibv_cq *cq, uint64_t limit)
{
	struct sleeper z = { 0 };
	uint64_t start = gdr_cycles();
	uint32_t spins = 0;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, s->wc))) {
		enum { LOOK = 256 };

		if (++spins % LOOK && !s->c.events)
			continue;
		if (s->c.events && gdr_rest(s, &z))
			return -1;
		if (gdr_cycles() - start > limit)
			break;
	}
	return n;
}

/* 1: a good completion has come, and is in s->wc; 0: none within the limit. */
static ALWAYS_INLINE int await(struct gdr_session *s, struct ibv_cq **cq, uint64_t limit)
{
	int n = ibv_poll_cq(*cq, 1, s->wc);

	if (!n)
		n = spin(s, *cq, limit);
	return good(s, n, s->wc) ? -1 : n;
}

static ALWAYS_INLINE int post_owed(struct gdr_session *s, struct walk *w)
{
	for (; w->owed; w->owed--)
		if (post_recv(s, s->qps))
			return -1;
	return 0;
}

/* Sends a message of this number. Where there is but one receive, the next one must
 * stand before it; else it is posted while the message is on its way. */
static ALWAYS_INLINE int ping(struct gdr_session *s, struct walk *w, uint32_t number, uint64_t idle)
{
	struct gdr_qp *q = s->qps;
	struct ibv_send_wr *bad;
	int rc;

	if (s->c.recv_depth == 1 && post_owed(s, w))
		return -1;
	q->sge->addr = q->local + w->off;
	advance(s, &w->off);
	say_end(s, q->wr, number);
	rc = ibv_post_send(q->qp, q->wr, &bad);
	if (__builtin_expect(rc, 0))
		return gdr_post_failed(s, "ibv_post_send", q, rc);
	q->completed = ++q->posted;
	if (post_owed(s, w))
		return -1;
	rc = await(s, &s->send_cq, idle);
	return rc > 0 ? 0 : rc ? -1 : gdr_idle(s);
}

/* 1: the answer to this number has come; 0: it is lost. Those that were given up
 * may still come. */
static ALWAYS_INLINE int answered(struct gdr_session *s, struct walk *w, uint32_t number, uint64_t limit)
{
	for (;;) {
		int n = await(s, &s->recv_cq, limit);

		if (n <= 0)
			return n;
		s->qps->received++;
		w->owed++;
		if (__builtin_expect(s->wc->imm_data == number, 1))
			return 1;
		if (post_owed(s, w))
			return -1;
	}
}

static NEVER_INLINE int there(struct gdr_session *s)
{
	struct pace p = first_pace(s);
	struct walk w = { .owed = s->c.recv_depth > 1 };
	uint64_t idle = gdr_cycles_of(s, s->c.idle_ns), limit = gdr_cycles_of(s, gdr_lost_after_ns(s)), heard = gdr_cycles(), i = 0;
	int last, came;

	do {
		uint32_t number = (uint32_t)(i % GDR_PING_NUMBERS);

		last = stamp(s, &p, i);
		if (last)
			number = GDR_IMM_END;
		if (ping(s, &w, number, idle))
			return -1;
		came = answered(s, &w, number, limit);
		if (came < 0)
			return -1;
		if (came)
			heard = s->samples[i];
		else if (gdr_cycles() - heard > idle)
			return gdr_idle(s);
		else
			s->samples[i] |= GDR_LOST;
		i++;
	} while (!last);
	stamp_end(s, i);
	return came ? 0 : gdr_repeat_end(s);
}

static NEVER_INLINE int answers(struct gdr_session *s)
{
	struct walk w = { 0 };
	uint64_t idle = gdr_cycles_of(s, s->c.idle_ns);
	uint32_t number = 0;

	while (number != GDR_IMM_END) {
		int n = await(s, &s->recv_cq, idle);

		if (n <= 0)
			return n ? -1 : gdr_idle(s);
		number = s->wc->imm_data;
		if (number == GDR_IMM_END_AGAIN) /* it waits for no answer */
			return 0;
		s->progress = ++s->qps->received;
		w.owed++;
		if (ping(s, &w, number, idle))
			return -1;
	}
	return 0;
}

int gdr_datagram_latency(struct gdr_session *s) { return s->c.initiator ? there(s) : answers(s); }

uint64_t gdr_lost_after_ns(const struct gdr_session *s)
{
	enum { LONGEST_NS = 100000000, IDLE_SHARE = 4 };
	uint64_t ns = s->c.idle_ns / IDLE_SHARE;

	return ns < LONGEST_NS ? ns : LONGEST_NS;
}
