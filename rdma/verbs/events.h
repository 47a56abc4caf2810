/* What device and port report of their own accord: ibv_get_async_event. */
#ifndef GDRCHECK_VERBS_EVENTS_H
#define GDRCHECK_VERBS_EVENTS_H

#include <stdint.h>

struct gdr_session;

struct gdr_event {
	int type;    /* enum ibv_event_type */
	int port;    /* of a port's; else 0 */
	int qp;      /* of a queue pair's, which one; else -1 */
	uint64_t ns; /* CLOCK_MONOTONIC */
};

/* Whether this libibverbs and the device tell of events. */
int gdr_can_watch(const struct gdr_session *s);

/* Makes reading events not wait. 0 or an errno. */
int gdr_watch_open(struct gdr_session *s);

/* Sleeps until there is an event, 1, or the descriptor stop can be read, 0. It may
 * be called by another thread than the rest, as gdr_take_event. */
int gdr_wait_event(struct gdr_session *s, int stop);

/* 1: an event; 0: none is there; -1: none will ever come. */
int gdr_take_event(struct gdr_session *s, struct gdr_event *e);

#endif
