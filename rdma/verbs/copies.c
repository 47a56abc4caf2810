/* Copies between the device and pinned host memory alone, by the very calls that
 * the staged way makes. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "window.h"

/* Of one direction. */
struct copier {
	uint8_t *slots;
	void *queue, **events;
	uint64_t base; /* in the device */
	int out;
};

static struct copier copier(const struct gdr_session *s)
{
	const struct gdr_staging *g = s->staging;

	if (s->c.initiator)
		return (struct copier){ g->out, g->out_queue, g->out_events, 0, 1 };
	return (struct copier){ g->in, g->in_queue, g->in_events, s->dst, 0 };
}

static int start(struct gdr_session *s, const struct copier *c, uint64_t k)
{
	const char *call;
	size_t off, n = gdr_chunk(s, k, c->base, &off);
	int rc = s->mem.ops->copy_start(&s->mem, c->queue, gdr_slot(s, c->slots, k), off, n, c->out, c->events[k % s->c.chunks], &call);

	return rc ? gdr_fail(s, call, rc) : 0;
}

/* 1: copy k is through. */
static int done(struct gdr_session *s, const struct copier *c, uint64_t k)
{
	int rc = s->mem.ops->event_done(&s->mem, c->events[k % s->c.chunks]);

	return rc && rc != EAGAIN ? gdr_fail(s, "copying", rc) : !rc;
}

static int bandwidth(struct gdr_session *s, struct copier c)
{
	uint64_t now = gdr_cycles(), polled = now, last = now, idle = gdr_cycles_of(s, s->c.idle_ns);
	uint64_t started = 0, through = 0, goal = s->step.warm_up ? s->step.warm_up : s->qps->goal;
	struct track t = track(s, &s->sent, now);

	s->warming = s->step.warm_up > 0;
	while (through < goal) {
		uint64_t before = polled, handed_over = started, n = 0;
		int rc = 0;

		for (; started < goal && started - through < s->c.chunks; started++)
			if (start(s, &c, started))
				return -1;
		while (through < started && (rc = done(s, &c, through)) > 0) {
			through++;
			n++;
		}
		if (rc < 0)
			return -1;
		polled = now = gdr_cycles();
		if (n) {
			last = now;
			count(&t, n, handed_over, before, now);
			s->progress = through;
		} else if (now - last > idle) {
			return gdr_idle(s);
		}
		if (s->warming && through == goal) {
			s->warming = 0;
			goal = s->qps->goal;
			gdr_clear(&s->sent);
			s->sent.total = through;
			t = track(s, &s->sent, polled = now = gdr_cycles());
		}
		if (now >= t.end && !s->warming) {
			goal = started;
			t.end = NEVER;
		}
	}
	finish(&t, s, s->c.chunks);
	s->qps->posted = through;
	return 0;
}

static int latency(struct gdr_session *s, struct copier c)
{
	uint64_t idle = gdr_cycles_of(s, s->c.idle_ns), i;
	struct pace pace = first_pace(s);
	int last = 0;

	for (i = 0; !last; i++) {
		int rc;

		last = stamp(s, &pace, i);
		if (start(s, &c, i))
			return -1;
		while (!(rc = done(s, &c, i)))
			if (gdr_cycles() - s->samples[i] > idle)
				return gdr_idle(s);
		if (rc < 0)
			return -1;
	}
	stamp_end(s, i);
	s->qps->posted = i;
	return 0;
}

/* No byte is right before it was copied. */
void gdr_copies_prepare(struct gdr_session *s)
{
	struct copier c = copier(s);
	uint64_t i, n = s->c.chunk * s->c.chunks;

	for (i = 0; i < n; i++)
		c.slots[i] = c.out ? 0 : (uint8_t)(i * 131 >> 3);
}

int gdr_copies(struct gdr_session *s) { return s->c.latency ? latency(s, copier(s)) : bandwidth(s, copier(s)); }

int gdr_copies_verify(struct gdr_session *s, struct gdr_mismatch *m)
{
	struct copier c = copier(s);
	uint64_t k = s->qps->posted, first = k > s->c.chunks ? k - s->c.chunks : 0;
	uint8_t *buf = malloc(s->c.chunk);
	int rc = buf ? 0 : ENOMEM;

	memset(m, 0, sizeof(*m));
	m->overwritten = first;
	while (!rc && !m->wrong && k-- > first) {
		size_t off, n = gdr_chunk(s, k, c.base, &off), i;
		const uint8_t *slot = gdr_slot(s, c.slots, k), *got = c.out ? slot : buf, *want = c.out ? buf : slot;

		rc = s->mem.ops->copy_out(&s->mem, buf, off, n);
		m->compared += n;
		if (rc || !memcmp(got, want, n))
			continue;
		for (i = 0; got[i] == want[i]; i++)
			;
		*m = (struct gdr_mismatch){ .compared = m->compared, .overwritten = first, .offset = off + i, .got = got[i], .want = want[i], .wrong = 1 };
	}
	free(buf);
	return rc ? gdr_fail(s, "reading the memory back", rc) : 0;
}
