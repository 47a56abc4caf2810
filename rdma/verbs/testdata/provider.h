/* What the parts of the double of libibverbs share; provider.c says what it does. */
#ifndef PROVIDER_H
#define PROVIDER_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

enum { QPS = 4096, GRH = 40 };

struct entry {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t inlined[256];
};
struct cq {
	struct ibv_cq cq;
	struct ibv_wc *wc;
	unsigned int head, tail, size;
	int armed;
};
struct qp {
	struct ibv_qp qp;
	enum ibv_qp_state state;
	uint32_t peer;
	int far; /* socket to the process of the peer; 0: none yet */
	int events; /* that were taken and not acknowledged */
	struct entry *sq;
	struct ibv_recv_wr *rq;
	struct ibv_sge *rsge;
	unsigned int sq_head, sq_tail, sq_size, rq_head, rq_tail, rq_size;
};

struct device {
	struct verbs_context v;
	int events_in; /* what is written here is read from the context's async_fd */
};

static inline struct device *device_of(struct ibv_context *c)
{
	return (struct device *)((char *)c - offsetof(struct verbs_context, context));
}

extern pthread_mutex_t lock; /* of all that follows */
extern struct qp *qps[QPS];
extern struct qp *stalled; /* its oldest request waits for another process's receive */
extern long messages, fault_at;
extern int unplugged, reported;
extern char fault[16];
extern int fault_type; /* of an event; -1: none */

int is(const char *name); /* whether this message is the one to be spoilt in that manner */

/* provider_events.c */
void open_events(struct device *d);
void close_events(struct device *d);
/* Has each open device report an event; one of a queue pair only its own device. */
void report(int type, struct qp *of);

/* provider_gpu.c: bytes wherever they are. */
void load_cuda(void);
int on_gpu(const void *p);
void move(void *to, const void *from, size_t n);
void change(uint8_t *at, uint8_t by);

/* provider_move.c: messages between queue pairs. */
void complete(struct qp *q, const struct entry *e, enum ibv_wc_status status);
/* Places a message that comes with a receive. 0: there is none. */
int take(struct qp *peer, const void *from, uint32_t n, int write, int ud, int with_imm, uint32_t imm, uint8_t **to);
/* Writes so that whoever polls the last byte finds the others there. */
void place(uint8_t *to, const uint8_t *from, uint32_t n);
void set_ops(struct ibv_context_ops *ops);

/* provider_far.c: those of other processes. */
void open_process(void);
uint32_t process_of(uint32_t number);
uint32_t own_process(void);
/* Has another process do the oldest request of q, with the lock given up
 * meanwhile: the other may ask something of us. 0: it has to wait for a receive. */
int step_far(struct qp *q, struct entry *e, uint32_t number, uint8_t *from);

#endif
