/* What surrounds the measuring loops. Nothing in those allocates, sleeps (unless
 * the plan wants events) or leaves C. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { SETTLE_NS = 20000000 }; /* after which the clocks' ratio is known well enough */

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

int gdr_failed_completion(struct gdr_session *s, const struct ibv_wc *wc)
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

int gdr_idle(struct gdr_session *s)
{
	return gdr_fail(s, "waiting for a completion", ETIMEDOUT);
}

int gdr_post_failed(struct gdr_session *s, const char *call, const struct gdr_qp *q, int rc)
{
	if (!s->error.call) {
		gdr_set_error(&s->error, call, gdr_code(rc));
		s->error.qp = (uint32_t)(q - s->qps);
	}
	return -1;
}

int gdr_rest(struct gdr_session *s, struct sleeper *z)
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

void gdr_clear(struct gdr_window *w)
{
	uint64_t *series = w->series;

	memset(series, 0, (GDR_SERIES_MAX + 1) * sizeof(*series));
	memset(w, 0, sizeof(*w));
	w->series = series;
}

static int measure(struct gdr_session *s)
{
	switch (s->c.route) {
	case GDR_STAGED:
	case GDR_TCP:
		return gdr_staged(s);
	case GDR_COPY:
		return gdr_copies(s);
	default:
		return s->c.latency ? gdr_latency(s) : gdr_bandwidth(s);
	}
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
		rc = gdr_repeat_end(s);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	gdr_latency_samples(s);
	s->cpu_ns = (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
	/* The ratio of the clocks over all the time until now. */
	s->ns_per_cycle = (double)(gdr_monotonic_ns() - s->ns0) / (double)(gdr_cycles() - s->cycles0);
	return rc;
}
