/* Bandwidth: as many messages in flight as the depth allows. */
#define _GNU_SOURCE
#include "window.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum {
	UD_REPEATS = 8,            /* of the end's message, that may be lost */
	UD_SILENCE_NS = 500000000, /* after which a stream of datagrams has ended */
	CLOCK_POLLS = 64,          /* empty ones, after which an end that only receives reads the clock */
};

static ALWAYS_INLINE int post_room(struct gdr_session *s, const int rdma)
{
	uint32_t i;

	for (i = 0; i < s->c.qps; i++) {
		struct gdr_qp *q = &s->qps[i];

		while (q->posted < q->goal) {
			uint64_t left = q->goal - q->posted;
			uint32_t n = left < s->c.post_list ? (uint32_t)left : s->c.post_list;

			if (q->posted - q->completed + n > s->c.depth)
				break;
			if (post(s, q, n, rdma))
				return -1;
		}
	}
	return 0;
}

/* After the end of the time, each QP posts one more, which says so. */
static void last_call(struct gdr_session *s)
{
	uint32_t i;

	for (i = 0; i < s->c.qps; i++)
		s->qps[i].goal = s->qps[i].posted + 1;
}

static ALWAYS_INLINE uint64_t completed(struct gdr_session *s, const struct ibv_wc *wc, int n, uint32_t *done)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < n; i++) {
		struct gdr_qp *q = &s->qps[(uint32_t)wc[i].wr_id];
		uint64_t covers = wc[i].wr_id >> GDR_COVERS_SHIFT;

		q->completed += covers;
		sum += covers;
		if (q->completed == q->goal)
			++*done;
	}
	return sum;
}

static ALWAYS_INLINE int received(struct gdr_session *s, const struct ibv_wc *wc, int n, uint32_t *done, uint64_t *sum)
{
	int i;

	for (i = 0; i < n; i++) {
		struct gdr_qp *q = &s->qps[(uint32_t)wc[i].wr_id];
		uint32_t imm = wc[i].wc_flags & IBV_WC_WITH_IMM ? wc[i].imm_data : 0;

		if (imm != GDR_IMM_END_AGAIN && !q->ended) {
			q->received++;
			++*sum;
		}
		if ((imm == GDR_IMM_END || imm == GDR_IMM_END_AGAIN) && !q->ended) {
			q->ended = 1;
			++*done;
		}
		if (post_recv(s, q))
			return -1;
	}
	return 0;
}

/* The messages that are not measured go first, and the queue runs empty. */
static void warm_up(struct gdr_session *s)
{
	uint32_t i;

	s->warming = s->step.warm_up > 0;
	for (i = 0; s->warming && i < s->c.qps; i++)
		s->qps[i].goal = s->step.warm_up;
}

static void begin(struct gdr_session *s)
{
	uint32_t i;

	s->warming = 0;
	for (i = 0; i < s->c.qps; i++)
		s->qps[i].goal = s->step.messages ? s->step.messages + s->step.warm_up : NEVER;
}

static ALWAYS_INLINE int bandwidth(struct gdr_session *s, const int sending, const int receiving, const int rdma)
{
	struct ibv_wc *wc = s->wc;
	uint32_t sent_out = 0, got_all = 0, empty = 0, worked = 0;
	struct sleeper z = { 0 };
	uint64_t idle_cycles = gdr_cycles_of(s, s->c.idle_ns), silence = gdr_cycles_of(s, UD_SILENCE_NS);
	uint64_t now = gdr_cycles(), last = now, polled = now, posted = 0, arrived = 0;
	struct track t = track(s, &s->sent, now);

	if (sending)
		warm_up(s);
	while ((sending && sent_out < s->c.qps) || (receiving && got_all < s->c.qps)) {
		int n = 0, m = 0;

		if (sending) {
			uint64_t before = polled, handed_over = posted;

			if (post_room(s, rdma))
				return -1;
			n = ibv_poll_cq(s->send_cq, GDR_POLL, wc);
			if (good(s, n, wc))
				return -1;
			polled = now = gdr_cycles();
			posted = s->posted;
			if (n) {
				count(&t, completed(s, wc, n, &sent_out), handed_over, before, now);
				s->progress = s->sent.total;
			}
			if (__builtin_expect(s->warming && sent_out == s->c.qps, 0)) {
				begin(s);
				sent_out = 0;
				gdr_clear(&s->sent);
				s->sent.total = s->posted;
				t = track(s, &s->sent, polled = now = gdr_cycles());
			}
			if (__builtin_expect(now >= t.end && !s->warming, 0)) {
				last_call(s);
				t.end = NEVER;
			}
		}
		if (receiving) {
			m = ibv_poll_cq(s->recv_cq, GDR_POLL, wc);
			if (good(s, m, wc) || received(s, wc, m, &got_all, &arrived))
				return -1;
			if (m && !sending)
				s->progress = arrived;
		}
		if (n || m) {
			worked = 1;
			z.armed = 0;
			continue;
		}
		if (!sending) {
			if (!s->c.events && ++empty % CLOCK_POLLS)
				continue;
			now = gdr_cycles();
		}
		if (worked) {
			last = now;
			worked = 0;
		}
		if (receiving && s->c.ud && arrived && now - last > silence && (!sending || sent_out == s->c.qps))
			break;
		if (__builtin_expect(now - last > idle_cycles, 0))
			return gdr_idle(s);
		if (s->c.events && gdr_rest(s, &z))
			return -1;
	}
	if (sending)
		finish(&t, s, (uint64_t)s->c.depth * s->c.qps);
	return 0;
}

int gdr_bandwidth(struct gdr_session *s)
{
	int sending = gdr_sends(&s->c, s->c.initiator), receiving = gdr_receives(&s->c), rdma = s->c.op != GDR_SEND;

	/* Each case a loop of its own, without the others' branches. */
	if (sending && receiving)
		return rdma ? bandwidth(s, 1, 1, 1) : bandwidth(s, 1, 1, 0);
	if (sending)
		return rdma ? bandwidth(s, 1, 0, 1) : bandwidth(s, 1, 0, 0);
	return receiving ? bandwidth(s, 0, 1, 0) : 0;
}

/* Says the end again, should the datagram that said it have been lost. */
int gdr_repeat_end(struct gdr_session *s)
{
	struct timespec pause = { .tv_nsec = 2000000 };
	uint64_t until = gdr_cycles() + gdr_cycles_of(s, s->c.idle_ns);
	uint32_t i, k, out = 0;

	for (k = 0; k < UD_REPEATS; k++) {
		for (i = 0; i < s->c.qps; i++) {
			struct gdr_qp *q = &s->qps[i];
			struct ibv_send_wr *bad;
			int rc;

			say_end(s, q->wr, GDR_IMM_END_AGAIN);
			q->wr->next = NULL;
			q->wr->send_flags |= IBV_SEND_SIGNALED;
			q->wr->wr_id = i;
			rc = ibv_post_send(q->qp, q->wr, &bad);
			if (rc)
				return gdr_post_failed(s, "ibv_post_send", q, rc);
			out++;
		}
		while (out) {
			int n = ibv_poll_cq(s->send_cq, GDR_POLL, s->wc);

			if (good(s, n, s->wc))
				return -1;
			out -= (uint32_t)n;
			if (gdr_cycles() > until)
				return gdr_idle(s);
		}
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

