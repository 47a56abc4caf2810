/* The ways through host memory: chunks of a message are copied from the device
 * into pinned memory, go over a wire, and are copied from pinned memory into the
 * device, all at the same time, as NCCL does where it may not use GPUDirect RDMA. */
#ifndef GDRCHECK_VERBS_STAGING_H
#define GDRCHECK_VERBS_STAGING_H

#include "loop.h"

/* What carries chunks from one end's slots into the other's. Functions return
 * -1 on an error. */
struct gdr_wire {
	/* Sends chunk number posted from its slot; 1: not now. */
	int (*post)(struct gdr_session *s, size_t bytes, int last);
	/* Tells the other end that landed chunks have left their slots; 1: not now. */
	int (*credit)(struct gdr_session *s);
	/* Advances sent, credited and arrived. */
	int (*poll)(struct gdr_session *s);
};

extern const struct gdr_wire gdr_wire_rdma, gdr_wire_tcp;

/* What goes before a chunk on a socket, and what a credit is there. */
struct gdr_frame {
	uint32_t kind; /* enum gdr_frame_kind */
	uint32_t last; /* of the step's chunks */
	uint64_t value;
};

enum gdr_frame_kind { GDR_FRAME_CHUNK = 0x6e756863, GDR_FRAME_CREDIT = 0x64657263 }; /* "chun", "cred" */

struct gdr_socket {
	int fd;
	struct gdr_frame out, in;
	const uint8_t *payload; /* of out */
	size_t out_at, out_end; /* bytes of header and payload; equal: nothing to send */
	size_t in_at;           /* bytes of header and payload that have come */
};

struct gdr_staging {
	struct gdr_mem host; /* slots for what arrives at 0, behind them those for what leaves */
	int pinned;
	uint8_t *in, *out; /* NULL: nothing arrives, or leaves */
	void *in_queue, *out_queue;
	void **in_events, **out_events; /* one a slot */
	const struct gdr_wire *wire;
	struct gdr_socket socket;

	uint64_t pieces; /* chunks of a message, in this step */
	/* Chunks since the step began. Each is at most the one before, but credited
	 * is at most posted. */
	uint64_t goal, started, copied, posted, sent; /* leaving: the last has left its slot */
	uint64_t credited;                            /* in the other end's device */
	uint64_t arrived, landing, landed, told;      /* arriving: told of to the other end */
	uint32_t credits_out;                         /* credits not yet through */
	int final;                                    /* goal is the step's end */
	int ended;                                    /* the last chunk has arrived */
};

/* Makes slots, queues and events for the device memory of s. */
int gdr_staging_make(struct gdr_session *s);
void gdr_staging_close(struct gdr_session *s);
int gdr_staging_prepare(struct gdr_session *s);

int gdr_staged(struct gdr_session *s);
void gdr_copies_prepare(struct gdr_session *s);
int gdr_copies(struct gdr_session *s);

/* Compares what the last copies left in slots and device. */
int gdr_copies_verify(struct gdr_session *s, struct gdr_mismatch *m);

/* Where chunk k is in the device, from base on, and its length. */
static inline size_t gdr_chunk(const struct gdr_session *s, uint64_t k, uint64_t base, size_t *off)
{
	uint64_t message = k / s->staging->pieces, at = k % s->staging->pieces * s->c.chunk, left = s->step.size - at;

	*off = base + message % (s->walk / s->stride) * s->stride + at;
	return left < s->c.chunk ? left : s->c.chunk;
}

static inline uint8_t *gdr_slot(const struct gdr_session *s, uint8_t *slots, uint64_t k) { return slots + k % s->c.chunks * s->c.chunk; }

#endif
