/* The part of a bandwidth test that is measured (docs/adr/0005-measuring.md). */
#ifndef GDRCHECK_VERBS_WINDOW_H
#define GDRCHECK_VERBS_WINDOW_H

#include "loop.h"

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

static inline struct track track(struct gdr_session *s, struct gdr_window *w, uint64_t start)
{
	struct track t = {
		.w = w, .start = start, .done0 = w->total, .open_at = start, .close_at = NEVER, .end = NEVER,
		.interval = gdr_cycles_of(s, s->step.interval_ns),
	};

	if (s->step.duration_ns) {
		t.open_at = start + gdr_cycles_of(s, s->step.margin_ns);
		t.end = start + gdr_cycles_of(s, s->step.duration_ns);
		t.close_at = t.end - gdr_cycles_of(s, s->step.margin_ns);
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
	while (now >= t->next && t->at < GDR_SERIES_MAX) {
		t->at++;
		t->next += t->interval;
	}
	w->series[t->at] += n;
	w->last = now;
	t->closed = w->total;
}

/* inflight is the most that can be under way. Where the messages left out would
 * weigh, as in a test by count, all of the measured part is the window: from its
 * first post, on an empty queue, to its last completion. */
static inline void finish(struct track *t, const struct gdr_session *s, uint64_t inflight)
{
	enum { WEIGHS = 50 };
	struct gdr_window *w = t->w;

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

#endif
