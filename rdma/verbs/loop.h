/* What the measuring loops share. The hot parts are inlined into each of them. */
#ifndef GDRCHECK_VERBS_LOOP_H
#define GDRCHECK_VERBS_LOOP_H

#include <errno.h>

#include "clock.h"
#include "session.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline))
#define NEVER UINT64_MAX

enum {
	GDR_SERIES_MAX = 100000,
	GDR_COVERS_SHIFT = 32,          /* of a send's wr_id: above, the messages that its completion stands for */
	GDR_IMM_END_AGAIN = 0x7ffffffe, /* says the end of a stream of datagrams once more */
	GDR_PING_NUMBERS = 0x40000000,  /* of a UD latency test: an answer carries its message's */
};

/* In the time noted of a message: it is lost. */
#define GDR_LOST (1ull << 63)

int gdr_failed_completion(struct gdr_session *s, const struct ibv_wc *wc);
int gdr_idle(struct gdr_session *s);
int gdr_post_failed(struct gdr_session *s, const char *call, const struct gdr_qp *q, int rc);
void gdr_clear(struct gdr_window *w);

int gdr_bandwidth(struct gdr_session *s);
/* Says the end of datagrams several times, since each may be lost. */
int gdr_repeat_end(struct gdr_session *s);
int gdr_latency(struct gdr_session *s);
int gdr_datagram_latency(struct gdr_session *s);
/* Makes samples of the times that gdr_latency noted. */
void gdr_latency_samples(struct gdr_session *s);

struct sleeper {
	int armed;
};

/* Called when there is nothing to do: arms the queues once, and on the next
 * call, still without work, sleeps until one of them has an event. */
int gdr_rest(struct gdr_session *s, struct sleeper *z);

static inline uint64_t gdr_cycles_of(const struct gdr_session *s, uint64_t ns) { return (uint64_t)((double)ns / s->ns_per_cycle); }

/* Fails unless n completions are good ones. */
static ALWAYS_INLINE int good(struct gdr_session *s, int n, const struct ibv_wc *wc)
{
	int i;

	if (__builtin_expect(n < 0, 0))
		return gdr_fail(s, "ibv_poll_cq", -n > 1 ? -n : EIO);
	for (i = 0; i < n; i++)
		if (__builtin_expect(wc[i].status != IBV_WC_SUCCESS, 0))
			return gdr_failed_completion(s, &wc[i]);
	return 0;
}

static ALWAYS_INLINE void advance(const struct gdr_session *s, uint64_t *off)
{
	*off += s->stride;
	if (*off >= s->walk)
		*off = 0;
}

static ALWAYS_INLINE int post_recv(struct gdr_session *s, struct gdr_qp *q)
{
	struct ibv_recv_wr *bad;
	int rc;

	q->recv_sge.addr = q->target + q->recv_off;
	advance(s, &q->recv_off);
	rc = ibv_post_recv(q->qp, &q->recv, &bad);
	return __builtin_expect(rc, 0) ? gdr_post_failed(s, "ibv_post_recv", q, rc) : 0;
}

/* The last message says so to a receiver. */
static inline void say_end(struct gdr_session *s, struct ibv_send_wr *wr, uint32_t imm)
{
	wr->imm_data = imm;
	if (s->c.op == GDR_SEND)
		wr->opcode = IBV_WR_SEND_WITH_IMM;
}

/* Posts n messages, of which the last one is signalled when it is time. */
static ALWAYS_INLINE int post(struct gdr_session *s, struct gdr_qp *q, uint32_t n, const int rdma)
{
	struct ibv_send_wr *bad, *tail = &q->wr[n - 1];
	uint32_t i;
	int rc;

	for (i = 0; i < n; i++) {
		q->sge[i].addr = q->local + q->off;
		if (rdma)
			q->wr[i].wr.rdma.remote_addr = q->remote + q->off;
		advance(s, &q->off);
	}
	q->posted += n;
	q->unsignalled += n;
	s->posted += n;
	if (__builtin_expect(q->posted == q->goal && !s->warming, 0))
		say_end(s, tail, GDR_IMM_END);
	if (q->unsignalled >= s->step.moderation || q->posted == q->goal) {
		tail->send_flags |= IBV_SEND_SIGNALED;
		tail->wr_id = (uint64_t)(q - s->qps) | (uint64_t)q->unsignalled << GDR_COVERS_SHIFT;
		q->unsignalled = 0;
	} else {
		tail->send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
	}
	if (__builtin_expect(n < s->c.post_list, 0))
		tail->next = NULL;
	rc = ibv_post_send(q->qp, q->wr, &bad);
	if (__builtin_expect(n < s->c.post_list, 0)) { /* the next list goes on behind it */
		tail->next = &q->wr[n];
		tail->send_flags &= ~(unsigned int)IBV_SEND_SIGNALED;
	}
	return __builtin_expect(rc, 0) ? gdr_post_failed(s, "ibv_post_send", q, rc) : 0;
}

/* The initiator's times. It notes each post's, and samples are made of them at the end. */
struct pace {
	uint64_t turn; /* the message at which the warm-up is through, and then the last one */
	uint64_t end;  /* of a test by time, which begins when the warm-up is through */
};

static inline struct pace first_pace(const struct gdr_session *s) { return (struct pace){ .turn = s->step.warm_up, .end = NEVER }; }

/* Called when message i is to be posted. 1: it is the last one. */
static ALWAYS_INLINE int stamp(struct gdr_session *s, struct pace *p, uint64_t i)
{
	uint64_t now = gdr_cycles();

	s->samples[i] = now;
	s->progress = i;
	if (__builtin_expect(i < p->turn && now < p->end, 1))
		return 0;
	if (i == s->step.warm_up) {
		uint64_t last = s->qps->goal - 1, most = s->samples_cap - 2;

		p->turn = last < most ? last : most;
		if (s->step.duration_ns)
			p->end = now + gdr_cycles_of(s, s->step.duration_ns);
	}
	return i >= p->turn || now >= p->end;
}

/* Called last: messages is how many were posted. */
static inline void stamp_end(struct gdr_session *s, uint64_t messages)
{
	s->samples[messages] = gdr_cycles();
	s->samples_n = messages - s->step.warm_up;
}

#endif
