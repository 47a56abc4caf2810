/* The staged way's loops: one thread moves chunks along all stations. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <sched.h>

#include "window.h"

/* Starts copies of what is to leave, and hands over what has been copied, as far
 * as slots are free at this end and at the other. */
static int leave(struct gdr_session *s, struct gdr_staging *g)
{
	const struct gdr_mem_ops *ops = s->mem.ops;
	const char *call;
	size_t off, n;
	int rc;

	for (; g->started < g->goal && g->started - g->sent < s->c.chunks; g->started++) {
		n = gdr_chunk(s, g->started, 0, &off);
		rc = ops->copy_start(&s->mem, g->out_queue, gdr_slot(s, g->out, g->started), off, n, 1, g->out_events[g->started % s->c.chunks], &call);
		if (rc)
			return gdr_fail(s, call, rc);
	}
	for (; g->copied < g->started; g->copied++) {
		rc = ops->event_done(&s->mem, g->out_events[g->copied % s->c.chunks]);
		if (rc == EAGAIN)
			break;
		if (rc)
			return gdr_fail(s, "copying from the device", rc);
	}
	for (; g->posted < g->copied && g->posted - g->credited < s->c.chunks; g->posted++) {
		n = gdr_chunk(s, g->posted, 0, &off);
		rc = g->wire->post(s, n, g->final && g->posted + 1 == g->goal);
		if (rc)
			return rc < 0 ? rc : 0;
	}
	return 0;
}

/* Starts copies of what has arrived, and tells of those that are through. */
static int land(struct gdr_session *s, struct gdr_staging *g)
{
	const struct gdr_mem_ops *ops = s->mem.ops;
	const char *call;
	size_t off, n;
	int rc;

	for (; g->landing < g->arrived; g->landing++) {
		n = gdr_chunk(s, g->landing, s->dst, &off);
		rc = ops->copy_start(&s->mem, g->in_queue, gdr_slot(s, g->in, g->landing), off, n, 0, g->in_events[g->landing % s->c.chunks], &call);
		if (rc)
			return gdr_fail(s, call, rc);
	}
	for (; g->landed < g->landing; g->landed++) {
		rc = ops->event_done(&s->mem, g->in_events[g->landed % s->c.chunks]);
		if (rc == EAGAIN)
			break;
		if (rc)
			return gdr_fail(s, "copying to the device", rc);
	}
	if (g->told == g->landed)
		return 0;
	rc = g->wire->credit(s);
	if (rc)
		return rc < 0 ? rc : 0;
	g->told = g->landed;
	return 0;
}

static uint64_t moves(const struct gdr_staging *g)
{
	return g->started + g->copied + g->posted + g->sent + g->credited + g->arrived + g->landed + g->told;
}

struct patience {
	uint64_t last, idle; /* cycles */
};

/* Moves everything on by what can be moved. */
static int pump(struct gdr_session *s, struct patience *p, uint64_t now)
{
	struct gdr_staging *g = s->staging;
	uint64_t before = moves(g);

	if (g->wire->poll(s) || land(s, g) || leave(s, g))
		return -1;
	if (moves(g) != before) {
		p->last = now;
		return 0;
	}
	if (now - p->last > p->idle)
		return gdr_idle(s);
	(void)sched_yield(); /* the kernel's part of the path, or a driver's thread, may want this processor */
	return 0;
}

static int all_left(const struct gdr_staging *g) { return g->final && g->credited == g->goal && g->sent == g->goal; }

static int all_landed(const struct gdr_staging *g) { return g->ended && g->told == g->arrived; }

static void begin(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;

	s->warming = 0;
	g->final = s->step.messages > 0;
	g->goal = g->final ? s->qps->goal * g->pieces : NEVER;
}

/* The window counts chunks, since a message can be many: of those that the other
 * end said are in its device. */
static int staged_bandwidth(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	int sending = g->out != NULL, receiving = g->in != NULL;
	uint64_t now = gdr_cycles(), polled = now, started = 0;
	struct patience p = { now, gdr_cycles_of(s, s->c.idle_ns) };
	struct track t = track(s, &s->sent, now);

	s->warming = sending && s->step.warm_up;
	if (s->warming)
		g->goal = s->step.warm_up * g->pieces;
	else if (sending)
		begin(s);
	while ((sending && !all_left(g)) || (receiving && !all_landed(g)) || g->credits_out) {
		uint64_t before = polled, handed_over = started, credited = g->credited;

		if (pump(s, &p, now))
			return -1;
		polled = now = gdr_cycles();
		started = g->started;
		if (g->credited != credited)
			count(&t, g->credited - credited, handed_over, before, now);
		s->progress = (sending ? g->credited : g->landed) / g->pieces;
		if (s->warming && g->credited == g->goal) {
			begin(s);
			gdr_clear(&s->sent);
			s->sent.total = g->credited;
			t = track(s, &s->sent, polled = now = gdr_cycles());
		}
		if (sending && now >= t.end && !s->warming) { /* one more whole message, which says the end */
			g->goal = (g->started / g->pieces + 1) * g->pieces;
			g->final = 1;
			t.end = NEVER;
		}
	}
	if (sending)
		finish(&t, s, 2 * (uint64_t)s->c.chunks);
	return 0;
}

static int await_landed(struct gdr_session *s, struct patience *p, uint64_t chunks)
{
	p->last = gdr_cycles();
	while (s->staging->landed < chunks)
		if (pump(s, p, gdr_cycles()))
			return -1;
	return 0;
}

static int staged_latency(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	struct patience p = { .idle = gdr_cycles_of(s, s->c.idle_ns) };
	struct pace pace = first_pace(s);
	uint64_t i;
	int last = 0;

	for (i = 0; !last; i++) {
		if (!s->c.initiator) {
			if (await_landed(s, &p, (i + 1) * g->pieces))
				return -1;
			last = g->ended;
			s->progress = i;
		} else {
			last = stamp(s, &pace, i);
		}
		g->final = last;
		g->goal += g->pieces;
		if (s->c.initiator && await_landed(s, &p, g->goal))
			return -1;
	}
	if (s->c.initiator)
		stamp_end(s, i);
	p.last = gdr_cycles();
	while (!all_left(g) || !all_landed(g) || g->credits_out)
		if (pump(s, &p, gdr_cycles()))
			return -1;
	return 0;
}

int gdr_staged(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	int rc = s->c.latency ? staged_latency(s) : staged_bandwidth(s);

	s->qps->posted = g->posted / g->pieces;
	s->qps->received = g->landed / g->pieces;
	return rc;
}
