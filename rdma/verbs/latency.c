/* Latency: one message in flight, there and back. Few instructions a message:
 * what can be done before or after is not in the loops, and where last is a
 * constant, the message that says the end is not in them either. */
#define _GNU_SOURCE
#include "loop.h"

/* messages is how many were posted. */
static int finish(struct gdr_session *s, uint64_t messages)
{
	if (s->c.initiator)
		stamp_end(s, messages);
	s->qps->posted = s->qps->completed = messages;
	if (s->c.op != GDR_READ) /* which has no answers */
		s->qps->received = messages;
	return 0;
}

void gdr_latency_samples(struct gdr_session *s)
{
	uint64_t i, n = 0, *t = s->samples;

	for (i = 0; i < s->samples_n; i++) {
		uint64_t from = t[s->step.warm_up + i], to = t[s->step.warm_up + i + 1];

		if (!(from & GDR_LOST)) /* n is at most i, which is read no more */
			t[n++] = (to & ~GDR_LOST) - from;
	}
	s->lost = s->samples_n - n;
	s->samples_n = n;
}

/* The slot in use. The mark is the last byte of a write's message, and changes
 * when the walk begins anew. */
struct place {
	uint64_t off;
	uint8_t mark;
};

static const struct place first = { .mark = 1 };

static ALWAYS_INLINE void next(const struct gdr_session *s, struct place *at, const int marked)
{
	at->off += s->stride;
	if (at->off >= s->walk) {
		at->off = 0;
		if (marked)
			at->mark = at->mark == GDR_MARKS ? 1 : (uint8_t)(at->mark + 1);
	}
}

/* Posts the message; the rest of the request was written when the size was prepared. */
static ALWAYS_INLINE int ping(struct gdr_session *s, const struct place *at, const int rdma)
{
	struct gdr_qp *q = s->qps;
	struct ibv_send_wr *bad, *wr = q->wr;
	int rc;

	q->sge->addr = q->local + at->off;
	if (rdma)
		wr->wr.rdma.remote_addr = q->remote + at->off;
	rc = ibv_post_send(q->qp, wr, &bad);
	return __builtin_expect(rc, 0) ? gdr_post_failed(s, "ibv_post_send", q, rc) : 0;
}

/* Looked at now and then: whether the wait is over the idle limit. */
static NEVER_INLINE int too_long(struct gdr_session *s, uint64_t *since)
{
	uint64_t now = gdr_cycles();

	if (!*since)
		*since = now;
	return now - *since > gdr_cycles_of(s, s->c.idle_ns) ? gdr_idle(s) : 0;
}

/* Spins, or sleeps, until a queue has a completion; -1: it failed. */
static NEVER_INLINE int spin(struct gdr_session *s, struct ibv_cq *cq)
{
	struct ibv_wc *wc = s->wc;
	struct sleeper z = { 0 };
	uint64_t since = 0;
	uint32_t spins = 0;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc))) {
		enum { LOOK = 256 };

		if (++spins % LOOK && !s->c.events)
			continue;
		if ((s->c.events && gdr_rest(s, &z)) || too_long(s, &since))
			return -1;
	}
	return n;
}

/* Takes the field, so that nothing of it is kept over the call. */
static ALWAYS_INLINE int await(struct gdr_session *s, struct ibv_cq **cq)
{
	int n = ibv_poll_cq(*cq, 1, s->wc);

	if (!n)
		n = spin(s, *cq);
	return __builtin_expect(n == 1 && s->wc->status == IBV_WC_SUCCESS, 1) ? 0 : good(s, n, s->wc);
}

/* Spins until the mark is there, or, if it may be, the end's: 1. */
static ALWAYS_INLINE int await_mark(struct gdr_session *s, const volatile uint8_t *at, uint8_t mark, const int or_end)
{
	enum { LOOK = 1024 };
	uint64_t since = 0;
	uint32_t left = LOOK;
	uint8_t v;

	while ((v = *at) != mark) {
		if (or_end && v == GDR_MARK_END)
			break;
		if (--left)
			continue;
		/* A failed send is why nothing comes back, and known only from its queue. */
		if (too_long(s, &since))
			return -1;
		left = LOOK;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* what is compared later came before */
	return or_end && v == GDR_MARK_END;
}

static ALWAYS_INLINE int read_once(struct gdr_session *s, struct place *at, const int last)
{
	(void)last;
	if (ping(s, at, 1) || await(s, &s->send_cq))
		return -1;
	next(s, at, 0);
	return 0;
}

/* Where the message at off has its last byte: at its source, and at its destination. */
static ALWAYS_INLINE volatile uint8_t *sent_mark(const struct gdr_session *s, uint64_t off)
{
	return (uint8_t *)s->mem.addr + s->step.size - 1 + off;
}

static ALWAYS_INLINE const volatile uint8_t *come_mark(const struct gdr_session *s, uint64_t off)
{
	return sent_mark(s, off) + s->dst;
}

static ALWAYS_INLINE int write_once(struct gdr_session *s, struct place *at, const int last)
{
	uint8_t mark = last ? GDR_MARK_END : at->mark;

	*sent_mark(s, at->off) = mark;
	if (ping(s, at, 1) || await(s, &s->send_cq) || await_mark(s, come_mark(s, at->off), mark, 0))
		return -1;
	next(s, at, 1);
	return 0;
}

/* Answers; 1: that was the last one. */
static ALWAYS_INLINE int write_back(struct gdr_session *s, struct place *at)
{
	int last = await_mark(s, come_mark(s, at->off), at->mark, 1);

	if (last < 0)
		return -1;
	*sent_mark(s, at->off) = last ? GDR_MARK_END : at->mark;
	if (ping(s, at, 1) || await(s, &s->send_cq))
		return -1;
	next(s, at, 1);
	return last;
}

/* Another receive takes a message's place at once only where there is no second
 * one (spare): else that can wait until the next message is on its way. */
static ALWAYS_INLINE int message_once(struct gdr_session *s, struct place *at, const int last, const int rdma, const int spare)
{
	if (last)
		say_end(s, s->qps->wr, GDR_IMM_END);
	if (ping(s, at, rdma) || (spare && post_recv(s, s->qps)) || await(s, &s->send_cq) || await(s, &s->recv_cq))
		return -1;
	next(s, at, 0);
	return !spare && post_recv(s, s->qps) ? -1 : 0;
}

static ALWAYS_INLINE int message_back(struct gdr_session *s, struct place *at, const int rdma, const int spare)
{
	int last;

	if (await(s, &s->recv_cq))
		return -1;
	last = s->wc->wc_flags & IBV_WC_WITH_IMM && s->wc->imm_data == GDR_IMM_END;
	if (!spare && post_recv(s, s->qps))
		return -1;
	if (__builtin_expect(last, 0))
		say_end(s, s->qps->wr, GDR_IMM_END);
	if (ping(s, at, rdma) || (spare && post_recv(s, s->qps)) || await(s, &s->send_cq))
		return -1;
	next(s, at, 0);
	return last;
}

/* Each case is a loop of its own, without the others' branches. */
#define INITIATOR(name, once, ...)                                                         \
	static NEVER_INLINE int name(struct gdr_session *s)                                \
	{                                                                                  \
		struct pace p = first_pace(s);                                                   \
		struct place at = first;                                                   \
		uint64_t i;                                                                \
                                                                                           \
		for (i = 0; !stamp(s, &p, i); i++)                                         \
			if (once(s, &at, 0 __VA_OPT__(, ) __VA_ARGS__))                    \
				return -1;                                                 \
		return once(s, &at, 1 __VA_OPT__(, ) __VA_ARGS__) ? -1 : finish(s, i + 1); \
	}
#define RESPONDER(name, back, ...)                                                         \
	static NEVER_INLINE int name(struct gdr_session *s)                                \
	{                                                                                  \
		struct place at = first;                                                   \
		uint64_t i;                                                                \
		int last = 0;                                                              \
                                                                                           \
		for (i = 0; !last; i++) {                                                  \
			last = back(s, &at __VA_OPT__(, ) __VA_ARGS__);                    \
			s->progress = i;                                                   \
		}                                                                          \
		return last < 0 ? -1 : finish(s, i);                                       \
	}
INITIATOR(read_there, read_once)
INITIATOR(write_there, write_once)
RESPONDER(write_answers, write_back)
INITIATOR(imm_there, message_once, 1, 1)
RESPONDER(imm_answers, message_back, 1, 1)
INITIATOR(send_there, message_once, 0, 1)
RESPONDER(send_answers, message_back, 0, 1)
/* With one receive at a time, which is seldom measured. */
INITIATOR(shallow_there, message_once, s->c.op == GDR_WRITE_IMM, 0)
RESPONDER(shallow_answers, message_back, s->c.op == GDR_WRITE_IMM, 0)

int gdr_latency(struct gdr_session *s)
{
	int there = s->c.initiator;

	if (s->c.ud)
		return gdr_datagram_latency(s);
	switch (s->c.op) {
	case GDR_READ:
		return there ? read_there(s) : 0;
	case GDR_WRITE:
		s->last_mark = GDR_MARK_END;
		return there ? write_there(s) : write_answers(s);
	case GDR_WRITE_IMM:
		if (s->c.recv_depth > 1)
			return there ? imm_there(s) : imm_answers(s);
		return there ? shallow_there(s) : shallow_answers(s);
	default:
		if (s->c.recv_depth > 1)
			return there ? send_there(s) : send_answers(s);
		return there ? shallow_there(s) : shallow_answers(s);
	}
}
