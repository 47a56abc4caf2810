/* What devices of the double report of their own accord. */
#include "provider.h"

#include <fcntl.h>

enum { DEVICES = 256 };

static struct device *open_devices[DEVICES];

void open_events(struct device *d)
{
	int fds[2], i;

	if (pipe2(fds, O_CLOEXEC))
		abort();
	d->v.context.async_fd = fds[0];
	d->events_in = fds[1];
	pthread_mutex_lock(&lock);
	for (i = 0; i < DEVICES && open_devices[i]; i++)
		;
	if (i == DEVICES)
		abort();
	open_devices[i] = d;
	pthread_mutex_unlock(&lock);
}

void close_events(struct device *d)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < DEVICES; i++)
		if (open_devices[i] == d)
			open_devices[i] = NULL;
	pthread_mutex_unlock(&lock);
	close(d->v.context.async_fd);
	close(d->events_in);
}

static int of_queue_pair(int type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
		return 1;
	default:
		return 0;
	}
}

void report(int type, struct qp *of)
{
	struct ibv_async_event e = { .element.port_num = 1, .event_type = (enum ibv_event_type)type };
	int i;

	if (of_queue_pair(type))
		e.element.qp = &of->qp;
	for (i = 0; i < DEVICES; i++) {
		struct device *d = open_devices[i];

		if (!d || (of_queue_pair(type) && of->qp.context != &d->v.context))
			continue;
		if (write(d->events_in, &e, sizeof(e)) != sizeof(e))
			abort();
	}
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
	if (read(c->async_fd, e, sizeof(*e)) != sizeof(*e))
		return -1;
	if (of_queue_pair((int)e->event_type))
		__atomic_add_fetch(&((struct qp *)e->element.qp)->events, 1, __ATOMIC_RELAXED);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	if (of_queue_pair((int)e->event_type))
		__atomic_sub_fetch(&((struct qp *)e->element.qp)->events, 1, __ATOMIC_RELAXED);
}
