/* What the data is, and whether it arrived. A destination is filled with the
 * complement of what is to come, so that no byte can be right by chance. */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16, WORD = 8 };

/* splitmix64's finalizer, by Sebastiano Vigna (public domain). */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Each end's data differs from the other's. */
static uint64_t seed_of(const struct gdr_session *s, int initiator)
{
	return mix(s->c.seed + (initiator ? 1 : 2));
}

/* Writes the data of a QP's slots from off on. A lost datagram shifts those
 * behind it, so on UD every message holds the same; header is what stands
 * before it in a slot. */
static void data(const struct gdr_session *s, int initiator, uint32_t qp, uint64_t off, uint64_t header, uint64_t *out, size_t bytes)
{
	uint64_t seed = seed_of(s, initiator), at = qp * s->span + off;
	size_t i;

	for (i = 0; i < bytes / WORD; i++, at += WORD) {
		uint64_t o = s->c.ud ? (off + i * WORD) % s->stride - header : at;

		out[i] = mix(seed + o / WORD * 0x9e3779b97f4a7c15u);
	}
}

static void invert(const uint64_t *from, uint64_t *to, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes / WORD; i++)
		to[i] = ~from[i];
}

static int marked(const struct gdr_session *s) { return s->c.op == GDR_WRITE && s->c.latency; }

/* Where the last byte of the first slot that ends at or after off ends. */
static uint64_t first_mark(const struct gdr_session *s, uint64_t off)
{
	uint64_t at = off / s->stride * s->stride + s->step.size - 1;

	return at < off ? at + s->stride : at;
}

static size_t chunk_at(const struct gdr_session *s, uint64_t off)
{
	return s->walk - off < CHUNK ? (size_t)(s->walk - off) : CHUNK;
}

int gdr_fill(struct gdr_session *s)
{
	uint64_t *buf = malloc(CHUNK), off;
	uint32_t q;
	int rc = buf ? 0 : ENOMEM;

	for (q = 0; !rc && q < s->c.qps; q++) {
		for (off = 0; !rc && off < s->walk; off += CHUNK) {
			size_t n = chunk_at(s, off);

			if (s->has_src) {
				data(s, s->c.initiator, q, off, 0, buf, n);
				rc = s->mem.ops->copy_in(&s->mem, q * s->span + off, buf, n);
			}
			if (!rc && s->has_dst) {
				data(s, !s->c.initiator, q, off, s->c.ud ? GDR_GRH : 0, buf, n);
				invert(buf, buf, n);
				if (marked(s)) {
					uint64_t at;

					for (at = first_mark(s, off); at < off + n; at += s->stride)
						((uint8_t *)buf)[at - off] = 0;
				}
				rc = s->mem.ops->copy_in(&s->mem, s->dst + q * s->span + off, buf, n);
			}
		}
	}
	free(buf);
	return rc ? gdr_fail(s, "filling the memory", rc) : 0;
}

/* The mark that the last of n messages to reach a slot left there. */
static uint8_t mark_left(const struct gdr_session *s, uint64_t slot, uint64_t n, uint8_t last_mark)
{
	uint64_t slots = s->walk / s->stride, lap = (n - 1 - slot) / slots;

	if (last_mark == GDR_MARK_END && lap * slots + slot == n - 1)
		return GDR_MARK_END;
	return (uint8_t)(1 + lap % GDR_MARKS);
}

static int differs(struct gdr_mismatch *m, const uint8_t *got, const uint8_t *want, size_t n, uint64_t offset, int untouched)
{
	size_t i;

	m->compared += n;
	if (!memcmp(got, want, n))
		return 0;
	for (i = 0; got[i] == want[i]; i++)
		;
	m->wrong = 1;
	m->untouched = untouched;
	m->offset = offset + i;
	m->got = got[i];
	m->want = want[i];
	return 1;
}

/* Compares one chunk of a QP's slots, segment by segment: of each slot the
 * header, which is skipped, the message, and what is behind it. */
static int compare(const struct gdr_session *s, struct gdr_mismatch *m, uint64_t base, uint64_t off, size_t n, uint64_t messages,
		   const uint8_t *got, const uint8_t *arrived, const uint8_t *filled)
{
	uint64_t header = s->c.ud ? GDR_GRH : 0, end = off + n, at = off;

	while (at < end) {
		uint64_t slot = at / s->stride, start = slot * s->stride, stop;
		int touched = slot < messages;
		const uint8_t *want = NULL;

		if (at < start + header) {
			stop = start + header;
		} else if (touched && at < start + header + s->step.size) {
			stop = start + header + s->step.size;
			want = arrived;
		} else {
			stop = start + s->stride;
			/* Behind the last datagram there may be one that says the end again. */
			if (touched || !s->c.ud)
				want = filled;
		}
		if (stop > end)
			stop = end;
		if (want && differs(m, got + (at - off), want + (at - off), (size_t)(stop - at), base + at, want == filled))
			return 1;
		at = stop;
	}
	return 0;
}

int gdr_session_verify(struct gdr_session *s, const uint64_t *messages, uint8_t last_mark, struct gdr_mismatch *m)
{
	uint64_t *buf = malloc(3 * CHUNK), off;
	uint32_t q;
	int rc = buf ? 0 : ENOMEM;

	memset(m, 0, sizeof(*m));
	for (q = 0; q < s->c.qps; q++)
		m->overwritten += messages[q] > s->walk / s->stride ? messages[q] - s->walk / s->stride : 0;
	for (q = 0; !rc && !m->wrong && q < s->c.qps; q++) {
		for (off = 0; !rc && off < s->walk; off += CHUNK) {
			size_t n = chunk_at(s, off);
			uint64_t *want = buf + CHUNK / WORD, *filled = buf + 2 * CHUNK / WORD;

			rc = s->mem.ops->copy_out(&s->mem, buf, s->dst + q * s->span + off, n);
			if (rc)
				break;
			data(s, !s->c.initiator, q, off, s->c.ud ? GDR_GRH : 0, want, n);
			invert(want, filled, n);
			if (marked(s)) {
				uint64_t at;

				for (at = first_mark(s, off); at < off + n; at += s->stride) {
					((uint8_t *)filled)[at - off] = 0;
					if (at / s->stride < messages[q])
						((uint8_t *)want)[at - off] = mark_left(s, at / s->stride, messages[q], last_mark);
				}
			}
			if (compare(s, m, q * s->span, off, n, messages[q], (uint8_t *)buf, (uint8_t *)want, (uint8_t *)filled))
				break;
		}
	}
	free(buf);
	return rc ? gdr_fail(s, "reading the memory back", rc) : 0;
}
