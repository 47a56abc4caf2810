#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "clock.h"

int gdr_can_watch(const struct gdr_session *s) { return s->ctx && s->v.get_async_event && s->v.ack_async_event; }

int gdr_watch_open(struct gdr_session *s)
{
	int flags;

	if (!gdr_can_watch(s))
		return 0;
	flags = fcntl(s->ctx->async_fd, F_GETFL);
	return flags < 0 || fcntl(s->ctx->async_fd, F_SETFL, flags | O_NONBLOCK) ? errno : 0;
}

static struct gdr_event described(const struct gdr_session *s, const struct ibv_async_event *e)
{
	struct gdr_event out = { .type = (int)e->event_type, .qp = -1, .ns = gdr_monotonic_ns() };
	uint32_t i;

	switch (e->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out.port = e->element.port_num;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		for (i = 0; i < s->c.qps; i++)
			if (s->qps[i].qp == e->element.qp)
				out.qp = (int)i;
		break;
	default:
		break;
	}
	return out;
}

int gdr_wait_event(struct gdr_session *s, int stop)
{
	struct pollfd fds[2] = { { .fd = s->ctx->async_fd, .events = POLLIN }, { .fd = stop, .events = POLLIN } };
	int rc;

	do {
		rc = poll(fds, 2, -1);
	} while (rc < 0 && errno == EINTR);
	return rc > 0 && !fds[1].revents;
}

int gdr_take_event(struct gdr_session *s, struct gdr_event *out)
{
	struct ibv_async_event e;

	errno = 0;
	if (s->v.get_async_event(s->ctx, &e))
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	*out = described(s, &e);
	/* At once: destroying its queue pair waits for that. */
	s->v.ack_async_event(&e);
	return 1;
}

uint64_t gdr_now_ns(void) { return gdr_monotonic_ns(); }
