/* The measuring loops. Nothing in them allocates, sleeps (unless the plan wants
 * events) or leaves C. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER UINT64_MAX

enum {
	POLL = 16,
	SERIES_MAX = 100000,
	COVERS_SHIFT = 32,
	UD_REPEATS = 8,              /* of the end's message, that may be lost */
	IMM_END_AGAIN = 0x7ffffffe,  /* such a repeat */
	UD_SILENCE_NS = 500000000,   /* after which a stream of datagrams has ended */
	SETTLE_NS = 20000000,        /* after which the clocks' ratio is known well enough */
};

static uint64_t cycles_of(const struct gdr_session *s, uint64_t ns) { return (uint64_t)((double)ns / s->ns_per_cycle); }

static void calibrate(struct gdr_session *s)
{
	uint64_t ns = gdr_monotonic_ns() - s->ns0;

	if (ns < SETTLE_NS) {
		struct timespec rest = { .tv_nsec = (long)(SETTLE_NS - ns) };

		(void)nanosleep(&rest, NULL);
	}
	ns = gdr_monotonic_ns() - s->ns0;
	s->ns_per_cycle = (double)ns / (double)(gdr_cycles() - s->cycles0);
}

static int failed_completion(struct gdr_session *s, const struct ibv_wc *wc)
{
	/* Flushed ones follow from another that failed. */
	if (s->error.call && !(s->error.status == IBV_WC_WR_FLUSH_ERR && wc->status != IBV_WC_WR_FLUSH_ERR))
		return -1;
	s->error.call = "completion";
	s->error.status = (int)wc->status;
	s->error.vendor_err = wc->vendor_err;
	s->error.qp = (uint32_t)wc->wr_id;
	return -1;
}

static int idle(struct gdr_session *s)
{
	s->error.idle = 1;
	return gdr_fail(s, "waiting for a completion", ETIMEDOUT);
}

/* Fails unless n completions are good ones. */
static ALWAYS_INLINE int good(struct gdr_session *s, int n, const struct ibv_wc *wc)
{
	int i;

	if (__builtin_expect(n < 0, 0))
		return gdr_fail(s, "ibv_poll_cq", -n > 1 ? -n : EIO);
	for (i = 0; i < n; i++)
		if (__builtin_expect(wc[i].status != IBV_WC_SUCCESS, 0))
			return failed_completion(s, &wc[i]);
	return 0;
}

static ALWAYS_INLINE void advance(const struct gdr_session *s, uint64_t *off)
{
	*off += s->stride;
	if (*off >= s->walk)
		*off = 0;
}

static int post_failed(struct gdr_session *s, const char *call, const struct gdr_qp *q, int rc)
{
	s->error.qp = (uint32_t)(q - s->qps);
	return gdr_fail(s, call, gdr_code(rc));
}

static ALWAYS_INLINE int post_recv(struct gdr_session *s, struct gdr_qp *q)
{
	struct ibv_recv_wr *bad;
	int rc;

	q->recv_sge.addr = (uint64_t)(uintptr_t)s->mem.addr + s->dst + (uint64_t)(q - s->qps) * s->span + q->recv_off;
	advance(s, &q->recv_off);
	rc = ibv_post_recv(q->qp, &q->recv, &bad);
	return __builtin_expect(rc, 0) ? post_failed(s, "ibv_post_recv", q, rc) : 0;
}

/* The last message says so to a receiver. */
static void say_end(struct gdr_session *s, struct ibv_send_wr *wr, uint32_t imm)
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
		tail->wr_id = (uint64_t)(q - s->qps) | (uint64_t)q->unsignalled << COVERS_SHIFT;
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
	return __builtin_expect(rc, 0) ? post_failed(s, "ibv_post_send", q, rc) : 0;
}

/* The window being filled. It opens a margin after the measured part begins,
 * and leaves out all that had been posted by then: what completes later may have
 * been through already, and only this thread late in seeing it. */
struct track {
	struct gdr_window *w;
	uint64_t start, done0; /* of the measured part */
	uint64_t open_at, close_at, end, next, interval;
	uint64_t base, closed; /* messages at its opening and its close */
	uint32_t at;
	int open;
};

static struct track track(struct gdr_session *s, struct gdr_window *w, uint64_t start)
{
	struct track t = {
		.w = w, .start = start, .done0 = w->total, .open_at = start, .close_at = NEVER, .end = NEVER,
		.interval = cycles_of(s, s->step.interval_ns),
	};

	if (s->step.duration_ns) {
		t.open_at = start + cycles_of(s, s->step.margin_ns);
		t.end = start + cycles_of(s, s->step.duration_ns);
		t.close_at = t.end - cycles_of(s, s->step.margin_ns);
	}
	return t;
}

/* n messages completed by now. At the poll before this one, at the time of
 * before, posted messages had been handed over. */
static ALWAYS_INLINE void count(struct track *t, uint64_t n, uint64_t posted, uint64_t before, uint64_t now)
{
	struct gdr_window *w = t->w;

	if (!t->open && before >= t->open_at) {
		t->open = 1;
		t->base = posted;
		w->first = before;
		t->next = before + t->interval;
	}
	w->total += n;
	w->final = now;
	if (!t->open || now > t->close_at)
		return;
	while (now >= t->next && t->at < SERIES_MAX) {
		t->at++;
		t->next += t->interval;
	}
	w->series[t->at] += n;
	w->last = now;
	t->closed = w->total;
}

/* Where the messages left out would weigh, as in a test by count, all of the
 * measured part is the window: from its first post, on an empty queue, to its
 * last completion. */
static void finish(struct track *t, const struct gdr_session *s)
{
	enum { WEIGHS = 50 };
	struct gdr_window *w = t->w;
	uint64_t inflight = (uint64_t)s->c.depth * s->c.qps;

	w->intervals = t->at;
	if (s->step.duration_ns && t->open && t->closed > t->base && t->closed - t->base >= WEIGHS * inflight) {
		w->messages = t->closed - t->base;
		return;
	}
	w->from_start = s->step.duration_ns != 0;
	w->first = t->start;
	w->last = w->final;
	w->messages = w->total - t->done0;
}

struct sleeper {
	int armed;
};

/* Called when there is nothing to do: arms the queues once, and on the next
 * call, still without work, sleeps until one of them has an event. */
static int rest(struct gdr_session *s, struct sleeper *z)
{
	enum { WAKE_MS = 100 };
	struct ibv_cq *cqs[] = { s->send_cq, s->recv_cq };
	struct ibv_comp_channel *channels[] = { s->send_events, s->recv_events };
	struct pollfd fds[2];
	int i, rc;

	if (!z->armed) {
		for (i = 0; i < 2; i++) {
			rc = ibv_req_notify_cq(cqs[i], 0);
			if (rc)
				return gdr_fail(s, "ibv_req_notify_cq", gdr_code(rc));
		}
		z->armed = 1;
		return 0;
	}
	for (i = 0; i < 2; i++)
		fds[i] = (struct pollfd){ .fd = channels[i]->fd, .events = POLLIN };
	if (poll(fds, 2, WAKE_MS) <= 0)
		return 0; /* the caller looks at the clock */
	for (i = 0; i < 2; i++) {
		struct ibv_cq *cq;
		void *context;

		if (!(fds[i].revents & POLLIN))
			continue;
		errno = 0;
		if (s->v.get_cq_event(channels[i], &cq, &context))
			return gdr_fail(s, "ibv_get_cq_event", gdr_failure());
		s->v.ack_cq_events(cq, 1);
	}
	z->armed = 0;
	return 0;
}

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
		uint64_t covers = wc[i].wr_id >> COVERS_SHIFT;

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

		if (imm != IMM_END_AGAIN && !q->ended) {
			q->received++;
			++*sum;
		}
		if ((imm == GDR_IMM_END || imm == IMM_END_AGAIN) && !q->ended) {
			q->ended = 1;
			++*done;
		}
		if (post_recv(s, q))
			return -1;
	}
	return 0;
}

static void clear(struct gdr_window *w)
{
	uint64_t *series = w->series;

	memset(series, 0, (SERIES_MAX + 1) * sizeof(*series));
	memset(w, 0, sizeof(*w));
	w->series = series;
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
	uint32_t sent_out = 0, got_all = 0;
	struct sleeper z = { 0 };
	uint64_t idle_cycles = cycles_of(s, s->c.idle_ns), silence = cycles_of(s, UD_SILENCE_NS);
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
			n = ibv_poll_cq(s->send_cq, POLL, wc);
			if (good(s, n, wc))
				return -1;
			polled = now = gdr_cycles();
			posted = s->posted;
			if (n) {
				count(&t, completed(s, wc, n, &sent_out), handed_over, before, now);
				__atomic_store_n(&s->progress, s->sent.total, __ATOMIC_RELAXED);
			}
			if (__builtin_expect(s->warming && sent_out == s->c.qps, 0)) {
				begin(s);
				sent_out = 0;
				clear(&s->sent);
				s->sent.total = s->posted;
				t = track(s, &s->sent, polled = now = gdr_cycles());
			}
			if (__builtin_expect(now >= t.end && !s->warming, 0)) {
				last_call(s);
				t.end = NEVER;
			}
		}
		if (receiving) {
			m = ibv_poll_cq(s->recv_cq, POLL, wc);
			if (good(s, m, wc) || received(s, wc, m, &got_all, &arrived))
				return -1;
			now = gdr_cycles();
			if (m && !sending)
				__atomic_store_n(&s->progress, arrived, __ATOMIC_RELAXED);
		}
		if (n || m) {
			last = now;
			z.armed = 0;
			continue;
		}
		if (receiving && s->c.ud && arrived && now - last > silence && (!sending || sent_out == s->c.qps))
			break;
		if (__builtin_expect(now - last > idle_cycles, 0))
			return idle(s);
		if (s->c.events && rest(s, &z))
			return -1;
	}
	if (sending)
		finish(&t, s);
	return 0;
}

/* Says the end again, should the datagram that said it have been lost. */
static int repeat_end(struct gdr_session *s)
{
	struct timespec pause = { .tv_nsec = 2000000 };
	uint64_t until = gdr_cycles() + cycles_of(s, s->c.idle_ns);
	uint32_t i, k, out = 0;

	for (k = 0; k < UD_REPEATS; k++) {
		for (i = 0; i < s->c.qps; i++) {
			struct gdr_qp *q = &s->qps[i];
			struct ibv_send_wr *bad;
			int rc;

			say_end(s, q->wr, IMM_END_AGAIN);
			q->wr->next = NULL;
			q->wr->send_flags |= IBV_SEND_SIGNALED;
			q->wr->wr_id = i;
			rc = ibv_post_send(q->qp, q->wr, &bad);
			if (rc)
				return post_failed(s, "ibv_post_send", q, rc);
			out++;
		}
		while (out) {
			int n = ibv_poll_cq(s->send_cq, POLL, s->wc);

			if (good(s, n, s->wc))
				return -1;
			out -= (uint32_t)n;
			if (gdr_cycles() > until)
				return idle(s);
		}
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

/* Spins, or sleeps, until a queue has a completion. */
static ALWAYS_INLINE int await(struct gdr_session *s, struct ibv_cq *cq, struct ibv_wc *wc, uint64_t idle_cycles)
{
	struct sleeper z = { 0 };
	uint64_t since = 0;
	uint32_t spins = 0;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc))) {
		enum { LOOK = 256 };

		if (s->c.events && rest(s, &z))
			return -1;
		if (++spins % LOOK && !s->c.events)
			continue;
		if (!since)
			since = gdr_cycles();
		else if (gdr_cycles() - since > idle_cycles)
			return idle(s);
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
			return idle(s);
	}
}

/* Notes when message i is posted; the time since the one before is a sample. */
static ALWAYS_INLINE uint64_t stamp(struct gdr_session *s, uint64_t i, uint64_t prev)
{
	uint64_t t = gdr_cycles();

	if (i > s->step.warm_up)
		s->samples[s->samples_n++] = t - prev;
	__atomic_store_n(&s->progress, i, __ATOMIC_RELAXED);
	return t;
}

/* The time of a test by duration begins when the warm-up is over. */
static ALWAYS_INLINE int is_last(const struct gdr_session *s, uint64_t i, uint64_t now, uint64_t *end)
{
	if (__builtin_expect(i == s->step.warm_up, 0) && s->step.duration_ns)
		*end = now + cycles_of(s, s->step.duration_ns);
	return i + 1 == s->qps[0].goal || now >= *end || s->samples_n + 2 >= s->samples_cap;
}

static int latency_read(struct gdr_session *s)
{
	struct gdr_qp *q = s->qps;
	uint64_t idle_cycles = cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
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
	uint64_t idle_cycles = cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
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
	uint64_t idle_cycles = cycles_of(s, s->c.idle_ns), t = gdr_cycles(), end = NEVER, i;
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

static int measure(struct gdr_session *s)
{
	const struct gdr_config *c = &s->c;
	int sending = gdr_sends(c, c->initiator), receiving = gdr_receives(c), rdma = c->op != GDR_SEND;

	if (c->latency) {
		if (!sending)
			return 0;
		if (c->op == GDR_READ)
			return latency_read(s);
		if (c->op == GDR_WRITE)
			return latency_write(s);
		return rdma ? latency_message(s, 1) : latency_message(s, 0);
	}
	/* Each case a loop of its own, without the others' branches. */
	if (sending && receiving)
		return rdma ? bandwidth(s, 1, 1, 1) : bandwidth(s, 1, 1, 0);
	if (sending)
		return rdma ? bandwidth(s, 1, 0, 1) : bandwidth(s, 1, 0, 0);
	return receiving ? bandwidth(s, 0, 1, 0) : 0;
}

int gdr_session_run(struct gdr_session *s)
{
	struct timespec t0, t1;
	sigset_t all, before;
	int rc;

	calibrate(s);
	sigfillset(&all);
	/* What a crash raises stays deliverable, or the kernel ends us without a word. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	(void)pthread_sigmask(SIG_BLOCK, &all, &before);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
	rc = measure(s);
	if (!rc && s->c.ud && gdr_sends(&s->c, s->c.initiator) && !s->c.latency)
		rc = repeat_end(s);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->cpu_ns = (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
	/* The ratio of the clocks over all the time until now. */
	s->ns_per_cycle = (double)(gdr_monotonic_ns() - s->ns0) / (double)(gdr_cycles() - s->cycles0);
	return rc;
}

static int drain(struct gdr_session *s, struct ibv_cq *cq)
{
	int n;

	do {
		n = ibv_poll_cq(cq, POLL, s->wc);
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
	q->recv.wr_id = (uint64_t)(q - s->qps);
	q->recv.num_sge = s->c.op == GDR_SEND;
	q->recv_sge.length = (uint32_t)(s->step.size + (s->c.ud ? GDR_GRH : 0));
}

static int post_receives(struct gdr_session *s)
{
	uint32_t i, k;

	for (i = 0; i < s->c.qps; i++)
		for (k = 0; k < s->c.recv_depth; k++)
			if (post_recv(s, &s->qps[i]))
				return -1;
	return 0;
}

static int make_room(struct gdr_session *s)
{
	/* A latency of half a microsecond is out of reach, so this many suffice. */
	enum { PER_SECOND = 2000000, MOST = 1 << 24 };
	uint64_t n = s->step.messages ? s->step.messages : s->step.duration_ns / 1000 * PER_SECOND / 1000000 + 16;

	if (s->c.latency && s->c.initiator) {
		if (n > MOST)
			n = MOST;
		n += 3; /* is_last looks ahead */
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
		s->sent.series = calloc(SERIES_MAX + 1, sizeof(uint64_t));
	return s->sent.series ? 0 : gdr_fail(s, "calloc", ENOMEM);
}

int gdr_session_prepare(struct gdr_session *s, const struct gdr_step *step)
{
	uint32_t most = s->c.depth - s->c.post_list + 1, i;

	s->step = *step;
	/* More, and a full queue could hold no signalled send at all. */
	if (s->step.moderation > most)
		s->step.moderation = most;
	s->stride = gdr_stride(&s->c, step->size);
	s->walk = gdr_walk(&s->c, step->size);
	/* Receives of the step before have its buffers: a new start clears them. */
	if (s->used && gdr_has_receives(&s->c) && gdr_session_reset(s))
		return -1;
	s->used = 1;
	if (drain(s, s->send_cq) || drain(s, s->recv_cq) || make_room(s) || gdr_fill(s))
		return -1;
	clear(&s->sent);
	s->posted = 0;
	s->warming = 0;
	s->samples_n = 0;
	s->last_mark = 0;
	__atomic_store_n(&s->progress, 0, __ATOMIC_RELAXED);
	for (i = 0; i < s->c.qps; i++)
		prepare_qp(s, &s->qps[i]);
	return gdr_receives(&s->c) ? post_receives(s) : 0;
}
