/* Chunks over a connected socket, each behind a header. One frame is under way
 * in each direction; what the peer sends is believed only within its bounds. */
#define _GNU_SOURCE
#include "staging.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { HEADER = sizeof(struct gdr_frame) };

static int flush(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	struct gdr_socket *k = &g->socket;

	while (k->out_at < k->out_end) {
		size_t at = k->out_at < HEADER ? 0 : k->out_at - HEADER;
		struct iovec parts[2] = {
			{ (uint8_t *)&k->out + k->out_at, k->out_at < HEADER ? HEADER - k->out_at : 0 },
			{ (void *)(uintptr_t)(k->payload + at), k->out_end - HEADER - at },
		};
		struct msghdr m = { .msg_iov = parts, .msg_iovlen = k->out_end > HEADER ? 2 : 1 };
		ssize_t n;

		if (!parts[0].iov_len) {
			m.msg_iov = &parts[1];
			m.msg_iovlen = 1;
		}
		n = sendmsg(k->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : gdr_fail(s, "send on the data socket", errno);
		k->out_at += (size_t)n;
		if (k->out_at < k->out_end)
			continue;
		if (k->out.kind == GDR_FRAME_CHUNK)
			g->sent++;
		else
			g->credits_out--;
	}
	return 0;
}

static int begin(struct gdr_session *s, struct gdr_frame f, const uint8_t *payload)
{
	struct gdr_socket *k = &s->staging->socket;

	k->out = f;
	k->payload = payload;
	k->out_at = 0;
	k->out_end = HEADER + (payload ? f.value : 0);
	return flush(s);
}

static int busy(const struct gdr_socket *k) { return k->out_at < k->out_end; }

static int tcp_post(struct gdr_session *s, size_t bytes, int last)
{
	struct gdr_staging *g = s->staging;

	if (busy(&g->socket))
		return 1;
	return begin(s, (struct gdr_frame){ GDR_FRAME_CHUNK, (uint32_t)last, bytes }, gdr_slot(s, g->out, g->posted));
}

static int tcp_credit(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;

	if (busy(&g->socket))
		return 1;
	g->credits_out++;
	return begin(s, (struct gdr_frame){ GDR_FRAME_CREDIT, 0, g->landed }, NULL);
}

/* Judges a header that is complete. */
static int header(struct gdr_session *s, const struct gdr_frame *f)
{
	struct gdr_staging *g = s->staging;
	size_t off;

	if (f->kind == GDR_FRAME_CREDIT) {
		if (f->value < g->credited || f->value > g->posted)
			return gdr_fail(s, "a credit for what was not sent", EPROTO);
		g->credited = f->value;
		g->socket.in_at = 0;
		return 0;
	}
	if (f->kind != GDR_FRAME_CHUNK || !g->in || f->value != gdr_chunk(s, g->arrived, 0, &off))
		return gdr_fail(s, "what arrived on the data socket", EPROTO);
	if (g->ended || g->arrived - g->landed >= s->c.chunks)
		return gdr_fail(s, "a chunk without a free slot", EPROTO);
	return 0;
}

/* One read: of a header, or of as much of a chunk as there is. 1: nothing came. */
static int take(struct gdr_session *s)
{
	struct gdr_staging *g = s->staging;
	struct gdr_socket *k = &g->socket;
	size_t end = HEADER;
	uint8_t *to = (uint8_t *)&k->in + k->in_at;
	ssize_t n;

	if (k->in_at >= HEADER) {
		end += k->in.value;
		to = gdr_slot(s, g->in, g->arrived) + (k->in_at - HEADER);
	}
	n = recv(k->fd, to, end - k->in_at, MSG_DONTWAIT);
	if (n == 0)
		return gdr_fail(s, "the other end closed the data socket", ECONNRESET);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : gdr_fail(s, "recv on the data socket", errno);
	k->in_at += (size_t)n;
	if (k->in_at < end)
		return 0;
	if (end == HEADER)
		return header(s, &k->in);
	g->arrived++;
	g->ended = (int)k->in.last;
	k->in_at = 0;
	return 0;
}

static int tcp_poll(struct gdr_session *s)
{
	enum { READS = 8 }; /* then it is the copies' turn */
	int i, rc = flush(s);

	for (i = 0; !rc && i < READS; i++)
		rc = take(s);
	return rc < 0 ? rc : 0;
}

const struct gdr_wire gdr_wire_tcp = { .post = tcp_post, .credit = tcp_credit, .poll = tcp_poll };
